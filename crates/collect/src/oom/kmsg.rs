//! Reads the kernel log from /dev/kmsg, from now on.

use super::report::ReportReader;
use memtrace_model::{BootNs, DurationNs, OomRow};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The longest record that the kernel hands out (PRINTK_MESSAGE_MAX, 6.3; 8,192 before).
const RECORD_LIMIT: usize = 8192;
/// Records read per poll, so that a flood in the log can't hold up a recording.
const RECORDS_PER_POLL: usize = 10_000;

/// The kernel log can't be read.
#[derive(Debug, thiserror::Error)]
pub enum KmsgError {
    /// With kernel.dmesg_restrict=1 it takes CAP_SYSLOG.
    #[error("opening /dev/kmsg: {0}")]
    Open(io::Error),
    /// Reading failed after it was opened.
    #[error("reading /dev/kmsg: {0}")]
    Read(io::Error),
}

/// Follows the kernel log for kills by the OOM killer.
#[derive(Debug)]
pub struct KmsgReader {
    log: OwnedFd,
    buffer: Vec<u8>,
    reports: ReportReader,
    clock: LogClock,
}

impl KmsgReader {
    /// Opens the log at its end: what was logged before is not part of a recording.
    ///
    /// # Errors
    /// When the log can't be opened: no permission, or none in this container.
    pub fn open() -> Result<Self, KmsgError> {
        Self::open_at(Path::new("/dev/kmsg")).map_err(|error| KmsgError::Open(error.into()))
    }

    fn open_at(path: &Path) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::seek(&log, SeekFrom::End(0))?;
        Ok(Self {
            log,
            buffer: vec![0; RECORD_LIMIT],
            reports: ReportReader::default(),
            clock: LogClock::default(),
        })
    }

    /// Reads what was logged since the last call and gives the kills in it, as [`super::logged`] and
    /// [`super::complete`] take them. Never waits.
    ///
    /// # Errors
    /// When reading fails. Records that were overwritten before they were read are no
    /// error: the reader goes on behind them.
    pub fn poll(&mut self, now: BootNs) -> Result<Vec<OomRow>, KmsgError> {
        let mut found = Vec::new();
        for _ in 0..RECORDS_PER_POLL {
            match rustix::io::read(&self.log, self.buffer.as_mut_slice()) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(length) => {
                    let record = self.buffer.get(..length).unwrap_or_default();
                    if let Some(record) = Record::parse(record) {
                        let boot = self.clock.place(record.micros, now);
                        found.extend(self.reports.feed(&record.text, boot));
                    }
                }
                // The ring came round; the next read starts at what is left of it.
                Err(Errno::PIPE) => self.reports.reset(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(KmsgError::Read(error.into())),
            }
        }
        self.clock.polled(now);
        Ok(found)
    }
}

/// One record of the kernel's own.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    micros: i64,
    text: String,
}

impl Record {
    /// `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,…];TEXT\n[ KEY=VALUE\n…]`
    /// (Documentation/ABI/testing/dev-kmsg). `None` for what a program wrote into the log:
    /// the kernel never gives that facility 0 (devkmsg_write()), so a kill cannot be made
    /// up.
    fn parse(record: &[u8]) -> Option<Self> {
        let record = String::from_utf8_lossy(record);
        let (header, body) = record.split_once(';')?;
        let mut fields = header.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let micros = fields.nth(1)?.parse().ok()?;
        let is_the_kernels = priority >> 3 == 0;
        let text = body.split('\n').next()?;
        is_the_kernels.then(|| Self {
            micros,
            text: unescape(text),
        })
    }
}

/// Turns `\x0a` and its like back: the kernel writes every byte so that is not printable
/// ASCII, and the backslash (append_char() in kernel/printk/printk.c).
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        let code = after.get(..2);
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Tells the log's clock from the recording's.
///
/// The log is stamped with local_clock(), which is corrected by nobody and stands still
/// in suspend: within days it is seconds away from CLOCK_BOOTTIME. But a record that is
/// read now was written after the log was last read empty, and the smallest delay between
/// writing and reading that was ever seen is close to none.
#[derive(Debug, Default)]
struct LogClock {
    offset_ns: Option<i64>,
    offset_at: BootNs,
    polled_at: Option<BootNs>,
}

/// After this time the two clocks are compared anew.
const OFFSET_LIFETIME: DurationNs = DurationNs(600_000_000_000);

impl LogClock {
    /// When a record was written that is read at `now`.
    fn place(&mut self, micros: i64, now: BootNs) -> BootNs {
        let stamp = micros.saturating_mul(1000);
        let apart = now.0.saturating_sub(stamp);
        let is_better = self
            .offset_ns
            .is_none_or(|offset| apart < offset || now - self.offset_at > OFFSET_LIFETIME);
        if is_better {
            self.offset_ns = Some(apart);
            self.offset_at = now;
        }
        let boot = stamp.saturating_add(self.offset_ns.unwrap_or(apart));
        let earliest = self.polled_at.unwrap_or(BootNs(boot));
        BootNs(boot).max(earliest).min(now)
    }

    fn polled(&mut self, now: BootNs) {
        self.polled_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_of_the_kernel_is_taken_apart() {
        let record = Record::parse(b"6,575,4402194908,-,caller=T1;a;b\\x0ac\n SUBSYSTEM=x\n");
        assert_eq!(
            record,
            Some(Record {
                micros: 4_402_194_908,
                text: "a;b\nc".to_owned(),
            })
        );
    }

    #[test]
    fn a_record_that_a_program_wrote_is_not_believed() {
        let forged = b"12,575,4402194908,-;Out of memory: Killed process 1 (init) total-vm:1kB\n";
        assert_eq!(Record::parse(forged), None);
    }

    #[test]
    fn only_whole_escapes_are_turned_back() {
        assert_eq!(unescape("a\\x5cb\\xc3\\xa9\\xzz\\x1"), "a\\bé\\xzz\\x1");
    }

    #[test]
    fn a_record_is_placed_between_two_polls_and_by_the_least_delay_seen() {
        let mut clock = LogClock::default();
        // The log's clock is 1 ms behind; the first record was read 5 ms after it was
        // written, the second 1 ms after.
        let at = |us: i64| BootNs(us * 1000);
        assert_eq!(clock.place(9_000, at(15_000)), at(15_000));
        clock.polled(at(15_000));
        assert_eq!(clock.place(19_000, at(21_000)), at(21_000));
        clock.polled(at(21_000));
        assert_eq!(clock.place(30_000, at(40_000)), at(32_000));
        clock.polled(at(40_000));
        assert_eq!(
            clock.place(1_000, at(50_000)),
            at(40_000),
            "not before the last poll"
        );
    }

    mod needs_kmsg {
        use super::*;

        #[test]
        fn the_log_of_this_kernel_can_be_followed() {
            let mut reader = KmsgReader::open().unwrap();
            assert!(reader.poll(BootNs(i64::MAX / 2)).is_ok());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(record in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::parse(&record);
            let _ = unescape(&String::from_utf8_lossy(&record));
        }
    }
}
