//! What the page carries beside its data: the script, the style, and the chart library.

use memtrace_packed::{packed, unpacked_text};

/// The chart library.
pub(super) fn charts() -> String {
    unpacked_text(packed!("charts.js"))
}

/// The style of the chart library, and the page's own.
pub(super) fn style() -> String {
    let [charts, own] = [packed!("charts.css"), packed!("page.css")].map(unpacked_text);
    format!("{charts}\n{own}")
}

/// The page's script, in a scope of its own.
pub(super) fn script() -> String {
    let script = unpacked_text(packed!("page.js"));
    format!("(() => {{\n'use strict';\n{script}}})();\n")
}
