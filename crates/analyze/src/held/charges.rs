//! What the memory cgroups of the recorded processes are charged: the kernel's own count of every
//! page once. Where everybody is recorded, or no group was read, what the whole machine has.

use super::levels::Levels;
use crate::oom;
use crate::process_table::ProcessTable;
use crate::surroundings::{ancestry, at_kill, is_within};
use memtrace_model::tables::{CgroupMemRow, NodeMemRow, OomRow, SelfCostRow};
use memtrace_model::{BootNs, Bytes, DurationNs, Order, RowSource, RunInfo, Target};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// Of a group that is still read there is a row every 30 s: one that had none for this long is gone.
const SILENCE: DurationNs = DurationNs(40_000_000_000);

/// So many others are counted every second ...
const FEW: i64 = 16;
/// ... or every 10 s in a group of many.
const RECENT: DurationNs = DurationNs(11_000_000_000);

/// Those who are not recorded are counted at least so often.
const COUNTED: DurationNs = DurationNs(61_000_000_000);

/// Readings no further apart are of the same look at all groups.
const TOGETHER: DurationNs = DurationNs(20_000_000);
/// So many are kept: 60 MiB.
const READINGS_MAX: usize = 1 << 19;

/// The first reading is this much after the start, at most, where nothing kept it.
pub(super) const EARLY: DurationNs = DurationNs(2_000_000_000);

/// A group that is read so soon after a command began has nothing of it yet.
const AT_ONCE: DurationNs = DurationNs(300_000_000);

/// Each CPU keeps so many pages that it was charged ahead (MEMCG_CHARGE_BATCH), and as many that were
/// not counted yet; so does what else is read a moment later.
const CPU_PAGES: i64 = 2 * 64;
const NOISE: i64 = 4 << 20;

/// What the recorded processes hold of one kind, by a reading of their groups. In a group that others share
/// it is no more than all that is charged, and of anonymous memory no less than what few others leave. How
/// much is of many, who are counted more rarely, nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) least: i64,
    pub(super) most: i64,
}

impl Reading {
    /// What others leave of anonymous memory, as they were counted last.
    pub(super) fn anon_left(&self) -> i64 {
        self.anon.most.saturating_sub(self.others.least)
    }

    /// All kinds together.
    fn most(&self) -> i64 {
        let kinds = [self.anon, self.shared, self.kernel, self.unnamed];
        let most = kinds.iter().map(|kind| kind.most);
        most.fold(0, i64::saturating_add)
    }

    /// The most that can have been held since the reading of the group before, by its mark.
    fn reached_since(&self, before: &Self) -> Option<i64> {
        let (mark, earlier) = self.mark.zip(before.mark)?;
        (mark > earlier).then_some(mark.saturating_sub(self.cache.min(before.cache)))
    }
}

impl Charged {
    pub(super) fn hull(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    fn add(&mut self, other: Self, sign: i64) {
        let add = |sum: &mut i64, amount: i64| {
            *sum = sum.saturating_add(amount.saturating_mul(sign));
        };
        add(&mut self.least, other.least);
        add(&mut self.most, other.most);
    }
}

/// A reading of all groups, and whether nobody else lives in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) at: BootNs,
    pub(super) anon: Charged,
    /// What others hold of that, as they were counted last: can be all, where they are too many to be counted
    /// often, or came since.
    pub(super) others: Charged,
    pub(super) shared: Charged,
    /// Kernel memory: all of it where `is_apart`. Else no more than this, and where only the recorder is there
    /// too as much as came since the first reading.
    pub(super) kernel: Charged,
    /// What is in use and of no kind.
    pub(super) unnamed: Charged,
    /// Socket buffers that can be theirs and are charged to no group.
    pub(super) uncharged: i64,
    /// The most that was in use until then, page cache and kernel memory included; `None` where the
    /// kernel keeps no mark.
    pub(super) mark: Option<i64>,
    /// Page cache, which is in the mark and is not held.
    pub(super) cache: i64,
    /// What can have been held since the reading before, where the mark rose in that time.
    pub(super) reached: Option<i64>,
    pub(super) is_alone: bool,
    /// Whether the recorder does not live there either: its maps are kernel memory.
    pub(super) is_apart: bool,
}

