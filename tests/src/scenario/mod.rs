//! Recordings of workloads, held against what the workloads know. The kernel tests ask
//! that every score is full; the benchmark prints them.

mod book;
mod holdings;
mod hostile;
mod identities;
mod ledger;
mod marks;
mod oom;
mod peaks;
mod phases;
mod ray;
mod removed;
mod reserve;
mod scapegoat;
mod sections;
mod settle;
mod shared;
mod sharing;
mod spikes;
mod staged;
mod survivors;
mod swarm;
mod vm;

pub use book::{Book, Score};
pub use holdings::holdings;
pub use hostile::{Excess, Hostile, hostile};
pub use identities::{daemons, exec_from_thread, execs, titles};
pub use ledger::{ledger, mortal, sudden, total};
pub use marks::{Marks, marks};
pub use oom::{oom, oom_on_v2};
pub use peaks::{forkstorm, leader_exit, vforkchild};
pub use phases::phases;
pub use ray::{ray_cluster, ray_session};
pub use removed::removed_group;
pub use reserve::reserve;
pub use scapegoat::scapegoat;
pub use sections::sections;
pub use settle::Settle;
pub use shared::{clone_vm, zombie};
pub use sharing::{inherited, large, object};
pub use spikes::{spikes, spikes_after_churn};
pub use staged::{Stage, staged};
pub use survivors::survivors;
pub use swarm::{renames, stopped, storm_at_attach};
pub use vm::{missed_by_kretprobes, vm, vm_storm, vm_ways};
