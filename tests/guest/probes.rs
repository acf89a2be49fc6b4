//! Which BPF programs a recording attaches and by which way: asked of the kernel while
//! memtrace records, not of memtrace.

use anyhow::{Context, Result, bail};
use aya::programs::loaded_programs;
use memtrace_model::{DiagKind, DiagRow};
use memtrace_tests::recorder::Recorder;
use serde_json::{Value, json};
use std::collections::HashMap;

/// `enum bpf_attach_type` (include/uapi/linux/bpf.h).
const BPF_TRACE_FENTRY: &str = "24";
const BPF_TRACE_FEXIT: &str = "25";
/// Values of `enum bpf_prog_type`.
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;
const BPF_PROG_TYPE_TRACING: u32 = 26;

/// What a recorder of the whole machine attached.
pub(crate) struct Probes {
    /// The programs that hang on its links, each with its way.
    pub(crate) attached: Vec<Value>,
    /// What it says it has to do without.
    pub(crate) missing: Vec<String>,
}

/// Records for a moment and looks.
pub(crate) fn look() -> Result<Probes> {
    let recorder = Recorder::start(&["--all", "--backend", "bpf", "--quiet"])?;
    let links = links(recorder.pid())?;
    let mut types = HashMap::new();
    for program in loaded_programs() {
        let program = program.context("failed to list BPF programs")?;
        let name = program.name_as_str().unwrap_or_default().to_owned();
        types.insert(program.id(), (name, program.program_type() as u32));
    }
    let recorded = recorder.stop()?;
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let missing = (diags.into_iter())
        .filter(|row| row.kind == Some(DiagKind::Unavailable))
        .map(|row| row.detail)
        .collect();
    let mut probes = Vec::new();
    for link in links {
        let id: u32 = link.program.parse().context("a program without an id")?;
        let Some((name, kind)) = types.get(&id) else {
            bail!("program {id} is on a link but not in the kernel's list");
        };
        let way = way(*kind, &link);
        probes.push(json!({"program": name, "way": way, "place": link.place}));
    }
    if probes.is_empty() {
        bail!("memtrace records by BPF and the kernel shows no program attached");
    }
    probes.sort_by_key(ToString::to_string);
    Ok(Probes {
        attached: probes,
        missing,
    })
}

/// A link as /proc/PID/fdinfo shows it (bpf_link_show_fdinfo()).
struct Link {
    kind: String,
    program: String,
    attach_type: Option<String>,
    place: Option<String>,
}

fn links(pid: u32) -> Result<Vec<Link>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let mut links = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("failed to list {dir}"))? {
        // Descriptors come and go.
        let Ok(text) = std::fs::read_to_string(entry?.path()) else {
            continue;
        };
        let field = |key: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(key));
            values.next().map(|value| value.trim().to_owned())
        };
        if let (Some(kind), Some(program)) = (field("link_type:"), field("prog_id:")) {
            links.push(Link {
                kind,
                program,
                attach_type: field("attach_type:"),
                place: field("tp_name:"),
            });
        }
    }
    Ok(links)
}

fn way(program_type: u32, link: &Link) -> String {
    match (
        program_type,
        link.kind.as_str(),
        link.attach_type.as_deref(),
    ) {
        (BPF_PROG_TYPE_TRACING, "raw_tracepoint", _) => "tp_btf",
        (BPF_PROG_TYPE_TRACING, _, Some(BPF_TRACE_FENTRY)) => "fentry",
        (BPF_PROG_TYPE_TRACING, _, Some(BPF_TRACE_FEXIT)) => "fexit",
        (BPF_PROG_TYPE_KPROBE, ..) => "kprobe",
        (BPF_PROG_TYPE_TRACEPOINT, ..) => "tracepoint",
        (kind, link, attach) => {
            return format!("program type {kind} on a {link} link, attach type {attach:?}");
        }
    }
    .to_owned()
}