/// Of what the readings are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// When the recording began.
    pub(crate) start: BootNs,
    /// Whether every process of the machine is recorded.
    pub(crate) is_everyone: bool,
    /// Whether the processes began with the recording.
    is_command: bool,
    /// What counts of a group lag each other by.
    noise: i64,
}

impl Whole {
    pub(crate) fn of(info: &RunInfo, start: BootNs) -> Self {
        Self {
            start,
            is_everyone: matches!(info.target, Target::All),
            is_command: matches!(info.target, Target::Command { .. }),
            noise: NOISE.max(i64::from(info.cpu_count) * CPU_PAGES * info.page_size_bytes.0),
        }
    }
}

/// Reads `cgroup_mem`, `self_cost` and `node_mem`: the readings in the order of time.
pub(super) fn read<S: RowSource>(
    source: &S,
    table: &ProcessTable,
    whole: Whole,
    sockets: &Sockets,
) -> Result<Vec<Reading>, S::Error> {
    let recorder = Recorder::read(source)?;
    let readings = match whole.is_everyone {
        true => Vec::new(),
        false => of_groups(source, table, whole, (&recorder, sockets))?,
    };
    match readings.is_empty() {
        true => of_node(source, whole.is_everyone, &recorder),
        false => Ok(readings),
    }
}

/// The sum over groups, moved along by one reading of one of them at a time.
#[derive(Default)]
struct Groups {
    last: HashMap<String, Reading>,
    /// Every reading in the order of time: of a group that had none for long, the last is taken out.
    ages: VecDeque<(BootNs, String)>,
    /// When each was read first, and what it had of kernel memory then.
    first_kernel: HashMap<String, (BootNs, i64)>,
    sum: Reading,
    mark_sum: i64,
    reached_sum: i64,
    risen_count: usize,
    unmarked_count: usize,
    shared_count: usize,
    recorder_count: usize,
}

impl Groups {
    /// A group was read. Answers what all groups come to now.
    fn take(&mut self, path: String, reading: Reading) -> Reading {
        let is_old = |(at, _): &(BootNs, String)| reading.at - *at > SILENCE;
        while self.ages.front().is_some_and(is_old)
            && let Some((at, path)) = self.ages.pop_front()
        {
            if self.last.get(&path).is_some_and(|last| last.at == at) {
                self.remove(&path);
            }
        }
        let before = self.last.get(&path);
        let reached = before.and_then(|before| reading.reached_since(before));
        let reading = Reading { reached, ..reading };
        self.remove(&path);
        self.count(&reading, 1);
        self.ages.push_back((reading.at, path.clone()));
        self.last.insert(path, reading);
        Reading {
            at: reading.at,
            mark: (self.unmarked_count == 0).then_some(self.mark_sum),
            reached: self.has_risen().then_some(self.reached_sum),
            is_alone: self.shared_count == 0,
            is_apart: self.recorder_count == 0,
            ..self.sum
        }
    }

    /// Whether the mark of a group rose that has nothing else in it than what the processes hold.
    fn has_risen(&self) -> bool {
        self.risen_count > 0 && self.shared_count == 0 && self.recorder_count == 0
    }

    fn remove(&mut self, path: &str) {
        if let Some(last) = self.last.remove(path) {
            self.count(&last, -1);
        }
    }

    fn count(&mut self, reading: &Reading, sign: i64) {
        self.sum.anon.add(reading.anon, sign);
        self.sum.others.add(reading.others, sign);
        self.sum.shared.add(reading.shared, sign);
        self.sum.kernel.add(reading.kernel, sign);
        self.sum.unnamed.add(reading.unnamed, sign);
        let mark = reading.mark.unwrap_or_default();
        self.mark_sum = self.mark_sum.saturating_add(mark.saturating_mul(sign));
        let reached = reading.reached.unwrap_or(reading.most());
        self.reached_sum = self
            .reached_sum
            .saturating_add(reached.saturating_mul(sign));
        let count = |all: &mut usize, is_one: bool| {
            *all = all.wrapping_add_signed(sign as isize * isize::from(is_one));
        };
        count(&mut self.risen_count, reading.reached.is_some());
        count(&mut self.unmarked_count, reading.mark.is_none());
        count(&mut self.shared_count, !reading.is_alone);
        count(&mut self.recorder_count, !reading.is_apart);
    }

