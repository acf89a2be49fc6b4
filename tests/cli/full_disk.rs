//! A disk that fills up during a recording.

use super::*;

#[test]
fn a_file_that_may_not_grow_ends_the_recording_and_not_the_command() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // In units of 512 bytes.
    let script = r#"
        ulimit -f 64
        exec "$1" record -o "$2" -- sh -c '"$0" forkstorm --count 1500 >/dev/null; exit 5' "$3"
    "#;
    let output = shell(script)
        .arg("sh")
        .arg(program::memtrace()?)
        .arg(dir.path().join("recording"))
        .arg(program::workload()?)
        .output()?;
    let text = words(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(
        text.contains("stopped recording: ") && text.contains("ulimit -f"),
        "{text}"
    );
    Ok(())
}

mod needs_freeze {
    use super::*;
    use memtrace_tests::need;

    /// The disk hangs: what is written to it waits for as long as it is frozen.
    #[test]
    fn a_disk_that_hangs_keeps_nobody_who_is_asked_to_end_and_what_is_missing_is_reported()
    -> Result<()> {
        need::require("freeze");
        let dir = tempfile::tempdir()?;
        let script = r#"
            set -e
            cd "$1"; mkdir disk; truncate -s 64M image; mkfs.ext4 -q image
            mount -o loop image disk
            sleep 60 & target=$!
            "$2" record -p $target -o disk/recording 2>words & recorder=$!
            while ! [ -e disk/recording/run.json ]; do sleep 0.05; done
            sleep 0.5
            fsfreeze -f disk
            said() { n=0; until grep -q "$1" words || [ $n -ge 300 ]; do sleep 0.1; n=$((n+1)); done; }
            sleep 1
            kill -TERM $recorder
            # It can't be gone before the kernel lets its thread go, but it says that it gives up.
            said "stopped recording: "
            cat words
            fsfreeze -u disk
            set +e
            wait $recorder; echo "ended with $?"
            kill $target
            umount disk
        "#;
        let output = shell_with_own_mounts(script)
            .arg(dir.path())
            .arg(program::memtrace()?)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains("the disk accepts no data"),
            "{text} {}",
            words(&output)
        );
        assert!(text.contains("stopped recording: "), "{text}");
        assert!(text.contains("the disk has accepted nothing for"), "{text}");
        assert!(text.contains("ended with 1"), "{text}");
        Ok(())
    }
}

mod needs_mount {
    use super::*;
    use memtrace_store::Recordings;
    use memtrace_tests::need;

    #[test]
    fn a_full_disk_ends_the_recording_and_not_the_command() -> Result<()> {
        need::require("mount");
        let dir = tempfile::tempdir()?;
        let (disk, kept) = (dir.path().join("disk"), dir.path().join("kept"));
        std::fs::create_dir(&disk)?;
        let script = r#"
            mount -t tmpfs -o size=400k none "$1" || exit 99
            "$2" record -o "$1/recording" -- \
                sh -c '"$0" forkstorm --count 1500 >/dev/null; echo ended; exit 5' "$3"
            code=$?
            cp -a "$1/recording" "$4" || exit 98
            exit $code
        "#;
        let output = shell_with_own_mounts(script)
            .arg(&disk)
            .arg(program::memtrace()?)
            .arg(program::workload()?)
            .arg(&kept)
            .output()?;
        let text = words(&output);
        assert_eq!(output.status.code(), Some(5), "{text}");
        assert_eq!(output.stdout, b"ended\n", "the command ran to its end");
        assert!(
            text.contains("stopped recording: ") && text.contains("no space is left"),
            "{text}"
        );

        let recording = Recordings::default().open(&kept)?;
        assert!(!recording.is_closed());
        let before: Vec<ProcessRow> = recording.rows()?;
        assert!(before.len() > 10, "{} processes were kept", before.len());
        let report = memtrace(["report".as_ref(), kept.as_os_str()])?;
        assert!(report.status.success(), "{}", words(&report));
        // Where there is room again it can be closed.
        let recover = memtrace(["recover".as_ref(), kept.as_os_str()])?;
        assert!(recover.status.success(), "{}", words(&recover));
        let recording = Recordings::default().open(&kept)?;
        assert!(recording.is_closed());
        assert_eq!(recording.rows::<ProcessRow>()?, before);
        Ok(())
    }
}
