//! Prints the JSON Schema of reports, from the types that are written: what `cargo xtask schema` puts into
//! docs/report.schema.json.

// Its output is for who runs it.
#![allow(clippy::print_stdout)]

fn main() -> Result<(), serde_json::Error> {
    let schema = memtrace_analyze::json_schema();
    println!("{}", serde_json::to_string_pretty(&schema)?);
    Ok(())
}
