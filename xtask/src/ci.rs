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
    let mut outcomes = Vec::new();
    let of_turn = |turn| chosen.iter().copied().filter(move |step| step.turn == turn);
    outcomes.extend(of_turn(Turn::First).map(|step| ci.step(step, None)));
    // What waits for programs that it started, beside what compiles: two CPUs have room for both.
    let waiting: Vec<_> = of_turn(Turn::Waits).collect();
    let dir = sh::target_dir();
    std::fs::create_dir_all(&dir)?;
    let log = dir.join("ci-waits.log");
    let said = File::create(&log).with_context(|| format!("failed to write {}", log.display()))?;
    let mut beside = ci.clone();
    let (waited, compiled) = std::thread::scope(|scope| {
        let waited = scope.spawn(move || {
            let run = |step| beside.step(step, Some(&said));
            waiting.into_iter().map(run).collect::<Vec<_>>()
        });
        let compiled: Vec<_> = of_turn(Turn::Compiles)
            .map(|step| ci.step(step, None))
            .collect();
        (waited.join(), compiled)
    });
    io::copy(&mut File::open(&log)?, &mut io::stdout())?;
    outcomes.extend(compiled);
    match waited {
        Ok(waited) => outcomes.extend(waited),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    outcomes.extend(of_turn(Turn::Last).map(|step| ci.step(step, None)));
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
    fn step(&mut self, step: &'static Step, said: Option<&File>) -> Outcome {
        let start = Instant::now();
        let verdict = self.verdict(step, said);
        Outcome {
            step,
            verdict: verdict.unwrap_or_else(|error| Verdict::Failed(format!("{error:#}"))),
            took: start.elapsed(),
        }
    }

    fn verdict(&mut self, step: &'static Step, mut said: Option<&File>) -> Result<Verdict> {
        let before = self.run_of(step)?;
        let is_unchanged = before.as_ref().is_some_and(|run| self.passed.has(run));
        if is_unchanged && !self.runs_all {
            return Ok(Verdict::Unchanged);
        }
        let heading = format!("==> {}: {}", step.name, step.words.join(" "));
        match &mut said {
            Some(file) => writeln!(file, "{heading}")?,
            None => println!("{heading}"),
        }
        sh::run(&mut step_command(step, said)?)?;
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

fn step_command(step: &Step, said: Option<&File>) -> Result<Command> {
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
    if let Some(file) = said {
        command.stdout(file.try_clone()?).stderr(file.try_clone()?);
    }
    Ok(command)
}

/// The table of all, and an error where one failed.
fn conclude(outcomes: &[Outcome]) -> Result<()> {
    println!();
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
