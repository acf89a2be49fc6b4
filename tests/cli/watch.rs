//! `memtrace watch`, as whoever is called at night meets it.

use super::*;
use memtrace_tests::cgroup::MemoryGroup;
use memtrace_tests::need;
use serde_json::Value;
use std::fs::File;
use std::process::{Child, ExitStatus};

/// A program that ends with the test.
struct Started(Child);

impl Started {
    fn send(&self, signal: i32) -> Result<()> {
        let pid = i32::try_from(self.0.id())?;
        // SAFETY: plain numbers; the child is not waited for yet.
        anyhow::ensure!(unsafe { libc::kill(pid, signal) } == 0);
        Ok(())
    }

    fn end(mut self) -> Result<ExitStatus> {
        self.send(libc::SIGTERM)?;
        Ok(self.0.wait()?)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of recordings that is watched from before the first one on.
struct Watched {
    dir: tempfile::TempDir,
    watcher: Started,
}

impl Watched {
    /// `program` is started for each event.
    fn by(program: &[&str], options: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join("recordings"))?;
        let (out, beside) = (dir.path().join("out"), dir.path().join("beside"));
        let watcher = Command::new(program::memtrace()?)
            .args(["watch", "recordings"])
            .args(options)
            .arg("--")
            .args(program)
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(File::create(out)?)
            .stderr(File::create(beside)?)
            .spawn()?;
        Ok(Self {
            dir,
            watcher: Started(watcher),
        })
    }

    /// Each event as JSON is a line of the file `saved`.
    fn saving(options: &[&str]) -> Result<Self> {
        Self::by(&["sh", "-c", "cat >> saved"], options)
    }

    fn record(&self, target: &[&str]) -> Result<Started> {
        let recorder = Command::new(program::memtrace()?)
            .args(["record", "--quiet", "-o"])
            .arg(self.dir.path().join("recordings/one"))
            .args(target)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Started(recorder))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(file)).unwrap_or_default()
    }

    /// The events in a file, as far as they are whole.
    fn events(&self, file: &str) -> Vec<Value> {
        let text = self.read(file);
        let objects = text.lines().map(serde_json::from_str);
        objects.filter_map(Result::ok).collect()
    }
}

fn kinds(events: &[Value]) -> Vec<Option<&str>> {
    events.iter().map(|event| event["event"].as_str()).collect()
}

mod needs_bpf {
    use super::*;

    #[test]
    fn a_program_gets_a_crash_and_the_loss_of_the_recorder() -> Result<()> {
        need::require("bpf");
        let watched = Watched::saving(&["-f", "json", "--on", "crash,recorder-gone"])?;
        // Its second process crashes once it was looked at.
        let script = "sleep 3; sh -c 'kill -SEGV $$'; exec sleep 60";
        let mut recorder = watched.record(&["--kill-child", "--", "sh", "-c", script])?;
        await_that("the crash is reported", || {
            !watched.events("saved").is_empty()
        });
        recorder.send(libc::SIGKILL)?;
        recorder.0.wait()?;
        await_that("the loss is reported", || {
            watched.events("saved").len() >= 2
        });
        let (lines, saved) = (watched.events("out"), watched.events("saved"));
        let both = [Some("crash"), Some("recorder-gone")];
        assert_eq!(kinds(&lines), both);
        assert_eq!(kinds(&saved), both);
        let (crash, gone) = (&saved[0], &saved[1]);
        assert_eq!(crash["text"], "SIGSEGV from itself", "{crash}");
        assert_eq!(crash["left_out_count"], 0);
        assert_eq!(crash["report_error"], Value::Null);
        // Who was there at that instant.
        let holders = crash["report"]["at"]["holders"].as_array();
        let is_held = holders.is_some_and(|holders| !holders.is_empty());
        assert!(is_held, "{crash}");
        assert_eq!(crash["report"]["process"]["pid"], crash["pid"], "{crash}");
        assert_eq!(gone["report"], Value::Null, "{gone}");
        let status = watched.watcher.end()?;
        assert!(status.success(), "{status}");
        Ok(())
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_is_reported_and_watching_goes_on() -> Result<()> {
        need::require("bpf");
        for (program, why) in [
            ("false", "exit status: 1"),
            ("/nowhere/notify", "can't be started"),
        ] {
            let watched = Watched::by(&[program], &["--on", "crash"])?;
            let script = "for i in 1 2; do sleep 2; sh -c 'kill -SEGV $$'; done; exec sleep 60";
            let _recorder = watched.record(&["--kill-child", "--", "sh", "-c", script])?;
            await_that("both are reported", || {
                watched.read("beside").matches(why).count() >= 2
            });
            let said = watched.read("beside");
            assert!(
                said.contains(&format!("{program} could not handle")),
                "{said}"
            );
            let status = watched.watcher.end()?;
            assert!(status.success(), "{status}");
        }
        Ok(())
    }

    mod needs_memcg {
        use super::*;

        #[test]
        fn an_oom_kill_is_reported_with_its_post_mortem_and_a_limit_before_it() -> Result<()> {
            need::require("bpf");
            need::require("memcg");
            let group = MemoryGroup::new("memtrace-watch", 256 << 20)?;
            let watched = Watched::saving(&["--on", "limit,oom-kill"])?;
            let mut python = Command::new("python3");
            // Near the limit for a while, and then above it.
            let script = "import time; time.sleep(3); held = bytearray(236 << 20); time.sleep(6); \
                          more = bytearray(100 << 20)";
            python.args(["-c", script]);
            let mut killed = Started(group.inside(&python).spawn()?);
            let _recorder = watched.record(&["-p", &killed.0.id().to_string()])?;
            killed.0.wait()?;
            let of_kill = |event: &Value| event["event"] == "oom-kill";
            await_that("the kill is reported", || {
                watched.events("saved").iter().any(of_kill)
            });
            let (said, saved) = (watched.read("out"), watched.events("saved"));
            // The machine can be near its own limit.
            let of_group = |event: &&Value| {
                of_kill(event) || event["subject"].to_string().contains("memtrace-watch")
            };
            let events: Vec<Value> = saved.iter().filter(of_group).cloned().collect();
            assert_eq!(kinds(&events), [Some("limit"), Some("oom-kill")], "{said}");
            assert!(said.contains("(limit 256 MiB) was full"), "{said}");
            let kill = &events[1];
            let grew = &kill["report"]["oom_kill"]["post_mortem"];
            assert!(grew.is_object(), "{kill}");
            assert!(kill["report"]["answer"].to_string().contains("was killed"));
            Ok(())
        }
    }
}
