//! Who sent the signal that ended a process, held against who did.

use super::book::{Book, Score, no_loss};
use crate::recorder::Recorder;
use crate::workload::{self, number};
use anyhow::{Context, Result};
use memtrace_model::ProcessRow;
use serde_json::Value;

/// si_code of sigaction(2).
const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;
const SI_KERNEL: i32 = 0x80;
const SEGV_MAPERR: i32 = 1;

/// Signals of a process itself, of the kernel, of a parent, also handled ones, from another pid namespace, and of
/// the caller, who is not recorded and kills a worker of a server some seconds before that shuts down.
///
/// # Errors
/// When the run itself fails.
pub fn endings(words: &[&str]) -> Result<Vec<Score>> {
    let command = workload::command(&["endings"])?;
    let mut recorder = Recorder::of_command(words, &command)?;
    let mut lines: Vec<Value> = Vec::new();
    let line_of = |lines: &[Value], way: &str| {
        let mut lines = lines.iter();
        lines.find(|line| line["way"] == way).cloned()
    };
    let server = loop {
        lines.push(serde_json::from_str(&recorder.line()?)?);
        if let Some(server) = line_of(&lines, "server") {
            break server;
        }
    };
    let worker = number(&server, "worker")?;
    // SAFETY: plain numbers. It is the workload's own, which waits for this.
    unsafe { libc::kill(i32::try_from(worker)?, libc::SIGKILL) };
    let recorded = recorder.wait()?;
    let book = Book::open(&recorded)?;
    let process = |pid: i64| book.expect(pid);
    let mut text = Score::new("each end by a signal says who sent it, and why");
    let mut case = |row: &ProcessRow, signal: i32, code: i32, sender: Option<&ProcessRow>| {
        let is_reported = row.exit_signal == Some(signal)
            && row.exit_signal_code == Some(code)
            && row.exit_signal_sender_upid == sender.map(|sender| sender.upid)
            && row.exit_signal_sender_tgid == sender.map(|sender| sender.tgid)
            && row.exit_signal_sender_comm.is_some() == sender.is_some();
        text.case(is_reported, || {
            format!("{row:?}, not {signal} {code} {sender:?}")
        });
    };
    let of = |way: &str, key: &str| -> Result<&ProcessRow> {
        let line = line_of(&lines, way).with_context(|| format!("nothing of {way}"))?;
        process(number(&line, key)?)
    };
    let parent = of("abort", "pid")?.parent_upid;
    let main = book.processes().find(|row| Some(row.upid) == parent);
    let main = main.context("the workload is not recorded")?;
    let (abort, fault, cpu) = (of("abort", "pid")?, of("fault", "pid")?, of("cpu", "pid")?);
    case(abort, libc::SIGABRT, SI_TKILL, Some(abort));
    case(fault, libc::SIGSEGV, SEGV_MAPERR, None);
    case(cpu, libc::SIGXCPU, SI_KERNEL, None);
    // It was its parent's, also where the process sends it on to itself.
    case(of("handled", "pid")?, libc::SIGTERM, SI_USER, Some(main));
    case(of("forever", "pid")?, libc::SIGKILL, SI_USER, Some(main));
    let mut asked = Score::new("a process that handled a signal says who sent it, and when");
    for (way, code, signal) in [
        ("handled", None, Some(libc::SIGTERM)),
        ("exits", Some(1), None),
    ] {
        let row = of(way, "pid")?;
        let (sent, end) = (row.termination_signal_boot_ns, row.exit_boot_ns);
        let is_reported = (row.exit_code, row.exit_signal) == (code, signal)
            && row.termination_signal == Some(libc::SIGTERM)
            && sent.is_some_and(|at| at > row.start_boot_ns && end.is_some_and(|end| at < end))
            && row.termination_signal_sender_upid == Some(main.upid)
            && row.termination_signal_sender_tgid == Some(main.tgid)
            && row.termination_signal_sender_comm.is_some();
        asked.case(is_reported, || format!("{way}: {row:?}"));
    }
    let init = of("namespace", "pid")?;
    let children = book.processes();
    let children = children.filter(|row| row.parent_upid == Some(init.upid));
    let mut children: Vec<&ProcessRow> = children.collect();
    children.sort_by_key(|row| row.exit_signal_code);
    for (child, code) in children.iter().zip([SI_USER, SI_KERNEL]) {
        case(child, libc::SIGKILL, code, Some(init));
    }
    let server = of("server", "pid")?;
    case(of("server", "left")?, libc::SIGKILL, SI_USER, Some(server));
    let worker = of("server", "worker")?;
    let caller = std::process::id();
    let report = recorded.report_text(&[])?;
    let comm = worker.exit_signal_sender_comm.clone().unwrap_or_default();
    Ok(vec![
        text,
        asked,
        Score::of(
            "its end is reported with that",
            report.contains(&format!("exit 1 after SIGTERM from {}", main.tgid.0)),
            || report.clone(),
        ),
        Score::of(
            "the namespace has two children",
            children.len() == 2,
            || format!("{children:?}"),
        ),
        Score::of(
            "who is not recorded is known by id and name",
            worker.exit_signal_sender_upid.is_none()
                && worker.exit_signal_sender_tgid.map(|tgid| tgid.0) == Some(caller)
                && !comm.is_empty(),
            || format!("{worker:?}, by {caller}"),
        ),
        Score::of(
            "that is what happened, by the report",
            report.lines().any(|line| {
                line.contains(&format!("What happened: {} ", worker.tgid.0))
                    && line.contains(&format!("SIGKILL from {caller} {comm} (not recorded)"))
            }),
            || report.clone(),
        ),
        Score::of(
            "what the server kills as it ends is no failure",
            report.contains(&format!("SIGKILL from {0} before {0} ended", server.tgid.0)),
            || report.clone(),
        ),
        no_loss(&recorded)?,
    ])
}
