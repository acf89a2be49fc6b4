//! `memtrace-needs`: one JSON line for each thing that tests need, for `cargo xtask test`.

// Its output is its purpose.
#![allow(clippy::print_stdout)]

use memtrace_tests::need::NEEDS;

fn main() {
    for need in NEEDS {
        let missing = need.check().err();
        let line = serde_json::json!({"word": need.word, "doc": need.doc, "missing": missing});
        println!("{line}");
    }
}
