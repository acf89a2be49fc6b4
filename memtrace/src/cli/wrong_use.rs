//! What is written where a command line is wrong: what the person may have meant.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What people write who know other tools, by the command, and what it is here.
const SLIPS: &[(&str, &[&str], &str)] = &[
    ("report", &["--json"], "-f json"),
    ("report", &["--csv"], "-f csv"),
    ("report", &["--md", "--markdown"], "-f md"),
    (
        "report",
        &["--html", "--page"],
        "-f html -o report.html, or --open",
    ),
    ("report", &["--oom", "--kills"], "--section oom-kills"),
    ("report", &["--last-kill"], "--at oom-kill"),
    (
        "report",
        &["--growth", "--leaks", "--leak"],
        "--section growth",
    ),
    ("report", &["--pid", "-p"], "--process PID"),
    (
        "report",
        &["--last", "--newest"],
        "nothing: the newest recording here is the default",
    ),
    (
        "report",
        &["--flamegraph", "--stacks"],
        "--section allocations, or memtrace export --to folded",
    ),
    (
        "record",
        &["-n", "-t", "--time", "--timeout", "--seconds"],
        "-d TIME",
    ),
    (
        "record",
        &["--freq", "-F", "--rate", "--period"],
        "--interval TIME",
    ),
    (
        "record",
        &["--native", "-g", "--call-graph", "--callgraph"],
        "--stacks",
    ),
    (
        "record",
        &["--json", "--csv"],
        "memtrace report -f json or memtrace export afterwards",
    ),
    ("record", &["--name", "--pattern"], "--match REGEX"),
    ("top", &["--keep"], "--save"),
    (
        "top",
        &["--json", "-b", "--batch", "--once"],
        "memtrace report -f json, or memtrace export --to prometheus --every 15s",
    ),
];

/// Adds to an error of the command line what the person may have meant.
pub(super) fn advise(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let usage = usage.unwrap_or_default();
    let is_of = |command: &str| usage.contains(&format!("memtrace {command} "));
    let slip = SLIPS
        .iter()
        .find(|(command, words, _)| is_of(command) && words.contains(&word.as_str()));
    let tip = match slip {
        Some((_, _, here)) => format!("instead of {word}, write {here}"),
        None if word.starts_with('-') => return error,
        // A command without `--` before it is the commonest slip.
        None if is_of("record") => format!("to record a command, put '--' before it: '-- {word}'"),
        None if is_of("report") => "to compare two recordings: memtrace diff A B".to_owned(),
        None => return error,
    };
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
    // Its default advice is to pass the word on as a value.
    error.remove(ContextKind::SuggestedArg);
    error
}
