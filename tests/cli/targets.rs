//! Whom a recording takes in: by id, by name, by cgroup, everybody.

use super::*;
use memtrace_model::SurvivorRow;
use memtrace_model::tables::Fate;
use memtrace_tests::workload;
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// A process by its id, where it belongs to the recording.
fn find(rows: &[ProcessRow], pid: u32) -> Option<&ProcessRow> {
    rows.iter().find(|row| row.tgid.0 == pid)
}

/// A shell that starts `sleep` for each byte it is given, and says the child's id.
fn parent() -> Result<Running> {
    Running::spawn(&mut shell(
        "while read x; do sleep 60 & echo $!; pids=\"$pids $!\"; done; kill $pids",
    ))
}

/// A server that vLLM's rules and its path match, as they do its engine, and which is killed.
struct Server {
    running: Running,
    place: tempfile::TempDir,
    engine: u32,
}

impl Server {
    fn start(place_in: impl FnOnce(Command) -> Command) -> Result<Self> {
        let place = tempfile::tempdir()?;
        let program = place.path().join("vllm");
        std::os::unix::fs::symlink("/bin/sh", &program)?;
        std::fs::write(place.path().join("engine"), "while :; do sleep 1; done")?;
        std::fs::write(
            place.path().join("serve"),
            "\"$1/vllm\" \"$1/engine\" serve > /dev/null 2>&1 & echo $!; read x; kill -9 $$",
        )?;
        let mut command = Command::new(&program);
        command.arg("serve").arg(place.path());
        let mut command = place_in(command);
        let mut running = Running::spawn(command.current_dir(place.path()))?;
        let engine = running.line()?.as_u64().context("an id")?;
        Ok(Self {
            running,
            place,
            engine: u32::try_from(engine)?,
        })
    }

    /// What becomes of the engine, with a recorder that is to end survivors where it may.
    fn outlived(self, way: &[String]) -> Result<Option<Fate>> {
        let Self {
            mut running,
            place: _place,
            engine,
        } = self;
        let way = way.iter().map(String::as_str);
        let mut words: Vec<&str> = ["--backend", "bpf"].into_iter().chain(way).collect();
        if !words.contains(&"-a") {
            words.push("--kill-survivors");
        }
        let recorder = Recorder::start(&words)?;
        std::thread::sleep(POLLS);
        running.go()?;
        assert!(running.finish().is_err(), "it was killed");
        std::thread::sleep(POLLS);
        let fate = fate_of(&recorder.stop()?, engine);
        if runs(&engine.to_string()) {
            end(&engine.to_string())?;
        }
        fate
    }
}

/// What became of a process that outlived its root.
fn fate_of(recorded: &Recorded, pid: u32) -> Result<Option<Fate>> {
    let rows: Vec<SurvivorRow> = recorded.recording.rows()?;
    let row = rows.iter().find(|row| row.tgid.0 == pid);
    let row = row.with_context(|| format!("{pid} is not reported: {rows:?}"))?;
    assert!(row.has_root_ended, "{row:?}");
    Ok(row.fate)
}

/// What is started while the recorder runs lives for some polls.
const POLLS: Duration = Duration::from_millis(1500);

fn a_pid_brings_its_descendants(backend: &str) -> Result<()> {
    let mut parent = parent()?;
    parent.go()?;
    let present = parent.line()?.as_u64().context("an id")?;
    let recorder = Recorder::start(&["--backend", backend, "-p", &parent.pid().to_string()])?;
    parent.go()?;
    let future = parent.line()?.as_u64().context("an id")?;
    std::thread::sleep(POLLS);
    let recorded = recorder.stop()?;
    let root = parent.pid();
    parent.finish()?;
    let rows: Vec<ProcessRow> = recorded.recording.rows()?;
    let root = find(&rows, root).context("the target is not recorded")?;
    for child in [present, future] {
        let row =
            find(&rows, u32::try_from(child)?).with_context(|| format!("no child {child}"))?;
        assert_eq!(row.parent_upid, Some(root.upid), "{backend}");
        assert_eq!(row.root_upid, Some(root.upid), "{backend}");
        assert_eq!(row.comm, "sleep", "{backend}");
    }
    assert_eq!(rows.len(), 3, "{backend}: nobody else belongs: {rows:#?}");
    Ok(())
}

