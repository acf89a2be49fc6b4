//! Step functions as they are written: differences, which are short and compress well.

use memtrace_model::{BootNs, Bytes, Tgid, Upid};
use serde::{Serialize, Serializer};

/// Rising numbers: the first, and of each other how much larger it is than the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Gaps(Vec<i64>);

impl Gaps {
    pub(crate) fn of(numbers: impl Iterator<Item = i64>) -> Self {
        let mut before = 0_i64;
        let gaps =
            numbers.map(|number| number.saturating_sub(std::mem::replace(&mut before, number)));
        Self(gaps.collect())
    }

    /// Instants since the start of the recording.
    pub(super) fn of_instants(instants: &[BootNs], start: BootNs) -> Self {
        Self::of(instants.iter().map(|at| (*at - start).0))
    }
}

/// A step function: an amount holds until the next change. Before the first, what processes hold is
/// nothing, and limits and GPUs are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CurveSeries {
    /// What tells it from the others: the name of a role, the identity of a process, the path of a
    /// cgroup, `rest` for all others together; the same wherever the same thing is drawn.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Its process id, where it is one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<Tgid>,
    /// Its identity in the recording, where it is one process of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upid: Option<Upid>,
    /// Where it changes: places among the instants, as [`Gaps`].
    pub at: Gaps,
    /// By how much it is more than the known amount before, for each change; null where it is
    /// unknown from then on.
    #[serde(rename = "bytes", serialize_with = "differences")]
    pub(super) amounts: Vec<Option<Bytes>>,
}

impl CurveSeries {
    pub(crate) fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            ..Self::default()
        }
    }

    /// With the changes of one of the functions.
    pub(crate) fn with(self, steps: &[(u32, Option<Bytes>)]) -> Self {
        Self {
            at: Gaps::of(steps.iter().map(|(place, _)| i64::from(*place))),
            amounts: steps.iter().map(|(_, bytes)| *bytes).collect(),
            ..self
        }
    }

    /// The highest that it ever is; nothing where that is not known.
    pub(crate) fn highest(&self) -> Bytes {
        let amounts = self.amounts.iter().flatten();
        amounts.copied().max().unwrap_or_default()
    }

    /// Whether it is nothing all the time.
    pub(super) fn is_nothing(&self) -> bool {
        self.amounts.iter().all(|bytes| *bytes == Some(Bytes(0)))
    }
}

fn differences<S: Serializer>(amounts: &[Option<Bytes>], to: S) -> Result<S::Ok, S::Error> {
    let mut known = Bytes(0);
    to.collect_seq(amounts.iter().map(|bytes| {
        let bytes = (*bytes)?;
        Some(bytes - std::mem::replace(&mut known, bytes))
    }))
}
