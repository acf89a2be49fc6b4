//! glibc's malloc as it lies in memory: heaps of arenas, and the chain of blocks in a heap.
//!
//! `struct heap_info` (malloc/arena.c) stands at the begin of each heap of an arena, `struct
//! malloc_state` (malloc/malloc.c) behind the first one. A block has its size before it, whose low
//! bits say whether the block before it is in use, whether it is a mapping of its own, and whether
//! it is of another arena than the main one. All of that is so since glibc 2.27; what changed
//! between versions (the length of both structs) is tried, and the chain of blocks must then lead to
//! the end of the heap.

use super::target::{Target, word};

/// The heap of an arena lies at a multiple of this, and is no larger (HEAP_MAX_SIZE, twice the
/// largest threshold for mappings).
pub(super) const HEAP_MAX: u64 = 64 << 20;
/// Lengths of `heap_info`: before and since 2.35.
const INFO: [u64; 2] = [0x20, 0x30];
/// Length of `malloc_state` since 2.27.
const STATE: u64 = 2200;

const PREVIOUS_IN_USE: u64 = 1;
const IS_MAPPED: u64 = 2;
const OF_OTHER_ARENA: u64 = 4;
const FLAGS: u64 = 7;
const HEADER: u64 = 16;
const SMALLEST: u64 = 32;
/// Up to this size free blocks are kept in lists that leave them marked as used.
const LISTED_MAX: u64 = 1040;

/// A heap of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArenaHeap {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where the arena's state lies, if it is the first heap of its arena.
    state: Option<u64>,
}

impl ArenaHeap {
    /// The heap at an address, a multiple of [`HEAP_MAX`], in a mapping that ends there.
    pub(super) fn at(start: u64, mapped_until: u64, target: &mut Target) -> Option<Self> {
        let info: [u8; 32] = target.peek(start)?;
        let at = |place| word(&info, place);
        let (arena, before, size, touched) = (at(0)?, at(8)?, at(16)?, at(24)?);
        let is_size =
            |size: u64| size > 0 && size <= HEAP_MAX && size.is_multiple_of(target.page_size);
        let is_first = before == 0;
        let is_arena = match is_first {
            true => INFO.iter().any(|length| arena == start + length),
            false => {
                let first = arena / HEAP_MAX * HEAP_MAX;
                before.is_multiple_of(HEAP_MAX)
                    && before != start
                    && first != start
                    && INFO.iter().any(|length| arena == first + length)
            }
        };
        let is_one = is_arena && is_size(size) && is_size(touched) && touched >= size;
        is_one.then_some(Self {
            start,
            // It can have grown since the mappings were listed.
            end: (start + size).min(mapped_until),
            state: is_first.then_some(arena),
        })
    }

    /// Where its first block can be.
    pub(super) fn firsts(&self) -> Vec<u64> {
        match self.state {
            Some(state) => vec![(state + STATE).next_multiple_of(HEADER)],
            None => INFO.iter().map(|length| self.start + length).collect(),
        }
    }
}

/// The length of a block that is a mapping of its own, from the words before it; `None` where it is
/// none. `room` is how much of the mapping is left.
pub(super) fn mapped_block(bytes: &[u8], room: u64, page_size: u64) -> Option<u64> {
    let (before, size) = (word(bytes, 0)?, word(bytes, 8)?);
    let length = size & !FLAGS;
    let is_one = before == 0
        && size & FLAGS == IS_MAPPED
        && length > 0
        && length.is_multiple_of(page_size)
        && length <= room;
    is_one.then_some(length)
}

/// What was found in a heap, in bytes that are resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) searched: u64,
    pub(super) free: u64,
    /// Whole pages within free blocks.
    pub(super) pages: u64,
}

impl Free {
    pub(super) fn add(&mut self, other: &Self) {
        self.searched += other.searched;
        self.free += other.free;
        self.pages += other.pages;
    }
}

