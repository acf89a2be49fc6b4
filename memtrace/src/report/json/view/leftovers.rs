//! What was left behind, in the JSON report.

use crate::analyze::{self, Analysis};
use crate::model::{Bytes, Label, Tgid, Upid};
use serde::Serialize;

/// A process that outlived the root of its tree.
#[derive(Serialize)]
pub(super) struct Survivor<'a> {
    pid: Tgid,
    upid: Upid,
    name: Option<&'a str>,
    parent_pid: Option<Tgid>,
    parent_comm: Option<&'a str>,
    anon_bytes: Option<Bytes>,
    file_bytes: Option<Bytes>,
    shmem_bytes: Option<Bytes>,
    swap_bytes: Option<Bytes>,
    gpu_bytes: Option<Bytes>,
    fate: Option<&'static str>,
}

/// Shared memory without an owner.
#[derive(Serialize)]
pub(super) struct LeftObject<'a> {
    kind: Option<&'static str>,
    name: &'a str,
    device: Option<&'a str>,
    inode: i64,
    family: Option<&'static str>,
    creator_pid: Option<Tgid>,
    owner_upid: Option<Upid>,
    owner_name: Option<&'a str>,
    uid: Option<i64>,
    size_bytes: Option<Bytes>,
    allocated_bytes: Option<Bytes>,
    is_certain: bool,
}

impl<'a> Survivor<'a> {
    pub(super) fn of(analysis: &'a Analysis, one: &'a analyze::Survivor) -> Self {
        let row = &one.row;
        let process = one.process.map(|position| &analysis.processes[position]);
        Self {
            pid: row.tgid,
            upid: row.upid,
            name: process.map(|process| process.name.as_ref()),
            parent_pid: row.parent_tgid,
            parent_comm: row.parent_comm.as_deref(),
            anon_bytes: row.rss_anon_bytes,
            file_bytes: row.rss_file_bytes,
            shmem_bytes: row.rss_shmem_bytes,
            swap_bytes: row.swap_bytes,
            gpu_bytes: row.gpu_bytes,
            fate: row.fate.map(Label::as_str),
        }
    }
}

impl<'a> LeftObject<'a> {
    pub(super) fn of(analysis: &'a Analysis, one: &'a analyze::LeftObject) -> Self {
        let row = &one.row;
        let owner = one.owner.map(|position| &analysis.processes[position]);
        Self {
            kind: row.kind.map(Label::as_str),
            name: &row.name,
            device: row.device.as_deref(),
            inode: row.inode,
            family: row.family.map(Label::as_str),
            creator_pid: row.creator_tgid,
            owner_upid: owner.map(|process| process.upid),
            owner_name: owner.map(|process| process.name.as_ref()),
            uid: row.uid,
            size_bytes: row.size_bytes,
            allocated_bytes: row.allocated_bytes,
            is_certain: row.is_certain,
        }
    }
}
