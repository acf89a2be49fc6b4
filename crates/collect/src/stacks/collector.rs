//! Takes samples from the kernel, names their frames while the process is there, and tells what has
//! changed once a second.

use super::calls::Calls;
use super::frames::{Frame, mixed};
use super::sites::{NO_STACK, Seen, Sites, Stacks};
use super::watched::{Files, Watched};
use crate::bpf::StackSource;
use crate::{CollectError, Collector, Pass, ProcessTable, Tick};
use memtrace_abi::{EventKind, PythonLayout, StackSample};
use memtrace_host::clock;
use memtrace_model::{
    BootNs, DiagKind, DurationNs, FrameKind, PageSize, Record, Severity, StackRow, Tgid, Upid,
};
use std::collections::HashMap;
use std::mem::take;
use std::os::fd::OwnedFd;

/// Samples are taken so often where fewer wait than wake us: of a process that has ended no frames of Python
/// can be read, nor whether its memory was still there.
const TAKE_PERIOD: DurationNs = DurationNs(100_000_000);
const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// Samples that one turn takes: what the ring holds, and more.
const SAMPLES_MAX: usize = 256;
/// Processes that are held open: two descriptors each.
const WATCHED_MAX: usize = 1_024;

/// A process that was not looked at for so long is looked at before more of it is noted: what it gave back
/// by then would else count as held beside what it touches now.
const LOOK_FIRST: DurationNs = DurationNs(100_000_000);

/// So much of heaps is read at once, and at the end of each process.
const SEARCH_BYTES: u64 = 16 << 20;
const LAST_SEARCH_BYTES: u64 = 256 << 20;
/// All searches at the end take no longer.
const LAST_SEARCH_NS: i64 = 500_000_000;
/// After so much CPU time no further heap is looked into at once: others wait in the same loop.
const SEARCH_NS_MAX: i64 = 5_000_000;
/// Searching heaps takes this part of a core.
const SEARCH_PART: i64 = 200;

/// Names who touches new memory.
pub struct StackCollector {
    source: StackSource,
    page_size: PageSize,
    watched: HashMap<Upid, Watched>,
    files: Files,
    stacks: Stacks,
    sites: Sites,
    calls: Calls,
    /// When what was sampled is looked at and written again.
    next_look: BootNs,
    /// When heaps may be searched again.
    next_search: BootNs,
    undecoded_count: i64,
    /// Samples of which nothing is written.
    left_out_count: i64,
    is_ending: bool,
}

impl StackCollector {
    /// Of the samples that a backend sends.
    pub fn new(source: StackSource, page_size: PageSize) -> Self {
        Self {
            source,
            page_size,
            watched: HashMap::new(),
            files: Files::default(),
            stacks: Stacks::default(),
            sites: Sites::default(),
            calls: Calls::default(),
            next_look: BootNs(0),
            next_search: BootNs(0),
            undecoded_count: 0,
            left_out_count: 0,
            is_ending: false,
        }
    }

    fn take_samples(&mut self, pass: &mut Pass<'_>) {
        let mut left = SAMPLES_MAX;
        while left > 0 {
            let mut reported = None;
            let mut to_look_at = None;
            let mut names = Naming {
                page_size: self.page_size,
                watched: &mut self.watched,
                files: &mut self.files,
                stacks: &mut self.stacks,
                sites: &mut self.sites,
                calls: &mut self.calls,
                table: pass.table,
                tick: pass.tick,
                out: pass.out,
            };
            let undecoded_count = &mut self.undecoded_count;
            let left_out_count = &mut self.left_out_count;
            let may_wait = !self.is_ending;
            let is_one = self.source.next(|sample| {
                if may_wait && sample.is_some_and(|one| names.is_early(one)) {
                    return false;
                }
                to_look_at = sample.and_then(|one| names.to_look_at(one));
                if to_look_at.is_some() {
                    return false;
                }
                match sample.map(|one| names.take(one)) {
                    Some(Some(layout)) => reported = layout,
                    Some(None) => *left_out_count += 1,
                    None => *undecoded_count += 1,
                }
                true
            });
            if let Some((tgid, layout)) = reported {
                self.source.tell(tgid, &layout);
            }
            if let Some(upid) = to_look_at
                && let Some(watched) = self.watched.get_mut(&upid)
            {
                watched.looked_at = pass.tick.boot;
                look_at(
                    &mut self.sites,
                    (upid, watched),
                    &self.source,
                    pass.tick.boot,
                    false,
                );
                continue;
            }
            left -= 1;
            if !is_one {
                break;
            }
        }
    }

