//! How processes ended.

use crate::analyze::section::{Section, Tables, View, one_part};
use crate::analyze::who::Bundle;
use crate::analyze::{Analysis, Ending, RowSource};
use crate::report::{Cell, Chapter, Table, TableOf, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// How the processes of a recording ended.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
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
#[derive(Clone, Debug)]
struct Group {
    /// How.
    ending: Ending,
    /// Who, in the order in which they started.
    who: Bundle,
}

impl Section for Endings {
    const NAME: &'static str = "endings";
    const DOC: &'static str = "how processes ended";
    const KEYS: &'static [&'static str] = &["endings"];
    const TABLES: Option<Tables<Self>> =
        Some(|found, analysis, top| one_part(found.table(analysis, top)));

    fn find<S: RowSource>(_source: &S, analysis: &Analysis) -> Result<Self, S::Error> {
        let processes = &analysis.processes;
        let mut endings = Counts::default();
        let mut groups: HashMap<(Ending, &str), Vec<usize>> = HashMap::new();
        for (position, process) in processes.iter().enumerate() {
            *endings.counter(process.ending) += 1;
            if process.ending.is_notable() {
                let key = (process.ending, process.shape.as_ref());
                groups.entry(key).or_default().push(position);
            }
        }
        let groups = groups.into_iter().map(|((ending, _), members)| Group {
            ending,
            who: Bundle::of(processes, members),
        });
        let mut notable: Vec<Group> = groups.collect();
        notable.sort_by_key(|group| (group.ending.gravity(), group.who.members.first().copied()));
        Ok(Self { endings, notable })
    }

    fn tell(&self, analysis: &Analysis, view: &View<'_>) -> Vec<Chapter> {
        let endings = &self.endings;
        if analysis.processes.is_empty() {
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
        let told: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", words::count(*count)))
            .collect();
        let mut section = Chapter::new(format!("How they ended: {}", told.join(", ")));
        section.table(self.table(analysis, view.top));
        let more = " more kinds of ending: see `--format json`.";
        section.rest(self.notable.len(), view.top, words::count, more);
        vec![section]
    }
}

impl Endings {
    fn table(&self, analysis: &Analysis, top: usize) -> Table {
        TableOf::of(self.notable.iter().take(top))
            .words("how", 0, |group| group.ending.shown_in_full())
            .data("process_count", |group| group.who.process_count.to_string())
            .who(|group| group.who.cells())
            .figures("at_s", 1, |group| {
                let first = group.who.members.first();
                let at = Cell::from(first.and_then(|&one| analysis.processes[one].end));
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
