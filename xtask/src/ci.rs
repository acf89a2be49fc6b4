//! `cargo xtask ci`: what must hold before a change lands, as steps of one table.
//!
//! A step that reads what it read when it last passed is not run again: `steps` names what each
//! reads, `inputs` hashes it, and `passed` keeps the hashes in `.ci/passed.toml`, which is committed
//! with the change that it is of.

mod inputs;
mod passed;
mod steps;

use crate::{python, sh};
use anyhow::{Context, Result, bail};
use inputs::Files;
use passed::{Passed, Run};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use steps::{Input, STEPS, Step, Turn};

/// Options of `cargo xtask ci`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these steps, whether what they read has changed or not.
    #[arg(value_name = "STEP")]
    steps: Vec<String>,
    /// Every step, whether what it reads has changed or not.
    #[arg(long, conflicts_with = "steps")]
    all: bool,
    /// Name the steps, say which are due, and stop.
    #[arg(long)]
    list: bool,
}

/// How a step ended.
struct Outcome {
    step: &'static Step,
    verdict: Verdict,
    took: Duration,
}

impl Outcome {
    /// What the step wrote; nothing where it did not come so far.
    fn said(&self) -> String {
        let said = std::fs::read(log_of(self.step)).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// How many lines of a failed step are repeated at the end: other steps wrote after it.
const LAST_LINES: usize = 60;

enum Verdict {
    Passed,
    Failed(String),
    /// It passed before, and what it reads is the same.
    Unchanged,
}

/// Runs the steps that are due, and says of each how it ended.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = chosen(args)?;
    let mut ci = Ci {
        passed: Passed::read()?,
        here: passed::here()?,
        runs_all: args.all || !args.steps.is_empty(),
    };
    if args.list {
        return ci.list(&chosen);
    }
    // What earlier runs wrote.
    let _ = std::fs::remove_dir_all(logs());
    std::fs::create_dir_all(logs())?;
    let mut outcomes = Vec::new();
    let of_turn = |turn| chosen.iter().copied().filter(move |step| step.turn == turn);
    outcomes.extend(of_turn(Turn::First).map(|step| ci.step(step, true)));
    // What waits for programs that it started, beside what compiles: two CPUs have room for both.
    let waiting: Vec<_> = of_turn(Turn::Waits).collect();
    let mut beside = ci.clone();
    let (waited, compiled) = std::thread::scope(|scope| {
        let waited = scope.spawn(move || {
            let run = |step| beside.step(step, false);
            waiting.into_iter().map(run).collect::<Vec<_>>()
        });
        let compiled: Vec<_> = of_turn(Turn::Compiles)
            .map(|step| ci.step(step, true))
            .collect();
        (waited.join(), compiled)
    });
    outcomes.extend(compiled);
    let waited = waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    for outcome in &waited {
        io::stdout().write_all(outcome.said().as_bytes())?;
    }
    outcomes.extend(waited);
    outcomes.extend(of_turn(Turn::Last).map(|step| ci.step(step, true)));
    conclude(&outcomes)
}

fn chosen(args: &Args) -> Result<Vec<&'static Step>> {
    if args.steps.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    let named = |name: &String| {
        let step = STEPS.iter().find(|step| step.name == name);
        let known = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>();
        step.with_context(|| format!("there is no step {name}; they are {}", known().join(", ")))
    };
    args.steps.iter().map(named).collect()
}

#[derive(Clone)]
struct Ci {
    passed: Passed,
    /// The toolchain and the kernel of this machine.
    here: [String; 2],
    runs_all: bool,
}

impl Ci {
    /// Runs a step where it is due. Whatever goes wrong is how this step ended, and the others go on.
    fn step(&mut self, step: &'static Step, is_shown: bool) -> Outcome {
        let start = Instant::now();
        let verdict = self.verdict(step, is_shown);
        Outcome {
            step,
            verdict: verdict.unwrap_or_else(|error| Verdict::Failed(format!("{error:#}"))),
            took: start.elapsed(),
        }
    }