    /// Kernel memory that came since the first reading of a group, and when that was.
    fn kernel_since(&mut self, row: &CgroupMemRow, kernel: i64) -> (BootNs, i64) {
        let path = row.cgroup.as_str();
        // One that was removed and made again has nothing at first.
        if kernel == 0 || !self.first_kernel.contains_key(path) {
            let first = (row.boot_ns, kernel);
            self.first_kernel.insert(path.to_owned(), first);
        }
        let (at, first) = self.first_kernel[path];
        (at, kernel.saturating_sub(first).max(0))
    }
}

/// Where there are more readings, two neighbours become one, within what both were.
pub(super) fn coarsen(readings: &mut Vec<Reading>) {
    let pairs = readings.chunks(2).map(|pair| match *pair {
        [one, other] => Reading {
            at: one.at,
            anon: one.anon.hull(other.anon),
            others: one.others.hull(other.others),
            shared: one.shared.hull(other.shared),
            kernel: one.kernel.hull(other.kernel),
            unnamed: one.unnamed.hull(other.unnamed),
            uncharged: one.uncharged.max(other.uncharged),
            mark: other.mark,
            cache: other.cache,
            reached: one.reached.max(other.reached),
            is_alone: one.is_alone && other.is_alone,
            is_apart: one.is_apart && other.is_apart,
        },
        _ => pair[0],
    });
    *readings = pairs.collect();
}

/// What the recorder holds, where it is not recorded itself.
#[derive(Default)]
struct Recorder {
    group: Option<String>,
    anon: Levels,
}

impl Recorder {
    fn read<S: RowSource>(source: &S) -> Result<Self, S::Error> {
        let mut recorder = Self::default();
        source.scan(
            &["boot_ns", "rss_anon_bytes", "cgroup", "upid"],
            |row: SelfCostRow| {
                if row.upid.is_none() {
                    recorder.group = row.cgroup.or(recorder.group.take());
                    let anon = row.rss_anon_bytes.unwrap_or_default();
                    recorder.anon.push(row.boot_ns, anon.0);
                }
            },
        )?;
        Ok(recorder)
    }

    fn lives_in(&self, path: &str) -> bool {
        self.group
            .as_deref()
            .is_some_and(|own| is_within(own, path))
    }

    fn anon_at(&self, at: BootNs) -> i64 {
        self.anon.at(at).unwrap_or(0)
    }
}

/// Socket buffers, which v1 charges to no group: those of the machine can be anybody's.
#[derive(Default)]
pub(super) struct Sockets {
    machine: Levels,
    /// What the machine had before a command began is not its own.
    before: i64,
}

impl Sockets {
    pub(super) fn of(machine: Levels, whole: Whole) -> Self {
        let before = machine.at(whole.start).filter(|_| whole.is_command);
        Self {
            machine,
            before: before.unwrap_or(0),
        }
    }

    /// How much all groups together can have that they are not charged for.
    fn not_charged(&self, row: &CgroupMemRow) -> i64 {
        let machine = self.machine.at(row.boot_ns).filter(|_| row.version == 1);
        let since = machine.map_or(0, |machine| machine.saturating_sub(self.before));
        if since > NOISE { since } else { 0 }
    }
}

/// The readings in the order of time, no more than are kept.
#[derive(Default)]
struct Readings {
    list: Vec<Reading>,
    /// The look that the last one is of: when it began, and the first group that it was at.
    look: Option<(BootNs, String)>,
}

