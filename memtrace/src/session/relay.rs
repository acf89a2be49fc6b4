//! What the command writes, passed on unchanged, with a copy for whoever looks for marks in it.
//!
//! A process of its own for each stream does that, forked before anything else is: however
//! busy the recorder is, however it ends, the command can write. The copy is handed over
//! through a pipe that is never waited for; what does not fit is counted.
//!
//! Where our output is a terminal, the command gets one too: a pseudo-terminal of the same
//! size, which changes nothing of what passes. Its input and the terminal that signals come
//! from stay its own, so Ctrl-C and job control are as without memtrace. Where stdout and
//! stderr are one file, they are one stream, in the order in which they were written.

mod copy;

use copy::Copy;
use memtrace_collect::marks::Passed;
use memtrace_host::clock;
use memtrace_model::Tgid;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Room in the pipe from the command, and a chunk.
const CHUNK_BYTES: usize = 128 << 10;
const SOURCE_BYTES: i32 = 1 << 20;

/// Room for the copy: what a recorder that does not run for a moment leaves in the pipe. Only
/// root can have the first.
const COPY_BYTES: [i32; 2] = [8 << 20, 1 << 20];

const STDOUT: RawFd = libc::STDOUT_FILENO;
const STDERR: RawFd = libc::STDERR_FILENO;

/// The command's streams, before it is forked.
#[derive(Debug)]
pub(super) struct Relays {
    streams: Vec<Stream>,
}

/// One stream: what the command writes to, and what is read from it.
#[derive(Debug)]
struct Stream {
    /// Ours, where it goes.
    sinks: Vec<RawFd>,
    is_terminal: bool,
    command_end: OwnedFd,
    source: OwnedFd,
}

impl Relays {
    /// Makes a pipe or a pseudo-terminal for stdout and for stderr, which belong to `owner`
    /// where that is not us, so that the command can open /dev/stdout.
    pub(super) fn prepare(owner: Option<(u32, u32)>) -> io::Result<Self> {
        let mut streams: Vec<Stream> = Vec::new();
        let mut known: Vec<(u64, u64)> = Vec::new();
        for fd in [STDOUT, STDERR] {
            // One that is closed stays so.
            let Some(file) = identity(fd) else {
                continue;
            };
            if let Some(place) = known.iter().position(|other| *other == file) {
                streams[place].sinks.push(fd);
                continue;
            }
            let is_terminal = is_terminal(fd);
            let (source, command_end) = match is_terminal {
                true => pseudo_terminal(fd)?,
                false => pipe(SOURCE_BYTES)?,
            };
            if let Some((uid, gid)) = owner {
                // SAFETY: an open descriptor and plain numbers.
                check(unsafe { libc::fchown(command_end.as_raw_fd(), uid, gid) })?;
            }
            known.push(file);
            streams.push(Stream {
                sinks: vec![fd],
                is_terminal,
                command_end,
                source,
            });
        }
        Ok(Self { streams })
    }

    /// For the forked command: which descriptor is to be which.
    pub(super) fn command_ends(&self) -> Vec<(RawFd, RawFd)> {
        let ends = self.streams.iter().flat_map(|stream| {
            let end = stream.command_end.as_raw_fd();
            stream.sinks.iter().map(move |sink| (end, *sink))
        });
        ends.collect()
    }

    /// Forks the processes that pass on. No thread may have been started.
    pub(super) fn start(self, command: Tgid) -> io::Result<Vec<Passed>> {
        self.streams
            .into_iter()
            .map(|stream| stream.start(command))
            .collect()
    }
}

impl Stream {
    fn start(self, command: Tgid) -> io::Result<Passed> {
        let (chunks, copy) = pipe(0)?;
        for bytes in COPY_BYTES {
            // SAFETY: an open pipe.
            if unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } >= 0 {
                break;
            }
        }
        let (until, wanted) = pipe(0)?;
        // SAFETY: an open descriptor of ours alone.
        check(unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
        // SAFETY: no thread has been started, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let ends = [&self.source, &copy, &until].map(AsRawFd::as_raw_fd);
                let relay = Relay::alone(ends, self.sinks.first().copied().unwrap_or(STDOUT));
                relay.run(self.is_terminal, command);
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Passed { chunks, wanted }),
        }
    }
}

