//! fork, exec, exit and names: who belongs to the recording, kept in the kernel so that a
//! process that lives for a millisecond, is double-forked or reparented is not missed.

use crate::kernel::{Mm, Task, now, read};
use crate::maps::{
    CUDA_ENTERED, ENDED, LEAVING, MEMBERS, PYTHON, SCRATCH, SCRATCH_LEN, SPACES, TARGET_CGROUPS,
    TERMINATIONS, config, count_kept, count_loss, layout,
};
use crate::ring::{header, is_nearly_full, send_scratch, try_send, try_send_bytes};
use crate::space::Space;
use crate::vm::VmState;
use aya_ebpf::helpers::generated::{
    bpf_get_current_task, bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_probe_read_user_str,
};
use aya_ebpf::macros::{btf_tracepoint, fentry};
use aya_ebpf::programs::{BtfTracePointContext, FEntryContext};
use memtrace_abi::LossClass;
use memtrace_abi::config::Member;
use memtrace_abi::event::{
    ARGS_MAX, COMM_LEN, Comm, Counts, EndedKey, EventKind, Exec, Exit, Fork, ORIGIN_ARGS_LEN,
    Origin, PATH_MAX, SentSignal, TaskSeen,
};

/// Numbers of limits in include/uapi/asm-generic/resource.h, which x86 and Arm have.
const RLIMIT_DATA: u32 = 2;
const RLIMIT_AS: u32 = 9;

/// Enters a process that is already running. Answers whether it is followed now.
#[inline(always)]
pub fn adopt(seen: &TaskSeen, mm: Mm) -> bool {
    let tgid = seen.tgid;
    let owns_mm = !follows_other(mm, tgid);
    if !enter_running(seen, if owns_mm { mm } else { Mm(0) }) {
        return false;
    }
    if owns_mm {
        follow_running(seen, mm);
    }
    if tgid != config!(held_tgid) {
        VmState::follow(tgid, seen.start_boot_ns, mm);
    } else if let Some(space) = SPACES.get_ptr_mut(mm.0) {
        // SAFETY: a map value; the held process runs nothing yet.
        unsafe { (*space).is_recorders_copy = 1 };
    }
    true
}

/// Whether the address space is followed on behalf of another process.
#[inline(always)]
fn follows_other(mm: Mm, tgid: u32) -> bool {
    match SPACES.get_ptr(mm.0) {
        // SAFETY: one field of a map value.
        Some(space) => unsafe { (*space).tgid != tgid },
        None => false,
    }
}

#[inline(always)]
fn enter(tgid: u32, start_boot_ns: u64, mm: Mm, origin: Origin) -> bool {
    let member = Member {
        start_boot_ns,
        mm: mm.0,
        earlier_peak_pages: 0,
        earlier_peak_boot_ns: 0,
        exec_boot_ns: 0,
        origin,
        sent_signal: SentSignal::default(),
    };
    let is_entered = MEMBERS.insert(tgid, member, 0).is_ok();
    if !is_entered {
        count_loss(LossClass::Members);
    }
    is_entered
}

// A member and the state of its space are too large to be on the stack together with an
// event: each of the following is a function with a stack of its own.

#[inline(never)]
fn enter_running(seen: &TaskSeen, mm: Mm) -> bool {
    let origin = Origin {
        parent_start_boot_ns: seen.parent_start_boot_ns,
        cgroup_id: seen.cgroup_id,
        parent_tgid: seen.parent_tgid,
        uid: seen.uid,
        ns_tgid: seen.ns_tgid,
        execs: 0,
        was_fork_seen: 0,
        args_len: 0,
        comm: seen.comm,
        args: [0; ORIGIN_ARGS_LEN],
    };
    enter(seen.tgid, seen.start_boot_ns, mm, origin)
}

#[inline(never)]
fn follow_running(seen: &TaskSeen, mm: Mm) -> u32 {
    if !Space::follow(
        mm,
        seen.tgid,
        seen.start_boot_ns,
        &seen.counts,
        0,
        seen.boot_ns,
        true,
    ) {
        count_loss(LossClass::Members);
    }
    0
}

#[inline(never)]
fn enter_child(fork: &Fork, mm: Mm) -> bool {
    let origin = Origin {
        parent_start_boot_ns: fork.parent_start_boot_ns,
        cgroup_id: fork.cgroup_id,
        parent_tgid: fork.parent_tgid,
        uid: fork.uid,
        ns_tgid: fork.ns_tgid,
        execs: 0,
        was_fork_seen: 1,
        args_len: 0,
        comm: fork.comm,
        args: [0; ORIGIN_ARGS_LEN],
    };
    enter(fork.header.tgid, fork.header.start_boot_ns, mm, origin)
}

