//! Resident memory by stack as files of flame graphs and profilers.

use super::frame::StackFrame;
use super::pprof;
use super::resident::Resident;
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

/// Writes resident memory by stack. Answers how many stacks there are.
///
/// # Errors
/// When the recording can't be read. What it answers within is how writing went.
pub fn export_stacks<S: RowSource>(
    source: &S,
    file: StackFile,
    to: &mut impl io::Write,
) -> Result<io::Result<usize>, S::Error> {
    let resident = Resident::read(source)?;
    let count = resident.processes.iter().map(|one| one.rows.len()).sum();
    let written = match file {
        StackFile::Folded => folded(&resident, to),
        StackFile::Speedscope => speedscope(&resident, to),
        StackFile::Pprof => pprof::write(&resident, to),
    };
    Ok(written.map(|()| count))
}

fn folded(resident: &Resident, to: &mut impl io::Write) -> io::Result<()> {
    for process in &resident.processes {
        for row in &process.rows {
            write!(to, "{}", plain(&process.name))?;
            let frames = resident.frames(row.stack_id);
            for frame in frames.iter().rev() {
                write!(to, ";{}", plain(&frame.in_words()))?;
            }
            if frames.is_empty() {
                write!(to, ";unknown")?;
            }
            writeln!(to, " {}", row.resident_bytes.0)?;
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
        *places.entry(frame.key()).or_insert_with(|| {
            frames.push(Frame {
                name: frame.in_words(),
                file: frame.row.file.clone(),
                line: frame.row.line,
            });
            frames.len() - 1
        })
    };
    let mut profiles = Vec::new();
    for process in &resident.processes {
        let weights: Vec<i64> = process
            .rows
            .iter()
            .map(|row| row.resident_bytes.0)
            .collect();
        let rows = process.rows.iter();
        let samples = rows.map(|row| {
            let frames = resident.frames(row.stack_id);
            frames.iter().rev().map(&mut place).collect()
        });
        profiles.push(Profile {
            kind: "sampled",
            name: &process.name,
            unit: "bytes",
            start_value: 0,
            end_value: weights.iter().sum(),
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
