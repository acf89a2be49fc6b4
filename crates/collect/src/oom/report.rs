//! What the lines of the kernel log say about a kill: a state machine without I/O.
//!
//! A kill is reported in some lines among many (dump_header() and __oom_kill_process()
//! in mm/oom_kill.c, mem_cgroup_print_oom_meminfo() in mm/memcontrol.c):
//!
//! ```text
//! TRIGGER invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
//! memory: usage 32768kB, limit 32768kB, failcnt 12
//! Memory cgroup stats for /a:
//! anon 31457280
//! …
//! oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),…,oom_memcg=/a,task_memcg=/a/b,task=NAME,pid=N,uid=N
//! Memory cgroup out of memory: Killed process N (NAME) total-vm:…kB, anon-rss:…kB, file-rss:…kB, shmem-rss:…kB, UID:N pgtables:…kB oom_score_adj:N
//! ```
//!
//! Only the last is always there: the others are rate-limited (10 kills in 5 s), and with
//! memory.oom.group one report stands before many kills. Names can hold anything but a
//! NUL, so each line is taken apart from its fixed ends.

use memtrace_model::{BootNs, Bytes, OomRow, Tgid};

/// Reads reports line by line.
#[derive(Debug, Default)]
pub(super) struct ReportReader {
    report: Report,
}

/// What the lines before a kill reported.
#[derive(Debug, Default)]
struct Report {
    row: OomRow,
    /// Lines of memory.stat are being read.
    is_in_stat: bool,
    /// Whom the line that gives constraint and cgroup names.
    victim: Option<Tgid>,
    is_group: bool,
}

impl ReportReader {
    /// Takes the next line of the kernel's own; gives the kill that it completes, at `boot`: no
    /// wall-clock time, and of the victim the id in the initial pid namespace. It is the id of a
    /// thread where the leader had already ended.
    pub(super) fn feed(&mut self, line: &str, boot: BootNs) -> Option<OomRow> {
        let report = &mut self.report;
        if report.is_in_stat && is_stat(line) {
            // One record of several lines before 6.5, a record each since.
            line.lines()
                .for_each(|line| enter_stat(line, &mut report.row));
            return None;
        }
        report.is_in_stat = false;
        if let Some((trigger, _)) = line.split_once(" invoked oom-killer: ") {
            *report = Report::default();
            report.row.trigger_comm = Some(trigger.to_owned());
        } else if let Some(rest) = line.strip_prefix("memory: usage ") {
            let row = &mut report.row;
            (row.memcg_usage_bytes, row.memcg_limit_bytes) = usage_and_limit(rest);
        } else if let Some(rest) = line.strip_prefix("swap: usage ") {
            report.row.memcg_swap_bytes = usage_and_limit(rest).0;
        } else if let Some(rest) = line.strip_prefix("kmem: usage ") {
            report.row.memcg_kernel_bytes = usage_and_limit(rest).0;
        } else if line.starts_with("Memory cgroup stats for ") {
            report.is_in_stat = true;
        } else if let Some(rest) = line.strip_prefix("oom-kill:constraint=") {
            report.victim = enter_summary(rest, &mut report.row);
        } else if line.ends_with(" are going to be killed due to memory.oom.group set") {
            report.is_group = true;
        } else if let Some((prefix, rest)) = line.split_once("Killed process ") {
            return self.killed(prefix, rest, boot);
        }
        None
    }

    /// Forgets what was read: lines in between were lost.
    pub(super) fn reset(&mut self) {
        self.report = Report::default();
    }

    fn killed(&self, prefix: &str, rest: &str, boot: BootNs) -> Option<OomRow> {
        let victim = victim(rest)?;
        // Whose own lines were left out must not be reported with those of another kill.
        let is_reported = |named| named == victim.tgid || self.report.is_group;
        let report = match self.report.victim.is_some_and(is_reported) {
            true => self.report.row.clone(),
            false => OomRow::default(),
        };
        let is_memcg = prefix.starts_with("Memory cgroup out of memory");
        let constraint = report.constraint.clone();
        let of_prefix = || is_memcg.then(|| "CONSTRAINT_MEMCG".to_owned());
        Some(OomRow {
            boot_ns: boot,
            victim_tgid: victim.tgid,
            victim_comm: Some(victim.comm.to_owned()),
            constraint: constraint.or_else(of_prefix),
            victim_rss_anon_bytes: victim.kib("anon-rss:"),
            victim_rss_file_bytes: victim.kib("file-rss:"),
            victim_rss_shmem_bytes: victim.kib("shmem-rss:"),
            victim_oom_score_adj: victim.field("oom_score_adj:").and_then(|n| n.parse().ok()),
            ..report
        })
    }
}

