//! Who sent a process the signal that ended it.

use super::decode::comm_text;
use crate::ProcessTable;
use memtrace_abi::SentSignal;
use memtrace_model::{BootNs, ProcessRow, Tgid, Upid};

/// Values of si_code (include/uapi/asm-generic/siginfo.h): sent by the kernel; and what others asked
/// the kernel to send, of whom the process that happens to run is none.
const SI_KERNEL: i32 = 0x80;
const SI_TIMER: i32 = -2;
const SI_MESGQ: i32 = -3;
const SI_ASYNCIO: i32 = -4;
const SI_SIGIO: i32 = -5;
const SI_ASYNCNL: i32 = -60;

/// Who sent the signal that ended a process.
#[derive(Debug, PartialEq)]
pub(super) struct Sender {
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

impl Sender {
    /// The sender of the signal that ended this process; `None` where that was another one than the
    /// last that was sent.
    pub(super) fn of(
        sent: &SentSignal,
        target: Tgid,
        wait_status: i32,
        table: &ProcessTable,
    ) -> Option<Self> {
        if sent.signal == 0 || i32::from(sent.signal) != wait_status & 0x7f {
            return None;
        }
        let tgid = Tgid(sent.current_tgid);
        let is_process = is_by_process(sent) || is_by_end(sent, target);
        let start = BootNs(sent.current_start_boot_ns.cast_signed());
        let process = is_process.then(|| SendingProcess {
            upid: table.identity(tgid, start),
            tgid,
            comm: comm_text(&sent.current_comm),
        });
        Some(Self {
            code: sent.code.into(),
            process,
        })
    }

    /// Fills the columns.
    pub(super) fn note(self, row: &mut ProcessRow) {
        row.exit_signal_code = Some(self.code);
        if let Some(process) = self.process {
            row.exit_signal_sender_upid = process.upid;
            row.exit_signal_sender_tgid = Some(process.tgid);
            row.exit_signal_sender_comm = Some(process.comm);
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

    /// The sender's id; `Some(None)` for the kernel.
    fn sender(sent: &SentSignal) -> Option<Option<u32>> {
        let sender = Sender::of(sent, TARGET, libc::SIGKILL, &ProcessTable::default())?;
        Some(sender.process.map(|process| process.tgid.0))
    }

    #[test]
    fn a_signal_that_did_not_end_the_process_names_no_sender() {
        let table = ProcessTable::default();
        assert_eq!(Sender::of(&sent(0, 8, 0), TARGET, 15, &table), None);
        assert_eq!(Sender::of(&SentSignal::default(), TARGET, 0, &table), None);
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
            let sender = Sender::of(&sent, TARGET, libc::SIGKILL, &table).unwrap();
            let mut row = ProcessRow::default();
            sender.note(&mut row);
            assert_eq!(row.exit_signal_sender_tgid, Some(Tgid(8)));
            assert_eq!(row.exit_signal_sender_comm.as_deref(), Some("kill"));
            row.exit_signal_sender_upid
        };
        // Also of one that has ended.
        assert_eq!(of(10), Some(upid));
        assert_eq!(of(30), None);
    }
}
