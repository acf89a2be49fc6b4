//! The command: forked before any thread starts, held on a pipe until the probes are
//! attached, so that its first page fault is seen, then run as it would have been without
//! memtrace: same user, signal mask, limits and descriptors.

use super::marks::Marks;
use super::user::CommandUser;
use memtrace_host::clock;
use memtrace_model::{BootNs, Bytes, Tgid};
use std::ffi::{CString, OsStr, OsString, c_char};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The command could not be run. The exit codes are those of a shell.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no such file.
    #[error("command not found: {0}")]
    NotFound(String),
    /// It is there, and what the system needs to run it is not.
    #[error("can't execute {command}: {}", missing(.interpreter.as_deref()))]
    NoInterpreter {
        /// The command that was to run.
        command: String,
        /// What the first line of a script names; `None` where the file is no script.
        interpreter: Option<String>,
    },
    /// The file can't be executed.
    #[error("can't execute {command}: {source}")]
    NotExecutable {
        /// The command that was to run.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// An argument holds a NUL byte.
    #[error("an argument of the command holds a NUL byte")]
    Nul,
    /// The system refused a process or a pipe.
    #[error("start the command: {0}")]
    Fork(#[source] io::Error),
}

fn missing(interpreter: Option<&str>) -> String {
    match interpreter {
        Some(interpreter) => format!("its interpreter {interpreter} does not exist"),
        None => "the loader that it names does not exist (is it for another system?)".to_owned(),
    }
}

impl CommandError {
    /// What a shell exits with in this case: 127 for a command, or an interpreter, that does not
    /// exist, 126 for one that can't be executed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) | Self::NoInterpreter { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Nul | Self::Fork(_) => 1,
        }
    }
}

/// So much of a script the kernel looks at for its interpreter (BINPRM_BUF_SIZE).
const SCRIPT_BYTES: u64 = 256;

/// A name in the kernel has no more bytes (TASK_COMM_LEN without the NUL).
const COMM_BYTES_MAX: usize = 15;

/// A forked command that waits to be let go. Dropping it without that ends it: it finds
/// its pipe closed and exits.
#[derive(Debug)]
pub struct Held {
    tgid: Tgid,
    forked: BootNs,
    argv: Vec<String>,
    go: Option<File>,
    failure: File,
}

/// Everything the child needs, made before the fork: between fork and exec it must not
/// allocate more than it has to, because what it holds then is charged to the command.
struct Prepared {
    path: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
    descriptors: Vec<(RawFd, RawFd)>,
    user: CommandUser,
    dies_with_us: bool,
    /// This process, as the child knows its parent.
    recorder: libc::pid_t,
}

impl Held {
    /// Finds the command on the user's PATH, forks, and holds the child. Where marks come
    /// from it, its environment and its descriptors are theirs. `dies_with_us` has the
    /// command killed when memtrace itself is.
    ///
    /// # Errors
    /// When the command can't be found or executed, or when the system refuses to fork.
    pub fn fork(
        argv: &[OsString],
        user: CommandUser,
        marks: &Marks,
        dies_with_us: bool,
    ) -> Result<Self, CommandError> {
        let mut prepared = Prepared::new(argv, user, &marks.environment(), dies_with_us)?;
        prepared.descriptors = marks.descriptors();
        // Their ends close on exec.
        let pipe = || match io::pipe() {
            Ok((from, to)) => Ok([OwnedFd::from(from), to.into()].map(File::from)),
            Err(error) => Err(CommandError::Fork(error)),
        };
        let ([wait_end, go_end], [failure_end, mut report_end]) = (pipe()?, pipe()?);
        let forked = clock::boot();
        // SAFETY: no thread has been started, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => Err(CommandError::Fork(io::Error::last_os_error())),
            0 => {
                drop((go_end, failure_end));
                let error = prepared.wait_and_exec(wait_end);
                let code = error.raw_os_error().unwrap_or(libc::EINVAL);
                let _ = report_end.write_all(&code.to_ne_bytes());
                if code == libc::ENOENT {
                    let _ = report_end.write_all(&prepared.beginning());
                }
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(127) }
            }
            child => Ok(Self {
                tgid: Tgid(child.cast_unsigned()),
                forked,
                argv: argv
                    .iter()
                    .map(|part| part.to_string_lossy().into_owned())
                    .collect(),
                go: Some(go_end),
                failure: failure_end,
            }),
        }
    }

    /// The held process.
    pub fn tgid(&self) -> Tgid {
        self.tgid
    }

    /// When it was forked: its start, but for the time that the call took.
    pub(super) fn forked(&self) -> BootNs {
        self.forked
    }

    /// The name that the kernel is going to give it: the file's, cut at 15 bytes.
    pub(super) fn comm(&self) -> String {
        let path = self.argv.first().map(String::as_str).unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default().as_bytes();
        String::from_utf8_lossy(&name[..name.len().min(COMM_BYTES_MAX)]).into_owned()
    }

    /// The command with its arguments.
    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    /// Lets the command go and waits until it runs.
    ///
    /// # Errors
    /// When it could not be executed after all.
    pub(super) fn release(&mut self) -> Result<(), CommandError> {
        if let Some(mut go) = self.go.take() {
            // A child that is gone closes the pipe; reading its failure tells.
            let _ = go.write_all(&[1]);
        }
        let mut code = [0; 4];
        match self.failure.read_exact(&mut code) {
            // Closed by exec: the command runs.
            Err(_) => Ok(()),
            Ok(()) => {
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(code));
                let command = self.argv.first().cloned().unwrap_or_default();
                let mut beginning = Vec::new();
                let _ = self.failure.read_to_end(&mut beginning);
                Err(match source.kind() {
                    io::ErrorKind::NotFound if beginning.is_empty() => {
                        CommandError::NotFound(command)
                    }
                    io::ErrorKind::NotFound => CommandError::NoInterpreter {
                        command,
                        interpreter: interpreter(&beginning),
                    },
                    _ => CommandError::NotExecutable { command, source },
                })
            }
        }
    }
}

