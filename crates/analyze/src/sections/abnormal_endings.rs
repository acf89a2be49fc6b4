//! Endings that nobody asked for: they stand among the first lines of a report. How all processes
//! ended is reported by `endings`.

use super::endings::Group;
use super::oom_kills;
use crate::leftovers::held_in_words;
use crate::log_kills::{LogKill, unread_in_words};
use crate::{Analysis, Ending, Report, Survivor, together};
use memtrace_model::{Bytes, Fate, Upid};
use memtrace_report::words::{count, counted, processes};
use memtrace_report::{Chapter, MORE_IN_JSON, Section, Tone};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Kinds of endings that get a line.
const LINES_MAX: usize = 5;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct AbnormalEndings {
    /// The endings that nobody asked for, the gravest first.
    abnormal_endings: Vec<AbnormalEnding>,
}

/// Processes of one kind that were killed, that crashed, or that left descendants running.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct AbnormalEnding {
    /// Who, and how.
    #[serde(flatten)]
    group: Group,
    /// How many descendants outlived them, where they were roots of trees.
    outlived_count: usize,
    /// What those held at the end of the recording: sum of RSS and swap; null when unknown.
    outlived_bytes: Option<Bytes>,
    /// The same, every page once, in words.
    #[serde(skip)]
    outlived_held: String,
}

pub(super) const SECTION: Section<Report> = Section {
    name: "abnormal",
    doc: "who was killed or crashed, or left processes running",
    keys: &["abnormal_endings", "log_kills", "unread_kill_count"],
    tell: |analysis, view| {
        let found = &analysis.abnormal_endings;
        // Among the first lines of the whole report stands the first of them.
        let is_below = view.is_below_the_answer() && oom_kills::is_none(analysis);
        let is_reported = is_below && found.in_short(analysis).is_some();
        let is_own_reported = is_below && !is_reported;
        let (own, kills): (Vec<&LogKill>, Vec<&LogKill>) =
            analysis.log_kills.iter().partition(|kill| kill.is_own_end);
        let in_words = |kill: &LogKill| kill.in_words(&analysis.processes, &analysis.clock);
        let endings = found.abnormal_endings.iter();
        let all = kills
            .into_iter()
            .filter_map(in_words)
            .chain(endings.map(|one| one.in_words(analysis)))
            .chain(
                own.into_iter()
                    .skip(usize::from(is_own_reported))
                    .filter_map(in_words),
            );
        let others: Vec<String> = all.skip(usize::from(is_reported)).collect();
        let most = view.most(LINES_MAX);
        let mut section = Chapter::alarming(match is_reported {
            true => "Others ended abnormally",
            false => "Ended abnormally",
        });
        section.tell(Tone::Strong, others.iter().take(most).cloned());
        section.rest(others.len(), most, count, MORE_IN_JSON);
        let is_said = |section: &Chapter| !section.blocks.is_empty();
        let claims = claims(analysis, most);
        [section, claims].into_iter().filter(is_said).collect()
    },
    ..Section::EMPTY
};

/// What logs say of kills and no end of a process bears out.
fn claims(analysis: &Analysis, most: usize) -> Chapter {
    let claims = analysis.log_kills.iter();
    let claims: Vec<&LogKill> = claims.filter(|kill| kill.members.is_empty()).collect();
    let mut section = Chapter::new("Claims in logs");
    let shown = claims.iter().take(most);
    section.tell(
        Tone::Plain,
        shown.map(|kill| kill.claim_in_words(&analysis.clock)),
    );
    section.rest(claims.len(), most, count, MORE_IN_JSON);
    section.tell(Tone::Quiet, unread_in_words(analysis.unread_kill_count));
    section
}

