//! What it costs to have a recording carried to a root while it is made: the recorder itself, and the
//! process that carries.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::SelfCostRow;
use memtrace_store::Recordings;
use memtrace_tests::program;
use memtrace_tests::workload::Running;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "carried",
    run: carried,
}];

/// Six times as often as by default: what a file costs to close and to carry shows.
const ROTATE: &str = "10s";
/// The start of a recording is not what it costs.
const BEGUN_NS: i64 = 5_000_000_000;
/// Of /proc, on every architecture that is in use.
const TICK_NS: i64 = 10_000_000;
const LOOK: Duration = Duration::from_millis(200);

fn carried(effort: Effort) -> Result<Vec<Measured>> {
    let mut tree = Running::start(&["household", "--processes", "60"])?;
    tree.line()?;
    let seconds = effort.pick(15, 45);
    let (mut ratios, mut shares, mut peak_kib) = (Vec::new(), Vec::new(), 0);
    for _ in 0..effort.pick(1, 3) {
        let dir = tempfile::tempdir()?;
        let place = |name: &str| dir.path().join(name);
        let alone = place("alone");
        Recorder::start(&tree, seconds, &[Path::new("-o"), &alone])?.carrier_until_end()?;
        let words = [
            Path::new("-o"),
            &place("local"),
            Path::new("--root"),
            &place("root"),
            Path::new("--rotate"),
            Path::new(ROTATE),
        ];
        fs::create_dir(place("root"))?;
        let carrier = Recorder::start(&tree, seconds, &words)?.carrier_until_end()?;
        let carrier = carrier.context("nobody carried the recording")?;
        let arrived = only_below(&only_below(&only_below(&place("root"))?)?)?;
        ratios.push(own_share(&arrived)? / own_share(&alone)?);
        shares.push(carrier.cpu_ns as f64 / 1e7 / f64::from(seconds));
        peak_kib = peak_kib.max(carrier.peak_kib);
    }
    let name = "carried";
    let of_recorder =
        format!("CPU of the recorder with --root and --rotate {ROTATE}, of that without");
    let (ratio, share) = (stats::estimate(&ratios), stats::estimate(&shares));
    let peak = f64::from(peak_kib) / 1024.0;
    Ok(vec![
        Measured::estimate_at_most(name, &of_recorder, "times", 1.1, ratio),
        Measured::estimate_at_most(name, "CPU of who carries 60 processes", "%", 1.0, share),
        Measured::at_most(name, "peak RSS of who carries", "MiB", 64.0, peak),
    ])
}

/// One that records a tree for some seconds.
struct Recorder(Child);

/// What carrying took.
#[derive(Clone, Copy)]
struct Carrier {
    cpu_ns: i64,
    peak_kib: u32,
}

impl Recorder {
    fn start(tree: &Running, seconds: u32, words: &[&Path]) -> Result<Self> {
        let child = Command::new(program::memtrace()?)
            .args(["record", "--quiet", "-p", &tree.pid().to_string()])
            .args(["-d", &format!("{seconds}s")])
            .args(words)
            .stdin(Stdio::null())
            .spawn()
            .context("failed to start memtrace")?;
        Ok(Self(child))
    }

    /// Waits for its end. Gives what was last seen of its child that carries, if it has one.
    fn carrier_until_end(mut self) -> Result<Option<Carrier>> {
        let mut seen = None;
        loop {
            if let Some(status) = self.0.try_wait()? {
                if !status.success() {
                    bail!("memtrace record ended with {status}");
                }
                return Ok(seen);
            }
            seen = self.carrier().or(seen);
            sleep(LOOK);
        }
    }

    fn carrier(&self) -> Option<Carrier> {
        let recorder = self.0.id();
        let children = fs::read_dir(format!("/proc/{recorder}/task")).ok()?;
        let children = children.flatten().filter_map(|task| {
            let pids = fs::read_to_string(task.path().join("children")).ok()?;
            Some(
                pids.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>(),
            )
        });
        children.flatten().find_map(|pid| {
            let dir = Path::new("/proc").join(pid);
            let words = fs::read(dir.join("cmdline")).ok()?;
            let mut words = words.split(|byte| *byte == 0);
            words.find(|word| *word == b"push")?;
            let status = fs::read_to_string(dir.join("status")).ok()?;
            let peak = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            let peak_kib = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
            // Ticks in user mode and in the kernel, 14 and 15 in proc_pid_stat(5): of ended threads, too.
            let stat = fs::read_to_string(dir.join("stat")).ok()?;
            let (_, fields) = stat.rsplit_once(')')?;
            let ticks = fields.split_whitespace().skip(11).take(2);
            let ticks: i64 = ticks.filter_map(|ticks| ticks.parse::<i64>().ok()).sum();
            Some(Carrier {
                cpu_ns: ticks * TICK_NS,
                peak_kib,
            })
        })
    }
}

/// The only folder in another one.
fn only_below(dir: &Path) -> Result<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    match entries.as_slice() {
        [only] => Ok(only.clone()),
        others => bail!("{} holds {others:?}, not one folder", dir.display()),
    }
}

/// CPU of the recorder itself while it ran, as a share of one core.
fn own_share(recording: &Path) -> Result<f64> {
    let rows: Vec<SelfCostRow> = Recordings::default().open(recording)?.rows()?;
    let start = rows.first().context("no self_cost")?.boot_ns.0;
    let begun = rows.iter().find(|row| row.boot_ns.0 - start >= BEGUN_NS);
    let (first, last) = (begun.context("too short")?, &rows[rows.len() - 1]);
    let cpu = |row: &SelfCostRow| row.cpu_user_ns.0 + row.cpu_system_ns.0;
    let passed = (last.boot_ns - first.boot_ns).0;
    if passed <= 0 {
        bail!("{} is too short", recording.display());
    }
    Ok((cpu(last) - cpu(first)) as f64 / passed as f64)
}
