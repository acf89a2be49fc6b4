//! Pools of CPython's allocator of small objects (Objects/obmalloc.c).
//!
//! `struct pool_header` is the same since Python 2.5, and blocks are multiples of 16 bytes since 3.8: a count of blocks, three pointers, the index of
//! the arena, the class of size, and two offsets; 48 bytes with padding. The last offset and the
//! size of a block add up to the size of the pool, 16 KiB since 3.10 and 4 KiB before, and that is
//! what tells a pool from anything else.

use super::target::{half, word};

/// Bytes of the header.
pub(super) const HEADER: usize = 48;
/// Sizes that a pool can have.
const SIZES: [u64; 2] = [16 << 10, 4 << 10];
/// Blocks are multiples of this, up to 512 bytes.
const STEP: u64 = 16;
const CLASSES: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) size: u64,
    /// Bytes of blocks that hold objects.
    pub(super) used: u64,
}

impl Pool {
    /// The pool whose header is at an address.
    pub(super) fn parse(address: u64, bytes: &[u8]) -> Option<Self> {
        let count = u64::from(half(bytes, 0)?);
        let free_block = word(bytes, 8)?;
        let class = u64::from(half(bytes, 36)?);
        let [next, last] = [half(bytes, 40)?, half(bytes, 44)?].map(u64::from);
        let block = (class + 1) * STEP;
        let size = *SIZES.iter().find(|size| last + block == **size)?;
        let room = size - HEADER as u64;
        let is_within = |pointer: u64| pointer > address && pointer < address + size;
        let is_one = class < CLASSES
            && address.is_multiple_of(size)
            && (HEADER as u64..=size).contains(&next)
            && (next - HEADER as u64).is_multiple_of(block)
            && count <= room / block
            && (free_block == 0 || is_within(free_block));
        is_one.then_some(Self {
            size,
            used: count * block,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(count: u32, free: u64, class: u32, next: u32, last: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[0..4].copy_from_slice(&count.to_ne_bytes());
        bytes[8..16].copy_from_slice(&free.to_ne_bytes());
        bytes[36..40].copy_from_slice(&class.to_ne_bytes());
        bytes[40..44].copy_from_slice(&next.to_ne_bytes());
        bytes[44..48].copy_from_slice(&last.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_pool_is_known_by_the_offset_of_its_last_block() {
        let at = 0x7f00_0000_4000;
        // Blocks of 64 bytes, of which 10 are used.
        let bytes = header(10, at + 48 + 640, 3, 48 + 704, 16_384 - 64);
        let pool = Pool::parse(at, &bytes).unwrap();
        assert_eq!((pool.size, pool.used), (16_384, 640));
        let old = header(10, 0, 3, 48 + 640, 4_096 - 64);
        assert_eq!(Pool::parse(0x7f00_0000_1000, &old).unwrap().size, 4_096);
    }

    #[test]
    fn what_contradicts_itself_is_none() {
        let at = 0x7f00_0000_4000;
        let good = (10, 0, 3, 48 + 640, 16_384 - 64);
        let of = |(count, free, class, next, last)| header(count, free, class, next, last);
        assert!(Pool::parse(at, &of(good)).is_some());
        let bad = [
            (300, 0, 3, 48 + 640, 16_384 - 64),
            (10, 99, 3, 48 + 640, 16_384 - 64),
            (10, 0, 40, 48 + 640, 16_384 - 656),
            (10, 0, 3, 48 + 641, 16_384 - 64),
            (10, 0, 3, 48 + 640, 16_384),
        ];
        for bytes in bad {
            assert_eq!(Pool::parse(at, &of(bytes)), None, "{bytes:?}");
        }
        assert_eq!(Pool::parse(at + 4096, &of(good)), None);
        assert_eq!(Pool::parse(at, &of(good)[..40]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            address in any::<u64>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = Pool::parse(address & !0xfff & (u64::MAX >> 16), &bytes);
        }
    }
}