impl Prepared {
    fn new(
        argv: &[OsString],
        user: CommandUser,
        extra: &[(OsString, OsString)],
        dies_with_us: bool,
    ) -> Result<Self, CommandError> {
        let name = argv.first().ok_or(CommandError::NotFound(String::new()))?;
        let path = find(name, &user)?;
        let c_string = |text: &[u8]| CString::new(text).map_err(|_| CommandError::Nul);
        let is_replaced = |key: &OsString| extra.iter().any(|(name, _)| name == key);
        let environment = user
            .environment()
            .filter(|(key, _)| !is_replaced(key))
            .chain(extra.iter().cloned())
            .map(|(key, value)| {
                let mut entry = key.as_bytes().to_vec();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                c_string(&entry)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            path: c_string(path.as_os_str().as_bytes())?,
            argv: argv
                .iter()
                .map(|part| c_string(part.as_bytes()))
                .collect::<Result<_, _>>()?,
            environment,
            descriptors: Vec::new(),
            user,
            dies_with_us,
            // SAFETY: no arguments.
            recorder: unsafe { libc::getpid() },
        })
    }

    /// In the child, with the rights of the command: the first bytes of its file.
    fn beginning(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(OsStr::from_bytes(self.path.as_bytes())) {
            let _ = file.take(SCRIPT_BYTES).read_to_end(&mut bytes);
        }
        bytes
    }

