//! Rows of `vm_event` and `vm_summary`.

use super::decode::{boot, comm_text};
use crate::{Pass, ProcessTable, Tick};
use memtrace_abi::{VmCall, VmOp, VmSum, VmTotals};
use memtrace_model::{BootNs, Bytes, Upid, VmEventRow, VmOp as OpLabel, VmSummaryRow};
use std::collections::HashMap;

/// The sums as last written, by process: the kernel's only grow.
#[derive(Default)]
pub(super) struct Sums {
    last: HashMap<Upid, Last>,
    asked: Option<BootNs>,
}

#[derive(Clone, Copy)]
struct Last {
    at: BootNs,
    sums: [VmSum; VmOp::COUNT],
}

impl Sums {
    const PERIOD_NS: i64 = 1_000_000_000;

    /// Whether the kernel is to be asked for the sums.
    pub(super) fn are_due(&mut self, now: BootNs) -> bool {
        let are_due = self
            .asked
            .is_none_or(|asked| (now - asked).0 >= Self::PERIOD_NS);
        if are_due {
            self.asked = Some(now);
        }
        are_due
    }

    /// Makes the sums due, whenever they were last asked for.
    pub(super) fn ask_again(&mut self) {
        self.asked = None;
    }

    /// Forgets processes that have ended.
    pub(super) fn forget_ended(&mut self, table: &ProcessTable) {
        self.last.retain(|upid, _| table.process(*upid).is_some());
    }

    /// Writes what has been added to the sums of a process since they were last reported.
    pub(super) fn write(
        &mut self,
        upid: Upid,
        first_seen: BootNs,
        totals: &VmTotals,
        pass: &mut Pass<'_>,
    ) {
        let at = boot(totals.header.boot_ns);
        let last = self.last.entry(upid).or_insert(Last {
            at: first_seen,
            sums: [VmSum::default(); VmOp::COUNT],
        });
        let since = last.at;
        for ((op, now), then) in VmOp::ALL.iter().zip(&totals.sums).zip(&last.sums) {
            let more = |now: u64, then: u64| now.saturating_sub(then).cast_signed();
            let call_count = more(now.calls, then.calls);
            if call_count == 0 {
                continue;
            }
            pass.write(VmSummaryRow {
                ts: pass.tick.clock.to_wall(at),
                boot_ns: at,
                upid,
                op: Some(label(*op)),
                since_boot_ns: since,
                call_count,
                failed_count: more(now.failed, then.failed),
                large_count: more(now.large, then.large),
                added_bytes: Bytes(more(now.added_bytes, then.added_bytes)),
                removed_bytes: Bytes(more(now.removed_bytes, then.removed_bytes)),
            });
        }
        *last = Last {
            at,
            sums: totals.sums,
        };
    }
}

fn label(op: VmOp) -> OpLabel {
    match op {
        VmOp::Mmap => OpLabel::Mmap,
        VmOp::Munmap => OpLabel::Munmap,
        VmOp::Mremap => OpLabel::Mremap,
        VmOp::Brk => OpLabel::Brk,
        VmOp::Madvise => OpLabel::Madvise,
    }
}

