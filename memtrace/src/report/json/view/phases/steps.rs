//! Phases that share a line: how they spread, and how they grow from step to step.

use crate::analyze::{self, Analysis, Slope};
use crate::model::{Tgid, Upid};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Steps {
    first: i64,
    last: i64,
    count: usize,
    tree: Option<Slope>,
    own: Option<Slope>,
    gpu: Option<Slope>,
    grower: Option<Grower>,
}

/// The process that grows most, of several.
#[derive(Serialize)]
struct Grower {
    pid: Option<Tgid>,
    upid: Upid,
    slope: Slope,
}

impl Steps {
    pub(super) fn of(analysis: &Analysis, steps: &analyze::Steps) -> Self {
        let grower = steps.grower.as_ref().map(|(process, slope)| {
            let process = &analysis.processes[*process];
            Grower {
                pid: process.tgid,
                upid: process.upid,
                slope: *slope,
            }
        });
        Self {
            first: steps.first,
            last: steps.last,
            count: steps.count,
            tree: steps.tree,
            own: steps.own,
            gpu: steps.gpu,
            grower,
        }
    }
}
