//! Runs that end badly: a server whose root was killed leaves its workers and their shared
//! memory behind; a machine runs out of memory.

use super::script::{Script, boot, gib, mib, upid, wall};
use memtrace_model::tables::{
    Fate, MappingKind, NodeMemRow, OomRow, OrphanedShmRow, ShmFamily, SurvivorRow,
};
use memtrace_model::{Bytes, DurationNs, Record, Tgid};

impl Script {
    /// A process that outlived the root, by anonymous and shared memory in MiB.
    pub(super) fn survivor(&mut self, tgid: u32, at: f64, [anon, shmem]: [f64; 2], fate: Fate) {
        self.put(SurvivorRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            tgid: Tgid(tgid),
            has_root_ended: true,
            parent_tgid: Some(Tgid(1)),
            parent_comm: Some("systemd".to_owned()),
            rss_anon_bytes: Some(mib(anon)),
            rss_file_bytes: Some(mib(200.0)),
            rss_shmem_bytes: Some(mib(shmem)),
            swap_bytes: Some(Bytes(0)),
            gpu_bytes: None,
            fate: Some(fate),
        });
    }

    /// What that one held on GPUs.
    pub(super) fn survivor_on_gpus(&mut self, tgid: u32, held: Bytes) {
        for record in &mut self.rows.0 {
            if let Record::Survivor(row) = record
                && row.tgid == Tgid(tgid)
            {
                row.gpu_bytes = Some(held);
            }
        }
    }

    /// The node by anonymous memory, shared memory and page cache, in GiB.
    fn full_node(&mut self, at: f64, [anon, shmem, cache]: [f64; 3]) {
        let free = 503.5 - anon - shmem - cache - 2.5;
        let row = self.node_row(at, gib(free));
        self.put(NodeMemRow {
            mem_free_bytes: Some(gib(free)),
            buffers_bytes: Some(Bytes(0)),
            cached_bytes: Some(gib(shmem + cache)),
            anon_bytes: Some(gib(anon)),
            shmem_bytes: Some(gib(shmem)),
            slab_reclaimable_bytes: Some(gib(0.5)),
            slab_unreclaimable_bytes: Some(gib(1.0)),
            kernel_stack_bytes: Some(mib(32.0)),
            page_tables_bytes: Some(mib(400.0)),
            percpu_bytes: Some(mib(80.0)),
            hugetlb_bytes: Some(Bytes(0)),
            psi_some_ns: Some(DurationNs((at * 4e8) as i64)),
            psi_full_ns: Some(DurationNs((at * 1e8) as i64)),
            ..row
        });
    }

    /// Shared memory without an owner, size and allocation in MiB.
    fn left(&mut self, at: f64, kind: MappingKind, name: &str, [size, allocated]: [f64; 2]) {
        let is_segment = kind == MappingKind::Sysv;
        self.put(OrphanedShmRow {
            ts: wall(at),
            boot_ns: boot(at),
            device: (!is_segment).then(|| "0:25".to_owned()),
            inode: name.len() as i64,
            kind: Some(kind),
            name: name.to_owned(),
            family: name.contains("psm_").then_some(ShmFamily::Python),
            creator_tgid: is_segment.then_some(Tgid(410)),
            uid: Some(1000),
            size_bytes: Some(mib(size)),
            allocated_bytes: Some(mib(allocated)),
            is_certain: !name.contains("uncertain"),
        });
    }
}

/// The server was killed; engine and workers live on for a while, and are ended.
pub fn left_behind() -> Script {
    let mut run = Script::command(&["vllm", "serve", "Qwen/Qwen3-0.6B"], 60.0);
    run.info.command_exit_code = Some(137);
    run.process(
        400,
        None,
        0.0,
        "/usr/bin/python3 /usr/bin/vllm serve Qwen/Qwen3-0.6B",
    );
    run.mem(400, 1.0, [400.0, 160.0, 0.0]);
    for (tgid, parent, title) in [
        (410, 400, "VLLM::EngineCore"),
        (420, 410, "VLLM::Worker_TP0"),
        (421, 410, "VLLM::Worker_TP1"),
    ] {
        run.process(tgid, Some(parent), 5.0, "/usr/bin/python3 -c spawn_main");
        run.title(tgid, 8.0, title);
        run.mem(tgid, 20.0, [2_000.0, 200.0, 252.0]);
    }
    run.kill(400, 57.0, 9);
    run.survivor(410, 59.0, [600.0, 252.0], Fate::Left);
    run.survivor(420, 59.0, [2_400.0, 252.0], Fate::Terminated);
    run.survivor(421, 59.0, [2_300.0, 252.0], Fate::Killed);
    run.left(
        59.5,
        MappingKind::Tmpfs,
        "/dev/shm/psm_1\x1b[2J",
        [252.0, 0.043],
    );
    run.left(
        59.5,
        MappingKind::Tmpfs,
        "/dev/shm/uncertain",
        [17_408.0, 17_408.0],
    );
    run.left(59.5, MappingKind::Sysv, "0x00000000", [64.0, 64.0]);
    run
}

/// No limit of a group: the machine itself is full, and what grew is no process's.
pub(super) fn node_out_of_memory() -> Script {
    let mut run = Script::command(&["python3", "stage.py"], 40.0);
    run.process(700, None, 0.0, "python3 stage.py");
    run.process(701, Some(700), 0.5, "cp -r /data /dev/shm/data");
    run.mem(701, 0.6, [1.0, 2.0, 0.0]);
    run.mem(700, 1.0, [900.0, 60.0, 0.0]);
    run.full_node(5.0, [40.0, 2.0, 100.0]);
    run.mem(700, 20.0, [1_400.0, 60.0, 0.0]);
    run.full_node(30.0, [41.0, 455.0, 3.0]);
    run.put(OomRow {
        victim_upid: Some(upid(Tgid(700))),
        victim_comm: Some("python3".to_owned()),
        trigger_upid: Some(upid(Tgid(701))),
        trigger_tgid: Some(Tgid(701)),
        trigger_comm: Some("cp".to_owned()),
        constraint: Some("CONSTRAINT_NONE".to_owned()),
        victim_rss_anon_bytes: Some(mib(1_400.0)),
        victim_rss_file_bytes: Some(mib(60.0)),
        victim_rss_shmem_bytes: Some(Bytes(0)),
        ..OomRow::of_victim(wall(30.5), boot(30.5), Tgid(700))
    });
    run.kill(700, 30.6, 9);
    run.edit(700, |process| process.oom_killed = Some(true));
    run
}
