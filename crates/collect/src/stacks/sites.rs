//! What processes grew by at each stack, and whether that is still there.

use super::frames::Frame;
use crate::Pass;
use memtrace_abi::event::LOOKS;
use memtrace_model::{BootNs, Bytes, GrowthSiteRow, Upid};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Stacks that are distinguished.
const STACKS_MAX: usize = 8_192;
/// Stacks by process, of those that are there.
const SITES_MAX: usize = 32_768;
/// Sampled addresses of one process that are looked at again; of older ones the last look stands.
const LOOKED_AT_MAX: usize = 8_192;

/// What is given back at once, and less than which a moment is no fuller than another.
const FALL_MIN: i64 = 4 << 20;

/// The largest page of any machine: what counters hand in at once is more.
const PAGE_MAX: i64 = 64 << 10;

/// A sample is looked at again when it is older by this part.
const LOOKS_PER_AGE: i64 = 4;

/// The stack of samples that have none, or one too many.
pub(super) const NO_STACK: i64 = 0;

/// Stacks by their frames.
#[derive(Default)]
pub(super) struct Stacks(HashMap<Box<[Frame]>, i64>);

impl Stacks {
    /// The id of a stack, and whether it is seen for the first time.
    pub(super) fn id(&mut self, frames: &[Frame]) -> (i64, bool) {
        if frames.is_empty() {
            return (NO_STACK, false);
        }
        if let Some(id) = self.0.get(frames) {
            return (*id, false);
        }
        if self.0.len() >= STACKS_MAX {
            return (NO_STACK, false);
        }
        let id = self.0.len() as i64 + 1;
        self.0.insert(frames.into(), id);
        (id, true)
    }
}

/// What became of sampled memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    NotSeen,
    Resident(Use),
    /// Resident, and others map it, too.
    Shared,
    Returned,
}

/// Whether resident memory is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Unknown,
    Live,
    /// Free, and kept by the allocator.
    Kept,
}

/// A sample whose address is looked at again.
pub(super) struct Sampled {
    pub(super) address: u64,
    /// When it was sampled.
    pub(super) boot_ns: u64,
    next_look: BootNs,
    site: usize,
    weight: i64,
    fate: Fate,
    /// Of a page that was shared since a fork.
    is_copy: bool,
}

/// What a look at an address shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The page of the sample is there.
    Resident,
    /// The same, of shared memory that others map, too.
    Shared,
    /// It is not, or another one is there.
    Returned,
    /// A page is there, and whether it is the one is no longer known.
    Unsure,
    /// The process has ended.
    Ended,
}

/// A stack of one process.
#[derive(Default)]
struct Site {
    stack_id: i64,
    count: i64,
    grown: i64,
    /// Of `grown`, in bytes squared.
    variance: f64,
    resident: i64,
    /// Of `resident`, what is in use, and what malloc keeps free.
    live: i64,
    kept: i64,
    /// Of `resident`, what was copied after a fork.
    copied: i64,
    shared: i64,
    returned: i64,
    has_changed: bool,
}

/// What was sampled of one process.
#[derive(Default)]
struct Growth {
    sites: Vec<Site>,
    by_stack: HashMap<i64, usize>,
    sampled: VecDeque<Sampled>,
    /// The site of the newest sample that was drawn by chance.
    newest_site: Option<usize>,
    /// When it was sampled last.
    newest: BootNs,
    /// What is not known to be given back: now, and when it was last written.
    held: i64,
    written_held: i64,
    written_at: BootNs,
    /// Whether it had ended when it was last asked.
    was_over: bool,
    /// How it stood when most was held since then, where much of that was given back.
    fullest: Option<Fullest>,
}

/// How the sites of a process stood just before it gave back much.
struct Fullest {
    held: i64,
    /// Of the sites that had changed.
    rows: Vec<GrowthSiteRow>,
}

#[derive(Default)]
pub(super) struct Sites {
    processes: BTreeMap<Upid, Growth>,
    count: usize,
}

