//! What is done with a recording once it is closed: requests are imported, and what a report finds
//! is saved as tables. A process of its own does each, as the person who started the recording and
//! with no rights beyond theirs: reading what traced processes have said is no work for root.

use memtrace_host::{Person, give_up_rights_in_child};
use memtrace_report::visible;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Seconds of a CPU that the process may take.
const CPU_SECONDS: libc::rlim_t = 120;
/// Its address space, in bytes.
const SPACE_BYTES: libc::rlim_t = 1 << 30;
/// It is waited for no longer than this.
const TIME_MAX: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(5);
/// Of what it says only the end is kept.
const SAID_BYTES_MAX: usize = 64 << 10;
/// What a pipe holds, so that it can be emptied at once.
const PIPE_BYTES: usize = 64 << 10;
/// The person is reported what takes longer than this.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Whoever needs memory may take it from the process first.
const OOM_SCORE: &[u8] = b"500";
/// It leaves the CPU to others.
const NICENESS: libc::c_int = 10;

/// A signal came that ends the wait.
static IS_SIGNALLED: AtomicBool = AtomicBool::new(false);

/// Has memtrace do something, as that person. Answers what it said, line by line, or why it did not
/// do it. `slow` is said where it takes long.
pub(super) fn run<S: AsRef<OsStr>>(
    words: &[S],
    person: Option<&Person>,
    slow: Option<&str>,
) -> Result<Vec<String>, String> {
    let (status, said) = ended(words, person, slow).map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&said);
    let lines = said.lines().map(|line| {
        let line = line.strip_prefix("memtrace: ").unwrap_or(line);
        visible(line).into_owned()
    });
    let mut lines: Vec<String> = lines.collect();
    if status.success() {
        return Ok(lines);
    }
    if is_signalled() {
        return Err("a signal arrived in the meantime".to_owned());
    }
    Err(match (lines.pop(), status.signal()) {
        (Some(last), None) => last,
        (_, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => status.to_string(),
    })
}

/// Answers how the process ended and what it said. Whoever the person is has power over it, and
/// can be a process that was recorded: it is waited for no longer than [`TIME_MAX`], and what it
/// has said by then is all.
fn ended<S: AsRef<OsStr>>(
    words: &[S],
    person: Option<&Person>,
    slow: Option<&str>,
) -> io::Result<(ExitStatus, Vec<u8>)> {
    signals_end_the_wait();
    // The same file even where its path has another by now.
    let program = match cfg!(target_os = "linux") {
        true => PathBuf::from("/proc/self/exe"),
        false => std::env::current_exe()?,
    };
    let mut command = Command::new(program);
    command
        .args(words)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let person = person.cloned();
    let recorder = std::process::id();
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(move || prepare(person.as_ref(), recorder, CPU_SECONDS)) };
    let mut child = command.spawn()?;
    let mut stderr = child.stderr.take();
    let mut said = Vec::new();
    if let Some(stderr) = &stderr {
        rustix::io::ioctl_fionbio(stderr, true)?;
    }
    let mut hear = || {
        if let Some(stderr) = &mut stderr {
            keep_last(stderr, &mut said);
        }
    };
    let since = Instant::now();
    let mut slow = slow;
    let status = loop {
        hear();
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if since.elapsed() > TIME_MAX || is_signalled() {
            child.kill()?;
            break child.wait()?;
        }
        if since.elapsed() > SILENCE_MAX
            && let Some(slow) = slow.take()
        {
            super::say(slow);
        }
        std::thread::sleep(PAUSE);
    };
    hear();
    Ok((status, said))
}

/// Takes what the pipe has, without waiting, and keeps the end of all that came.
pub(super) fn keep_last(mut pipe: impl Read, said: &mut Vec<u8>) {
    let mut came = vec![0; PIPE_BYTES];
    let count = pipe.read(&mut came).unwrap_or(0);
    came.truncate(count);
    said.append(&mut came);
    said.drain(..said.len().saturating_sub(SAID_BYTES_MAX));
}

/// From here on a signal ends the wait, and memtrace still ends with the command's status.
pub(super) fn signals_end_the_wait() {
    extern "C" fn note(_: libc::c_int) {
        IS_SIGNALLED.store(true, Ordering::Relaxed);
    }
    let note = note as extern "C" fn(libc::c_int);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(number, note as libc::sighandler_t) };
    }
}

/// Whether one has come since then.
pub(super) fn is_signalled() -> bool {
    IS_SIGNALLED.load(Ordering::Relaxed)
}

/// In the child: leaves CPU and memory to others first.
pub(super) fn step_back() {
    // SAFETY: plain numbers, a path that ends in NUL, and a buffer with its length. None of it
    // matters enough to give up for.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS);
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        libc::write(file, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
        libc::close(file);
    }
}

/// In the child: gives up what it does not need.
pub(super) fn prepare(
    person: Option<&Person>,
    recorder: u32,
    cpu_seconds: libc::rlim_t,
) -> io::Result<()> {
    let limits = [
        (libc::RLIMIT_CPU, cpu_seconds),
        (libc::RLIMIT_AS, SPACE_BYTES),
        (libc::RLIMIT_CORE, 0),
    ];
    for (resource, most) in limits {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: a valid rlimit. Where a lower one is there already it stays.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    }
    step_back();
    if let Some(person) = person {
        person.become_in_child()?;
    }
    give_up_rights_in_child()?;
    #[cfg(target_os = "linux")]
    {
        // After the change of user, which clears it.
        // SAFETY: plain numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if std::os::unix::process::parent_id() != recorder {
            // It died before that was set.
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = recorder;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_said_the_end_is_kept() {
        let mut said = Vec::new();
        for part in [vec![b'a'; PIPE_BYTES], b"\nthe end".to_vec(), Vec::new()] {
            keep_last(part.as_slice(), &mut said);
        }
        assert_eq!(said.len(), SAID_BYTES_MAX);
        assert!(said.ends_with(b"a\nthe end"));
    }
}
