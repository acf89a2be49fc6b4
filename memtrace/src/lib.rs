//! memtrace records where the memory of a process tree goes.
//!
//! The rooms, in the order in which a datum passes through them:
//!
//! * [`host`] learns what this machine offers and plans with it;
//! * [`collect`] observes processes, cgroups and the node;
//! * [`model`] names what was seen: ids, units, tables;
//! * [`store`] keeps it: the crash-safe spool, Parquet, the reader;
//! * [`sweep`] adds memory up as time goes by: processes, sums of them, their highest;
//! * `page` is the HTML file around what is drawn: its data, its script;
//! * `perfetto` is the form of a trace for Perfetto: packets, tracks, clocks;
//! * [`report`] lays out lines and tables as text, Markdown, CSV, JSON and HTML, no I/O;
//! * [`import`] understands files of load generators;
//! * [`analyze`] thinks: rows in, findings and what they say out, no I/O;
//! * [`traces`] reads traces of torch's profiler and sums them up, a room of its own beside recordings;
//! * [`session`] conducts one recording from start to stop;
//! * [`top`] shows a recording that goes on, on a terminal;
//! * [`cli`] talks to the person.
//!
//! Imports go one way; `cargo xtask rooms` holds the list of allowed edges.
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

pub mod analyze;
pub mod cli;
pub mod collect;
pub mod host;
pub mod import;
pub mod model;
mod page;
mod perfetto;
pub mod report;
pub mod session;
pub mod store;
pub mod sweep;
pub mod top;
pub mod traces;
