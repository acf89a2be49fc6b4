//! A disk that fills up during a recording.

use super::*;

mod needs_mount {
    use super::*;
    use memtrace::store::Recording;
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

        let recording = Recording::open(&kept)?;
        assert!(!recording.is_closed());
        let before: Vec<ProcessRow> = recording.rows()?;
        assert!(before.len() > 10, "{} processes were kept", before.len());
        let report = memtrace(["report".as_ref(), kept.as_os_str()])?;
        assert!(report.status.success(), "{}", words(&report));
        // Where there is room again it can be closed.
        let recover = memtrace(["recover".as_ref(), kept.as_os_str()])?;
        assert!(recover.status.success(), "{}", words(&recover));
        let recording = Recording::open(&kept)?;
        assert!(recording.is_closed());
        assert_eq!(recording.rows::<ProcessRow>()?, before);
        Ok(())
    }
}
