//! Where samples of growth come from: their ring, and the map that tells the programs where
//! interpreters keep their frames.

use super::error::{LoadError, refused};
use super::program::program;
use aya::Ebpf;
use aya::maps::{Array, HashMap as BpfHashMap, MapData, RingBuf};
use aya::programs::RawTracePoint;
use memtrace_abi::{Layout, PythonLayout, StackSample, Touched, names};
use memtrace_model::Tgid;
use std::os::fd::{AsFd, OwnedFd};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Room for some 120 samples.
pub(super) const RING_BYTES: u32 = 4 << 20;

/// What keeps the address of a page fault until the growth that it brings is sampled.
pub(super) const FAULTS: [&str; 2] = ["page_fault_user", "page_fault_kernel"];

/// The samples, and what the BPF programs are to know of interpreters.
pub struct StackSource {
    ring: RingBuf<MapData>,
    python: BpfHashMap<MapData, u32, [u8; size_of::<PythonLayout>()]>,
    touched: TouchedPages,
    /// Whether samples of copies after a fork come.
    pub sees_copies: bool,
    /// A sample that was not taken yet.
    early: Option<Box<StackSample>>,
}

/// What became of sampled pages, as far as page faults tell.
pub struct TouchedPages(Array<MapData, [u8; size_of::<Touched>()]>);

impl TouchedPages {
    /// Whether a page was absent and touched again since it was sampled then; `None` where another
    /// page has taken its place in the table.
    pub fn is_again(&self, tgid: Tgid, address: u64, boot_ns: u64) -> Option<bool> {
        let key = Touched::key(tgid.0, address);
        let bytes = self.0.get(&Touched::slot(key), 0).ok()?;
        let touched = Touched::read_from_bytes(&bytes).ok()?;
        (touched.key == key).then_some(touched.is_again != 0 || touched.boot_ns != boot_ns)
    }
}

impl StackSource {
    /// Hands over the next sample, or `None` for one that is not of this version. False where there is
    /// none, and where it is not taken: then it comes again.
    pub fn next(&mut self, take: impl FnOnce(Option<&StackSample>) -> bool) -> bool {
        if let Some(early) = &self.early {
            let is_taken = take(Some(early));
            if is_taken {
                self.early = None;
            }
            return is_taken;
        }
        let Some(bytes) = self.ring.next() else {
            return false;
        };
        let sample = StackSample::ref_from_bytes(&bytes).ok();
        let is_taken = take(sample);
        if !is_taken && let Some(sample) = sample {
            let mut early = Box::new(StackSample::new_zeroed());
            early.as_mut_bytes().copy_from_slice(sample.as_bytes());
            self.early = Some(early);
        }
        is_taken
    }

    /// What became of sampled pages.
    pub fn touched(&self) -> &TouchedPages {
        &self.touched
    }

    /// Becomes readable when samples wait.
    pub fn wake_fd(&self) -> Option<OwnedFd> {
        self.ring.as_fd().try_clone_to_owned().ok()
    }

    /// Tells the programs where the interpreter of a process keeps its frames.
    pub fn tell(&mut self, tgid: Tgid, layout: &PythonLayout) {
        let value: [u8; size_of::<PythonLayout>()] = zerocopy::transmute!(*layout);
        // Where the table is full, frames of Python stay unknown, as the sample says.
        let _ = self.python.insert(tgid.0, value, 0);
    }

    /// Makes room: the process has ended.
    pub fn forget(&mut self, tgid: Tgid) {
        let _ = self.python.remove(&tgid.0);
    }
}

/// Attaches what keeps addresses and takes the maps.
pub(super) fn take(
    ebpf: &mut Ebpf,
    layout: &Layout,
    missing: &mut Vec<String>,
) -> Result<StackSource, LoadError> {
    if layout.regs_stack == 0 || layout.task_thread_pid == 0 {
        return Err(LoadError::Absent("registers of a thread, for --stacks"));
    }
    if layout.task_fsbase == 0 {
        missing.push("frames of Python 3.9 and 3.10: where a thread's address is".to_owned());
    }
    if layout.vma_anon == 0 {
        missing.push(
            "copies of memory that a fork shares: a step to them is not in this kernel's BTF"
                .to_owned(),
        );
    }
    for name in FAULTS {
        if let Err(error) = attach(ebpf, name) {
            missing.push(format!(
                "whether growth is still resident is not known: {error}"
            ));
        }
    }
    let absent = |name| LoadError::Absent(name);
    let map_error = |name| move |source| LoadError::Map { name, source };
    let ring = ebpf.take_map(names::STACKS).ok_or(absent(names::STACKS))?;
    let python = ebpf.take_map(names::PYTHON).ok_or(absent(names::PYTHON))?;
    let touched = ebpf
        .take_map(names::TOUCHED)
        .ok_or(absent(names::TOUCHED))?;
    Ok(StackSource {
        sees_copies: layout.vma_anon != 0,
        touched: TouchedPages(Array::try_from(touched).map_err(map_error(names::TOUCHED))?),
        ring: RingBuf::try_from(ring).map_err(map_error(names::STACKS))?,
        python: BpfHashMap::try_from(python).map_err(map_error(names::PYTHON))?,
        early: None,
    })
}

fn attach(ebpf: &mut Ebpf, name: &'static str) -> Result<(), LoadError> {
    let probe: &mut RawTracePoint = program(ebpf, name)?;
    probe
        .load()
        .map_err(|error| refused(name, "load", &error))?;
    probe
        .attach(name)
        .map(drop)
        .map_err(|error| refused(name, "attach", &error))
}

#[cfg(test)]
mod tests {
    use memtrace_abi::Touched;
    use memtrace_abi::config::{OWN_ARRAYS, OWN_TAGS_LEN};
    use std::collections::HashSet;

    #[test]
    fn pages_of_a_process_within_4_gib_have_slots_of_their_own() {
        let pages = Touched::own_pages(123_456_789_012);
        let slots = (0..u64::from(OWN_ARRAYS * OWN_TAGS_LEN)).map(|page| {
            Touched::own_slot(Touched::own_key(pages, 0x7f12_3456_7000 + (page << 12)))
        });
        assert_eq!(slots.collect::<HashSet<_>>().len(), 1 << 20);
    }
}
