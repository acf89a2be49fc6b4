//! Who sent a process the signal that ended it, and the last one that asked it to end.

use super::decode::comm_text;
use crate::ProcessTable;
use memtrace_abi::{Exit, SentSignal, Termination};
use memtrace_model::{BootNs, ProcessRow, Tgid, Upid};

/// Values of si_code (include/uapi/asm-generic/siginfo.h): sent by the kernel; and what others asked
/// the kernel to send, of whom the process that happens to run is none.
const SI_KERNEL: i32 = 0x80;
const SI_TIMER: i32 = -2;
const SI_MESGQ: i32 = -3;
const SI_ASYNCIO: i32 = -4;
const SI_SIGIO: i32 = -5;
const SI_ASYNCNL: i32 = -60;

/// What the kernel knows of the signals that were sent to a process that ended.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Senders {
    /// Of the signal that ended it; `None` where that was another one than the last that was sent.
    exit: Option<Sender>,
    /// Of the last termination signal, with its number and when it was sent.
    termination: Option<(i32, BootNs, Sender)>,
}

/// Who sent a signal.
#[derive(Debug, PartialEq)]
struct Sender {
    code: i32,
    /// `None` where it was the kernel.
    process: Option<SendingProcess>,
}

#[derive(Debug, PartialEq)]
struct SendingProcess {
    upid: Option<Upid>,
    tgid: Tgid,
    comm: String,
}

impl Senders {
    /// Those of a process that ended.
    pub(super) fn of(exit: &Exit, table: &ProcessTable) -> Self {
        let target = Tgid(exit.header.tgid);
        let sender = |sent: &SentSignal| Sender::of(sent, target, table);
        let (sent, status) = (&exit.sent_signal, exit.ended.wait_status);
        let has_ended_it = sent.signal != 0 && i32::from(sent.signal) == status & 0x7f;
        let Termination {
            boot_ns,
            sent: asked,
        } = &exit.termination;
        Self {
            exit: has_ended_it.then(|| sender(sent)),
            termination: (asked.signal != 0).then(|| {
                let at = BootNs(boot_ns.cast_signed());
                (asked.signal.into(), at, sender(asked))
            }),
        }
    }

    /// Fills the columns.
    pub(super) fn note(self, row: &mut ProcessRow) {
        if let Some(Sender { code, process }) = self.exit {
            row.exit_signal_code = Some(code);
            if let Some(process) = process {
                row.exit_signal_sender_upid = process.upid;
                row.exit_signal_sender_tgid = Some(process.tgid);
                row.exit_signal_sender_comm = Some(process.comm);
            }
        }
        if let Some((signal, at, Sender { process, .. })) = self.termination {
            row.termination_signal = Some(signal);
            row.termination_signal_boot_ns = Some(at);
            if let Some(process) = process {
                row.termination_signal_sender_upid = process.upid;
                row.termination_signal_sender_tgid = Some(process.tgid);
                row.termination_signal_sender_comm = Some(process.comm);
            }
        }
    }
}

impl Sender {
    fn of(sent: &SentSignal, target: Tgid, table: &ProcessTable) -> Self {
        let tgid = Tgid(sent.current_tgid);
        let is_process = is_by_process(sent) || is_by_end(sent, target);
        let start = BootNs(sent.current_start_boot_ns.cast_signed());
        let process = is_process.then(|| SendingProcess {
            upid: table.identity(tgid, start),
            tgid,
            comm: comm_text(&sent.current_comm),
        });
        Self {
            code: sent.code.into(),
            process,
        }
    }
}

/// Whether the running process sent it. A kernel thread is the kernel.
fn is_by_process(sent: &SentSignal) -> bool {
    let is_asked_for = matches!(
        i32::from(sent.code),
        SI_TIMER | SI_MESGQ | SI_ASYNCIO | SI_SIGIO | SI_ASYNCNL
    );
    sent.code <= 0 && !is_asked_for && sent.current_is & SentSignal::KERNEL_THREAD == 0
}

