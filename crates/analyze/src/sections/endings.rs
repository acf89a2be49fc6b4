//! How processes ended.

use crate::sender::{Sender, SenderFate};
use crate::termination::{Termination, TerminationKeys, end_in_short, end_in_words};
use crate::who::Bundle;
use crate::{Analysis, Ending, Report};
use memtrace_model::{Instant, Order};
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, one_part, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// How the processes of a recording ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Endings {
    /// How many ended how.
    endings: Counts,
    /// The endings a person should read about, the gravest first.
    #[serde(skip)]
    notable: Vec<Group>,
}

/// How many ended how.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct Counts {
    /// Running when the recording stopped.
    running_count: usize,
    /// Exit code 0.
    exited_zero_count: usize,
    /// Any other exit code.
    exited_nonzero_count: usize,
    /// Ended by a signal, the OOM killer's aside.
    killed_count: usize,
    /// Ended by the OOM killer.
    oom_killed_count: usize,
    /// Ended, and how is unknown.
    unknown_count: usize,
}

/// Processes of one kind that ended in the same way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Group {
    /// How they ended.
    #[serde(flatten)]
    ending: Ending,
    /// Who sent the signal.
    #[serde(flatten)]
    sender: Sender,
    /// Who had asked the first of them to end.
    #[serde(flatten, with = "TerminationKeys")]
    asked: Option<Box<Termination>>,
    /// What to read first.
    #[serde(skip)]
    gravity: u8,
    /// Who, in the order in which they started.
    #[serde(flatten)]
    pub(super) who: Bundle,
    /// When the first of them to start ended.
    pub(super) end: Option<Instant>,
}

impl Group {
    /// The endings that a person should read about, the gravest first.
    pub(super) fn all(analysis: &Analysis, is_left_out: impl Fn(usize) -> bool) -> Vec<Self> {
        let processes = &analysis.processes;
        let mut groups: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, process) in processes.iter().enumerate() {
            if process.ending.is_notable() && !is_left_out(place) {
                let asked = process.asked.as_ref();
                let asked = asked.map(|asked| (asked.signal, &asked.sender));
                let key = (process.ending, &process.sender, asked, &process.shape);
                groups.entry(key).or_default().push(place);
            }
        }
        let groups = groups.into_values().map(|members| {
            let first = &processes[members[0]];
            let mut asked = first.asked.clone();
            if let (Some(asked), 2..) = (&mut asked, members.len()) {
                asked.until_end = None;
            }
            Self {
                ending: first.ending,
                sender: first.sender.clone(),
                asked,
                gravity: first.gravity(),
                end: first.end,
                who: Bundle::of(processes, members),
            }
        });
        let mut groups: Vec<Self> = groups.collect();
        groups.order_by_key(|group| (group.gravity, group.who.members.first().copied()));
        groups
    }

    /// The ending in words.
    pub(super) fn how(&self) -> String {
        end_in_words(self.ending, &self.sender, self.asked.as_deref())
    }

    /// Whether somebody killed them, or they crashed. The OOM killer's kills are reported elsewhere.
    pub(super) fn is_violent(&self) -> bool {
        matches!(self.gravity, Ending::KILLED..=Ending::STOPPED)
    }

    /// Whether the OOM killer ended them.
    pub(super) fn is_oom_kill(&self) -> bool {
        self.ending.by_oom_killer() == Some(true)
    }

    /// Whether an ancestor sent them the signal.
    pub(super) fn is_by_ancestor(&self) -> bool {
        self.sender.is_ancestor()
    }
}

pub(super) const SECTION: Section<Report> = Section {
    name: "endings",
    doc: "how processes ended",
    keys: &["endings"],
    tables: Some(|report, top| one_part(report.endings.table(top))),
    // What ended abnormally stands above.
    is_worth_telling: |report| {
        let is_reported_above = |group: &Group| group.is_violent() || group.is_oom_kill();
        let mut notable = report.endings.notable.iter();
        notable.any(|group| !is_reported_above(group))
    },
    tell: |report, view| {
        let found = &report.endings;
        let endings = &found.endings;
        if report.processes.is_empty() {
            return Vec::new();
        }
        let counts = [
            (endings.oom_killed_count, "killed by the OOM killer"),
            (endings.killed_count, "ended by a signal"),
            (endings.exited_nonzero_count, "exited with an error"),
            (endings.exited_zero_count, "exited 0"),
            (endings.running_count, "running at the end"),
            (endings.unknown_count, "of unknown end"),
        ];
        let reported: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", words::count(*count)))
            .collect();
        let mut section = Chapter::new(format!("How they ended: {}", reported.join(", ")));
        section.table(found.table(view.top));
        let more = " more kinds of ending: see `--format json`.";
        section.rest(found.notable.len(), view.top, words::count, more);
        let fates = found.notable.iter().take(view.top);
        let fates: Vec<SenderFate> = fates.map(|group| group.sender.fate()).collect();
        if fates.contains(&SenderFate::ShutDown) {
            section.explain(
                "As it shut down: an ancestor sent the signal that had been asked to end by one \
                 itself and started no process after that, or that had ended.",
            );
        }
        if fates.contains(&SenderFate::EndedSoon) || fates.contains(&SenderFate::FailedSoon) {
            section.explain(
                "Before it ended: an ancestor sent the signal that ended by itself within 15 s. \
                 Whether it was ending then is not known.",
            );
        }
        vec![section]
    },
    ..Section::EMPTY
};

impl Endings {
    pub(super) fn of(analysis: &Analysis) -> Self {
        let mut endings = Counts::default();
        for process in &analysis.processes {
            *endings.counter(process.ending) += 1;
        }
        let notable = Group::all(analysis, |_| false);
        Self { endings, notable }
    }

    fn table(&self, top: usize) -> Table {
        TableOf::of(self.notable.iter().take(top))
            .words("how", 0, |group| {
                end_in_short(group.ending, &group.sender, group.asked.as_deref())
            })
            .data("process_count", |group| group.who.process_count.to_string())
            .who(|group| group.who.cells())
            .figures("at_s", 1, |group| {
                let at = Cell::from(group.end);
                match (&at, group.who.process_count) {
                    (Cell::At(Some(_)), 2..) => at.shown_as(format!("from {}", at.shown())),
                    _ => at,
                }
            })
            .done()
    }
}

impl Counts {
    fn counter(&mut self, ending: Ending) -> &mut usize {
        match ending {
            Ending::Running => &mut self.running_count,
            Ending::Exited(0) => &mut self.exited_zero_count,
            Ending::Exited(_) => &mut self.exited_nonzero_count,
            Ending::Killed {
                by_oom_killer: Some(true),
                ..
            } => &mut self.oom_killed_count,
            Ending::Killed { .. } => &mut self.killed_count,
            Ending::Unknown => &mut self.unknown_count,
        }
    }
}