#[inline(never)]
fn follow_child(fork: &Fork, mm: Mm) -> u32 {
    let header = &fork.header;
    if !Space::follow(
        mm,
        header.tgid,
        header.start_boot_ns,
        &fork.counts,
        fork.counts.rss_pages(),
        header.boot_ns,
        true,
    ) {
        count_loss(LossClass::Members);
    }
    0
}

/// A copy of an interpreter keeps its frames where the first one does.
#[inline(never)]
fn inherit_interpreter(parent_tgid: u32, tgid: u32, mm: Mm) -> u32 {
    if let Some(layout) = PYTHON.get_ptr(parent_tgid) {
        // SAFETY: a copy of a map value, which user space replaces whole.
        let mut layout = unsafe { *layout };
        layout.mm = mm.0;
        // Where the table is full, its frames stay unknown, as samples say.
        let _ = PYTHON.insert(tgid, layout, 0);
    }
    0
}

#[inline(never)]
fn follow_executing(tgid: u32, start_boot_ns: u64, mm: Mm, counts: &Counts, boot_ns: u64) -> u32 {
    if !Space::follow(mm, tgid, start_boot_ns, counts, 0, boot_ns, false) {
        count_loss(LossClass::Members);
    }
    0
}

/// Enters a process that called exec inside a target cgroup.
#[inline(never)]
fn enter_executing(task: Task, start_boot_ns: u64, mm: Mm, cgroup_id: u64) -> bool {
    let parent = task.real_parent();
    let origin = Origin {
        parent_start_boot_ns: parent.process_start(),
        cgroup_id,
        parent_tgid: parent.tgid(),
        uid: task.uid(),
        ns_tgid: task.ns_tgid(),
        execs: 0,
        was_fork_seen: 0,
        args_len: 0,
        comm: [0; COMM_LEN],
        args: [0; ORIGIN_ARGS_LEN],
    };
    enter(task.tgid(), start_boot_ns, mm, origin)
}

/// trace_sched_process_fork(struct task_struct *parent, struct task_struct *child), in the
/// parent's context before the child runs. Threads fire it too.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    let parent = Task(ctx.arg::<*const u8>(0) as u64);
    let child = Task(ctx.arg::<*const u8>(1) as u64);
    let tgid = child.tgid();
    if child.pid() != tgid {
        return 0;
    }
    let parent_tgid = parent.tgid();
    // SAFETY: presence only.
    if config!(is_all) == 0 && unsafe { MEMBERS.get(parent_tgid) }.is_none() {
        return 0;
    }
    let mm = child.mm();
    if mm.is_null() {
        return 0;
    }
    let is_mm_shared = mm == parent.mm();
    let mut event = Fork {
        header: header(EventKind::Fork, tgid, child.process_start()),
        parent_tgid,
        is_mm_shared: u32::from(is_mm_shared),
        parent_start_boot_ns: parent.process_start(),
        counts: Counts::default(),
        uid: child.uid(),
        ns_tgid: child.ns_tgid(),
        cgroup_id: child.memory_cgroup(),
        comm: [0; COMM_LEN],
    };
    child.comm(&mut event.comm);
    if !is_mm_shared {
        event.counts = mm.counts();
        mm.settle(&mut event.counts);
    }
    let start = event.header.start_boot_ns;
    if !enter_child(&event, if is_mm_shared { Mm(0) } else { mm }) {
        return 0;
    }
    if !is_mm_shared {
        follow_child(&event, mm);
        if config!(has_stacks) != 0 {
            inherit_interpreter(parent_tgid, tgid, mm);
        }
    }
    VmState::follow(tgid, start, mm);
    if !try_send(event) {
        count_kept();
    }
    0
}

/// Stops following a process's address space and answers its state; nothing where the
/// space belongs to another process.
#[inline(always)]
fn unfollow(mm: Mm, tgid: u32) -> Option<Space> {
    let space = SPACES.get_ptr_mut(mm.0)?;
    // SAFETY: a map value; see `Space` about concurrent writes.
    let mut copy = unsafe { *space };
    if copy.tgid != tgid {
        return None;
    }
    let _ = SPACES.remove(mm.0);
    copy.fold_high();
    Some(copy)
}

