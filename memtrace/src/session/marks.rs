//! Where marks come from: the socket that the command finds in its environment, its output,
//! and log files. What has to be there before the command is forked is made here; the rest
//! begins with the recording.

#[cfg(target_os = "linux")]
use super::relay::Relays;
#[cfg(target_os = "linux")]
use memtrace_collect::marks::{Followed, MarkCollector, MarkSocket, MarkSources, SocketError};
use memtrace_collect::{Collector, ProcessTable};
use memtrace_host::Person;
#[cfg(target_os = "linux")]
use memtrace_model::MARK_SOCKET_VARIABLE;
use memtrace_model::{MarkRule, Tgid};
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The sources of marks, or why there is none. A recording goes on without.
#[derive(Debug)]
pub struct Marks {
    /// `None` where none is wanted.
    #[cfg(target_os = "linux")]
    socket: Option<Result<MarkSocket, SocketError>>,
    #[cfg(target_os = "linux")]
    relays: Option<Relays>,
    #[cfg(target_os = "linux")]
    sources: MarkSources,
}

/// Marks that are listened to, and where.
pub(super) struct Listening {
    pub(super) collector: Box<dyn Collector>,
    /// The socket, or why there is none.
    pub(super) path: Result<String, String>,
    pub(super) logs: Logs,
}

/// The log files that marks are taken from.
#[derive(Clone, Debug, Default)]
pub(super) struct Logs {
    #[cfg(target_os = "linux")]
    followed: Followed,
}

impl Logs {
    /// Those that are not there, and never were.
    pub(super) fn absent(&self) -> Vec<PathBuf> {
        #[cfg(target_os = "linux")]
        return self.followed.absent();
        #[cfg(not(target_os = "linux"))]
        Vec::new()
    }
}

impl Marks {
    /// Binds the socket. Only `owner` can send to it, where that is not this user; and root.
    /// With `has_output`, what the command writes is passed on by us.
    ///
    /// # Errors
    /// When its output can't be passed on.
    pub fn bind(owner: Option<(u32, u32)>, has_output: bool) -> io::Result<Self> {
        #[cfg(not(target_os = "linux"))]
        {
            let _ = owner;
            match has_output {
                true => Err(io::Error::from(io::ErrorKind::Unsupported)),
                false => Ok(Self {}),
            }
        }
        #[cfg(target_os = "linux")]
        Ok(Self {
            relays: has_output.then(|| Relays::prepare(owner)).transpose()?,
            socket: Some(MarkSocket::bind(owner)),
            sources: MarkSources::default(),
        })
    }

    /// Receives no marks.
    pub fn none() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            relays: None,
            #[cfg(target_os = "linux")]
            socket: None,
            #[cfg(target_os = "linux")]
            sources: MarkSources::default(),
        }
    }

    /// What the command finds in its environment.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        #[cfg(target_os = "linux")]
        if let Some(Ok(socket)) = &self.socket {
            return vec![(MARK_SOCKET_VARIABLE.into(), socket.path().into())];
        }
        Vec::new()
    }

    /// What the command gets as other descriptors.
    pub fn descriptors(&self) -> Vec<(RawFd, RawFd)> {
        #[cfg(target_os = "linux")]
        if let Some(relays) = &self.relays {
            return relays.command_ends();
        }
        Vec::new()
    }

    /// Begins to pass on what the command writes. No thread may have been started.
    ///
    /// # Errors
    /// When the system refuses a process.
    pub fn pass_on(&mut self, command: Tgid) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(relays) = self.relays.take() {
            self.sources.output = relays.start(command)?;
            self.sources.command = Some(command);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = command;
        Ok(())
    }

    /// Takes marks from the lines of these files too, and of the output, by these rules. The
    /// files are opened as the person who named them, where that is not who memtrace runs as.
    pub fn read_lines(
        &mut self,
        rules: Vec<MarkRule>,
        files: Vec<PathBuf>,
        person: Option<Person>,
    ) {
        #[cfg(target_os = "linux")]
        {
            self.sources.rules = rules;
            self.sources.files = files;
            self.sources.person = person;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (rules, files, person);
    }

    /// Begins to listen; or says why not.
    #[cfg(target_os = "linux")]
    pub(super) fn listen(mut self, table: &ProcessTable) -> Result<Listening, String> {
        let path = match self.socket {
            Some(Ok(socket)) => {
                let path = socket.path().to_string_lossy().into_owned();
                self.sources.socket = Some(socket);
                Ok(path)
            }
            Some(Err(error)) => Err(error.to_string()),
            None => Err("none are wanted".to_owned()),
        };
        let logs = Logs {
            followed: self.sources.followed.clone(),
        };
        let collector =
            MarkCollector::start(self.sources, table).map_err(|error| error.to_string())?;
        Ok(Listening {
            collector: Box::new(collector),
            path,
            logs,
        })
    }

    /// Says why not.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn listen(self, _: &ProcessTable) -> Result<Listening, String> {
        Err("only Linux says who sent a message".to_owned())
    }
}
