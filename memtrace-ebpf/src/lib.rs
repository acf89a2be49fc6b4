//! What crosses the kernel border: events, configuration, loss classes, names of maps and
//! programs. Compiled into both sides, so that neither can drift from the other.
//!
//! Every event is a struct of its own with a fixed layout, integers and byte arrays only,
//! no hidden padding; zerocopy's derives check that when this crate compiles. Every event
//! begins with an [`EventHeader`]. No field changes its meaning by event type.
#![no_std]

pub mod config;
pub mod event;
pub mod loss;
pub mod names;

pub use config::{Config, Layout, PythonLayout, Touched};
pub use event::{
    Comm, Counts, CudaCall, CudaCookie, CudaPlace, Ended, EndedKey, EventHeader, EventKind, Exec,
    Exit, Fork, FullTmpfs, Oom, Origin, PythonFrame, Sample, SampleCause, SentSignal, StackSample,
    TaskSeen, Termination, VmCall, VmOp, VmSum, VmTotals,
};
pub use loss::LossClass;
