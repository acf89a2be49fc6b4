//! The findings of a whole recording.

use super::clock::RunClock;
use super::composition::Composition;
use super::cost::RecorderCost;
use super::endings::Endings;
use super::family::Family;
use super::growth::Growth;
use super::losses::Loss;
use super::oom::OomFinding;
use super::process::Process;
use super::series::SeriesPoint;
use crate::model::{BootNs, Bytes, RunInfo};

/// All that a report tells.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// What the recording says about itself.
    pub info: RunInfo,
    /// When it was.
    pub clock: RunClock,
    /// The recording's place; `None` when unknown.
    pub path: Option<String>,
    /// Whether a recorder was still writing to it.
    pub is_live: bool,
    /// What is wrong with the recording's files, one sentence each. Known only after reading,
    /// so whoever reads them fills it in.
    pub problems: Vec<String>,
    /// What was lost or not visible.
    pub losses: Vec<Loss>,
    /// What the recording cost.
    pub cost: Option<RecorderCost>,
    /// Every process, in the order in which they started.
    pub processes: Vec<Process>,
    /// Who descends from whom.
    pub family: Family,
    /// The instant at which all processes together held most; `None` without a row of memory.
    pub peak: Option<Composition>,
    /// The instant that was asked for.
    pub at: Option<Composition>,
    /// The trees, the one with the highest peak first.
    pub trees: Vec<TreeFinding>,
    /// The growth of all processes together; `None` when too short to tell.
    pub growth: Option<Growth>,
    /// The memory of all processes together over the recording.
    pub curve: Vec<SeriesPoint>,
    /// Kills by the OOM killer.
    pub ooms: Vec<OomFinding>,
    /// How processes ended.
    pub endings: Endings,
}

/// The main process of a tree against all that descends from it.
#[derive(Clone, Copy, Debug)]
pub struct TreeFinding {
    /// The main process.
    pub root: usize,
    /// What it held at the peak of all processes; `None` when unknown.
    pub root_at_peak: Option<Bytes>,
    /// What its descendants held then; `None` when there is no peak.
    pub descendants_at_peak: Option<Bytes>,
    /// The highest its descendants held together, and when.
    pub descendants_peak: Option<(Bytes, BootNs)>,
    /// The highest it held together with its descendants, and when.
    pub tree_peak: Option<(Bytes, BootNs)>,
    /// How many processes descended from it.
    pub descendant_count: usize,
}

impl Analysis {
    /// The processes by their own peak, the highest first, those of unknown peak last.
    pub fn by_peak(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        order.sort_by_key(|&position| {
            let peak = self.processes[position].peak.rss_bytes;
            (std::cmp::Reverse(peak), position)
        });
        order
    }

    /// Whether peaks between two observations can be missing from the series.
    pub fn is_polled(&self) -> bool {
        self.info.backend != "bpf"
    }
}
