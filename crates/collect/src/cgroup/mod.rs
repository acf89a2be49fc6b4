//! Memory cgroups: what the groups of the recorded processes hold, and which path
//! belongs to a cgroup id.

mod collector;
mod group;
mod keys;
mod moves;
mod others;
mod paths;
mod reading;
mod v1;
mod v2;

pub use collector::CgroupCollector;
pub use keys::unread_keys;
pub use paths::CgroupPaths;