impl Sites {
    /// Takes a sample of `grown` bytes that stands for `weight`. False where there are too many places.
    pub(super) fn add(
        &mut self,
        upid: Upid,
        stack_id: i64,
        (grown, weight): (i64, i64),
        (address, boot_ns): (Option<u64>, u64),
        is_copy: bool,
    ) -> bool {
        let growth = self.processes.entry(upid).or_default();
        let place = match growth.by_stack.get(&stack_id) {
            Some(place) => *place,
            None if self.count >= SITES_MAX => return false,
            None => {
                self.count += 1;
                growth.new_site(stack_id)
            }
        };
        let Some(site) = growth.sites.get_mut(place) else {
            return false;
        };
        site.count += 1;
        site.grown = site.grown.saturating_add(weight);
        // Of a sum of parts that are each drawn by chance: the part, by its chance squared, times the
        // chance that it is not drawn (Horvitz and Thompson). One part is drawn of each interval of growth:
        // where the next is of the same site, so was nearly all between them, and chance has no say.
        if weight > grown && growth.newest_site.replace(place) != Some(place) {
            site.variance += weight as f64 * (weight - grown) as f64;
        }
        // Which faults are looked at is chance, too, and their number is known only by that of the looks: for
        // n looks of k pages each, by n k (k - 1) pages squared.
        if !is_copy && grown <= PAGE_MAX {
            let beyond_one_page = (weight / i64::from(LOOKS) - grown).max(0);
            site.variance += weight as f64 * beyond_one_page as f64;
        }
        site.has_changed = true;
        growth.held = growth.held.saturating_add(weight);
        growth.newest = growth.newest.max(BootNs(boot_ns.cast_signed()));
        if let Some(address) = address {
            if growth.sampled.len() >= LOOKED_AT_MAX {
                growth.sampled.pop_front();
            }
            growth.sampled.push_back(Sampled {
                address,
                boot_ns,
                next_look: BootNs(0),
                site: place,
                weight,
                fate: Fate::NotSeen,
                is_copy,
            });
        }
        true
    }

    /// Looks at a process's sampled addresses, the older the more rarely unless all are asked for.
    /// What was once given back stays so: whoever touches a new page there is sampled anew.
    pub(super) fn look(
        &mut self,
        upid: Upid,
        now: BootNs,
        is_all: bool,
        mut see: impl FnMut(&Sampled) -> Seen,
    ) {
        let Some(growth) = self.processes.get_mut(&upid) else {
            return;
        };
        let mut turned = Vec::new();
        let mut returned = 0;
        for (place, one) in growth.sampled.iter_mut().enumerate() {
            if one.next_look > now && !is_all {
                continue;
            }
            let age = now.0 - one.boot_ns.cast_signed();
            one.next_look = BootNs(now.0 + age / LOOKS_PER_AGE);
            let fate = match see(one) {
                Seen::Resident => match one.fate {
                    Fate::Resident(_) => one.fate,
                    _ => Fate::Resident(Use::Unknown),
                },
                Seen::Shared => Fate::Shared,
                Seen::Returned => Fate::Returned,
                Seen::Unsure => one.fate,
                Seen::Ended => break,
            };
            if fate != one.fate {
                turned.push((place, fate));
            }
            if fate == Fate::Returned {
                returned = one.weight.saturating_add(returned);
            }
        }
        if returned >= FALL_MIN {
            growth.note_fullest(upid);
        }
        for (place, fate) in turned {
            growth.turn(place, fate);
        }
        growth.sampled.retain(|one| one.fate != Fate::Returned);
    }

