//! What a kernel's run amounts to: the guest's report, held against the list of tests.

use super::machine::Said;
use super::programs::Test;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// One line of the guest's report.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Kernel {
        kernel: String,
    },
    Need {
        need: String,
        missing: Option<String>,
    },
    Doctor {
        doctor: Doctor,
    },
    Probes {
        probes: Vec<Probe>,
        missing: Vec<String>,
    },
    NoProbes {
        no_probes: String,
    },
    Btf {
        btf: String,
    },
    Outcome(Outcome),
    End {
        end: usize,
    },
    Failure {
        failure: String,
    },
}

#[derive(Deserialize)]
struct Doctor {
    checks: Vec<Check>,
    plan: Plan,
    probe_costs: Option<Vec<WayCosts>>,
}

/// What a way to see mmap and brk costs, where it can be had.
#[derive(Deserialize)]
struct WayCosts {
    way: String,
    traced_mmap: Option<Slowdown>,
    traced_brk: Option<Slowdown>,
    untraced_mmap: Option<Slowdown>,
    other_call: Option<Slowdown>,
}

#[derive(Deserialize)]
struct Slowdown {
    ratio: f64,
}

#[derive(Deserialize)]
struct Check {
    check: String,
    verdict: String,
    reason: String,
}

#[derive(Deserialize)]
struct Plan {
    backend: String,
}

/// An attached program: its name, by which way, and at which place where the kernel tells.
#[derive(Deserialize)]
struct Probe {
    program: String,
    way: String,
    place: Option<String>,
}

#[derive(Deserialize)]
struct Outcome {
    test: String,
    binary: String,
    outcome: Ending,
    ms: Option<u64>,
    output: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Ending {
    Passed,
    /// It failed, and passed when it was run once more.
    Flaky,
    Failed,
    Skipped,
}

/// So many tests may fail once: more are no accident.
const FLAKY_MAX: usize = 2;

/// A kernel's run.
pub(super) struct Verdict {
    lines: Vec<Line>,
    /// What keeps the run from being good beside failed tests.
    failures: Vec<String>,
}

impl Verdict {
    /// Reads the report. A test of the list that it does not speak of makes the run bad.
    pub(super) fn read(said: &Said, tests: &[Test]) -> Result<Self> {
        let mut lines = Vec::new();
        for line in said.report.lines().filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(line) => lines.push(line),
                // Switched off in the middle of a line.
                Err(_) if said.failure.is_some() => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("failed to parse {line:?}"));
                }
            }
        }
        let mut verdict = Self {
            lines,
            failures: said.failure.clone().into_iter().collect(),
        };
        let is_complete = (verdict.lines.iter())
            .any(|line| matches!(line, Line::End { end } if *end == tests.len()));
        if !is_complete {
            verdict.failures.push("the report has no end".to_owned());
        }
        for line in &verdict.lines {
            match line {
                Line::Failure { failure } => verdict.failures.push(failure.clone()),
                Line::NoProbes { no_probes } => {
                    verdict
                        .failures
                        .push(format!("no list of probes: {no_probes}"));
                }
                _ => {}
            }
        }
        let unreported = tests.iter().filter(|test| !verdict.tells_of(test));
        let unreported: Vec<String> = unreported.map(ToString::to_string).collect();
        if !unreported.is_empty() {
            verdict
                .failures
                .push(format!("no result of {}", unreported.join(", ")));
        }
        Ok(verdict)
    }

    fn tells_of(&self, test: &Test) -> bool {
        self.outcomes()
            .any(|outcome| outcome.shown() == test.to_string())
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.lines.iter().filter_map(|line| match line {
            Line::Outcome(outcome) => Some(outcome),
            _ => None,
        })
    }

    fn count(&self, ending: Ending) -> usize {
        self.outcomes()
            .filter(|outcome| outcome.outcome == ending)
            .count()
    }

    /// Whether every test of the list was reported, none failed, few did once, and some passed.
    pub(super) fn is_good(&self) -> bool {
        self.failures.is_empty()
            && self.count(Ending::Failed) == 0
            && self.count(Ending::Flaky) <= FLAKY_MAX
            && self.count(Ending::Passed) + self.count(Ending::Flaky) > 0
    }

    /// Writes the part of the kernel's BTF that memtrace looks at, as DIR/SERIES.btf.
    pub(super) fn keep_btf(&self, dir: &Path) -> Result<()> {
        let mut series = None;
        let mut part = None;
        for line in &self.lines {
            match line {
                Line::Kernel { kernel } => {
                    let numbers: Vec<&str> = kernel.splitn(3, '.').take(2).collect();
                    series = Some(numbers.join("."));
                }
                Line::Btf { btf } => part = Some(bytes(btf)?),
                _ => {}
            }
        }
        let series = series.context("the report names no kernel")?;
        let part = part.context("the report has no BTF")?;
        let file = dir.join(format!("{series}.btf"));
        std::fs::write(&file, &part)
            .with_context(|| format!("failed to write {}", file.display()))?;
        println!("  {} has {} bytes", file.display(), part.len());
        Ok(())
    }

    /// What stands at the end of everything: a line of numbers and, since a long log is often
    /// kept by its last lines alone, all that failed, if only once, with what it said.
    pub(super) fn summary(&self, name: &str, took: Duration) -> String {
        let mut summary = format!(
            "{} {name}: {} passed, {} flaky, {} failed, {} skipped, {:.1} minutes",
            if self.is_good() { "ok    " } else { "FAILED" },
            self.count(Ending::Passed),
            self.count(Ending::Flaky),
            self.count(Ending::Failed),
            self.count(Ending::Skipped),
            took.as_secs_f64() / 60.0,
        );
        for failure in &self.failures {
            summary.push_str(&format!("\n  failure: {failure}"));
        }
        let is_failure = |one: &&Outcome| matches!(one.outcome, Ending::Flaky | Ending::Failed);
        for failed in self.outcomes().filter(is_failure) {
            summary.push_str(&format!("\n{}", failed.to_string().trim_end()));
        }
        summary
    }
}

