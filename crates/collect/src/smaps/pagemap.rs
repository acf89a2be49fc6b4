//! Page by page, in pieces that do not hold up the process: /proc/PID/maps for the
//! mappings, /proc/PID/pagemap for what is resident, /proc/kpagecount for the number of
//! sharers.
//!
//! The kernel walks the page tables of at most one piece under the mmap lock
//! (pagemap_read() in fs/proc/task_mmu.c takes it for each 2 MiB anew). Of large processes
//! only every n-th piece is read; the kernel's own counters of the process then say how
//! much there is in all, so that only the proportions are estimated.

use super::budget::Meter;
use super::mappings::{Backing, Header};
use super::scale::{Part, scale};
use super::text::{Lines, ReadError};
use super::totals::{Class, MappingBytes, MappingTotals, ObjectKey, class};
use memtrace_host::clock;
use memtrace_model::MappingKind;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Pages that the kernel walks without a break: the reach of one page-table page, 2 MiB
/// where pages have 4 KiB.
const WHOLE_PIECE: u64 = 512;
/// Many small pieces tell proportions better than a few large ones, and cost more per page.
const SMALL_PIECE: u64 = 64;
/// How closely to look: at most so many pieces of each class are read, evenly over the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A share of one half is reported to 3 parts in 100, also when every piece is all or nothing.
    Close {
        /// Of memory that nobody can share only the proportions of heap and mappings are asked.
        is_anon_unshared: bool,
    },
    /// Something of everyone soon: errors of many processes even out in their sum.
    Coarse,
}

impl Look {
    /// Pages of a piece, and how many pieces of a class are read at most.
    fn pieces(self, class: Class) -> (u64, u64) {
        let unshared = Self::Close {
            is_anon_unshared: true,
        };
        match (self, class) {
            (look, Class::Anon) if look == unshared => (SMALL_PIECE, 256),
            (Self::Close { .. }, _) => (WHOLE_PIECE, 1024),
            (Self::Coarse, Class::Anon) => (SMALL_PIECE, 128),
            // The ledger counts these by object and file.
            (Self::Coarse, Class::File | Class::Shmem) => (SMALL_PIECE, 8),
        }
    }
}

/// The sharers of one page in so many are looked up: one call each, while neighbours mostly
/// have the same.
const LOOKED_UP_PART: usize = 32;

/// Bytes of an entry in both files.
const ENTRY: usize = 8;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Set for pages of files and of shared memory.
const OF_FILE: u64 = 1 << 61;
/// Set for pages that only this process maps (4.2).
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// The files of one process, and of the machine.
pub(super) struct PageFiles<'a> {
    pub(super) maps: File,
    pub(super) pagemap: File,
    /// /proc/kpagecount; `None` without the right to it, and then frames are hidden too.
    pub(super) counts: Option<&'a File>,
    pub(super) page_size: u64,
}

/// What the kernel's counters say of the process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) anon: f64,
    pub(super) file: f64,
    pub(super) shmem: f64,
}

impl Counters {
    /// How far they are from others of the same process, all kinds together.
    pub(super) fn distance(&self, other: &Self) -> f64 {
        (self.anon - other.anon).abs()
            + (self.file - other.file).abs()
            + (self.shmem - other.shmem).abs()
    }
}

#[derive(Clone, Copy, Debug)]
struct Area {
    first: u64,
    end: u64,
    key: u32,
}

/// Pages of one sort in some pieces.
#[derive(Clone, Copy, Debug, Default)]
struct Pages {
    rss: f64,
    private: f64,
    /// PSS of those that are not private.
    shared_pss: f64,
    has_unknown: bool,
}

/// What was seen of one object, already multiplied by the pieces that were left out.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    anon: Pages,
    others: Pages,
    swap: f64,
}