    /// Looks at what was sampled, and lets go of who has ended.
    fn look(&mut self, now: BootNs, is_all: bool) {
        let mut ended = Vec::new();
        for (upid, watched) in &mut self.watched {
            watched.looked_at = now;
            look_at(&mut self.sites, (*upid, watched), &self.source, now, is_all);
            if !watched.is_there() {
                ended.push(*upid);
            }
        }
        for upid in ended {
            if let Some(watched) = self.watched.remove(&upid) {
                self.source.forget(watched.tgid);
            }
        }
    }

    /// Looks into the heap of a process whether what was sampled is in use, if it is time, of all in turn.
    fn search(&mut self, now: BootNs) {
        if now < self.next_search {
            return;
        }
        let mut watched: Vec<(&Upid, &mut Watched)> = self.watched.iter_mut().collect();
        watched.sort_unstable_by_key(|(_, one)| one.searched_at);
        let start = clock::thread_cpu();
        for (upid, watched) in watched {
            let addresses = self.sites.resident(*upid);
            if addresses.is_empty() {
                continue;
            }
            let mut left = SEARCH_BYTES;
            let (found, _) = watched.search(&addresses, &mut left);
            self.sites.note_use(*upid, &found);
            let took = clock::thread_cpu().0 - start.0;
            if left < SEARCH_BYTES || took > SEARCH_NS_MAX {
                break;
            }
        }
        let took = clock::thread_cpu().0 - start.0;
        self.next_search = now + DurationNs(took.saturating_mul(SEARCH_PART));
    }

    /// The same of all processes, to the ends of their heaps.
    fn search_all(&mut self) {
        let until = clock::boot() + DurationNs(LAST_SEARCH_NS);
        for (upid, watched) in &mut self.watched {
            let addresses = self.sites.resident(*upid);
            let mut left = LAST_SEARCH_BYTES;
            let mut is_done = addresses.is_empty();
            while !is_done && left > 0 && clock::boot() < until {
                let mut piece = SEARCH_BYTES.min(left);
                left -= piece;
                let (found, is_all) = watched.search(&addresses, &mut piece);
                left += piece;
                is_done = is_all;
                self.sites.note_use(*upid, &found);
            }
        }
    }
}

/// Looks at what was sampled of one process.
fn look_at(
    sites: &mut Sites,
    (upid, watched): (Upid, &Watched),
    source: &StackSource,
    now: BootNs,
    is_all: bool,
) {
    let touched = source.touched();
    sites.look(upid, now, is_all, |one| {
        let Some((is_resident, is_shared)) = watched.page(one.address) else {
            return Seen::Ended;
        };
        if !is_resident {
            return Seen::Returned;
        }
        match touched.is_again(watched.tgid, one.address, one.boot_ns) {
            None => Seen::Unsure,
            Some(true) => Seen::Returned,
            Some(false) if is_shared => Seen::Shared,
            Some(false) => Seen::Resident,
        }
    });
}

/// Those parts of the collector that a sample changes while the ring is borrowed.
struct Naming<'a> {
    page_size: PageSize,
    watched: &'a mut HashMap<Upid, Watched>,
    files: &'a mut Files,
    stacks: &'a mut Stacks,
    sites: &'a mut Sites,
    calls: &'a mut Calls,
    table: &'a ProcessTable,
    tick: &'a Tick,
    out: &'a mut Vec<Record>,
}

