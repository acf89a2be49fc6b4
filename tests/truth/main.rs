//! The workloads tell the truth: what they say agrees with what the kernel accounts to
//! them elsewhere, and they are what their names say. Nothing here needs memtrace.

use anyhow::{Context, Result};
use memtrace_host::clock;
use memtrace_tests::workload::{self, Running, number};
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

const MIB: i64 = 1 << 20;

/// How far a kernel's shared counter can be from the truth: since Linux 6.2 each CPU may
/// hold back a batch for each of the three kinds of pages.
fn counter_bound() -> i64 {
    let cpus = std::fs::read_dir("/sys/devices/system/cpu").map_or(1, |entries| {
        entries
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.strip_prefix("cpu")
                    .is_some_and(|rest| rest.parse::<u32>().is_ok())
            })
            .count() as i64
    });
    3 * cpus * (2 * cpus).max(32) * 4096
}

fn line<'a>(lines: &'a [Value], key: &str, value: &str) -> Result<&'a Value> {
    lines
        .iter()
        .find(|line| line[key] == value)
        .with_context(|| format!("no line with {key} {value} in {lines:?}"))
}

#[test]
fn every_child_of_a_forkstorm_tells_a_peak_that_wait4_confirms() -> Result<()> {
    let lines = workload::run(&["forkstorm", "--count", "50"])?;
    assert_eq!(lines.len(), 50);
    let pids: HashSet<i64> = lines
        .iter()
        .map(|line| number(line, "pid"))
        .collect::<Result<_>>()?;
    assert_eq!(pids.len(), 50);
    for line in &lines {
        let own = number(line, "vmhwm_bytes")?;
        let kernel = number(line, "ru_maxrss_bytes")?;
        assert!((8 * MIB..12 * MIB).contains(&own), "{line}");
        assert!((own - kernel).abs() <= counter_bound(), "{line}");
    }
    Ok(())
}

#[test]
fn a_spike_is_as_high_and_as_long_as_asked_for() -> Result<()> {
    for kind in ["anon", "shm"] {
        let words = ["spike", "--kind", kind, "--count", "2", "--gap-ms", "10"];
        for line in workload::run(&words)? {
            let rise = number(&line, "high_rss_bytes")? - number(&line, "base_rss_bytes")?;
            assert!((32 * MIB..33 * MIB).contains(&rise), "{line}");
            let held = number(&line, "release_boot_ns")? - number(&line, "high_boot_ns")?;
            assert!(held >= 10_000_000, "{line}");
        }
    }
    Ok(())
}

#[test]
fn a_thp_spike_is_made_of_huge_pages_where_the_kernel_offers_them() -> Result<()> {
    let lines = workload::run(&["spike", "--kind", "thp", "--count", "1", "--gap-ms", "0"])?;
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let is_offered = setting.is_ok_and(|words| !words.contains("[never]"));
    let huge = number(&lines[0], "huge_bytes")?;
    assert_eq!(huge >= 32 * MIB, is_offered, "{}", lines[0]);
    Ok(())
}

#[test]
fn daemons_are_reparented_and_in_sessions_of_their_own() -> Result<()> {
    let words = ["daemons", "--bytes", "8M", "--hold-ms", "60000"];
    let mut daemons = Running::start(&words)?;
    let mut sessions = HashSet::new();
    for _ in 0..4 {
        let line = daemons.line()?;
        assert!(number(&line, "vmhwm_bytes")? > 8 * MIB, "{line}");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", line["pid"]))?;
        let rest = stat.rsplit(") ").next().context("no stat")?;
        let fields: Vec<i64> = rest
            .split_whitespace()
            .skip(1)
            .take(3)
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let (parent, session) = (fields[0], fields[2]);
        assert_ne!(parent, number(&line, "middle_pid")?);
        assert_ne!(parent, i64::from(daemons.pid()));
        assert_eq!(session, number(&line, "middle_pid")?);
        sessions.insert(session);
    }
    assert_eq!(sessions.len(), 4);
    Ok(())
}