/// Takes a line of memory.stat, `anon 4096`. On v1 the sums over the groups below count.
fn enter_stat(line: &str, row: &mut OomRow) {
    let Some((key, value)) = line.split_once(' ') else {
        return;
    };
    let cell = match key {
        "anon" | "total_rss" => &mut row.memcg_anon_bytes,
        "file" | "total_cache" => &mut row.memcg_file_bytes,
        "shmem" | "total_shmem" => &mut row.memcg_shmem_bytes,
        "kernel" => &mut row.memcg_kernel_bytes,
        "slab" => &mut row.memcg_slab_bytes,
        "slab_reclaimable" => &mut row.memcg_slab_reclaimable_bytes,
        "pagetables" => &mut row.memcg_pagetables_bytes,
        "total_swap" => &mut row.memcg_swap_bytes,
        _ => return,
    };
    *cell = value.trim_end().parse().ok().map(Bytes);
}

/// Whether a line, or the first of several, is one of memory.stat: a word and a number.
fn is_stat(line: &str) -> bool {
    let first = line.lines().next().unwrap_or_default();
    let is_number = |value: &str| !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    first
        .split_once(' ')
        .is_some_and(|(key, value)| !key.ends_with(':') && is_number(value))
}

/// `32768kB, limit 32768kB, failcnt 0`; no limit prints as a huge one.
fn usage_and_limit(rest: &str) -> (Option<Bytes>, Option<Bytes>) {
    let mut parts = rest.split(", ");
    let usage = parts.next().and_then(kib);
    let limit = parts
        .next()
        .and_then(|part| kib(part.strip_prefix("limit ")?));
    // PAGE_COUNTER_MAX in KiB; no machine has an exbibyte.
    (usage, limit.filter(|limit| limit.0 < 1 << 60))
}

fn kib(text: &str) -> Option<Bytes> {
    let kib: i64 = text.strip_suffix("kB")?.parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// `CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=NAME,pid=1,uid=0`
/// (dump_oom_summary(), 5.0), which names the victim. Without a memcg `global_oom` stands in its place.
fn enter_summary(rest: &str, row: &mut OomRow) -> Option<Tgid> {
    let (constraint, rest) = rest.split_once(',')?;
    let (rest, _) = rest.rsplit_once(",uid=")?;
    let (rest, victim) = rest.rsplit_once(",pid=")?;
    // A path can hold commas; these two words end it where they come last.
    let (groups, _) = rest.split_once(",task_memcg=")?;
    let memcg = groups.split_once(",oom_memcg=").map(|(_, path)| path);
    let victim = victim.parse().ok()?;
    row.constraint = Some(constraint.to_owned());
    row.memcg = memcg.map(str::to_owned);
    Some(Tgid(victim))
}

struct Victim<'a> {
    tgid: Tgid,
    comm: &'a str,
    amounts: &'a str,
}

/// `123 (NAME) total-vm:…kB, anon-rss:…kB, …`
fn victim(rest: &str) -> Option<Victim<'_>> {
    let (tgid, rest) = rest.split_once(" (")?;
    // A comma after the name in kernels before 5.0.
    let (comm, amounts) = rest
        .rsplit_once(") total-vm:")
        .or_else(|| rest.rsplit_once("), total-vm:"))
        .or_else(|| rest.rsplit_once(')'))?;
    Some(Victim {
        tgid: Tgid(tgid.parse().ok()?),
        comm,
        amounts,
    })
}

