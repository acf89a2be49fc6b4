//! What a day of a recording takes on the disk: a minute is recorded, and its rows are written again
//! and again, each time a minute later, as the recorder would have.

use crate::measured::Measured;
use crate::reading::{MIB, run};
use crate::{Bench, Effort};
use anyhow::{Context, Result};
use memtrace_model::tables::{
    CachedFileRow, CgroupMemRow, ClockRow, DiagRow, LayoutRow, MappingRow, MemRow, NodeMemRow,
    ProcessRow, PssRow, SelfCostRow, ShmObjectRow, TitleRow, TmpfsRow,
};
use memtrace_model::{BootNs, ClockReading, DurationNs, Record, RunInfo, TABLES};
use memtrace_store::{Recording, Writer};
use memtrace_tests::recorder::{Recorded, Recorder};
use memtrace_tests::workload::Running;
use std::ffi::OsString;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "a-day-idle",
        run: idle,
    },
    Bench {
        name: "a-day-busy",
        run: busy,
    },
    Bench {
        name: "a-day-of-the-machine",
        run: machine,
    },
];

/// Two keyframes lie in it.
const REPEATED: DurationNs = DurationNs(60_000_000_000);
/// The start of a recording is not what it goes on with.
const BEGUN: DurationNs = DurationNs(12_000_000_000);
const FLUSH_NS: i64 = 10_000_000_000;
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(600);

fn idle(effort: Effort) -> Result<Vec<Measured>> {
    let mut tree = Running::start(&["idle", "--processes", "50"])?;
    tree.line()?;
    let recorded = recorded(&["-p", &tree.pid().to_string()])?;
    let name = "a-day-idle";
    let day = Day::of(&recorded, effort)?;
    let mut rows = day.measured(name, "50 idle processes", None, 2.0)?;
    rows.extend(day.measured(name, "the same, --rotate 60s", Some(REPEATED), 4.0)?);
    Ok(rows)
}

fn busy(effort: Effort) -> Result<Vec<Measured>> {
    let mut tree = Running::start(&["changers", "--processes", "7"])?;
    tree.line()?;
    let recorded = recorded(&["-p", &tree.pid().to_string()])?;
    let day = Day::of(&recorded, effort)?;
    let (name, what) = ("a-day-busy", "7 that change all the time");
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("day");
    let mut rows = day.measured_in(&place, name, what, None, 10.0)?;
    for period in ["1s", "10s", "1m"] {
        let words = ["downsample", "--to", period].map(OsString::from);
        let (seconds, peak_mib) = run(&words, &place)?;
        let (bytes, files) = size(&place)?;
        let (report_seconds, _) = run(&[OsString::from("report")], &place)?;
        let what = format!("the same, downsampled to {period}");
        let note = format!(
            "{:.2} MiB in {files} files; it takes {seconds:.1} s and {peak_mib:.0} MiB, the report \
             then {report_seconds:.2} s",
            bytes as f64 / MIB
        );
        let per_day = day.per_day(bytes);
        rows.push(Measured::at_most(name, &what, "MB", 10.0, per_day).with_note(note));
    }
    Ok(rows)
}

fn machine(effort: Effort) -> Result<Vec<Measured>> {
    let recorded = recorded(&["-a"])?;
    let day = Day::of(&recorded, effort)?;
    let what = "every process of this machine (-a)";
    day.measured("a-day-of-the-machine", what, None, 10.0)
}

fn recorded(target: &[&str]) -> Result<Recorded> {
    let recorder = Recorder::start(&[&["--quiet"], target].concat())?;
    sleep(Duration::from_nanos((REPEATED.0 + BEGUN.0).cast_unsigned()) + Duration::from_secs(2));
    recorder.stop()
}

/// A row, and how it is made for a later time.
struct Row {
    boot_ns: i64,
    later: Box<dyn Fn(i64) -> Record>,
}

/// The rows of a minute, and of what was before it.
struct Day {
    info: RunInfo,
    start: ClockReading,
    before: Vec<Record>,
    minute: Vec<Row>,
    minutes: i64,
}

macro_rules! rows_of {
    ($day:ident, $recording:ident, $($row:ty),+) => {$(
        for row in $recording.rows::<$row>()? {
            $day.take(row.boot_ns, move |ns| {
                let mut row = row.clone();
                row.boot_ns.0 += ns;
                row.ts.0 += ns;
                row.into()
            });
        }
    )+};
}

