//! Resident memory by stack as files of flame graphs and profilers.

use super::frame::StackFrame;
use super::pprof;
use super::resident::{Resident, RssThen};
use memtrace_model::RowSource;
use serde::Serialize;
use std::collections::HashMap;
use std::io;

/// A file of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFile {
    /// Folded text: a line for each process and stack, its frames from the outermost on with semicolons
    /// between, and bytes.
    Folded,
    /// JSON of speedscope, a profile for each process.
    Speedscope,
    /// A profile of pprof, deflated, with one value for each sample (`inuse_space`).
    Pprof,
}

/// Writes resident memory by stack, at an instant or at the end. Answers how many stacks there are.
///
/// # Errors
/// When the recording can't be read. What it answers within is how writing went.
pub fn export_stacks<S: RowSource>(
    source: &S,
    file: StackFile,
    at: Option<&RssThen>,
    to: &mut impl io::Write,
) -> Result<io::Result<usize>, S::Error> {
    let resident = Resident::read(source, at)?;
    let count = resident.processes.iter().map(|one| one.stacks.len()).sum();
    let written = match file {
        StackFile::Folded => folded(&resident, to),
        StackFile::Speedscope => speedscope(&resident, to),
        StackFile::Pprof => pprof::write(&resident, to),
    };
    Ok(written.map(|()| count))
}

fn folded(resident: &Resident, to: &mut impl io::Write) -> io::Result<()> {
    for process in &resident.processes {
        for (stack_id, bytes) in &process.stacks {
            write!(to, "{}", plain(&process.name))?;
            let frames = resident.frames(*stack_id);
            for frame in frames.iter().rev() {
                write!(to, ";{}", plain(&frame.in_words()))?;
            }
            if frames.is_empty() {
                write!(to, ";unknown")?;
            }
            writeln!(to, " {}", bytes.0)?;
        }
    }
    Ok(())
}

/// Without what has a meaning in folded text, or in a terminal.
fn plain(name: &str) -> String {
    let replaced = |one: char| match one {
        ';' => ':',
        one if one.is_control() => '?',
        one => one,
    };
    name.chars().map(replaced).collect()
}

/// The object of speedscope.app/file-format-schema.json.
#[derive(Serialize)]
struct Speedscope<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    shared: Shared,
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: i64,
    end_value: i64,
    /// Places of frames, the outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<i64>,
}

fn speedscope(resident: &Resident, to: &mut impl io::Write) -> io::Result<()> {
    let mut frames = Vec::new();
    let mut places: HashMap<StackFrame, usize> = HashMap::new();
    let mut place = |frame: &StackFrame| {
        *places.entry(frame.shown()).or_insert_with(|| {
            frames.push(Frame {
                name: frame.in_words(),
                file: frame.source.clone().or_else(|| frame.row.file.clone()),
                line: frame.row.line,
            });
            frames.len() - 1
        })
    };
    let mut profiles = Vec::new();
    for process in &resident.processes {
        let stacks = process.stacks.iter();
        let weights: Vec<i64> = stacks.clone().map(|(_, bytes)| bytes.0).collect();
        let samples = stacks.map(|(stack_id, _)| {
            let frames = resident.frames(*stack_id);
            frames.iter().rev().map(&mut place).collect()
        });
        profiles.push(Profile {
            kind: "sampled",
            name: &process.name,
            unit: "bytes",
            start_value: 0,
            end_value: weights.iter().copied().fold(0, i64::saturating_add),
            samples: samples.collect(),
            weights,
        });
    }
    let object = Speedscope {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("memtrace ", env!("CARGO_PKG_VERSION")).to_owned(),
        shared: Shared { frames },
        profiles,
    };
    Ok(serde_json::to_writer(to, &object)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::flames;
    use memtrace_golden::RUNS;
    use std::io::Read;

    #[test]
    fn every_file_of_stacks_adds_up_to_what_was_resident() {
        let (_, run, ..) = RUNS
            .iter()
            .find(|(name, ..)| *name == "grown_by_lines")
            .unwrap();
        let (_, run, _) = run().recorded();
        let resident = Resident::read(&run, None).unwrap();
        let stacks = resident.processes.iter().flat_map(|one| &one.stacks);
        let all: i64 = stacks.map(|(_, bytes)| bytes.0).sum();
        assert_eq!(all >> 20, 1_720);
        let written = |file| {
            let mut to = Vec::new();
            export_stacks(&run, file, None, &mut to).unwrap().unwrap();
            to
        };
        let folded = String::from_utf8(written(StackFile::Folded)).unwrap();
        let bytes = |line: &str| line.rsplit(' ').next()?.parse::<i64>().ok();
        assert_eq!(folded.lines().filter_map(bytes).sum::<i64>(), all);
        assert!(
            folded.contains(";buffer.py:118 Trainer.update;"),
            "{folded}"
        );
        let speedscope: serde_json::Value =
            serde_json::from_slice(&written(StackFile::Speedscope)).unwrap();
        let profiles = speedscope["profiles"].as_array().unwrap();
        let ends = profiles.iter().filter_map(|one| one["endValue"].as_i64());
        assert_eq!(ends.sum::<i64>(), all);
        let frames = speedscope["shared"]["frames"].as_array().unwrap();
        let mut samples = profiles[0]["samples"].as_array().unwrap().iter();
        let outermost = samples.find_map(|sample| sample[0].as_u64()).unwrap();
        assert_eq!(frames[outermost as usize]["name"], "train.py:40 main");
        let trees = flames(&run, None).unwrap();
        let trees = serde_json::to_value(trees).unwrap();
        let roots = trees.as_array().unwrap().iter();
        assert_eq!(
            roots.filter_map(|root| root["bytes"].as_i64()).sum::<i64>(),
            all
        );
        let mut pprof = Vec::new();
        let file = written(StackFile::Pprof);
        flate2::read::GzDecoder::new(&file[..])
            .read_to_end(&mut pprof)
            .unwrap();
        let has = |text: &str| {
            pprof
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        assert!(has("inuse_space") && has("Trainer.update") && has("libfeed.so"));
    }
}
