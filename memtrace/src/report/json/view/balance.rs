//! The ledger in the JSON report.

use crate::analyze::{self, Analysis, Basis, KernelPart, Scope};
use crate::model::{Bytes, DurationNs, Label, Tgid, Upid};
use serde::Serialize;

/// The books of a cgroup or of the node. The lines add up to `current_bytes`.
#[derive(Serialize)]
pub(super) struct Balance<'a> {
    scope: &'static str,
    cgroup: Option<&'a str>,
    current_bytes: Option<Bytes>,
    age_ns: DurationNs,
    skew_ns: DurationNs,
    span_ns: DurationNs,
    anonymous_bytes: Option<Bytes>,
    other_processes_bytes: Option<Bytes>,
    other_process_count: Option<i64>,
    recorder_bytes: Option<Bytes>,
    shared_bytes: Option<Bytes>,
    other_shared_bytes: Option<Bytes>,
    files_bytes: Bytes,
    other_files_bytes: Option<Bytes>,
    kernel_bytes: Option<Bytes>,
    residual_bytes: Option<Bytes>,
    limit_bytes: Option<Bytes>,
    reclaimable_bytes: Option<Bytes>,
    unknown_process_count: usize,
    unknown_object_count: usize,
    oldest_age_ns: Option<DurationNs>,
    objects_age_ns: Option<DurationNs>,
    anonymous: Vec<Anon<'a>>,
    shared: Vec<Object<'a>>,
    hugetlb: Vec<Object<'a>>,
    files: Vec<File<'a>>,
    kernel: Vec<Part>,
    shared_elsewhere: Vec<Object<'a>>,
    files_elsewhere: Vec<File<'a>>,
    ending: Vec<Ending<'a>>,
}

#[derive(Serialize)]
struct Ending<'a> {
    pid: Option<Tgid>,
    upid: Upid,
    name: &'a str,
    bytes: Bytes,
    ago_ns: DurationNs,
}

#[derive(Serialize)]
struct Anon<'a> {
    pid: Option<Tgid>,
    upid: Upid,
    name: &'a str,
    bytes: Bytes,
    basis: Basis,
    age_ns: Option<DurationNs>,
}

#[derive(Serialize)]
struct Object<'a> {
    kind: Option<&'static str>,
    name: Option<&'a str>,
    family: Option<&'static str>,
    device: &'a str,
    inode: i64,
    is_deleted: bool,
    size_bytes: Option<Bytes>,
    allocated_bytes: Option<Bytes>,
    resident_bytes: Option<Bytes>,
    mapper_count: i64,
    has_other_mapper: Option<bool>,
    creator_pid: Option<Tgid>,
}

#[derive(Serialize)]
struct File<'a> {
    path: &'a str,
    size_bytes: Bytes,
    cached_bytes: Option<Bytes>,
    dirty_bytes: Option<Bytes>,
    user_count: i64,
}

#[derive(Serialize)]
struct Part {
    part: KernelPart,
    bytes: Bytes,
}

impl<'a> Balance<'a> {
    /// The books with at most `top` lines of each group, or all of them.
    pub(super) fn of(
        analysis: &'a Analysis,
        balance: &'a analyze::Balance,
        top: Option<usize>,
    ) -> Self {
        let top = top.unwrap_or(usize::MAX);
        let (scope, cgroup) = match &balance.scope {
            Scope::Cgroup(path) => ("cgroup", Some(path.as_str())),
            Scope::Node => ("node", None),
        };
        Self {
            scope,
            cgroup,
            current_bytes: balance.current_bytes,
            age_ns: balance.age_ns,
            skew_ns: balance.skew_ns,
            span_ns: balance.span_ns,
            anonymous_bytes: balance.known_anon_bytes(),
            other_processes_bytes: balance.other_processes_bytes,
            other_process_count: balance.other_process_count,
            recorder_bytes: balance.recorder_bytes,
            shared_bytes: balance.known_objects_bytes(),
            other_shared_bytes: balance.other_shared_bytes,
            files_bytes: balance.files_bytes(),
            other_files_bytes: balance.other_files_bytes,
            kernel_bytes: balance.known_kernel_bytes(),
            residual_bytes: balance.residual_bytes,
            limit_bytes: balance.limit_bytes,
            reclaimable_bytes: balance.reclaimable_bytes,
            unknown_process_count: balance.unknown_process_count,
            unknown_object_count: balance.unknown_object_count,
            oldest_age_ns: balance.oldest(),
            objects_age_ns: balance.objects_age_ns,
            anonymous: balance
                .anon
                .iter()
                .take(top)
                .map(|line| Anon::of(analysis, line))
                .collect(),
            shared: balance.objects.iter().take(top).map(Object::of).collect(),
            hugetlb: balance
                .huge_objects
                .iter()
                .take(top)
                .map(Object::of)
                .collect(),
            files: balance.files.iter().take(top).map(File::of).collect(),
            kernel: balance.kernel.iter().map(Part::of).collect(),
            shared_elsewhere: balance
                .elsewhere
                .objects
                .iter()
                .take(top)
                .map(Object::of)
                .collect(),
            files_elsewhere: balance
                .elsewhere
                .files
                .iter()
                .take(top)
                .map(File::of)
                .collect(),
            ending: balance
                .ending
                .iter()
                .take(top)
                .map(|line| Ending::of(analysis, line))
                .collect(),
        }
    }
}

impl<'a> Anon<'a> {
    fn of(analysis: &'a Analysis, line: &analyze::AnonLine) -> Self {
        let process = &analysis.processes[line.process];
        Self {
            pid: process.tgid,
            upid: process.upid,
            name: &process.name,
            bytes: line.bytes,
            basis: line.basis,
            age_ns: line.age_ns,
        }
    }
}

impl<'a> Ending<'a> {
    fn of(analysis: &'a Analysis, line: &analyze::EndingLine) -> Self {
        let process = &analysis.processes[line.process];
        Self {
            pid: process.tgid,
            upid: process.upid,
            name: &process.name,
            bytes: line.bytes,
            ago_ns: line.ago_ns,
        }
    }
}

impl<'a> Object<'a> {
    fn of(row: &'a crate::model::tables::ShmObjectRow) -> Self {
        Self {
            kind: row.kind.map(Label::as_str),
            name: row.name.as_deref(),
            family: row.family.map(Label::as_str),
            device: &row.device,
            inode: row.inode,
            is_deleted: row.is_deleted,
            size_bytes: row.size_bytes,
            allocated_bytes: row.allocated_bytes,
            resident_bytes: row.resident_bytes,
            mapper_count: row.mapper_count,
            has_other_mapper: row.has_other_mapper,
            creator_pid: row.creator_tgid,
        }
    }
}

impl<'a> File<'a> {
    fn of(row: &'a crate::model::tables::CachedFileRow) -> Self {
        Self {
            path: &row.path,
            size_bytes: row.size_bytes,
            cached_bytes: row.cached_bytes,
            dirty_bytes: row.dirty_bytes,
            user_count: row.user_count,
        }
    }
}

impl Part {
    fn of((part, bytes): &(KernelPart, Bytes)) -> Self {
        Self {
            part: *part,
            bytes: *bytes,
        }
    }
}
