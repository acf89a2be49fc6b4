//! Processes as /proc shows them: the polling backend, and who a process is.
//!
//! The hot files (statm, stat, status) are parsed here and not with the procfs crate,
//! which takes 34 µs and more for a status; see `probe` for what a poll costs.

mod backend;
mod census;
mod cgroup_procs;
mod dir;
#[cfg(test)]
mod fake;
mod identity;
mod listing;
mod member;
mod names;
mod now;
mod probe;
mod refusals;
mod stat;
mod status;
#[cfg(test)]
mod tests;
mod text;

pub use backend::{ProcfsBackend, ProcfsOptions, descriptor_limit};
pub use cgroup_procs::below as processes_below;
pub use identity::{Identity, IdentityError, identity, lineage, own_processes};
pub(super) use identity::{set_cgroup, set_text};
pub use now::{Now, now};
pub(super) use stat::Stat;
pub(super) use text::memory_cgroup;
pub use text::{CMDLINE_LIMIT, command_line};
