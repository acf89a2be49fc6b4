//! The steps, and what each reads.

/// One thing that must hold before a change lands.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// Words for cargo.
    pub(super) words: &'static [&'static str],
    pub(super) turn: Turn,
    /// What decides how it ends, beside the toolchain and the kernel. `None`: the whole checkout.
    inputs: Option<&'static [Input]>,
}

impl Step {
    /// All that decides how it ends, what every task of ours goes through included.
    pub(super) fn inputs(&self) -> Option<Vec<Input>> {
        let own = self.inputs?;
        Some([own, OURS].concat())
    }
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
    /// Of the files of this name all.
    Named(&'static str),
    /// Of what memtrace makes of the golden recordings the files with these endings.
    Golden(&'static [&'static str]),
}
use Input::{At, Golden, Named, Naming};

/// What every step that is a task of ours goes through.
const OURS: &[Input] = &[
    At("xtask/src/sh.rs"),
    At("xtask/src/venv.rs"),
    At("xtask/src/debian.rs"),
];

/// What code says that is not the same on every system: the words for it, and the crates that there are
/// on Linux alone or that are about systems.
const SYSTEM: &[&str] = &[
    "target_os",
    "target_arch",
    "cfg(unix",
    "std::os",
    "libc",
    "rustix",
    "procfs",
    "sysinfo",
    "zerocopy",
    "object::",
    "aya",
    "nvml_wrapper",
    "memtrace_abi",
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
        name: "circles",
        words: &["xtask", "circles"],
        turn: Turn::Compiles,
        inputs: None,
    },
    Step {
        name: "words",
        words: &["xtask", "words"],
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
            At("crates/collect/bpf"),
            At("Cargo.toml"),
            At("Cargo.lock"),
            At("xtask/src/ebpf.rs"),
            At("xtask/src/ebpf"),
            At("xtask/src/compiler.rs"),
        ]),
    },
    Step {
        name: "macos",
        words: &["xtask", "macos", "--install-tools"],
        turn: Turn::Compiles,
        inputs: Some(&[
            Naming("crates", SYSTEM),
            At("crates/host"),
            At("crates/collect"),
            At("crates/model"),
            At("memtrace"),
            Named("Cargo.toml"),
            At("Cargo.lock"),
            At("xtask/src/macos.rs"),
            At("xtask/src/compiler.rs"),
        ]),
    },
    // What reads bytes of others. A C++ compiler is there wherever the others are built.
    Step {
        name: "fuzz",
        words: &["xtask", "fuzz", "--seconds", "20"],
        turn: Turn::Compiles,
        inputs: Some(&[
            At("crates/store/src"),
            At("crates/model/src"),
            At("crates/traces/src"),
            At("crates/import/src"),
            At("crates/host/src/btf.rs"),
            At("crates/host/src/btf"),
            At("crates/collect/src/bpf/decode.rs"),
            At("tests/fuzz"),
            At("xtask/src/fuzz.rs"),
        ]),
    },
    Step {
        name: "deny",
        words: &["xtask", "deny"],
        turn: Turn::Compiles,
        inputs: Some(&[
            At("deny.toml"),
            Named("Cargo.toml"),
            At("Cargo.lock"),
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
            Golden(&["json", "parquet", "pftrace"]),
            At("python"),
            At("tests/lab"),
            // What its tests hold it against.
            At("docs/hosts.md"),
            At("docs/run.md"),
            At("docs/kubernetes"),
            At("docs/tables.md"),
            At("crates/collect/src/pods.rs"),
            At("crates/report/src/visible.rs"),
            At("xtask/src/python.rs"),
        ]),
    },
    Step {
        name: "page",
        words: &["xtask", "page", "--install-tools"],
        turn: Turn::Waits,
        inputs: Some(&[
            Golden(&["html", "json", "parts"]),
            // The page of a run of hosts is made of the parts when it is tested.
            At("crates/analyze/src/hosts"),
            At("crates/page"),
            At("tests/page"),
            At("python/pyproject.toml"),
            At("xtask/src/page.rs"),
            At("xtask/src/python.rs"),
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
            At("crates/page/src/vendor"),
            At("memtrace-ebpf/Cargo.toml"),
            At("memtrace-remote/Cargo.toml"),
            At("python/README.md"),
            At("python/src/memtrace/duckdb.sql"),
            At("python/pyproject.toml"),
            At("python/recorder"),
            At("python/remote"),
            // Manual pages and completions.
            Naming("memtrace/src/cli", &["clap_mangen", "clap_complete"]),
            Naming("memtrace-remote/src", &["write_manual"]),
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
            "--kernel",
            "systemd",
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
            "--test",
            "what_a_command_holds",
            "--test",
            "needs_systemd",
        ],
        turn: Turn::Last,
        inputs: Some(&[
            At("memtrace-ebpf"),
            At("crates/collect/bpf"),
            At("crates/collect"),
            At("crates/host"),
            At("crates/model"),
            At("crates/store"),
            At("memtrace/src/session"),
            Named("Cargo.toml"),
            At("Cargo.lock"),
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
