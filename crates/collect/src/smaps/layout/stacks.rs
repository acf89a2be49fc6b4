//! Stacks of threads: the mapping above a guard page, as far as the thread's own descriptor.
//!
//! A stack can be one mapping with what lies above it. Its upper end is where glibc put the
//! descriptor of the thread, whose first word is its own address, and the third again
//! (`tcbhead_t` in sysdeps/x86_64/nptl/tls.h). Elsewhere than on x86-64 the shape alone decides.

use super::areas::Area;
use super::target::{Target, word};

/// The descriptor and the static TLS below it lie within this much of the upper end.
const TOP: u64 = 64 << 10;
/// What a stack takes where nobody asked for another size (RLIMIT_STACK), its guard included.
const USUAL: u64 = 8 << 20;

/// Where the stack that begins with this area ends; `None` where it is none.
pub(super) fn end(area: &Area, target: &mut Target) -> Option<u64> {
    if !area.is_guarded || !area.is_writable {
        return None;
    }
    if !cfg!(target_arch = "x86_64") {
        return (area.end - area.start <= USUAL).then_some(area.end);
    }
    let usual = area.start + USUAL - target.page_size;
    let mut ends = [area.end, usual].into_iter();
    ends.find(|end| *end <= area.end && has_descriptor(area.start, *end, target))
}

fn has_descriptor(start: u64, end: u64, target: &mut Target) -> bool {
    let page = target.page_size;
    let from = end.saturating_sub(TOP).max(start);
    let mut bytes = vec![0; page as usize];
    let pages = (from / page..end / page).rev();
    for address in pages.map(|place| place * page) {
        if target.read(address, &mut bytes) && names_itself(address, &bytes) {
            return true;
        }
    }
    false
}

/// Whether a descriptor lies in this page: they are aligned to 64 bytes.
fn names_itself(address: u64, bytes: &[u8]) -> bool {
    (0..bytes.len()).step_by(64).any(|at| {
        let own = Some(address + at as u64);
        word(bytes, at) == own && word(bytes, at + 16) == own
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_names_itself_twice() {
        let (address, mut bytes) = (0x7f00_0000_0000u64, vec![0u8; 4096]);
        assert!(!names_itself(address, &bytes));
        let own = (address + 640).to_ne_bytes();
        bytes[640..648].copy_from_slice(&own);
        assert!(!names_itself(address, &bytes));
        bytes[656..664].copy_from_slice(&own);
        assert!(names_itself(address, &bytes));
    }
}
