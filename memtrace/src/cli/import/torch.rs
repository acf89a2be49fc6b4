//! `memtrace import torch`: what torch's CUDA caching allocator held, from its snapshots.

use super::{clocks_and_span, doing, not_opened, open_regular};
use crate::cli::output::say;
use crate::cli::recorded::open;
use anyhow::{Context, bail};
use memtrace_host::{HostFacts, Person};
use memtrace_import::FILE_BYTES_MAX;
use memtrace_import::torch::{Owners, Snapshot};
use memtrace_model::clocks::Clock;
use memtrace_model::tables::{CudaCallRow, MarkRow, ProcessRow, StackRow, TorchMemoryRow};
use memtrace_model::{BootNs, Bytes, Tgid, Upid, WallNs};
use memtrace_report::{visible, words};
use memtrace_store::{Recording, Recordings, Revision};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The mark that `memtrace.torch_snapshot` sends.
const MARK: &str = "torch_snapshot";

/// Import snapshots of torch's CUDA allocator
///
/// The files are what `memtrace.torch_snapshot()` or `torch.cuda.memory._dump_snapshot()` wrote. No
/// object in them is loaded: a pickle with anything but plain values is refused. Each becomes rows of
/// the table `torch_memory`, so that `memtrace report --section torch` says what torch held and did
/// not use, and which lines allocated it (docs/torch.md). Only memtrace.torch_snapshot() says when and
/// by which process a snapshot was taken. For other files the time is when the file was last
/// written, and the process is the one whose calls of the CUDA driver made the segments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memtrace import torch torch-snapshot-*.pickle")]
pub(super) struct Args {
    /// Snapshots of torch's allocator
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The process that took them, by its process id
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// The recording [default: the newest recording here]
    #[arg(short, long, value_name = "DIR")]
    pub(super) recording: Option<PathBuf>,
}

/// A snapshot of a file, and where it belongs.
struct Placed {
    name: String,
    snapshot: Snapshot,
    wall: WallNs,
    at: BootNs,
    upid: Option<Upid>,
}

/// Imports, and answers how many rows are new. The recording is locked until this ends.
pub(super) fn import(recordings: &Recordings, dir: &Path, args: &Args) -> anyhow::Result<usize> {
    let person = Person::behind(&HostFacts::read(), false);
    let (recording, _) = open(recordings, dir)?;
    let doing = || doing(dir);
    let mut revision = Revision::begin(&recording).with_context(doing)?;
    let (clocks, span) = clocks_and_span(&recording).with_context(doing)?;
    let mut known = Known::read(&recording).with_context(doing)?;
    let mut placed = Vec::new();
    for path in &args.files {
        let (name, snapshot, written) = read(path, person.as_ref())?;
        let at = match snapshot.boot_ns {
            Some(at) => at,
            None => {
                let found = clocks.find(Clock::Wall, written.0);
                found
                    .context("the recording says nothing of its clocks")?
                    .at
            }
        };
        if !(span[0]..=span[1]).contains(&at) {
            bail!(
                "{} was written outside of the recording, so it is of another one (a copy has the \
                 time of copying, unless it was made with cp -p)",
                path.display()
            );
        }
        let wall = clocks.to_wall(at).unwrap_or(written);
        let shown = path.display();
        if snapshot.segments.is_empty() {
            say(&format!("{shown}: torch had reserved nothing"));
        } else if !known
            .snapshots
            .insert((at, name.clone(), snapshot.reserved()))
        {
            say(&format!("{shown}: it is in the recording already"));
        } else {
            placed.push(Placed {
                name,
                snapshot,
                wall,
                at,
                upid: known.marks.get(&at).copied(),
            });
        }
    }
    placed.sort_by_key(|one| one.at);
    let tgids = name_processes(&recording, &mut placed, args.pid.map(Tgid)).with_context(doing)?;
    placed.iter().for_each(|one| one.tell(&tgids));
    let rows = placed.len();
    if rows > 0 {
        let firsts: Vec<i64> = placed
            .iter()
            .scan(known.last_stack + 1, |next, one| {
                let first = *next;
                *next += one.snapshot.stacks.len() as i64;
                Some(first)
            })
            .collect();
        let each = || placed.iter().zip(firsts.iter().copied());
        let stacks =
            each().flat_map(|(one, first)| one.snapshot.stack_rows((one.wall, one.at), first));
        let memory = each().flat_map(|(one, first)| {
            let moment = (one.wall, one.at);
            one.snapshot.rows(&one.name, moment, one.upid, first)
        });
        // Stacks first: memory whose stack is missing would have no line.
        let add = revision
            .add(stacks, |row: &StackRow| row.boot_ns)
            .and_then(|()| revision.add(memory, |row: &TorchMemoryRow| row.boot_ns));
        add.and_then(|()| revision.finish()).with_context(doing)?;
    }
    Ok(rows)
}