impl Naming<'_> {
    fn upid(&self, sample: &StackSample) -> Option<Upid> {
        let start = BootNs(sample.header.start_boot_ns.cast_signed());
        self.table.identity(Tgid(sample.header.tgid), start)
    }

    /// Whether it is of a process that a later turn may know: starts of processes are taken more rarely.
    fn is_early(&self, sample: &StackSample) -> bool {
        let age = self.tick.boot.0 - sample.header.boot_ns.cast_signed();
        age < PERIOD.0 && self.upid(sample).is_none()
    }

    /// Whose memory is to be looked at before the sample is taken.
    fn to_look_at(&self, sample: &StackSample) -> Option<Upid> {
        let upid = self.upid(sample)?;
        let watched = self.watched.get(&upid)?;
        (self.tick.boot - watched.looked_at >= LOOK_FIRST).then_some(upid)
    }

    /// Takes a sample, and gives what the BPF programs are to know of the process's interpreter, if
    /// anything. `None` for one that is left out.
    fn take(&mut self, sample: &StackSample) -> Option<Option<(Tgid, PythonLayout)>> {
        let tgid = Tgid(sample.header.tgid);
        let upid = self.upid(sample)?;
        self.watch(upid, tgid, sample.mm);
        let (frames, layout) = match self.watched.get_mut(&upid) {
            Some(watched) => frames(watched, sample, self.files),
            None => (Vec::new(), None),
        };
        let (stack_id, is_new) = self.stacks.id(&frames);
        if is_new {
            self.write_stack(stack_id, &frames);
        }
        if sample.header.kind == EventKind::CudaStack as u32 {
            let at = BootNs(sample.header.boot_ns.cast_signed());
            self.calls.note(sample.tid.cast_signed(), at, stack_id);
            return Some(layout.map(|layout| (tgid, layout)));
        }
        let bytes = |pages: u64| pages.cast_signed().saturating_mul(self.page_size.0);
        let address = Some(sample.address).filter(|address| *address != 0);
        let touched = (address, sample.header.boot_ns);
        let (grown, weight) = (bytes(sample.grown_pages), bytes(sample.weight_pages));
        let is_copy = sample.header.kind == EventKind::StackCopy as u32;
        let weighed = (grown, weight);
        let is_noted = self.sites.add(upid, stack_id, weighed, touched, is_copy);
        is_noted.then(|| layout.map(|layout| (tgid, layout)))
    }

    /// Opens the process, unless it is, or has ended.
    fn watch(&mut self, upid: Upid, tgid: Tgid, mm: u64) {
        // exec gives a process another address space, and what was sampled of the one before is gone.
        if self.watched.get(&upid).is_some_and(|one| one.mm != mm) {
            self.watched.remove(&upid);
            let now = self.tick.boot;
            self.sites.look(upid, now, true, |_| Seen::Returned);
        }
        if !self.watched.contains_key(&upid)
            && self.watched.len() < WATCHED_MAX
            && let Some(watched) = Watched::open(tgid, mm, self.page_size)
        {
            self.watched.insert(upid, watched);
        }
    }

    fn write_stack(&mut self, stack_id: i64, frames: &[Frame]) {
        debug_assert_ne!(stack_id, NO_STACK);
        for (depth, frame) in frames.iter().enumerate() {
            let mut row = StackRow {
                ts: self.tick.wall(),
                boot_ns: self.tick.boot,
                stack_id,
                depth: depth as i64,
                ..StackRow::default()
            };
            match frame {
                Frame::Python(at) => {
                    row.kind = Some(FrameKind::Python);
                    row.function = Some(at.function.to_string());
                    row.file = Some(at.file.to_string());
                    row.line = (at.line != 0).then_some(at.line.into());
                }
                Frame::Native(code) => {
                    let names = self.files.names(code);
                    row.kind = Some(FrameKind::Native);
                    row.function = names.function;
                    row.file = names.path;
                    row.build_id = names.build_id;
                    row.address = Some(code.address.cast_signed());
                }
            }
            self.out.push(Record::Stack(row));
        }
    }
}

/// The frames of a sample, and what the programs are to be reported.
fn frames(
    watched: &mut Watched,
    sample: &StackSample,
    files: &mut Files,
) -> (Vec<Frame>, Option<PythonLayout>) {
    let layout = watched.look_for_interpreter(files);
    let python = watched.python(sample);
    let native = watched.native(sample, files);
    (mixed(&native, &python), layout)
}

impl Collector for StackCollector {
    fn name(&self) -> &'static str {
        "stacks"
    }

    fn period(&self) -> DurationNs {
        TAKE_PERIOD
    }

    fn is_urged(&self) -> bool {
        true
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take_samples(pass);
        if pass.tick.boot < self.next_look && !self.is_ending {
            return Ok(());
        }
        // Turns are not exactly as far apart as they should be.
        self.next_look = pass.tick.boot + DurationNs(PERIOD.0 - TAKE_PERIOD.0 / 2);
        let calls = take(&mut pass.table.news.cuda_calls);
        self.calls.write(calls, pass.tick.boot, false, pass.out);
        self.look(pass.tick.boot, false);
        self.search(pass.tick.boot);
        self.sites.write(self.source.sees_copies, pass);
        let is_there =
            |upid| pass.table.process(upid).is_some() || self.watched.contains_key(&upid);
        self.sites.retain(is_there);
        let lost = [
            (
                take(&mut self.undecoded_count),
                DiagKind::UndecodedEvents,
                "samples of growth could not be decoded",
            ),
            (
                take(&mut self.left_out_count),
                DiagKind::LostEvents,
                "samples of growth are left out: their process is not known, or there are too many \
                 places; what allocated it is shown too small",
            ),
        ];
        for (count, kind, detail) in lost.into_iter().filter(|(count, ..)| *count > 0) {
            pass.table.add_lost_events(count);
            pass.tell(Severity::Loss, kind, "stacks", Some(count), detail);
        }
        Ok(())
    }

    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        // No turn comes after this one.
        self.is_ending = true;
        self.take_samples(pass);
        self.look(pass.tick.boot, true);
        self.search_all();
        self.collect(pass)?;
        self.calls.write(Vec::new(), pass.tick.boot, true, pass.out);
        Ok(())
    }

    fn wake_fd(&self) -> Option<OwnedFd> {
        self.source.wake_fd()
    }

    fn drain(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take_samples(pass);
        Ok(())
    }
}
