//! A process id that is used again. In a pid namespace of its own, where the next id can be
//! chosen and nobody else forks.

use super::*;

mod needs_mount {
    use super::*;
    use memtrace_store::Recordings;
    use memtrace_tests::need;

    #[test]
    fn two_processes_of_one_id_stay_two() -> Result<()> {
        need::require("mount");
        let dir = tempfile::tempdir()?;
        let place = dir.path().join("recording");
        // Each lives for some polls.
        let script = "sleep 1 & a=$!; wait $a; \
                      echo $((a - 1)) >/proc/sys/kernel/ns_last_pid; \
                      sleep 1.1 & b=$!; wait $b; echo $a $b";
        let output = Command::new("unshare")
            .args(["--pid", "--mount-proc", "--fork"])
            .arg(program::memtrace()?)
            .args(["record", "--backend", "procfs", "--interval", "50ms"])
            // A poll that is put off on a busy machine meets neither.
            .args(["--budget", "100"])
            .arg("-o")
            .arg(&place)
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8(output.stdout.clone())?;
        let (first, second) = text
            .trim()
            .split_once(' ')
            .with_context(|| words(&output))?;
        assert_eq!(first, second, "the id was used again");
        let tgid: u32 = first.parse()?;

        let rows: Vec<ProcessRow> = Recordings::default().open(&place)?.rows()?;
        let sleeps: Vec<&ProcessRow> = rows.iter().filter(|row| row.tgid.0 == tgid).collect();
        let [first, second] = sleeps.as_slice() else {
            anyhow::bail!("{} processes of the id: {rows:#?}", sleeps.len());
        };
        assert_ne!(first.upid, second.upid);
        let lines = [first, second].map(|row| row.cmdline.as_deref());
        assert_eq!(lines, [Some("sleep 1"), Some("sleep 1.1")]);
        // A poll notices an end when it comes by, which is before it meets the next.
        assert!(first.exit_boot_ns <= Some(second.first_seen_boot_ns));
        Ok(())
    }
}
