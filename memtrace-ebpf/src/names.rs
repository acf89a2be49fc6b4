//! Names of programs, maps and globals in the BPF object.

/// The ring that carries every event.
pub const EVENTS: &str = "EVENTS";
/// Processes of the recording: tgid to [`crate::config::Member`].
pub const MEMBERS: &str = "MEMBERS";
/// Their address spaces: address of the mm_struct to the state of its sampling.
pub const SPACES: &str = "SPACES";
/// The last termination signal that another process sent to each member: tgid to `Termination`.
pub const TERMINATIONS: &str = "TERMINATIONS";
/// Address spaces that saw a page come or go since the last sweep: addresses of mm_structs.
pub const MOVED: &str = "MOVED";
/// Cgroups whose processes become members at exec: kernfs id to nothing.
pub const TARGET_CGROUPS: &str = "TARGET_CGROUPS";
/// What members did to their address spaces: tgid to sums.
pub const VM_STATES: &str = "VM_STATES";
/// Ends that found the ring full: [`crate::EndedKey`] to [`crate::Ended`].
pub const ENDED: &str = "ENDED";
/// Per-CPU counter of starts, execs and ends that found the ring full and are kept in
/// [`MEMBERS`] and [`ENDED`].
pub const KEPT: &str = "KEPT";
/// Per-CPU counters by [`crate::LossClass`].
pub const LOSSES: &str = "LOSSES";
/// What to add to a per-CPU pointer to reach each CPU's part.
pub const CPU_OFFSETS: &str = "CPU_OFFSETS";
/// The ring that carries samples of growth with stacks.
pub const STACKS: &str = "STACKS";
/// Calls of the CUDA driver that have not returned: thread to what entered.
pub const CUDA_ENTERED: &str = "CUDA_ENTERED";
/// Where interpreters keep their frames: tgid to [`crate::PythonLayout`].
pub const PYTHON: &str = "PYTHON";
/// The last samples by page: [`crate::Touched`].
pub const TOUCHED: &str = "TOUCHED";
/// Tags of pages that processes which came by fork have as their own.
pub const OWN_TAGS: &str = "OWN_TAGS";
/// The global that holds [`crate::Config`].
pub const CONFIG: &str = "CONFIG";
/// The global that holds [`crate::Layout`].
pub const LAYOUT: &str = "LAYOUT";