impl Readings {
    fn push(&mut self, path: &str, reading: Reading) {
        let is_of_look = |(begun, first): &(BootNs, String)| {
            (0..=TOGETHER.0).contains(&(reading.at - *begun).0) && first != path
        };
        match self.list.last_mut() {
            // Groups that are read one after the other are one reading.
            Some(last) if self.look.as_ref().is_some_and(is_of_look) => *last = reading,
            _ => {
                self.list.push(reading);
                self.look = Some((reading.at, path.to_owned()));
            }
        }
        if self.list.len() >= READINGS_MAX {
            coarsen(&mut self.list);
        }
    }
}

/// What the machine has: all of it is of the recorded processes where everybody is recorded, and no
/// more else.
fn of_node<S: RowSource>(
    source: &S,
    is_everyone: bool,
    recorder: &Recorder,
) -> Result<Vec<Reading>, S::Error> {
    let mut readings = Readings::default();
    source.scan(
        &[
            "boot_ns",
            "anon_bytes",
            "shmem_bytes",
            "slab_reclaimable_bytes",
            "slab_unreclaimable_bytes",
            "kernel_stack_bytes",
            "page_tables_bytes",
            "percpu_bytes",
            "sockets_bytes",
        ],
        |row: NodeMemRow| {
            let (Some(anon), Some(shared)) = (row.anon_bytes, row.shmem_bytes) else {
                return;
            };
            let anon = anon.0.saturating_sub(recorder.anon_at(row.boot_ns)).max(0);
            let charged = |bytes: i64| Charged {
                least: if is_everyone { bytes } else { 0 },
                most: bytes,
            };
            let kernel = [
                row.slab_reclaimable_bytes,
                row.slab_unreclaimable_bytes,
                row.kernel_stack_bytes,
                row.page_tables_bytes,
                row.percpu_bytes,
            ];
            let kernel: Bytes = kernel.into_iter().flatten().sum();
            let reading = Reading {
                at: row.boot_ns,
                anon: charged(anon),
                shared: charged(shared.0.max(0)),
                kernel: charged(kernel.0),
                // The heads of buffers are slab too.
                uncharged: row.sockets_bytes.unwrap_or_default().0.max(0),
                is_alone: is_everyone,
                is_apart: is_everyone,
                ..Reading::default()
            };
            readings.push("", reading);
        },
    )?;
    Ok(readings.list)
}

/// The sums over all groups with recorded processes; none where one of them could not be read.
fn of_groups<S: RowSource>(
    source: &S,
    table: &ProcessTable,
    whole: Whole,
    (recorder, sockets): (&Recorder, &Sockets),
) -> Result<Vec<Reading>, S::Error> {
    let named = table
        .processes
        .iter()
        .filter_map(|process| process.cgroup.as_deref());
    let named: BTreeSet<&str> = named.collect();
    // Of groups below each other the one above has it all.
    let tops: HashSet<&str> = named
        .iter()
        .copied()
        .filter(|path| !ancestry(path).skip(1).any(|above| named.contains(above)))
        .collect();
    let visits = Visits::read(source, &tops)?;
    let mut kills = Kills::read(source, table)?;
    let mut groups = Groups::default();
    let mut readings = Readings::default();
    let mut take = |row: &CgroupMemRow| {
        let is_alone = row.other_process_count == Some(0) && !visits.are_soon_after(row);
        if let Some(reading) = of_group(row, is_alone, (whole, recorder), &mut groups) {
            let all = Reading {
                uncharged: sockets.not_charged(row),
                ..groups.take(row.cgroup.clone(), reading)
            };
            readings.push(&row.cgroup, all);
        }
    };
    source.scan(COLUMNS, |row: CgroupMemRow| {
        if !tops.contains(row.cgroup.as_str()) {
            return;
        }
        for row in kills.until(&row).into_iter().chain([row]) {
            take(&row);
        }
    })?;
    for row in kills.rest() {
        take(&row);
    }
    // The sum is no cap without a group that could not be read.
    if has_unread(table, &tops, &groups) {
        return Ok(Vec::new());
    }
    let mut readings = readings.list;
    // A kill can lie before the last row of another group.
    readings.order_by_key(|reading| reading.at);
    take_off_others(&mut readings);
    Ok(readings)
}

