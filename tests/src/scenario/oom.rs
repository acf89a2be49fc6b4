//! OOM kills at the limit of a cgroup: of the recorder's own, and of one on the v2
//! hierarchy with all that it tells.

use super::book::{Book, Score, bytes, versus};
use crate::cgroup::MemoryGroup;
use crate::recorder::{Recorded, record, record_in};
use crate::workload::{self, number};
use anyhow::{Context, Result};
use memtrace_model::tables::{CgroupMemRow, OomRow};
use std::collections::HashMap;
use std::path::Path;

/// The recorder and the victim share a memory cgroup of 300 MiB.
///
/// # Errors
/// When the run itself fails, which it does too when the recorder dies.
pub fn oom(words: &[&str]) -> Result<Vec<Score>> {
    const LIMIT_BYTES: u64 = 300 << 20;
    let group = MemoryGroup::new("memtrace-oom", LIMIT_BYTES)?;
    let command = workload::command(&["oom"])?;
    let recorded = record_in(words, &command, |recorder| group.inside(&recorder))?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let line = lines.first().context("the workload said nothing")?;
    let pid = number(line, "pid")?;
    let process = book.expect(pid)?;
    let ooms: Vec<OomRow> = recorded.recording.rows()?;
    let kill = ooms.iter().find(|row| i64::from(row.victim_tgid.0) == pid);

    let peak = bytes(process.peak_rss_bytes);
    let last = number(line, "last_own_vmhwm_bytes")?;
    // It was killed while it touched the step after its last reading.
    let range = last..=last + number(line, "step_bytes")?;
    let maxrss = bytes(process.kernel_maxrss_bytes);
    let truth = number(line, "ru_maxrss_bytes")?;
    let rows = of_group(&recorded, group.dir())?;
    let bound = kill.map(|row| {
        (
            row.constraint.clone(),
            row.memcg_limit_bytes.map(|bytes| bytes.0.cast_unsigned()),
            row.memcg
                .as_deref()
                .is_some_and(|path| is_path_of(path, group.dir())),
        )
    });
    Ok(vec![
        Score::of(
            "the bound that was hit is reported",
            bound == Some((Some("CONSTRAINT_MEMCG".to_owned()), Some(LIMIT_BYTES), true)),
            || format!("{kill:?}"),
        ),
        Score::of(
            "the group's series tells its limit and the kill",
            rows.last().is_some_and(|row| {
                bytes(row.limit_bytes) == Some(LIMIT_BYTES.cast_signed())
                    && row.oom_kill_count == Some(1)
            }),
            || format!("{} rows, the last {:?}", rows.len(), rows.last()),
        ),
        Score::of("the workload was killed", line["killed"] == true, || {
            line.to_string()
        }),
        Score::of("the kill is recorded", kill.is_some(), || {
            format!("{} rows in oom, none of pid {pid}", ooms.len())
        }),
        Score::of(
            "the victim is marked",
            process.oom_killed == Some(true) && process.exit_signal == Some(libc::SIGKILL),
            || format!("{:?}, signal {:?}", process.oom_killed, process.exit_signal),
        ),
        Score::of(
            "the victim's peak lies within its last step",
            peak.is_some_and(|peak| range.contains(&peak)),
            || versus(pid, peak, last),
        ),
        Score::of(
            "kernel_maxrss_bytes = wait4's ru_maxrss",
            maxrss == Some(truth),
            || versus(pid, maxrss, truth),
        ),
    ])
}