#[test]
fn a_vforked_child_is_charged_its_parents_memory_by_wait4_only() -> Result<()> {
    let lines = workload::run(&["vforkchild", "--bytes", "100M"])?;
    for how in ["vfork", "fork"] {
        let ended = line(&lines, "how", how)?;
        assert!(number(ended, "ru_maxrss_bytes")? > 100 * MIB, "{ended}");
    }
    for own in lines.iter().filter(|line| line["hwm"] == "final") {
        assert!(number(own, "vmhwm_bytes")? < 20 * MIB, "{own}");
    }
    assert_eq!(
        lines.iter().filter(|line| line["hwm"] == "final").count(),
        2
    );
    Ok(())
}

#[test]
fn a_shared_object_is_counted_whole_in_every_process() -> Result<()> {
    let words = [
        "shm",
        "--bytes",
        "32M",
        "--processes",
        "3",
        "--hold-ms",
        "50",
    ];
    let lines = workload::run(&words)?;
    let object = lines.last().context("no lines")?;
    assert_eq!(number(object, "allocated_bytes")?, 32 * MIB);
    assert_eq!(lines.len(), 4);
    for line in &lines[..3] {
        assert!(number(line, "vmhwm_bytes")? > 32 * MIB, "{line}");
    }
    let path = object["object"].as_str().context("no path")?;
    assert!(!Path::new(path).exists(), "{path} stays behind");
    Ok(())
}

#[test]
fn idle_processes_are_there_until_their_input_closes() -> Result<()> {
    let mut idle = Running::start(&["idle", "--processes", "20"])?;
    let line = idle.line()?;
    let pids = line["pids"].as_array().context("no pids")?.clone();
    assert_eq!(pids.len(), 20);
    for pid in &pids {
        assert!(Path::new(&format!("/proc/{pid}")).exists());
    }
    idle.finish()?;
    for pid in &pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
    Ok(())
}

#[test]
fn processes_of_threads_have_that_many() -> Result<()> {
    let mut threads = Running::start(&["threads", "--processes", "2", "--threads", "30"])?;
    let line = threads.line()?;
    for pid in line["pids"].as_array().context("no pids")? {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?.count();
        assert_eq!(tasks, 30);
    }
    threads.finish().map(drop)
}

#[test]
fn odd_ends_are_what_they_say() -> Result<()> {
    let zombie = workload::run(&["zombie", "--hold-ms", "100"])?;
    let since_ns = clock::boot().0 - number(&zombie[0], "zombie_boot_ns")?;
    assert!(since_ns >= 100_000_000, "it was held: {since_ns} ns");
    let leader = workload::run(&["leader-exit", "--hold-ms", "200"])?;
    assert_eq!(leader[0]["leader_was_gone"], true);
    assert!(number(&leader[0], "ru_maxrss_bytes")? > 32 * MIB);
    Ok(())
}

#[test]
fn exec_from_a_thread_keeps_the_process_id() -> Result<()> {
    let lines = workload::run(&["exec-from-thread"])?;
    let own = line(&lines, "hwm", "final")?;
    let ended = lines.last().context("no lines")?;
    assert_eq!(own["pid"], ended["pid"]);
    assert!(number(ended, "first_image_vmhwm_bytes")? > 32 * MIB);
    assert!(number(own, "vmhwm_bytes")? < 20 * MIB);
    Ok(())
}

#[test]
fn a_clone_that_shares_the_address_space_raises_the_one_of_its_parent() -> Result<()> {
    let lines = workload::run(&["clone-vm", "--hold-ms", "0"])?;
    assert!(number(&lines[0], "vmhwm_bytes")? > 32 * MIB);
    assert_ne!(lines[0]["pid"], lines[0]["child"]);
    Ok(())
}

#[test]
fn titles_are_seen_in_the_command_line() -> Result<()> {
    let lines = workload::run(&["titles", "--count", "3", "--gap-ms", "0"])?;
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2]["comm"], "phase-2");
    assert_eq!(lines[2]["title"], "worker::phase-2");
    Ok(())
}

