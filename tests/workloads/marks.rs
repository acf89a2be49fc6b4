//! Programs that mark what they do, through the socket of the recording they run under.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "marks",
    help: "--processes N --count M --per-second R: each marks a rename, a fork, M moments",
    run,
};

/// The end of the count must arrive, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn run(args: &Args) -> io::Result<()> {
    let processes = args.number("processes", 1)?;
    let count = args.number("count", 100)?;
    // 0: as fast as it can.
    let per_second = args.number("per-second", 0)?;
    let children: Vec<i32> = (0..processes)
        .map(|_| sys::fork_child(|| child(count, per_second)))
        .collect::<io::Result<_>>()?;
    for child in children {
        sys::wait_success(child)?;
    }
    Ok(())
}

fn child(count: u64, per_second: u64) -> io::Result<()> {
    let mut marker = Marker::connect()?;
    // The kernel notes the time of the rename: right after the time of the mark.
    let renamed_ns = sys::boot_ns();
    // SAFETY: the name ends in NUL; it is this thread's own.
    sys::check(unsafe { libc::prctl(libc::PR_SET_NAME, c"marked".as_ptr()) })?;
    marker.send("instant", "rename", renamed_ns, true)?;
    marker.send("begin", "fork", sys::boot_ns(), true)?;
    let grandchild = sys::fork_child(|| Ok(()))?;
    sys::wait_success(grandchild)?;
    marker.send("end", "fork", sys::boot_ns(), true)?;
    let start_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
    let mut longest_ns = 0;
    for index in 0..count {
        let before_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        marker.send("instant", "hurry", sys::boot_ns(), false)?;
        let after_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        longest_ns = longest_ns.max(after_ns - before_ns);
        if let Some(due_ns) = ((index + 1) * 1_000_000_000).checked_div(per_second) {
            sys::sleep_ns(start_ns + due_ns.cast_signed() - after_ns);
        }
    }
    let length_ns = sys::clock_ns(libc::CLOCK_MONOTONIC) - start_ns;
    marker.send("instant", "done", sys::boot_ns(), true)?;
    sys::say(&format!(
        "{{\"pid\":{},\"grandchild\":{grandchild},\"tried\":{count},\"dropped\":{},\
         \"longest_ns\":{longest_ns},\"length_ns\":{length_ns}}}",
        std::process::id(),
        marker.dropped_total,
    ))
}

/// The socket of the recording.
pub(crate) struct Marker {
    socket: UnixDatagram,
    /// Not reported yet.
    dropped: u64,
    dropped_total: u64,
}

impl Marker {
    /// Connects to the recording that this process runs under.
    pub(crate) fn connect() -> io::Result<Self> {
        let path = std::env::var_os("MEMTRACE_SOCKET")
            .ok_or_else(|| io::Error::other("MEMTRACE_SOCKET is not set"))?;
        let socket = UnixDatagram::unbound()?;
        socket.connect(&path)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            dropped: 0,
            dropped_total: 0,
        })
    }

    /// Sends the begin of a section whose descendants can be asked about.
    pub(crate) fn begin_section(&mut self, name: &str, span: i64, at_ns: i64) -> io::Result<()> {
        self.send_span("begin", name, span, at_ns, ",\"descendants\":true")
    }

    /// Sends the end of such a section.
    pub(crate) fn end_section(&mut self, name: &str, span: i64, at_ns: i64) -> io::Result<()> {
        self.send_span("end", name, span, at_ns, "")
    }

    fn send_span(
        &mut self,
        kind: &str,
        name: &str,
        span: i64,
        at_ns: i64,
        more: &str,
    ) -> io::Result<()> {
        let message = format!(
            "{{\"v\":1,\"kind\":\"{kind}\",\"name\":\"{name}\",\"boot_ns\":{at_ns},\
             \"span\":{span}{more}}}"
        );
        self.socket.set_nonblocking(false)?;
        self.socket.send(message.as_bytes()).map(drop)
    }

    /// Sends a mark; one that need not arrive is dropped rather than waited for.
    pub(crate) fn send(
        &mut self,
        kind: &str,
        name: &str,
        at_ns: i64,
        must_arrive: bool,
    ) -> io::Result<()> {
        self.socket.set_nonblocking(!must_arrive)?;
        let message = format!(
            "{{\"v\":1,\"kind\":\"{kind}\",\"name\":\"{name}\",\"boot_ns\":{at_ns},\"dropped\":{}}}",
            self.dropped
        );
        match self.socket.send(message.as_bytes()) {
            Ok(_) => self.dropped = 0,
            Err(error) if !must_arrive && error.kind() == ErrorKind::WouldBlock => {
                self.dropped += 1;
                self.dropped_total += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
