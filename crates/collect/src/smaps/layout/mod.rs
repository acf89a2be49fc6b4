//! Anonymous memory by who laid it out: the table `layout`.
//!
//! A thread of its own reads it (`worker`), under its part of the budget, whoever moved most first
//! (`turns`). Of a process it lists the mappings (`areas`), divides each among those who laid it
//! out (`claims`), by their own headers at the begin of blocks (`glibc`, `pymalloc`, `stacks`), and
//! counts resident pages (`pages`). What the allocator keeps free is
//! read from the same headers (`heaps`), and for samples of growth whether an address is in use (`blocks`).
//!
//! Headers are read from /proc/PID/mem, which neither stops nor enters the process, and only where a
//! page is there (`target`): reading an absent one would make it. They change while they
//! are read and belong to versions, so each figure stands on a check that another layout fails
//! (a chain of blocks has to arrive at the end of its heap), and where that fails there is none.

mod areas;
mod blocks;
mod claims;
mod glibc;
mod heaps;
mod pages;
mod pymalloc;
mod reading;
mod stacks;
mod target;
mod turns;
mod worker;

pub(crate) use blocks::Blocks;
pub(super) use reading::LayoutReading;
pub(super) use turns::WORTH;

#[cfg(test)]
mod tests;
pub(super) use worker::LayoutWorker;