/// Reads the process. Answers the amounts and the share of resident pages looked at.
pub(super) fn read(
    files: &PageFiles<'_>,
    counters: Counters,
    look: Look,
    meter: &mut Meter<'_>,
    backing: impl FnMut(&Header<'_>) -> Backing,
) -> Result<(MappingTotals, f64), ReadError> {
    let (mut totals, keys, areas) = list(&files.maps, files.page_size, meter, backing)?;
    let mut walk = Walk {
        files,
        entries: vec![0; WHOLE_PIECE as usize * ENTRY],
        seen: HashMap::new(),
        looked_at: 0,
        is_sampled: [false; 3],
    };
    for one in [Class::Anon, Class::File, Class::Shmem] {
        walk.class(one, look.pieces(one), &keys, &areas, meter)?;
    }
    let page = files.page_size as f64;
    let looked_at = walk.looked_at as f64 * page;
    walk.settle(counters, &mut totals);
    let all = totals.total().rss;
    let share = if all > 0.0 { looked_at / all } else { 1.0 };
    Ok((totals, share.min(1.0)))
}

/// The mappings, from the text without amounts, for which no page table is walked.
fn list(
    mut maps: &File,
    page_size: u64,
    meter: &mut Meter<'_>,
    mut backing: impl FnMut(&Header<'_>) -> Backing,
) -> Result<(MappingTotals, Vec<ObjectKey>, Vec<Area>), ReadError> {
    let mut totals = MappingTotals::default();
    let mut keys: Vec<ObjectKey> = Vec::new();
    let mut places: HashMap<ObjectKey, u32> = HashMap::new();
    let mut areas = Vec::new();
    let mut lines = Lines::default();
    loop {
        let is_more = lines
            .fill(&mut maps)
            .map_err(|error| ReadError::of("maps", error))?;
        while let Some(line) = lines.next() {
            let Some(header) = Header::parse(line) else {
                continue;
            };
            let key = totals.enter(&header, backing(&header));
            let place = *places.entry(key).or_insert_with(|| {
                keys.push(key);
                (keys.len() - 1) as u32
            });
            areas.push(Area {
                first: header.start / page_size,
                end: header.end / page_size,
                key: place,
            });
        }
        if !is_more {
            return Ok((totals, keys, areas));
        }
        meter.pause()?;
    }
}

/// Pages that no counter of RSS has, or that are nobody's: not worth a walk.
fn is_outside(kind: MappingKind) -> bool {
    matches!(
        kind,
        MappingKind::Device | MappingKind::Kernel | MappingKind::Hugetlb
    )
}

struct Walk<'a> {
    files: &'a PageFiles<'a>,
    entries: Vec<u8>,
    seen: HashMap<ObjectKey, Seen>,
    /// Resident pages that were looked at.
    looked_at: u64,
    is_sampled: [bool; 3],
}

impl Walk<'_> {
    /// Reads the pieces of one class, evenly over all of its mappings.
    fn class(
        &mut self,
        wanted: Class,
        (piece_pages, pieces_max): (u64, u64),
        keys: &[ObjectKey],
        areas: &[Area],
        meter: &mut Meter<'_>,
    ) -> Result<(), ReadError> {
        let of_class = |area: &&Area| {
            keys.get(area.key as usize)
                .is_some_and(|key| class(key.kind) == wanted && !is_outside(key.kind))
        };
        let total: u64 = areas
            .iter()
            .filter(of_class)
            .map(|area| piece_count(area, piece_pages))
            .sum();
        let stride = total.div_ceil(pieces_max).max(1);
        let [anon, file, shmem] = &mut self.is_sampled;
        let is_sampled = match wanted {
            Class::Anon => anon,
            Class::File => file,
            Class::Shmem => shmem,
        };
        *is_sampled = stride > 1;
        // A start that does not follow the layout of the process.
        let mut until_next = clock::thread_cpu().0.unsigned_abs() % stride;
        for area in areas.iter().filter(of_class) {
            let Some(key) = keys.get(area.key as usize) else {
                continue;
            };
            for piece in 0..piece_count(area, piece_pages) {
                if until_next > 0 {
                    until_next -= 1;
                    continue;
                }
                until_next = stride - 1;
                let first = area
                    .first
                    .max((area.first / piece_pages + piece) * piece_pages);
                let end = area
                    .end
                    .min((area.first / piece_pages + piece + 1) * piece_pages);
                self.piece(*key, first, end - first, stride as f64)?;
                meter.pause()?;
            }
        }
        Ok(())
    }

    /// Reads one piece, which stands for `weight` pieces.
    fn piece(
        &mut self,
        key: ObjectKey,
        first: u64,
        count: u64,
        weight: f64,
    ) -> Result<(), ReadError> {
        let wanted = count as usize * ENTRY;
        let bytes = self.entries.get_mut(..wanted).unwrap_or_default();
        let length = read_at(&self.files.pagemap, bytes, first * ENTRY as u64)
            .map_err(|error| ReadError::of("pagemap", error))?;
        let (mut anon, mut others) = (Pages::default(), Pages::default());
        let (mut anon_shared, mut others_shared) = (Vec::new(), Vec::new());
        let mut swapped = 0u64;
        for entry in entries(self.entries.get(..length).unwrap_or_default()) {
            if entry & SWAPPED != 0 {
                swapped += 1;
            }
            if entry & PRESENT == 0 {
                continue;
            }
            self.looked_at += 1;
            let (pages, shared) = if entry & OF_FILE == 0 {
                (&mut anon, &mut anon_shared)
            } else {
                (&mut others, &mut others_shared)
            };
            pages.rss += 1.0;
            if entry & EXCLUSIVE != 0 {
                pages.private += 1.0;
            } else {
                shared.push(entry & FRAME);
            }
        }
        self.look_up(&anon_shared, &mut anon);
        self.look_up(&others_shared, &mut others);
        let weight = weight * self.files.page_size as f64;
        let seen = self.seen.entry(key).or_default();
        seen.anon.add(&anon, weight);
        seen.others.add(&others, weight);
        seen.swap += swapped as f64 * weight;
        Ok(())
    }

    /// Divides shared pages by their sharers, as far as a few of them tell.
    fn look_up(&self, frames: &[u64], pages: &mut Pages) {
        let step = LOOKED_UP_PART.min(frames.len().div_ceil(2)).max(1);
        let mut shares = 0.0;
        let mut known = 0.0;
        for frame in frames.iter().step_by(step) {
            if let Some(count) = self.sharers(*frame) {
                shares += 1.0 / count as f64;
                known += 1.0;
            }
        }
        if known > 0.0 {
            pages.shared_pss += shares / known * frames.len() as f64;
        } else if !frames.is_empty() {
            pages.has_unknown = true;
        }
    }

    fn sharers(&self, frame: u64) -> Option<u64> {
        let counts = self.files.counts.filter(|_| frame != 0)?;
        let mut bytes = [0; ENTRY];
        counts
            .read_exact_at(&mut bytes, frame * ENTRY as u64)
            .ok()?;
        // A page that was unmapped since is this process's no more; it still counted.
        Some(u64::from_ne_bytes(bytes).max(1))
    }

    /// Enters what was seen; sampled classes are scaled to what the counters say.
    fn settle(self, counters: Counters, totals: &mut MappingTotals) {
        let [is_anon, is_file, is_shmem] = self.is_sampled;
        let classes = [
            (Class::Anon, is_anon, counters.anon),
            (Class::File, is_file, counters.file),
            (Class::Shmem, is_shmem, counters.shmem),
        ];
        for (wanted, is_sampled, counted) in classes {
            let objects = totals.objects();
            let objects = objects.iter().filter(|(key, _)| !is_outside(key.kind));
            let (keys, mut parts): (Vec<ObjectKey>, Vec<Part>) = objects
                .map(|(key, object)| {
                    let seen = self.seen.get(key).copied().unwrap_or_default();
                    let seen = seen.of_class(wanted, key.kind);
                    // An object of another class that has none was not looked at for that.
                    let is_own = class(key.kind) == wanted || seen.rss > 0.0;
                    let room = object.size as f64 - object.amounts.rss;
                    let room = if is_own { room } else { 0.0 };
                    (*key, Part { seen, room })
                })
                .unzip();
            if is_sampled {
                scale(counted, &mut parts);
            }
            for (key, part) in keys.iter().zip(&parts) {
                totals.add(*key, &part.seen);
            }
        }
        for (key, seen) in &self.seen {
            let swap = seen.swap;
            totals.add(
                *key,
                &MappingBytes {
                    swap,
                    ..MappingBytes::NONE
                },
            );
        }
    }
}