impl Day {
    fn of(recorded: &Recorded, effort: Effort) -> Result<Self> {
        let recording: &Recording = &recorded.recording;
        let info = recording.info().clone();
        let start = *info.clocks.first().context("a clock")?;
        let mut day = Self {
            info,
            start,
            before: Vec::new(),
            minute: Vec::new(),
            minutes: effort.pick(6 * 60, 24 * 60),
        };
        let processes: Vec<ProcessRow> = recording.rows()?;
        day.before.extend(processes.into_iter().map(Record::from));
        rows_of!(
            day,
            recording,
            CachedFileRow,
            CgroupMemRow,
            ClockRow,
            DiagRow,
            LayoutRow,
            MappingRow,
            MemRow,
            NodeMemRow,
            PssRow,
            SelfCostRow,
            ShmObjectRow,
            TitleRow,
            TmpfsRow
        );
        day.minute.sort_by_key(|row| row.boot_ns);
        Ok(day)
    }

    fn take(&mut self, at: BootNs, later: impl Fn(i64) -> Record + 'static) {
        let since = (at - self.start.boot_ns).0 - BEGUN.0;
        if since < 0 {
            self.before.push(later(0));
        } else if since < REPEATED.0 {
            self.minute.push(Row {
                boot_ns: at.0,
                later: Box::new(later),
            });
        }
    }

    /// Writes it; gives the number of files before it is closed.
    fn write(&self, dir: &Path, rotate: Option<DurationNs>) -> Result<usize> {
        let mut info = self.info.clone();
        info.clocks.truncate(1);
        let mut writer = Writer::create(dir, &info)?;
        if let Some(every) = rotate {
            writer = writer.rotating(every);
        }
        for row in &self.before {
            writer.append(row)?;
        }
        let mut flush_at = self.start.boot_ns.0;
        for minute in 0..self.minutes {
            let shift_ns = minute * REPEATED.0;
            for row in &self.minute {
                let now = row.boot_ns + shift_ns;
                if now >= flush_at {
                    flush_at = now + FLUSH_NS;
                    writer.flush()?;
                    writer.rotate(BootNs(now))?;
                }
                writer.append(&(row.later)(shift_ns))?;
            }
        }
        let files = settled_files(dir)?;
        let length_ns = BEGUN.0 + self.minutes * REPEATED.0;
        info.clocks.push(ClockReading {
            boot_ns: BootNs(self.start.boot_ns.0 + length_ns),
            monotonic_ns: self.start.monotonic_ns + length_ns,
            wall_ns: memtrace_model::WallNs(self.start.wall_ns.0 + length_ns),
        });
        writer.finish(info)?;
        Ok(files)
    }

    /// Megabytes of a day where this many minutes take so much.
    fn per_day(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 * 1_440.0 / self.minutes as f64
    }

    fn measured(
        &self,
        name: &str,
        what: &str,
        rotate: Option<DurationNs>,
        limit_mb: f64,
    ) -> Result<Vec<Measured>> {
        let dir = tempfile::tempdir()?;
        self.measured_in(&dir.path().join("day"), name, what, rotate, limit_mb)
    }

    fn measured_in(
        &self,
        place: &Path,
        name: &str,
        what: &str,
        rotate: Option<DurationNs>,
        limit_mb: f64,
    ) -> Result<Vec<Measured>> {
        let files_before = self.write(place, rotate)?;
        let (bytes, files) = size(place)?;
        let (seconds, _) = run(&[OsString::from("report")], place)?;
        let per_day = self.per_day(bytes);
        let note = format!(
            "{} minutes: {:.2} MiB in {files} files, {files_before} when it was closed; {} rows a \
             minute; the report takes {seconds:.2} s",
            self.minutes,
            bytes as f64 / MIB,
            self.minute.len()
        );
        let mut rows = vec![
            Measured::at_most(name, &format!("a day of {what}"), "MB", limit_mb, per_day)
                .with_note(note),
        ];
        if rotate.is_some() {
            let what = format!("files while it is written, {what}");
            rows.push(Measured::at_most(
                name,
                &what,
                "",
                200.0,
                files_before as f64,
            ));
        }
        Ok(rows)
    }
}

/// The number of the files once the thread that makes parts has caught up: a day is written in minutes
/// here.
fn settled_files(dir: &Path) -> Result<usize> {
    let begin = Instant::now();
    // The segment that each table writes to, and those with a rest, wait for nothing.
    while std::fs::read_dir(dir.join("spool"))?.count() > 2 * TABLES.len() {
        anyhow::ensure!(begin.elapsed() < CATCHES_UP_WITHIN, "parts are not made");
        sleep(Duration::from_secs(1));
    }
    Ok(size(dir)?.1)
}

/// The bytes and the number of the files below a directory.
fn size(path: &Path) -> Result<(u64, usize)> {
    let meta = path.symlink_metadata()?;
    if !meta.is_dir() {
        return Ok((meta.len(), 1));
    }
    let (mut bytes, mut files) = (0, 0);
    for entry in std::fs::read_dir(path)? {
        let (more, others) = size(&entry?.path())?;
        bytes += more;
        files += others;
    }
    Ok((bytes, files))
}
