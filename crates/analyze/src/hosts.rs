//! One answer for a job of many hosts: each recording is reduced to what it adds to it, a
//! [`HostPart`], and the parts are merged into a [`RunReport`]. Nothing else crosses hosts.

mod answer;
mod bounds;
mod chapters;
mod clocks;
mod coded;
mod curves;
mod diff;
mod ends;
mod host;
mod line;
mod marks;
mod merge;
mod page;
mod part;
mod peers;
mod reduce;
mod report;
mod run;
mod sum;
#[cfg(test)]
mod tests;

pub use chapters::RUN_SECTIONS;
pub use curves::RunCurves;
pub(super) use diff::Object as RunDiffObject;
pub use diff::{Bounded, ComparedRun, HostChange, JobRoleChange, RankStageChange, RunDiff};
pub use line::Line;
pub use merge::{Unread, merge, merge_with_curves};
pub use part::{HostPart, PartError, Place};
pub use reduce::reduce;
pub(super) use report::Object as RunObject;
pub use run::RunReport;