/// In the forked process: all that is left of it.
struct Relay {
    source: RawFd,
    sink: RawFd,
    copy: Option<Copy>,
    until: RawFd,
}

impl Relay {
    /// Keeps four descriptors and closes all others: whoever waits for the end of a file that
    /// we have open would wait for us, who may outlive the recorder.
    fn alone(ends: [RawFd; 3], sink: RawFd) -> Self {
        // Above those that are about to be replaced; the lowest that is free.
        const FIRST: RawFd = 10;
        let moved = [ends[0], ends[1], ends[2], sink].map(|fd| {
            // SAFETY: an open descriptor.
            unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, FIRST) }
        });
        for (place, fd) in moved.into_iter().enumerate() {
            // SAFETY: plain numbers; whoever had these numbers here is not used any more.
            unsafe { libc::dup2(fd, place as RawFd) };
        }
        close_from(moved.len() as RawFd);
        // SAFETY: a name that ends in NUL, and signals that are to be ignored: those from the
        // terminal and to its group are for the command, which ends us by closing its end.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, c"memtrace-relay".as_ptr());
            for signal in [
                libc::SIGINT,
                libc::SIGQUIT,
                libc::SIGTERM,
                libc::SIGHUP,
                libc::SIGTSTP,
                libc::SIGUSR1,
                libc::SIGUSR2,
                libc::SIGPIPE,
            ] {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        Self {
            source: 0,
            copy: Some(Copy::new(1)),
            until: 2,
            sink: 3,
        }
    }

    /// Passes on until the last writer has closed its end, or nobody reads ours. When the
    /// copy is not wanted any more, by the recorder's word or its death, what was written
    /// until then is still copied.
    fn run(mut self, is_terminal: bool, command: Tgid) {
        let resized = is_terminal.then(Resized::listen).flatten();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut is_ending = false;
        loop {
            let wait = match is_ending {
                true => 0,
                false => self.copy.as_ref().map_or(-1, Copy::wait_ms),
            };
            let until = if is_ending { -1 } else { self.until };
            let [source, ended, size, has_room] = ready(
                [
                    (self.source, libc::POLLIN),
                    (until, libc::POLLIN),
                    (resized.as_ref().map_or(-1, |r| r.fd), libc::POLLIN),
                    (self.copy.as_ref().map_or(-1, Copy::waiting), libc::POLLOUT),
                ],
                wait,
            );
            if size && let Some(resized) = &resized {
                resized.tell(self.sink, self.source, command);
            }
            if has_room {
                self.copy_with(Copy::push_rest);
            }
            if source {
                let length = match read(self.source, &mut chunk) {
                    // The command's side of a pseudo-terminal is closed: EIO.
                    Ok(0) | Err(libc::EIO) => break,
                    Ok(length) => length,
                    Err(_) => continue,
                };
                let boot_ns = clock::boot();
                if !self.write(&chunk[..length]) {
                    // Nobody reads: closing our end tells the command.
                    break;
                }
                self.copy_with(|copy| copy.take(&chunk[..length], boot_ns));
            } else if is_ending {
                self.copy_with(|copy| copy.end(clock::boot()));
                is_ending = false;
                close(self.until);
                self.until = -1;
            }
            self.copy_with(|copy| !copy.is_over());
            is_ending |= ended;
        }
        // Nobody is to wait for us any more, and only the copy for its reader.
        close(self.source);
        close(self.sink);
        if let Some(copy) = self.copy.take() {
            copy.finish();
        }
    }

    /// Does that with the copy, and lets it go when nobody wants it any more.
    fn copy_with(&mut self, step: impl FnOnce(&mut Copy) -> bool) {
        if self.copy.as_mut().is_some_and(|copy| !step(copy)) {
            self.copy = None;
        }
    }

    /// False when nobody reads what is written.
    fn write(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match write(self.sink, bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(libc::EINTR) => {}
                Err(libc::EAGAIN) => {
                    ready([(self.sink, libc::POLLOUT)], -1);
                }
                Err(libc::EPIPE | libc::EIO | libc::ECONNRESET | libc::EBADF) => return false,
                // A full disk, most likely: the command's next words may fit again.
                Err(_) => return true,
            }
        }
        true
    }
}

