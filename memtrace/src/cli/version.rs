//! What `memtrace --version` says: which build this is.

use crate::host::c_library;
use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// The version, and below it what tells one build from another.
pub(super) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(lines);
    &LONG
}

fn lines() -> String {
    let version = env!("CARGO_PKG_VERSION");
    // `cargo xtask dist` knows it: asking git in a build script would build anew after each commit.
    let commit =
        option_env!("MEMTRACE_COMMIT").unwrap_or("unknown: not built by `cargo xtask dist`");
    let library = c_library();
    let lines = format!("{version}\ncommit: {commit}\nsystem: {OS} {ARCH}, {library}");
    #[cfg(target_os = "linux")]
    let lines = format!(
        "{lines}\nBPF object: sha256 {}",
        crate::session::bpf_object_hash()
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_stands_on_a_line_of_its_own_and_each_line_names_what_it_has() {
        let text = long();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(env!("CARGO_PKG_VERSION")));
        assert!(lines.all(|line| line.contains(": ")), "{text}");
    }
}
