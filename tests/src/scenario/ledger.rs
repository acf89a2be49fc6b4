//! The books of a memory cgroup close: what was attributed is what the kernel says is in
//! use.

use super::book::Score;
use super::settle::Settle;
use crate::beside::beside;
use crate::cgroup::MemoryGroup;
use crate::recorder::{Recorded, Recorder, record};
use crate::workload::{self, Running};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::{CachedFileRow, PssRow, ShmObjectRow};
use memtrace_model::{BootNs, DurationNs, ProcessRow, Upid};
use memtrace_store::Recording;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use std::{io, ptr};

/// The workload's file, whole.
const FILE_BYTES: i64 = 64 << 20;
/// So long it is looked at, once it is settled, where that is measured.
const LOOKED_AT: Duration = Duration::from_secs(5);
/// The same where it is tested.
const LOOKED_AT_SHORTLY: Duration = Duration::from_secs(3);

/// The books of a tree of every kind of memory, in a group of its own, at every tenth of a
/// stretch once everything was read.
///
/// # Errors
/// When the run itself fails, or the recorder does not come to know what there is.
pub fn ledger(words: &[&str], processes: u64, settle: Settle) -> Result<Vec<Score>> {
    let group = MemoryGroup::new("memtrace-ledger", 8 << 30)?;
    let count = processes.to_string();
    let mut household = Running::start_in(&group, &["household", "--processes", &count])?;
    household.line()?;
    let pid = household.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    settle.wait(&recorder, |so_far| {
        Ok(settled_at(so_far, processes)?.is_some())
    })?;
    let looked_at = match settle {
        Settle::For(_) => LOOKED_AT,
        Settle::UntilRead => LOOKED_AT_SHORTLY,
    };
    sleep(looked_at + Duration::from_secs(1));
    let recorded = recorder.stop()?;
    let file = std::env::temp_dir().join(format!("memtrace-household-{pid}"));
    let left = cached_bytes(&file)?;
    household.finish()?;
    let settled_s = match settle {
        Settle::For(time) => time.as_secs_f64(),
        Settle::UntilRead => {
            let at = settled_at(&recorded.recording, processes)?;
            at.context("what was read is not in the recording")?.0 as f64 / 1e9
        }
    };
    let mut score = Score::new("residual within 1 % of what is in use");
    // Else the sums could close because the kernel's own fill them up.
    let mut attributed = Score::new("shared memory is attributed, within 1 % of what is in use");
    let tenths: Vec<f64> = (1..=10)
        .map(|tenth| settled_s + looked_at.as_secs_f64() * f64::from(tenth) / 10.0)
        .collect();
    let ledgers = beside(&tenths, |at| cgroup_ledger(&recorded, &format!("+{at}s")))?;
    for (at, ledger) in tenths.iter().zip(&ledgers) {
        let amount = |key: &str| ledger[key].as_i64();
        let (current, residual) = (amount("current_bytes"), amount("residual_bytes"));
        let is_closed = current
            .zip(residual)
            .is_some_and(|(current, residual)| residual.abs() * 100 <= current);
        score.case(is_closed, || format!("at +{at}s: {}", in_short(ledger)));
        let others = amount("other_shared_bytes");
        let is_attributed = current
            .zip(others)
            .is_some_and(|(current, others)| others.abs() * 100 <= current);
        attributed.case(is_attributed, || format!("at +{at}s: {}", in_short(ledger)));
    }
    let ledger = ledgers.last().context("nobody looked")?;
    let objects = ledger["shared"].as_array().map_or(0, Vec::len);
    // What was dropped from the cache since it was looked at stands beside the books.
    let files: Vec<&Value> = ["files", "files_elsewhere"]
        .iter()
        .flat_map(|list| ledger[list].as_array().into_iter().flatten())
        .collect();
    let is_named = files.iter().any(|file| {
        let path = file["path"].as_str().unwrap_or_default();
        // A machine that is short of memory drops cached pages, and nobody brings them back.
        let cached = file["cached_bytes"].as_i64();
        path.contains("memtrace-household-")
            && cached.is_some_and(|cached| (left.max(1)..=FILE_BYTES).contains(&cached))
    });
    Ok(vec![
        score,
        attributed,
        Score::of(
            "nobody else lives in the group",
            ledger["other_process_count"] == 0,
            || in_short(ledger),
        ),
        Score::of("the shared object is one line", objects == 1, || {
            in_short(ledger)
        }),
        Score::of("the cached file is a line", is_named, || {
            format!("{files:?}, {left} bytes at the end")
        }),
    ])
}

