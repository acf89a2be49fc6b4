//! Where phases come from: the rows of `mark`, and titles that stand for a call.

use super::pair::{Event, What};
use crate::log_kills::{KillLine, LINES_MAX};
use crate::name::Interner;
use crate::process_table::ProcessTable;
use memtrace_model::tables::{MarkKind, MarkRow, TitleRow};
use memtrace_model::{BootNs, END_IS_UNKNOWN, Order, RowSource, trim_title};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// What the phases need of a row of `mark`.
const MARK_COLUMNS: &[&str] = &[
    "ts",
    "boot_ns",
    "upid",
    "name",
    "kind",
    "span",
    "attributes",
];

/// Ray gives a worker the title of what it runs. `ray::Actor.method` is a call; without a dot it
/// can be a task or an actor that waits, which look the same.
const RAY: &str = "ray::";

/// What the Python package says of itself, and no program of its phases.
const OWN: &str = "memtrace.";

/// That something is not there to be instrumented; its attribute `target` says what.
const MISSING: &str = "memtrace.instrument.missing";

/// Longer attributes of a mark are not looked at.
const ATTRIBUTES_MAX: usize = 4_096;

/// The attribute that numbers a phase.
const STEP: &str = "step";

/// What marks say.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Everything that begins, ends or is a phase.
    pub(super) events: Vec<Event>,
    /// What is not there to be instrumented.
    pub(super) missing: BTreeSet<Arc<str>>,
    /// Every mark with its name, in the order of time.
    pub(super) names: Vec<(BootNs, Arc<str>)>,
    /// Lines that say that a process was killed.
    pub(crate) kills: Vec<KillLine>,
    /// How many more of them there are than are compared with the ends of processes.
    pub(crate) unread_kill_count: usize,
}

impl Marks {
    /// Reads the table `mark`.
    pub(crate) fn read<S: RowSource>(
        source: &S,
        table: &mut ProcessTable,
    ) -> Result<Self, S::Error> {
        let mut texts = Interner::default();
        let mut marks = Self::default();
        source.scan(MARK_COLUMNS, |row: MarkRow| {
            marks.take(row, table, &mut texts)
        })?;
        // A line of a log can be read long after it was written.
        marks.names.order_by_key(|(at, _)| *at);
        Ok(marks)
    }

    fn take(&mut self, row: MarkRow, table: &mut ProcessTable, texts: &mut Interner) {
        let name = texts.intern(&row.name);
        let is_over = is_over(&row);
        if !is_over {
            self.names.push((row.boot_ns, Arc::clone(&name)));
        }
        if row.name.starts_with(OWN) {
            if row.name == MISSING {
                let target = target_of(row.attributes.as_deref(), texts);
                self.missing.extend(target);
            }
            return;
        }
        let what = match row.kind {
            Some(MarkKind::Instant) if is_over => What::Over,
            Some(MarkKind::Instant) => What::Moment,
            Some(MarkKind::Begin) => What::Begin,
            Some(MarkKind::End) => What::End,
            Some(MarkKind::Kill) if self.kills.len() < LINES_MAX => {
                return self.kills.extend(KillLine::of(&row));
            }
            Some(MarkKind::Kill) => return self.unread_kill_count += 1,
            Some(MarkKind::Peak) | None => return,
        };
        let process = row.upid.map(|upid| table.position(upid, row.boot_ns));
        self.events.push(Event {
            boot_ns: row.boot_ns,
            process,
            what,
            name,
            span: row.span,
            step: row.attributes.as_deref().and_then(step_of),
            attributes: row
                .attributes
                .filter(|text| text.len() <= ATTRIBUTES_MAX)
                .map(|text| texts.intern(&text)),
        });
    }
}

/// Titles that stand for a call, and those that end one.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(super) events: Vec<Event>,
    /// By process: whether its last title was a call.
    called: HashMap<usize, bool>,
    texts: Interner,
}

impl Calls {
    /// Takes the next title of a process.
    pub(crate) fn take(&mut self, process: usize, row: &TitleRow) {
        let title = row.title.as_deref().map(trim_title).unwrap_or_default();
        let call = title.strip_prefix(RAY);
        let is_call = call.is_some_and(|call| call.contains('.'));
        // Most titles neither begin nor end a call.
        if is_call || self.called.get(&process) == Some(&true) {
            self.called.insert(process, is_call);
            self.events.push(Event {
                boot_ns: row.boot_ns,
                process: Some(process),
                what: What::Title { is_call },
                name: self.texts.intern(title),
                span: None,
                step: None,
                attributes: None,
            });
        }
    }
}

/// Whether it says of a phase that it is over, and not since when.
fn is_over(row: &MarkRow) -> bool {
    let is_said = |attributes: &str| {
        let attributes: Option<Value> = attributes
            .contains(END_IS_UNKNOWN)
            .then(|| serde_json::from_str(attributes).ok())
            .flatten();
        attributes.is_some_and(|attributes| attributes[END_IS_UNKNOWN] == true)
    };
    row.span.is_some() && row.attributes.as_deref().is_some_and(is_said)
}

fn target_of(attributes: Option<&str>, texts: &mut Interner) -> Option<Arc<str>> {
    let attributes: Value = serde_json::from_str(attributes?).ok()?;
    Some(texts.intern(attributes.get("target")?.as_str()?))
}

fn step_of(attributes: &str) -> Option<i64> {
    if !attributes.contains(STEP) {
        return None;
    }
    let attributes: Value = serde_json::from_str(attributes).ok()?;
    attributes.get(STEP)?.as_i64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_whole_number_in_the_attributes() {
        let cases = [
            (r#"{"step":12,"loss":0.5}"#, Some(12)),
            (r#"{"step":"12"}"#, None),
            (r#"{"step":1.5}"#, None),
            (r#"{"inner":{"step":1}}"#, None),
            ("step", None),
        ];
        for (attributes, step) in cases {
            assert_eq!(step_of(attributes), step, "{attributes}");
        }
    }
}
