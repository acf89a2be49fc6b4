//! Marks that programs send to the recording's socket. A thread takes them in as they
//! arrive, because few fit into the kernel's queue; the collector writes them with the
//! identity that the kernel gives for their sender.

mod collector;
mod inbox;
mod queue;
mod socket;

pub use collector::MarkCollector;
pub use socket::{MarkSocket, SocketError};