/// How a walk along the blocks of a heap stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// It arrived at the end of the heap.
    Whole,
    /// So much was to be read, and there is more.
    Partly,
    /// The chain is broken: no heap of this layout, or it changed meanwhile.
    Broken,
}

/// A walk along the blocks of a heap, which can be taken up again.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    start: u64,
    end: u64,
    is_main: bool,
    at: u64,
    /// The block before, of which the next one says whether it is in use.
    before: Option<Block>,
    pub(super) found: Free,
    /// Addresses that are asked for, the next one last, and whether the blocks of those before are free.
    asked: Vec<u64>,
    answers: Vec<(u64, bool)>,
    /// Whether nothing else is wanted: then pages are not counted.
    is_only_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    at: u64,
    size: u64,
    /// Whether its first word is that of a free block in a list (since 2.32 it is the address of the next
    /// one, mangled by its own: PROTECT_PTR).
    is_listed: bool,
}

/// A chain of blocks that is so long is one, whatever becomes of its end.
pub(super) const KNOWN: u64 = 1 << 20;
/// A heap does not grow by more while it is read.
const GROWN_MAX: u64 = 64 << 20;
/// Of a block of more pages than this only so many are asked whether they are there.
const ASKED_MAX: u64 = 65_536;

/// So much is read at once, and where blocks are large.
const PIECE: u64 = 64 << 10;
const LITTLE: u64 = 256;

impl Walk {
    /// Along the blocks from `first` to `end`. `is_main` is whether it is the brk heap.
    pub(super) fn new(first: u64, end: u64, is_main: bool) -> Self {
        Self {
            start: first,
            end,
            is_main,
            at: first,
            before: None,
            found: Free::default(),
            asked: Vec::new(),
            answers: Vec::new(),
            is_only_asked: false,
        }
    }

    /// Asks for addresses, in ascending order, as far as they are still ahead.
    pub(super) fn ask(&mut self, addresses: &[u64]) {
        let from = self.before.map_or(self.at, |block| block.at);
        let ahead = addresses.iter().rev().filter(|address| **address >= from);
        self.asked = ahead.copied().collect();
        self.is_only_asked = true;
    }