impl Pages {
    fn add(&mut self, other: &Self, weight: f64) {
        self.rss += other.rss * weight;
        self.private += other.private * weight;
        self.shared_pss += other.shared_pss * weight;
        self.has_unknown |= other.has_unknown;
    }

    fn amounts(&self) -> MappingBytes {
        let pss = (!self.has_unknown).then_some(self.private + self.shared_pss);
        MappingBytes {
            rss: self.rss,
            pss,
            private: self.private,
            ..MappingBytes::NONE
        }
    }
}

impl Seen {
    /// Pages of one class in a mapping of some kind.
    fn of_class(&self, wanted: Class, kind: MappingKind) -> MappingBytes {
        match (wanted, class(kind)) {
            (Class::Anon, _) => {
                let anon = self.anon.amounts();
                MappingBytes {
                    anon: anon.rss,
                    anon_pss: anon.pss,
                    ..anon
                }
            }
            (Class::Shmem, Class::Shmem) | (Class::File, Class::Anon | Class::File) => {
                self.others.amounts()
            }
            _ => MappingBytes::NONE,
        }
    }
}

fn piece_count(area: &Area, pages: u64) -> u64 {
    area.end.div_ceil(pages) - area.first / pages
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    entries.iter().map(|entry| u64::from_ne_bytes(*entry))
}

fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
