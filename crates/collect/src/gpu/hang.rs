//! A call of the library that does not come back: since when, and the rows that say so.

use super::pace::{Asked, Calls, HANG};
use super::steps::Stamp;
use crate::Pass;
use memtrace_host::clock;
use memtrace_model::tables::GpuDeviceRow;
use memtrace_model::{BootNs, DiagKind, DiagRow, Record, Severity, WallNs};
use std::collections::BTreeMap;

/// What the rows say in place of the device's answer.
const ERROR: &str = "a call of the driver's library has not come back";
/// The subject of the rows of `diag`.
const SUBJECT: &str = "nvml call";

/// Watches the calls of the thread.
#[derive(Debug)]
pub(super) struct Hang {
    calls: Calls,
    /// The call that was reported to hang.
    reported: Option<BootNs>,
    /// The last row of each device.
    rows: BTreeMap<String, GpuDeviceRow>,
}

impl Hang {
    pub(super) fn of(calls: Calls) -> Self {
        Self {
            calls,
            reported: None,
            rows: BTreeMap::new(),
        }
    }

    /// The row of a device that stands.
    pub(super) fn stands(&mut self, row: &GpuDeviceRow) {
        self.rows.insert(row.device.clone(), row.clone());
    }

    /// The devices that were reported.
    pub(super) fn devices(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }

    /// Tells of a call that hangs, or has ceased to. At the end of a recording every open call
    /// hangs. Answers from when on nothing is known, where that is news.
    pub(super) fn note(&mut self, is_last: bool, pass: &mut Pass<'_>) -> Option<Stamp> {
        let open = self.calls.counts().open.map(|open| open.since);
        let Some(since) = open.filter(|since| is_last || pass.tick.boot - *since >= HANG) else {
            if self.reported.take().is_some() {
                let (severity, kind) = (Severity::Info, DiagKind::Unavailable);
                pass.tell(severity, kind, SUBJECT, None, "it has come back");
            }
            return None;
        };
        let is_known = self.reported.replace(since) == Some(since);
        if is_known {
            if is_last || pass.tick.is_keyframe {
                let now = Stamp {
                    ts: pass.tick.wall(),
                    boot: pass.tick.boot,
                };
                self.unknown(now, pass.out);
            }
            return None;
        }
        let age = pass.tick.boot - since;
        let stamp = Stamp {
            ts: WallNs(pass.tick.wall().0 - age.0),
            boot: since,
        };
        let detail = "a call of the driver's library does not come back: the memory of GPUs is \
                      unknown from then on";
        pass.write(DiagRow {
            ts: stamp.ts,
            boot_ns: since,
            severity: Some(Severity::Degraded),
            kind: Some(DiagKind::Unavailable),
            subject: SUBJECT.to_owned(),
            count: None,
            detail: detail.to_owned(),
        });
        self.unknown(stamp, pass.out);
        Some(stamp)
    }

    /// Every device without its amounts, with what the calls have taken until now.
    fn unknown(&self, stamp: Stamp, out: &mut Vec<Record>) {
        let now = clock::boot();
        let counts = self.calls.counts().at(now);
        let longest = |asked, row: &GpuDeviceRow| {
            let open = counts.open.as_ref()?.asked.as_ref();
            let is_its =
                open.is_some_and(|(what, device)| *what == asked && **device == *row.device);
            counts.open_for(now).filter(|_| is_its)
        };
        out.extend(self.rows.values().map(|row| {
            Record::from(GpuDeviceRow {
                ts: stamp.ts,
                boot_ns: stamp.boot,
                used_bytes: None,
                reserved_bytes: None,
                free_bytes: None,
                utilization_percent: None,
                memory_call_ns: longest(Asked::Memory, row),
                process_call_ns: longest(Asked::Processes, row),
                call_total_ns: Some(counts.total),
                call_count: Some(counts.count),
                error: Some(ERROR.to_owned()),
                ..row.clone()
            })
        }));
    }
}
