//! Workers of Celery that end by themselves because their pool replaces them: they exit 155 (billiard's
//! EX_RECYCLE) after a task with which they have reached a limit of memory or of tasks. Celery takes
//! away the logger that billiard would warn with (billiard 4.3.2, celery 5.7.0), so no line says it.

use super::log_kills::LogKill;
use super::process::Process;
use memtrace_model::Bytes;
use memtrace_report::words::bytes;
use std::collections::{BTreeMap, BTreeSet};

const EX_RECYCLE: i32 = 155;
/// Kilobytes, as getrusage counts them.
const MEMORY_OPTION: &str = "--max-memory-per-child";

/// The workers of each pool that ended so, but for those whose line was found.
pub(super) fn found(processes: &[Process], logged: &[LogKill]) -> Vec<LogKill> {
    let taken: BTreeSet<usize> = logged
        .iter()
        .flat_map(|kill| &kill.members)
        .copied()
        .collect();
    let mut by_cause: BTreeMap<(usize, Option<Bytes>), Vec<usize>> = BTreeMap::new();
    for (place, process) in processes.iter().enumerate() {
        let role = process.role.as_ref();
        let is_worker = role.is_some_and(|role| {
            role.framework.as_deref() == Some("Celery") && role.role == "prefork worker"
        });
        let is_recycled = is_worker && process.ending.exit_code() == Some(EX_RECYCLE);
        if let Some(parent) = process.parent.filter(|_| is_recycled)
            && !taken.contains(&place)
        {
            let limit = processes[parent].cmdline.as_deref().and_then(limit);
            let limit = limit.filter(|limit| process.peak.rss_bytes > Some(*limit));
            by_cause.entry((parent, limit)).or_default().push(place);
        }
    }
    let found = by_cause.into_iter().filter_map(|((_, limit), members)| {
        let first = &processes[*members.first()?];
        let (at, held) = (first.end?, first.peak.rss_bytes.map(bytes));
        let (killer, reason) = match (limit, held) {
            (Some(limit), Some(held)) => {
                let reason = format!("it had held {held}, and may hold {}", bytes(limit));
                ("Celery's memory limit", reason)
            }
            (_, held) => {
                let held = held.map_or_else(String::new, |held| format!("; it had held {held}"));
                let reason = format!("it had reached its limit of memory or of tasks{held}");
                ("Celery's pool", reason)
            }
        };
        Some(LogKill::without_line(
            at, killer, &reason, processes, members,
        ))
    });
    found.collect()
}

/// What the main process's command line allows a worker.
fn limit(cmdline: &str) -> Option<Bytes> {
    let (_, behind) = cmdline.split_once(MEMORY_OPTION)?;
    let value = behind.strip_prefix(['=', ' '])?;
    let digits = value.split(' ').next()?;
    let limit = digits.parse::<i64>().ok()?.checked_mul(1_024)?;
    (limit > 0).then_some(Bytes(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_from_the_command_line_as_celery_takes_it() {
        let of = |options: &str| limit(&format!("python3 celery -A app worker {options}"));
        assert_eq!(
            of("--max-memory-per-child=100000 -l info"),
            Some(Bytes(102_400_000))
        );
        assert_eq!(of("--max-memory-per-child 5"), Some(Bytes(5_120)));
        for other in [
            "",
            "--max-memory-per-child",
            "--max-memory-per-child=",
            "--max-memory-per-child=-1",
            "--max-memory-per-child=99999999999999999999",
            "--max-memory-per-children=5",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