fn a_peak_from_before_the_recording_is_known(backend: &str) -> Result<()> {
    // Before and after its only spike, which a slow machine must not get to record.
    let words = [
        "spike", "--count", "1", "--bytes", "64M", "--gap-ms", "3000",
    ];
    let mut target = Running::held(&words)?;
    target.go()?;
    let line = target.line()?;
    let mark = workload::number(&line, "vmhwm_bytes")?;
    let pid = target.pid();
    let words = ["--backend", backend, "-d", "300ms", "-p", &pid.to_string()];
    let recorded = Recorder::start(&words)?.wait()?;
    let row = process(&recorded, pid)?;
    assert_eq!(
        row.peak_rss_bytes.map(|bytes| bytes.0),
        Some(mark),
        "{backend}"
    );
    assert_eq!(row.peak_rss_boot_ns, None, "only the kernel's mark knows");
    Ok(())
}

fn a_recording_of_a_pid_ends_with_its_last_process(backend: &str) -> Result<()> {
    let target = Running::start(&["idle", "--processes", "1"])?;
    let pid = target.pid().to_string();
    let recorder = Recorder::start(&["--backend", backend, "-p", &pid])?;
    target.finish()?;
    let recorded = recorder.wait()?;
    assert_eq!(recorded.exit_code, 0);
    assert!(recorded.recording.is_closed());
    Ok(())
}

/// Started under an own name, which is what `--match` looks for.
fn sleeper(name: &str, argument: &str) -> Command {
    let mut command = shell("read x; : $0");
    command.arg0(name).arg(argument);
    command
}

fn a_pattern_finds_processes_that_run_and_that_come(backend: &str) -> Result<()> {
    let tag = format!("mt{}{}", &backend[..1], std::process::id());
    let dir = tempfile::tempdir()?;
    // The name in the kernel is the file's, here a link's.
    let link = dir.path().join(format!("{tag}-comm"));
    std::os::unix::fs::symlink("/bin/sh", &link)?;
    let by_comm = || {
        let mut command = Command::new(&link);
        command.arg0("other").args(["-c", "read x; :"]);
        command
    };
    let by_cmdline = || sleeper("sh", &format!("{tag}-line"));
    let by_title = || {
        let mut command = workload::command(&["titles", "--gap-ms", "700", "--count", "9"])?;
        command.args(["--title", &tag]);
        Ok::<Command, anyhow::Error>(command)
    };
    // Of titles, the second that the process takes: its command line holds none.
    let pattern = format!("{tag}-comm|{tag}-line|{tag}::phase-[1-9]");
    let mut processes = Vec::new();
    let mut start = || -> Result<()> {
        processes.push(Running::spawn(&mut by_comm())?);
        processes.push(Running::spawn(&mut by_cmdline())?);
        processes.push(Running::spawn(&mut by_title()?)?);
        Ok(())
    };
    start()?;
    let recorder = Recorder::start(&["--backend", backend, "--match", &pattern])?;
    start()?;
    std::thread::sleep(2 * POLLS);
    let recorded = recorder.stop()?;
    let rows: Vec<ProcessRow> = recorded.recording.rows()?;
    for (index, running) in processes.iter().enumerate() {
        let row = find(&rows, running.pid());
        assert!(
            row.is_some(),
            "{backend}: process {index} is missing: {rows:#?}"
        );
    }
    assert_eq!(
        rows.len(),
        processes.len(),
        "{backend}: nobody else: {rows:#?}"
    );
    Ok(())
}

fn everybody_is_everybody_but_kernel_threads(backend: &str) -> Result<()> {
    let before = Running::start(&["idle", "--processes", "1"])?;
    let recorder = Recorder::start(&["--backend", backend, "-a"])?;
    let after = Running::start(&["idle", "--processes", "1"])?;
    std::thread::sleep(POLLS);
    let recorded = recorder.stop()?;
    let rows: Vec<ProcessRow> = recorded.recording.rows()?;
    for running in [&before, &after] {
        assert!(find(&rows, running.pid()).is_some(), "{backend}");
    }
    assert!(find(&rows, std::process::id()).is_some(), "{backend}");
    assert!(rows.iter().all(|row| row.comm != "kthreadd"), "{backend}");
    Ok(())
}

mod procfs {
    use super::*;

    #[test]
    fn a_pid_brings_its_descendants() -> Result<()> {
        super::a_pid_brings_its_descendants("procfs")
    }

    #[test]
    fn a_peak_from_before_the_recording_is_known() -> Result<()> {
        super::a_peak_from_before_the_recording_is_known("procfs")
    }

    #[test]
    fn a_recording_of_a_pid_ends_with_its_last_process() -> Result<()> {
        super::a_recording_of_a_pid_ends_with_its_last_process("procfs")
    }

    #[test]
    fn a_pattern_finds_processes_that_run_and_that_come() -> Result<()> {
        super::a_pattern_finds_processes_that_run_and_that_come("procfs")
    }