/// What the page cache holds of a file now, by mincore(2).
fn cached_bytes(path: &Path) -> Result<i64> {
    let file = File::open(path).with_context(|| format!("failed to open {path:?}"))?;
    let length = usize::try_from(file.metadata()?.len())?;
    // SAFETY: sysconf takes a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })?;
    let mut pages = vec![0_u8; length.div_ceil(page)];
    // SAFETY: a new mapping of an open file, at a place of the kernel's choice; nobody reads
    // it. mincore writes a byte for each page, and there is one.
    let has_failed = unsafe {
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let start = libc::mmap(ptr::null_mut(), length, prot, flags, file.as_raw_fd(), 0);
        start == libc::MAP_FAILED
            || libc::mincore(start, length, pages.as_mut_ptr()) != 0
            || libc::munmap(start, length) != 0
    };
    if has_failed {
        bail!("failed to ask for {path:?}: {}", io::Error::last_os_error());
    }
    let cached = pages.iter().filter(|page| **page & 1 != 0).count();
    Ok(i64::try_from(cached * page)?)
}

/// When, since its start, a recording had read each process, the object and the file.
fn settled_at(recording: &Recording, processes: u64) -> Result<Option<DurationNs>> {
    let Some(start) = recording.info().clocks.first() else {
        return Ok(None);
    };
    let mut first_of_each: HashMap<Upid, BootNs> = HashMap::new();
    for row in recording.rows::<PssRow>()? {
        let first = first_of_each.entry(row.upid).or_insert(row.boot_ns);
        *first = (*first).min(row.boot_ns);
    }
    if (first_of_each.len() as u64) < processes + 1 {
        return Ok(None);
    }
    let objects = recording.rows::<ShmObjectRow>()?;
    let files = recording.rows::<CachedFileRow>()?;
    let object = objects.iter().map(|row| row.boot_ns).min();
    let file = files.iter().map(|row| row.boot_ns).min();
    let last = first_of_each.into_values().max();
    let read = last.zip(object).zip(file);
    Ok(read.map(|((last, object), file)| last.max(object).max(file) - start.boot_ns))
}

/// Records a workload in a group of its own: so long that everything was read, and 5 s more.
fn recorded_in_a_group(words: &[&str], workload: &[&str], settle: Duration) -> Result<Recorded> {
    let group = MemoryGroup::new("memtrace-ledger", 8 << 30)?;
    let mut workload = Running::start_in(&group, workload)?;
    workload.line()?;
    let pid = workload.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    sleep(settle + Duration::from_secs(5));
    let recorded = recorder.stop()?;
    workload.finish()?;
    Ok(recorded)
}

/// The total of a tree whose processes share memory is what the kernel charged their group:
/// what was attributed to processes and objects, against the group's own figure.
///
/// # Errors
/// When the run itself fails.
pub fn total(words: &[&str], workload: &[&str], settle: Duration) -> Result<Vec<Score>> {
    let recorded = recorded_in_a_group(words, workload, settle)?;
    let at = settle.as_secs_f64() + 4.0;
    let ledger = cgroup_ledger(&recorded, &format!("+{at}s"))?;
    let amount = |key: &str| ledger[key].as_i64();
    let current = amount("current_bytes");
    let is_closed = |key: &str| {
        let both = current.zip(amount(key));
        both.is_some_and(|(current, left)| left.abs() * 100 <= current)
    };
    let is_true = is_closed("residual_bytes") && is_closed("other_shared_bytes");
    Ok(vec![Score::of(
        "the tree's total within 1 % of the cgroup's own figure",
        is_true,
        || in_short(&ledger),
    )])
}

/// The books of a peak that comes suddenly and stands for less than a second: the group's figure
/// is read again when the process has grown.
///
/// # Errors
/// When the run itself fails.
pub fn sudden(words: &[&str]) -> Result<Vec<Score>> {
    const BYTES: i64 = 256 << 20;
    let group = MemoryGroup::new("memtrace-sudden", 8 << 30)?;
    let bytes = BYTES.to_string();
    // It lives long enough for what it holds to be read, before or after.
    let spike = [
        "spike",
        "--count",
        "1",
        "--hold-ms",
        "800",
        "--gap-ms",
        "2000",
        "--bytes",
        &bytes,
    ];
    let recorded = record(words, &group.inside(&workload::command(&spike)?))?;
    let ledger = cgroup_ledger(&recorded, "peak")?;
    let amount = |key: &str| ledger[key].as_i64();
    let current = amount("current_bytes");
    let is_closed = current
        .zip(amount("residual_bytes"))
        .is_some_and(|(current, residual)| residual.abs() * 100 <= current);
    Ok(vec![
        Score::of(
            "the group's figure is of the peak",
            current.is_some_and(|current| current >= BYTES - BYTES / 10),
            || in_short(&ledger),
        ),
        Score::of("residual within 1 % of what is in use", is_closed, || {
            in_short(&ledger)
        }),
    ])
}

