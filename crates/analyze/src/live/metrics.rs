//! The metrics that a monitoring system gets: the name, unit and meaning of each.

/// A metric: series of one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in Prometheus, with the unit at its end.
    pub name: &'static str,
    /// Its name in OpenTelemetry, which has the unit beside it.
    pub dotted: &'static str,
    /// Its unit, as UCUM writes it.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Whether it only goes up.
    pub is_counter: bool,
}

macro_rules! metrics {
    ($($constant:ident: $name:literal, $dotted:literal, $unit:literal, $is_counter:literal, $help:literal;)+) => {
        $(#[doc = $help] pub static $constant: Metric = Metric {
            name: $name,
            dotted: $dotted,
            unit: $unit,
            help: $help,
            is_counter: $is_counter,
        };)+

        /// Every metric of a recording.
        pub static METRICS: &[&Metric] = &[$(&$constant),+];
    };
}

metrics! {
    HELD: "memtrace_held_bytes", "memtrace.held", "By", false,
        "Memory that the recorded processes hold, every page once.";
    HELD_AT_LEAST: "memtrace_held_at_least_bytes", "memtrace.held.at_least", "By", false,
        "Lower bound of memtrace_held_bytes.";
    HELD_AT_MOST: "memtrace_held_at_most_bytes", "memtrace.held.at_most", "By", false,
        "Upper bound of memtrace_held_bytes.";
    OOM_KILLS: "memtrace_oom_kills_total", "memtrace.oom_kills", "{kill}", true,
        "Kills by the OOM killer.";
    NEWEST: "memtrace_newest_timestamp_seconds", "memtrace.newest_timestamp", "s", false,
        "Time of the newest of these figures, in seconds since the Unix epoch.";
    RECORDER_UP: "memtrace_recorder_up", "memtrace.recorder.up", "", false,
        "Whether a recorder writes to the recording: 1 if so, else 0.";
    RECORDER_CPU: "memtrace_recorder_cpu_seconds_total", "memtrace.recorder.cpu", "s", true,
        "CPU time of the recorder.";
    RECORDER_MEMORY: "memtrace_recorder_memory_bytes", "memtrace.recorder.memory", "By", false,
        "Resident memory of the recorder.";
    RECORDER_LOST: "memtrace_recorder_lost_events_total", "memtrace.recorder.lost_events", "{event}", true,
        "Events that the recorder lost.";
    ROLE_MEMORY: "memtrace_role_memory_bytes", "memtrace.role.memory", "By", false,
        "Memory of the processes of a role by kind; what several of them map counts in each.";
    ROLE_PROCESSES: "memtrace_role_processes", "memtrace.role.processes", "{process}", false,
        "Processes of a role.";
    CGROUP_MEMORY: "memtrace_cgroup_memory_bytes", "memtrace.cgroup.memory", "By", false,
        "Memory charged to a cgroup that holds recorded processes, and to those below it.";
    CGROUP_WORKING_SET: "memtrace_cgroup_working_set_bytes", "memtrace.cgroup.working_set", "By", false,
        "The same without files that the kernel would reclaim first, as Kubernetes counts it.";
    CGROUP_LIMIT: "memtrace_cgroup_limit_bytes", "memtrace.cgroup.limit", "By", false,
        "Hard limit of a cgroup.";
    GPU_USED: "memtrace_gpu_memory_used_bytes", "memtrace.gpu.memory.used", "By", false,
        "Memory in use of a GPU.";
    GPU_TOTAL: "memtrace_gpu_memory_total_bytes", "memtrace.gpu.memory.total", "By", false,
        "Memory of a GPU.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The metrics that a text names.
    fn named(text: &str) -> BTreeSet<&str> {
        let words = text.split(|sign: char| !sign.is_ascii_lowercase() && sign != '_');
        words.filter(|word| word.starts_with("memtrace_")).collect()
    }

    #[test]
    fn the_dashboard_the_alerts_and_the_docs_name_metrics_that_there_are() {
        let all: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(all.len(), METRICS.len());
        for text in [
            include_str!("../../../../docs/grafana/memtrace.json"),
            include_str!("../../../../docs/prometheus/memtrace.rules.yml"),
        ] {
            let named = named(text);
            assert!(named.len() >= 7, "{named:?}");
            let unknown: Vec<_> = named.difference(&all).collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
        let page = include_str!("../../../../docs/prometheus.md");
        let (page, _) = page.split_once("\n## ").expect("a section after the table");
        assert_eq!(named(page), all, "docs/prometheus.md");
    }

    /// As collectors and Prometheus itself make one of the other.
    #[test]
    fn a_metric_has_the_same_name_on_both_ways_to_prometheus() {
        for metric in METRICS {
            let unit = match metric.unit {
                "By" => "_bytes",
                "s" => "_seconds",
                _ => "",
            };
            let total = if metric.is_counter { "_total" } else { "" };
            let name = metric.dotted.replace('.', "_") + unit + total;
            assert_eq!(name, metric.name);
        }
    }
}
