//! From registers and the top of a stack to return addresses, by the tables that compilers write
//! for exceptions (.eh_frame), and by frame pointers where a file has none.

use super::elf::Elf;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use std::ops::Range;
use std::sync::Arc;

/// More frames than these are not followed.
pub(super) const FRAMES_MAX: usize = 192;

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) instruction: u64,
    pub(super) stack: u64,
    pub(super) frame: u64,
}

/// Unwinds the stacks of one process.
pub(super) struct Unwinder {
    inner: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
}

impl Unwinder {
    pub(super) fn new() -> Self {
        Self {
            inner: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// Makes a mapped file known.
    pub(super) fn add(&mut self, mapped: Range<u64>, bias: u64, elf: &Elf) {
        let of = |section: &Option<super::elf::Section>| {
            section.as_ref().map(|section| {
                let end = section.address.saturating_add(section.bytes.len() as u64);
                (section.address..end, Arc::clone(&section.bytes))
            })
        };
        let (eh_frame_svma, eh_frame) = of(&elf.eh_frame).unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = of(&elf.eh_frame_hdr).unzip();
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..Default::default()
        };
        let module = Module::new(String::new(), mapped, bias, sections);
        self.inner.add_module(module);
    }

    /// The addresses of the frames, innermost first, each inside the call that it is in. Ends where
    /// the stack does, or what was copied of it, or where it leads nowhere.
    pub(super) fn unwind(&mut self, at: Registers, stack: &[u8]) -> Vec<u64> {
        let registers = UnwindRegsX86_64::new(at.instruction, at.stack, at.frame);
        let mut read = |address: u64| {
            let begin = address.checked_sub(at.stack).ok_or(())?;
            let begin = usize::try_from(begin).map_err(drop)?;
            let end = begin.checked_add(8).ok_or(())?;
            let word = stack.get(begin..end).ok_or(())?;
            word.try_into().map(u64::from_le_bytes).map_err(drop)
        };
        let mut frames =
            self.inner
                .iter_frames(at.instruction, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < FRAMES_MAX
            && let Ok(Some(frame)) = frames.next()
        {
            addresses.push(frame.address_for_lookup());
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stack: u64, frame: u64) -> Registers {
        Registers {
            instruction: 0x40_1000,
            stack,
            frame,
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn frame_pointers_lead_through_code_without_tables() {
        // Two frames: each a saved frame pointer and a return address.
        let stack = bytes(&[0, 0x7010, 0x40_2000, 0x7020, 0x40_3000, 0, 0]);
        let mut stack_at = 0x7000 - 8;
        let frames = Unwinder::new().unwind(at(stack_at, 0x7000), &stack);
        assert_eq!(frames, [0x40_1000, 0x40_1fff, 0x40_2fff]);
        // The same with nothing where the frame pointer leads.
        stack_at = 0x9000;
        let frames = Unwinder::new().unwind(at(stack_at, 0x7000), &stack);
        assert_eq!(frames, [0x40_1000]);
    }

    #[test]
    fn a_stack_that_loops_ends() {
        let stack = bytes(&[0x7000, 0x40_2000, 0x7000, 0x40_2000]);
        let frames = Unwinder::new().unwind(at(0x7000, 0x7000), &stack);
        assert!(frames.len() <= 3, "{frames:?}");
        let upwards: Vec<u64> = (1..2_000)
            .flat_map(|place| [0x7000 + place * 16, 0x40_2000])
            .collect();
        let frames = Unwinder::new().unwind(at(0x7000, 0x7000), &bytes(&upwards));
        assert_eq!(frames.len(), FRAMES_MAX);
    }

    #[test]
    fn a_stack_pointer_into_nowhere_gives_the_innermost_frame() {
        for stack in [0, 1, u64::MAX, u64::MAX - 7] {
            let frames = Unwinder::new().unwind(at(stack, u64::MAX), &[]);
            assert_eq!(frames, [0x40_1000]);
        }
    }
}
