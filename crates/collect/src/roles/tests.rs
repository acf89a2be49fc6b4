//! Courses of names, and the roles that follow from them.

use super::*;
use crate::Birth;
use memtrace_model::{BootNs, Bytes, FirstSeenBy, WallNs};
use std::sync::LazyLock;

/// A recording in the making: processes are born, take names and end.
pub(super) struct Stage {
    table: ProcessTable,
    pub(super) roles: Roles,
    batch: Vec<Record>,
    written: HashMap<Upid, ProcessRow>,
    titles: Vec<TitleRow>,
}

impl Stage {
    pub(super) fn new() -> Self {
        // Compiled once: that takes longer than a test.
        static RULES: LazyLock<Rules> =
            LazyLock::new(|| Rules::builtin().expect("rules of the form"));
        let rules = RULES.clone();
        Self {
            table: ProcessTable::default(),
            roles: Roles::new(rules, true),
            batch: Vec::new(),
            written: HashMap::new(),
            titles: Vec::new(),
        }
    }

    pub(super) fn fork(&mut self, tgid: u32, parent: Option<Upid>) -> Upid {
        self.fork_at(BootNs(0), tgid, parent)
    }

    fn fork_at(&mut self, start: BootNs, tgid: u32, parent: Option<Upid>) -> Upid {
        let birth = Birth {
            tgid: Tgid(tgid),
            start,
            seen_by: FirstSeenBy::Fork,
            parent,
            comm: "python3".to_owned(),
        };
        self.table.enter(birth, BootNs(0))
    }

    pub(super) fn name(&mut self, upid: Upid, source: TitleSource, title: &str) {
        let process = self.table.process_mut(upid).expect("a living process");
        let row = process.row_mut();
        row.comm = title.chars().take(15).collect();
        if source == TitleSource::Exec {
            row.cmdline = Some(title.into());
            row.exe = title.split(' ').next().map(Into::into);
        }
        self.batch.push(Record::Title(TitleRow {
            ts: WallNs(0),
            boot_ns: BootNs(0),
            upid,
            comm: row.comm.clone(),
            title: Some(title.into()),
            role: None,
            source: Some(source),
        }));
    }

    /// Only the kernel's name changes, as by prctl.
    pub(super) fn name_comm(&mut self, upid: Upid, comm: &str) {
        let process = self.table.process_mut(upid).expect("a living process");
        let row = process.row_mut();
        row.comm = comm.chars().take(15).collect();
        self.batch.push(Record::Title(TitleRow {
            ts: WallNs(0),
            boot_ns: BootNs(0),
            upid,
            comm: row.comm.clone(),
            title: row.cmdline.clone(),
            role: None,
            source: Some(TitleSource::Rename),
        }));
    }

    fn exec(&mut self, tgid: u32, parent: Option<Upid>, cmdline: &str) -> Upid {
        let upid = self.fork(tgid, parent);
        self.name(upid, TitleSource::Exec, cmdline);
        upid
    }

    pub(super) fn write(&mut self) {
        for _ in 0..2 {
            self.table.write_changes(true, &mut self.batch);
            self.roles.fill(&mut self.batch, &mut self.table);
            for row in self.batch.drain(..) {
                match row {
                    Record::Process(row) => {
                        self.written.insert(row.upid, *row);
                    }
                    Record::Title(row) => self.titles.push(row),
                    _ => {}
                }
            }
        }
    }

    pub(super) fn role(&self, upid: Upid) -> String {
        let row = &self.written[&upid];
        let role = Role {
            framework: row.framework.clone(),
            role: row.role.clone().unwrap_or_default(),
            rank: row.rank.clone(),
        };
        role.to_string()
    }
}

