//! Packs the page's script and style, and uPlot's as its package has them (src/vendor/README.md).

use memtrace_packed::pack;
use std::error::Error;
use std::path::Path;

/// The files of the page's script, in their order.
const SCRIPTS: &[&str] = &[
    "src/script/words.js",
    "src/script/series.js",
    "src/script/dom.js",
    "src/script/colours.js",
    "src/script/clock.js",
    "src/script/view.js",
    "src/script/chart.js",
    "src/script/overlay.js",
    "src/script/readout.js",
    "src/script/memory.js",
    "src/script/gpus.js",
    "src/script/icicle.js",
    "src/script/ledger.js",
    "src/script/stacks.js",
    "src/script/pinned.js",
    "src/script/lanes.js",
    "src/script/phases.js",
    "src/script/steps.js",
    "src/script/processes.js",
    "src/script/compare.js",
    "src/script/about.js",
    "src/script/run.js",
    "src/script/panels.js",
    "src/script/runtables.js",
    "src/script/page.js",
];

/// Where they are.
const FOLDER: &str = "src/script";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    // One that is forgotten would fail in the browser only.
    println!("cargo::rerun-if-changed={FOLDER}");
    for entry in std::fs::read_dir(FOLDER)? {
        let path = entry?.path();
        let is_script = path.extension().is_some_and(|ending| ending == "js");
        if is_script && !SCRIPTS.iter().any(|file| Path::new(file) == path) {
            return Err(format!("build.rs does not pack {}", path.display()).into());
        }
    }
    pack("charts.js", &["src/vendor/uPlot.iife.min.js"])?;
    pack("charts.css", &["src/vendor/uPlot.min.css"])?;
    pack("page.css", &["src/page.css"])?;
    pack("page.js", SCRIPTS)
}
