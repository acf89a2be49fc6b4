//! What the memory of a process is, and what it holds when shared pages are divided:
//! `pss`, `mapping`; what is shared: `shm_object`, `cached_file`; who laid it out: `layout`.
//!
//! Learning that is costly, and done wrong it stops the process: the kernel walks its page
//! tables under its mmap lock. So a thread of its own does it (`worker`), under a budget of
//! CPU time (`budget`), most urgent process first (`queue`), and in one of two ways that
//! hold the lock for a short time only: `text` (of smaps) where the process is small, `pagemap`
//! in pieces where it is large. `mappings` and `totals` are what both have in common.
//! What readings show of shared objects and of files is followed by `objects` and `files`;
//! `descriptors` looks who has shared memory open (`open_files`), in a thread of its own, for a file
//! system can fail to answer. `other_mappers` looks who maps it outside of the recording. `layout`
//! has a thread and a budget of its own, too.

mod backings;
mod budget;
mod cache;
mod collector;
mod descriptors;
mod facts;
mod families;
mod files;
mod key;
mod layout;
mod mappings;
mod objects;
mod open_files;
mod other_mappers;
mod pagemap;
mod queue;
mod rows;
mod scale;
mod subject;
mod sysv;
#[cfg(test)]
mod tests;
mod text;
mod totals;
mod unseen;
mod worker;

pub use collector::{SmapsCollector, SmapsOptions};
pub(crate) use families::recognise;
pub(crate) use key::{Key, key_of};
pub(crate) use layout::Blocks;
pub(crate) use mappings::{Device, Header};
pub(crate) use other_mappers::processes;
pub(crate) use sysv::segments;
