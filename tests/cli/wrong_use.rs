//! What memtrace says to a wrong use, and that it leaves nothing behind.

use super::*;

/// Runs `record -o DIR WORDS`, which must fail with `code`, say `said` in one piece, and
/// make no directory.
fn refused(words_of: &[&str], code: i32, said: &str) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let place = place.to_str().context("a path that is text")?;
    let output = memtrace([&["record", "-o", place], words_of].concat())?;
    let text = words(&output);
    assert_eq!(output.status.code(), Some(code), "{words_of:?}: {text}");
    assert!(text.contains(said), "{words_of:?}: {text}");
    assert!(output.stdout.is_empty(), "{words_of:?}");
    assert_eq!(dir.path().read_dir()?.count(), 0, "{words_of:?}");
    Ok(())
}

#[test]
fn a_command_that_does_not_exist_ends_with_127() -> Result<()> {
    refused(
        &["--", "no-such-command"],
        127,
        "command not found: no-such-command",
    )?;
    refused(
        &["--", "./no/such/file"],
        127,
        "command not found: ./no/such/file",
    )
}

#[test]
fn a_command_that_cannot_be_executed_ends_with_126() -> Result<()> {
    refused(
        &["--", "/etc/passwd"],
        126,
        "can't execute /etc/passwd: permission denied",
    )?;
    refused(&["--", "/etc"], 126, "can't execute /etc: is a directory")
}

#[test]
fn where_no_recording_can_be_made_another_place_is_asked_for() -> Result<()> {
    let output = memtrace(["record", "-o", "/proc/nowhere", "--", "true"])?;
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("create /proc/nowhere"), "{text}");
    assert!(text.contains("-o DIR"), "{text}");
    Ok(())
}

/// Makes an executable file in a directory.
fn program_in(dir: &std::path::Path, contents: &str) -> Result<String> {
    use std::os::unix::fs::PermissionsExt;
    let program = dir.join("program");
    std::fs::write(&program, contents)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(program.to_str().context("a path that is text")?.to_owned())
}

#[test]
fn a_script_without_its_interpreter_is_distinguished_from_a_command_that_does_not_exist()
-> Result<()> {
    let dir = tempfile::tempdir()?;
    let program = program_in(dir.path(), "#!/no/such -e\nexit 3\n")?;
    let said = format!("can't execute {program}: its interpreter /no/such does not exist");
    refused(&["--", &program], 127, &said)?;
    let shells = shell(&program).output()?;
    assert_eq!(shells.status.code(), Some(127), "as a shell gives it");
    Ok(())
}

/// Found out only by exec itself, when the recording has begun.
#[test]
fn a_file_of_no_known_format_ends_with_126_and_leaves_no_recording() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let program = program_in(dir.path(), "\u{1}no program")?;
    refused(&["--", &program], 126, "Exec format error")
}

#[test]
fn a_process_that_does_not_exist_is_named() -> Result<()> {
    // Above what the kernel gives out (PID_MAX_LIMIT).
    for backend in ["auto", "procfs", "sysinfo"] {
        let words = ["--backend", backend, "-p", "4194305"];
        refused(&words, 1, "no process has pid 4194305")?;
    }
    Ok(())
}

#[test]
fn a_thread_is_distinguished_from_its_process() -> Result<()> {
    let (said, tid) = std::sync::mpsc::channel();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: takes nothing and can't fail.
        said.send(unsafe { libc::syscall(libc::SYS_gettid) })?;
        let _ = wait.recv();
        Ok::<(), anyhow::Error>(())
    });
    let tid = tid.recv()?.to_string();
    let said = format!("{tid} is a thread of process {}", std::process::id());
    refused(&["-p", &tid], 1, &said)?;
    drop(end);
    thread.join().expect("the thread does not panic")
}

#[test]
fn a_process_that_has_ended_is_no_target() -> Result<()> {
    let mut child = Command::new("true").spawn()?;
    let pid = child.id().to_string();
    await_that("it has ended", || !runs(&pid));
    refused(&["-p", &pid], 1, &format!("process {pid} has ended"))?;
    child.wait()?;
    Ok(())
}

#[test]
fn a_kernel_thread_is_no_target() -> Result<()> {
    // kthreadd; in a pid namespace it is not to be seen, and 2 is another process or none.
    let is_kthreadd =
        std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm == "kthreadd\n");
    if is_kthreadd {
        for backend in ["auto", "procfs", "sysinfo"] {
            let words = ["--backend", backend, "-p", "2"];
            refused(
                &words,
                1,
                "2 is a kernel thread (kthreadd), which has no memory of its own",
            )?;
        }
    }
    Ok(())
}

