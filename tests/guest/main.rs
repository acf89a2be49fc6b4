//! `memtrace-guest`: runs chosen tests one by one and says, in JSON lines, what kernel
//! this is, what tests need and get here, which programs a recording attaches and by
//! which way, the part of its BTF that memtrace looks at, and how each test ended. `cargo xtask vm` puts it into a virtual machine,
//! where it is the first process, and reads what it says from a serial line; started in
//! any other way it says the same on standard output.

// Its output is its purpose.
#![allow(clippy::print_stdout)]

mod machine;
mod probes;
mod tests;

use anyhow::{Context, Result};
use memtrace_collect::bpf::reduced_btf;
use memtrace_tests::need::NEEDS;
use memtrace_tests::program;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

/// Where what is said goes.
struct Line(Box<dyn Write>);

impl Line {
    fn say(&mut self, value: &Value) -> Result<()> {
        writeln!(self.0, "{value}").context("failed to say what happened")?;
        self.0.flush().context("failed to say what happened")
    }
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        match machine::set_up() {
            Ok(serial) => report(&mut Line(Box::new(serial))),
            // The console is all there is to tell it.
            Err(error) => println!("memtrace-guest: {error:#}"),
        }
        machine::switch_off()
    }
    report(&mut Line(Box::new(std::io::stdout())));
    ExitCode::SUCCESS
}

/// Says everything; what fails is said too. Who reads it judges: the last line is there
/// only when everything was said.
fn report(line: &mut Line) {
    if let Err(error) = report_all(line) {
        let _ = line.say(&json!({"failure": format!("{error:#}")}));
    }
}

fn report_all(line: &mut Line) -> Result<()> {
    let plan = tests::plan()?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    line.say(&json!({"kernel": release.trim()}))?;
    let mut missing = Vec::new();
    for need in NEEDS {
        let reason = need.check().err();
        line.say(&json!({"need": need.word, "doc": need.doc, "missing": reason}))?;
        missing.extend(reason.map(|reason| (need.word, reason)));
    }
    line.say(&json!({"doctor": doctor(plan.measures)?}))?;
    match probes::look() {
        Ok(probes) => {
            line.say(&json!({"probes": probes.attached, "missing": probes.missing}))?;
        }
        Err(error) => line.say(&json!({"no_probes": format!("{error:#}")}))?,
    }
    if let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") {
        let part = reduced_btf(&btf)?.context("the kernel's BTF refers to what it lacks")?;
        let digits: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
        line.say(&json!({"btf": digits}))?;
    }
    for test in &plan.tests {
        line.say(&test.outcome(&missing))?;
    }
    line.say(&json!({"end": plan.tests.len()}))
}

fn doctor(measures: bool) -> Result<Value> {
    let output = Command::new(program::memtrace()?)
        .args(["doctor", "--json"])
        .args(measures.then_some("--measure"))
        .stdin(Stdio::null())
        .output()
        .context("failed to run memtrace doctor")?;
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("memtrace doctor ended with {}: {said}", output.status))
}