/// Takes off what others hold, who come, go and grow between two counts: the most that they had in any of
/// those of the next seconds.
fn take_off_others(readings: &mut [Reading]) {
    // The places of the highest counts of all behind them.
    let mut highest = VecDeque::<usize>::new();
    let mut end = 0;
    for place in 0..readings.len() {
        while end < readings.len() && readings[end].at - readings[place].at <= RECENT {
            while let Some(&last) = highest.back()
                && readings[last].others.most <= readings[end].others.most
            {
                highest.pop_back();
            }
            highest.push_back(end);
            end += 1;
        }
        let most = readings[highest.front().copied().unwrap_or(place)]
            .others
            .most;
        let anon = &mut readings[place].anon;
        anon.least = anon.least.saturating_sub(most).max(0);
        if highest.front() == Some(&place) {
            highest.pop_front();
        }
    }
}

/// When others were counted in groups where nobody else had been.
struct Visits(HashMap<String, Vec<BootNs>>);

impl Visits {
    fn read<S: RowSource>(source: &S, tops: &HashSet<&str>) -> Result<Self, S::Error> {
        let mut visits: HashMap<String, Vec<BootNs>> = HashMap::new();
        let mut had_others: HashSet<String> = HashSet::new();
        let columns = ["boot_ns", "cgroup", "other_process_count"];
        source.scan(&columns, |row: CgroupMemRow| {
            if !tops.contains(row.cgroup.as_str()) {
                return;
            }
            if row.other_process_count.is_none_or(|count| count == 0) {
                had_others.remove(&row.cgroup);
            } else if !had_others.contains(&row.cgroup) {
                had_others.insert(row.cgroup.clone());
                visits.entry(row.cgroup).or_default().push(row.boot_ns);
            }
        })?;
        Ok(Self(visits))
    }

    /// Whether others were counted so soon after a reading that they can have been there.
    fn are_soon_after(&self, row: &CgroupMemRow) -> bool {
        let times = self.0.get(&row.cgroup).map_or(&[][..], Vec::as_slice);
        let next = times.get(times.partition_point(|at| *at <= row.boot_ns));
        next.is_some_and(|next| (*next - row.boot_ns).0 <= COUNTED.0)
    }
}

/// Whether somebody lived for long in a group of which there is no row.
fn has_unread(table: &ProcessTable, tops: &HashSet<&str>, groups: &Groups) -> bool {
    let unread = tops
        .iter()
        .filter(|top| !groups.first_kernel.contains_key(**top));
    let unread: Vec<&str> = unread.copied().collect();
    let mut processes = table.processes.iter();
    !unread.is_empty()
        && processes.any(|process| {
            let end = process.exit_boot_ns().unwrap_or(BootNs(i64::MAX));
            let own = process.cgroup.as_deref();
            let is_unread = |own: &str| unread.iter().any(|top| is_within(own, top));
            end - process.start.boot_ns > EARLY && own.is_some_and(is_unread)
        })
}

/// What the kernel's log tells of groups at kills: one more reading.
struct Kills {
    /// By the path of the group.
    pending: HashMap<String, GroupKills>,
}

#[derive(Default)]
struct GroupKills {
    /// Those that are to come, the latest first.
    kills: Vec<(BootNs, OomRow)>,
    /// The last row before them.
    last: Option<CgroupMemRow>,
}

impl Kills {
    fn read<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Self, S::Error> {
        let mut pending: HashMap<String, GroupKills> = HashMap::new();
        source.scan(&[], |row: OomRow| {
            let group = row.memcg.clone().filter(|_| row.memcg_anon_bytes.is_some());
            if let Some(group) = group {
                let victim = row.victim_upid.and_then(|upid| table.find(upid));
                let at = oom::examined_at(&row, victim.map(|victim| &table.processes[victim]));
                pending.entry(group).or_default().kills.push((at, row));
            }
        })?;
        for group in pending.values_mut() {
            group.kills.order_by_key(|(at, _)| std::cmp::Reverse(*at));
        }
        Ok(Self { pending })
    }

