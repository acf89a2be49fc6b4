//! Endings that nobody asked for: they stand among the first lines of a report. How all processes
//! ended is told by `endings`.

use super::endings::Group;
use super::oom_kills;
use crate::section::{MORE_IN_JSON, Section, View};
use crate::{Analysis, Ending, Survivor, together};
use memtrace_model::{Bytes, Fate, RowSource, Upid};
use memtrace_report::words::{bytes_or_unknown, count, processes};
use memtrace_report::{Chapter, Tone};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// Kinds of endings that get a line.
const MAX_TOLD: usize = 5;

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
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
}

impl Section for AbnormalEndings {
    const NAME: &'static str = "abnormal";
    const DOC: &'static str = "who was killed or crashed, or left processes running";
    const KEYS: &'static [&'static str] = &["abnormal_endings"];

    fn find<S: RowSource>(_source: &S, analysis: &Analysis) -> Result<Self, S::Error> {
        Ok(Self::of(analysis))
    }

    fn tell(&self, analysis: &Analysis, view: &View<'_>) -> Vec<Chapter> {
        // Among the first lines of the whole report stands the first of them.
        let is_told = view.is_below_the_answer()
            && oom_kills::is_none(analysis)
            && self.headline(analysis).is_some();
        let others =
            &self.abnormal_endings[usize::from(is_told).min(self.abnormal_endings.len())..];
        let most = view.most(MAX_TOLD);
        let mut section = Chapter::alarming(match is_told {
            true => "Others ended abnormally",
            false => "Ended abnormally",
        });
        let shown = others.iter().take(most).map(|one| one.in_words(analysis));
        section.tell(Tone::Strong, shown);
        section.rest(others.len(), most, count, MORE_IN_JSON);
        Some(section)
            .into_iter()
            .filter(|section| !section.blocks.is_empty())
            .collect()
    }
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
        // `--kill-survivors` did, and the survivors are told with what became of them.
        let is_by_recorder = |&place: &usize| {
            let survivor = by_upid.get(&analysis.processes[place].upid);
            let fate = survivor.and_then(|one| one.row.fate);
            matches!(fate, Some(Fate::Killed | Fate::Terminated))
        };
        let groups = Group::all(analysis).into_iter().filter_map(|group| {
            let members = || group.who.members.iter();
            let left = || members().filter_map(|root| by_root.get(root)).flatten();
            let outlived_count = left().count();
            let outlived_bytes = together(left().map(|one| one.row.held_bytes()));
            let has_left_some = outlived_count > 0 && !group.is_oom_kill();
            let is_violent = group.is_violent() && !members().all(is_by_recorder);
            (is_violent || has_left_some).then_some(AbnormalEnding {
                outlived_count,
                outlived_bytes,
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

    /// The gravest of them in a sentence, with how many others there are, and which process it is.
    pub(super) fn in_short(&self, analysis: &Analysis) -> Option<(String, Option<usize>)> {
        let first = self.headline(analysis)?;
        let others = self.abnormal_endings.iter().skip(1);
        let more = match others.map(|one| one.group.who.process_count).sum() {
            0 => String::new(),
            others => format!(" {} more ended abnormally.", processes(others)),
        };
        let gravest = first.group.who.members.first();
        Some((first.in_words(analysis) + &more, gravest.copied()))
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
                bytes_or_unknown(self.outlived_bytes)
            ),
        };
        format!("{who}: {}{when}{left}.", group.how())
    }
}
