//! The BPF object as it is loaded.

use memtrace_packed::{packed, unpacked};
use object::{Object, ObjectSection, ObjectSymbol};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The object that `cargo xtask ebpf` builds from memtrace-ebpf. Its hashes are allocated as
/// they fill.
pub(super) fn object() -> &'static [u8] {
    // Read as ELF it has to be aligned to 8 bytes, which the heap does for anything of its size.
    static OBJECT: LazyLock<Vec<u8>> = LazyLock::new(|| unpacked(packed!("memtrace.bpf.o")));
    &OBJECT
}

/// Its SHA-256 in hexadecimal digits.
pub fn object_hash() -> String {
    let digest = Sha256::digest(object());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where struct bpf_map_def has its map_flags (aya-ebpf's copy of it: type, sizes of key and
/// value, max_entries, map_flags).
const FLAGS_OFFSET: u64 = 16;

/// The object with these hashes allocated up front, for kernels before 6.1. aya can change a
/// map's size and not its flags. `None` where the object is not as expected.
pub(super) fn preallocating(hashes: &[&str]) -> Option<Vec<u8>> {
    let file = object::File::parse(object()).ok()?;
    let mut bytes = object().to_vec();
    for name in hashes {
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name))?;
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let (start, _) = section.file_range()?;
        let at = usize::try_from(start + symbol.address() + FLAGS_OFFSET).ok()?;
        bytes.get_mut(at..at + 4)?.fill(0);
    }
    Some(bytes)
}
