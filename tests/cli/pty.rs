//! A pseudo-terminal, and what a program draws on it.

use super::*;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Child;

/// Both ends: ours, and that of programs.
pub(crate) fn open(rows: u16, columns: u16) -> Result<(File, OwnedFd)> {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    let size = size(rows, columns);
    // SAFETY: room for two descriptors, which are owned from here on, and a size; the rest is
    // optional.
    let ends = unsafe {
        let answer = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            none.cast(),
            (&raw const size).cast_mut(),
        );
        anyhow::ensure!(answer == 0, "no pseudo-terminal");
        libc::fcntl(ours, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    };
    Ok(ends)
}

fn size(rows: u16, columns: u16) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Starts a program in a session of its own, whose terminal it is.
pub(crate) fn start(command: &mut Command, theirs: OwnedFd) -> Result<Child> {
    command
        .stdin(theirs.try_clone()?)
        .stdout(theirs.try_clone()?);
    command.stderr(theirs);
    // SAFETY: both calls are safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    Ok(command.spawn()?)
}

/// Reads what has been written within a tenth of a second; nothing where nothing was.
pub(crate) fn read(ours: &mut File, to: &mut Vec<u8>) -> Result<()> {
    let mut polled = libc::pollfd {
        fd: ours.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live pollfd.
    if unsafe { libc::poll(&raw mut polled, 1, 100) } != 1 {
        return Ok(());
    }
    let mut bytes = [0; 65_536];
    match ours.read(&mut bytes) {
        Ok(length) => to.extend(bytes.get(..length).unwrap_or_default()),
        // The last program has closed its end.
        Err(error) if error.raw_os_error() == Some(libc::EIO) => {
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A program on a terminal, and its screen.
pub(crate) struct Screen {
    pub(crate) ours: File,
    /// Kept open, so that the settings can be read when the program is gone.
    theirs: OwnedFd,
    pub(crate) program: Child,
    parser: vt100::Parser,
}

impl Screen {
    pub(crate) fn of(command: &mut Command, rows: u16, columns: u16) -> Result<Self> {
        let (ours, theirs) = open(rows, columns)?;
        let kept = theirs.try_clone()?;
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        Ok(Self {
            program: start(command, theirs)?,
            ours,
            theirs: kept,
            parser: vt100::Parser::new(rows, columns, 0),
        })
    }

    /// Takes the terminal away, as when its window is closed.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.ours = File::open("/dev/null")?;
        self.theirs = File::open("/dev/null")?.into();
        Ok(())
    }

    pub(crate) fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.ours.write_all(keys.as_bytes())?)
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) -> Result<()> {
        let size = size(rows, columns);
        // SAFETY: a descriptor that is open, and a size.
        let answer =
            unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        anyhow::ensure!(answer == 0, "no other size");
        self.parser.screen_mut().set_size(rows, columns);
        Ok(())
    }

    /// What is on the screen.
    pub(crate) fn text(&self) -> String {
        self.parser.screen().contents()
    }

    /// Whether the screen is one that goes away with the program.
    pub(crate) fn is_alternate(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    /// Reads until the screen is as wanted.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> Result<String> {
        let start = Instant::now();
        loop {
            let mut bytes = Vec::new();
            read(&mut self.ours, &mut bytes)?;
            self.parser.process(&bytes);
            let text = self.text();
            if is_so(&text) {
                return Ok(text);
            }
            anyhow::ensure!(start.elapsed() < PATIENCE, "no {what} on:\n{text}");
        }
    }

    pub(crate) fn until_shown(&mut self, text: &str) -> Result<String> {
        self.until(text, |screen| screen.contains(text))
    }

    /// Reads until the program has ended; answers how.
    pub(crate) fn end(&mut self) -> Result<std::process::ExitStatus> {
        let start = Instant::now();
        loop {
            let status = self.program.try_wait()?;
            let mut bytes = Vec::new();
            read(&mut self.ours, &mut bytes)?;
            self.parser.process(&bytes);
            if let Some(status) = status.filter(|_| bytes.is_empty()) {
                return Ok(status);
            }
            anyhow::ensure!(start.elapsed() < PATIENCE, "it goes on:\n{}", self.text());
        }
    }

    /// How the terminal is set: whether it edits lines, shows what is typed, and makes signals of
    /// keys.
    pub(crate) fn settings(&self) -> [bool; 3] {
        // SAFETY: room for the settings, and a descriptor that is open.
        let settings = unsafe {
            let mut settings = std::mem::zeroed();
            libc::tcgetattr(self.theirs.as_raw_fd(), &raw mut settings);
            settings
        };
        [libc::ICANON, libc::ECHO, libc::ISIG].map(|flag| settings.c_lflag & flag != 0)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
