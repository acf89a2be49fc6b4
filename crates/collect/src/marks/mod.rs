//! Marks that programs send to the recording's socket, and lines of logs that are marks.
//! Threads take them in as they arrive: few messages fit into the kernel's queue, and the
//! time of a line is that of its arrival. The collector writes them, each with its process.
//! What a process asks about its sections comes beside them, and what a load experiment tells of
//! its requests.

mod asked;
mod collector;
mod found_log;
mod inbox;
mod lines;
mod questions;
mod queue;
mod requests;
mod socket;

pub use collector::{MarkCollector, MarkSourceError, MarkSources};
pub use lines::{Followed, FrameHeader, Passed, RulesError};
pub use socket::{MarkSocket, SocketError};
