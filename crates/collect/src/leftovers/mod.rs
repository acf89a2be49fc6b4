//! What is left of a recorded tree at the end of a recording: processes that outlived it,
//! and shared memory without an owner. Looked at once, not followed; `session` decides what
//! to do about it.

mod objects;
mod processes;

pub use objects::SharedMemory;
pub use processes::{LeftRunning, survivors};