    /// The rows of kills in a group before its next row.
    fn until(&mut self, row: &CgroupMemRow) -> Vec<CgroupMemRow> {
        let Some(GroupKills { kills, last }) = self.pending.get_mut(&row.cgroup) else {
            return Vec::new();
        };
        let mut reported = Vec::new();
        while let Some((at, kill)) = kills.pop_if(|(at, _)| *at < row.boot_ns) {
            reported.extend(last.as_ref().and_then(|last| logged(at, &kill, last)));
        }
        *last = Some(row.clone());
        reported
    }

    /// Those after the last row of their group.
    fn rest(self) -> Vec<CgroupMemRow> {
        let groups = self.pending.into_values();
        let rest = groups.flat_map(|GroupKills { kills, last }| {
            let kills = kills.into_iter().rev();
            kills.filter_map(move |(at, kill)| logged(at, &kill, last.as_ref()?))
        });
        let mut rest: Vec<CgroupMemRow> = rest.collect();
        rest.order_by(|a, b| (a.boot_ns, &a.cgroup).cmp(&(b.boot_ns, &b.cgroup)));
        rest
    }
}

/// A group as the log tells it at a kill.
fn logged(at: BootNs, kill: &OomRow, last: &CgroupMemRow) -> Option<CgroupMemRow> {
    let row = at_kill(kill, last)?;
    Some(CgroupMemRow { boot_ns: at, ..row })
}

const COLUMNS: &[&str] = &[
    "boot_ns",
    "cgroup",
    "version",
    "current_bytes",
    "anon_bytes",
    "file_bytes",
    "shmem_bytes",
    "kernel_bytes",
    "slab_bytes",
    "pagetables_bytes",
    "kernel_stack_bytes",
    "percpu_bytes",
    "sock_bytes",
    "hugetlb_bytes",
    "peak_bytes",
    "other_process_count",
    "other_anon_bytes",
];

fn of_group(
    row: &CgroupMemRow,
    is_alone: bool,
    (whole, recorder): (Whole, &Recorder),
    groups: &mut Groups,
) -> Option<Reading> {
    let (anon, shared) = (row.anon_bytes?, row.shmem_bytes?.0.max(0));
    let has_recorder = recorder.lives_in(&row.cgroup);
    let own = if has_recorder {
        recorder.anon_at(row.boot_ns)
    } else {
        0
    };
    let anon = anon.0.saturating_sub(own).max(0);
    let reported = row.kernel_memory_bytes();
    let is_apart = is_alone && !has_recorder && reported.is_some();
    let charged = |bytes: i64| Charged {
        least: if is_alone { bytes } else { 0 },
        most: bytes,
    };
    let counted = match (is_alone, row.other_anon_bytes) {
        (true, _) => 0,
        (false, Some(others)) => others.0.clamp(0, anon),
        (false, None) => anon,
    };
    let kernel = reported.unwrap_or_default().0.max(0);
    let (first, since) = groups.kernel_since(row, kernel);
    let was_there_before = whole.is_command && first - whole.start <= AT_ONCE;
    let unnamed = row.unnamed_bytes().unwrap_or_default().0.max(0);
    Some(Reading {
        at: row.boot_ns,
        anon: Charged {
            least: anon,
            most: anon,
        },
        others: Charged {
            least: counted,
            most: match row.other_process_count {
                Some(1..=FEW) => counted,
                _ if is_alone => 0,
                _ => anon,
            },
        },
        shared: charged(shared),
        kernel: match is_apart {
            true => charged(kernel),
            // What was there before a command is not its own.
            false => Charged {
                least: if is_alone { since } else { 0 },
                most: if was_there_before { since } else { kernel },
            },
        },
        unnamed: Charged {
            least: match is_alone && unnamed > whole.noise {
                true => unnamed,
                false => 0,
            },
            most: if unnamed > NOISE { unnamed } else { 0 },
        },
        uncharged: 0,
        mark: row.peak_bytes.map(|peak| peak.0),
        cache: row
            .file_bytes
            .map_or(0, |file| file.0.saturating_sub(shared).max(0)),
        reached: None,
        is_alone,
        is_apart,
    })
}