/// Whether the kernel sent it because the running process ended: the first process of a pid namespace
/// (zap_pid_ns_processes), or the leader of a session with a terminal (disassociate_ctty).
fn is_by_end(sent: &SentSignal, target: Tgid) -> bool {
    i32::from(sent.code) == SI_KERNEL
        && sent.current_is == SentSignal::EXITING
        && sent.current_tgid != target.0
        && matches!(i32::from(sent.signal), libc::SIGKILL | libc::SIGHUP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Birth;
    use memtrace_model::FirstSeenBy;
    use zerocopy::FromZeros;

    const TARGET: Tgid = Tgid(7);

    fn sent(code: i32, tgid: u32, current_is: u8) -> SentSignal {
        let mut comm = [0; 16];
        comm[..4].copy_from_slice(b"kill");
        SentSignal {
            current_start_boot_ns: 10,
            current_tgid: tgid,
            code: code as i16,
            signal: libc::SIGKILL as u8,
            current_is,
            current_comm: comm,
        }
    }

    /// The row of a process to which these were sent.
    fn row(sent: SentSignal, asked: SentSignal, status: i32, table: &ProcessTable) -> ProcessRow {
        let mut exit = Exit::new_zeroed();
        exit.header.tgid = TARGET.0;
        exit.ended.wait_status = status;
        exit.sent_signal = sent;
        exit.termination = Termination {
            boot_ns: 40,
            sent: asked,
        };
        let mut row = ProcessRow::default();
        Senders::of(&exit, table).note(&mut row);
        row
    }

    fn killed(sent: &SentSignal, table: &ProcessTable) -> ProcessRow {
        row(*sent, SentSignal::default(), libc::SIGKILL, table)
    }

    /// The sender's id; `Some(None)` for the kernel.
    fn sender(sent: &SentSignal) -> Option<Option<u32>> {
        let row = killed(sent, &ProcessTable::default());
        row.exit_signal_code?;
        Some(row.exit_signal_sender_tgid.map(|tgid| tgid.0))
    }

    #[test]
    fn a_signal_that_did_not_end_the_process_names_no_sender() {
        let table = ProcessTable::default();
        let none = SentSignal::default();
        assert_eq!(row(sent(0, 8, 0), none, 15, &table), ProcessRow::default());
        assert_eq!(row(none, none, 0, &table), ProcessRow::default());
    }

    #[test]
    fn who_asked_it_to_end_is_known_however_it_ended() {
        let asked = |code, tgid| SentSignal {
            signal: libc::SIGTERM as u8,
            ..sent(code, tgid, 0)
        };
        let own = sent(-6, TARGET.0, 0);
        // It handled that, and exited or aborted.
        for (last, status) in [(asked(0, 8), 1 << 8), (own, libc::SIGKILL)] {
            let row = row(last, asked(0, 8), status, &ProcessTable::default());
            assert_eq!(row.termination_signal, Some(libc::SIGTERM));
            assert_eq!(row.termination_signal_boot_ns, Some(BootNs(40)));
            assert_eq!(row.termination_signal_sender_tgid, Some(Tgid(8)));
            assert_eq!(row.termination_signal_sender_comm.as_deref(), Some("kill"));
            let is_by_itself = row.exit_signal_sender_tgid == Some(TARGET);
            assert_eq!(is_by_itself, status == libc::SIGKILL);
        }
        // A terminal's Ctrl-C is the kernel's.
        let row = row(own, asked(0x80, 8), 0, &ProcessTable::default());
        assert_eq!(row.termination_signal, Some(libc::SIGTERM));
        assert_eq!(row.termination_signal_sender_tgid, None);
    }

    #[test]
    fn the_running_process_is_the_sender_unless_the_code_says_otherwise() {
        const SI_USER: i32 = 0;
        const SI_TKILL: i32 = -6;
        assert_eq!(sender(&sent(SI_USER, 8, 0)), Some(Some(8)));
        assert_eq!(sender(&sent(SI_TKILL, 7, 0)), Some(Some(7)));
        assert_eq!(sender(&sent(SI_TIMER, 8, 0)), Some(None));
        assert_eq!(sender(&sent(SI_KERNEL, 8, 0)), Some(None));
        assert_eq!(
            sender(&sent(SI_USER, 8, SentSignal::KERNEL_THREAD)),
            Some(None)
        );
    }

    #[test]
    fn what_the_kernel_kills_as_a_process_ends_is_that_process_and_no_end_of_its_own() {
        assert_eq!(
            sender(&sent(SI_KERNEL, 8, SentSignal::EXITING)),
            Some(Some(8))
        );
        assert_eq!(sender(&sent(SI_KERNEL, 7, SentSignal::EXITING)), Some(None));
    }

    #[test]
    fn a_recorded_sender_is_known_by_its_id_and_its_start() {
        let mut table = ProcessTable::default();
        let birth = |start| Birth {
            tgid: Tgid(8),
            start: BootNs(start),
            seen_by: FirstSeenBy::Fork,
            parent: None,
            comm: String::new(),
        };
        let upid = table.enter(birth(10), BootNs(10));
        table.enter(birth(20), BootNs(20));
        let of = |start| {
            let mut sent = sent(0, 8, 0);
            sent.current_start_boot_ns = start;
            let row = killed(&sent, &table);
            assert_eq!(row.exit_signal_sender_tgid, Some(Tgid(8)));
            assert_eq!(row.exit_signal_sender_comm.as_deref(), Some("kill"));
            row.exit_signal_sender_upid
        };
        // Also of one that has ended.
        assert_eq!(of(10), Some(upid));
        assert_eq!(of(30), None);
    }
}
