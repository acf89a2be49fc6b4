//! All traces that were asked about: the object of the JSON.

use super::skew::{Window, windows};
use super::summary::TraceSummary;
use serde::Serialize;

const FORMAT: &str = "memtrace-traces";
const VERSION: u32 = 1;

/// Traces and their ranks side by side. A key is never renamed within its version.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    format: &'static str,
    version: u32,
    /// Each trace: those with a rank first, in its order, then by name.
    pub traces: Vec<TraceSummary>,
    /// Those of several that overlap in time.
    pub windows: Vec<Window>,
    /// Whether only windows are reported to people.
    #[serde(skip)]
    pub has_only_windows: bool,
}

impl Overview {
    /// Of traces in any order.
    pub fn of(mut traces: Vec<TraceSummary>, has_only_windows: bool) -> Self {
        let key = |trace: &TraceSummary| (trace.rank.is_none(), trace.rank, trace.file.clone());
        traces.sort_by_cached_key(key);
        Self {
            format: FORMAT,
            version: VERSION,
            windows: windows(&traces),
            traces,
            has_only_windows,
        }
    }
}
