//! The JSON Schema of what is written as JSON, from the types that are written.

use super::hosts::{HostPart, RunDiffObject, RunObject};
use super::{diff, report};
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

/// The JSON Schema of what `memtrace report` and `memtrace diff` write as JSON, of recordings and of
/// runs of many hosts, and of what one recording adds to the report of its run.
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with_transform(RecursiveTransform(in_words_of_json));
    let mut generator = settings.into_generator();
    let objects = [
        generator.subschema_for::<report::Object<'_>>(),
        generator.subschema_for::<diff::Object<'_>>(),
        generator.subschema_for::<RunObject<'_>>(),
        generator.subschema_for::<RunDiffObject<'_>>(),
        generator.subschema_for::<HostPart>(),
    ];
    json!({
        "$schema": generator.settings().meta_schema,
        "title": "JSON of memtrace report and memtrace diff",
        "oneOf": objects,
        "$defs": generator.take_definitions(true),
    })
}

/// What is said of a field in the code, for a reader of JSON.
fn in_words_of_json(schema: &mut Schema) {
    // Of numbers it tells how Rust keeps them.
    schema.remove("format");
    if let Some(Value::String(doc)) = schema.get_mut("description") {
        *doc = doc.replace('\n', " ").replace("`None`", "null");
        *doc = doc.replace("[`", "`").replace("`]", "`");
    }
}
