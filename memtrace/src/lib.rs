//! The `memtrace` command: [`session`] conducts one recording from start to stop, [`cli`] talks to the
//! person. What they do it with are crates of their own, below `crates/`; docs/architecture.md has the
//! picture.
//!
//! Words that mean one thing each:
//!
//! * *amounts*: bytes by kind of memory (resident, anonymous, file, shared, swapped), null where
//!   unknown;
//! * *attribution*: a cgroup's or the node's memory in use, line by line, each with who holds it;
//!   a person sees it as the *ledger*;
//! * *composition*: who held what at one instant;
//! * *finding*: a serde type that is both a part of the JSON and what a section writes;
//! * *fork family*: a process since its exec and all forks of it, which can share pages;
//! * *held*: memory with every page counted once, unlike a sum of RSS;
//! * *lane*: a sum over a set of processes as time goes by, in a sweep;
//! * *mark*: what a program, a person or a log line says happened at an instant; a begin and an
//!   end of one name make a *phase*;
//! * *member*: a process that is recorded;
//! * *orphaned shared memory*: an object that nobody has mapped or open when a recording ends;
//! * *pending peak*: a maximum that the BPF programs have seen and not yet sent;
//! * *process table*: every process of a recording, by identity; `collect` has that of the living;
//! * *role*: what a process does in its framework; it can change, and its memory is counted with
//!   the role that it had;
//! * *self-reported*: measured by a process of itself, and sent with a mark;
//! * *survivor*: a process that outlives the recorded command;
//! * *sweep*: one pass over rows in the order of time; in `collect::bpf`, one pass of the BPF
//!   programs over the members that moved;
//! * *upid*: identity of a process within a recording; process ids are used again.

pub mod cli;
pub mod session;
