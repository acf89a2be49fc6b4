//! memtrace records where the memory of a process tree goes.
//!
//! The rooms, in the order in which a datum passes through them:
//!
//! * [`host`] learns what this machine offers and plans with it;
//! * [`collect`] observes processes, cgroups and the node;
//! * [`model`] names what was seen: ids, units, tables;
//! * [`store`] keeps it: the crash-safe spool, Parquet, the reader;
//! * [`sweep`] adds memory up as time goes by: processes, sums of them, their highest;
//! * [`report`] lays out lines and tables as text, Markdown, CSV and JSON, no I/O;
//! * [`analyze`] thinks: rows in, findings and what they say out, no I/O;
//! * [`session`] conducts one recording from start to stop;
//! * [`cli`] talks to the person.
//!
//! Imports go one way; `cargo xtask rooms` holds the list of allowed edges.

pub mod analyze;
pub mod cli;
pub mod collect;
pub mod host;
pub mod model;
pub mod report;
pub mod session;
pub mod store;
pub mod sweep;
