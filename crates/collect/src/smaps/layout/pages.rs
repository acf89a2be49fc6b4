//! How many pages of each part are resident, and by a sample what is in them.

use super::super::budget::Stop;
use super::super::pagemap::Counters;
use super::super::scale::{Part, scale};
use super::super::text::ReadError;
use super::super::totals::MappingBytes;
use super::claims::{Claim, PartKey};
use super::target::{Page, Target};
use memtrace_host::clock;
use memtrace_model::LayoutPart;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Pages that the kernel walks without a break: the reach of one page-table page.
const PIECE: u64 = 512;
/// Pieces that are read at most, evenly over all.
const PIECES_MAX: u64 = 1024;
/// Pages that are looked into.
const SAMPLE: f64 = 256.0;
/// KPF_THP of include/uapi/linux/kernel-page-flags.h.
const IS_HUGE: u64 = 1 << 22;
const IS_ANON: u64 = 1 << 12;
/// KPF_SWAPBACKED: MADV_FREE takes it off an anonymous page (folio_mark_lazyfree, mm/swap.c) until the
/// page is written to again.
const IS_SWAPBACKED: u64 = 1 << 14;
/// KPF_COMPOUND_TAIL. Kernels before 6.10 tell KPF_SWAPBACKED of the head alone.
const IS_TAIL: u64 = 1 << 16;

/// What is known of one part, in bytes but for the sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amounts {
    pub(super) size: u64,
    pub(super) rss: f64,
    pub(super) private: f64,
    sampled: u64,
    zeros: u64,
    /// Pages of the sample whose flags are known, those in huge pages, and those freed by MADV_FREE.
    flagged: u64,
    huge: u64,
    lazy_free: u64,
}

impl Amounts {
    /// Joins two parts to one.
    pub(super) fn add(&mut self, other: &Self) {
        self.size += other.size;
        self.rss += other.rss;
        self.private += other.private;
        self.sampled += other.sampled;
        self.zeros += other.zeros;
        self.flagged += other.flagged;
        self.huge += other.huge;
        self.lazy_free += other.lazy_free;
    }

    pub(super) fn sample_count(&self) -> u64 {
        self.sampled
    }

    /// Resident bytes that hold nothing but zeros.
    pub(super) fn zero(&self) -> Option<f64> {
        part_of(self.rss, self.zeros, self.sampled)
    }

    /// Resident bytes in huge pages.
    pub(super) fn huge(&self) -> Option<f64> {
        part_of(self.rss, self.huge, self.flagged)
    }

    /// Resident bytes that the program gave back with MADV_FREE, and the kernel has not taken yet.
    pub(super) fn lazy_free(&self) -> Option<f64> {
        part_of(self.rss, self.lazy_free, self.flagged)
    }
}

fn part_of(all: f64, some: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| all * some as f64 / of as f64)
}

/// Counts what is resident. Anonymous parts add up to what the kernel counted of the process.
pub(super) fn count(
    claims: &[Claim],
    counters: Counters,
    flags: Option<&File>,
    target: &mut Target,
    stop: &Stop,
) -> Result<BTreeMap<PartKey, Amounts>, ReadError> {
    let page = target.page_size;
    let pieces = |claim: &Claim| claim.end.div_ceil(page * PIECE) - claim.start / (page * PIECE);
    let total: u64 = claims.iter().map(pieces).sum();
    let stride = total.div_ceil(PIECES_MAX).max(1);
    let resident = (counters.anon + counters.shmem) / page as f64;
    let mut count = Count {
        target,
        flags,
        weight: stride as f64 * page as f64,
        each: (resident / stride as f64 / SAMPLE).ceil().max(1.0) as u64,
        passed: 0,
        parts: BTreeMap::new(),
    };
    // A start that does not follow the layout of the process.
    let mut until_next = clock::thread_cpu().0.unsigned_abs() % stride;
    for claim in claims {
        let size = claim.end - claim.start;
        count.parts.entry(claim.key).or_default().size += size;
        if claim.key.part == LayoutPart::FileCopies {
            // The rest of it is pages of the file.
            let rest = PartKey {
                part: LayoutPart::MappedFiles,
                ..claim.key
            };
            count.parts.entry(rest).or_default().size += size;
        }
        for piece in 0..pieces(claim) {
            if until_next > 0 {
                until_next -= 1;
                continue;
            }
            until_next = stride - 1;
            let begin = (claim.start / (page * PIECE) + piece) * PIECE;
            let first = begin.max(claim.start / page);
            let end = (begin + PIECE).min(claim.end / page);
            count.piece(claim.key, first, end)?;
            stop.check()?;
        }
    }
    let mut parts = count.parts;
    scale_to(counters.anon, &mut parts);
    Ok(parts)
}

