//! A run of which it is known what is shared: the ledger of its cgroup closes.

use super::script::{Script, boot, gib, mib, upid, wall};
use memtrace_model::tables::{
    CacheSource, CachedFileRow, MappingKind, PssRow, PssSource, ShmFamily, ShmObjectRow,
};
use memtrace_model::{Bytes, DurationNs, Record, Tgid, Upid};

impl Script {
    /// A measured PSS of anonymous memory, in MiB: PSS and RSS.
    pub fn pss(&mut self, tgid: u32, at: f64, [pss, rss]: [f64; 2], is_anon_unshared: bool) {
        self.put(PssRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            pss_anon_bytes: Some(mib(pss)),
            rss_anon_bytes: Some(mib(rss)),
            is_anon_unshared,
            source: Some(PssSource::Pagemap),
            sampled_share: Some(0.25),
            cost_ns: DurationNs(2_000_000),
            span_ns: DurationNs(400_000_000),
            rss_moved_bytes: Some(Bytes(0)),
            ..PssRow::default()
        });
    }

    /// A shared object, in MiB: its size and what is allocated.
    pub fn object(&mut self, mapper: u32, at: f64, name: &str, amounts: [f64; 2]) {
        self.object_of(MappingKind::Tmpfs, mapper, at, name, amounts);
    }

    /// The same object, when nobody could be asked what it takes.
    pub fn unasked_object(&mut self, mapper: u32, at: f64, name: &str) {
        let row = object_row(MappingKind::Tmpfs, mapper, at, name, [0.0; 2]);
        self.put(ShmObjectRow {
            size_bytes: None,
            allocated_bytes: None,
            ..row
        });
    }

    fn object_of(
        &mut self,
        kind: MappingKind,
        mapper: u32,
        at: f64,
        name: &str,
        [size, allocated]: [f64; 2],
    ) {
        self.put(object_row(kind, mapper, at, name, [size, allocated]));
    }

    /// What a shared object takes from now on, in MiB, and who maps it.
    pub fn shared_object(
        &mut self,
        mappers: std::ops::Range<u32>,
        at: f64,
        name: &str,
        allocated: f64,
    ) {
        self.object(0, at, name, [allocated; 2]);
        if let Some(Record::ShmObject(row)) = self.rows.0.last_mut() {
            let upids: Vec<String> = mappers.map(|tgid| upid(Tgid(tgid)).to_string()).collect();
            row.first_mapper_upid = upids.first().and_then(|upid| upid.parse().ok().map(Upid));
            row.mapper_count = upids.len() as i64;
            row.mappers = upids.join(" ");
        }
    }

    /// A process was seen to have the last object open.
    pub fn opened(&mut self, tgid: u32) {
        if let Some(Record::ShmObject(row)) = self.rows.0.last_mut() {
            row.first_opener_upid = Some(upid(Tgid(tgid)));
        }
    }

    /// A cached file, in MiB.
    pub fn cached(&mut self, user: u32, at: f64, path: &str, cached: f64) {
        self.put(CachedFileRow {
            ts: wall(at),
            boot_ns: boot(at),
            device: "259:1".to_owned(),
            inode: i64::try_from(path.len()).unwrap_or(0),
            path: path.to_owned(),
            size_bytes: mib(cached),
            cached_bytes: Some(mib(cached)),
            dirty_bytes: Some(Bytes(0)),
            user_count: 2,
            first_user_upid: Some(upid(Tgid(user))),
            source: Some(CacheSource::Cachestat),
        });
    }
}

fn object_row(
    kind: MappingKind,
    mapper: u32,
    at: f64,
    name: &str,
    [size, allocated]: [f64; 2],
) -> ShmObjectRow {
    ShmObjectRow {
        ts: wall(at),
        boot_ns: boot(at),
        device: "0:25".to_owned(),
        inode: i64::from(name.as_bytes().last().copied().unwrap_or(0)),
        kind: Some(kind),
        name: Some(name.to_owned()),
        is_deleted: false,
        family: name.contains("plasma").then_some(ShmFamily::RayPlasma),
        size_bytes: Some(mib(size)),
        allocated_bytes: Some(mib(allocated)),
        mapper_count: 3,
        mappers: String::new(),
        first_mapper_upid: Some(upid(Tgid(mapper))),
        ..ShmObjectRow::default()
    }
}

/// Ray with an object store and workers that inherited their memory: RSS counts 14 GiB, of
/// which 6 exist.
pub(super) fn shared() -> Script {
    let mut run = Script::command(&["python3", "loop.py"], 120.0);
    run.process(500, None, 0.0, "python3 loop.py");
    run.mem(500, 1.0, [2048.0, 100.0, 1024.0]);
    for worker in 501..504 {
        run.process(worker, Some(500), 5.0, "ray::Rollout.step");
        run.inherits(worker, 2048.0);
        run.mem(worker, 6.0, [2560.0, 100.0, 1024.0]);
    }
    for tgid in 500..504 {
        run.edit(tgid, |row| row.cgroup = Some("/pod/ray".into()));
    }
    run.pss(500, 8.0, [512.0, 2048.0], false);
    run.pss(501, 9.0, [1024.0, 2560.0], false);
    run.pss(502, 10.0, [1000.0, 2500.0], false);
    run.object(500, 8.0, "/dev/shm/plasmaA", [4096.0, 1024.0]);
    run.object(500, 8.0, "/dev/shm/mine\x1b[2J", [64.0, 64.0]);
    run.object_of(MappingKind::Hugetlb, 501, 8.0, "/memfd:kv", [96.0, 96.0]);
    run.cached(501, 9.0, "/models/qwen/model.safetensors", 1024.0);
    run.cgroup(12.0, "/pod/ray", [6.25, 3.5, 1.0625], Some(gib(8.0)));
    run.mem(500, 12.0, [2048.0, 100.0, 1024.0]);
    run
}
