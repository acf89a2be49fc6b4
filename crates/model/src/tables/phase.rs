//! `phase`: what each named phase cost, as the report finds it.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, Tgid, Upid, WallNs};

table! {
    /// A phase, an instant with the stretch before it, or a call that a title names, with the memory at its start, at its end, and at its highest between. In the order of their begins.
    pub struct PhaseRow in "phase" {
        /// The process whose it is; null for that of a person, which belongs to the whole recording.
        upid: Option<Upid>,
        /// Its process id; null where it is not known.
        tgid: Option<Tgid>,
        /// What it was named.
        name: String,
        /// What its process is called.
        process_name: Option<String>,
        /// What its process is to its framework, as in `process`.
        role: Option<String>,
        /// The framework that its process belongs to, as in `process`.
        framework: Option<String>,
        /// Which of several its process is, as in `process`.
        rank: Option<String>,
        /// What it is made of.
        kind: Option<PhaseForm>,
        /// How many phases of its process were open when it began.
        depth: i64,
        /// Its number, from its name or its attribute `step`; null when it has none.
        step: Option<i64>,
        /// When it began, on the wall clock (UTC); of an instant, when the mark before it was. Null when nothing tells.
        begin_ts: Option<WallNs>,
        /// The same on CLOCK_BOOTTIME.
        begin_boot_ns: Option<BootNs>,
        /// When it ended, on the wall clock (UTC).
        end_ts: Option<WallNs>,
        /// The same on CLOCK_BOOTTIME.
        end_boot_ns: BootNs,
        /// From its start to its end; null when the start is unknown.
        duration_ns: Option<DurationNs>,
        /// What ended it.
        ended_by: Option<PhaseEnd>,
        /// Whether it was marked after the end of its process.
        is_after_exit: bool,
        /// RSS of its process at its start.
        rss_begin_bytes: Option<Bytes>,
        /// RSS of its process at its end.
        rss_end_bytes: Option<Bytes>,
        /// What that grew by.
        rss_delta_bytes: Option<Bytes>,
        /// The highest RSS of its process from its start to its end.
        rss_peak_bytes: Option<Bytes>,
        /// When that was.
        rss_peak_boot_ns: Option<BootNs>,
        /// Anonymous memory of its process at its start.
        rss_anon_begin_bytes: Option<Bytes>,
        /// Anonymous memory of its process at its end.
        rss_anon_end_bytes: Option<Bytes>,
        /// Whether a row after its start says that its process did not hold `rss_begin_bytes` then.
        begin_is_uncertain: bool,
        /// The same of its end.
        end_is_uncertain: bool,
        /// The highest RSS of its process in it as the kernel kept it, where the program asked (`memtrace.peak`).
        exact_peak_bytes: Option<Bytes>,
        /// The highest sum of RSS over all that descends from its process: an upper bound, since shared pages count in each. Null for that of a person, and where there was too much to add up.
        child_rss_peak_bytes: Option<Bytes>,
        /// What all recorded processes held at its start, every page once (docs/concepts.md). Null in findings of older versions.
        held_begin_bytes: Option<Bytes>,
        /// The same at its end.
        held_end_bytes: Option<Bytes>,
        /// What that grew by.
        held_delta_bytes: Option<Bytes>,
        /// The highest of it from its start to its end.
        held_peak_bytes: Option<Bytes>,
        /// When that was.
        held_peak_boot_ns: Option<BootNs>,
        /// The sum of RSS over all recorded processes at its start: an upper bound, since shared pages count in each.
        tree_rss_begin_bytes: Option<Bytes>,
        /// The same at its end.
        tree_rss_end_bytes: Option<Bytes>,
        /// What that grew by.
        tree_rss_delta_bytes: Option<Bytes>,
        /// The highest of that sum from its start to its end.
        tree_rss_peak_bytes: Option<Bytes>,
        /// When that was.
        tree_rss_peak_boot_ns: Option<BootNs>,
        /// Anonymous memory of all recorded processes at its start; what a fork shares counts in each.
        tree_rss_anon_begin_bytes: Option<Bytes>,
        /// The same at its end.
        tree_rss_anon_end_bytes: Option<Bytes>,
        /// Whether a row after its start says that all together did not hold `tree_rss_begin_bytes` then.
        tree_begin_is_uncertain: bool,
        /// The same of its end.
        tree_end_is_uncertain: bool,
        /// What was in use on all GPUs together at its start; null where none reported.
        gpu_begin_bytes: Option<Bytes>,
        /// The same at its end.
        gpu_end_bytes: Option<Bytes>,
        /// The highest of that from its start to its end.
        gpu_peak_bytes: Option<Bytes>,
        /// The page cache of the machine at its start; null where it was not read in between.
        page_cache_begin_bytes: Option<Bytes>,
        /// The same at its end.
        page_cache_end_bytes: Option<Bytes>,
        /// The highest of that from its start to its end.
        page_cache_peak_bytes: Option<Bytes>,
        /// The attributes of its marks, a JSON object; those of the end win. Null when there are none.
        attributes: Option<String>,
    }
}

labels! {
    /// What a phase is made of.
    pub enum PhaseForm {
        /// Marks for its start and its end.
        Marked = "phase",
        /// A mark for a moment.
        Moment = "instant",
        /// A title that the process had meanwhile.
        Title = "title",
    }
}

labels! {
    /// What ended a phase.
    pub enum PhaseEnd {
        /// Its mark or the next title.
        Marked = "mark",
        /// It was open when its process ended.
        Process = "process_end",
        /// It was open when the recording ended, or when the processes of its command began to end: it goes on until then.
        Recording = "recording_end",
    }
}
