//! What the memory of a process is, and what it holds when shared pages are divided:
//! `pss`, `mapping`.
//!
//! Learning that is costly, and done wrong it stops the process: the kernel walks its page
//! tables under its mmap lock. So a thread of its own does it (`worker`), under a budget of
//! CPU time (`budget`), most urgent process first (`queue`), and in one of two ways that
//! hold the lock for a short time only: `text` (of smaps) where the whole process is small, `pagemap`
//! in pieces where it is large. `mappings` and `tally` are what both have in common.

mod budget;
mod collector;
mod mappings;
mod pagemap;
mod queue;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod worker;

pub use collector::{SmapsCollector, SmapsOptions};
