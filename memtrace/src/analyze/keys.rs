//! How a finding stands in the JSON object that it is part of, where its keys differ by place.

use super::who::Who;
use crate::model::{Bytes, Instant, Kind, Label, Role};
use crate::sweep::Totals;
use serde::Serializer;
use serde::ser::SerializeMap;

/// An amount at its highest, and when.
pub type PeakAt = (Bytes, Instant);

/// How much it was.
pub(super) fn highest(peak: Option<PeakAt>) -> Option<Bytes> {
    peak.map(|(bytes, _)| bytes)
}

/// `peak_bytes` and `peak_at`.
pub(super) fn peak<S: Serializer>(high: &Option<PeakAt>, to: S) -> Result<S::Ok, S::Error> {
    named_peak(["peak_bytes", "peak_at"], *high, to)
}

/// `peak_rss_bytes` and `peak_at`.
pub(super) fn peak_rss<S: Serializer>(high: &Option<PeakAt>, to: S) -> Result<S::Ok, S::Error> {
    named_peak(["peak_rss_bytes", "peak_at"], *high, to)
}

/// `sum_of_rss_peak_bytes` and `sum_of_rss_peak_at`.
pub(super) fn rss_peak<S: Serializer>(high: &Option<PeakAt>, to: S) -> Result<S::Ok, S::Error> {
    named_peak(["sum_of_rss_peak_bytes", "sum_of_rss_peak_at"], *high, to)
}

fn named_peak<S: Serializer>(
    names: [&str; 2],
    high: Option<PeakAt>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let (bytes, at) = high.unzip();
    let mut keys = to.serialize_map(Some(2))?;
    keys.serialize_entry(names[0], &bytes)?;
    keys.serialize_entry(names[1], &at)?;
    keys.end()
}

/// `sum_of_rss_bytes` and so on for each kind, and `unknown_process_count`.
pub(super) fn totals<S: Serializer>(totals: &Totals, to: S) -> Result<S::Ok, S::Error> {
    let mut keys = to.serialize_map(None)?;
    for &kind in Kind::ALL {
        keys.serialize_entry(&format!("sum_of_{}", kind.key()), &totals[kind].bytes())?;
    }
    let unknown_count = totals[Kind::Rss].unknown_count();
    keys.serialize_entry("unknown_process_count", &unknown_count)?;
    keys.end()
}

/// `framework`, `role` and `rank`.
pub(super) fn role<S: Serializer>(role: &Option<Role>, to: S) -> Result<S::Ok, S::Error> {
    let role = role.as_ref();
    to.collect_map([
        ("framework", role.and_then(|role| role.framework.as_deref())),
        ("role", role.map(|role| role.role.as_str())),
        ("rank", role.and_then(|role| role.rank.as_deref())),
    ])
}

/// `owner_pid`, `owner_upid` and `owner_name`.
pub(super) fn owner<S: Serializer>(who: &Who, to: S) -> Result<S::Ok, S::Error> {
    named(["owner_pid", "owner_upid", "owner_name"], who, to)
}

/// `pid`, `upid` and `process_name`, where `name` is another's.
pub(super) fn process<S: Serializer>(who: &Who, to: S) -> Result<S::Ok, S::Error> {
    named(["pid", "upid", "process_name"], who, to)
}

fn named<S: Serializer>(names: [&str; 3], who: &Who, to: S) -> Result<S::Ok, S::Error> {
    let mut keys = to.serialize_map(Some(3))?;
    keys.serialize_entry(names[0], &who.pid)?;
    keys.serialize_entry(names[1], &who.upid)?;
    keys.serialize_entry(names[2], &who.name)?;
    keys.end()
}
