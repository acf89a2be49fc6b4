//! Kills by the kernel's OOM killer as instants.

use crate::process_table::ProcessTable;
use memtrace_model::tables::OomRow;
use memtrace_perfetto::{Note, Trace};

pub(super) fn write(trace: &mut Trace<'_>, kills: &[OomRow], table: &ProcessTable) {
    if kills.is_empty() {
        return;
    }
    let track = trace.track(None, "OOM kills");
    for kill in kills {
        let victim = kill.victim_upid.and_then(|upid| table.find(upid));
        let name = victim.map(|victim| &*table.processes[victim].name);
        let name = name.or(kill.victim_comm.as_deref());
        let name = format!("OOM kill of {}", name.unwrap_or("[unknown]"));
        let number = |key, number: Option<i64>| Some((key, Note::Integer(number?)));
        let notes = [
            number("victim_pid", Some(kill.victim_tgid.0.into())),
            number(
                "victim_anon_bytes",
                kill.victim_rss_anon_bytes.map(|bytes| bytes.0),
            ),
            number(
                "victim_file_bytes",
                kill.victim_rss_file_bytes.map(|bytes| bytes.0),
            ),
            number(
                "victim_shmem_bytes",
                kill.victim_rss_shmem_bytes.map(|bytes| bytes.0),
            ),
            number("trigger_pid", kill.trigger_tgid.map(|tgid| tgid.0.into())),
            number(
                "cgroup_limit_bytes",
                kill.memcg_limit_bytes.map(|bytes| bytes.0),
            ),
            number(
                "cgroup_usage_bytes",
                kill.memcg_usage_bytes.map(|bytes| bytes.0),
            ),
            kill.constraint
                .as_deref()
                .map(|text| ("constraint", Note::Text(text))),
            kill.memcg
                .as_deref()
                .map(|text| ("cgroup", Note::Text(text))),
        ];
        trace.instant(
            kill.boot_ns,
            track,
            ("oom", &name),
            notes.into_iter().flatten(),
        );
    }
}
