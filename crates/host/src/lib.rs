//! What this machine offers: facts that are read once, and what follows from them.
//!
//! [`HostFacts`] is read at start and stored with the recording. Everything that decides
//! (the plan of a recording, `memtrace doctor`) is an ordinary function of it.

#[cfg(target_os = "linux")]
mod bpf_call;
#[cfg(target_os = "linux")]
pub mod btf;
mod c_library;
mod capability;
mod cgroup;
pub mod clock;
pub mod doctor;
mod facts;
mod gpu;
mod heap;
mod hidden;
pub mod mark_sockets;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespace;
mod person;
#[cfg(not(target_os = "linux"))]
mod platform;
#[cfg(target_os = "linux")]
mod read;
#[cfg(target_os = "linux")]
mod return_probes;
#[cfg(target_os = "linux")]
mod trial;

mod plan;
mod probes;
mod remedy;

#[cfg(target_os = "linux")]
pub use bpf_call::{BPF_PROG_LOAD, ProgramLoad, bpf, bpf_fd};
pub use c_library::{LOADS_LIBRARIES, c_library};
pub use capability::{Capabilities, Capability};
pub use cgroup::{CgroupVersion, MemoryHierarchy};
pub use facts::{HidePid, HostFacts, Lockdown, SudoUser};
pub use gpu::{GpuCall, NvmlSurvey};
pub use heap::release_free_memory;
pub use hidden::is_running;
#[cfg(target_os = "linux")]
pub use mounts::tmpfs_mounts;
#[cfg(target_os = "linux")]
pub use namespace::enter_cgroup_namespace_of_the_machine;
pub use person::{Person, as_person, give_up_capabilities, give_up_rights_in_child};
pub use plan::{Backend, Obstacle, Plan, PlanError};
pub use probes::{ProbeChoice, ProbeCosts, ProbeObstacle, ProbeWay, Slowdown};
#[cfg(target_os = "linux")]
pub use return_probes::are_return_probes_harmless;
