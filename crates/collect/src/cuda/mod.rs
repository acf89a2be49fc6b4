//! GPU memory as the CUDA driver was asked for it: what its functions do with memory, where its
//! library is, and what each process holds.
//!
//! The probes that see the calls are in [`crate::bpf`].

mod functions;
mod ledger;
mod ledgers;
mod library;

pub use functions::{FUNCTIONS, Function};
pub use ledgers::Ledgers;
pub use library::{FileId, Library, LibraryError, file_id, installed, is_library, mapped};
