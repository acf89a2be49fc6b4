//! Which parts of a table are written once more while a recording goes on.
//!
//! Segments that are closed by time make small parts, thousands a day. So each eighth part takes the
//! seven before it along, each eighth of these the seven like it, and so on: of n parts 7 · log₈ n are
//! there, and a row is written log₈ n times. A part that is large enough is never written again.

/// So many parts of one tier become one of the next.
const FANOUT: usize = 8;
/// A part from this size on stays as it is.
const FULL_BYTES: u64 = 32 << 20;

/// The newest parts of a table that may be written again, the oldest first, with the number of times
/// that their rows were.
#[derive(Clone, Debug, Default)]
pub(super) struct Tiers(Vec<Small>);

/// A part that can be written again.
#[derive(Clone, Copy, Debug)]
struct Small {
    tier: u32,
    bytes: u64,
}

/// What goes into a new part beside its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    /// So many of the newest parts.
    pub(super) count: usize,
    tier: u32,
}

impl Tiers {
    /// What the next part takes along, no more bytes than make a full one. Parts that are too large
    /// together stay as they are from here on, or what follows them would wait for them.
    pub(super) fn next(&mut self) -> Joined {
        let mut joined = Joined { count: 0, tier: 0 };
        let mut bytes = 0;
        loop {
            let others = &self.0[..self.0.len() - joined.count];
            let run = others.iter().rev();
            let run = run.take_while(|small| small.tier == joined.tier);
            let (count, more) = run.fold((0, 0), |(count, bytes), small| {
                (count + 1, bytes + small.bytes)
            });
            if count + 1 < FANOUT {
                return joined;
            }
            bytes += more;
            if bytes > FULL_BYTES {
                let stay = others.len();
                self.0.drain(..stay);
                return joined;
            }
            joined.count += count;
            joined.tier += 1;
        }
    }

    /// What a part takes along that is full by itself: all small ones, which nothing would join after it.
    pub(super) fn all(&self) -> Joined {
        let bytes: u64 = self.0.iter().map(|small| small.bytes).sum();
        Joined {
            count: if bytes > FULL_BYTES { 0 } else { self.0.len() },
            tier: 0,
        }
    }

    /// The part was made.
    pub(super) fn note(&mut self, joined: Joined, bytes: u64) {
        self.0.truncate(self.0.len().saturating_sub(joined.count));
        match bytes < FULL_BYTES {
            true => self.0.push(Small {
                tier: joined.tier,
                bytes,
            }),
            false => self.clear(),
        }
    }

    /// None of the parts that there are is written again.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of parts after so many segments of a size.
    fn parts(segments: u64, bytes: u64) -> (Vec<u64>, u64) {
        let (mut tiers, mut parts, mut written) = (Tiers::default(), Vec::new(), 0);
        for _ in 0..segments {
            let joined = tiers.next();
            let start = parts.len() - joined.count;
            let made = parts.drain(start..).sum::<u64>() + bytes;
            tiers.note(joined, made);
            parts.push(made);
            written += made;
        }
        (parts, written)
    }

    #[test]
    fn parts_of_a_month_are_few_and_each_row_is_written_a_few_times() {
        for minutes in [1, 7, 8, 9, 1_440, 43_200] {
            let (parts, written) = parts(minutes, 1_000);
            assert_eq!(parts.iter().sum::<u64>(), minutes * 1_000);
            assert!(parts.len() <= 35, "{minutes}: {parts:?}");
            assert!(parts.is_sorted_by(|a, b| a >= b), "{parts:?}");
            assert!(written <= minutes * 1_000 * 6, "{minutes}: {written}");
        }
    }

    #[test]
    fn small_parts_join_also_after_larger_ones() {
        let mut tiers = Tiers::default();
        let mut count = 0;
        let sizes = [20 << 20; 7].into_iter().chain([10 << 10; 1_000]);
        for bytes in sizes {
            let joined = tiers.next();
            count = count + 1 - joined.count;
            tiers.note(joined, bytes * (joined.count as u64 + 1));
        }
        assert!(count < 40, "{count}");
    }

    #[test]
    fn a_part_that_is_full_stays() {
        let (parts, written) = parts(1_000, FULL_BYTES / 4);
        assert!(parts.iter().all(|&part| part <= FULL_BYTES * 5 / 4));
        assert!(written <= 1_000 * FULL_BYTES / 4 * 2);
        let (each, _) = super::tests::parts(10, FULL_BYTES);
        assert_eq!(each, [FULL_BYTES; 10]);
    }
}