/// Bytes given in hexadecimal.
fn bytes(digits: &str) -> Result<Vec<u8>> {
    let pair = |at: usize| {
        let pair = digits.get(at..at + 2).context("half a byte")?;
        u8::from_str_radix(pair, 16).context("no hexadecimal digits")
    };
    (0..digits.len()).step_by(2).map(pair).collect()
}

impl Outcome {
    fn shown(&self) -> String {
        format!("{} {}", self.binary, self.test)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.ms.map_or(0.0, |ms| ms as f64 / 1e3);
        let ending = match self.outcome {
            Ending::Passed => "passed",
            Ending::Flaky => "flaky",
            Ending::Failed => "FAILED",
            Ending::Skipped => "skipped",
        };
        writeln!(f, "  {ending:7} {seconds:6.1} s  {}", self.shown())?;
        for line in self.output.lines() {
            writeln!(f, "          {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            line.fmt(f)?;
        }
        self.failures
            .iter()
            .try_for_each(|failed| writeln!(f, "  failure: {failed}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { kernel } => writeln!(f, "  Linux {kernel}"),
            Self::Need { need, missing } => match missing {
                Some(reason) => writeln!(f, "  need {need} is not met: {reason}"),
                None => writeln!(f, "  need {need} is met"),
            },
            Self::Doctor { doctor } => {
                writeln!(f, "  doctor: the {} backend", doctor.plan.backend)?;
                let reported = doctor.checks.iter().filter(|check| check.verdict != "pass");
                for check in reported {
                    writeln!(f, "    {} {}: {}", check.verdict, check.check, check.reason)?;
                }
                for costs in doctor.probe_costs.iter().flatten() {
                    let parts = [
                        ("mmap", &costs.traced_mmap),
                        ("brk", &costs.traced_brk),
                        ("mmap of others", &costs.untraced_mmap),
                        ("other calls", &costs.other_call),
                    ];
                    let reported = parts.map(|(what, cost)| match cost {
                        Some(cost) => format!("{what} {:.2}x", cost.ratio),
                        None => format!("{what} unknown"),
                    });
                    writeln!(f, "    costs by {}: {}", costs.way, reported.join(", "))?;
                }
                Ok(())
            }
            Self::Probes { probes, missing } => {
                let mut by_way: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for probe in probes {
                    let place = probe.place.as_deref().unwrap_or(&probe.program);
                    by_way.entry(&probe.way).or_default().push(place);
                }
                for (way, places) in by_way {
                    writeln!(f, "  attached by {way}: {}", places.join(", "))?;
                }
                missing
                    .iter()
                    .try_for_each(|what| writeln!(f, "  missing: {what}"))
            }
            Self::Outcome(outcome) => outcome.fmt(f),
            // Reported among the failures, or nothing to tell.
            Self::NoProbes { .. } | Self::Failure { .. } | Self::Btf { .. } | Self::End { .. } => {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const KERNEL: &str = r#"{"kernel":"6.1.0-56-cloud-amd64"}"#;
    const PASSED: &str = r#"{"binary":"kernel","test":"a","outcome":"passed","ms":5,"output":""}"#;
    const FAILED: &str = r#"{"binary":"kernel","test":"b","outcome":"failed","ms":5,"output":"x"}"#;
    const SKIPPED: &str =
        r#"{"binary":"kernel","test":"b","outcome":"skipped","ms":null,"output":"needs gpu"}"#;

    fn tests(names: &[&str]) -> Vec<Test> {
        let test = |name: &&str| Test {
            binary: PathBuf::from("deps/kernel"),
            name: (*name).to_owned(),
            is_ignored: false,
        };
        names.iter().map(test).collect()
    }

    fn verdict(lines: &[&str], names: &[&str], failed: Option<&str>) -> Verdict {
        let said = Said {
            report: lines.join("\n"),
            failure: failed.map(str::to_owned),
        };
        Verdict::read(&said, &tests(names)).unwrap()
    }

    fn end(count: usize) -> String {
        format!("{{\"end\":{count}}}")
    }

    #[test]
    fn a_run_is_good_when_every_test_is_reported_and_some_passed() {
        let good = verdict(&[KERNEL, PASSED, SKIPPED, &end(2)], &["a", "b"], None);
        assert!(good.is_good(), "{good}");
        assert_eq!(
            good.summary("6.1", Duration::from_secs(90)),
            "ok     6.1: 1 passed, 0 flaky, 0 failed, 1 skipped, 1.5 minutes"
        );
    }

    #[test]
    fn a_failed_test_or_none_that_passed_makes_it_bad() {
        let failed = verdict(&[PASSED, FAILED, &end(2)], &["a", "b"], None);
        assert!(!failed.is_good());
        assert_eq!(
            failed.summary("6.1", Duration::ZERO),
            "FAILED 6.1: 1 passed, 0 flaky, 1 failed, 0 skipped, 0.0 minutes\n  \
             FAILED     0.0 s  kernel b\n          x"
        );
        assert!(!verdict(&[SKIPPED, &end(1)], &["b"], None).is_good());
        assert!(!verdict(&[&end(0)], &[], None).is_good());
    }

    #[test]
    fn a_test_that_passes_when_it_is_run_again_is_named() {
        let flaky = FAILED.replace("failed", "flaky");
        let flaky = verdict(&[PASSED, &flaky, &end(2)], &["a", "b"], None);
        assert!(flaky.is_good());
        assert_eq!(
            flaky.summary("6.1", Duration::ZERO),
            "ok     6.1: 1 passed, 1 flaky, 0 failed, 0 skipped, 0.0 minutes\n  \
             flaky      0.0 s  kernel b\n          x"
        );
    }

    #[test]
    fn a_machine_that_stopped_in_between_makes_it_bad_whatever_it_said() {
        assert!(!verdict(&[PASSED], &["a"], None).is_good());
        assert!(!verdict(&[PASSED, &end(2)], &["a", "b"], None).is_good());
        let hung = "it was not over after 10 minutes";
        let cut = verdict(&[PASSED, "{\"binary\":\"ker"], &["a", "b"], Some(hung));
        assert!(!cut.is_good());
        assert!(cut.to_string().contains(hung), "{cut}");
        assert!(cut.to_string().contains("no result of kernel b"), "{cut}");
    }

    #[test]
    fn what_the_guest_could_not_do_makes_it_bad() {
        let lines = [PASSED, r#"{"no_probes":"refused"}"#, &end(1)];
        assert!(!verdict(&lines, &["a"], None).is_good());
        let lines = [PASSED, r#"{"failure":"no plan"}"#, &end(1)];
        assert!(!verdict(&lines, &["a"], None).is_good());
    }
}
