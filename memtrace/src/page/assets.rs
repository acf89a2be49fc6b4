//! What the page carries beside its data: the script, the style, and the chart library.

/// uPlot, as its package has it (vendor/README.md).
pub(super) const CHARTS: &str = include_str!("vendor/uPlot.iife.min.js");
/// Its style.
pub(super) const CHARTS_STYLE: &str = include_str!("vendor/uPlot.min.css");
/// The page's own style.
pub(super) const STYLE: &str = include_str!("page.css");

/// The files of the page's script, in the order in which they run.
const SCRIPT: &[&str] = &[
    include_str!("script/words.js"),
    include_str!("script/series.js"),
    include_str!("script/dom.js"),
    include_str!("script/colours.js"),
    include_str!("script/clock.js"),
    include_str!("script/view.js"),
    include_str!("script/chart.js"),
    include_str!("script/overlay.js"),
    include_str!("script/readout.js"),
    include_str!("script/memory.js"),
    include_str!("script/gpus.js"),
    include_str!("script/icicle.js"),
    include_str!("script/ledger.js"),
    include_str!("script/pinned.js"),
    include_str!("script/lanes.js"),
    include_str!("script/phases.js"),
    include_str!("script/steps.js"),
    include_str!("script/processes.js"),
    include_str!("script/compare.js"),
    include_str!("script/about.js"),
    include_str!("script/page.js"),
];

/// The page's script, in a scope of its own.
pub(super) fn script() -> String {
    format!("(() => {{\n'use strict';\n{}}})();\n", SCRIPT.concat())
}
