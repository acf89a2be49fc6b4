//! A small language to write runs in: seconds since the start, MiB, pids.

use super::rows::Rows;
use memtrace_model::tables::{
    CgroupMemRow, DiagKind, DiagRow, FirstSeenBy, MarkKind, MarkRow, MarkSource, MemRow, MemSource,
    NodeMemRow, OomRow, PeakSource, ProcessRow, SelfCostRow, Severity, TitleRow, TitleSource,
    VmEventRow, VmOp, VmSummaryRow,
};
use memtrace_model::{
    BootNs, Bytes, ClockReading, DurationNs, Record, RunInfo, RunState, SCHEMA_VERSION, SelfReport,
    Target, Tgid, Upid, WallNs,
};
use std::collections::BTreeMap;

/// 2026-03-01T12:01:44Z on the wall, one hour after boot.
const START_WALL: i64 = 1_772_366_504_000_000_000;
const START_BOOT: i64 = 3_600_000_000_000;

pub fn mib(amount: f64) -> Bytes {
    Bytes((amount * 1024.0 * 1024.0) as i64)
}

/// An amount in GiB.
pub fn gib(amount: f64) -> Bytes {
    mib(amount * 1024.0)
}

/// Seconds of the boot clock since the recording began.
pub fn boot(seconds: f64) -> BootNs {
    BootNs(START_BOOT + (seconds * 1e9) as i64)
}

/// The same of the wall clock.
pub fn wall(seconds: f64) -> WallNs {
    WallNs(START_WALL + (seconds * 1e9) as i64)
}

/// A run in the making.
#[derive(Clone)]
pub struct Script {
    /// What `run.json` says.
    pub info: RunInfo,
    /// All rows but those of `process`.
    pub rows: Rows,
    /// What reading finds amiss.
    pub problems: Vec<String>,
    processes: BTreeMap<u32, ProcessRow>,
}

impl Script {
    /// A command that ran for so many seconds, recorded through BPF.
    pub fn command(argv: &[&str], seconds: f64) -> Self {
        let reading = |seconds: f64| ClockReading {
            boot_ns: boot(seconds),
            monotonic_ns: boot(seconds).0,
            wall_ns: wall(seconds),
        };
        Self {
            info: RunInfo {
                schema_version: SCHEMA_VERSION,
                memtrace_version: "0.1.0".to_owned(),
                id: None,
                state: RunState::Closed,
                hostname: "gpu-node-7".to_owned(),
                kernel: "6.8.0".to_owned(),
                arch: "x86_64".to_owned(),
                page_size_bytes: Bytes(4096),
                cpu_count: 64,
                mem_total_bytes: Some(gib(503.5)),
                target: Target::Command {
                    argv: argv.iter().map(|&word| word.to_owned()).collect(),
                },
                root_tgid: None,
                backend: "bpf".to_owned(),
                backend_reason: "all programs attached".to_owned(),
                interval_ns: DurationNs(1_000_000_000),
                clocks: vec![reading(0.0), reading(seconds)],
                command_exit_code: Some(0),
                mark_socket: None,
                gpus: Vec::new(),
                gpu_note: None,
                downsampled: None,
                place: None,
                host: serde_json::Value::Null,
                plan: serde_json::Value::Null,
            },
            rows: Rows::default(),
            problems: Vec::new(),
            processes: BTreeMap::new(),
        }
    }

    /// One row more.
    pub fn put(&mut self, record: impl Into<Record>) {
        self.rows.0.push(record.into());
    }

