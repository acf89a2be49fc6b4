//! A process in the JSON report.

use crate::analyze::{Amounts, Analysis, Ending, Growth};
use crate::model::{BootNs, Bytes, Instant, Tgid, Upid};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Process<'a> {
    pid: Option<Tgid>,
    ns_pid: Option<Tgid>,
    upid: Upid,
    parent_upid: Option<Upid>,
    root_upid: Option<Upid>,
    name: &'a str,
    framework: Option<&'a str>,
    role: Option<&'a str>,
    rank: Option<&'a str>,
    comm: &'a str,
    exe: Option<&'a str>,
    cmdline: Option<&'a str>,
    last_title: Option<&'a str>,
    uid: Option<i64>,
    cgroup: Option<&'a str>,
    container_id: Option<&'a str>,
    start: Instant,
    first_seen: Instant,
    end: Option<Instant>,
    ended: &'static str,
    exit_code: Option<i32>,
    exit_signal: Option<i32>,
    oom_killed: Option<bool>,
    peak: Peak,
    inherited_rss_bytes: Option<Bytes>,
    kernel_maxrss_bytes: Option<Bytes>,
    growth: Option<Growth>,
}

#[derive(Serialize)]
struct Peak {
    rss_bytes: Option<Bytes>,
    bound: Option<&'static str>,
    error_bytes: Option<Bytes>,
    source: Option<&'static str>,
    at: Option<Instant>,
    series: Amounts,
}

impl<'a> Process<'a> {
    pub(super) fn of(analysis: &'a Analysis, position: usize) -> Self {
        let process = &analysis.processes[position];
        let upid = |position: usize| analysis.processes[position].upid;
        let instant = |boot: BootNs| analysis.clock.at(boot);
        let (ended, exit_code, exit_signal, oom_killed) = ending(process.ending);
        let peak = &process.peak;
        let role = process.role.as_ref();
        Self {
            pid: process.tgid,
            ns_pid: process.ns_tgid,
            upid: process.upid,
            parent_upid: process.parent.map(upid),
            root_upid: process.root.map(upid),
            name: &process.name,
            framework: role.and_then(|role| role.framework.as_deref()),
            role: role.map(|role| role.role.as_str()),
            rank: role.and_then(|role| role.rank.as_deref()),
            comm: &process.comm,
            exe: process.exe.as_deref(),
            cmdline: process.cmdline.as_deref(),
            last_title: process.title.as_deref(),
            uid: process.uid,
            cgroup: process.cgroup.as_deref(),
            container_id: process.container_id.as_deref(),
            start: instant(process.start_boot_ns),
            first_seen: instant(process.first_seen_boot_ns),
            end: process.exit_boot_ns.map(instant),
            ended,
            exit_code,
            exit_signal,
            oom_killed,
            peak: Peak {
                rss_bytes: peak.rss_bytes,
                bound: peak.rss_bytes.map(|_| peak.bound.as_str()),
                error_bytes: peak.bound.error(),
                source: peak.origin.map(|origin| origin.as_str()),
                at: peak.boot_ns.map(instant),
                series: peak.amounts,
            },
            inherited_rss_bytes: process.inherited_rss_bytes,
            kernel_maxrss_bytes: process.kernel_maxrss_bytes,
            growth: process.growth,
        }
    }
}

/// The word for an ending, with exit code, signal and whether the OOM killer did it.
fn ending(ending: Ending) -> (&'static str, Option<i32>, Option<i32>, Option<bool>) {
    match ending {
        Ending::Running => ("running", None, None, None),
        Ending::Exited(code) => ("exited", Some(code), None, Some(false)),
        Ending::Killed {
            signal,
            by_oom_killer,
        } => ("killed", None, Some(signal), by_oom_killer),
        Ending::Unknown => ("unknown", None, None, None),
    }
}
