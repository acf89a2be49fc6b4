//! The `bpf` backend: kernel probes for every start, end, name and drift of RSS, the task
//! iterator for what was already running, a sweep at every tick for the rest.
//!
//! `load` knows aya, `layout` the kernel's structures, `probes` what is attached, `decode`
//! the bytes of an event, `apply` what an event means, `ended` what the kernel keeps of those
//! for which the ring had no room; `object` is what is loaded, `peaks` what a peak is, `kills`
//! OOM kills, `sender` who sent a signal, `stacks` where samples of growth come from, `calls` how calls on address spaces are seen, `vm` their rows, `misses` what the
//! programs did not get to see, `measure` what they cost those who call, `backend` the order of
//! it all (`attach` who belongs, `late` what the ring had no room for).

mod apply;
mod backend;
mod calls;
mod cost;
mod cuda;
mod decode;
mod ended;
mod error;
mod kills;
mod known;
mod kretprobe;
mod layout;
mod load;
mod measure;
mod misses;
mod object;
mod peaks;
mod probes;
mod program;
mod sender;
mod stacks;
mod vm;

pub use backend::{BpfBackend, BpfOptions, FEW_CPUS, HeldCommand};
pub use decode::{DecodeError, decode};
pub use error::LoadError;
pub use layout::reduced_btf;
pub use measure::probe_costs;
pub use object::object_hash;
pub use stacks::{StackSource, TouchedPages};