    /// A process. The first one is the root.
    pub fn process(&mut self, tgid: u32, parent: Option<u32>, at: f64, cmdline: &str) {
        self.info.root_tgid = self.info.root_tgid.or(Some(Tgid(tgid)));
        let root = self.info.root_tgid.map(upid);
        let program = cmdline.split(' ').next().unwrap_or(cmdline);
        let comm = program.rsplit('/').next().unwrap_or(program);
        let row = ProcessRow {
            upid: upid(Tgid(tgid)),
            tgid: Tgid(tgid),
            ns_tgid: Some(Tgid(tgid)),
            parent_upid: parent.map(|parent| upid(Tgid(parent))),
            root_upid: root,
            comm: comm.chars().take(15).collect(),
            exe: Some(program.into()),
            cmdline: Some(cmdline.into()),
            uid: Some(1000),
            start_boot_ns: boot(at),
            first_seen_boot_ns: boot(at),
            first_seen_by: Some(FirstSeenBy::Fork),
            oom_killed: Some(false),
            peak_rss_source: Some(PeakSource::KernelHiwater),
            peak_error_bytes: Some(Bytes(0)),
            inherited_rss_bytes: Some(Bytes(0)),
            inherited_anon_bytes: Some(Bytes(0)),
            ..ProcessRow::default()
        };
        self.processes.insert(tgid, row);
        // One that ran before is named when it is first seen.
        self.name(tgid, at.max(0.0), TitleSource::Exec, cmdline);
    }

    /// Changes what is known about a process.
    pub fn edit(&mut self, tgid: u32, change: impl FnOnce(&mut ProcessRow)) {
        change(self.processes.get_mut(&tgid).expect("a process of the run"));
    }

