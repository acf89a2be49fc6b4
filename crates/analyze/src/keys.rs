//! How a finding stands in the JSON object that it is part of, where its keys differ by place.

use memtrace_model::keys;
use memtrace_model::{Bytes, Instant, Kind, Label, Role};
use memtrace_timeline::Totals;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serializer;
use serde::ser::SerializeMap;
use serde_json::{Value, json};
use std::borrow::Cow;

/// An amount at its highest, and when.
pub type PeakAt = (Bytes, Instant);

/// How much it was.
pub(super) fn highest(peak: Option<PeakAt>) -> Option<Bytes> {
    peak.map(|(bytes, _)| bytes)
}

keys! {
    PeakAtKeys of high: Option<PeakAt> {
        /// The highest; null when unknown.
        peak_bytes: Option<Bytes> = high.map(|(bytes, _)| bytes),
        /// When it was.
        peak_at: Option<Instant> = high.map(|(_, at)| at),
    }
}

keys! {
    PeakRssKeys of high: Option<PeakAt> {
        /// The highest RSS; null when unknown.
        peak_rss_bytes: Option<Bytes> = high.map(|(bytes, _)| bytes),
        /// When it was.
        peak_at: Option<Instant> = high.map(|(_, at)| at),
    }
}

keys! {
    SumOfRssKeys of high: Option<PeakAt> {
        /// The highest sum of RSS: a page that several map counts in each.
        sum_of_rss_peak_bytes: Option<Bytes> = high.map(|(bytes, _)| bytes),
        /// When it was.
        sum_of_rss_peak_at: Option<Instant> = high.map(|(_, at)| at),
    }
}

/// `sum_of_rss_bytes` and so on for each kind, and `unknown_process_count`.
pub(super) struct TotalsKeys;

impl TotalsKeys {
    const UNKNOWN: &'static str = "unknown_process_count";

    fn name(kind: Kind) -> String {
        format!("sum_of_{}", kind.key())
    }

    pub(super) fn serialize<S: Serializer>(totals: &Totals, to: S) -> Result<S::Ok, S::Error> {
        let mut keys = to.serialize_map(None)?;
        for &kind in Kind::ALL {
            keys.serialize_entry(&Self::name(kind), &totals[kind].bytes())?;
        }
        keys.serialize_entry(Self::UNKNOWN, &totals[Kind::Rss].unknown_count())?;
        keys.end()
    }
}

impl JsonSchema for TotalsKeys {
    fn schema_name() -> Cow<'static, str> {
        "Totals".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let bytes = generator.subschema_for::<Option<Bytes>>();
        let mut schema = Kind::schema("Sums over processes.", Self::name, bytes);
        let unknown = json!({"type": "integer", "description": "Processes whose RSS is unknown, and in no sum."});
        if let Some(keys) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            keys.insert(Self::UNKNOWN.to_owned(), unknown);
        }
        if let Some(keys) = schema.get_mut("required").and_then(Value::as_array_mut) {
            keys.push(Self::UNKNOWN.into());
        }
        schema
    }
}

keys! {
    RoleKeys of role: Option<Box<Role>> {
        /// What it belongs to: Ray, vLLM; null when no rule knows it.
        framework: Option<String> = role.as_ref().and_then(|role| role.framework.clone()),
        /// What it is there.
        role: Option<String> = role.as_ref().map(|role| role.role.clone()),
        /// Which of several.
        rank: Option<String> = role.as_ref().and_then(|role| role.rank.clone()),
    }
}
