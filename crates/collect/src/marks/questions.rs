//! The socket that questions come to. A connection for each: so the answer goes to the one
//! who asks and to nobody else, also where it is in a network namespace of its own, and it
//! learns at once when the recorder is gone. Whose question it is, the kernel tells.

use super::asked::Asked;
use super::inbox::Inbox;
use memtrace_host::clock;
use memtrace_model::{DescendantsQuestion, QUESTION_BYTES_MAX, Tgid};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, listen, shutdown,
    socket_with,
};
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections that may wait to be taken; more are refused at once.
const BACKLOG: i32 = 64;

/// A question comes right behind its connection. Nobody else is kept waiting for longer.
const PATIENCE: Duration = Duration::from_millis(50);

/// A bound socket that only its owner, and root, can connect to.
pub(super) fn open(path: &Path) -> Result<UnixListener, Errno> {
    let fd = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Before it is bound: the file is made with the mode that the socket has.
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    listen(&fd, BACKLOG)?;
    Ok(UnixListener::from(fd))
}

/// The thread that takes questions in. It sleeps until one comes.
pub(super) struct Questions {
    listener: Arc<UnixListener>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Questions {
    pub(super) fn start(listener: UnixListener, inbox: Arc<Inbox>) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = (Arc::clone(&listener), Arc::clone(&is_over));
        let thread = std::thread::Builder::new()
            .name("memtrace-asked".to_owned())
            .stack_size(128 << 10)
            .spawn(move || take_in(&theirs.0, &theirs.1, &inbox))?;
        Ok(Self {
            listener,
            is_over,
            thread: Some(thread),
        })
    }

    /// Takes no more.
    pub(super) fn stop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        self.stop();
    }
}

fn take_in(listener: &UnixListener, is_over: &AtomicBool, inbox: &Inbox) {
    loop {
        match listener.accept() {
            _ if is_over.load(Ordering::Acquire) => return,
            Ok((stream, _)) => {
                // Who asks nothing that is known finds the connection closed.
                if let Some(asked) = read(stream) {
                    inbox.ask(asked);
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                tracing::warn!("questions are not answered any more: {error}");
                return;
            }
        }
    }
}

/// One that gave up meanwhile; or no descriptor is left, and those in use come back.
fn is_passing(error: &io::Error) -> bool {
    let is_out_of_descriptors = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    if is_out_of_descriptors {
        std::thread::sleep(PATIENCE);
    }
    let kinds = [ErrorKind::Interrupted, ErrorKind::ConnectionAborted];
    is_out_of_descriptors || kinds.contains(&error.kind())
}

/// One line, or what comes before the end; `None` when neither is there in time.
fn read_line(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    while line.len() < QUESTION_BYTES_MAX && !line.contains(&b'\n') {
        let left = deadline.checked_duration_since(Instant::now())?;
        stream
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .ok()?;
        let mut bytes = [0; QUESTION_BYTES_MAX];
        let room = bytes.get_mut(line.len()..)?;
        match stream.read(room).ok()? {
            0 => break,
            length => line.extend_from_slice(room.get(..length)?),
        }
    }
    Some(line)
}

fn read(mut stream: UnixStream) -> Option<Asked> {
    let peer = socket_peercred(&stream).ok()?;
    let tgid = u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?;
    let line = read_line(&mut stream)?;
    let question = DescendantsQuestion::parse(&line)?;
    Some(Asked {
        tgid: Tgid(tgid),
        at: clock::boot(),
        question,
        stream,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_is_whole_however_it_comes_and_nobody_is_waited_for() {
        let (mut asking, mut asked) = UnixStream::pair().unwrap();
        asking.write_all(b"one").unwrap();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            asking.write_all(b" line\n").unwrap();
            asking
        });
        assert_eq!(read_line(&mut asked).as_deref(), Some(&b"one line\n"[..]));

        let mut asking = writer.join().unwrap();
        asking.write_all(b"half").unwrap();
        assert_eq!(read_line(&mut asked), None);
        asking.write_all(b"the end").unwrap();
        drop(asking);
        assert_eq!(read_line(&mut asked).as_deref(), Some(&b"the end"[..]));
    }
}
