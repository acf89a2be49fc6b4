//! The order in which a recording is read, in four stages, each made from those before it: the facts that
//! are known before the pass over memory, that pass, who held what at the instants it found, and the
//! findings.

mod facts;
mod findings;
mod holdings;
mod shutdown;
mod swept;

use super::clock::RunClock;
use super::cost::RecorderCost;
use super::life::ProcessError;
use super::moment::{Moment, MomentError};
use super::phases::PhaseError;
use super::process_table::ProcessTable;
use super::sections::Report;
use facts::Facts;
use holdings::Holdings;
use jiff::tz::TimeZone;
use memtrace_model::tables::Finding;
use memtrace_model::{BootNs, Kind, Label, RowSource, RunInfo, RunState};
use swept::Swept;

/// What the pass needs of a row of `mem`.
pub(super) fn mem_columns() -> Vec<&'static str> {
    let others = ["ts", "boot_ns", "upid", "vm_size_bytes", "source"];
    let kinds = Kind::ALL.iter().map(|kind| kind.column());
    others.into_iter().chain(kinds).collect()
}

/// What to look at beside the peak.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An instant of interest.
    pub at: Option<Moment>,
    /// More such instants, for what each role held then.
    pub instants: Vec<BootNs>,
    /// The name of a phase of interest, or a pattern of names: `*` stands for any text, `?` for
    /// one character.
    pub phase: Option<String>,
    /// The process of interest: its id, or words of its name or role.
    pub process: Option<String>,
    /// The start of a window of interest; its first row of memory if only the end is given.
    pub from: Option<Moment>,
    /// Its end; the end of the recording if only its start is given.
    pub to: Option<Moment>,
    /// Whether memory over time is wanted, for drawing it.
    pub has_curves: bool,
    /// Whether what is held in each second of the wall clock is wanted, for adding up hosts.
    pub has_bins: bool,
    /// Whether it is made for the tables alone: what no table has is not looked at.
    pub only_saves: bool,
    /// Whether lines of machine code are wanted: files of debug information are read for them.
    pub has_source_lines: bool,
    /// Tell each marked phase by itself, not those of one name together.
    pub is_unfolded: bool,
    /// The reader's time zone; UTC where it is none.
    pub zone: Option<TimeZone>,
    /// The recording's place, for telling the person how to close it.
    pub path: Option<String>,
    /// Whether a recorder still writes to it.
    pub is_live: bool,
    /// Whether it went on where it comes from, and later rows may come yet.
    pub is_open: bool,
    /// The last row of any table, for a recording that was not closed.
    pub last_boot_ns: Option<BootNs>,
}

/// Why there are no findings.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError<E: std::error::Error + 'static> {
    /// The rows could not be read.
    #[error(transparent)]
    Rows(#[from] E),
    /// The instant of interest is not part of the recording.
    #[error(transparent)]
    Moment(MomentError),
    /// The window of interest is not part of the recording, or is none.
    #[error(transparent)]
    Window(MomentError),
    /// The phase of interest is not part of the recording.
    #[error(transparent)]
    Phase(PhaseError),
    /// The process of interest is not part of the recording.
    #[error(transparent)]
    Process(ProcessError),
}

/// Reads a recording and says what there is to know.
///
/// Tables are read as streams, the large ones once, and where somebody came to map shared memory
/// `mem` near that once more. Memory grows with the number of processes, not with the number of rows
/// of `mem`.
///
/// # Errors
/// When the rows can't be read, or the instant that was asked for is not part of the recording.
pub fn analyze<S>(
    info: &RunInfo,
    source: &S,
    options: Options,
) -> Result<Report, AnalyzeError<S::Error>>
where
    S: RowSource,
    S::Error: std::error::Error + 'static,
{
    analyze_into(info, source, options, None)
}

/// The same, with what stands in tables beside the recording: `save` gets their rows.
///
/// # Errors
/// As [`analyze`].
pub fn analyze_into<S>(
    info: &RunInfo,
    source: &S,
    options: Options,
    save: Option<&mut dyn FnMut(Finding)>,
) -> Result<Report, AnalyzeError<S::Error>>
where
    S: RowSource,
    S::Error: std::error::Error + 'static,
{
    let mut facts = Facts::read(info, source, &options)?;
    // Of tables, only the phases cross hosts.
    let has_tables = save.is_some() && !options.has_bins;
    let mut swept = Swept::of(info, source, &mut facts, &options, has_tables)?;
    let holdings = Holdings::read(info, source, &mut facts, &mut swept)?;
    let analysis = findings::of(info, source, (facts, swept, holdings), options, save)?;
    Ok(Report::find(source, analysis)?)
}

fn is_closed(info: &RunInfo) -> bool {
    info.state == RunState::Closed
}

/// The span of the recording as far as it is known before the pass over memory: by the clock
/// readings, or for a recording that was cut off by its other tables.
pub(super) fn noted_clock(
    info: &RunInfo,
    last: Option<BootNs>,
    cost: Option<&RecorderCost>,
    table: &ProcessTable,
) -> RunClock {
    let seen = table.processes.iter().flat_map(|process| {
        let instants = [Some(process.first_seen.boot_ns), process.exit_boot_ns()];
        instants.map(|instant| instant.map(|instant| (instant, instant)))
    });
    let last = last.map(|last| (last, last));
    let observed = hull(cost.map(|cost| cost.span), last);
    let observed = seen.flatten().map(Some).fold(observed, hull);
    RunClock::new(info.clocks.clone(), observed, is_closed(info))
}

fn span_of(clock: &RunClock) -> Option<(BootNs, BootNs)> {
    let is_known = clock.start() != clock.end() || clock.start() != BootNs(0);
    is_known.then_some((clock.start(), clock.end()))
}

fn hull(a: Option<(BootNs, BootNs)>, b: Option<(BootNs, BootNs)>) -> Option<(BootNs, BootNs)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}
