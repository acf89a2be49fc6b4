//! The process of this machine that listens at an address, and what its command line and its
//! environment say of the profiler.

use super::profiler_config::ProfilerConfig;
use crate::http::Target;
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process, all_processes};
use std::collections::HashSet;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

/// How long vLLM's front end waits for its engine, in milliseconds.
const VARIABLE: &str = "VLLM_RPC_TIMEOUT";

/// What vLLM takes without the variable.
const USUAL: Duration = Duration::from_secs(10);

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalServer {
    pub(super) pid: i32,
    pub(super) config: Config,
    pub(super) rpc_timeout: RpcTimeout,
}

/// The configuration of its profiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Config {
    Given(ProfilerConfig),
    /// A whole command line without one.
    Missing,
    /// The command line is a title, which hides it, or can't be read.
    Hidden,
}

/// How long its front end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RpcTimeout {
    /// By the variable.
    Set(Duration),
    /// The variable is not in its environment.
    Usual,
    /// Its environment can't be read.
    Unknown,
}

impl RpcTimeout {
    /// How long, where that is known.
    pub(super) fn duration(self) -> Option<Duration> {
        match self {
            Self::Set(timeout) => Some(timeout),
            Self::Usual => Some(USUAL),
            Self::Unknown => None,
        }
    }
}

impl LocalServer {
    /// The one that listens where `target` is; `None` where that is another machine or another
    /// network namespace, or the process may not be looked at.
    pub(super) fn at(target: &Target) -> Option<Self> {
        if !is_local(target) {
            return None;
        }
        let sockets = listening(target.port);
        if sockets.is_empty() {
            return None;
        }
        let mut holders: Vec<Self> = all_processes()
            .ok()?
            .filter_map(Result::ok)
            .filter(|process| holds(process, &sockets))
            .map(|process| Self::of(&process))
            .collect();
        // The servers that a parent starts have its socket too, and titles for command lines.
        holders.sort_by_key(|holder| (holder.config.rank(), holder.pid));
        holders.into_iter().next()
    }

    fn of(process: &Process) -> Self {
        let config = match process.cmdline() {
            // A process that gives itself a title has one word.
            Ok(words) if words.len() > 1 => match ProfilerConfig::of(&words) {
                Some(config) => Config::Given(config),
                None => Config::Missing,
            },
            _ => Config::Hidden,
        };
        // A title may be written over the environment, of which nothing is left then.
        let environment = process.environ().ok().filter(|all| !all.is_empty());
        let rpc_timeout = match environment {
            None => RpcTimeout::Unknown,
            Some(all) => match all.get(std::ffi::OsStr::new(VARIABLE)) {
                None => RpcTimeout::Usual,
                Some(value) => match value.to_string_lossy().trim().parse() {
                    Ok(milliseconds) => RpcTimeout::Set(Duration::from_millis(milliseconds)),
                    Err(_) => RpcTimeout::Unknown,
                },
            },
        };
        Self {
            pid: process.pid(),
            config,
            rpc_timeout,
        }
    }

    /// The configuration, where there is one.
    pub(super) fn profiler(&self) -> Option<&ProfilerConfig> {
        match &self.config {
            Config::Given(config) => Some(config),
            Config::Missing | Config::Hidden => None,
        }
    }
}

impl Config {
    fn rank(&self) -> u8 {
        match self {
            Self::Given(_) => 0,
            Self::Missing => 1,
            Self::Hidden => 2,
        }
    }
}

/// Whether the address is one of this machine: nobody can listen at another's.
fn is_local(target: &Target) -> bool {
    let addresses = (target.host.as_str(), target.port).to_socket_addrs();
    // localhost has an address of IPv6 also where that is off.
    addresses.is_ok_and(|mut all| all.any(|at| is_own(at.ip())))
}

fn is_own(address: IpAddr) -> bool {
    TcpListener::bind((address, 0)).is_ok()
}

/// The sockets that listen at a port.
fn listening(port: u16) -> HashSet<u64> {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let entries = tables.into_iter().filter_map(Result::ok).flatten();
    let is_meant =
        |entry: &TcpNetEntry| entry.state == TcpState::Listen && entry.local_address.port() == port;
    entries.filter(is_meant).map(|entry| entry.inode).collect()
}

fn holds(process: &Process, sockets: &HashSet<u64>) -> bool {
    let Ok(descriptors) = process.fd() else {
        return false;
    };
    descriptors.filter_map(Result::ok).any(
        |descriptor| matches!(descriptor.target, FDTarget::Socket(inode) if sockets.contains(&inode)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_url;

    fn at(listener: &TcpListener) -> Option<LocalServer> {
        let port = listener.local_addr().unwrap().port();
        LocalServer::at(&parse_url(&format!("http://localhost:{port}")).unwrap())
    }

    #[test]
    fn the_process_that_listens_is_found_by_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = at(&listener).unwrap();
        assert_eq!(found.pid, std::process::id().cast_signed());
        assert_eq!(found.profiler(), None);
        assert_eq!(
            found.rpc_timeout.duration(),
            Some(USUAL),
            "as no test sets it"
        );
    }

    #[test]
    fn nobody_is_found_at_a_free_port_or_on_another_machine() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Of the block that is kept for documentation (RFC 5737).
        let other = parse_url(&format!("http://192.0.2.1:{port}")).unwrap();
        assert_eq!(LocalServer::at(&other), None);
        let free = parse_url(&format!("http://127.0.0.1:{port}")).unwrap();
        drop(listener);
        assert_eq!(LocalServer::at(&free), None);
    }
}
