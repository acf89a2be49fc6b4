//! Phases that share a line: how they spread, and how they grow from step to step.

use crate::analyze::{self, Analysis};
use crate::model::{Bytes, Tgid, Upid};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Spread {
    known_count: usize,
    sum_bytes: Bytes,
    mean_bytes: i64,
    p95_bytes: Bytes,
}

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

#[derive(Serialize)]
pub(in crate::report::json) struct Slope {
    bytes_per_step: f64,
    low_bytes_per_step: Option<f64>,
    high_bytes_per_step: Option<f64>,
    step_count: usize,
    first_step: i64,
    last_step: i64,
}

impl Spread {
    pub(super) fn of(spread: &analyze::Spread) -> Self {
        Self {
            known_count: spread.known_count,
            sum_bytes: spread.sum,
            mean_bytes: spread.mean_bytes as i64,
            p95_bytes: spread.p95,
        }
    }
}

impl Steps {
    pub(super) fn of(analysis: &Analysis, steps: &analyze::Steps) -> Self {
        let grower = steps.grower.as_ref().map(|(process, slope)| {
            let process = &analysis.processes[*process];
            Grower {
                pid: process.tgid,
                upid: process.upid,
                slope: Slope::of(slope),
            }
        });
        Self {
            first: steps.first,
            last: steps.last,
            count: steps.count,
            tree: steps.tree.as_ref().map(Slope::of),
            own: steps.own.as_ref().map(Slope::of),
            gpu: steps.gpu.as_ref().map(Slope::of),
            grower,
        }
    }
}

impl Slope {
    pub(in crate::report::json) fn of(slope: &analyze::Slope) -> Self {
        Self {
            bytes_per_step: slope.bytes_per_step,
            low_bytes_per_step: bounded(slope.low_bytes_per_step),
            high_bytes_per_step: bounded(slope.high_bytes_per_step),
            step_count: slope.step_count,
            first_step: slope.first_step,
            last_step: slope.last_step,
        }
    }
}

/// JSON has no infinity: an interval without a bound is null there.
fn bounded(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
