//! `signal_generate`: who sent a member a signal that ends it, unless it is handled.

use crate::kernel::{Task, now, read};
use crate::maps::{MEMBERS, TERMINATIONS, count_loss};
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use memtrace_abi::LossClass;
use memtrace_abi::event::{COMM_LEN, Termination};

/// Signals that end no process by default: SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
/// SIGURG, SIGWINCH.
const HARMLESS: u64 = set(&[17, 18, 19, 20, 21, 22, 23, 28]);
/// Signals that programs send each other or themselves all the time and handle: SIGUSR1, SIGUSR2,
/// SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, and real-time signals. They take no other's place.
const EVERYDAY: u64 = set(&[10, 12, 14, 26, 27, 29, 30]) | !0 << 32;

/// SIGHUP, SIGINT, SIGQUIT, SIGTERM: by these a process is asked to end. What it does then is its own
/// doing, so who sent them is kept besides the last signal.
const TERMINATION: u64 = set(&[1, 2, 3, 15]);

/// Results of sending (include/trace/events/signal.h): of all others the signal was dropped, or
/// was pending already, so that the first to send it stands.
const DELIVERED: i32 = 0;
const LOSE_INFO: i32 = 4;

/// In place of a pointer to what is known of a signal: the kernel sent it (SEND_SIG_PRIV). For a
/// process there is 0 (SEND_SIG_NOINFO), which reads as the code 0 (SI_USER).
const SEND_SIG_PRIV: u64 = 1;
const SI_KERNEL: i32 = 0x80;
/// Where si_code is in struct kernel_siginfo: where it is in siginfo_t, the ABI of every architecture
/// but MIPS.
const SI_CODE: u32 = 8;

const fn set(signals: &[u32]) -> u64 {
    let mut set = 0;
    let mut at = 0;
    while at < signals.len() {
        set |= 1 << signals[at];
        at += 1;
    }
    set
}

/// Whether a signal is of a set. 64 is a real-time signal like those before it.
#[inline(always)]
fn is_of(set: u64, signal: u32) -> bool {
    set >> signal.min(63) & 1 != 0
}

/// trace_signal_generate(int sig, struct kernel_siginfo *info, struct task_struct *task, int
/// group, int result), with the lock of the target's signals held: what is written here is
/// written by one at a time. What a process does to its own threads as it ends or calls exec
/// (zap_other_threads) does not come by.
#[btf_tracepoint(function = "signal_generate")]
pub fn signal_generate(ctx: BtfTracePointContext) -> i32 {
    let signal = ctx.arg::<i32>(0);
    let result = ctx.arg::<i32>(4);
    if is_of(HARMLESS, signal as u32) || (result != DELIVERED && result != LOSE_INFO) {
        return 0;
    }
    let tgid = Task(ctx.arg::<*const u8>(2) as u64).tgid();
    let Some(member) = MEMBERS.get_ptr_mut(tgid) else {
        return 0;
    };
    // SAFETY: a field of a map value that only this program writes, one at a time.
    let sent = unsafe { &mut (*member).sent_signal };
    let kept = i32::from(sent.signal);
    if kept != 0 && is_of(EVERYDAY, signal as u32) && !is_of(EVERYDAY, kept as u32) {
        return 0;
    }
    let info = ctx.arg::<*const u8>(1) as u64;
    let code = if info == SEND_SIG_PRIV {
        SI_KERNEL
    } else {
        read(info, SI_CODE)
    };
    // SAFETY: the helper takes no arguments and cannot fail.
    let current = Task(unsafe { bpf_get_current_task() });
    let current_tgid = current.tgid();
    if kept == signal && current_tgid == tgid && code <= 0 {
        // It handled what another sent, and sends it on to itself to end by it.
        return 0;
    }
    sent.current_start_boot_ns = current.process_start();
    sent.current_tgid = current_tgid;
    sent.current_is = current.what();
    sent.signal = signal as u8;
    sent.code = code.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;
    let mut comm = [0; COMM_LEN];
    current.leader().comm(&mut comm);
    sent.current_comm = comm;
    if is_of(TERMINATION, signal as u32) && (current_tgid != tgid || code > 0) {
        let termination = Termination {
            boot_ns: now(),
            sent: *sent,
        };
        if TERMINATIONS.insert(tgid, termination, 0).is_err() {
            count_loss(LossClass::Sender);
        }
        if MEMBERS.get_ptr(tgid).is_none() {
            // It has ended meanwhile, and nobody else would remove this.
            let _ = TERMINATIONS.remove(tgid);
        }
    }
    0
}
