//! What has come of answers and is not whole yet. Thousands can be under way at once, so beside what one
//! may have there is what all of them may.

use super::failure::Failure;
use crate::limits::UNDER_WAY_BYTES;
use indicatif::BinaryBytes;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all have together.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The bytes of one.
#[derive(Debug, Default)]
pub(super) struct Gathered(Vec<u8>);

impl Gathered {
    /// Adds what has come; `most` is what one may have.
    ///
    /// # Errors
    /// When it has more then, or all together have.
    pub(super) fn add(&mut self, bytes: &[u8], most: usize) -> Result<(), Failure> {
        let length = self.0.len() + bytes.len();
        if length > most {
            return Err(Failure::TooLong(BinaryBytes(most as u64).to_string()));
        }
        let all = UNDER_WAY.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        self.0.extend_from_slice(bytes);
        if all > UNDER_WAY_BYTES {
            let most = BinaryBytes(UNDER_WAY_BYTES as u64);
            return Err(Failure::TooLong(format!(
                "{most} with the others that are under way (send fewer at once, or let them stream)"
            )));
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        UNDER_WAY.fetch_sub(self.0.len(), Ordering::Relaxed);
        self.0.clear();
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_its_bound_and_gives_back_what_it_had() {
        let mut one = Gathered::default();
        one.add(b"abc", 4).unwrap();
        let refused = one.add(b"de", 4).unwrap_err().to_string();
        assert!(refused.contains("4 B"), "{refused}");
        assert_eq!(one.bytes(), b"abc");
        one.clear();
        one.add(b"abcd", 4).unwrap();
    }

    #[test]
    fn all_together_have_one_too() {
        let mut all: Vec<Gathered> = Vec::new();
        let chunk = vec![0; 4 << 20];
        let refused = loop {
            let mut one = Gathered::default();
            let added = one.add(&chunk, chunk.len());
            all.push(one);
            match added {
                Ok(()) => assert!(all.len() < 7, "more than {UNDER_WAY_BYTES} bytes"),
                Err(refused) => break refused.to_string(),
            }
        };
        assert!(refused.contains("24.00 MiB"), "{refused}");
    }
}
