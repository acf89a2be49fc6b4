//! The steps, and what each reads.

/// One thing that must hold before a change lands.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// Words for cargo.
    pub(super) words: &'static [&'static str],
    pub(super) turn: Turn,
    /// What decides how it ends, beside the toolchain and the kernel. `None`: the whole checkout.
    pub(super) inputs: Option<&'static [Input]>,
}

/// When a step runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Before all others, which use what it builds.
    First,
    /// One after the other, beside those that compile.
    Waits,
    /// One after the other, beside those that wait.
    Compiles,
    /// After all others, alone.
    Last,
}

/// Something that a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A file, or every file below a directory.
    At(&'static str),
    /// Of the files below a directory those with one of these words in them.
    Naming(&'static str, &'static [&'static str]),
    /// What memtrace makes of the golden recordings: Parquet, JSON, pages, traces.
    Golden,
}
use Input::{At, Golden, Naming};

/// What is said of the operating system in code; the same for every system is what says none of it.
const SYSTEM: &[&str] = &[
    "target_os",
    "target_arch",
    "cfg(unix",
    "std::os",
    "libc",
    "rustix",
    "procfs",
    "sysinfo",
    "collect",
    "host::",
];

/// All of them. What runs for every change stands without inputs.
pub(super) const STEPS: &[Step] = &[
    Step {
        name: "test",
        words: &["xtask", "test"],
        turn: Turn::First,
        inputs: None,
    },
    Step {
        name: "format",
        words: &["fmt", "--all", "--check"],
        turn: Turn::Compiles,
        inputs: None,
    },
    Step {
        name: "clippy",
        words: &[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        turn: Turn::Compiles,
        inputs: None,
    },
    Step {
        name: "rooms",
        words: &["xtask", "rooms"],
        turn: Turn::Compiles,
        inputs: None,
    },
    Step {
        name: "schema",
        words: &["xtask", "schema", "--check"],
        turn: Turn::Compiles,
        inputs: None,
    },
    Step {
        name: "lab",
        words: &["xtask", "lab", "--quick", "--install-tools"],
        turn: Turn::Waits,
        inputs: None,
    },
    Step {
        name: "ebpf",
        words: &["xtask", "ebpf", "--check", "--install-tools"],
        turn: Turn::Compiles,
        inputs: Some(&[
            At("memtrace-ebpf"),
            At("memtrace/bpf"),
            At("Cargo.toml"),
            At("Cargo.lock"),
            At("xtask/src/ebpf.rs"),
            At("xtask/src/ebpf"),
            At("xtask/src/compiler.rs"),
        ]),
    },
    // Rooms that are the same on every system import none that is not: `rooms` holds that.
    Step {
        name: "macos",
        words: &["xtask", "macos", "--install-tools"],
        turn: Turn::Compiles,
        inputs: Some(&[
            Naming("memtrace/src", SYSTEM),
            At("memtrace/src/lib.rs"),
            At("memtrace/src/main.rs"),
            At("memtrace/src/host"),
            At("memtrace/src/collect"),
            At("memtrace/src/session"),
            At("memtrace/src/cli"),
            At("memtrace/build.rs"),
            At("memtrace/Cargo.toml"),
            At("memtrace-ebpf/Cargo.toml"),
            At("Cargo.toml"),
            At("Cargo.lock"),
            At("xtask/src/macos.rs"),
            At("xtask/src/compiler.rs"),
        ]),
    },
    Step {
        name: "deny",
        words: &["xtask", "deny"],
        turn: Turn::Compiles,
        inputs: Some(&[
            At("deny.toml"),
            At("Cargo.toml"),
            At("Cargo.lock"),
            At("memtrace/Cargo.toml"),
            At("memtrace-ebpf/Cargo.toml"),
            At("memtrace-remote/Cargo.toml"),
            At("tests/Cargo.toml"),
            At("tests/nvml/Cargo.toml"),
            At("xtask/Cargo.toml"),
            At("xtask/try/Cargo.toml"),
            At("xtask/src/deny.rs"),
        ]),
    },
    // Links within the pages are a test, which runs for every change.
    Step {
        name: "book",
        words: &["xtask", "book", "--install-tools"],
        turn: Turn::Compiles,
        inputs: Some(&[
            At("docs/SUMMARY.md"),
            At("docs/book.toml"),
            At("docs/book.css"),
            At("xtask/src/book.rs"),
        ]),
    },
    Step {
        name: "python",
        words: &["xtask", "python", "--install-tools"],
        turn: Turn::Waits,
        inputs: Some(&[
            Golden,
            At("python"),
            At("tests/lab"),
            // What its tests hold it against.
            At("docs/hosts.md"),
            At("docs/kubernetes"),
            At("docs/tables.md"),
            At("docs/example.ipynb"),
            At("memtrace/src/collect/pods.rs"),
            At("memtrace/src/report/visible.rs"),
            At("xtask/src/python.rs"),
            At("xtask/src/venv.rs"),
        ]),
    },
    Step {
        name: "page",
        words: &["xtask", "page", "--install-tools"],
        turn: Turn::Waits,
        inputs: Some(&[
            Golden,
            At("memtrace/src/page"),
            At("tests/page"),
            At("docs/images"),
            At("xtask/src/page.rs"),
            At("xtask/src/venv.rs"),
        ]),
    },
    Step {
        name: "packages",
        words: &["xtask", "dist", "--quick", "--install-tools"],
        turn: Turn::Waits,
        inputs: Some(&[
            At("xtask/src/dist.rs"),
            At("xtask/src/dist"),
            At("xtask/dist"),
            At("Cargo.toml"),
            At("Cargo.lock"),
            At("LICENSE"),
            At("memtrace/Cargo.toml"),
            At("memtrace/src/page/vendor"),
            At("memtrace-remote/Cargo.toml"),
            At("python/pyproject.toml"),
            At("python/recorder"),
            At("python/remote"),
            // Manual pages and completions.
            Naming("memtrace/src/cli", &["clap_mangen", "clap_complete"]),
            Naming("memtrace-remote/src", &["man"]),
        ]),
    },
    // Emulated: what is quick and does not depend on the machine's pace, as it was built for the first
    // step. All of them: `cargo xtask vm`.
    Step {
        name: "kernels",
        words: &[
            "xtask",
            "vm",
            "--install-tools",
            "--profile",
            "dev",
            "--patience",
            "20",
            "--kernel",
            "6.1",
            "--kernel",
            "6.12",
            "--test",
            "calls_",
            "--test",
            "every_way",
            "--test",
            "forkstorm",
            "--test",
            "vforked",
            "--test",
            "oom_kill",
            "--test",
            "v2_hierarchy",
            "--test",
            "page_cache",
            "--test",
            "below_the_group",
        ],
        turn: Turn::Last,
        inputs: Some(&[
            At("memtrace-ebpf"),
            At("memtrace/bpf"),
            At("memtrace/src/collect"),
            At("memtrace/src/host"),
            At("tests/kernel"),
            At("tests/guest"),
            At("tests/src"),
            At("tests/truth"),
            At("tests/workloads"),
            At("xtask/src/vm.rs"),
            At("xtask/src/vm"),
        ]),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_task_of_the_table_exists() {
        for (index, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..index].iter().all(|other| other.name != step.name));
            if let ["xtask", words @ ..] = step.words {
                let words = ["cargo xtask"].iter().chain(words);
                let parsed = <crate::Cli as clap::Parser>::try_parse_from(words);
                assert!(parsed.is_ok(), "{}: {parsed:?}", step.name);
            }
        }
    }
}
