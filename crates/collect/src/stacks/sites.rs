//! What processes grew by at each stack, and whether that is still there.

use super::frames::Frame;
use crate::Tick;
use memtrace_model::{BootNs, Bytes, GrowthSiteRow, Record, Upid};
use std::collections::{HashMap, VecDeque};

/// Stacks that are distinguished.
const STACKS_MAX: usize = 8_192;
/// Stacks by process.
const SITES_MAX: usize = 32_768;
/// Sampled addresses of one process that are looked at again; of older ones the last look stands.
const LOOKED_AT_MAX: usize = 8_192;

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
struct Site {
    upid: Upid,
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

#[derive(Default)]
pub(super) struct Sites {
    list: Vec<Site>,
    by_key: HashMap<(Upid, i64), usize>,
    sampled: HashMap<Upid, VecDeque<Sampled>>,
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
        let place = self.place(upid, stack_id);
        let Some((place, site)) = place.and_then(|place| Some((place, self.list.get_mut(place)?)))
        else {
            return false;
        };
        site.count += 1;
        site.grown = site.grown.saturating_add(weight);
        // Of a sum of parts that are each drawn by chance: the part, by its chance squared, times the
        // chance that it is not drawn (Horvitz and Thompson).
        site.variance += weight as f64 * (weight - grown).max(0) as f64;
        site.has_changed = true;
        if let Some(address) = address {
            let sampled = self.sampled.entry(upid).or_default();
            if sampled.len() >= LOOKED_AT_MAX {
                sampled.pop_front();
            }
            sampled.push_back(Sampled {
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

    fn place(&mut self, upid: Upid, stack_id: i64) -> Option<usize> {
        if let Some(place) = self.by_key.get(&(upid, stack_id)) {
            return Some(*place);
        }
        if self.list.len() >= SITES_MAX {
            return None;
        }
        let place = self.list.len();
        self.list.push(Site {
            upid,
            stack_id,
            count: 0,
            grown: 0,
            variance: 0.0,
            resident: 0,
            live: 0,
            kept: 0,
            copied: 0,
            shared: 0,
            returned: 0,
            has_changed: false,
        });
        self.by_key.insert((upid, stack_id), place);
        Some(place)
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
        let Some(sampled) = self.sampled.get_mut(&upid) else {
            return;
        };
        for one in sampled.iter_mut() {
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
            one.turn(fate, &mut self.list);
        }
        sampled.retain(|one| one.fate != Fate::Returned);
    }

    /// The addresses of a process whose memory is resident, in ascending order.
    pub(super) fn resident(&self, upid: Upid) -> Vec<u64> {
        let sampled = self.sampled.get(&upid).into_iter().flatten();
        let resident = sampled.filter(|one| matches!(one.fate, Fate::Resident(_)));
        let mut addresses: Vec<u64> = resident.map(|one| one.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Notes whether the blocks at addresses of a process are free.
    pub(super) fn note_use(&mut self, upid: Upid, found: &[(u64, bool)]) {
        let found: HashMap<u64, bool> = found.iter().copied().collect();
        for one in self.sampled.get_mut(&upid).into_iter().flatten() {
            if let (Fate::Resident(_), Some(is_free)) = (one.fate, found.get(&one.address)) {
                let found = if *is_free { Use::Kept } else { Use::Live };
                one.turn(Fate::Resident(found), &mut self.list);
            }
        }
    }

    /// Looks at nothing of a process any more.
    pub(super) fn forget(&mut self, upid: Upid) {
        self.sampled.remove(&upid);
    }

    /// Writes what has changed.
    pub(super) fn write(&mut self, tick: &Tick, sees_copies: bool, out: &mut Vec<Record>) {
        for site in self.list.iter_mut().filter(|site| site.has_changed) {
            site.has_changed = false;
            out.push(Record::GrowthSite(GrowthSiteRow {
                ts: tick.wall(),
                boot_ns: tick.boot,
                upid: site.upid,
                stack_id: site.stack_id,
                sample_count: site.count,
                grown_bytes: Bytes(site.grown),
                grown_error_bytes: Bytes(site.variance.sqrt() as i64),
                resident_bytes: Bytes(site.resident),
                live_bytes: (site.live + site.kept > 0).then_some(Bytes(site.live)),
                kept_bytes: (site.live + site.kept > 0).then_some(Bytes(site.kept)),
                copied_bytes: sees_copies.then_some(Bytes(site.copied)),
                shared_bytes: Some(Bytes(site.shared)),
                returned_bytes: Bytes(site.returned),
            }));
        }
    }
}

impl Sampled {
    fn turn(&mut self, fate: Fate, sites: &mut [Site]) {
        if let Some(site) = sites.get_mut(self.site)
            && fate != self.fate
        {
            site.note(self.fate, -self.weight, self.is_copy);
            site.note(fate, self.weight, self.is_copy);
            site.has_changed = true;
        }
        self.fate = fate;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::ClockOffset;

    const MIB: i64 = 1 << 20;

    fn rows(sites: &mut Sites) -> Vec<GrowthSiteRow> {
        let reading = memtrace_host::clock::read();
        let tick = Tick {
            boot: reading.boot_ns,
            clock: ClockOffset::at(reading),
            is_keyframe: false,
        };
        let mut out = Vec::new();
        sites.write(&tick, true, &mut out);
        let row = |record| match record {
            Record::GrowthSite(row) => row,
            other => panic!("{other:?}"),
        };
        out.into_iter().map(row).collect()
    }

    #[test]
    fn what_is_given_back_stays_so_when_its_address_is_used_again() {
        let mut sites = Sites::default();
        let upid = Upid(7);
        sites.add(upid, 1, (MIB, MIB), (Some(0x1000), 0), true);
        sites.add(upid, 1, (MIB, 4 * MIB), (Some(0x2000), 0), true);
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
        assert_eq!(amounts(&text[0]), [5, 1, 4]);
        // Of copies, what is resident.
        assert_eq!(text[0].copied_bytes, Some(Bytes(MIB)));
        assert_eq!(amounts(&text[1]), [1, 0, 0]);
        // sqrt(4 * (4 - 1)) MiB.
        assert_eq!(text[0].grown_error_bytes.0 * 100 / MIB, 346);
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
    fn of_a_process_that_has_ended_the_last_look_stands() {
        let mut sites = Sites::default();
        sites.add(Upid(7), 1, (MIB, MIB), (Some(0x1000), 0), false);
        sites.look(Upid(7), BootNs(9), true, |_| Seen::Resident);
        sites.look(Upid(7), BootNs(9), true, |_| Seen::Ended);
        assert_eq!(rows(&mut sites)[0].resident_bytes, Bytes(MIB));
    }
}