/// A victim in a small group on the v2 hierarchy: everything that the group's files tell
/// is in `cgroup_mem`, and agrees with the files once the victim is gone.
///
/// # Errors
/// When the run itself fails.
pub fn oom_on_v2(words: &[&str]) -> Result<Vec<Score>> {
    let group = MemoryGroup::new("memtrace-oom-v2", 64 << 20)?;
    // Slow enough that the group, which is read once a second, is read on the way.
    let slow = ["oom", "--step", "1048576", "--pause-ms", "60"];
    let command = group.inside(&workload::command(&slow)?);
    let recorded = record(words, &command)?;
    let files = Files::read(group.dir())?;
    let rows = of_group(&recorded, group.dir())?;
    let last = rows.last().context("cgroup_mem has no row of the group")?;
    let mut every_figure = Score::new("every figure of the group is known");
    for (name, is_known) in [
        ("current", last.current_bytes.is_some()),
        ("anon", last.anon_bytes.is_some()),
        ("file", last.file_bytes.is_some()),
        ("kernel", last.kernel_bytes.is_some() == files.has_kernel),
        ("slab", last.slab_bytes.is_some()),
        ("slab_reclaimable", last.slab_reclaimable_bytes.is_some()),
        ("pagetables", last.pagetables_bytes.is_some()),
        ("kernel_stack", last.kernel_stack_bytes.is_some()),
        ("percpu", last.percpu_bytes.is_some()),
        ("sock", last.sock_bytes.is_some()),
        ("peak", last.peak_bytes.is_some() || files.peak.is_none()),
    ] {
        every_figure.case(is_known, || format!("{name}: {last:?}"));
    }
    let mut rising = Score::new("counts and pressure rise to what the files say at the end");
    for (name, found, truth) in [
        (
            "oom_kill",
            last.oom_kill_count,
            files.events.get("oom_kill"),
        ),
        ("max", last.max_event_count, files.events.get("max")),
        (
            "some",
            last.psi_some_ns.map(|time| time.0),
            files.pressure.get("some"),
        ),
        (
            "full",
            last.psi_full_ns.map(|time| time.0),
            files.pressure.get("full"),
        ),
    ] {
        let truth = truth.copied();
        let is_within = found
            .zip(truth)
            .is_some_and(|(found, truth)| (1..=truth).contains(&found));
        rising.case(is_within, || format!("{name}: {found:?}, file {truth:?}"));
    }
    let highest = rows.iter().filter_map(|row| row.anon_bytes).max();
    Ok(vec![
        every_figure,
        rising,
        Score::of("the hierarchy is v2", last.version == 2, || {
            format!("{last:?}")
        }),
        Score::of(
            "the victim's memory is seen in its group",
            highest.is_some_and(|anon| (16 << 20..=64 << 20).contains(&anon.0)),
            || format!("anon at most {highest:?} in {} rows", rows.len()),
        ),
    ])
}

/// The rows of one cgroup, in order of time.
fn of_group(recorded: &Recorded, dir: &Path) -> Result<Vec<CgroupMemRow>> {
    let mut rows: Vec<CgroupMemRow> = recorded.recording.rows()?;
    rows.retain(|row| is_path_of(&row.cgroup, dir));
    rows.sort_by_key(|row| row.boot_ns);
    Ok(rows)
}

/// Whether a path below a hierarchy's mount point is that of a directory.
fn is_path_of(path: &str, dir: &Path) -> bool {
    let below = path.trim_start_matches('/');
    !below.is_empty() && dir.ends_with(below)
}

/// What the files of a v2 group say.
struct Files {
    events: HashMap<String, i64>,
    /// In nanoseconds, by "some" and "full".
    pressure: HashMap<String, i64>,
    /// Null before 5.19.
    peak: Option<i64>,
    /// Whether memory.stat sums what the kernel holds; before 5.18 it does not.
    has_kernel: bool,
}

impl Files {
    fn read(dir: &Path) -> Result<Self> {
        let text = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("failed to read {path:?}"))
        };
        let mut events = HashMap::new();
        for line in text("memory.events")?.lines() {
            let (key, value) = line.split_once(' ').context("memory.events has no value")?;
            events.insert(key.to_owned(), value.parse()?);
        }
        let mut pressure = HashMap::new();
        for line in text("memory.pressure")?.lines() {
            let (kind, rest) = line
                .split_once(' ')
                .context("memory.pressure has no value")?;
            let total = rest.rsplit("total=").next().unwrap_or_default();
            pressure.insert(kind.to_owned(), total.parse::<i64>()? * 1_000);
        }
        Ok(Self {
            events,
            pressure,
            peak: text("memory.peak")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            has_kernel: text("memory.stat")?
                .lines()
                .any(|line| line.starts_with("kernel ")),
        })
    }
}