#[test]
fn command_lines_are_as_long_as_asked_for() -> Result<()> {
    let lines = workload::run(&["execs", "--count", "5", "--cmdline-bytes", "4096"])?;
    let execs: Vec<_> = lines.iter().filter(|line| line["hwm"].is_null()).collect();
    assert_eq!(execs.len(), 5);
    for line in execs {
        let hex = line["cmdline_hex"].as_str().context("no command line")?;
        assert_eq!(hex.len(), 2 * 4096);
    }
    Ok(())
}

#[test]
fn a_storm_counts_what_it_did() -> Result<()> {
    for kind in ["fault", "mmap", "brk", "getppid"] {
        let lines = workload::run(&["storm", "--kind", kind, "--ms", "20"])?;
        assert!(number(&lines[0], "operations")? > 0, "{}", lines[0]);
        let cpu = lines[0]["cpu_ns_per_operation"]
            .as_f64()
            .context("no cost")?;
        assert!(cpu > 0.0);
    }
    Ok(())
}

#[test]
fn inherited_memory_is_counted_whole_in_every_reader() -> Result<()> {
    let mut cow = Running::start(&["cow", "--bytes", "32M", "--processes", "3"])?;
    let line = cow.line()?;
    let mut pss = 0;
    for pid in line["pids"].as_array().context("no pids")? {
        assert!(rollup(pid, "Rss")? > 32 * MIB);
        pss += rollup(pid, "Pss_Anon")?;
    }
    pss += rollup(&line["root"], "Pss_Anon")?;
    assert!((32 * MIB..36 * MIB).contains(&pss), "{pss}");
    cow.finish().map(drop)
}

/// A line of smaps_rollup, in bytes.
fn rollup(pid: &Value, key: &str) -> Result<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{key}:")));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.context("no such line")?.parse::<i64>()? * 1024)
}

#[test]
fn a_stalled_program_tells_how_long_it_waited() -> Result<()> {
    let words = ["stall", "--bytes", "64M", "--mappings", "1000"];
    let mut stall = Running::start(&words)?;
    let pid = stall.line()?["pid"].clone();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    assert!(maps.lines().count() >= 1_000, "{}", maps.lines().count());
    let anon = rollup(&pid, "Pss_Anon")?;
    // Whole pages for each mapping leave a little out.
    assert!((60 * MIB..68 * MIB).contains(&anon), "{anon}");
    std::thread::sleep(std::time::Duration::from_millis(20));
    let lines = stall.finish()?;
    assert!(number(&lines[0], "operations")? > 10, "{}", lines[0]);
    assert!(number(&lines[0], "worst_ns")? > 0, "{}", lines[0]);
    Ok(())
}

#[test]
fn changers_change() -> Result<()> {
    let words = ["changers", "--processes", "1", "--period-ms", "5"];
    let mut changers = Running::start(&words)?;
    let pid = changers.line()?["pids"][0].clone();
    let mut seen = HashSet::new();
    for _ in 0..20 {
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
        seen.insert(statm.split(' ').nth(1).map(str::to_owned));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(seen.len() > 3, "{seen:?}");
    changers.finish().map(drop)
}

#[test]
fn a_mistaken_option_is_refused() -> Result<()> {
    let status = workload::command(&["idle", "--procesess", "3"])?
        .stdin(std::process::Stdio::null())
        .status()?;
    assert!(!status.success());
    Ok(())
}

/// What a test of this module needs, `cargo xtask test` asks for before.
mod needs_memcg {
    use super::*;
    use memtrace_tests::cgroup::MemoryGroup;
    use memtrace_tests::need;

    #[test]
    fn an_oom_victim_is_killed_at_the_limit_and_its_parent_lives() -> Result<()> {
        need::require("memcg");
        let group = MemoryGroup::new("memtrace-truth", 64 << 20)?;
        let output = group.inside(&workload::command(&["oom"])?).output()?;
        let lines = workload::parse(&output.stdout)?;
        let line = lines.first().context("the workload said nothing")?;
        assert_eq!(line["killed"], true, "{line}");
        let last = number(line, "last_own_vmhwm_bytes")?;
        assert!((50 * MIB..70 * MIB).contains(&last), "{line}");
        Ok(())
    }
}
