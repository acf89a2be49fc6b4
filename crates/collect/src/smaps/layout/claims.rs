//! Who laid out which part of the mappings.
//!
//! The kernel makes one mapping of neighbours that are alike, so that blocks of malloc, pools of
//! Python and memory of the program itself can be one. Each is walked from its begin: a header says
//! what stands there and how long it is.

use super::super::budget::Stop;
use super::super::text::ReadError;
use super::areas::{Area, AreaSort, Areas};
use super::glibc::{self, ArenaHeap, Free, HEAP_MAX};
use super::pymalloc::{self, Pool};
use super::stacks;
use super::target::Target;
use memtrace_model::LayoutPart;
use std::collections::{BTreeMap, HashMap};

/// What a row of `layout` is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PartKey {
    pub(super) part: LayoutPart,
    /// The place of its name.
    pub(super) name: Option<u32>,
    /// The size of each, where they are distinguished by that.
    pub(super) unit: Option<u64>,
}

impl From<LayoutPart> for PartKey {
    fn from(part: LayoutPart) -> Self {
        Self {
            part,
            name: None,
            unit: None,
        }
    }
}

/// A stretch of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) key: PartKey,
}

/// The whole of a process.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// In order of their addresses.
    pub(super) list: Vec<Claim>,
    pub(super) items: BTreeMap<PartKey, i64>,
    pub(super) heaps: Vec<ArenaHeap>,
    /// Where the brk heap begins and ends.
    pub(super) brk: Option<(u64, u64)>,
    /// What the headers of pools say.
    pub(super) pools: Free,
}

/// Looks at what is no header, in one reading, some 1 µs each; each mapping has its part of them,
/// within these bounds.
const LOOKS_MAX: usize = 16_384;
const LOOKS_EACH: [usize; 2] = [2, 512];
/// Pools that are looked at in one reading.
const POOLS_MAX: usize = 16_384;
/// Places that are passed in one reading, most of them absent, and in one mapping.
const STEPS_MAX: usize = 65_536;
const STEPS_EACH: usize = 8_192;
/// So many mappings of one size are a group.
const EQUAL_MIN: usize = 8;
/// Smaller ones are not grouped.
const EQUAL_BYTES: u64 = 64 << 10;
/// Smaller mappings of their own are not taken for an allocator's.
const ALLOCATOR_BYTES: u64 = 1 << 20;
/// After so many pools in a row only each eighth is looked at.
const POOLS_ALIKE: usize = 64;
const POOLS_AT_ONCE: u64 = 8;

/// Divides the mappings of a process.
pub(super) fn divide(areas: &Areas, target: &mut Target, stop: &Stop) -> Result<Claims, ReadError> {
    let run_ends = run_ends(&areas.list);
    let looks_each = LOOKS_MAX / areas.list.len().max(1);
    let mut walk = Division {
        target,
        claims: Claims::default(),
        looks_each: looks_each.clamp(LOOKS_EACH[0], LOOKS_EACH[1]),
        looks_left: 0,
        pools_left: POOLS_MAX,
        steps_left: STEPS_MAX,
        rest: areas.allocator.as_ref().map(|(part, _)| *part),
        alone: HashMap::new(),
        run_end: 0,
        claimed_until: 0,
    };
    for (place, area) in areas.list.iter().enumerate() {
        walk.run_end = run_ends.get(place).copied().unwrap_or(area.end);
        walk.area(area, areas);
        if place % 64 == 63 {
            stop.check()?;
        }
    }
    walk.group_equals();
    Ok(walk.claims)
}

struct Division<'a> {
    target: &'a mut Target,
    claims: Claims,
    /// Looks in vain in one mapping, at most, and those that are left in the present one.
    looks_each: usize,
    looks_left: usize,
    pools_left: usize,
    steps_left: usize,
    /// The allocator that takes the place of malloc.
    rest: Option<LayoutPart>,
    /// Claims of whole mappings that nothing is known of, by size.
    alone: HashMap<u64, Vec<usize>>,
    /// Where anonymous memory ends that begins with the present mapping: madvise(2) makes several
    /// mappings of one block.
    run_end: u64,
    /// Until where a block reaches that began in a mapping before.
    claimed_until: u64,
}