/// Changes of the terminal's size.
struct Resized {
    fd: RawFd,
}

impl Resized {
    fn listen() -> Option<Self> {
        // SAFETY: the set is made before it is used, and the calls take no other pointer.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGWINCH);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
        };
        (fd >= 0).then_some(Self { fd })
    }

    /// The command was reported at the same time as we, and may have asked before we had set
    /// the size: it is reported again.
    fn tell(&self, terminal: RawFd, command_terminal: RawFd, command: Tgid) {
        let mut said = [0; size_of::<libc::signalfd_siginfo>()];
        while matches!(read(self.fd, &mut said), Ok(length) if length > 0) {}
        copy_size(terminal, command_terminal);
        // SAFETY: plain numbers. Who ignores this signal, as is the default, notices nothing.
        unsafe { libc::kill(command.0.cast_signed(), libc::SIGWINCH) };
    }
}

/// Device and inode of an open file.
fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: zeroed is a valid stat, which the call fills.
    let (answer, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat), stat)
    };
    (answer == 0).then_some((stat.st_dev, stat.st_ino))
}

fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: a plain number.
    unsafe { libc::isatty(fd) == 1 }
}

/// Ours and the command's end of a terminal like the one at `like`. It passes bytes as they
/// are: what a line's end becomes is the business of the terminal behind it.
fn pseudo_terminal(like: RawFd) -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: room for two descriptors, which are owned from here on; the rest is optional.
    let (ours, theirs) = unsafe {
        check(libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            none.cast(),
            none.cast(),
        ))?;
        for end in [ours, theirs] {
            libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    };
    // SAFETY: zeroed is a valid termios, which the first call fills.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(like, &raw mut modes) == 0 {
            modes.c_oflag &= !libc::OPOST;
            libc::tcsetattr(theirs.as_raw_fd(), libc::TCSANOW, &raw const modes);
        }
    }
    copy_size(like, ours.as_raw_fd());
    Ok((ours, theirs))
}

fn copy_size(from: RawFd, to: RawFd) {
    // SAFETY: zeroed is a valid size, which the first call fills.
    unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(from, libc::TIOCGWINSZ, &raw mut size) == 0 {
            libc::ioctl(to, libc::TIOCSWINSZ, &raw const size);
        }
    }
}

/// The reading and the writing end of a pipe, with that much room where that is allowed.
fn pipe(bytes: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read_end, write_end) = io::pipe()?;
    if bytes > 0 {
        // SAFETY: an open pipe. The default is good enough.
        unsafe { libc::fcntl(write_end.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
    }
    Ok((read_end.into(), write_end.into()))
}

/// Which of the descriptors are ready for that, or are at their end. Those below zero never
/// are.
fn ready<const N: usize>(fds: [(RawFd, libc::c_short); N], wait_ms: i32) -> [bool; N] {
    let mut polled = fds.map(|(fd, events)| libc::pollfd {
        fd,
        events,
        revents: 0,
    });
    // SAFETY: an array of so many.
    unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, wait_ms) };
    polled.map(|polled| polled.revents != 0)
}

fn read(fd: RawFd, into: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: room for so many bytes.
    let length = unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(length).map_err(|_| errno())
}

fn write(fd: RawFd, bytes: &[u8]) -> Result<usize, i32> {
    // SAFETY: so many bytes.
    let length = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(length).map_err(|_| errno())
}

fn close(fd: RawFd) {
    // SAFETY: a descriptor that is not used any more.
    unsafe { libc::close(fd) };
}

fn close_from(first: RawFd) {
    // SAFETY: plain numbers. Nothing that is closed is used any more: see `Relay::alone`.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            for fd in first..1024 {
                libc::close(fd);
            }
        }
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn check(answer: i32) -> io::Result<()> {
    match answer {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