    fn name(&mut self, tgid: u32, at: f64, source: TitleSource, title: &str) {
        let comm = self.processes[&tgid].comm.clone();
        let role = self.processes[&tgid].role.clone();
        self.put(TitleRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            comm,
            title: Some(title.into()),
            role,
            source: Some(source),
        });
    }

    /// A process that was a copy of its parent until now executes a program.
    pub fn exec(&mut self, tgid: u32, at: f64, cmdline: &str) {
        self.name(tgid, at, TitleSource::Exec, cmdline);
        // As the recorder has it: what fork gave it is gone.
        self.edit(tgid, |row| {
            row.inherited_rss_bytes = row.inherited_rss_bytes.map(|_| mib(0.0));
            row.inherited_anon_bytes = row.inherited_anon_bytes.map(|_| mib(0.0));
        });
    }

    /// A process that began as a copy of its parent, with so much anonymous memory in MiB.
    pub fn inherits(&mut self, tgid: u32, anon: f64) {
        self.edit(tgid, |row| {
            row.inherited_rss_bytes = Some(mib(anon));
            row.inherited_anon_bytes = Some(mib(anon));
        });
    }

    /// A process gives itself a title.
    pub fn title(&mut self, tgid: u32, at: f64, title: &str) {
        self.name(tgid, at, TitleSource::Rename, title);
    }

    /// A process, or a person, names a moment or a phase.
    pub fn mark(&mut self, tgid: Option<u32>, at: f64, kind: MarkKind, name: &str) {
        self.numbered_mark(tgid, at, kind, name, None);
    }

    /// The same with the attribute `step`.
    pub fn numbered_mark(
        &mut self,
        tgid: Option<u32>,
        at: f64,
        kind: MarkKind,
        name: &str,
        step: Option<u32>,
    ) {
        let attributes = step.map(|step| format!("{{\"step\":{step}}}"));
        self.put_mark(tgid, at, kind, name, attributes);
    }

    /// The same with attributes, as JSON.
    pub fn said_mark(
        &mut self,
        tgid: Option<u32>,
        at: f64,
        kind: MarkKind,
        name: &str,
        attributes: &str,
    ) {
        self.put_mark(tgid, at, kind, name, Some(attributes.to_owned()));
    }

    /// The same with the number that pairs them.
    pub fn spanned_mark(
        &mut self,
        tgid: Option<u32>,
        at: f64,
        kind: MarkKind,
        name: &str,
        span: i64,
        attributes: &str,
    ) {
        self.put_mark(tgid, at, kind, name, Some(attributes.to_owned()));
        if let Some(Record::Mark(row)) = self.rows.0.last_mut() {
            row.span = Some(span);
        }
    }

    fn put_mark(
        &mut self,
        tgid: Option<u32>,
        at: f64,
        kind: MarkKind,
        name: &str,
        attributes: Option<String>,
    ) {
        let upid = tgid.map(|tgid| upid(Tgid(tgid)));
        let said = attributes.as_deref().map(serde_json::from_str);
        if let (Some(upid), Some(Ok(said))) = (upid, said)
            && let Some(held) = SelfReport::of(&said)
        {
            self.put(held.row(upid, boot(at), wall(at)));
        }
        self.put(MarkRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid,
            tgid: tgid.map(Tgid),
            name: name.to_owned(),
            kind: Some(kind),
            span: None,
            source: Some(MarkSource::Socket),
            attributes,
        });
    }

    /// Anonymous, file and shared memory of a process from now on, in MiB.
    pub fn mem(&mut self, tgid: u32, at: f64, [anon, file, shmem]: [f64; 3]) {
        let rss = mib(anon + file + shmem);
        self.edit(tgid, |process| {
            process.peak_rss_bytes = process.peak_rss_bytes.max(Some(rss));
        });
        self.put(MemRow {
            ts: wall(at),
            rss_bytes: Some(rss),
            rss_anon_bytes: Some(mib(anon)),
            rss_file_bytes: Some(mib(file)),
            rss_shmem_bytes: Some(mib(shmem)),
            swap_bytes: Some(Bytes(0)),
            ..super::mem_row(upid(Tgid(tgid)).0, boot(at).0, None)
        });
    }

    /// Shared memory reads below zero in the last row of memory, as the kernel's per-CPU counters
    /// can for a moment.
    pub fn below_zero(&mut self) {
        if let Some(Record::Mem(row)) = self.rows.0.last_mut() {
            row.rss_shmem_bytes = Some(Bytes(-4096));
        }
    }

    /// The size of the address space in the last row of memory, in GiB.
    pub fn sized(&mut self, size: f64) {
        if let Some(Record::Mem(row)) = self.rows.0.last_mut() {
            row.vm_size_bytes = Some(gib(size));
        }
    }

    /// The size of a process's address space, in GiB.
    pub fn reserves(&mut self, tgid: u32, at: f64, size: f64) {
        self.put(MemRow {
            ts: wall(at),
            vm_size_bytes: Some(gib(size)),
            ..super::mem_row(upid(Tgid(tgid)).0, boot(at).0, None)
        });
    }

    /// One mmap of so many MiB, anonymous where it has no file.
    pub fn mmap(&mut self, tgid: u32, at: f64, prot: i32, size: f64, file: Option<&str>) {
        let is_anonymous = file.is_none();
        self.put(VmEventRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            tid: tgid.cast_signed(),
            op: Some(VmOp::Mmap),
            addr: 0x7f00_0000_0000,
            length_bytes: Some(mib(size)),
            old_length_bytes: None,
            growth_bytes: Some(mib(size)),
            prot: Some(prot),
            flags: Some(if is_anonymous { 0x22 } else { 2 }),
            file: file.map(str::to_owned),
            result: 0x7f00_0000_0000,
        });
    }

    /// What many calls of a kind add up to: how many, and MiB added and removed.
    pub fn vm_sums(&mut self, tgid: u32, at: f64, op: VmOp, [calls, more, less]: [f64; 3]) {
        self.put(VmSummaryRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            op: Some(op),
            since_boot_ns: boot(at - 1.0),
            call_count: calls as i64,
            failed_count: 0,
            large_count: 0,
            added_bytes: mib(more),
            removed_bytes: mib(less),
        });
    }

    fn end(&mut self, tgid: u32, at: f64) {
        self.edit(tgid, |process| process.exit_boot_ns = Some(boot(at)));
        let zero = Some(Bytes(0));
        self.put(MemRow {
            ts: wall(at),
            rss_anon_bytes: zero,
            rss_file_bytes: zero,
            rss_shmem_bytes: zero,
            swap_bytes: zero,
            source: Some(MemSource::Exit),
            ..super::mem_row(upid(Tgid(tgid)).0, boot(at).0, Some(0))
        });
    }

    /// A process exits.
    pub fn exit(&mut self, tgid: u32, at: f64, code: i32) {
        self.end(tgid, at);
        self.edit(tgid, |process| process.exit_code = Some(code));
    }

    /// A signal ends a process.
    pub fn kill(&mut self, tgid: u32, at: f64, signal: i32) {
        self.end(tgid, at);
        self.edit(tgid, |process| process.exit_signal = Some(signal));
    }

    /// Who sends a signal: its identity and name.
    fn sender(&self, tgid: u32) -> (Option<Upid>, String) {
        let recorded = self.processes.get(&tgid);
        let comm = recorded.map_or("bash", |sender| &sender.comm).to_owned();
        (recorded.map(|sender| sender.upid), comm)
    }

    /// A process ends another by a signal; one that is no process of the run is not recorded.
    pub fn kill_from(&mut self, sender: u32, tgid: u32, at: f64, signal: i32) {
        self.kill(tgid, at, signal);
        let (upid, comm) = self.sender(sender);
        self.edit(tgid, |process| {
            process.exit_signal_code = Some(0);
            process.exit_signal_sender_upid = upid;
            process.exit_signal_sender_tgid = Some(Tgid(sender));
            process.exit_signal_sender_comm = Some(comm);
        });
    }

    /// A process asks another to end, by a signal that it handles.
    pub fn ask(&mut self, sender: u32, tgid: u32, at: f64, signal: i32) {
        let (upid, comm) = self.sender(sender);
        self.edit(tgid, |process| {
            process.termination_signal = Some(signal);
            process.termination_signal_boot_ns = Some(boot(at));
            process.termination_signal_sender_upid = upid;
            process.termination_signal_sender_tgid = Some(Tgid(sender));
            process.termination_signal_sender_comm = Some(comm);
        });
    }

    /// The kernel ends a process by a signal.
    pub fn fault(&mut self, tgid: u32, at: f64, signal: i32) {
        self.kill(tgid, at, signal);
        self.edit(tgid, |process| process.exit_signal_code = Some(1));
    }

    /// The OOM killer ends a process, at the limit of a cgroup.
    pub fn oom(&mut self, victim: u32, trigger: u32, at: f64, memcg: &str, limit: Bytes) {
        let comm = |tgid: u32| Some(self.processes[&tgid].comm.clone());
        let part = |part: f64| Bytes((limit.0 as f64 * part) as i64);
        let held = self.rows.0.iter().rev().find_map(|record| match record {
            Record::Mem(row) if row.upid == upid(Tgid(victim)) => Some(*row),
            _ => None,
        });
        let row = OomRow {
            ts: wall(at),
            boot_ns: boot(at),
            victim_upid: Some(upid(Tgid(victim))),
            victim_tgid: Tgid(victim),
            victim_comm: comm(victim),
            trigger_upid: Some(upid(Tgid(trigger))),
            trigger_tgid: Some(Tgid(trigger)),
            trigger_comm: comm(trigger),
            victim_rss_anon_bytes: held.as_ref().and_then(|row| row.rss_anon_bytes),
            victim_rss_file_bytes: held.as_ref().and_then(|row| row.rss_file_bytes),
            victim_rss_shmem_bytes: held.as_ref().and_then(|row| row.rss_shmem_bytes),
            victim_oom_score_adj: Some(0),
            constraint: Some("CONSTRAINT_MEMCG".to_owned()),
            memcg: Some(memcg.to_owned()),
            memcg_limit_bytes: Some(limit),
            memcg_usage_bytes: Some(limit),
            memcg_anon_bytes: Some(part(1.0 / 1.04)),
            memcg_file_bytes: Some(part(0.03)),
            memcg_shmem_bytes: Some(part(1.0 / 64.0)),
            memcg_kernel_bytes: Some(part(0.004)),
            memcg_slab_bytes: Some(part(0.001)),
            memcg_slab_reclaimable_bytes: Some(part(0.0005)),
            memcg_pagetables_bytes: Some(part(0.002)),
            memcg_swap_bytes: Some(Bytes(0)),
        };
        self.put(row);
        self.kill(victim, at + 0.02, 9);
        self.edit(victim, |process| process.oom_killed = Some(true));
    }

    /// The memory of a cgroup, with what of it is anonymous and shared; the rest is page cache.
    pub fn cgroup(&mut self, at: f64, path: &str, gibs: [f64; 3], limit: Option<Bytes>) {
        let [current, anon, shmem] = gibs;
        self.put(CgroupMemRow {
            ts: wall(at),
            boot_ns: boot(at),
            cgroup: path.to_owned(),
            version: 2,
            current_bytes: Some(gib(current)),
            peak_bytes: Some(gib(current)),
            limit_bytes: limit,
            anon_bytes: Some(gib(anon)),
            file_bytes: Some(gib(current - anon - 0.125)),
            shmem_bytes: Some(gib(shmem)),
            kernel_bytes: Some(gib(0.125)),
            slab_bytes: Some(gib(0.03125)),
            slab_reclaimable_bytes: Some(gib(0.015625)),
            pagetables_bytes: Some(gib(0.0625)),
            max_event_count: Some(0),
            oom_kill_count: Some(0),
            ..CgroupMemRow::default()
        });
    }

    /// What of the node's memory was available.
    pub fn node(&mut self, at: f64, available: Bytes) {
        self.put(self.node_row(at, available));
    }

    /// A row of the node of which nothing else is known.
    pub(super) fn node_row(&self, at: f64, available: Bytes) -> NodeMemRow {
        let total = self.info.mem_total_bytes;
        NodeMemRow {
            ts: wall(at),
            boot_ns: boot(at),
            mem_total_bytes: total,
            mem_available_bytes: Some(available),
            swap_total_bytes: Some(Bytes(0)),
            swap_free_bytes: Some(Bytes(0)),
            ..NodeMemRow::default()
        }
    }

    /// The recorder's own cost so far.
    pub fn cost(&mut self, at: f64, cpu_seconds: f64, lost: i64) {
        self.put(SelfCostRow {
            ts: wall(at),
            boot_ns: boot(at),
            cpu_user_ns: DurationNs((cpu_seconds * 0.6e9) as i64),
            cpu_system_ns: DurationNs((cpu_seconds * 0.4e9) as i64),
            rss_bytes: Some(mib(24.0)),
            rss_anon_bytes: Some(mib(16.0)),
            cgroup: Some("/system/memtrace".to_owned()),
            upid: None,
            peak_rss_bytes: Some(mib(31.5)),
            bpf_run_ns: Some(DurationNs((cpu_seconds * 0.2e9) as i64)),
            bpf_run_count: Some(1_000),
            interval_ns: self.info.interval_ns,
            snapshot_ns: Some(DurationNs(80_000)),
            process_count: 5,
            row_count: 4_000,
            written_bytes: mib(1.5),
            lost_event_count: lost,
        });
    }

    /// Something to know before trusting an absence.
    pub fn diag(
        &mut self,
        at: f64,
        (severity, kind): (Severity, DiagKind),
        subject: &str,
        count: Option<i64>,
        detail: &str,
    ) {
        self.put(DiagRow {
            ts: wall(at),
            boot_ns: boot(at),
            severity: Some(severity),
            kind: Some(kind),
            subject: subject.to_owned(),
            count,
            detail: detail.to_owned(),
        });
    }

    /// The recording as the analysis meets it.
    pub fn recorded(mut self) -> (RunInfo, Rows, Vec<String>) {
        for process in std::mem::take(&mut self.processes).into_values() {
            self.put(process);
        }
        (self.info, self.rows, self.problems)
    }
}

/// The identity that a golden process of this id has.
pub fn upid(tgid: Tgid) -> Upid {
    Upid(i64::from(tgid.0) + 1_000_000)
}