#[test]
fn a_pattern_that_is_none_is_shown_with_its_mistake() -> Result<()> {
    refused(&["--match", "worker("], 2, "unclosed group")
}

#[test]
fn a_cgroup_that_does_not_exist_is_named() -> Result<()> {
    refused(&["--cgroup", "/no/such/group"], 1, "/no/such/group")
}

#[test]
fn two_kinds_of_target_are_one_too_many() -> Result<()> {
    refused(&["-p", "1", "--", "true"], 2, "cannot be used with")?;
    refused(&["-a", "--match", "x"], 2, "cannot be used with")?;
    refused(&["--cgroup", "/", "-p", "1"], 2, "cannot be used with")?;
    refused(&[], 2, "required")
}

#[test]
fn a_directory_that_holds_something_is_never_overwritten() -> Result<()> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("mine"), "kept")?;
    let place = dir.path().to_str().context("a path that is text")?;
    let ran = dir.path().join("ran");
    let touch = [
        "record",
        "-o",
        place,
        "--",
        "touch",
        ran.to_str().context("text")?,
    ];
    let output = memtrace(touch)?;
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(place) && text.contains("is not an empty directory"),
        "{text}"
    );
    assert_eq!(dir.path().read_dir()?.count(), 1, "the command was not run");
    assert_eq!(std::fs::read(dir.path().join("mine"))?, b"kept");
    Ok(())
}

#[test]
fn a_file_in_the_place_of_the_recording_is_never_overwritten() -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "kept")?;
    let place = file.path().to_str().context("a path that is text")?;
    let output = memtrace(["record", "-o", place, "--", "true"])?;
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(place), "{text}");
    assert_eq!(std::fs::read(file.path())?, b"kept");
    Ok(())
}

#[test]
fn a_path_that_was_given_cannot_act_on_the_terminal() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("a\u{1b}[2Jb\nc");
    std::fs::create_dir(&place)?;
    std::fs::write(place.join("mine"), "")?;
    for words_of in [
        vec![
            "record".as_ref(),
            "-o".as_ref(),
            place.as_os_str(),
            "--".as_ref(),
            "true".as_ref(),
        ],
        vec!["report".as_ref(), place.as_os_str()],
        vec!["recover".as_ref(), place.as_os_str()],
    ] {
        let output = memtrace(&words_of)?;
        let text = words(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(r"a\x1b[2Jb\nc"), "{words_of:?}: {text:?}");
        assert_eq!(text.lines().count(), 1, "{text:?}");
    }
    Ok(())
}

#[test]
fn a_command_without_dashes_gets_a_tip() -> Result<()> {
    let output = memtrace(["record", "sleep", "1"])?;
    assert_eq!(output.status.code(), Some(2));
    let shown = words(&output);
    assert!(shown.contains("unexpected argument 'sleep'"), "{shown}");
    assert!(shown.contains("put '--' before it: '-- sleep'"), "{shown}");

    // Elsewhere it is another slip.
    let shown = words(&memtrace(["doctor", "now"])?);
    assert!(!shown.contains("put '--'"), "{shown}");
    Ok(())
}

#[test]
fn a_section_that_needs_an_option_names_it() -> Result<()> {
    for (section, said) in [("at", "add --at TIME"), ("phase", "add --phase NAME")] {
        let output = memtrace(["report", "--section", section, "no-such-recording"])?;
        let text = words(&output);
        assert!(!output.status.success(), "{section}: {text}");
        assert!(text.contains(said), "{section}: {text}");
    }
    Ok(())
}

#[test]
fn an_option_of_another_tool_is_answered_with_the_one_that_is_here() -> Result<()> {
    for (words_of, said) in [
        (
            &["report", "a", "--json"][..],
            "instead of --json, write -f json",
        ),
        (&["report", "--oom"], "write --section oom-kills"),
        (&["report", "--pid", "3"], "write --process PID"),
        (&["report", "a", "b"], "memtrace diff A B"),
        (&["report", "--top", "0"], "a number from 1 up"),
        (&["record", "-n", "5", "--", "true"], "write -d TIME"),
        (
            &["record", "--interval", "10", "--", "true"],
            "write 10ms or 10s",
        ),
        (&["top", "--json"], "memtrace report -f json"),
        (&["top", "--keep", "--", "true"], "write --save"),
    ] {
        let output = memtrace(words_of)?;
        let text = words(&output);
        assert_eq!(output.status.code(), Some(2), "{words_of:?}: {text}");
        assert!(text.contains(said), "{words_of:?}: {text}");
    }
    Ok(())
}