    /// The addresses of a process whose memory is resident, in ascending order.
    pub(super) fn resident(&self, upid: Upid) -> Vec<u64> {
        let growth = self.processes.get(&upid);
        let sampled = growth.into_iter().flat_map(|growth| &growth.sampled);
        let resident = sampled.filter(|one| matches!(one.fate, Fate::Resident(_)));
        let mut addresses: Vec<u64> = resident.map(|one| one.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Notes whether the blocks at addresses of a process are free.
    pub(super) fn note_use(&mut self, upid: Upid, found: &[(u64, bool)]) {
        let Some(growth) = self.processes.get_mut(&upid) else {
            return;
        };
        let found: HashMap<u64, bool> = found.iter().copied().collect();
        for place in 0..growth.sampled.len() {
            let one = &growth.sampled[place];
            if let (Fate::Resident(_), Some(is_free)) = (one.fate, found.get(&one.address)) {
                let found = if *is_free { Use::Kept } else { Use::Live };
                growth.turn(place, Fate::Resident(found));
            }
        }
    }

    /// Writes what has changed, before it how a process stood that held more meanwhile.
    pub(super) fn write(&mut self, sees_copies: bool, pass: &mut Pass<'_>) {
        let mut rows = Vec::new();
        for growth in self.processes.values_mut() {
            let known = growth.held.max(growth.written_held);
            if let Some(fullest) = growth.fullest.take()
                && fullest.held >= known.saturating_add(FALL_MIN)
            {
                // Samples go on while a turn lasts.
                let [first, last] = [growth.written_at.0 + 1, pass.tick.boot.0 - 1];
                rows.extend(fullest.rows.into_iter().map(|row| GrowthSiteRow {
                    boot_ns: BootNs(row.boot_ns.0.max(first).min(last)),
                    ..row
                }));
            }
        }
        for (upid, growth) in &mut self.processes {
            (growth.written_held, growth.written_at) = (growth.held, pass.tick.boot);
            for site in growth.sites.iter_mut().filter(|site| site.has_changed) {
                site.has_changed = false;
                rows.push(site.row(*upid, pass.tick.boot));
            }
        }
        for mut row in rows {
            row.ts = pass.tick.clock.to_wall(row.boot_ns);
            row.copied_bytes = row.copied_bytes.filter(|_| sees_copies);
            pass.write(row);
        }
    }

    /// Forgets those who had ended a turn before: nothing comes of them any more, and their last sums were
    /// written.
    pub(super) fn retain(&mut self, mut is_there: impl FnMut(Upid) -> bool) {
        self.processes.retain(|upid, growth| {
            let is_over = !is_there(*upid);
            !(std::mem::replace(&mut growth.was_over, is_over) && is_over)
        });
        self.count = self.processes.values().map(|one| one.sites.len()).sum();
    }
}

impl Growth {
    fn new_site(&mut self, stack_id: i64) -> usize {
        let place = self.sites.len();
        self.sites.push(Site {
            stack_id,
            ..Site::default()
        });
        self.by_stack.insert(stack_id, place);
        place
    }

    /// Notes how it stands, unless it held as much at a moment that was noted since it was last written.
    fn note_fullest(&mut self, upid: Upid) {
        if self
            .fullest
            .as_ref()
            .is_some_and(|one| one.held >= self.held)
        {
            return;
        }
        let changed = self.sites.iter().filter(|site| site.has_changed);
        self.fullest = Some(Fullest {
            held: self.held,
            rows: changed.map(|site| site.row(upid, self.newest)).collect(),
        });
    }

    /// Notes what became of a sample.
    fn turn(&mut self, place: usize, fate: Fate) {
        let Some(one) = self.sampled.get_mut(place) else {
            return;
        };
        if let Some(site) = self.sites.get_mut(one.site)
            && fate != one.fate
        {
            site.note(one.fate, -one.weight, one.is_copy);
            site.note(fate, one.weight, one.is_copy);
            site.has_changed = true;
            if fate == Fate::Returned {
                self.held -= one.weight;
            }
        }
        one.fate = fate;
    }
}

impl Site {
    fn note(&mut self, fate: Fate, weight: i64, is_copy: bool) {
        match fate {
            Fate::NotSeen => {}
            Fate::Resident(state) => {
                self.resident += weight;
                if is_copy {
                    self.copied += weight;
                }
                match state {
                    Use::Unknown => {}
                    Use::Live => self.live += weight,
                    Use::Kept => self.kept += weight,
                }
            }
            Fate::Shared => self.shared += weight,
            Fate::Returned => self.returned += weight,
        }
    }

    /// As it stands; its wall time is not known here.
    fn row(&self, upid: Upid, boot_ns: BootNs) -> GrowthSiteRow {
        let is_searched = self.live + self.kept > 0;
        GrowthSiteRow {
            boot_ns,
            upid,
            stack_id: self.stack_id,
            sample_count: self.count,
            grown_bytes: Bytes(self.grown),
            grown_error_bytes: Bytes(self.variance.sqrt() as i64),
            resident_bytes: Bytes(self.resident),
            live_bytes: is_searched.then_some(Bytes(self.live)),
            kept_bytes: is_searched.then_some(Bytes(self.kept)),
            copied_bytes: Some(Bytes(self.copied)),
            shared_bytes: Some(Bytes(self.shared)),
            returned_bytes: Bytes(self.returned),
            ..GrowthSiteRow::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProcessTable, Tick};
    use memtrace_model::{ClockOffset, Record};

    const MIB: i64 = 1 << 20;

    fn rows(sites: &mut Sites) -> Vec<GrowthSiteRow> {
        let reading = memtrace_host::clock::read();
        let tick = Tick {
            boot: reading.boot_ns,
            clock: ClockOffset::at(reading),
            is_keyframe: false,
        };
        let mut out = Vec::new();
        sites.write(
            true,
            &mut Pass::new(&tick, &mut ProcessTable::default(), &mut out),
        );
        let row = |record| match record {
            Record::GrowthSite(row) => row,
            other => panic!("{other:?}"),
        };
        out.into_iter().map(row).collect()
    }

    #[test]
    fn the_error_is_of_where_samples_change_from_one_stack_to_another() {
        let mut sites = Sites::default();
        let upid = Upid(7);
        // What is as large as an interval is sampled surely, and says nothing of those around it.
        for (stack, weight) in [(1, 4), (1, 4), (2, 1), (1, 4), (2, 4), (1, 4)] {
            sites.add(upid, stack, (MIB, weight * MIB), (None, 0), false);
        }
        let errors = rows(&mut sites).into_iter();
        let errors: Vec<i64> = errors
            .map(|row| row.grown_error_bytes.0 * 100 / MIB)
            .collect();
        // sqrt(2 * 4 * (4 - 1)) and sqrt(4 * (4 - 1)) MiB.
        assert_eq!(errors, [489, 346]);
    }

    #[test]
    fn the_error_is_also_of_which_faults_were_looked_at() {
        let mut sites = Sites::default();
        for is_copy in [false, true] {
            for _ in 0..5 {
                let amounts = (4 << 10, 4 * MIB);
                sites.add(Upid(i64::from(is_copy)), 1, amounts, (None, 0), is_copy);
            }
        }
        let errors = rows(&mut sites).into_iter();
        let errors: Vec<i64> = errors
            .map(|row| row.grown_error_bytes.0 * 100 / MIB)
            .collect();
        // sqrt(4 * (4 - 1/256) + 5 * 4 * (1/8 - 1/256)) MiB, and without the latter.
        assert_eq!(errors, [429, 399]);
    }

    #[test]
    fn what_is_given_back_stays_so_when_its_address_is_used_again() {
        let mut sites = Sites::default();
        let upid = Upid(7);
        sites.add(upid, 1, (MIB, MIB), (Some(0x1000), 0), true);
        sites.add(upid, 1, (MIB, 3 * MIB), (Some(0x2000), 0), true);
        sites.add(upid, 2, (MIB, MIB), (None, 0), false);
        let now = BootNs(9);
        sites.look(upid, now, true, |_| Seen::Resident);
        sites.look(upid, now, true, |one| match one.address {
            0x2000 => Seen::Returned,
            _ => Seen::Unsure,
        });
        sites.look(upid, now, true, |_| Seen::Resident);
        let text = rows(&mut sites);
        let amounts = |row: &GrowthSiteRow| {
            let bytes = [row.grown_bytes, row.resident_bytes, row.returned_bytes];
            bytes.map(|bytes| bytes.0 / MIB)
        };
        assert_eq!(amounts(&text[0]), [4, 1, 3]);
        // Of copies, what is resident.
        assert_eq!(text[0].copied_bytes, Some(Bytes(MIB)));
        assert_eq!(amounts(&text[1]), [1, 0, 0]);
        // sqrt(3 * (3 - 1)) MiB.
        assert_eq!(text[0].grown_error_bytes.0 * 100 / MIB, 244);
        assert_eq!(rows(&mut sites), []);
    }

    #[test]
    fn what_malloc_keeps_free_is_kept_until_its_page_goes() {
        let mut sites = Sites::default();
        let upid = Upid(7);
        for (address, weight) in [(0x3000, 4), (0x1000, 1), (0x2000, 2)] {
            sites.add(upid, 1, (MIB, weight * MIB), (Some(address), 0), false);
        }
        let amounts = |sites: &mut Sites| {
            let row = rows(sites).remove(0);
            let bytes = [Some(row.resident_bytes), row.live_bytes, row.kept_bytes];
            bytes.map(|bytes| bytes.map(|bytes| bytes.0 / MIB))
        };
        sites.look(upid, BootNs(9), true, |_| Seen::Resident);
        assert_eq!(sites.resident(upid), [0x1000, 0x2000, 0x3000]);
        assert_eq!(amounts(&mut sites), [Some(7), None, None]);
        sites.note_use(upid, &[(0x1000, true), (0x2000, false)]);
        sites.look(upid, BootNs(9), true, |_| Seen::Resident);
        assert_eq!(amounts(&mut sites), [Some(7), Some(2), Some(1)]);
        sites.look(upid, BootNs(9), true, |one| match one.address {
            0x1000 => Seen::Returned,
            _ => Seen::Resident,
        });
        sites.note_use(upid, &[(0x2000, true)]);
        assert_eq!(amounts(&mut sites), [Some(6), Some(0), Some(2)]);
    }

    #[test]
    fn what_others_map_too_is_apart_as_long_as_they_do() {
        let mut sites = Sites::default();
        let upid = Upid(7);
        for (address, weight) in [(0x1000, 1), (0x2000, 2)] {
            sites.add(upid, 1, (MIB, weight * MIB), (Some(address), 0), false);
        }
        let amounts = |sites: &mut Sites| {
            let row = rows(sites).remove(0);
            [Some(row.resident_bytes), row.shared_bytes].map(|bytes| bytes.map(|one| one.0 / MIB))
        };
        sites.look(upid, BootNs(9), true, |one| match one.address {
            0x1000 => Seen::Resident,
            _ => Seen::Shared,
        });
        assert_eq!(sites.resident(upid), [0x1000]);
        assert_eq!(amounts(&mut sites), [Some(1), Some(2)]);
        sites.look(upid, BootNs(9), true, |_| Seen::Resident);
        assert_eq!(amounts(&mut sites), [Some(3), Some(0)]);
    }

    #[test]
    fn how_most_was_held_between_two_rows_is_written_where_much_went_since() {
        let mut sites = Sites::default();
        let (upid, other) = (Upid(7), Upid(8));
        let add = |sites: &mut Sites, upid, stack_id, address, at, mib: i64| {
            let amounts = (MIB, mib * MIB);
            assert!(sites.add(upid, stack_id, amounts, (Some(address), at), false));
        };
        let held = |row: &GrowthSiteRow| {
            let held = (row.grown_bytes - row.returned_bytes).0 / MIB;
            (row.upid.0, row.stack_id, held)
        };
        let held_of = |rows: &[GrowthSiteRow]| rows.iter().map(held).collect::<Vec<_>>();
        add(&mut sites, upid, 1, 0x1000, 3, 20);
        add(&mut sites, other, 1, 0x1000, 3, 90);
        sites.look(upid, BootNs(4), true, |_| Seen::Resident);
        assert_eq!(held_of(&rows(&mut sites)), [(7, 1, 20), (8, 1, 90)]);
        // More came and went; then less did.
        let now = memtrace_host::clock::boot();
        for mib in [60, 40] {
            add(&mut sites, upid, 2, 0x2000, now.0.cast_unsigned(), mib);
            sites.look(upid, BootNs(9), true, |one| match one.address {
                0x2000 => Seen::Returned,
                _ => Seen::Resident,
            });
        }
        // Of what was held when it was last written nothing has to be said again.
        sites.look(other, BootNs(9), true, |_| Seen::Returned);
        let text = rows(&mut sites);
        assert_eq!(held_of(&text), [(7, 2, 60), (7, 2, 0), (8, 1, 0)]);
        assert_eq!(text[0].boot_ns, now);
        assert!(text[0].ts < text[1].ts);
        sites.retain(|upid| upid == other);
        sites.retain(|upid| upid == other);
        add(&mut sites, upid, 2, 0x2000, 10, 1);
        assert_eq!(held_of(&rows(&mut sites)), [(7, 2, 1)]);
    }

    #[test]
    fn of_a_process_that_has_ended_the_last_look_stands() {
        let mut sites = Sites::default();
        sites.add(Upid(7), 1, (MIB, MIB), (Some(0x1000), 0), false);
        sites.look(Upid(7), BootNs(9), true, |_| Seen::Resident);
        sites.look(Upid(7), BootNs(9), true, |_| Seen::Ended);
        assert_eq!(rows(&mut sites)[0].resident_bytes, Bytes(MIB));
    }
}
