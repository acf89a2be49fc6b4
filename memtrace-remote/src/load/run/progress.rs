//! How far a run is and how long it still takes: a line on a terminal, else one for each condition.

use crate::load::plan::Condition;
use indicatif::{ProgressBar, ProgressStyle};
use memtrace::cli::say;
use std::io::{self, IsTerminal};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(250);

/// Far enough to divide the work of a condition by its requests.
const PARTS: u64 = 1_000;

pub(super) struct Progress {
    bar: ProgressBar,
    condition_count: usize,
}

impl Progress {
    pub(super) fn of(conditions: &[Condition], has_bar: bool) -> Self {
        let work = conditions
            .iter()
            .map(|one| one.weight().saturating_mul(PARTS));
        let work = work.fold(0, u64::saturating_add);
        let bar = match has_bar && io::stderr().is_terminal() {
            true => ProgressBar::new(work),
            false => ProgressBar::hidden(),
        };
        let template = "memtrace: {msg} {wide_bar} {elapsed}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self {
            bar,
            condition_count: conditions.len(),
        }
    }

    /// So many requests of a condition have ended.
    pub(super) fn note(&self, condition: &Condition, ended: usize) {
        self.bar.set_message(format!(
            "{} ({} of {}), {ended} of {} requests",
            condition.name,
            condition.condition + 1,
            self.condition_count,
            condition.requests
        ));
    }

    /// One more has.
    pub(super) fn advance(&self, condition: &Condition) {
        let requests = condition.requests as u64;
        self.bar
            .inc(condition.weight().saturating_mul(PARTS) / requests);
    }

    /// Says something beside the line.
    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| say(text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
