//! The socket that the command finds in its environment: bound before the command is
//! forked, listened to once the recording runs.

use crate::collect::Collector;
#[cfg(target_os = "linux")]
use crate::collect::marks::{MarkCollector, MarkSocket, SocketError};
#[cfg(target_os = "linux")]
use crate::model::MARK_SOCKET_VARIABLE;
use std::ffi::OsString;

/// A socket for marks, or why there is none. A recording goes on without.
#[derive(Debug)]
pub struct Marks {
    #[cfg(target_os = "linux")]
    socket: Result<MarkSocket, SocketError>,
}

/// Marks that are listened to, and where.
pub(super) struct Listening {
    pub(super) collector: Box<dyn Collector>,
    pub(super) path: String,
}

impl Marks {
    /// Binds the socket. Only `owner` can send to it, where that is not this user; and root.
    pub fn bind(owner: Option<(u32, u32)>) -> Self {
        #[cfg(not(target_os = "linux"))]
        let _ = owner;
        Self {
            #[cfg(target_os = "linux")]
            socket: MarkSocket::bind(owner),
        }
    }

    /// What the command finds in its environment.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        #[cfg(target_os = "linux")]
        if let Ok(socket) = &self.socket {
            return vec![(MARK_SOCKET_VARIABLE.into(), socket.path().into())];
        }
        Vec::new()
    }

    /// Begins to listen; or says why not.
    #[cfg(target_os = "linux")]
    pub(super) fn listen(self) -> Result<Listening, String> {
        let socket = self.socket.map_err(|error| error.to_string())?;
        let path = socket.path().to_string_lossy().into_owned();
        let collector =
            MarkCollector::start(socket).map_err(|error| format!("start a thread: {error}"))?;
        Ok(Listening {
            collector: Box::new(collector),
            path,
        })
    }

    /// Says why not.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn listen(self) -> Result<Listening, String> {
        Err("only Linux tells whose a message is".to_owned())
    }
}
