//! A recording as samples at regular times and at its marks, for programs that were made for
//! profilers that poll. One pass over `mem`; what is kept grows with processes, marks and
//! readings of the node, not with the rows of `mem`.

mod allocators;
mod beside;
pub mod files;
pub mod gpu_files;
mod gpus;
mod names;
mod schedule;

pub use allocators::{Allocated, Allocations};
pub use gpus::{GpuPlace, GpuProcessSample, GpuSample, sample_gpus};
pub use names::Names;

use super::clock::RunClock;
use super::cost;
use super::groups::Groups;
use super::process::Process;
use super::process_table::ProcessTable;
use super::run::{mem_columns, noted_clock};
use super::titles::Titles;
use beside::{Beside, latest};
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{BootNs, Bytes, DurationNs, Order, RowSource, RunInfo};
use memtrace_timeline::{Amounts, Change, Lane, Member, Observe, Planned, State, Sweep, Track};
use schedule::{Mark, REGULAR, Schedule};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What everybody held at an instant.
#[derive(Debug)]
pub struct MemorySample<'a> {
    /// When it was taken.
    pub boot_ns: BootNs,
    /// The mark that it was taken for, or "interval".
    pub label: &'a str,
    /// Whence the figures of the main process are.
    pub main_source: MainSource,
    /// RSS of the main process; `None` when there is not exactly one tree, or it is unknown.
    pub main_rss: Option<Bytes>,
    /// Its address space.
    pub main_vm_size: Option<Bytes>,
    /// RSS of all others, as far as it is known; `None` before anything was observed.
    pub children_rss: Option<Bytes>,
    /// The node's memory, by its last reading.
    pub node: Option<NodeReading>,
    /// What allocators inside the programs hold, by the last marks that reported it.
    pub allocations: Allocations,
    /// The others that held most, the largest first: position in [`Samples::processes`], RSS.
    pub top_children: Vec<(usize, Bytes)>,
}

/// Whence the figures of the main process in a sample are, and so how old they can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainSource {
    /// It measured itself, at the mark.
    Mark,
    /// The kernel's events, up to the instant.
    Events,
    /// The last look at the process, which can be as old as the time between two.
    Poll,
}

impl MainSource {
    /// Its word in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Events => "events",
            Self::Poll => "poll",
        }
    }
}

/// The node's memory at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReading {
    /// All memory, as MemTotal of /proc/meminfo.
    pub total: Bytes,
    /// What can still be had, as MemAvailable of /proc/meminfo.
    pub available: Bytes,
}

/// A highest amount of the samples' sums, between samples too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledPeak {
    /// The highest amount.
    pub bytes: Bytes,
    /// When it was reached.
    pub boot_ns: BootNs,
    /// The last mark before it.
    pub label: Arc<str>,
}

/// Who there is, before the samples.
#[derive(Debug)]
pub struct Samples {
    /// Every process of the recording.
    pub processes: Vec<Process>,
    /// The position of the main process.
    pub main: Option<usize>,
    /// The recording's times.
    pub clock: RunClock,
    /// When samples are taken, from the first on.
    schedule: Schedule,
}

/// What the samples come to.
#[derive(Debug, Default)]
pub struct SampleSummary {
    /// The highest RSS of the main process.
    pub main: Option<LabelledPeak>,
    /// The highest sum of all others.
    pub children: Option<LabelledPeak>,
    /// The highest sum of all.
    pub total: Option<LabelledPeak>,
}

/// How to take samples.
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    /// Time between two regular ones.
    pub interval: DurationNs,
    /// How many processes beside the main one each sample names.
    pub top: usize,
    /// The last row of any table, for a recording that was not closed.
    pub last_boot_ns: Option<BootNs>,
}

