//! `memtrace doctor`: says what this host lets memtrace see, and what would let it see more.

use super::output::{has_color, print};
use super::probe_costs::{Costs, WayCosts};
use crate::session::{probe_costs, survey_gpus};
use anyhow::Context;
use memtrace_host::doctor::{Diagnosis, Verdict, diagnose};
use memtrace_host::{HostFacts, Plan, ProbeChoice};
use serde::Serialize;
use std::fmt::{self, Write};
use std::process::ExitCode;

/// What `memtrace doctor` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memtrace doctor --json > doctor.json

Exit status: 0 when a recording is possible, 1 when a check fails, 2 on a usage error.")]
pub(super) struct Args {
    /// Write JSON: every check, the facts behind them, and the plan of a recording
    #[arg(long)]
    json: bool,
    /// Measure what seeing mmap and brk costs on this machine, by every way that it has:
    /// attaches the probes for a second each
    #[arg(long)]
    measure: bool,
}

/// Writes the diagnosis. The exit code is 1 when some check fails, 0 otherwise.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut facts = HostFacts::read();
    facts.try_kernel();
    let plan =
        Plan::from_facts(&facts, None, ProbeChoice::Auto).context("failed to plan a recording")?;
    // First: what it measures needs a process without other threads.
    let costs = args.measure.then(|| Costs::of(probe_costs(&facts, &plan)));
    survey_gpus(&mut facts);
    let found = diagnose(&facts);
    let text = if args.json {
        let document = Document {
            version: env!("CARGO_PKG_VERSION"),
            verdict: worst(&found),
            checks: &found,
            plan: &plan,
            probe_costs: costs.as_ref().map(|costs| costs.0.as_slice()),
            facts: &facts,
        };
        let json = serde_json::to_string_pretty(&document);
        json.context("failed to write the diagnosis as JSON")? + "\n"
    } else {
        let mut text = String::new();
        write_text(&mut text, &facts, &found, &plan, has_color())
            .context("failed to write the diagnosis")?;
        if let Some(costs) = &costs {
            write!(text, "\n{costs}").context("failed to write the diagnosis")?;
        }
        text
    };
    print(&text)?;
    Ok(match worst(&found) {
        Verdict::Fail => ExitCode::FAILURE,
        Verdict::Pass | Verdict::Warn => ExitCode::SUCCESS,
    })
}

/// What `--json` writes.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    verdict: Verdict,
    checks: &'a [Diagnosis],
    plan: &'a Plan,
    /// Null without `--measure`.
    probe_costs: Option<&'a [WayCosts]>,
    facts: &'a HostFacts,
}

fn worst(found: &[Diagnosis]) -> Verdict {
    let verdicts = found.iter().map(|diagnosis| diagnosis.finding.verdict);
    verdicts.max().unwrap_or(Verdict::Pass)
}

fn count(found: &[Diagnosis], verdict: Verdict) -> usize {
    found
        .iter()
        .filter(|diagnosis| diagnosis.finding.verdict == verdict)
        .count()
}

fn write_text(
    out: &mut impl Write,
    facts: &HostFacts,
    found: &[Diagnosis],
    plan: &Plan,
    has_color: bool,
) -> fmt::Result {
    write_host(out, facts)?;
    writeln!(out)?;
    let names = found.iter().map(|diagnosis| diagnosis.check.len());
    let width = names.max().unwrap_or(0);
    let mut reported = Vec::new();
    for diagnosis in found {
        write_check(out, diagnosis, width, has_color, &mut reported)?;
    }
    let (warnings, failures) = (count(found, Verdict::Warn), count(found, Verdict::Fail));
    writeln!(
        out,
        "\n{} checks: {} passed, {warnings} {}, {failures} failed",
        found.len(),
        count(found, Verdict::Pass),
        if warnings == 1 { "warning" } else { "warnings" },
    )?;
    writeln!(
        out,
        "`memtrace record` takes the {} backend: {}",
        plan.backend,
        plan.reason(facts)
    )
}

fn write_host(out: &mut impl Write, facts: &HostFacts) -> fmt::Result {
    write!(out, "memtrace {}", env!("CARGO_PKG_VERSION"))?;
    if !facts.hostname.is_empty() {
        write!(out, " on {}", facts.hostname)?;
    }
    if let Some(cpus) = facts.online_cpu_count {
        write!(out, ", {cpus} CPU{}", if cpus == 1 { "" } else { "s" })?;
    }
    if let Some(total) = facts.mem_total_bytes {
        let gib = total.0 as f64 / f64::from(1 << 30);
        write!(out, ", {gib:.1} GiB of memory")?;
    }
    writeln!(out)
}

/// One line for what passed; what did not also says what it is for and what to do, the
/// latter once where it is the same for several.
fn write_check<'a>(
    out: &mut impl Write,
    diagnosis: &'a Diagnosis,
    width: usize,
    has_color: bool,
    reported: &mut Vec<&'a str>,
) -> fmt::Result {
    let finding = &diagnosis.finding;
    let (word, color) = match finding.verdict {
        Verdict::Pass => ("PASS", "32"),
        Verdict::Warn => ("WARN", "33"),
        Verdict::Fail => ("FAIL", "1;31"),
    };
    let name = diagnosis.check;
    if has_color {
        write!(out, "\x1b[{color}m{word}\x1b[0m")?;
    } else {
        write!(out, "{word}")?;
    }
    writeln!(out, "  {name:width$}  {}", finding.reason)?;
    if finding.verdict == Verdict::Pass {
        return Ok(());
    }
    let indent = " ".repeat("PASS".len() + 2 + width + 2);
    writeln!(out, "{indent}for: {}", diagnosis.purpose)?;
    match &finding.remedy {
        Some(remedy) if reported.contains(&remedy.as_str()) => {
            writeln!(out, "{indent}try: the same as above")
        }
        Some(remedy) => {
            reported.push(remedy);
            writeln!(out, "{indent}try: {remedy}")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::Bytes;

    #[test]
    fn a_warning_is_reported_with_what_it_is_for_and_what_to_do() {
        let mut facts = HostFacts::unknown();
        facts.os = "linux".to_owned();
        facts.hostname = "node7".to_owned();
        facts.online_cpu_count = Some(2);
        facts.mem_total_bytes = Some(Bytes(3 << 29));
        let found = diagnose(&facts);
        let plan = Plan::from_facts(&facts, None, ProbeChoice::Auto).unwrap();
        let mut text = String::new();
        write_text(&mut text, &facts, &found, &plan, false).unwrap();
        assert!(text.starts_with("memtrace "), "{text}");
        assert!(
            text.contains(" on node7, 2 CPUs, 1.5 GiB of memory\n"),
            "{text}"
        );
        assert!(
            text.contains("WARN  kernel types (BTF)     /sys/kernel/btf/vmlinux can't be found\n"),
            "{text}"
        );
        assert!(text.contains("try: boot a kernel built with CONFIG_DEBUG_INFO_BTF=y\n"));
        assert!(text.contains("FAIL  proc"), "{text}");
        assert!(text.contains("1 failed"), "{text}");
    }
}
