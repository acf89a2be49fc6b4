//! The socket that marks arrive on.

use super::inbox::Inbox;
use super::questions;
use super::queue::RaisedLimit;
use memtrace_host::{clock, mark_sockets};
use memtrace_model::{MARK_BYTES_MAX, MarkError, Message, Tgid};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, shutdown, socket_with,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Marks can't be received.
#[derive(Debug, thiserror::Error)]
#[error("{step} {}: {source}", .path.display())]
pub struct SocketError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// A bound socket, and the one for questions. Their files go when it is dropped, and the link to
/// the recording with them.
#[derive(Debug)]
pub struct MarkSocket {
    fd: OwnedFd,
    path: PathBuf,
    /// Where programs may ask; none once somebody listens there.
    questions: Option<UnixListener>,
    /// Whether the queue holds more than the few messages that a host allows by default.
    has_room: bool,
}

impl MarkSocket {
    /// Binds a socket where this user's recordings have theirs. Only `owner` can send to
    /// it, where that is not this user; and root.
    ///
    /// # Errors
    /// When the directory or the socket can't be made.
    pub fn bind(owner: Option<(u32, u32)>) -> Result<Self, SocketError> {
        let path = mark_sockets::own_path();
        let error = |step, path: &Path, source: io::Error| SocketError {
            step,
            path: path.to_owned(),
            source,
        };
        if let Some(directory) = path.parent() {
            mark_sockets::make_directory(directory)
                .map_err(|source| error("make the directory", directory, source))?;
        }
        let directory = path.parent().map(mark_sockets::remove_dead).transpose();
        // Until ours is bound nobody else removes any. Where it can't be read they stay.
        let _alone = directory.ok();
        let questions_path = mark_sockets::questions_beside(&path);
        // A recorder with our process id left it behind.
        mark_sockets::remove(&path);
        let opened = Self::open(&path);
        let (fd, has_room) = opened.map_err(|errno| error("bind", &path, errno.into()))?;
        let mut bound = Self {
            fd,
            path,
            questions: None,
            has_room,
        };
        let hand_over = |path: &Path| match owner {
            Some((uid, gid)) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
            None => Ok(()),
        };
        hand_over(&bound.path).map_err(|source| error("hand over", &bound.path, source))?;
        // Marks do not depend on it, and its path is longer.
        let opened = questions::open(&questions_path).map_err(io::Error::from);
        match opened.and_then(|listener| hand_over(&questions_path).map(|()| listener)) {
            Ok(listener) => bound.questions = Some(listener),
            Err(error) => tracing::warn!("questions are not answered: {error}"),
        }
        Ok(bound)
    }

    fn open(path: &Path) -> Result<(OwnedFd, bool), Errno> {
        let raised = RaisedLimit::raise();
        let has_room = raised.has_room();
        let made = socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        );
        drop(raised);
        let fd = made?;
        set_socket_passcred(&fd, true)?;
        // Before it is bound: the file is made with the mode that the socket has.
        fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        bind(&fd, &SocketAddrUnix::new(path)?)?;
        Ok((fd, has_room))
    }

    /// The socket for questions, once.
    pub(super) fn take_questions(&mut self) -> Option<UnixListener> {
        self.questions.take()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MarkSocket {
    fn drop(&mut self) {
        mark_sockets::remove(&self.path);
    }
}

/// The thread that takes marks in.
pub(super) struct Listener {
    socket: Arc<MarkSocket>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    pub(super) fn start(socket: MarkSocket, inbox: Arc<Inbox>) -> io::Result<Self> {
        let socket = Arc::new(socket);
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = (Arc::clone(&socket), Arc::clone(&is_over));
        let thread = std::thread::Builder::new()
            .name("memtrace-marks".to_owned())
            // JSON nests up to 128 deep.
            .stack_size(256 << 10)
            .spawn(move || listen(&theirs.0, &theirs.1, &inbox))?;
        Ok(Self {
            socket,
            is_over,
            thread: Some(thread),
        })
    }

    /// Takes in what has been sent until now, then nothing more.
    pub(super) fn stop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = shutdown(&self.socket.fd, Shutdown::Read);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(socket: &MarkSocket, is_over: &AtomicBool, inbox: &Inbox) {
    if socket.has_room {
        // A sender is not to be interrupted by us who wake up for what it sent.
        // By the kernel's own call: musl's function of that name refuses.
        let priority: libc::c_int = 0;
        let call = libc::SYS_sched_setscheduler;
        // SAFETY: this thread, and a struct sched_param of the kernel, which is one int. Without it a
        // mark costs its sender more.
        unsafe { libc::syscall(call, 0, libc::SCHED_BATCH, &raw const priority) };
    }
    let mut bytes = vec![0; MARK_BYTES_MAX];
    loop {
        match receive(&socket.fd, &mut bytes) {
            // After the shutdown, when the queue is empty.
            Ok(datagram) if datagram.len == 0 && is_over.load(Ordering::Acquire) => return,
            Ok(datagram) => {
                let parsed = if datagram.is_cut {
                    Err(MarkError::TooLong)
                } else {
                    Message::parse(bytes.get(..datagram.len).unwrap_or_default())
                };
                let (sender, now) = (datagram.sender, clock::boot());
                match parsed {
                    Ok(Message::Mark(mark, kind)) => inbox.receive(sender, now, Ok((mark, kind))),
                    Ok(Message::Request(request)) => inbox.receive_request(now, *request),
                    Err(error) => inbox.receive(sender, now, Err(error)),
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => {
                tracing::warn!("marks are not received any more: {errno}");
                return;
            }
        }
    }
}

struct Datagram {
    len: usize,
    is_cut: bool,
    sender: Option<Tgid>,
}

fn receive(fd: &OwnedFd, bytes: &mut [u8]) -> Result<Datagram, Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let mut slices = [IoSliceMut::new(bytes)];
    let received = recvmsg(fd, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let sender = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
        _ => None,
    });
    Ok(Datagram {
        len: received.bytes,
        is_cut: received.flags.contains(ReturnFlags::TRUNC),
        sender: sender.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok().map(Tgid)),
    })
}
