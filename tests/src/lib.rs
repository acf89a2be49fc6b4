//! What the tests and the benchmark of memtrace share: what they need of a machine,
//! workloads and their truth, the recorder as a person runs it.

pub mod allocations;
pub mod beside;
pub mod cgroup;
pub mod cuda;
pub mod gpu;
pub mod need;
pub mod own_peak;
pub mod program;
pub mod recorder;
pub mod scenario;
pub mod workload;