/// trace_sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm
/// *bprm), once the new program's address space is in place.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg::<*const u8>(0) as u64);
    let bprm = ctx.arg::<*const u8>(2) as u64;
    let tgid = task.tgid();
    let mm = task.mm();
    let start = task.process_start();
    let boot_ns = now();
    let cgroup_id = task.memory_cgroup();
    let mut counts = mm.counts();
    mm.settle(&mut counts);
    let is_member = match MEMBERS.get_ptr_mut(tgid) {
        Some(member) => {
            // SAFETY: a map value that only this process's own events write.
            let member = unsafe { &mut *member };
            leave_image(member, tgid);
            member.mm = mm.0;
            member.start_boot_ns = start;
            true
        }
        None => {
            let is_target = config!(is_all) != 0
                // SAFETY: presence only.
                || (config!(has_target_cgroups) != 0
                    && unsafe { TARGET_CGROUPS.get(cgroup_id) }.is_some());
            is_target && enter_executing(task, start, mm, cgroup_id)
        }
    };
    let mut execs = 0;
    if is_member {
        execs = note_exec(task, mm, cgroup_id, boot_ns);
        follow_executing(tgid, start, mm, &counts, boot_ns);
        VmState::follow(tgid, start, mm);
    } else if config!(offers_strangers) == 0 {
        return 0;
    }
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    let bytes = scratch.cast::<u8>();
    // SAFETY: the scratch room is this CPU's own and larger than an Exec at its start.
    let event = unsafe { &mut *bytes.cast::<Exec>() };
    event.header = header(EventKind::Exec, tgid, start);
    event.header.boot_ns = boot_ns;
    event.counts = counts;
    event.uid = task.uid();
    event.ns_tgid = task.ns_tgid();
    event.cgroup_id = cgroup_id;
    task.comm(&mut event.comm);
    event.is_member = u32::from(is_member);
    event.parent_tgid = task.real_parent().tgid();
    let path_len = read_path(bytes, bprm);
    event.path_len = path_len as u16;
    event.execs = execs;
    let args_len = read_arguments(bytes, size_of::<Exec>() + path_len, mm);
    event.args_len = args_len as u16;
    if !send_scratch(size_of::<Exec>() + path_len + args_len) {
        if is_member {
            count_kept();
        } else {
            count_loss(LossClass::Lifecycle);
        }
    }
    0
}

/// Keeps with a member what its new program is. Answers which exec of it this is.
#[inline(never)]
fn note_exec(task: Task, mm: Mm, cgroup_id: u64, boot_ns: u64) -> u32 {
    let Some(member) = MEMBERS.get_ptr_mut(task.tgid()) else {
        return 0;
    };
    // SAFETY: a map value that only this process's own events write.
    let member = unsafe { &mut *member };
    member.exec_boot_ns = boot_ns;
    let origin = &mut member.origin;
    let execs = match origin.execs.wrapping_add(1) {
        0 => 1,
        execs => execs,
    };
    origin.execs = execs;
    origin.uid = task.uid();
    origin.cgroup_id = cgroup_id;
    task.comm(&mut origin.comm);
    let (begin, end) = mm.arguments();
    let whole = if end > begin { end - begin } else { 0 };
    let len = whole.min(ORIGIN_ARGS_LEN as u64);
    // Through memory, as in `send_scratch`.
    // SAFETY: a local value.
    let len = unsafe { core::ptr::read_volatile(&raw const len) };
    if len > ORIGIN_ARGS_LEN as u64 {
        return u32::from(execs);
    }
    // SAFETY: the destination has room for `len` bytes; the helper checks the source.
    let failed = unsafe {
        bpf_probe_read_user(
            origin.args.as_mut_ptr().cast(),
            len as u32,
            begin as *const _,
        )
    };
    origin.args_len = if failed == 0 {
        whole.min(u64::from(u8::MAX)) as u8
    } else {
        0
    };
    u32::from(execs)
}

/// Folds the peak of the address space that exec left behind into the member's. A function with
/// a stack of its own, as above.
#[inline(never)]
fn leave_image(member: &mut Member, tgid: u32) -> u32 {
    let Some(space) = unfollow(Mm(member.mm), tgid) else {
        return 0;
    };
    let left_peak_pages = space.left_peak_pages();
    if space.is_recorders_copy == 0 && left_peak_pages > member.earlier_peak_pages {
        member.earlier_peak_pages = left_peak_pages;
        member.earlier_peak_boot_ns = space.peak_boot_ns;
    }
    0
}

