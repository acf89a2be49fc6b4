//! What is known of a recording beside what was drawn during the pass.

use crate::RunClock;
use crate::composition::Composition;
use crate::gpu::Gpus;
use crate::groups::Groups;
use crate::process_table::ProcessTable;
use memtrace_model::BootNs;

/// What is known beside what was drawn during the pass.
pub(crate) struct Known<'a> {
    pub(crate) table: &'a ProcessTable,
    pub(crate) groups: &'a Groups,
    pub(crate) clock: &'a RunClock,
    /// Instants that people look at.
    pub(crate) foci: &'a [BootNs],
    pub(crate) peak: Option<&'a Composition>,
    /// The cgroups in which somebody was killed.
    pub(crate) killed_in: Vec<String>,
    pub(crate) gpus: Option<&'a Gpus>,
    /// What the host is called.
    pub(crate) host: &'a str,
}
