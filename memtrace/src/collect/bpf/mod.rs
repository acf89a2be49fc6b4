//! The `bpf` backend: kernel probes for every start, end, name and drift of RSS, the task
//! iterator for what was already running, a sweep at every tick for the rest.
//!
//! `load` knows aya, `layout` the kernel's structures, `probes` what is attached, `decode`
//! the bytes of an event, `apply` what an event means, `late` what the ring had no room for
//! (`ended` takes it out of the kernel), `attach` who belongs; `object` is what is loaded, `peaks` what a
//! peak is, `kills` OOM kills, `calls` how calls on address spaces are seen, `vm` their rows,
//! `misses` what the programs did not get to see, `measure` what they cost those who call,
//! `backend` the order of it all.

mod apply;
mod attach;
mod backend;
mod calls;
mod cost;
mod decode;
mod ended;
mod kills;
mod late;
mod layout;
mod load;
mod measure;
mod misses;
mod object;
mod peaks;
mod probes;
mod vm;

pub use backend::{BpfBackend, BpfOptions, HeldCommand};
pub use decode::{DecodeError, decode};
pub use layout::reduced_btf;
pub use load::LoadError;
pub use measure::probe_costs;