/// Copies the name of the file that runs (for a script, its interpreter) behind the event.
/// Answers its length without the NUL.
#[inline(always)]
fn read_path(bytes: *mut u8, bprm: u64) -> usize {
    let path: u64 = read(bprm, layout!(binprm_interp));
    // SAFETY: the scratch room has PATH_MAX bytes behind the event.
    let read = unsafe {
        bpf_probe_read_kernel_str(
            bytes.add(size_of::<Exec>()).cast(),
            PATH_MAX as u32,
            path as *const _,
        )
    };
    if read <= 1 || read > PATH_MAX as i64 {
        0
    } else {
        read as usize - 1
    }
}

/// Copies the argument area behind what stands at `offset`. Answers its length: 0 when the
/// area is empty or not resident. What is longer than there is room for is cut.
///
/// A program that writes a title over its arguments may run on into its environment; then
/// the last byte of the arguments is no longer NUL, and the title ends at the first NUL
/// (get_mm_cmdline() reads it so for /proc/PID/cmdline).
#[inline(always)]
fn read_arguments(bytes: *mut u8, offset: usize, mm: Mm) -> usize {
    let (begin, end) = mm.arguments();
    if end <= begin || offset > SCRATCH_LEN - 2 * ARGS_MAX {
        return 0;
    }
    let len = (end - begin).min(ARGS_MAX as u64) as usize;
    // A mask, because the verifier follows bounds through it.
    let len = len & (2 * ARGS_MAX - 1);
    let mut last = 0_u8;
    // SAFETY: the helper checks the sources; `offset + 2 * ARGS_MAX` is within the scratch
    // room, and neither length is more than that.
    unsafe {
        let to = bytes.add(offset).cast();
        bpf_probe_read_user((&raw mut last).cast(), 1, (end - 1) as *const _);
        if last == 0 {
            let failed = bpf_probe_read_user(to, len as u32, begin as *const _);
            return if failed == 0 { len } else { 0 };
        }
        let read = bpf_probe_read_user_str(to, ARGS_MAX as u32, begin as *const _);
        if read > 0 && read <= ARGS_MAX as i64 {
            read as usize
        } else {
            0
        }
    }
}

/// Keeps the new name of a member. Returns 1 where it is one.
#[inline(never)]
fn keep_comm(tgid: u32, name: *const u8) -> u32 {
    match MEMBERS.get_ptr_mut(tgid) {
        // SAFETY: a map value that only this process's own events write.
        Some(member) => unsafe {
            read_comm(&mut (*member).origin.comm, name);
            1
        },
        None => 0,
    }
}

#[inline(always)]
fn read_comm(comm: &mut [u8; COMM_LEN], name: *const u8) {
    // SAFETY: the destination is COMM_LEN bytes; the helper checks the source.
    unsafe { bpf_probe_read_kernel_str(comm.as_mut_ptr().cast(), COMM_LEN as u32, name.cast()) };
}

/// trace_task_rename(struct task_struct *task, const char *comm), before the name is set.
#[btf_tracepoint(function = "task_rename")]
pub fn task_rename(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg::<*const u8>(0) as u64);
    let name = ctx.arg::<*const u8>(1);
    let tgid = task.tgid();
    if task.pid() != tgid {
        return 0;
    }
    let is_member = keep_comm(tgid, name) != 0;
    if !is_member && config!(offers_strangers) == 0 {
        return 0;
    }
    // SAFETY: the helper takes no arguments and cannot fail.
    let is_own = unsafe { bpf_get_current_task() } == task.0;
    if is_own && task.mm().arguments().1 == 0 {
        // exec names the task before its new address space has arguments; the exec event
        // tells it all.
        return 0;
    }
    if is_nearly_full() {
        count_loss(LossClass::Title);
        return 0;
    }
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    let bytes = scratch.cast::<u8>();
    // SAFETY: the scratch room is this CPU's own and larger than a Comm at its start.
    let event = unsafe { &mut *bytes.cast::<Comm>() };
    event.header = header(EventKind::Comm, tgid, task.process_start());
    event.comm = [0; COMM_LEN];
    event.is_member = u32::from(is_member);
    read_comm(&mut event.comm, name);
    let args_len = if is_own {
        read_arguments(bytes, size_of::<Comm>(), task.mm())
    } else {
        0
    };
    event.args_len = args_len as u32;
    if !send_scratch(size_of::<Comm>() + args_len) {
        count_loss(LossClass::Title);
    }
    0
}

/// trace_sched_process_exit(struct task_struct *p, bool group_dead); before 6.16 without
/// the second, and after the address space was dropped.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg::<*const u8>(0) as u64);
    let is_group_dead = if layout!(exit_has_group_dead) != 0 {
        ctx.arg::<u8>(1) != 0
    } else {
        task.live_threads() == 0
    };
    // One that is killed inside a call of the CUDA driver does not return from it.
    if config!(has_cuda) != 0 {
        let _ = CUDA_ENTERED.remove(task.pid());
    }
    if is_group_dead {
        end(task, 0);
    }
    0
}