/// The row of one call; nothing for a call that this version does not know.
pub(super) fn event_row(upid: Upid, call: &VmCall, tick: &Tick) -> Option<VmEventRow> {
    let op = VmOp::from_u32(call.op)?;
    let at = boot(call.header.boot_ns);
    let is_error = (-4095..0).contains(&call.result);
    let bytes = |bytes: u64| Bytes(bytes.cast_signed());
    let grown = match op {
        VmOp::Mmap => Some(call.length.cast_signed()),
        VmOp::Munmap => Some(-call.length.cast_signed()),
        VmOp::Mremap => Some(call.length.wrapping_sub(call.old_length).cast_signed()),
        VmOp::Brk => Some(call.growth),
        VmOp::Madvise => None,
    };
    let addr = match op {
        VmOp::Mmap if !is_error => call.result,
        _ => call.addr.cast_signed(),
    };
    let has_flags = matches!(op, VmOp::Mmap | VmOp::Mremap | VmOp::Madvise);
    Some(VmEventRow {
        ts: tick.clock.to_wall(at),
        boot_ns: at,
        upid,
        tid: call.tid.cast_signed(),
        op: Some(label(op)),
        addr,
        length_bytes: (op != VmOp::Brk).then(|| bytes(call.length)),
        old_length_bytes: (op == VmOp::Mremap).then(|| bytes(call.old_length)),
        growth_bytes: grown.map(|grown| Bytes(if is_error { 0 } else { grown })),
        prot: (op == VmOp::Mmap).then_some(call.prot.cast_signed()),
        flags: has_flags.then_some(call.flags.cast_signed()),
        file: Some(comm_text(&call.file_name)).filter(|name| !name.is_empty()),
        result: call.result,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::{ClockOffset, ClockReading, Record, WallNs};
    use zerocopy::FromZeros;

    fn tick() -> Tick {
        let reading = ClockReading {
            boot_ns: BootNs(0),
            wall_ns: WallNs(0),
            ..memtrace_host::clock::read()
        };
        Tick {
            boot: BootNs(0),
            clock: ClockOffset::at(reading),
            is_keyframe: false,
        }
    }

    fn call(op: VmOp) -> VmCall {
        let mut call = VmCall::new_zeroed();
        call.op = op as u32;
        call.length = 8 << 20;
        call
    }

    #[test]
    fn growth_has_the_sign_of_what_happened_to_the_address_space() {
        let grown = |call: &VmCall| event_row(Upid(1), call, &tick()).unwrap().growth_bytes;
        let mut mmap = call(VmOp::Mmap);
        mmap.result = 0x7f00_0000_0000;
        assert_eq!(grown(&mmap), Some(Bytes(8 << 20)));
        mmap.result = -12;
        assert_eq!(grown(&mmap), Some(Bytes(0)), "ENOMEM maps nothing");
        assert_eq!(grown(&call(VmOp::Munmap)), Some(Bytes(-(8 << 20))));
        let mut mremap = call(VmOp::Mremap);
        mremap.old_length = 12 << 20;
        assert_eq!(grown(&mremap), Some(Bytes(-(4 << 20))));
        let mut brk = call(VmOp::Brk);
        brk.growth = -4096;
        assert_eq!(grown(&brk), Some(Bytes(-4096)));
        assert_eq!(grown(&call(VmOp::Madvise)), None);
    }

    #[test]
    fn what_a_call_does_not_have_is_null() {
        let row = event_row(Upid(1), &call(VmOp::Brk), &tick()).unwrap();
        assert_eq!((row.length_bytes, row.prot, row.flags), (None, None, None));
        assert_eq!(row.file, None);
        let row = event_row(Upid(1), &call(VmOp::Mmap), &tick()).unwrap();
        assert_eq!((row.prot, row.flags), (Some(0), Some(0)));
        assert_eq!(row.old_length_bytes, None);
        let mut unknown = call(VmOp::Mmap);
        unknown.op = 9;
        assert_eq!(event_row(Upid(1), &unknown, &tick()), None);
    }

    #[test]
    fn sums_are_written_as_what_was_added_since_the_last_time() {
        let mut sums = Sums::default();
        let mut out = Vec::new();
        let mut totals = VmTotals::new_zeroed();
        totals.header.boot_ns = 20;
        totals.sums[VmOp::Mmap as usize].calls = 5;
        totals.sums[VmOp::Mmap as usize].added_bytes = 5 * 4096;
        sums.write(
            Upid(1),
            BootNs(10),
            &totals,
            &mut Pass::new(&tick(), &mut ProcessTable::default(), &mut out),
        );
        totals.header.boot_ns = 30;
        totals.sums[VmOp::Mmap as usize].calls = 7;
        totals.sums[VmOp::Mmap as usize].added_bytes = 7 * 4096;
        sums.write(
            Upid(1),
            BootNs(10),
            &totals,
            &mut Pass::new(&tick(), &mut ProcessTable::default(), &mut out),
        );
        let rows: Vec<_> = out
            .iter()
            .map(|record| match record {
                Record::VmSummary(row) => (
                    row.since_boot_ns.0,
                    row.boot_ns.0,
                    row.call_count,
                    row.added_bytes.0,
                ),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(rows, [(10, 20, 5, 5 * 4096), (20, 30, 2, 2 * 4096)]);
    }
}
