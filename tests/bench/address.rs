//! How much of a long recording in a bucket is fetched for one role's curve.

use crate::measured::Measured;
use crate::reading::{MIB, START_NS, WALL_OFFSET_NS, clocks, info, process};
use crate::s3::S3;
use crate::{Bench, Effort};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::{MemRow, MemSource, RoleMemRow};
use memtrace_model::{BootNs, Bytes, Upid, WallNs};
use memtrace_store::{Recording, Recordings, RemoteReader, Writer};
use memtrace_tests::program;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "address-1g",
    run: one_role,
}];

const PROCESSES: i64 = 50;
/// Of them, ranks of one role.
const RANKS: i64 = 8;
const PERIOD_NS: i64 = 10_000_000;
const PLACE: &str = "memory/run=4711/host=node1/rec=20231114T221320Z";
/// Of the bytes of the recording, in percent.
const SHARE_MAX: f64 = 5.0;

fn one_role(effort: Effort) -> Result<Vec<Measured>> {
    // A row of amounts that nobody can foretell takes some 13 bytes.
    let rows = effort.pick(600_000, 80_000_000);
    let dir = tempfile::tempdir()?;
    let recording = dir.path().join("recording");
    write(&recording, rows).context("failed to write the recording")?;
    let mut save = Command::new(program::memtrace()?);
    save.args(["report", "--save-findings", "-o"]);
    save.arg(dir.path().join("report")).arg(&recording);
    if !save.stdin(Stdio::null()).status()?.success() {
        bail!("memtrace report --save-findings failed");
    }
    let s3 = S3::start();
    let all = put(&s3, &recording, PLACE)?;
    let here = Recordings::default().open(&recording)?;
    let expected = curve(&here)?;
    let mut reader = Command::new(program::memtrace_remote()?);
    let address = format!("s3://bucket/{PLACE}");
    reader.arg("read").arg(&address).envs(s3.environment());
    let reader = Arc::new(RemoteReader::start(reader, &address)?);
    let text = curve(&Recordings::default().open_remote(reader, "")?)?;
    if text.is_empty() || text != expected {
        bail!("the curve of the role is another one at the address");
    }
    let fetched = s3.state.sent_bytes.load(Ordering::Relaxed);
    let percent = fetched as f64 / all as f64 * 100.0;
    let size = all as f64 / MIB;
    let what = format!("one role's curve of a recording of {size:.0} MiB in a bucket, fetched");
    let kib = fetched as f64 / 1024.0;
    let note = format!("{kib:.0} KiB for {} instants", text.len());
    Ok(vec![
        Measured::at_most("address-1g", &what, "%", SHARE_MAX, percent).with_note(note),
    ])
}

/// What the ranks together held over time.
fn curve(recording: &Recording) -> Result<Vec<(BootNs, Option<Bytes>)>> {
    let mut curve = Vec::new();
    let columns = ["boot_ns", "name", "rss_bytes"];
    recording.scan(&columns, |row: RoleMemRow| {
        if row.name == "PyTorch rank" {
            curve.push((row.boot_ns, row.rss_bytes));
        }
    })?;
    Ok(curve)
}

fn write(dir: &Path, rows: i64) -> Result<()> {
    let mut info = info();
    let mut writer = Writer::create(dir, &info)?;
    let end_ns = START_NS + rows / PROCESSES * PERIOD_NS;
    for index in 0..PROCESSES {
        let mut row = process(index, end_ns);
        if index < RANKS {
            row.framework = Some("PyTorch".to_owned());
            row.role = Some("rank".to_owned());
            row.rank = Some(index.to_string());
        }
        writer.append(&row.into())?;
    }
    let mut random = 1_u64;
    let mut pages = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 44).cast_signed()
    };
    for row in 0..rows {
        let boot_ns = START_NS + row / PROCESSES * PERIOD_NS + row % PROCESSES * 1_000;
        let [anon, file, shmem] = [pages(), pages(), pages()].map(|pages| Bytes(pages << 12));
        let row = MemRow {
            ts: WallNs(boot_ns + WALL_OFFSET_NS),
            boot_ns: BootNs(boot_ns),
            upid: Upid(row % PROCESSES + 1),
            rss_bytes: Some(Bytes(anon.0 + file.0 + shmem.0)),
            rss_anon_bytes: Some(anon),
            rss_file_bytes: Some(file),
            rss_shmem_bytes: Some(shmem),
            source: Some(MemSource::Snapshot),
            ..MemRow::default()
        };
        writer.append(&row.into())?;
    }
    info.clocks.push(clocks(end_ns));
    writer.finish(info)?;
    Ok(())
}

/// Puts a folder into the bucket. Gives how many bytes it has.
fn put(s3: &S3, dir: &Path, prefix: &str) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let key = format!("{prefix}/{}", name.to_string_lossy());
        if entry.file_type()?.is_dir() {
            bytes += put(s3, &entry.path(), &key)?;
            continue;
        }
        let read = std::fs::read(entry.path())?;
        bytes += read.len() as u64;
        s3.put(&key, read);
    }
    Ok(bytes)
}
