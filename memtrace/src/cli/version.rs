//! What `--version` says: which build this is.

use memtrace_host::c_library;
use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// `cargo xtask dist` knows it: asking git in a build script would build anew after each commit.
const COMMIT: &str = match option_env!("MEMTRACE_COMMIT") {
    Some(commit) => commit,
    None => "unknown: built from a checkout or a source package, not by `cargo xtask dist`",
};

/// The version, and below it what `memtrace` and `memtrace-remote` of one build have in common.
pub fn build_version() -> &'static str {
    static LINES: LazyLock<String> = LazyLock::new(|| {
        let (version, build) = (env!("CARGO_PKG_VERSION"), env!("MEMTRACE_BUILD"));
        format!("{version}\ncommit: {COMMIT}\nbuild: {build}")
    });
    &LINES
}

/// The same, and what else tells one `memtrace` from another.
pub(super) fn long() -> &'static str {
    static LINES: LazyLock<String> = LazyLock::new(lines);
    &LINES
}

fn lines() -> String {
    let library = c_library();
    let lines = format!("{}\nsystem: {OS} {ARCH}, {library}", build_version());
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
        let (version, named) = long().split_once('\n').unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        let named: Vec<(&str, &str)> = named
            .lines()
            .map(|line| line.split_once(": ").unwrap())
            .collect();
        let mut names = vec!["commit", "build", "system"];
        if OS == "linux" {
            names.push("BPF object");
        }
        assert!(named.iter().map(|(name, _)| *name).eq(names), "{named:?}");
        let (_, build) = named[1];
        assert!(build.starts_with("profile "), "{build}");
        assert!(build.contains(&format!(" for {ARCH}-")), "{build}");
        assert!(build.contains(", rustc 1."), "{build}");
    }
}