impl AbnormalEndings {
    /// The endings of a recording that nobody asked for.
    pub(super) fn of(analysis: &Analysis) -> Self {
        let outlived = &analysis.leftovers.outlived;
        let by_upid: HashMap<Upid, &Survivor> =
            outlived.iter().map(|one| (one.row.upid, one)).collect();
        let mut by_root: HashMap<usize, Vec<&Survivor>> = HashMap::new();
        for process in &analysis.processes {
            if let (Some(root), Some(survivor)) = (process.root, by_upid.get(&process.upid)) {
                by_root.entry(root).or_default().push(survivor);
            }
        }
        // `--kill-survivors` did, and the survivors are reported with what became of them.
        let is_by_recorder = |&place: &usize| {
            let survivor = by_upid.get(&analysis.processes[place].upid);
            let fate = survivor.and_then(|one| one.row.fate);
            matches!(fate, Some(Fate::Killed | Fate::Terminated))
        };
        // They are reported with their killers, but for what they left running.
        let logged = analysis.log_kills.iter().flat_map(|kill| &kill.members);
        let logged = logged.filter(|place| !by_root.contains_key(place));
        let logged: HashSet<usize> = logged.copied().collect();
        let groups = Group::all(analysis, |place| logged.contains(&place));
        let groups = groups.into_iter().filter_map(|group| {
            let members = || group.who.members.iter();
            let left = || members().filter_map(|root| by_root.get(root)).flatten();
            let outlived_count = left().count();
            let left = left().copied();
            let outlived_bytes = together(left.clone().map(|one| one.row.held_bytes()));
            let outlived_held = held_in_words(left);
            let has_left_some = outlived_count > 0 && !group.is_oom_kill();
            let is_violent = group.is_violent() && !members().all(is_by_recorder);
            (is_violent || has_left_some).then_some(AbnormalEnding {
                outlived_count,
                outlived_bytes,
                outlived_held,
                group,
            })
        });
        Self {
            abnormal_endings: groups.collect(),
        }
    }

    /// The gravest of them; none where the command failed by itself and an ancestor stopped them: it
    /// is what happened.
    fn headline(&self, analysis: &Analysis) -> Option<&AbnormalEnding> {
        let has_failed =
            matches!(analysis.command_ending(), Some(Ending::Exited(code)) if code != 0);
        let gravest = self.abnormal_endings.first()?;
        (!has_failed || !gravest.group.is_by_ancestor()).then_some(gravest)
    }

    /// The gravest of them in a sentence, with how many others there are, and which process it is: a
    /// kill whose killer logged it, or else the gravest end.
    pub(super) fn in_short(&self, analysis: &Analysis) -> Option<(String, Option<usize>)> {
        let kills = analysis.log_kills.iter().filter(|kill| !kill.is_own_end);
        let logged: Vec<usize> = kills.flat_map(|kill| &kill.members).copied().collect();
        let (reported, first) = match logged.is_empty() {
            false => {
                let kill = analysis.log_kills.first()?;
                let reported = kill.in_words(&analysis.processes, &analysis.clock)?;
                (reported, kill.members.as_slice())
            }
            true => {
                let first = self.headline(analysis)?;
                (first.in_words(analysis), first.group.who.members.as_slice())
            }
        };
        let endings = self.abnormal_endings.iter();
        let ended = endings.flat_map(|one| &one.group.who.members);
        let all: HashSet<usize> = ended.copied().chain(logged).collect();
        let who = first.first().copied();
        let more = match all.len() - first.len() {
            0 => String::new(),
            others => format!(" {} more ended abnormally.", processes(others)),
        };
        Some((reported + &more, who))
    }

    /// The first that a killer had end by itself, and how many others there are: no failure.
    pub(super) fn own_in_short(analysis: &Analysis) -> Option<String> {
        let kills = analysis.log_kills.iter();
        let mut kills = kills.filter(|kill| kill.is_own_end);
        let first = kills
            .next()?
            .in_words(&analysis.processes, &analysis.clock)?;
        Some(match kills.count() {
            0 => first,
            others => format!("{first} {} more like it.", counted(others, "line", "lines")),
        })
    }
}

impl AbnormalEnding {
    fn in_words(&self, analysis: &Analysis) -> String {
        let (group, who) = (&self.group, self.group.who.in_words());
        let when = group.end.map(|end| analysis.clock.when(end));
        let when = when.map_or_else(String::new, |when| match group.who.process_count {
            1 => format!(" at {when}"),
            _ => format!(", from {when}"),
        });
        let left = match self.outlived_count {
            0 => String::new(),
            outlived => format!(
                "; left {} running that held {}",
                processes(outlived),
                self.outlived_held
            ),
        };
        format!("{who}: {}{when}{left}.", group.how())
    }
}
