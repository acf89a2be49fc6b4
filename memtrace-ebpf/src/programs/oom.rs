//! `mark_victim`: the OOM killer chose a process.

use crate::kernel::Task;
use crate::maps::layout;
use crate::ring::{header, send_at_once};
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use memtrace_abi::LossClass;
use memtrace_abi::event::{COMM_LEN, Counts, EventKind, Oom};

/// trace_mark_victim(struct task_struct *task, uid_t uid); before 6.9 (int pid).
#[btf_tracepoint(function = "mark_victim")]
pub fn mark_victim(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the helper takes no arguments and cannot fail.
    let trigger = Task(unsafe { bpf_get_current_task() });
    let mut event = Oom {
        header: header(EventKind::Oom, 0, 0),
        trigger_tgid: trigger.tgid(),
        oom_score_adj: 0,
        has_victim: 0,
        reserved: 0,
        counts: Counts::default(),
        victim_comm: [0; COMM_LEN],
        trigger_comm: [0; COMM_LEN],
    };
    trigger.comm(&mut event.trigger_comm);
    if layout!(victim_is_task) != 0 {
        let victim = Task(ctx.arg::<*const u8>(0) as u64);
        event.header.tgid = victim.tgid();
        event.header.start_boot_ns = victim.process_start();
        event.has_victim = 1;
        event.oom_score_adj = victim.oom_score_adj();
        victim.comm(&mut event.victim_comm);
        let mm = victim.mm();
        if !mm.is_null() {
            event.counts = mm.counts();
            mm.settle(&mut event.counts);
        }
    } else {
        event.header.tgid = ctx.arg::<i32>(0) as u32;
    }
    // Who met the limit can end within moments, and then what it had open can no longer be read.
    send_at_once(event, LossClass::Oom);
    0
}