/// taskstats_exit(struct task_struct *tsk, int group_dead): where do_exit() passes by
/// before 6.16 while the address space is still there, and every thread has handed in the
/// pages that it kept count of (sync_mm_rss(), before 6.2). Whoever ends here is no member
/// any more when the tracepoint follows.
#[fentry(function = "taskstats_exit")]
pub fn taskstats_exit(ctx: FEntryContext) -> i32 {
    if ctx.arg::<i32>(1) != 0 {
        end(Task(ctx.arg::<*const u8>(0) as u64), 1);
    }
    0
}

/// The last thread of a process ends. Each caller has a `room` of its own for the event: where
/// the kernel preempts its own code, one can run in the middle of the other.
#[inline(always)]
fn end(task: Task, room: u32) {
    let tgid = task.tgid();
    let Some(member) = MEMBERS.get_ptr(tgid) else {
        return;
    };
    let Some(leaving) = LEAVING.get_ptr_mut(room) else {
        return;
    };
    // SAFETY: a map value that only this process's own events write, but for its last signal, which
    // its senders write; and this CPU's value of a per-CPU array that only this caller uses.
    let (member, event) = unsafe { (&*member, &mut *leaving) };
    let own_mm = Mm(member.mm);
    event.ended.origin = member.origin;
    event.sent_signal = member.sent_signal;
    // SAFETY: a copy of a map value that only the program at signals writes. It may have written
    // one for the process that had this tgid before, just after its end.
    event.termination = unsafe { TERMINATIONS.get(tgid) }
        .filter(|sent| sent.boot_ns >= task.process_start())
        .copied()
        .unwrap_or_default();
    event.rlimit_as_bytes = task.rlimit(RLIMIT_AS);
    event.rlimit_data_bytes = task.rlimit(RLIMIT_DATA);
    event.ended.earlier_peak_pages = member.earlier_peak_pages;
    event.ended.earlier_peak_boot_ns = member.earlier_peak_boot_ns;
    // Two last threads can both see the group dead before 6.16: one of them removes.
    if MEMBERS.remove(tgid).is_err() {
        return;
    }
    let _ = TERMINATIONS.remove(tgid);
    if config!(has_stacks) != 0 {
        let _ = PYTHON.remove(tgid);
    }
    VmState::leave(tgid);
    event.header = header(EventKind::Exit, tgid, task.process_start());
    let (maxrss_pages, children_maxrss_pages) = task.maxrss_pages();
    let ended = &mut event.ended;
    ended.boot_ns = event.header.boot_ns;
    ended.wait_status = task.wait_status();
    ended.maxrss_pages = maxrss_pages.max(children_maxrss_pages);
    ended.has_own_mm = 0;
    ended.hiwater_pages = 0;
    ended.seen_peak_pages = 0;
    ended.seen_peak_boot_ns = 0;
    event.counts = Counts::default();
    event.pending_peak = [0; 3];
    event.pending_peak_boot_ns = 0;
    let mm = task.mm();
    if !own_mm.is_null() && mm == own_mm {
        ended.has_own_mm = 1;
        ended.hiwater_pages = mm.hiwater_pages();
        let mut counts = mm.counts();
        mm.settle(&mut counts);
        event.counts = counts;
    }
    ended.rss_pages = event.counts.rss_pages();
    if let Some(space) = unfollow(own_mm, tgid) {
        ended.seen_peak_pages = space.peak_pages;
        ended.seen_peak_boot_ns = space.peak_boot_ns;
        if space.rises_above_sent() {
            event.pending_peak = space.high;
            event.pending_peak_boot_ns = space.high_boot_ns;
        }
    }
    // SAFETY: the event as bytes; it has no padding.
    let bytes = unsafe { core::slice::from_raw_parts(leaving.cast::<u8>(), size_of::<Exit>()) };
    if try_send_bytes(bytes) {
        return;
    }
    let key = EndedKey {
        start_boot_ns: event.header.start_boot_ns,
        tgid,
        reserved: 0,
    };
    if ENDED.insert(key, &event.ended, 0).is_ok() {
        count_kept();
        let is_by_signal = event.sent_signal.signal != 0 && event.ended.wait_status & 0x7f != 0;
        if is_by_signal || event.termination.sent.signal != 0 {
            count_loss(LossClass::Sender);
        }
    } else {
        count_loss(LossClass::Lifecycle);
    }
}