    #[test]
    fn everybody_is_everybody_but_kernel_threads() -> Result<()> {
        super::everybody_is_everybody_but_kernel_threads("procfs")
    }
}

mod sysinfo {
    use super::*;

    #[test]
    fn a_pid_brings_its_descendants() -> Result<()> {
        super::a_pid_brings_its_descendants("sysinfo")
    }

    #[test]
    fn a_recording_of_a_pid_ends_with_its_last_process() -> Result<()> {
        super::a_recording_of_a_pid_ends_with_its_last_process("sysinfo")
    }

    #[test]
    fn a_pattern_finds_processes_that_run_and_that_come() -> Result<()> {
        super::a_pattern_finds_processes_that_run_and_that_come("sysinfo")
    }

    #[test]
    fn everybody_is_everybody_but_kernel_threads() -> Result<()> {
        super::everybody_is_everybody_but_kernel_threads("sysinfo")
    }

    #[test]
    fn a_cgroup_is_refused() -> Result<()> {
        let words_of = [
            "record",
            "--backend",
            "sysinfo",
            "-o",
            "/nonexistent/x",
            "--cgroup",
            "/",
        ];
        let output = memtrace(words_of)?;
        assert_eq!(output.status.code(), Some(1));
        assert!(words(&output).contains("cgroup"), "{}", words(&output));
        Ok(())
    }
}

mod needs_bpf {
    use super::*;
    use memtrace_tests::need;

    #[test]
    fn a_pid_brings_its_descendants() -> Result<()> {
        need::require("bpf");
        super::a_pid_brings_its_descendants("bpf")
    }

    #[test]
    fn a_peak_from_before_the_recording_is_known() -> Result<()> {
        need::require("bpf");
        super::a_peak_from_before_the_recording_is_known("bpf")
    }

    #[test]
    fn a_recording_of_a_pid_ends_with_its_last_process() -> Result<()> {
        need::require("bpf");
        super::a_recording_of_a_pid_ends_with_its_last_process("bpf")
    }

    #[test]
    fn a_pattern_finds_processes_that_run_and_that_come() -> Result<()> {
        need::require("bpf");
        super::a_pattern_finds_processes_that_run_and_that_come("bpf")
    }

    #[test]
    fn what_a_killed_server_leaves_has_outlived_it_however_it_is_recorded() -> Result<()> {
        need::require("bpf");
        let ways: [fn(&Server) -> Vec<String>; 4] = [
            |server| vec!["-p".to_owned(), server.running.pid().to_string()],
            |server| {
                vec![
                    "--match".to_owned(),
                    server.place.path().display().to_string(),
                ]
            },
            |_| vec!["--vllm".to_owned()],
            |_| vec!["-a".to_owned()],
        ];
        for way in ways {
            let server = Server::start(|command| command)?;
            let way = way(&server);
            let fate = server.outlived(&way).with_context(|| format!("{way:?}"))?;
            // Of the whole machine nobody is ended.
            let is_all = way[0] == "-a";
            let expected = if is_all { Fate::Left } else { Fate::Terminated };
            assert_eq!(fate, Some(expected), "{way:?}");
        }
        Ok(())
    }

    #[test]
    fn what_a_killed_command_leaves_has_outlived_it() -> Result<()> {
        need::require("bpf");
        let words = ["--backend", "bpf", "--kill-survivors"];
        let script = "sleep 60 > /dev/null & echo $!; sleep 2; kill -9 $$";
        let mut recorder = Recorder::of_command(&words, &shell(script))?;
        let engine = recorder.line()?.trim().parse()?;
        let recorded = recorder.wait()?;
        assert_eq!(fate_of(&recorded, engine)?, Some(Fate::Terminated));
        Ok(())
    }

    #[test]
    fn everybody_is_everybody_but_kernel_threads() -> Result<()> {
        need::require("bpf");
        super::everybody_is_everybody_but_kernel_threads("bpf")
    }
}

mod needs_memcg {
    use super::*;
    use memtrace_tests::cgroup::MemoryGroup;
    use memtrace_tests::need;