    /// What was found of addresses since this was asked last.
    pub(super) fn answers(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.answers)
    }

    /// Whether it is one along this heap, which can have grown or shrunk since.
    pub(super) fn is_of(&self, first: u64, end: u64) -> bool {
        self.start == first && self.at <= end
    }

    /// Follows an end that moved.
    pub(super) fn reach(&mut self, end: u64) {
        self.end = end;
    }

    /// Goes on until it read `left` bytes, from which it takes what it reads.
    pub(super) fn go_on(&mut self, target: &mut Target, left: &mut u64) -> Walked {
        let mut bytes = Vec::new();
        while self.at < self.end {
            if *left == 0 {
                return Walked::Partly;
            }
            let from = self.at;
            // Behind a large block there are likely others: of each no more than its header is wanted.
            let is_large = self.before.is_some_and(|block| block.size >= PIECE / 4);
            let piece = if is_large { LITTLE } else { PIECE };
            let length = piece.min(self.end - from) as usize;
            bytes.resize(length, 0);
            if !target.read(from, &mut bytes) {
                // To the end of the page: the next can be absent.
                let length = (target.page_size - from % target.page_size).min(self.end - from);
                bytes.truncate(length as usize);
                if !target.read(from, &mut bytes) {
                    // Where the heap shrank meanwhile, its end was there.
                    let is_end = from.is_multiple_of(target.page_size);
                    let is_whole = is_end && self.found.searched >= KNOWN;
                    self.before = self.before.take().filter(|_| !is_whole);
                    return if is_whole {
                        Walked::Whole
                    } else {
                        Walked::Broken
                    };
                }
            }
            // However little is read, it costs as much as a page.
            *left = left.saturating_sub(target.page_size.max(bytes.len() as u64));
            match self.along(from, &bytes, target) {
                Some(true) => {}
                Some(false) => return Walked::Whole,
                None => return Walked::Broken,
            }
            if self.at == from {
                return Walked::Broken;
            }
        }
        self.settle_top(target);
        Walked::Whole
    }

    /// Along the blocks whose headers were read. Answers whether there are more; `None` where
    /// something is no header.
    fn along(&mut self, from: u64, bytes: &[u8], target: &mut Target) -> Option<bool> {
        while self.at < self.end {
            let place = usize::try_from(self.at - from).ok()?;
            let Some((previous, head)) = word(bytes, place).zip(word(bytes, place + 8)) else {
                return Some(true);
            };
            if let Some(before) = self.before.take() {
                self.settle(before, head, previous, target)?;
            }
            let size = head & !FLAGS;
            if size <= HEADER && !self.is_main && self.end - self.at <= 2 * HEADER {
                // Blocks of no length close a heap that is full.
                return Some(false);
            }
            let is_block = size >= SMALLEST
                && size.is_multiple_of(HEADER)
                && head & IS_MAPPED == 0
                && !(self.is_main && head & OF_OTHER_ARENA != 0);
            if !is_block {
                return None;
            }
            if size > self.end - self.at {
                return self.grew_meanwhile(size);
            }
            let first = word(bytes, place + 16);
            self.before = Some(Block {
                at: self.at,
                size,
                is_listed: size <= LISTED_MAX && first.is_some_and(|word| self.is_link(word)),
            });
            self.at += size;
        }
        Some(true)
    }

    /// A block that reaches beyond the end is the last one of a heap that grew since its end was
    /// read. What there is of it is left out: whether it is in use is not known.
    fn grew_meanwhile(&self, size: u64) -> Option<bool> {
        let beyond = size - (self.end - self.at);
        let is_known = self.found.searched >= KNOWN && beyond <= GROWN_MAX;
        is_known.then_some(false)
    }

    /// Whether the first word of the block at this place leads to another free block, or ends their
    /// list.
    fn is_link(&self, word: u64) -> bool {
        let next = word ^ ((self.at + HEADER) >> 12);
        next == 0 || next.is_multiple_of(HEADER) && (self.start..self.end).contains(&next)
    }

    /// The header behind a block says whether it is in use, and repeats the length of a free one.
    fn settle(
        &mut self,
        block: Block,
        next_head: u64,
        previous: u64,
        target: &mut Target,
    ) -> Option<()> {
        let is_free = next_head & PREVIOUS_IN_USE == 0;
        if is_free && previous != block.size {
            return None;
        }
        self.note(block, is_free || block.is_listed, target);
        Some(())
    }

    /// The last block that ends with the heap is what was never given out.
    fn settle_top(&mut self, target: &mut Target) {
        if let Some(top) = self.before.take() {
            self.note(top, true, target);
        }
    }

    fn note(&mut self, block: Block, is_free: bool, target: &mut Target) {
        let end = block.at + block.size;
        while let Some(address) = self.asked.pop_if(|address| *address < end) {
            if address >= block.at {
                self.answers.push((address, is_free));
            }
        }
        if self.is_only_asked {
            self.found.searched += block.size;
            return;
        }
        let page = target.page_size;
        let (from, to) = (block.at + SMALLEST, block.at + block.size);
        let (first, end) = (from.div_ceil(page), to / page);
        let inner = end.saturating_sub(first);
        let step = inner.div_ceil(ASKED_MAX).max(1) as usize;
        let asked = (first..end).step_by(step);
        let there = asked.filter(|place| target.page(*place).is_present());
        let there = (there.count() as u64 * step as u64).min(inner);
        let resident = block.size - (inner - there) * page;
        self.found.searched += resident;
        if is_free {
            self.found.free += resident;
            self.found.pages += there * page;
        }
    }
}
