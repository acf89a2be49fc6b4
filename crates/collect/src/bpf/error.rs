//! Why the programs could not be loaded, and what the kernel said of one.

use aya::EbpfError;
use aya::maps::MapError;
use memtrace_host::btf::BtfError;
use std::borrow::Cow;

/// Where the kernel tells its types.
pub(super) const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// Why the programs could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel's BTF could not be read.
    #[error("read {BTF_PATH}: {0}")]
    ReadBtf(#[source] std::io::Error),
    /// The kernel's structures are not as expected.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The kernel's BTF could not be parsed for attaching.
    #[error("kernel BTF: {0}")]
    AttachBtf(#[from] aya::BtfError),
    /// The object or its maps were refused.
    #[error("load the BPF object: {0}")]
    Object(#[from] EbpfError),
    /// A program was refused.
    #[error("{step} BPF program {name}: {reason}")]
    Program {
        /// Name of the program.
        name: &'static str,
        /// "load" or "attach".
        step: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// A map is not as the ABI says; the object is from another version.
    #[error("BPF map {name}: {source}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// What is wrong.
        source: MapError,
    },
    /// The object lacks something that the ABI names.
    #[error("the BPF object has no {0}")]
    Absent(&'static str),
    /// The table that keeps ends of processes could not be read.
    #[error("read the table of ends: {0}")]
    Ended(#[source] std::io::Error),
    /// The way to see calls on address spaces that was asked for by name was refused.
    #[error(
        "the kernel refused --probes {}; take another way, or none: memtrace doctor says which \
         there are",
        .0.trim_end_matches('.')
    )]
    Probes(String),
    /// The task iterator's descriptor could not be read.
    #[error("read the task iterator: {0}")]
    Iterator(#[source] std::io::Error),
}

/// A refusal as one line. Where the verifier refused, its log is hundreds of lines: the
/// last few say why, the rest goes to the debug log.
pub(super) fn refused(
    name: &'static str,
    step: &'static str,
    error: &dyn std::fmt::Display,
) -> LoadError {
    let text = error.to_string();
    tracing::debug!("{step} {name}: {text}");
    let reason = match text.split_once("Verifier output:") {
        None => text,
        Some((refusal, log)) => {
            let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            let verdict = lines
                .iter()
                .position(|line| {
                    line.starts_with("verification time") || line.starts_with("processed")
                })
                .and_then(|statistics| lines.get(statistics.saturating_sub(1)))
                .or(lines.last())
                .copied()
                .unwrap_or_default();
            match verdict.trim() {
                "" => refusal.trim_end().to_owned(),
                verdict => format!("{} verifier: {verdict}", refusal.trim_end()),
            }
        }
    };
    LoadError::Program { name, step, reason }
}

/// Why the layout could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The kernel's BTF can't be understood.
    #[error("kernel BTF: {0}")]
    Btf(#[from] BtfError),
    /// Something that nothing works without is not where it is looked for.
    #[error("this kernel's BTF has no {0}")]
    Missing(Cow<'static, str>),
}

impl LayoutError {
    pub(super) fn missing(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Missing(what.into())
    }
}
