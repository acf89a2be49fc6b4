//! What NVIDIA's management library answers here. It is asked by `collect::gpu`, which alone
//! knows it; these are the answers as facts.

use memtrace_model::{DurationNs, GpuInfo};
use serde::Serialize;

/// One look at the library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NvmlSurvey {
    /// Why it can't be asked; `None` where it answers.
    pub failure: Option<String>,
    /// Whether that is because the dynamic loader does not find it.
    pub is_absent: bool,
    /// Version of the driver.
    pub driver: Option<String>,
    /// The devices that it lists.
    pub devices: Vec<GpuInfo>,
    /// The calls that a recording makes, as the first device answers them.
    pub calls: Vec<GpuCall>,
}

/// One call to the library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuCall {
    /// What it asks for, with the version of the call.
    pub name: String,
    /// Why it does not work; `None` where it does.
    pub failure: Option<String>,
    /// The time it took, wall clock.
    pub cost_ns: DurationNs,
}

impl NvmlSurvey {
    /// A host without the library.
    pub fn absent(reason: &str) -> Self {
        Self {
            failure: Some(reason.to_owned()),
            is_absent: true,
            ..Self::default()
        }
    }
}
