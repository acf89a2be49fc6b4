//! What is known of a recording beside what was drawn during the pass.

use crate::analyze::RunClock;
use crate::analyze::composition::Composition;
use crate::analyze::gpu::Gpus;
use crate::analyze::groups::Groups;
use crate::analyze::process_table::ProcessTable;
use crate::model::BootNs;

/// What is known beside what was drawn during the pass.
pub(in crate::analyze) struct Known<'a> {
    pub(in crate::analyze) table: &'a ProcessTable,
    pub(in crate::analyze) groups: &'a Groups,
    pub(in crate::analyze) clock: &'a RunClock,
    /// Instants that people look at.
    pub(in crate::analyze) foci: &'a [BootNs],
    pub(in crate::analyze) peak: Option<&'a Composition>,
    /// The cgroups in which somebody was killed.
    pub(in crate::analyze) killed_in: Vec<String>,
    pub(in crate::analyze) gpus: Option<&'a Gpus>,
    /// What the host is called.
    pub(in crate::analyze) host: &'a str,
}
