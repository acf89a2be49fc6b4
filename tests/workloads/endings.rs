//! Processes that are ended by signals of every kind of sender.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "endings",
    help: "--pause-ms P: children end by a signal of their own, of the kernel, of their parent, which one \
           handles and exits, from another pid namespace, and of the caller, who kills the last one that is reported; P later \
           another is killed as this ends",
    run,
};

/// With which one exits that is asked to end.
const EXIT_CODE: i32 = 1;

/// How a child ends.
type Way = fn() -> io::Result<()>;

/// By which name it is reported, and by which signal it ends.
const WAYS: [(&str, i32, Way); 5] = [
    ("abort", libc::SIGABRT, || std::process::abort()),
    ("fault", libc::SIGSEGV, fault),
    ("cpu", libc::SIGXCPU, spin),
    ("handled", libc::SIGTERM, resend),
    ("forever", libc::SIGKILL, forever),
];

fn run(args: &Args) -> io::Result<()> {
    let pause_ns = args.number("pause-ms", 3_000)?.cast_signed() * 1_000_000;
    // No dumps of them are wanted.
    limit(libc::RLIMIT_CORE, 0, 0)?;
    for (name, signal, way) in WAYS {
        let child = sys::fork_child(way)?;
        if name == "handled" {
            // Its handler is there once it stops.
            stopped(child)?;
            kill(child, libc::SIGTERM)?;
        } else if name == "forever" {
            kill(child, signal)?;
        }
        ended_by(child, signal)?;
        sys::say(&format!(
            "{{\"way\":\"{name}\",\"pid\":{child},\"signal\":{signal}}}"
        ))?;
    }
    let exits = sys::fork_child(exits)?;
    stopped(exits)?;
    kill(exits, libc::SIGTERM)?;
    ended(exits, |status| {
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == EXIT_CODE
    })?;
    sys::say(&format!("{{\"way\":\"exits\",\"pid\":{exits}}}"))?;
    let init = in_namespace()?;
    sys::say(&format!("{{\"way\":\"namespace\",\"pid\":{init}}}"))?;
    let server = sys::fork_child(|| serve(pause_ns))?;
    sys::wait_success(server).map(drop)
}

/// A server with two workers: one waits for whoever kills it; the other is killed by the server
/// before it ends.
fn serve(pause_ns: i64) -> io::Result<()> {
    let workers = [sys::fork_child(forever)?, sys::fork_child(forever)?];
    let server = std::process::id();
    sys::say(&format!(
        "{{\"way\":\"server\",\"pid\":{server},\"left\":{},\"worker\":{}}}",
        workers[1], workers[0]
    ))?;
    ended_by(workers[0], libc::SIGKILL)?;
    sys::sleep_ns(pause_ns);
    kill(workers[1], libc::SIGKILL)?;
    ended_by(workers[1], libc::SIGKILL)
}

/// The first process of a pid namespace kills a child, and ends, which ends another. Gives its
/// process id as it is outside.
fn in_namespace() -> io::Result<i32> {
    let (reader, writer) = io::pipe()?;
    let outer = sys::fork_child(|| {
        // SAFETY: plain numbers.
        sys::check(unsafe { libc::unshare(libc::CLONE_NEWPID) })?;
        let init = sys::fork_child(|| {
            let children = [sys::fork_child(forever)?, sys::fork_child(forever)?];
            kill(children[0], libc::SIGKILL)?;
            ended_by(children[0], libc::SIGKILL)
        })?;
        io::Write::write_all(&mut &writer, &init.to_ne_bytes())?;
        sys::wait_success(init).map(drop)
    })?;
    sys::wait_success(outer)?;
    let mut init = [0; 4];
    io::Read::read_exact(&mut &reader, &mut init)?;
    Ok(i32::from_ne_bytes(init))
}

fn fault() -> io::Result<()> {
    // SAFETY: not at all, which is the point: the page after null is not mapped.
    unsafe { std::ptr::without_provenance_mut::<u8>(64).write_volatile(1) };
    Ok(())
}

fn spin() -> io::Result<()> {
    limit(libc::RLIMIT_CPU, 1, 9)?;
    loop {
        std::hint::spin_loop();
    }
}

fn limit(what: libc::__rlimit_resource_t, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: a valid limit to read.
    sys::check(unsafe { libc::setrlimit(what, &raw const limit) }).map(drop)
}

/// Handles SIGTERM by ending by it, as programs do that have something to put away first.
fn resend() -> io::Result<()> {
    extern "C" fn handler(signal: i32) {
        // SAFETY: both may be called in a handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    handle(handler)
}

/// Handles SIGTERM by exiting with an error, as torchrun does.
fn exits() -> io::Result<()> {
    extern "C" fn handler(_: i32) {
        // SAFETY: it may be called in a handler.
        unsafe { libc::_exit(EXIT_CODE) }
    }
    handle(handler)
}

/// Stops once its handler of SIGTERM is there.
fn handle(handler: extern "C" fn(i32)) -> io::Result<()> {
    // SAFETY: a handler that calls only what it may.
    unsafe { libc::signal(libc::SIGTERM, handler as *const () as libc::sighandler_t) };
    // SAFETY: plain numbers.
    sys::check(unsafe { libc::raise(libc::SIGSTOP) })?;
    forever()
}

fn forever() -> io::Result<()> {
    loop {
        sys::sleep_ns(1_000_000_000);
    }
}

/// Waits until it has stopped, and lets it go on.
fn stopped(child: i32) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: a valid place for the status.
    sys::check(unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED) })?;
    kill(child, libc::SIGCONT)
}

fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain numbers; it is a child that is not waited for yet.
    sys::check(unsafe { libc::kill(pid, signal) }).map(drop)
}

fn ended_by(child: i32, signal: i32) -> io::Result<()> {
    ended(child, |status| {
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == signal
    })
}

/// Waits for its end, which must be this one.
fn ended(child: i32, is_expected: impl Fn(i32) -> bool) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: a valid place for the status.
    sys::check(unsafe { libc::waitpid(child, &raw mut status, 0) })?;
    match is_expected(status) {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{child} ended with {status:#x}, not as it was to"
        ))),
    }
}
