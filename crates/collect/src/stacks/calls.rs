//! Calls of the CUDA driver get the stacks that were sent with them.

use super::sites::NO_STACK;
use memtrace_model::{BootNs, CudaCallRow, DurationNs, Record};
use std::collections::HashMap;

/// A call whose stack has not come by then has none.
const PATIENCE: DurationNs = DurationNs(3_000_000_000);
/// Stacks whose call has not come; more are none of calls that have a row.
const NAMED_MAX: usize = 16_384;

/// What is known of calls and stacks that belong together: the thread and the time are the same.
#[derive(Default)]
pub(super) struct Calls {
    named: HashMap<(i32, BootNs), i64>,
    waiting: Vec<CudaCallRow>,
}

impl Calls {
    /// The stack of a call.
    pub(super) fn note(&mut self, tid: i32, at: BootNs, stack_id: i64) {
        if self.named.len() >= NAMED_MAX {
            self.named.clear();
        }
        self.named.insert((tid, at), stack_id);
    }

    /// Writes the calls whose stacks are known, and those that wait no longer.
    pub(super) fn write(
        &mut self,
        calls: Vec<CudaCallRow>,
        now: BootNs,
        is_last: bool,
        out: &mut Vec<Record>,
    ) {
        self.waiting.extend(calls);
        let waiting = std::mem::take(&mut self.waiting);
        for mut call in waiting {
            let named = self.named.remove(&(call.tid, call.boot_ns));
            if named.is_none() && !is_last && now - call.boot_ns < PATIENCE {
                self.waiting.push(call);
                continue;
            }
            call.stack_id = named.filter(|id| *id != NO_STACK);
            out.push(call.into());
        }
    }
}