struct Count<'a> {
    target: &'a mut Target,
    flags: Option<&'a File>,
    /// Bytes that a page stands for.
    weight: f64,
    /// Of so many pages one is looked into.
    each: u64,
    passed: u64,
    parts: BTreeMap<PartKey, Amounts>,
}

impl Count<'_> {
    fn piece(&mut self, key: PartKey, first: u64, end: u64) -> Result<(), ReadError> {
        let pages = self.target.pages(first, end - first)?;
        for (place, page) in (first..).zip(pages) {
            if !page.is_present() {
                continue;
            }
            // In a mapping of a file, what was written to is anonymous and the rest is not.
            let key = match (key.part, page.is_of_file()) {
                (LayoutPart::FileCopies, true) => PartKey {
                    part: LayoutPart::MappedFiles,
                    ..key
                },
                (LayoutPart::Pinned | LayoutPart::MappedFiles, true) => key,
                (LayoutPart::Pinned | LayoutPart::MappedFiles, _) | (_, true) => continue,
                _ => key,
            };
            let amounts = self.parts.entry(key).or_default();
            amounts.rss += self.weight;
            if page.is_private() {
                amounts.private += self.weight;
            }
            if key.part == LayoutPart::MappedFiles {
                continue;
            }
            self.passed += 1;
            if self.passed.is_multiple_of(self.each) {
                self.look_into(key, place, page);
            }
        }
        Ok(())
    }

    fn look_into(&mut self, key: PartKey, place: u64, page: Page) {
        let flags_of = |frame: u64| {
            let mut bytes = [0; 8];
            self.flags?.read_exact_at(&mut bytes, frame * 8).ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        let frame = Some(page.frame()).filter(|frame| *frame != 0);
        let flags = frame.and_then(flags_of);
        let is_lazily_freed = |flags: u64| {
            let head = match flags & IS_TAIL != 0 {
                // Huge pages lie at multiples of their size.
                true => frame.and_then(|frame| flags_of(frame - frame % PIECE)),
                false => Some(flags),
            };
            flags & IS_ANON != 0 && head.is_some_and(|head| head & (IS_SWAPBACKED | IS_TAIL) == 0)
        };
        let flags = flags.map(|flags| (flags & IS_HUGE != 0, is_lazily_freed(flags)));
        let mut bytes = vec![0; self.target.page_size as usize];
        let is_read = self.target.read(place * self.target.page_size, &mut bytes);
        let amounts = self.parts.entry(key).or_default();
        if let Some((is_huge, is_lazily_freed)) = flags {
            amounts.flagged += 1;
            amounts.huge += u64::from(is_huge);
            amounts.lazy_free += u64::from(is_lazily_freed);
        }
        if is_read {
            amounts.sampled += 1;
            amounts.zeros += u64::from(bytes.iter().all(|byte| *byte == 0));
        }
    }
}

/// Scales the anonymous parts to what the kernel counts.
fn scale_to(counted: f64, parts: &mut BTreeMap<PartKey, Amounts>) {
    let mut anonymous: Vec<&mut Amounts> = parts
        .iter_mut()
        .filter(|(key, _)| key.part.is_anonymous())
        .map(|(_, amounts)| amounts)
        .collect();
    let seen = |amounts: &Amounts| Part {
        seen: MappingBytes {
            rss: amounts.rss,
            private: amounts.private,
            ..MappingBytes::NONE
        },
        room: amounts.size as f64,
    };
    let mut scaled: Vec<Part> = anonymous.iter().map(|amounts| seen(amounts)).collect();
    scale(counted, &mut scaled);
    for (amounts, part) in anonymous.iter_mut().zip(scaled) {
        amounts.rss = part.seen.rss;
        amounts.private = part.seen.private;
    }
}
