//! Many children that live about 2 ms each, as fast as one parent can fork them.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Ended, Forked, Mapping};
use std::collections::HashMap;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "forkstorm",
    help: "--count N --bytes B --life-us U --at-once K: children that touch B and end",
    run,
};

/// What a child sends before it ends. `is_final` is 0 in the rehearsal.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Message {
    pid: i64,
    vmhwm_bytes: i64,
    walked_bytes: i64,
    is_final: i64,
}

fn run(args: &Args) -> io::Result<()> {
    let count = args.size("count", 2_000)?;
    let bytes = args.size("bytes", 8 << 20)?;
    let life_ns = i64::try_from(args.number("life-us", 2_000)?).unwrap_or(i64::MAX) * 1_000;
    // Bounded, or on two CPUs thousands of children would wait for their turn to touch.
    let at_once = args.size("at-once", 16)?;
    let (reader, writer) = pipe()?;
    let mut ended: Vec<Ended> = Vec::with_capacity(count);
    let mut own_peaks: HashMap<i64, Message> = HashMap::with_capacity(count);
    let mut running = 0;
    for _ in 0..count {
        if running == at_once {
            ended.push(sys::wait_success(-1)?);
            running -= 1;
            drain(reader, &mut own_peaks)?;
        }
        match sys::fork()? {
            Forked::Child => child(bytes, life_ns, writer),
            Forked::Parent(_) => running += 1,
        }
    }
    for _ in 0..running {
        ended.push(sys::wait_success(-1)?);
        drain(reader, &mut own_peaks)?;
    }
    let mut lines = String::new();
    for child in ended {
        let text = own_peaks.get(&i64::from(child.pid)).copied();
        let text = text.ok_or_else(|| io::Error::other("a child did not tell its peak"))?;
        lines.push_str(&format!(
            "{{\"pid\":{},\"ru_maxrss_bytes\":{},\"vmhwm_bytes\":{},\"walked_bytes\":{}}}\n",
            child.pid, child.maxrss_bytes, text.vmhwm_bytes, text.walked_bytes
        ));
    }
    sys::say(lines.trim_end())
}

fn child(bytes: usize, life_ns: i64, writer: i32) -> ! {
    let start_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
    let Ok(mapping) = Mapping::anon(bytes) else {
        sys::exit(1)
    };
    // One size of page everywhere, or the amount depends on the machine's THP setting.
    if mapping.advise(libc::MADV_NOHUGEPAGE).is_err() {
        sys::exit(1)
    }
    mapping.touch(bytes);
    // SAFETY: getpid can't fail.
    let pid = unsafe { libc::syscall(libc::SYS_getpid) };
    // Every page that the last reading and the exit need is touched by the first round.
    for is_final in [0, 1] {
        if is_final == 1 {
            let lived_ns = sys::clock_ns(libc::CLOCK_MONOTONIC) - start_ns;
            sys::sleep_ns((life_ns - lived_ns).max(1));
        } else {
            sys::sleep_ns(1);
        }
        let message = Message {
            pid,
            vmhwm_bytes: sys::status().vmhwm_bytes,
            walked_bytes: sys::walked_rss_bytes(),
            is_final,
        };
        // SAFETY: the message is live for the call, and a pipe takes it whole.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_write,
                writer,
                &raw const message,
                size_of::<Message>(),
            )
        };
        if sent != size_of::<Message>() as i64 {
            sys::exit(1)
        }
        sys::exit_or_rehearse(is_final == 1);
    }
    unreachable!("the final round ends the process")
}

/// Takes what is in the pipe now; the writes of ended children are.
fn drain(reader: i32, own_peaks: &mut HashMap<i64, Message>) -> io::Result<()> {
    loop {
        let mut message = Message::default();
        let size = size_of::<Message>();
        // SAFETY: the message is live, writable, and any bytes are a valid one.
        let read = unsafe { libc::read(reader, (&raw mut message).cast(), size) };
        if read == size.cast_signed() {
            if message.is_final == 1 {
                own_peaks.insert(message.pid, message);
            }
            continue;
        }
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(()),
            _ => Err(error),
        };
    }
}

/// A pipe whose reading end does not block.
fn pipe() -> io::Result<(i32, i32)> {
    let mut ends = [0; 2];
    // SAFETY: the array has the two places that pipe2 fills.
    sys::check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the descriptor is open and ours.
    sys::check(unsafe { libc::fcntl(ends[0], libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok((ends[0], ends[1]))
}
