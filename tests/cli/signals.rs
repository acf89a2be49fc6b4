//! Signals while a command is recorded: they are the command's, but the second Ctrl-C.

use super::*;

/// A command that says which signal it got, and ends with its number.
fn listener() -> Command {
    // The shell waits in a builtin, so that a trap runs at once.
    shell(
        "for s in INT TERM HUP USR1 QUIT; do trap \"echo $s; exit 9\" $s; done; echo ready; \
         while :; do sleep 0.05; done",
    )
}

#[test]
fn signals_are_passed_on_to_the_command() -> Result<()> {
    for (number, name) in [
        (libc::SIGINT, "INT"),
        (libc::SIGTERM, "TERM"),
        (libc::SIGHUP, "HUP"),
        (libc::SIGUSR1, "USR1"),
        (libc::SIGQUIT, "QUIT"),
    ] {
        let mut recorder = Recorder::of_command(&[], &listener())?;
        assert_eq!(recorder.line()?, "ready");
        recorder.signal(number)?;
        assert_eq!(recorder.line()?, name);
        let recorded = recorder.wait()?;
        assert_eq!(recorded.exit_code, 9, "{name}");
        assert!(recorded.recording.is_closed(), "{name}");
    }
    Ok(())
}

#[test]
fn without_a_handler_the_command_ends_by_the_signal() -> Result<()> {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let mut recorder = Recorder::of_command(&[], &shell("echo $$; exec sleep 60"))?;
        let pid = recorder.line()?;
        recorder.signal(number)?;
        let recorded = recorder.wait()?;
        assert_eq!(recorded.exit_code, 128 + number);
        let row = process(&recorded, pid.parse()?)?;
        assert_eq!(row.exit_signal, Some(number));
        assert!(recorded.recording.is_closed());
    }
    Ok(())
}

#[test]
fn a_second_interrupt_closes_the_recording_and_leaves_the_command_alone() -> Result<()> {
    let script = "trap 'echo INT' INT; echo $$; while :; do sleep 0.05; done";
    let mut recorder = Recorder::of_command(&[], &shell(script))?;
    let pid = recorder.line()?;
    recorder.signal(libc::SIGINT)?;
    assert_eq!(recorder.line()?, "INT");
    recorder.signal(libc::SIGINT)?;
    let (recorded, _output) = recorder.wait_alone()?;
    assert_eq!(recorded.exit_code, 128 + libc::SIGINT);
    assert!(recorded.recording.is_closed());
    assert_eq!(recorded.recording.problems(), []);
    assert!(runs(&pid), "the command lives");
    assert_eq!(process(&recorded, pid.parse()?)?.exit_boot_ns, None);
    end(&pid)
}

#[test]
fn without_a_command_the_first_interrupt_closes_the_recording() -> Result<()> {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let target = Running::start(&["idle", "--processes", "1"])?;
        let pid = target.pid();
        let recorder = Recorder::start(&["-p", &pid.to_string()])?;
        recorder.signal(number)?;
        let recorded = recorder.wait()?;
        assert_eq!(recorded.exit_code, 0);
        assert!(recorded.recording.is_closed());
        assert_eq!(process(&recorded, pid)?.exit_boot_ns, None);
    }
    Ok(())
}