#[test]
fn the_workers_of_a_data_parallel_server_are_distinguished_by_their_engines() {
    let mut stage = Stage::new();
    let server = stage.exec(1, None, "python3 /v/bin/vllm serve m");
    let engine = stage.exec(2, Some(server), "python3 -c spawn_main");
    stage.name(engine, TitleSource::Rename, "VLLM::EngineCore_DP1\0\0");
    let worker = stage.exec(3, Some(engine), "python3 -c spawn_main");
    stage.write();
    stage.name(worker, TitleSource::Rename, "VLLM::Worker\0\0\0");
    let compiler = stage.exec(4, Some(worker), "/usr/bin/nvcc a.cu");
    stage.write();
    assert_eq!(stage.role(server), "vLLM API server");
    assert_eq!(stage.role(engine), "vLLM engine core DP1");
    assert_eq!(stage.role(worker), "vLLM worker DP1");
    assert_eq!(stage.role(compiler), "vLLM compiler nvcc");
}

#[test]
fn a_ray_worker_whose_task_has_ended_is_idle() {
    let mut stage = Stage::new();
    let driver = stage.exec(1, None, "python3 train.py");
    let raylet = stage.exec(2, Some(driver), "/r/raylet/raylet --x");
    let worker = stage.exec(
        3,
        Some(raylet),
        "python3 /r/ray/_private/workers/default_worker.py",
    );
    stage.write();
    assert_eq!(stage.role(worker), "Ray idle worker");
    for title in ["ray::IDLE", "ray::reader", "ray::IDLE"] {
        stage.name(worker, TitleSource::Rename, title);
    }
    stage.write();
    assert_eq!(stage.role(driver), "Ray driver");
    assert_eq!(stage.role(worker), "Ray idle worker");
    let roles: Vec<_> = stage
        .titles
        .iter()
        .rev()
        .take(3)
        .map(|row| row.role.clone())
        .collect();
    let role = |role: &str| Some(role.to_owned());
    assert_eq!(
        roles,
        [
            role("idle worker"),
            role("task reader"),
            role("idle worker")
        ]
    );
}

#[test]
fn an_actor_that_was_seen_calling_is_no_task_between_its_calls() {
    let mut stage = Stage::new();
    let worker = stage.exec(1, None, "python3 /r/ray/_private/workers/default_worker.py");
    for title in ["ray::engine", "ray::engine.step", "ray::engine"] {
        stage.name(worker, TitleSource::Rename, title);
    }
    stage.write();
    assert_eq!(stage.role(worker), "Ray actor engine");
}

#[test]
fn another_program_is_another_role() {
    let mut stage = Stage::new();
    let root = stage.exec(1, None, "sh build.sh");
    let child = stage.exec(
        2,
        Some(root),
        "python3 /r/ray/_private/workers/default_worker.py",
    );
    stage.name(child, TitleSource::Rename, "ray::A.b");
    stage.name(child, TitleSource::Exec, "sleep 1");
    stage.write();
    assert_eq!(stage.role(root), "main");
    assert_eq!(stage.written[&child].role, None);
}

#[test]
fn a_child_that_runs_on_in_its_parents_program_is_not_its_parent() {
    let mut stage = Stage::new();
    let server = stage.exec(1, None, "python3 /v/bin/vllm serve m");
    stage.write();
    let child = stage.fork(2, Some(server));
    let loader = stage.fork(3, Some(server));
    let process = stage.table.process_mut(loader).expect("a living process");
    process.row_mut().comm = "pt_data_worker".to_owned();
    let of_child = stage.fork(4, Some(child));
    stage.write();
    assert_eq!(stage.role(child), "vLLM fork of API server");
    assert_eq!(stage.role(loader), "PyTorch DataLoader worker");
    assert_eq!(stage.role(of_child), "vLLM fork of API server");
}

#[test]
fn a_child_that_names_itself_is_no_fork_of_its_parent() {
    let mut stage = Stage::new();
    let main = stage.exec(1, None, "python3 train.py");
    stage.write();
    let titled = stage.fork(2, Some(main));
    let named = stage.fork(3, Some(main));
    stage.write();
    assert_eq!(stage.role(titled), "fork of main");
    assert_eq!(stage.role(named), "fork of main");
    stage.name(titled, TitleSource::Rename, "loader: shard 3");
    stage.name_comm(named, "loader-4");
    stage.write();
    assert_eq!(stage.written[&titled].role, None);
    assert_eq!(stage.written[&named].role, None);
    let last: Vec<_> = stage.titles.iter().rev().take(2).collect();
    assert!(last.iter().all(|row| row.role.is_none()), "{last:?}");
}