    fn verdict(&mut self, step: &'static Step, is_shown: bool) -> Result<Verdict> {
        let before = self.run_of(step)?;
        let is_unchanged = before.as_ref().is_some_and(|run| self.passed.has(run));
        if is_unchanged && !self.runs_all {
            return Ok(Verdict::Unchanged);
        }
        let mut log = File::create(log_of(step))?;
        writeln!(log, "==> {}: {}", step.name, step.words.join(" "))?;
        let mut command = step_command(step);
        command.stdout(log.try_clone()?).stderr(log);
        if is_shown {
            sh::run_shown(&mut command, &log_of(step))?;
        } else {
            sh::run(&mut command)?;
        }
        // Of files that were edited meanwhile nobody knows which of them passed.
        if let Some(run) = before
            && self.run_of(step)?.as_ref() == Some(&run)
        {
            self.passed.keep(run)?;
        }
        Ok(Verdict::Passed)
    }

    /// A run of the step on what it reads now; `None` where it runs for every change.
    fn run_of(&self, step: &Step) -> Result<Option<Run>> {
        let Some(inputs) = step.inputs() else {
            return Ok(None);
        };
        if inputs.iter().any(|input| matches!(input, Input::Golden(_))) {
            golden()?;
        }
        let [toolchain, kernel] = self.here.clone();
        Ok(Some(Run {
            step: step.name.to_owned(),
            inputs: inputs::hash(&inputs, &Files::of_checkout()?)?,
            toolchain,
            kernel,
        }))
    }

    fn list(&self, chosen: &[&'static Step]) -> Result<()> {
        for step in chosen {
            let state = match self.run_of(step)? {
                None => "runs for every change",
                Some(run) if self.passed.has(&run) => "unchanged since it passed",
                Some(_) => "due",
            };
            println!("{:12} {state:26} cargo {}", step.name, step.words.join(" "));
        }
        Ok(())
    }
}

/// Has the golden recordings made, once: what makes them does not change while steps run.
fn golden() -> Result<()> {
    static WRITTEN: OnceLock<Result<(), String>> = OnceLock::new();
    let write = || python::write_golden(&python::golden_dir());
    let written = WRITTEN.get_or_init(|| write().map_err(|error| format!("{error:#}")));
    written.clone().map_err(anyhow::Error::msg)
}

/// Where steps write; a file of each.
fn logs() -> PathBuf {
    sh::target_dir().join("ci")
}

fn log_of(step: &Step) -> PathBuf {
    logs().join(format!("{}.log", step.name))
}

fn step_command(step: &Step) -> Command {
    let mut command = match step.words {
        ["xtask", words @ ..] => {
            // This very program, also where a step has built another one in its place.
            let mut xtask = Command::new("/proc/self/exe");
            xtask.args(words);
            xtask
        }
        words => {
            let mut cargo = sh::cargo();
            cargo.args(words);
            cargo
        }
    };
    command.current_dir(sh::root()).stdin(Stdio::null());
    command
}

/// What failed steps wrote last, the table of all, and an error where one failed.
fn conclude(outcomes: &[Outcome]) -> Result<()> {
    println!();
    for outcome in outcomes {
        if matches!(outcome.verdict, Verdict::Failed(_)) {
            let said = outcome.said();
            let lines: Vec<&str> = said.lines().collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            println!(
                "==> the end of {}:\n{}\n",
                outcome.step.name,
                last.join("\n")
            );
        }
    }
    let mut failed = Vec::new();
    let mut unchanged = 0;
    for outcome in outcomes {
        let (word, more) = match &outcome.verdict {
            Verdict::Passed => ("ok", String::new()),
            Verdict::Unchanged => {
                unchanged += 1;
                ("same", " (reads what it read when it passed)".to_owned())
            }
            Verdict::Failed(error) => {
                failed.push(outcome.step.name);
                ("FAILED", format!(": {error}"))
            }
        };
        let name = outcome.step.name;
        println!("{word:8} {:4} s  {name}{more}", outcome.took.as_secs());
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(" "));
    }
    let ran = outcomes.len() - unchanged;
    println!("{ran} steps passed, {unchanged} have nothing new to check");
    Ok(())
}
