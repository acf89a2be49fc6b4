//! Saves what a report finds as tables beside a recording that was closed. A process of its own
//! does that, as the person who started the recording and with no rights beyond theirs: reading
//! what traced processes have said is no work for root.

use crate::host::{Person, give_up_rights_in_child};
use crate::report::visible;
use crate::session::Outcome;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Of more rows than this it takes too long to do it unasked.
const ROWS_MAX: i64 = 10_000_000;

/// Seconds of a CPU that the process may take.
const CPU_SECONDS: libc::rlim_t = 120;
/// Its address space, in bytes.
const SPACE_BYTES: libc::rlim_t = 1 << 30;
/// It is waited for no longer than this.
const TIME_MAX: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(5);
/// More of what it says is not read.
const SAID_BYTES_MAX: u64 = 4_096;

/// Whoever needs memory may take it from the process first.
const OOM_SCORE: &[u8] = b"500";
/// It leaves the CPU to others.
const NICENESS: libc::c_int = 10;

/// Saves them. Answers why that was not done.
pub(super) fn save(outcome: &Outcome, person: Option<&Person>) -> Result<(), String> {
    if outcome.row_count > ROWS_MAX {
        return Err(format!("it has more than {ROWS_MAX} rows"));
    }
    let (status, said) = run(&outcome.dir, person).map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().last().map(|line| {
        let line = line.strip_prefix("memtrace: ").unwrap_or(line);
        visible(line).into_owned()
    });
    Err(match (last, status.signal()) {
        (Some(last), None) => last,
        (_, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => status.to_string(),
    })
}

/// Answers how the process ended and what it said. Whoever the person is has power over it, and
/// can be a process that was recorded: it is waited for no longer than [`TIME_MAX`], and what it
/// has said by then is all.
fn run(dir: &Path, person: Option<&Person>) -> io::Result<(ExitStatus, Vec<u8>)> {
    // The same file even where its path has another by now.
    let program = match cfg!(target_os = "linux") {
        true => PathBuf::from("/proc/self/exe"),
        false => std::env::current_exe()?,
    };
    let mut command = Command::new(program);
    command
        .args(["report", "--save-findings"])
        .arg(dir)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let person = person.cloned();
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(move || prepare(person.as_ref())) };
    let mut child = command.spawn()?;
    let since = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if since.elapsed() > TIME_MAX => {
                child.kill()?;
                break child.wait()?;
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        rustix::io::ioctl_fionbio(&stderr, true)?;
        // What it does not have yet nobody waits for.
        let _ = stderr.take(SAID_BYTES_MAX).read_to_end(&mut said);
    }
    Ok((status, said))
}

/// In the child: gives up what it does not need.
fn prepare(person: Option<&Person>) -> io::Result<()> {
    let limits = [
        (libc::RLIMIT_CPU, CPU_SECONDS),
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
    // SAFETY: plain numbers, a path that ends in NUL, and a buffer with its length. None of it
    // matters enough to give up for.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS);
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        libc::write(file, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
        libc::close(file);
    }
    if let Some(person) = person {
        person.become_in_child()?;
    }
    give_up_rights_in_child()
}