/// The books while processes of a gigabyte grow within half a second and end, one after the other:
/// at the peak, and fifteen times over the recording, also while the memory of one that has ended is not
/// free yet. And each of them is in its group to the end.
///
/// # Errors
/// When the run itself fails.
pub fn mortal(words: &[&str], bytes: i64, count: usize) -> Result<Vec<Score>> {
    let group = MemoryGroup::new("memtrace-mortal", 8 << 30)?;
    let (bytes_word, count_word) = (bytes.to_string(), count.to_string());
    let workload = ["mortal", "--bytes", &bytes_word, "--count", &count_word];
    let recorded = record(words, &group.inside(&workload::command(&workload)?))?;
    let lines = workload::parse(&recorded.output)?;
    let path = group.dir().file_name().context("a group has a name")?;
    let path = format!("/{}", path.to_string_lossy());
    let processes: Vec<ProcessRow> = recorded.recording.rows()?;
    let mut in_group = Score::new("whoever exits stays in its group");
    for line in &lines {
        let pid = workload::number(line, "pid")?;
        let row = processes.iter().find(|row| i64::from(row.tgid.0) == pid);
        let cgroup = row.and_then(|row| row.cgroup.as_deref());
        in_group.case(cgroup.is_some_and(|own| own.ends_with(&path)), || {
            format!("pid {pid} is in {cgroup:?}, not {path}")
        });
    }
    let info = recorded.recording.info();
    let start = info.clocks.first().context("no clock")?.boot_ns.0;
    let last = lines.last().context("the workload said nothing")?;
    let end = workload::number(last, "end_boot_ns")?;
    // So many are reported, each by a report of its own.
    const MOMENTS: i64 = 15;
    let step_ms = (end - start) / 1_000_000 / MOMENTS;
    let mut score = Score::new("residual within 1 % of what is in use, or dated");
    let mut moments: Vec<String> = (1..MOMENTS)
        .map(|at| format!("+{}ms", at * step_ms))
        .collect();
    moments.push("peak".to_owned());
    let mut currents = Vec::new();
    let mut last_error = None;
    for moment in moments {
        let ledger = match cgroup_ledger(&recorded, &moment) {
            Ok(ledger) => ledger,
            Err(error) => {
                // Nobody was in the group yet.
                last_error = Some(error);
                continue;
            }
        };
        let amount = |key: &str| ledger[key].as_i64();
        let current = amount("current_bytes").unwrap_or(0);
        currents.push(current);
        // One part in a hundred of less is within what a sample may be off by.
        if current < bytes / 2 {
            continue;
        }
        let residual = amount("residual_bytes");
        let is_closed = residual.is_some_and(|residual| residual.abs() * 100 <= current);
        let is_ending = ledger["ending"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        let is_dated = ["skew_ns", "span_ns"].map(amount) != [Some(0); 2]
            || residual.is_some_and(|residual| residual > 0) && is_ending;
        score.case(is_closed || is_dated, || {
            format!("at {moment}: {}", in_short(&ledger))
        });
    }
    let is_full = currents.iter().any(|current| *current >= bytes / 2);
    let text = Score::of("some books are of a full group", is_full, || {
        format!("{currents:?}, {last_error:?}")
    });
    Ok(vec![in_group, score, text])
}

/// The books of the first cgroup in a report at an instant.
fn cgroup_ledger(recorded: &Recorded, moment: &str) -> Result<Value> {
    let report = recorded.report(&["--at", moment])?;
    let ledgers = report["at"]["ledgers"].as_array();
    let of_cgroup = ledgers
        .into_iter()
        .flatten()
        .find(|ledger| ledger["scope"] == "cgroup");
    of_cgroup.cloned().context("the report has no ledger")
}

/// The sums, without the lines below them.
fn in_short(ledger: &Value) -> String {
    let sums = ledger.as_object().into_iter().flatten();
    let sums = sums.filter(|(_, value)| !value.is_array());
    sums.map(|(key, value)| format!("{key} {value}"))
        .collect::<Vec<_>>()
        .join(", ")
}
