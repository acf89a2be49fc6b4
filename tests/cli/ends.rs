//! How a recording ends for the caller: the command's exit code, its output untouched, a
//! recording that says the same.

use super::*;

const BACKENDS: [&str; 3] = ["auto", "procfs", "sysinfo"];

fn recorded(backend: &str, script: &str) -> Result<(Recorded, String)> {
    let words = ["--backend", backend];
    let mut recorder = Recorder::of_command(&words, &shell(&format!("echo $$; {script}")))?;
    let pid = recorder.line()?;
    Ok((recorder.wait()?, pid))
}

#[test]
fn the_commands_exit_code_is_passed_through_and_recorded() -> Result<()> {
    for backend in BACKENDS {
        for code in [0, 1, 7, 255] {
            let (recorded, pid) = recorded(backend, &format!("exit {code}"))?;
            assert_eq!(recorded.exit_code, code, "{backend}");
            let row = process(&recorded, pid.parse()?)?;
            assert_eq!(
                (row.exit_code, row.exit_signal),
                (Some(code), None),
                "{backend}"
            );
            assert!(row.kernel_maxrss_bytes.is_some(), "{backend}");
            let is_named = row
                .cmdline
                .as_deref()
                .is_some_and(|line| line.contains("echo $$"));
            assert!(is_named, "{backend}: {:?}", row.cmdline);
        }
    }
    Ok(())
}

#[test]
fn a_signal_that_ends_the_command_is_128_and_its_number() -> Result<()> {
    for backend in BACKENDS {
        for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV] {
            let (recorded, pid) = recorded(backend, &format!("kill -{signal} $$; sleep 9"))?;
            assert_eq!(recorded.exit_code, 128 + signal, "{backend}");
            let row = process(&recorded, pid.parse()?)?;
            assert_eq!(
                (row.exit_code, row.exit_signal),
                (None, Some(signal)),
                "{backend}"
            );
        }
    }
    Ok(())
}

#[test]
fn the_commands_output_is_untouched_byte_for_byte() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let place = place.to_str().context("a path that is text")?;
    // No line end at the end, NUL, escape codes, what is not UTF-8; more than a pipe holds.
    let script = r"printf 'a\0\033[31m\377\r\n'; head -c 200000 /dev/zero | tr '\0' x; printf b >&2; printf end";
    let output = memtrace(["record", "--quiet", "-o", place, "--", "sh", "-c", script])?;
    let mut truth = b"a\0\x1b[31m\xff\r\n".to_vec();
    truth.resize(truth.len() + 200_000, b'x');
    truth.extend_from_slice(b"end");
    assert!(
        output.stdout == truth,
        "{} bytes of {}",
        output.stdout.len(),
        truth.len()
    );
    assert_eq!(words(&output), "b");
    assert_eq!(output.status.code(), Some(0));
    Ok(())
}

#[test]
fn the_command_reads_the_standard_input_that_memtrace_was_given() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let input = dir.path().join("input");
    std::fs::write(&input, "one\ntwo\n")?;
    let output = Command::new(program::memtrace()?)
        .arg("record")
        .arg("-o")
        .arg(dir.path().join("recording"))
        .args(["--", "cat"])
        .stdin(std::fs::File::open(input)?)
        .output()?;
    assert_eq!(output.stdout, b"one\ntwo\n", "{}", words(&output));
    Ok(())
}

#[test]
fn a_broken_pipe_ends_the_command_as_it_would_without_memtrace() -> Result<()> {
    let (recorded, _) = recorded("auto", "yes | head -n 1 >/dev/null; kill -PIPE $$; exit 3")?;
    assert_eq!(recorded.exit_code, 128 + libc::SIGPIPE);
    Ok(())
}

#[test]
fn after_its_duration_a_recording_ends_and_the_command_goes_on() -> Result<()> {
    let mut recorder = Recorder::of_command(&["-d", "500ms"], &shell("echo $$; exec sleep 60"))?;
    let pid = recorder.line()?;
    let (recorded, _) = recorder.wait_alone()?;
    assert_eq!(recorded.exit_code, 0);
    assert!(recorded.recording.is_closed());
    assert!(runs(&pid));
    assert_eq!(process(&recorded, pid.parse()?)?.exit_boot_ns, None);
    end(&pid)
}

#[test]
fn the_recorders_own_peak_is_not_that_of_the_program_that_started_it() -> Result<()> {
    use memtrace_model::SelfCostRow;
    use std::os::unix::process::CommandExt;
    const HELD: usize = 200 << 20;
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let mut command = Command::new(program::memtrace()?);
    command
        .args(["record", "--quiet", "-o"])
        .arg(&place)
        .args(["--", "true"]);
    let hold = || {
        // SAFETY: a mapping of our own, which exec takes away, and writes inside of it.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), HELD, protection, flags, -1, 0);
            if start == libc::MAP_FAILED {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: what it does is safe between fork and exec: one system call.
    unsafe { command.pre_exec(hold) };
    assert!(command.status()?.success());
    let costs: Vec<SelfCostRow> = memtrace_store::Recordings::default().open(&place)?.rows()?;
    let peak = costs.iter().filter_map(|row| row.peak_rss_bytes).max();
    assert!(peak.is_some_and(|peak| peak.0 < HELD as i64), "{peak:?}");
    Ok(())
}
