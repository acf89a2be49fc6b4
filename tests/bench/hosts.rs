//! What it takes to report on a job of a thousand hosts.

use crate::measured::Measured;
use crate::reading::{
    FILE_BYTES, MIB, START_NS, WALL_OFFSET_NS, Walk, clocks, info, mem, process, run,
};
use crate::{Bench, Effort};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::{MarkKind, MarkRow, MarkSource, NodeMemRow};
use memtrace_model::{BootNs, Bytes, ClockRow, DurationNs, Tgid, Upid, WallNs};
use memtrace_store::Writer;
use std::ffi::OsString;
use std::path::Path;

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "hosts-1000",
    run: report,
}];

/// So many are made; the others are these under other names.
const DISTINCT: usize = 20;
const PROCESSES: i64 = 50;
/// Of the processes, ranks.
const RANKS: i64 = 8;
const SECONDS: i64 = 3_600;
const SECOND_NS: i64 = 1_000_000_000;
/// Between two steps of a rank.
const STEP_SECONDS: i64 = 20;

fn report(effort: Effort) -> Result<Vec<Measured>> {
    let hosts = effort.pick(50, 1_000);
    let dir = tempfile::tempdir()?;
    let root = dir.path().join("root");
    let bytes = write(&root, hosts).context("failed to write the recordings")?;
    let whole = dir.path().join("whole.json");
    let (parts, merged) = (dir.path().join("parts"), dir.path().join("merged.json"));
    let to = |file: &Path, words: &[&str]| {
        let first = ["report".into(), "-o".into(), file.into()];
        let words = words.iter().map(OsString::from);
        first.into_iter().chain(words).collect::<Vec<OsString>>()
    };
    let (seconds, mebibytes) = run(&to(&whole, &["-f", "json"]), &root)?;
    run(&to(&parts, &["--reduce"]), &root)?;
    let (merge_seconds, _) = run(&to(&merged, &["-f", "json", "--merge"]), &parts)?;
    let (whole, merged) = (std::fs::read(&whole)?, std::fs::read(&merged)?);
    if whole != merged {
        bail!("what is merged of parts is not what the root says");
    }
    let name = "hosts-1000";
    let what = |what: &str| format!("{what} on {hosts} hosts of 1 h");
    let each = bytes as f64 / hosts as f64 / MIB;
    let part = parts.metadata()?.len() as f64 / hosts as f64 / 1024.0;
    let note = format!(
        "{each:.1} MiB each; of it {part:.0} KiB cross hosts; merging them takes {merge_seconds:.1} s and gives \
         the same bytes"
    );
    Ok(vec![
        Measured::at_most(name, &what("report"), "s", 60.0, seconds).with_note(note),
        Measured::at_most(name, &what("peak RSS of a report"), "MiB", 500.0, mebibytes),
    ])
}

/// Recordings of a run. Gives how many bytes they have.
fn write(root: &Path, hosts: usize) -> Result<u64> {
    let place =
        |host: usize| root.join(format!("run=4711/host=node{host:04}/rec=20231114T221320Z"));
    let mut bytes = 0;
    for host in 0..hosts.min(DISTINCT) {
        std::fs::create_dir_all(place(host).parent().context("a host")?)?;
        write_host(&place(host), host)?;
    }
    for host in 0..hosts {
        bytes += link(&place(host % DISTINCT), &place(host))?;
    }
    Ok(bytes)
}

/// The same recording under another name. Gives how many bytes it has.
fn link(from: &Path, to: &Path) -> Result<u64> {
    let mut bytes = 0;
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            bytes += link(&entry.path(), &to)?;
            continue;
        }
        bytes += entry.metadata()?.len();
        if from != to.parent().unwrap_or(&to) {
            std::fs::hard_link(entry.path(), to)?;
        }
    }
    Ok(bytes)
}

fn write_host(dir: &Path, host: usize) -> Result<()> {
    let end_ns = START_NS + SECONDS * SECOND_NS;
    let mut info = info();
    info.hostname = format!("node{host:04}");
    let mut writer = Writer::create(dir, &info)?;
    let first_rank = i64::try_from(host)? * RANKS;
    for index in 0..PROCESSES {
        let mut row = process(index, end_ns);
        if index < RANKS {
            row.framework = Some("PyTorch".to_owned());
            row.role = Some("rank".to_owned());
            row.rank = Some((first_rank + index).to_string());
        }
        writer.append(&row.into())?;
    }
    let mut walk = Walk::default();
    for _ in 0..host {
        walk.next();
    }
    let mut pages = vec![100_000_i64; usize::try_from(PROCESSES)?];
    for second in 0..SECONDS {
        let boot_ns = START_NS + second * SECOND_NS;
        for (index, pages) in (0..PROCESSES).zip(&mut pages) {
            walk.step(pages);
            writer.append(&mem(index, boot_ns + index * 1_000, *pages * 4096).into())?;
        }
        for index in 0..RANKS {
            let at = boot_ns + 500_000_000 + index * 1_000;
            match second % STEP_SECONDS {
                0 => writer
                    .append(&mark(index, at, MarkKind::Begin, second / STEP_SECONDS).into())?,
                15 => {
                    writer.append(&mark(index, at, MarkKind::End, second / STEP_SECONDS).into())?
                }
                _ => {}
            }
        }
        if second % 60 == 0 {
            let held: i64 = pages.iter().sum::<i64>() * 4096 + PROCESSES * FILE_BYTES;
            writer.append(&node_row(boot_ns, held).into())?;
            writer.append(&clock_row(boot_ns).into())?;
        }
        if second % 10 == 0 {
            writer.flush()?;
        }
    }
    info.clocks.push(clocks(end_ns));
    writer.finish(info)?;
    Ok(())
}

fn mark(index: i64, boot_ns: i64, kind: MarkKind, step: i64) -> MarkRow {
    MarkRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        upid: Some(Upid(index + 1)),
        tgid: Some(Tgid(u32::try_from(index).unwrap_or(0) + 1_000)),
        name: "step".to_owned(),
        kind: Some(kind),
        span: None,
        source: Some(MarkSource::Socket),
        attributes: Some(format!("{{\"step\":{step}}}")),
    }
}

fn clock_row(boot_ns: i64) -> ClockRow {
    ClockRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        monotonic_ns: DurationNs(boot_ns),
        step_ns: None,
        is_synchronized: Some(true),
        max_error_ns: Some(DurationNs(5_000_000)),
        estimated_error_ns: None,
    }
}

fn node_row(boot_ns: i64, held: i64) -> NodeMemRow {
    NodeMemRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        mem_total_bytes: Some(Bytes(64 << 30)),
        mem_available_bytes: Some(Bytes((64 << 30) - held)),
        ..NodeMemRow::default()
    }
}
