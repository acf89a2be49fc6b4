//! What a person writes as the value of an option, and what it means: lengths of time,
//! sizes, shares, names from our lists. Each refusal says how to write it.

use crate::session::ScopeChoice;
use clap::builder::{PossibleValue, TypedValueParser};
use jiff::SignedDuration;
use memtrace_host::{Backend, ProbeChoice, ProbeWay};
use memtrace_model::{Bytes, DurationNs};
use memtrace_top::View;

const HOUR_NS: i64 = 3_600_000_000_000;

/// A backend, or the best one.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackendChoice(pub(super) Option<Backend>);

/// The view of that name.
pub(super) fn parse_view(text: &str) -> Result<View, String> {
    let view = View::ALL.into_iter().find(|view| view.name() == text);
    view.ok_or_else(|| {
        let names = View::ALL.map(View::name);
        format!("there is no such view: use one of {}", names.join(", "))
    })
}

/// The names of the backends, from their list.
#[derive(Clone)]
pub(super) struct BackendParser;

impl TypedValueParser for BackendParser {
    type Value = BackendChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<BackendChoice, clap::Error> {
        let names = ["auto"]
            .into_iter()
            .chain(Backend::ALL.iter().map(|backend| backend.as_str()));
        let name =
            clap::builder::PossibleValuesParser::new(names).parse_ref(command, argument, value)?;
        let named = Backend::ALL
            .into_iter()
            .find(|backend| backend.as_str() == name);
        Ok(BackendChoice(named))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let auto = PossibleValue::new("auto").help("The best that this host allows");
        let named = Backend::ALL
            .into_iter()
            .map(|backend| PossibleValue::new(backend.as_str()).help(backend.summary()));
        Some(Box::new(std::iter::once(auto).chain(named)))
    }
}

/// The names of the ways to see calls on address spaces, from their list.
#[derive(Clone)]
pub(super) struct ProbeParser;

impl TypedValueParser for ProbeParser {
    type Value = ProbeChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<ProbeChoice, clap::Error> {
        let ways = ProbeWay::ALL.iter().map(|way| way.as_str());
        let names = ["auto"].into_iter().chain(ways).chain(["none"]);
        let name =
            clap::builder::PossibleValuesParser::new(names).parse_ref(command, argument, value)?;
        let way = ProbeWay::ALL.into_iter().find(|way| way.as_str() == name);
        Ok(match way {
            Some(way) => ProbeChoice::Way(way),
            None if name == "none" => ProbeChoice::None,
            None => ProbeChoice::Auto,
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let auto = PossibleValue::new("auto").help("fentry, else kprobe, else none");
        let ways = ProbeWay::ALL
            .into_iter()
            .map(|way| PossibleValue::new(way.as_str()).help(way.summary()));
        let none = PossibleValue::new("none").help("These calls are not seen");
        Some(Box::new(std::iter::once(auto).chain(ways).chain([none])))
    }
}

/// The words for whether a command gets a memory cgroup of its own.
#[derive(Clone)]
pub(super) struct ScopeParser;

impl TypedValueParser for ScopeParser {
    type Value = ScopeChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<ScopeChoice, clap::Error> {
        let names = ScopeChoice::ALL.map(ScopeChoice::as_str);
        let name =
            clap::builder::PossibleValuesParser::new(names).parse_ref(command, argument, value)?;
        let named = ScopeChoice::ALL
            .into_iter()
            .find(|one| one.as_str() == name);
        Ok(named.unwrap_or_default())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named = ScopeChoice::ALL
            .into_iter()
            .map(|one| PossibleValue::new(one.as_str()).help(one.summary()));
        Some(Box::new(named))
    }
}

/// Keeps the text; the backends compile it again.
pub(super) fn parse_regex(text: &str) -> Result<String, regex::Error> {
    regex::Regex::new(text).map(|_| text.to_owned())
}

/// A length of time with its unit; a bare number counts as seconds.
pub(super) fn parse_seconds(text: &str) -> Result<DurationNs, String> {
    let seconds = text.parse().ok();
    let span = seconds.and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
    longer_than_nothing(text, span.or_else(|| text.parse().ok()))
}

fn longer_than_nothing(text: &str, span: Option<SignedDuration>) -> Result<DurationNs, String> {
    match span.and_then(|span| i64::try_from(span.as_nanos()).ok()) {
        Some(nanoseconds) if nanoseconds > 0 => Ok(DurationNs(nanoseconds)),
        Some(_) => Err("must be longer than zero".to_owned()),
        None => Err(format!(
            "'{text}' is not a length of time: write it like 100ms, 30s, 5m or 1h30m"
        )),
    }
}

/// Shorter than this, looking costs more than it shows; longer, a reader can't bound what
/// was missed.
pub(super) fn parse_interval(text: &str) -> Result<DurationNs, String> {
    if text.parse::<f64>().is_ok() {
        return Err(format!("it has no unit: write {text}ms or {text}s"));
    }
    let interval = longer_than_nothing(text, text.parse().ok())?;
    if (1_000_000..=60_000_000_000).contains(&interval.0) {
        Ok(interval)
    } else {
        Err("must be between 1ms and 60s".to_owned())
    }
}

/// More often than this, files are many and small; less often, too much is lost with a node.
pub(super) fn parse_rotation(text: &str) -> Result<DurationNs, String> {
    let every = parse_seconds(text)?;
    if (5_000_000_000..=3_600_000_000_000).contains(&every.0) {
        Ok(every)
    } else {
        Err("must be between 5s and 1h".to_owned())
    }
}

/// How old something is, in days or hours.
pub(super) fn parse_age(text: &str) -> Result<DurationNs, String> {
    let (number, hours) = match text.strip_suffix('d') {
        Some(days) => (days, 24),
        None => (text.strip_suffix('h').unwrap_or_default(), 1),
    };
    let number: Option<i64> = number.parse().ok().filter(|&number| number > 0);
    let age = number.and_then(|number| number.checked_mul(hours)?.checked_mul(HOUR_NS));
    age.map(DurationNs)
        .ok_or_else(|| format!("'{text}' is no age: write it like 7d or 36h"))
}

/// A size with a unit, in powers of 1024 whether an i is written or not.
///
/// # Errors
/// When it is none.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        _ => None,
    };
    digits
        .parse::<i64>()
        .ok()
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .map(Bytes)
        .ok_or_else(|| format!("'{text}' is not a size: write it like 64KiB, 1MiB or 2GiB"))
}

/// How many of a list are shown.
pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| {
        "must be a number from 1 up; without the option the default is shown".to_owned()
    })
}

pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if percent > 0.0 && percent <= 100.0 {
        Ok(percent)
    } else {
        Err("must be above 0 and at most 100".to_owned())
    }
}