#[test]
fn a_subshell_is_no_fork_of_the_program_that_its_shell_became() {
    let mut stage = Stage::new();
    let root = stage.exec(1, None, "python3 job.py");
    let shell = stage.exec(2, Some(root), "bash spark-class");
    stage.write();
    let subshell = stage.fork(3, Some(shell));
    stage.write();
    stage.name(shell, TitleSource::Exec, "/r/raylet/raylet --x");
    stage.write();
    let process = stage.table.process_mut(subshell).expect("a living process");
    process.row_mut().peak_rss_bytes = Some(Bytes(1 << 20));
    stage.write();
    assert_eq!(stage.role(shell), "Ray raylet");
    assert_eq!(stage.written[&subshell].role, None);
}

#[test]
fn the_rows_after_the_end_have_the_role_too_and_nobody_is_kept_for_ever() {
    let mut stage = Stage::new();
    let root = stage.exec(1, None, "python3 train.py");
    stage.write();
    for tgid in 2..(ENDED_MAX as u32 + 200) {
        let child = stage.exec(tgid, Some(root), "/usr/bin/cc1plus a.cpp");
        stage.table.end(child, BootNs(1), Some(0));
        stage.write();
        assert_eq!(stage.role(child), "compiler cc1plus");
    }
    assert!(stage.roles.known.len() <= ENDED_MAX + 2);
}

#[test]
fn who_was_introduced_before_its_own_row_came_is_known_by_that() {
    let mut stage = Stage::new();
    let role = Role {
        framework: Some("Ray".to_owned()),
        role: "driver".to_owned(),
        rank: None,
    };
    let (tgid, at) = (Tgid(7), BootNs(0));
    let news = &mut stage.table.news;
    news.roles.push(RoleDeclaration { tgid, at, role });
    stage.write();
    let process = stage.fork(7, None);
    stage.name(process, TitleSource::First, "python3 train.py");
    stage.write();
    assert_eq!(stage.role(process), "Ray driver");
}

#[test]
fn a_process_that_got_the_number_of_one_that_was_introduced_is_not_that_one() {
    let mut stage = Stage::new();
    let role = Role {
        framework: Some("Ray".to_owned()),
        role: "driver".to_owned(),
        rank: None,
    };
    let (tgid, at) = (Tgid(7), BootNs(1_000));
    let news = &mut stage.table.news;
    news.roles.push(RoleDeclaration { tgid, at, role });
    stage.write();
    let root = stage.exec(1, None, "sh run.sh");
    let later = stage.fork_at(BootNs(2_000), 7, Some(root));
    stage.name(later, TitleSource::Exec, "sleep 1");
    stage.write();
    assert_eq!(stage.written[&later].role, None);
    assert!(stage.roles.declared.is_empty());
}

#[test]
fn the_rules_are_asked_once_for_each_change_of_a_process_without_a_role() {
    let mut stage = Stage::new();
    let root = stage.exec(1, None, "sh run.sh");
    let child = stage.exec(2, Some(root), "sleep 100");
    let other = stage.exec(3, Some(child), "cat file");
    stage.write();
    let asked = stage.roles.looks;
    for peak in 1..50 {
        for upid in [child, other] {
            let process = stage.table.process_mut(upid).expect("a living process");
            process.row_mut().peak_rss_bytes = Some(Bytes(peak << 20));
        }
        stage.write();
    }
    assert_eq!(stage.written[&other].peak_rss_bytes, Some(Bytes(49 << 20)));
    assert_eq!(stage.roles.looks, asked);
    let process = stage.table.process_mut(other).expect("a living process");
    process.row_mut().cmdline = Some("cat other".into());
    stage.write();
    assert_eq!(stage.roles.looks, asked + 1, "another command line");
    stage.name(child, TitleSource::Exec, "/r/raylet/raylet --x");
    let process = stage.table.process_mut(other).expect("a living process");
    process.row_mut().peak_rss_bytes = Some(Bytes(50 << 20));
    stage.write();
    assert_eq!(stage.roles.looks, asked + 3, "a name, and a role above");
}
