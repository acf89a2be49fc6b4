//! What is known of a process by its id.

use crate::ProcessTable;
use crate::procfs::{self, Identity};
use memtrace_model::{BootNs, Tgid, Upid};
use std::path::Path;

/// What only /proc knows of a process; nothing where it has gone or reads are refused.
pub(super) fn identity(tgid: Tgid) -> Option<Identity> {
    procfs::identity(Path::new("/proc"), tgid).ok().flatten()
}

/// The process with this id, if it is the one that started then; both as an event has them.
pub(super) fn current(table: &ProcessTable, tgid: u32, start_boot_ns: u64) -> Option<Upid> {
    let upid = table.upid(Tgid(tgid))?;
    let start = table.process(upid)?.row().start_boot_ns;
    (start == BootNs(start_boot_ns.cast_signed())).then_some(upid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Birth;
    use memtrace_model::FirstSeenBy;

    #[test]
    fn a_process_is_known_by_its_id_and_its_start() {
        let mut table = ProcessTable::default();
        let birth = Birth {
            tgid: Tgid(7),
            start: BootNs(10),
            seen_by: FirstSeenBy::Fork,
            parent: None,
            comm: String::new(),
        };
        let upid = table.enter(birth, BootNs(11));
        assert_eq!(current(&table, 7, 10), Some(upid));
        assert_eq!(current(&table, 7, 11), None);
        assert_eq!(current(&table, 8, 10), None);
    }
}