impl Victim<'_> {
    fn field(&self, name: &str) -> Option<&str> {
        let mut words = self.amounts.split([' ', ',']);
        words.find_map(|word| word.strip_prefix(name))
    }

    fn kib(&self, name: &str) -> Option<Bytes> {
        kib(self.field(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kills(log: &str) -> Vec<OomRow> {
        let mut reader = ReportReader::default();
        log.lines()
            .filter_map(|line| reader.feed(&super::super::kmsg::unescape(line), BootNs(0)))
            .collect()
    }

    /// Written by a 6.18 kernel for a process named `big) eater\n(x` in a v1 group.
    const V1_6_18: &str = include_str!("samples/6.18-memcg-v1.txt");

    #[test]
    fn a_report_of_6_18_is_read_whole_though_the_name_is_hostile() {
        let found = kills(V1_6_18);
        assert_eq!(
            found,
            [OomRow {
                victim_tgid: Tgid(19845),
                victim_comm: Some("big) eater\n(x".to_owned()),
                trigger_comm: Some("big) eater\n(x".to_owned()),
                constraint: Some("CONSTRAINT_MEMCG".to_owned()),
                memcg: Some("/memtrace-oom-sample".to_owned()),
                memcg_limit_bytes: Some(Bytes(32768 << 10)),
                memcg_usage_bytes: Some(Bytes(32768 << 10)),
                victim_rss_anon_bytes: Some(Bytes(39556 << 10)),
                victim_rss_file_bytes: Some(Bytes(4240 << 10)),
                victim_rss_shmem_bytes: Some(Bytes(0)),
                victim_oom_score_adj: Some(7),
                memcg_anon_bytes: Some(Bytes(33_472_512)),
                memcg_file_bytes: Some(Bytes(0)),
                memcg_shmem_bytes: Some(Bytes(0)),
                memcg_kernel_bytes: Some(Bytes(80 << 10)),
                memcg_swap_bytes: Some(Bytes(0)),
                ..OomRow::default()
            }]
        );
    }

    #[test]
    fn what_the_group_held_is_read_line_by_line_and_from_one_record_of_many_lines() {
        let stat = "anon 31457280\nfile 8192\nkernel 1073152\npagetables 118784\nshmem 4096\n\
                    slab_reclaimable 500000\nslab_unreclaimable 200000\nslab 700000";
        let end = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/j,task_memcg=/j,task=a,pid=5,uid=0\n\
                   Memory cgroup out of memory: Killed process 5 (a) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0\n";
        let wanted = OomRow {
            memcg_anon_bytes: Some(Bytes(31_457_280)),
            memcg_file_bytes: Some(Bytes(8_192)),
            memcg_shmem_bytes: Some(Bytes(4_096)),
            memcg_kernel_bytes: Some(Bytes(1_073_152)),
            memcg_slab_bytes: Some(Bytes(700_000)),
            memcg_slab_reclaimable_bytes: Some(Bytes(500_000)),
            memcg_pagetables_bytes: Some(Bytes(118_784)),
            memcg_swap_bytes: Some(Bytes(2 << 20)),
            memcg: Some("/j".to_owned()),
            trigger_comm: Some("a".to_owned()),
            constraint: Some("CONSTRAINT_MEMCG".to_owned()),
            victim_tgid: Tgid(5),
            victim_comm: Some("a".to_owned()),
            victim_rss_anon_bytes: Some(Bytes(1 << 10)),
            victim_rss_file_bytes: Some(Bytes(0)),
            victim_rss_shmem_bytes: Some(Bytes(0)),
            victim_oom_score_adj: Some(0),
            ..OomRow::default()
        };
        for stat in [stat.to_owned(), stat.replace('\n', "\\x0a") + "\\x0a"] {
            let found = kills(&format!(
                "a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n\
                 swap: usage 2048kB, limit 9007199254740988kB, failcnt 0\n\
                 Memory cgroup stats for /j:\n{stat}\nTasks state (memory values in pages):\n{end}"
            ));
            assert_eq!(found[0], wanted, "{stat}");
        }
    }

    #[test]
    fn a_kill_of_the_whole_machine_has_no_cgroup() {
        let found = kills(
            "kworker/u8:1 invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0\n\
             Mem-Info:\n\
             oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=user.slice,mems_allowed=0-1,global_oom,task_memcg=/user.slice/user-1000.slice,task=python3,pid=4711,uid=1000\n\
             Out of memory: Killed process 4711 (python3) total-vm:98765432kB, anon-rss:65536000kB, file-rss:1024kB, shmem-rss:2048kB, UID:1000 pgtables:131072kB oom_score_adj:-17\n",
        );
        let [kill] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(kill.constraint.as_deref(), Some("CONSTRAINT_NONE"));
        assert_eq!(kill.memcg, None);
        assert_eq!(kill.memcg_limit_bytes, None);
        assert_eq!(kill.trigger_comm.as_deref(), Some("kworker/u8:1"));
        assert_eq!(kill.victim_rss_shmem_bytes, Some(Bytes(2048 << 10)));
        assert_eq!(kill.victim_oom_score_adj, Some(-17));
    }

    #[test]
    fn a_report_of_5_10_in_a_v2_group_is_read() {
        let found = kills(
            "stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n\
             memory: usage 102400kB, limit 102400kB, failcnt 57\n\
             swap: usage 0kB, limit 9007199254740988kB, failcnt 0\n\
             Memory cgroup stats for /kubepods.slice/pod1:\n\
             oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-ab.scope,mems_allowed=0,oom_memcg=/kubepods.slice/pod1,task_memcg=/kubepods.slice/pod1/a,b,task=stress,pid=99,uid=0\n\
             Memory cgroup out of memory: Killed process 99 (stress) total-vm:210000kB, anon-rss:101000kB, file-rss:272kB, shmem-rss:0kB, UID:0 pgtables:244kB oom_score_adj:999\n",
        );
        assert_eq!(found[0].memcg.as_deref(), Some("/kubepods.slice/pod1"));
        assert_eq!(found[0].memcg_usage_bytes, Some(Bytes(102_400 << 10)));
        assert_eq!(found[0].victim_oom_score_adj, Some(999));
    }

    #[test]
    fn a_group_kill_tells_one_report_for_all_its_victims() {
        let found = kills(
            "worker invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n\
             memory: usage 10kB, limit 10kB, failcnt 1\n\
             oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/j,task_memcg=/j,task=worker,pid=5,uid=0\n\
             Memory cgroup out of memory: Killed process 5 (worker) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0\n\
             Tasks in /j are going to be killed due to memory.oom.group set\n\
             Memory cgroup out of memory: Killed process 6 (helper) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0\n",
        );
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].victim_comm.as_deref(), Some("helper"));
        assert_eq!(found[1].memcg.as_deref(), Some("/j"));
    }

    #[test]
    fn a_kill_whose_report_was_rate_limited_is_not_reported_with_another_s() {
        let found = kills(
            "a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n\
             memory: usage 10kB, limit 10kB, failcnt 1\n\
             oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/j,task_memcg=/j,task=a,pid=5,uid=0\n\
             Memory cgroup out of memory: Killed process 5 (a) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0\n\
             Memory cgroup out of memory: Killed process 8 (b) total-vm:1kB, anon-rss:3kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0\n\
             Out of memory: Killed process 9 (c) total-vm:1kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0\n",
        );
        assert_eq!(found[1].memcg, None);
        assert_eq!(found[1].constraint.as_deref(), Some("CONSTRAINT_MEMCG"));
        assert_eq!(found[1].victim_rss_anon_bytes, Some(Bytes(3 << 10)));
        assert_eq!(found[2].constraint, None);
        assert_eq!(found[2].trigger_comm, None);
    }

    #[test]
    fn a_line_of_4_19_without_the_newer_fields_is_still_a_kill() {
        let found = kills(
            "Killed process 77 (java) total-vm:4kB, anon-rss:3kB, file-rss:2kB, shmem-rss:1kB\n",
        );
        assert_eq!(found[0].victim_tgid, Tgid(77));
        assert_eq!(found[0].victim_rss_shmem_bytes, Some(Bytes(1 << 10)));
        assert_eq!(found[0].victim_oom_score_adj, None);
    }

    #[test]
    fn other_lines_about_oom_are_no_kills() {
        let log = "oom_reaper: reaped process 19845 (eater), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n\
                   Out of memory and no killable processes...\n\
                   Killed process\n";
        assert_eq!(kills(log), []);
    }

    proptest! {
        #[test]
        fn arbitrary_lines_never_panic(lines in proptest::collection::vec(".{0,80}", 0..6)) {
            let mut reader = ReportReader::default();
            for (line, start) in lines.iter().zip(["", "memory: usage ", "oom-kill:constraint=", "Killed process ", "Killed process 1 ("].iter().cycle()) {
                let _ = reader.feed(&format!("{start}{line}"), BootNs(0));
            }
        }

        #[test]
        fn any_name_comes_back(name in "[^\\x00]{1,15}") {
            let line = format!("Out of memory: Killed process 5 ({name}) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:4kB, UID:0 pgtables:5kB oom_score_adj:6");
            let kill = ReportReader::default().feed(&line, BootNs(0)).unwrap();
            prop_assert_eq!(kill.victim_comm, Some(name));
            prop_assert_eq!(kill.victim_rss_anon_bytes, Some(Bytes(2048)));
        }
    }
}