/// Reads who there is, and then everybody's memory: `each` gets the samples in the order of
/// time, until it says that it wants no more.
///
/// # Errors
/// When the rows can't be read.
pub fn sample<S: RowSource>(
    info: &RunInfo,
    source: &S,
    options: SampleOptions,
    each: impl FnMut(&Samples, &MemorySample<'_>) -> bool,
) -> Result<(Samples, SampleSummary), S::Error> {
    let cost = cost::read(source)?;
    let mut table = ProcessTable::read(source, info)?;
    let titles = Titles::read(source, &table)?;
    let groups = Groups::of(&table.processes, titles.roles);
    table.name(source, &groups)?;
    let clock = noted_clock(info, options.last_boot_ns, cost.as_ref(), &table);
    let mut reported = Beside::read(source, &table)?;
    let marks = std::mem::take(&mut reported.marks);
    let schedule = Schedule::new(marks, clock.start(), options.interval);
    let main = table.processes.iter().position(|process| process.is_main);
    let end = clock.end() + DurationNs(1);
    let sampler = Sampler {
        schedule: schedule.clone(),
        samples: Samples {
            processes: table.processes.clone(),
            main,
            clock,
            schedule,
        },
        options,
        each,
        summary: SampleSummary::default(),
        holding: BTreeMap::new(),
        main_rss: None,
        main_vm_size: None,
        source: match info.is_polled() {
            true => MainSource::Poll,
            false => MainSource::Events,
        },
        reported,
        past_nodes: 0,
        last_label: Arc::from(REGULAR),
        is_enough: false,
    };
    let mut sweep = Sweep::new(sampler, Lane::of_rss());
    let mut ends = Vec::new();
    for (position, process) in table.processes.iter().enumerate() {
        sweep.enter(Member::default());
        let exit = process.exit_boot_ns();
        ends.extend(exit.map(|exit| (exit, Planned::End(position))));
    }
    sweep.plan(ends.into_iter());
    source.scan(&mem_columns(), |row: MemRow| {
        if row.source == Some(MemSource::SelfReported) {
            if let Some((position, rss, anon)) = table.self_reported(&row) {
                sweep.measured(row.boot_ns, position, rss, anon);
            }
            return;
        }
        let position = table.position(row.upid, row.boot_ns);
        if position == sweep.state.processes.len() {
            let met = table.processes[position].clone();
            sweep.observer.samples.processes.push(met);
            sweep.enter(Member::default());
        }
        if sweep.last().is_none() {
            sweep.observer.give_until(row.boot_ns, &sweep.state);
        }
        sweep.row(row.boot_ns, position, Amounts::of(&row));
        let is_there = sweep.state.processes[position].held().is_some();
        if main == Some(position) && is_there {
            let size = &mut sweep.observer.main_vm_size;
            *size = row.vm_size_bytes.or(*size);
        }
    })?;
    sweep.finish(end);
    sweep.observer.give_until(end, &sweep.state);
    let Sampler {
        mut samples,
        summary,
        ..
    } = sweep.observer;
    table.take_peaks(&sweep.state.processes, &samples.clock);
    samples.processes = table.processes;
    Ok((samples, summary))
}

/// Takes samples while the sweep goes on.
struct Sampler<F> {
    samples: Samples,
    summary: SampleSummary,
    options: SampleOptions,
    each: F,
    /// What those but the main process hold, where that is anything.
    holding: BTreeMap<usize, Bytes>,
    main_rss: Option<Bytes>,
    main_vm_size: Option<Bytes>,
    /// Whence figures are that no mark tells.
    source: MainSource,
    reported: Beside,
    /// How many readings of the node are past.
    past_nodes: usize,
    schedule: Schedule,
    last_label: Arc<str>,
    is_enough: bool,
}

impl<F: FnMut(&Samples, &MemorySample<'_>) -> bool> Observe for Sampler<F> {
    fn changed(&mut self, change: Change<'_>) {
        let rss = change.after.map_or(Some(Bytes(0)), Amounts::rss);
        if self.samples.main == Some(change.process) {
            self.main_rss = rss;
        } else {
            match rss {
                None | Some(Bytes(0)) => self.holding.remove(&change.process),
                Some(rss) => self.holding.insert(change.process, rss),
            };
        }
    }

    fn holds(&mut self, from: BootNs, until: BootNs, state: &State) -> bool {
        let total = state.totals().rss_or_zero();
        let main = self.main_rss.unwrap_or_default().0;
        let label = &self.last_label;
        let raise = |peak: &mut Option<LabelledPeak>, bytes: i64| {
            if peak.as_ref().is_none_or(|peak| peak.bytes.0 < bytes) {
                *peak = Some(LabelledPeak {
                    bytes: Bytes(bytes),
                    boot_ns: from,
                    label: Arc::clone(label),
                });
            }
        };
        if self.samples.main.is_some() {
            raise(&mut self.summary.main, main);
        }
        raise(&mut self.summary.children, total - main);
        raise(&mut self.summary.total, total);
        self.give_until(until, state);
        false
    }

    fn ended(&mut self, process: usize, _at: BootNs, _track: &Track) {
        if self.samples.main == Some(process) {
            self.main_rss = Some(Bytes(0));
            self.main_vm_size = self.main_vm_size.map(|_| Bytes(0));
        }
    }
}

impl<F: FnMut(&Samples, &MemorySample<'_>) -> bool> Sampler<F> {
    /// Gives every sample before an instant.
    fn give_until(&mut self, until: BootNs, state: &State) {
        while let Some((at, mark)) = self.schedule.next_before(until) {
            let mark = mark.map(|place| self.schedule.mark(place).clone());
            self.give(at, mark.as_ref(), state);
            if let Some(mark) = mark {
                self.last_label = mark.label;
            }
        }
    }

    fn give(&mut self, at: BootNs, mark: Option<&Mark>, state: &State) {
        if self.is_enough {
            return;
        }
        let main = self.main_rss.unwrap_or_default().0;
        let begun = self.summary.total.as_ref();
        let reported = mark.and_then(|mark| mark.main);
        let main_rss = reported.map(|reported| reported.rss).or(self.main_rss);
        let size = reported
            .and_then(|reported| reported.vm_size)
            .or(self.main_vm_size);
        let sample = MemorySample {
            boot_ns: at,
            label: mark.map_or(REGULAR, |mark| &mark.label),
            main_source: reported.map_or(self.source, |_| MainSource::Mark),
            main_rss,
            // Its rows are rarer than those of RSS, and never was it smaller.
            main_vm_size: size.map(|size| size.max(main_rss.unwrap_or_default())),
            children_rss: begun.map(|_| Bytes(state.totals().rss_or_zero() - main)),
            node: latest(&self.reported.nodes, &mut self.past_nodes, at),
            allocations: self.reported.allocators.at(at),
            top_children: self.top_children(),
        };
        self.is_enough = !(self.each)(&self.samples, &sample);
    }

    /// Those beside the main process that hold most, the largest first.
    fn top_children(&self) -> Vec<(usize, Bytes)> {
        let top = self.options.top.min(self.holding.len());
        if top == 0 {
            return Vec::new();
        }
        let holding = self.holding.iter();
        let mut children: Vec<(usize, Bytes)> =
            holding.map(|(position, rss)| (*position, *rss)).collect();
        let order = |(position, rss): &(usize, Bytes)| (std::cmp::Reverse(*rss), *position);
        children.select_nth_unstable_by_key(top - 1, order);
        children.truncate(top);
        children.order_by_key(order);
        children
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, boot};
    use memtrace_model::tables::MarkKind;

    /// Label, milliseconds, RSS of the main process, of the others.
    type Taken = (String, i64, Option<Bytes>, Option<Bytes>);

    fn taken(interval: i64) -> (Vec<Taken>, Samples, SampleSummary) {
        let (info, rows, _) = golden::vllm_start_up().recorded();
        let options = SampleOptions {
            interval: DurationNs(interval * 1_000_000_000),
            top: 2,
            last_boot_ns: None,
        };
        let mut taken = Vec::new();
        let (samples, summary) = sample(&info, &rows, options, |_, sample| {
            let seconds = (sample.boot_ns - boot(0.0)).0 / 1_000_000;
            taken.push((
                sample.label.to_owned(),
                seconds,
                sample.main_rss,
                sample.children_rss,
            ));
            true
        })
        .unwrap();
        (taken, samples, summary)
    }

    #[test]
    fn samples_come_at_their_times_and_at_every_mark_in_order() {
        let (taken, ..) = taken(10);
        assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        let regular = taken.iter().filter(|sample| sample.0 == REGULAR);
        assert_eq!(regular.count(), 8, "0 s to 70 s of 75 s");
        let ready = taken
            .iter()
            .find(|sample| sample.0 == "server_ready")
            .unwrap();
        assert_eq!(ready.1, 34_500);
        assert!(taken.iter().any(|sample| sample.0 == "load_model begin"));
        assert!(taken.iter().any(|sample| sample.0 == "load_model end"));
    }

    #[test]
    fn the_main_process_and_its_children_stand_apart_and_end() {
        let (taken, ..) = taken(1);
        let at = |seconds: i64| {
            taken
                .iter()
                .find(|sample| sample.1 >= seconds * 1_000)
                .unwrap()
        };
        let mib = |amount: i64| Bytes(amount << 20);
        let both = |seconds| (at(seconds).2, at(seconds).3);
        let with = |children| (Some(mib(580)), Some(mib(children)));
        assert_eq!(taken[0].3, None, "nobody was observed as yet");
        assert_eq!(both(5), with(0));
        assert_eq!(both(24), with(420 + 1_720 + 2_900));
        assert_eq!(both(62), with(0));
        assert_eq!(taken.last().unwrap().2, Some(mib(0)), "it has ended");
    }

    #[test]
    fn at_a_mark_the_main_process_has_what_it_measured_then() {
        let mut script = golden::Script::command(&["x"], 10.0);
        script.process(1, None, 0.0, "x");
        script.info.backend = "procfs".to_owned();
        script.mem(1, 1.0, [100.0, 20.0, 0.0]);
        script.sized(1.0);
        let text = r#"{"rss_bytes":104857600,"vm_size_bytes":2147483648}"#;
        script.said_mark(Some(1), 1.5, MarkKind::Instant, "loaded", text);
        // Of one that says no more than its RSS, the size is not less than that.
        let text = r#"{"rss_bytes":115343360}"#;
        script.said_mark(Some(1), 2.5, MarkKind::Instant, "grown", text);
        script.mark(Some(1), 3.5, MarkKind::Instant, "silent");
        let (info, rows, _) = script.recorded();
        let options = SampleOptions {
            interval: DurationNs(60_000_000_000),
            top: 2,
            last_boot_ns: None,
        };
        let mut taken = Vec::new();
        sample(&info, &rows, options, |_, sample| {
            taken.push((
                sample.label.to_owned(),
                sample.main_source,
                sample.main_rss,
                sample
                    .main_vm_size
                    .is_some_and(|size| Some(size) >= sample.main_rss),
            ));
            true
        })
        .unwrap();
        let mib = |amount: i64| Some(Bytes(amount << 20));
        assert_eq!(
            taken[1..],
            [
                ("loaded".to_owned(), MainSource::Mark, mib(100), true),
                ("grown".to_owned(), MainSource::Mark, mib(110), true),
                ("silent".to_owned(), MainSource::Poll, mib(110), true),
            ]
        );
    }

    #[test]
    fn a_peak_between_two_samples_counts_with_the_mark_before_it() {
        let (_, samples, summary) = taken(70);
        let children = summary.children.unwrap();
        assert!(children.bytes > Bytes(8 << 30), "{children:?}");
        let main = samples.main.unwrap();
        let peak = samples.processes[main].peak.rss_bytes;
        assert_eq!(peak, Some(Bytes(580 << 20)));
        assert_eq!(summary.main.unwrap().bytes, Bytes(580 << 20));
        assert!(summary.total.unwrap().bytes > children.bytes);
    }

    #[test]
    fn the_size_of_the_main_process_is_that_of_its_time() {
        let (info, rows, _) = golden::vllm_start_up().recorded();
        let options = SampleOptions {
            interval: DurationNs(1_000_000_000),
            top: 0,
            last_boot_ns: None,
        };
        let mut sizes = Vec::new();
        sample(&info, &rows, options, |_, sample| {
            assert_eq!(sample.top_children, []);
            if sizes.last() != Some(&sample.main_vm_size) {
                sizes.push(sample.main_vm_size);
            }
            true
        })
        .unwrap();
        let known = [1.5, 2.25, 0.0].map(|gibs| Some(golden::gib(gibs)));
        assert_eq!(sizes, [&[None], known.as_slice()].concat());
    }

    #[test]
    fn who_wants_no_more_gets_no_more() {
        let (info, rows, _) = golden::vllm_start_up().recorded();
        let options = SampleOptions {
            interval: DurationNs(1_000_000_000),
            top: 2,
            last_boot_ns: None,
        };
        let mut count = 0;
        sample(&info, &rows, options, |_, _| {
            count += 1;
            count < 3
        })
        .unwrap();
        assert_eq!(count, 3);
    }
}