    /// In the child. Returns only when exec failed.
    fn wait_and_exec(&self, mut wait_end: File) -> io::Error {
        let mut go = [0];
        if wait_end.read_exact(&mut go).is_err() {
            // SAFETY: ends the child; memtrace gave up before the command ran.
            unsafe { libc::_exit(0) };
        }
        if let Err(error) = self.user.become_in_child() {
            return error;
        }
        for (end, place) in &self.descriptors {
            // SAFETY: open descriptors. The copy stays open at exec, the original does not.
            if unsafe { libc::dup2(*end, *place) } < 0 {
                return io::Error::last_os_error();
            }
        }
        #[cfg(target_os = "linux")]
        if self.dies_with_us {
            // After the change of user, which clears it.
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // SAFETY: no arguments.
            if unsafe { libc::getppid() } != self.recorder {
                // It died before that was set.
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (self.dies_with_us, self.recorder);
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings
                .iter()
                .map(|text| text.as_ptr())
                .chain([std::ptr::null()])
                .collect()
        };
        let (argv, environment) = (pointers(&self.argv), pointers(&self.environment));
        // SAFETY: the standard library ignores SIGPIPE in every Rust program; the command
        // must not inherit that. The arrays are null-terminated and outlive the call.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::execve(self.path.as_ptr(), argv.as_ptr(), environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// The interpreter that the first line of a script names.
fn interpreter(beginning: &[u8]) -> Option<String> {
    let line = beginning.strip_prefix(b"#!")?.split(|byte| *byte == b'\n');
    let line = String::from_utf8_lossy(line.take(1).next()?).into_owned();
    line.split_whitespace().next().map(str::to_owned)
}

/// Looks a command up as a shell does: a name with a slash is a path.
fn find(name: &OsString, user: &CommandUser) -> Result<PathBuf, CommandError> {
    let shown = || name.to_string_lossy().into_owned();
    let refused = || CommandError::NotExecutable {
        command: shown(),
        source: io::ErrorKind::PermissionDenied.into(),
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match std::fs::metadata(&path) {
            Ok(_) if is_executable(&path) => Ok(path),
            Ok(metadata) if metadata.is_file() => Err(refused()),
            Ok(_) => Err(CommandError::NotExecutable {
                command: shown(),
                source: io::ErrorKind::IsADirectory.into(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CommandError::NotFound(shown()))
            }
            Err(source) => Err(CommandError::NotExecutable {
                command: shown(),
                source,
            }),
        };
    }
    let candidates = || user.search_path().map(|directory| directory.join(name));
    let found = candidates().find(|candidate| is_executable(candidate));
    found.ok_or_else(|| match candidates().any(|candidate| candidate.is_file()) {
        true => refused(),
        false => CommandError::NotFound(shown()),
    })
}

fn is_executable(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// How the command ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandEnd {
    /// As wait(2) encodes it.
    pub(super) wait_status: i32,
    /// The ru_maxrss of wait4(2), in bytes.
    pub(super) max_rss: Bytes,
}

impl CommandEnd {
    /// The exit code as a shell reports it: 128 + n for signal n.
    pub(super) fn exit_code(self) -> i32 {
        let signal = self.wait_status & 0x7f;
        if signal == 0 {
            (self.wait_status >> 8) & 0xff
        } else {
            128 + signal
        }
    }
}

/// The signal that the command is stopped by, while it is.
pub(super) fn stopped_by(command: Tgid) -> Option<i32> {
    let options = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: zeroed is a valid siginfo, which the call fills; it stays zero where the command
    // is not stopped, and has a status where it is.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let answer = libc::waitid(libc::P_PID, command.0, &raw mut info, options);
        (answer == 0 && info.si_pid() != 0).then(|| info.si_status())
    }
}

/// Takes the command's end, if it has ended.
pub(super) fn wait(command: Tgid) -> Option<CommandEnd> {
    let mut wait_status = 0;
    // SAFETY: rusage is integers only, so zeroed is valid; both places outlive the call.
    let (ended, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let tgid = command.0.cast_signed();
        (
            libc::wait4(tgid, &raw mut wait_status, libc::WNOHANG, &raw mut usage),
            usage,
        )
    };
    (ended > 0).then(|| CommandEnd {
        wait_status,
        max_rss: super::self_cost::max_resident(&usage),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn found(name: &str) -> Result<PathBuf, CommandError> {
        find(&name.into(), &CommandUser::same())
    }

    #[test]
    fn an_end_is_reported_as_a_shell_tells_it() {
        let code = |wait_status| {
            let end = CommandEnd {
                wait_status,
                max_rss: Bytes(0),
            };
            end.exit_code()
        };
        assert_eq!(code(0), 0);
        assert_eq!(code(255 << 8), 255);
        assert_eq!(code(libc::SIGTERM), 143);
        assert_eq!(code(libc::SIGSEGV | 0x80), 139, "with a core dump");
    }

    #[test]
    fn a_command_is_looked_up_as_a_shell_does() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let path = file.to_str().unwrap();
        let code = |name: &str| found(name).map_err(|error| error.exit_code());
        assert_eq!(code(path), Err(126), "not executable");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(code(path), Ok(file.clone()));
        assert_eq!(code(&format!("{path}/below")), Err(126), "no directory");
        assert_eq!(code(dir.path().to_str().unwrap()), Err(126), "a directory");
        assert_eq!(code("/no/such/file"), Err(127));
        assert_eq!(code("no-such-command"), Err(127));
        assert_eq!(code(""), Err(127));
        let user = CommandUser::with_path(dir.path());
        std::fs::write(dir.path().join("data"), "").unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let code = |name: &str| find(&name.into(), &user).map_err(|error| error.exit_code());
        assert_eq!(code("file"), Ok(file));
        assert_eq!(code("data"), Err(126), "not executable");
        assert_eq!(code("folder"), Err(127), "a directory is no command");
        assert!(code("sh").is_ok_and(|path| path.is_absolute()));
    }

    #[test]
    fn the_interpreter_of_a_script_is_on_its_first_line() {
        let of = |text: &str| interpreter(text.as_bytes());
        assert_eq!(of("#! /no/such -e\nexit\n").as_deref(), Some("/no/such"));
        assert_eq!(of("#!/no/such").as_deref(), Some("/no/such"));
        assert_eq!(of("#!\n/no/such"), None);
        assert_eq!(of("\u{7f}ELF"), None);
    }

    #[test]
    fn an_argument_with_a_nul_byte_is_refused() {
        let argv = ["/bin/sh".into(), "a\0b".into()];
        let prepared = Prepared::new(&argv, CommandUser::same(), &[], false);
        assert!(matches!(prepared, Err(CommandError::Nul)));
    }
}