/// The name of a file, the snapshot in it, and when it was written.
fn read(path: &Path, person: Option<&Person>) -> anyhow::Result<(String, Snapshot, WallNs)> {
    let file = open_regular(path, person).with_context(|| not_opened(path))?;
    let about = file.metadata().with_context(|| not_opened(path))?;
    if about.len() > FILE_BYTES_MAX {
        let most = words::bytes(Bytes(FILE_BYTES_MAX as i64));
        bail!("{} has more than {most}", path.display());
    }
    let written = about.modified().with_context(|| not_opened(path))?;
    let written = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    let snapshot = Snapshot::read(BufReader::with_capacity(1 << 16, file));
    let snapshot =
        snapshot.map_err(|error| anyhow::anyhow!("{}: failed to {error}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let written = i64::try_from(written.as_nanos()).unwrap_or(i64::MAX);
    Ok((name.into_owned(), snapshot, WallNs(written)))
}

/// What the recording has already.
struct Known {
    /// By their time, file and size.
    snapshots: HashSet<(BootNs, String, Bytes)>,
    /// Who marked a snapshot, by its time.
    marks: HashMap<BootNs, Upid>,
    last_stack: i64,
}

impl Known {
    fn read(recording: &Recording) -> anyhow::Result<Self> {
        let mut sizes: HashMap<(BootNs, String), Bytes> = HashMap::new();
        recording.scan(&["snapshot", "size_bytes"], |row: TorchMemoryRow| {
            let size = sizes.entry((row.boot_ns, row.snapshot)).or_default();
            *size = *size + row.size_bytes;
        })?;
        let mut marks = HashMap::new();
        recording.scan(&["upid", "name"], |row: MarkRow| {
            if let (MARK, Some(upid)) = (row.name.as_str(), row.upid) {
                marks.insert(row.boot_ns, upid);
            }
        })?;
        let mut last_stack = 0;
        recording.scan(&["stack_id"], |row: StackRow| {
            last_stack = last_stack.max(row.stack_id);
        })?;
        let snapshots = sizes.into_iter();
        Ok(Self {
            snapshots: snapshots
                .map(|((at, name), size)| (at, name, size))
                .collect(),
            marks,
            last_stack,
        })
    }
}

/// Finds the processes of snapshots that no mark tells of, and answers the process ids of all.
fn name_processes(
    recording: &Recording,
    placed: &mut [Placed],
    given: Option<Tgid>,
) -> anyhow::Result<BTreeMap<Upid, Tgid>> {
    let mut tgids = BTreeMap::new();
    let mut lives = Vec::new();
    let columns = ["upid", "tgid", "start_boot_ns", "exit_boot_ns"];
    recording.scan(&columns, |row: ProcessRow| {
        tgids.insert(row.upid, row.tgid);
        if Some(row.tgid) == given {
            lives.push((row.upid, row.start_boot_ns, row.exit_boot_ns));
        }
    })?;
    if let Some(given) = given {
        for one in &mut *placed {
            let lives = lives.iter().find(|(_, start, exit)| {
                *start <= one.at && exit.is_none_or(|exit| one.at <= exit)
            });
            let Some((upid, ..)) = lives else {
                bail!("{}: no process {given} was recorded then", one.name);
            };
            one.upid = Some(*upid);
        }
    }
    let unknown = placed.iter_mut().filter(|one| one.upid.is_none());
    let mut unknown: Vec<(Owners, &mut Placed)> = unknown
        .map(|one| (Owners::of(&one.snapshot, one.at), one))
        .collect();
    if !unknown.is_empty() {
        let columns = ["upid", "call", "size_bytes", "address", "result"];
        recording.scan(&columns, |row: CudaCallRow| {
            unknown.iter_mut().for_each(|(owners, _)| owners.call(&row));
        })?;
        for (owners, one) in unknown {
            one.upid = owners.owner();
        }
    }
    Ok(tgids)
}

impl Placed {
    /// Says what it brings.
    fn tell(&self, tgids: &BTreeMap<Upid, Tgid>) {
        let tgid = self.upid.and_then(|upid| tgids.get(&upid));
        let who = match tgid {
            Some(tgid) => format!("of process {tgid}"),
            None => "of a process that is not known (--pid names it)".to_owned(),
        };
        say(&format!(
            "{}: {} in {}, {who}",
            visible(&self.name),
            words::bytes(self.snapshot.reserved()),
            words::counted(self.snapshot.segments.len(), "segment", "segments"),
        ));
    }
}
