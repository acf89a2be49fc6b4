//! Names as events tell them.

use crate::bpf::known::identity;
use crate::{Process, Tick};
use memtrace_model::{BootNs, Record, Tgid, TitleRow, TitleSource};
use std::sync::Arc;

/// The file that exec was called with. A relative name is looked up while the process
/// lives, since nothing later tells from where it was meant.
pub(super) fn executed_file(tgid: Tgid, path: &[u8]) -> Option<String> {
    let named = (!path.is_empty()).then(|| String::from_utf8_lossy(path).into_owned());
    if path.first() == Some(&b'/') {
        return named;
    }
    identity(tgid).and_then(|found| found.exe).or(named)
}

/// A row of `title`.
pub(super) fn title(
    process: &Process,
    shown: Option<Arc<str>>,
    source: TitleSource,
    at: BootNs,
    tick: &Tick,
) -> Record {
    Record::Title(TitleRow {
        ts: tick.clock.to_wall(at),
        boot_ns: at,
        upid: process.row().upid,
        comm: process.row().comm.clone(),
        title: shown,
        role: None,
        source: Some(source),
    })
}