/// Where the anonymous memory ends that begins with each.
fn run_ends(areas: &[Area]) -> Vec<u64> {
    let mut ends: Vec<u64> = areas.iter().map(|area| area.end).collect();
    let is_plain = |area: &Area| area.sort == AreaSort::Anonymous && area.is_writable;
    for place in (1..areas.len()).rev() {
        let (before, area) = (&areas[place - 1], &areas[place]);
        if before.end == area.start && is_plain(before) && is_plain(area) {
            ends[place - 1] = ends[place];
        }
    }
    ends
}

impl Division<'_> {
    fn area(&mut self, area: &Area, areas: &Areas) {
        let (start, end) = (area.start, area.end);
        let key = match area.sort {
            AreaSort::Heap => {
                let (first, _) = self.claims.brk.unwrap_or((start, end));
                self.claims.brk = Some((first, end));
                LayoutPart::BrkHeap.into()
            }
            AreaSort::Stack => LayoutPart::Stacks.into(),
            AreaSort::Pinned => PartKey {
                unit: Some(end - start),
                ..LayoutPart::Pinned.into()
            },
            AreaSort::File(name) => PartKey {
                name: Some(name),
                ..LayoutPart::FileCopies.into()
            },
            AreaSort::SharedFile(name) => PartKey {
                name: Some(name),
                ..LayoutPart::MappedFiles.into()
            },
            AreaSort::Named(name) => {
                let text = areas.names.get(name).unwrap_or_default();
                if text.starts_with("glibc: malloc") {
                    return self.anonymous(area);
                }
                match text.starts_with("glibc: pthread") {
                    true => LayoutPart::Stacks.into(),
                    false => PartKey {
                        name: Some(name),
                        ..LayoutPart::Named.into()
                    },
                }
            }
            AreaSort::Anonymous => return self.anonymous(area),
        };
        self.count(key);
        self.claim(start, end, key);
    }

    fn count(&mut self, key: PartKey) {
        *self.claims.items.entry(key).or_default() += 1;
    }

    /// Neighbours that are alike are one claim.
    fn claim(&mut self, start: u64, end: u64, key: PartKey) {
        match self.claims.list.last_mut() {
            Some(last) if last.end == start && last.key == key => last.end = end,
            _ => self.claims.list.push(Claim { start, end, key }),
        }
    }

    fn anonymous(&mut self, area: &Area) {
        let mut at = area.start;
        if self.claimed_until > at {
            let end = self.claimed_until.min(area.end);
            self.claim(at, end, LayoutPart::GlibcMmapped.into());
            at = end;
        }
        if let Some(end) = stacks::end(area, self.target) {
            self.count(LayoutPart::Stacks.into());
            self.claim(at, end, LayoutPart::Stacks.into());
            at = end;
        }
        let is_large = area.end - area.start >= ALLOCATOR_BYTES;
        let rest = self.rest.filter(|_| is_large);
        let rest: PartKey = rest.unwrap_or(LayoutPart::Other).into();
        let (mut misses, mut pools) = (0usize, 0usize);
        let mut unknown_from = None;
        self.looks_left = self.looks_each;
        let mut steps_left = STEPS_EACH.min(self.steps_left);
        self.steps_left -= steps_left;
        while at < area.end && area.is_writable && steps_left > 0 {
            steps_left -= 1;
            let Some((key, end)) = self.known(at, area.end, &mut pools) else {
                misses += 1;
                unknown_from.get_or_insert(at);
                // To a multiple of the step: pools are aligned, and a heap of an arena can begin at
                // each multiple of its size, which is one of every step.
                let step = self.step(misses);
                at = ((at / step + 1) * step).min(area.end);
                continue;
            };
            if let Some(from) = unknown_from.take() {
                self.claim(from, at, rest);
            }
            misses = 0;
            self.claim(at, end.min(area.end), key);
            self.claimed_until = end;
            at = end;
        }
        self.steps_left += steps_left;
        let from = unknown_from.unwrap_or(at);
        if from >= area.end {
            return;
        }
        if pools > 0 && self.pools_left == 0 {
            // Of so many, the rest is taken to be like those.
            return self.claim(from, area.end, LayoutPart::PythonPools.into());
        }
        self.count(rest);
        if from == area.start && rest.part == LayoutPart::Other {
            // Kept apart from its neighbours, until it is known whether it is one of many.
            let claim = Claim {
                start: from,
                end: area.end,
                key: rest,
            };
            let alike = self.alone.entry(area.end - from).or_default();
            alike.push(self.claims.list.len());
            self.claims.list.push(claim);
            return;
        }
        self.claim(from, area.end, rest);
    }

    /// How far to go where nothing is known: the longer nothing is, the further.
    fn step(&self, misses: usize) -> u64 {
        let pages = match misses {
            0..64 => 1,
            64..256 => 16,
            _ => 512,
        };
        pages * self.target.page_size
    }

    /// What stands at an address, and where it ends.
    fn known(&mut self, at: u64, end: u64, pools: &mut usize) -> Option<(PartKey, u64)> {
        if self.looks_left == 0 || !self.target.page(at / self.target.page_size).is_present() {
            return None;
        }
        if at.is_multiple_of(HEAP_MAX)
            && let Some(heap) = ArenaHeap::at(at, end, self.target)
        {
            self.claims.heaps.push(heap);
            self.count(LayoutPart::GlibcArenas.into());
            return Some((LayoutPart::GlibcArenas.into(), heap.end));
        }
        let bytes: [u8; pymalloc::HEADER] = self.target.peek(at)?;
        let room = self.run_end.max(end) - at;
        if let Some(length) = glibc::mapped_block(&bytes, room, self.target.page_size) {
            self.count(LayoutPart::GlibcMmapped.into());
            return Some((LayoutPart::GlibcMmapped.into(), at + length));
        }
        let pool = Pool::parse(at, &bytes).filter(|pool| at + pool.size <= end);
        let Some(pool) = pool else {
            self.looks_left -= 1;
            *pools = 0;
            return None;
        };
        if self.pools_left == 0 {
            return None;
        }
        self.pools_left -= 1;
        *pools += 1;
        self.note_pool(&pool);
        let length = match *pools > POOLS_ALIKE {
            true => self.alike(at, end, &pool),
            false => pool.size,
        };
        if *pools == 1 {
            self.count(LayoutPart::PythonPools.into());
        }
        Some((LayoutPart::PythonPools.into(), at + length))
    }

    /// How far it is taken to go on like this pool.
    fn alike(&mut self, at: u64, end: u64, pool: &Pool) -> u64 {
        let last = at + (POOLS_AT_ONCE - 1) * pool.size;
        if last + pool.size > end {
            return pool.size;
        }
        let bytes: Option<[u8; pymalloc::HEADER]> = self.target.peek(last);
        let other = bytes.and_then(|bytes| Pool::parse(last, &bytes));
        match other.filter(|other| other.size == pool.size) {
            Some(other) => {
                self.note_pool(&other);
                POOLS_AT_ONCE * pool.size
            }
            None => pool.size,
        }
    }

    fn note_pool(&mut self, pool: &Pool) {
        let pools = &mut self.claims.pools;
        pools.searched += pool.size;
        pools.free += pool.size - pool.used;
        if pool.used == 0 {
            pools.pages += pool.size;
        }
    }

    /// Mappings of one size, of which there are many, are reported by their number.
    fn group_equals(&mut self) {
        for (size, places) in &self.alone {
            if places.len() < EQUAL_MIN || *size < EQUAL_BYTES {
                continue;
            }
            let key = PartKey {
                unit: Some(*size),
                ..LayoutPart::EqualMappings.into()
            };
            for place in places {
                if let Some(claim) = self.claims.list.get_mut(*place) {
                    claim.key = key;
                }
            }
            let count = i64::try_from(places.len()).unwrap_or(i64::MAX);
            self.claims.items.insert(key, count);
            if let Some(others) = self.claims.items.get_mut(&LayoutPart::Other.into()) {
                *others -= count;
            }
        }
    }
}
