//! Who allocated what, as a report in JSON says it.

use anyhow::{Context, Result};
use serde_json::Value;

/// What a line held and gave back, by a part of its function's name: of several the one that touched most.
///
/// # Errors
/// When the report has no such line.
pub fn site<'a>(report: &'a Value, function: &str) -> Result<&'a Value> {
    let processes = report["allocations"].as_array().context("allocations")?;
    let sites = processes.iter().filter_map(|one| one["sites"].as_array());
    sites
        .flatten()
        .filter(|site| {
            let name = site["frame"]["function"].as_str();
            name.is_some_and(|name| name.contains(function))
                || site["stack"].as_array().is_some_and(|frames| {
                    let mut names = frames.iter().filter_map(|one| one["function"].as_str());
                    names.any(|name| name.contains(function))
                })
        })
        .max_by_key(|site| site["grown_bytes"].as_i64())
        .with_context(|| format!("no site of {function} in {}", report["allocations"]))
}

/// An amount of it in MiB.
pub fn mib(site: &Value, key: &str) -> f64 {
    site[key].as_f64().unwrap_or(f64::NAN) / f64::from(1 << 20)
}