    fn a_cgroup_takes_in_who_is_moved_in_and_who_starts_there(backend: &str) -> Result<()> {
        need::require("memcg");
        let group = MemoryGroup::new(&format!("memtrace-target-{backend}"), 256 << 20)?;
        let below = group.dir().join("below");
        std::fs::create_dir(&below)?;
        let sleeper = || shell("read x; :");
        let within = Running::spawn(&mut group.inside(&sleeper()))?;
        let moved = Running::spawn(&mut sleeper())?;
        let stranger = Running::spawn(&mut sleeper())?;
        let path = group.dir().to_str().context("a path that is text")?;
        let recorder = Recorder::start(&["--backend", backend, "--cgroup", path])?;
        std::fs::write(below.join("cgroup.procs"), moved.pid().to_string())?;
        let started = Running::spawn(&mut group.inside(&sleeper()))?;
        std::thread::sleep(POLLS);
        let recorded = recorder.stop()?;
        let rows: Vec<ProcessRow> = recorded.recording.rows()?;
        for (running, how) in [
            (&within, "within"),
            (&moved, "moved in"),
            (&started, "started"),
        ] {
            let row = find(&rows, running.pid());
            assert!(row.is_some(), "{backend}, {how}: {rows:#?}");
        }
        assert!(find(&rows, stranger.pid()).is_none(), "{backend}");
        for running in [within, moved, started, stranger] {
            running.finish()?;
        }
        std::fs::remove_dir(below)?;
        Ok(())
    }

    #[test]
    fn procfs_takes_in_who_is_moved_in_and_who_starts_there() -> Result<()> {
        a_cgroup_takes_in_who_is_moved_in_and_who_starts_there("procfs")
    }

    mod needs_bpf {
        use super::*;

        #[test]
        fn bpf_takes_in_who_is_moved_in_and_who_starts_there() -> Result<()> {
            need::require("bpf");
            a_cgroup_takes_in_who_is_moved_in_and_who_starts_there("bpf")
        }

        #[test]
        fn what_a_killed_server_of_a_cgroup_leaves_has_outlived_it() -> Result<()> {
            need::require("bpf");
            need::require("memcg");
            let group = MemoryGroup::new("memtrace-target-killed", 256 << 20)?;
            let server = Server::start(|command| group.inside(&command))?;
            let path = group.dir().to_str().context("a path that is text")?;
            let fate = server.outlived(&["--cgroup".to_owned(), path.to_owned()])?;
            assert_eq!(fate, Some(Fate::Terminated));
            Ok(())
        }
    }
}

mod needs_root {
    use super::*;
    use memtrace_tests::need;

    #[test]
    fn in_a_cgroup_namespace_of_its_own_it_reads_the_machines_groups() -> Result<()> {
        need::require("root");
        let dir = tempfile::tempdir()?;
        let recording = dir.path().join("recording");
        let output = Command::new("unshare")
            .arg("--cgroup")
            .arg(program::memtrace()?)
            .args(["record", "--quiet", "--duration", "1", "--all", "-o"])
            .arg(&recording)
            .output()?;
        assert!(output.status.success(), "{}", words(&output));
        let read = memtrace_store::Recordings::default().open(&recording)?;
        let processes: Vec<memtrace_model::tables::ProcessRow> = read.rows()?;
        let groups: Vec<_> = processes
            .iter()
            .filter_map(|row| row.cgroup.as_deref())
            .collect();
        assert!(!groups.is_empty());
        let relative: Vec<_> = groups
            .iter()
            .filter(|group| group.starts_with("/.."))
            .collect();
        assert!(relative.is_empty(), "{relative:?}");
        Ok(())
    }
}

mod needs_mount {
    use super::*;
    use memtrace_tests::need;

    /// What a user without rights reads where /proc hides the processes of others.
    fn words_where_proc_hides(words_of_record: &str) -> Result<String> {
        need::require("mount");
        let dir = tempfile::tempdir()?;
        std::os::unix::fs::chown(dir.path(), Some(65_534), Some(65_534))?;
        let script = format!(
            "mount -t proc -o hidepid=invisible proc /proc && cd \"$1\" && \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \
             '\"$0\" record --backend procfs {words_of_record} >&2; code=$?; \
             \"$0\" report --section missing >&2; exit $code' \"$2\""
        );
        let output = shell_with_own_mounts(&script)
            .arg(dir.path())
            .arg(program::memtrace()?)
            .output()?;
        Ok(words(&output))
    }

    #[test]
    fn a_hidden_process_is_said_to_be_hidden_and_not_to_be_missing() -> Result<()> {
        let said = words_where_proc_hides("-p 1")?;
        assert!(said.contains("process 1 is hidden"), "{said}");
        assert!(said.contains("cap_sys_ptrace"), "{said}");
        let said = words_where_proc_hides("-p 4194303")?;
        assert!(said.contains("no process has pid 4194303"), "{said}");
        Ok(())
    }

    #[test]
    fn what_proc_hides_is_said_at_the_begin_and_in_the_report() -> Result<()> {
        let said = words_where_proc_hides("-- true")?;
        let warned = "processes of other users are hidden (hidepid=invisible)";
        assert_eq!(said.matches(warned).count(), 2, "{said}");
        Ok(())
    }
}
