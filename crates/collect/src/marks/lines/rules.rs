//! Lines held against the rules. Most lines fit none, so that is what must be cheap: one
//! search for the texts of all rules at once goes over many lines, and only a line that has
//! one of them is looked at by itself.
//!
//! A phase ends with a line of its own process, or with one of a process above it whose rule
//! says so: a worker of vLLM tells that it loads, its engine that everything is loaded. Who is
//! above whom is asked of the kernel when such a line comes, while both are there.
//!
//! An end goes with a begin only if both are surely of one process. Else the phase stays open,
//! and what is known of its end is that it came: that is a mark as well.

use super::who::Who;
use crate::procfs::lineage;
use aho_corasick::{AhoCorasick, MatchKind};
use memchr::memmem::Finder;
use memtrace_model::{
    BootNs, DurationNs, END_IS_UNKNOWN, KillRule, MarkKind, MarkMessage, MarkRule, MarkRuleKind,
    Tgid,
};
use regex::bytes::{Regex, RegexSet, RegexSetBuilder};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What of a line is kept with its mark, and of each of its groups.
const KEPT_BYTES_MAX: usize = 512;

/// Phases that one log may have open. Beyond that an end goes with no begin.
const OPEN_MAX: usize = 4_096;

/// So much of the front of a line is kept that carriage returns overwrite.
const FRONT_BYTES_MAX: usize = 256;

/// Ray writes one line for many that differ by numbers only, and names the last of their writers.
/// It comes up to five seconds after the first of them (`RAY_DEDUP_LOGS`).
const REPEATED: &str = "[repeated ";

/// Rules that can't be used together.
#[derive(Debug, thiserror::Error)]
#[error("the rules for marks: {0}")]
pub struct RulesError(String);

/// The rules, made ready.
#[derive(Debug)]
pub(in crate::marks) struct Rules {
    rules: Vec<(MarkRule, Option<Finder<'static>>)>,
    /// The texts of all rules that have one.
    texts: AhoCorasick,
    /// The patterns of those that have none: every line is held against them.
    textless: Option<RegexSet>,
}

impl Rules {
    pub(in crate::marks) fn new(rules: Vec<MarkRule>) -> Result<Self, RulesError> {
        let texts = rules.iter().filter_map(|rule| rule.contains.as_deref());
        let texts = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .build(texts)
            .map_err(|error| RulesError(error.to_string()))?;
        let textless: Vec<&str> = rules
            .iter()
            .filter(|rule| rule.contains.is_none())
            .filter_map(|rule| rule.pattern.as_ref().map(Regex::as_str))
            .collect();
        let textless = match textless.as_slice() {
            [] => None,
            some => {
                let built = RegexSetBuilder::new(some).unicode(false).build();
                Some(built.map_err(|error| RulesError(error.to_string()))?)
            }
        };
        let found = |rule: MarkRule| {
            let finder = rule.contains.as_deref().map(Finder::new);
            let finder = finder.map(|finder| finder.into_owned());
            (rule, finder)
        };
        Ok(Self {
            rules: rules.into_iter().map(found).collect(),
            texts,
            textless,
        })
    }
}

/// A mark that a line is.
pub(super) struct LineMark {
    pub(super) kind: MarkKind,
    pub(super) message: MarkMessage,
    /// The process that the line names.
    pub(super) tgid: Option<Tgid>,
    /// Whether that is its id in a container.
    pub(super) is_inside: bool,
}

/// A process and its ancestors, as far as they can be read.
type Lineage = fn(Tgid) -> Vec<Tgid>;

/// The rules for one log, and what that log has open.
pub(super) struct Matcher {
    rules: Arc<Rules>,
    /// Who writes the lines that name no process, where that is known.
    writer: Option<Tgid>,
    lineage: Lineage,
    /// What this log began, by phase and process.
    open: HashMap<(String, Who), Open>,
    open_count: usize,
    plain: Vec<u8>,
    /// The front of a line of which a carriage return will overwrite what came until now.
    front: Vec<u8>,
    /// A version that the rules were not checked with.
    unchecked: Option<String>,
}

/// Phases of one name of one process.
#[derive(Default)]
struct Open {
    /// Their spans, the newest last.
    spans: Vec<i64>,
    /// The newest that is over, and has no end of its own yet: should it come, it is the truth.
    over: Option<i64>,
    /// How many ends are still to come that go with no begin: several processes began such a
    /// phase at once, and their lines do not tell them apart.
    owed: usize,
    /// When the last line of them came.
    at: BootNs,
}

/// Ends that are owed for longer were lost with what they ended.
const OWED_FOR: DurationNs = DurationNs(600_000_000_000);

impl Matcher {
    pub(super) fn new(rules: Arc<Rules>, writer: Option<Tgid>) -> Self {
        Self {
            rules,
            writer,
            lineage: |tgid| lineage(Path::new("/proc"), tgid),
            open: HashMap::new(),
            open_count: 0,
            plain: Vec::new(),
            front: Vec::new(),
            unchecked: None,
        }
    }

    /// A version of a program that the rules were not checked with, once.
    pub(super) fn take_unchecked(&mut self) -> Option<String> {
        self.unchecked.take()
    }

    /// Looks at whole lines, and gives the marks among them.
    pub(super) fn look_at(
        &mut self,
        lines: &[u8],
        arrival: BootNs,
        mut each: impl FnMut(LineMark),
    ) {
        let mut plain = std::mem::take(&mut self.plain);
        let text = match memchr::memchr(ESCAPE, lines) {
            None => lines,
            Some(first) => {
                strip(lines, first, &mut plain);
                &plain
            }
        };
        let rules = Arc::clone(&self.rules);
        let mut front = std::mem::take(&mut self.front);
        if rules.textless.is_some() {
            let mut start = 0;
            for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
                let fits = |set: &RegexSet| set.is_match(line);
                if rules.textless.as_ref().is_some_and(fits) || rules.texts.is_match(line) {
                    let before = overwritten(text, start, &front);
                    self.look_at_one(&before, line, arrival, &mut each);
                }
                start += line.len() + 1;
            }
        } else {
            let mut from = 0;
            while let Some(found) = rules.texts.find(&text[from..]) {
                let at = from + found.start();
                let start = memchr::memrchr2(b'\n', b'\r', &text[..at]).map_or(0, |end| end + 1);
                let end = memchr::memchr2(b'\n', b'\r', &text[at..]);
                let end = end.map_or(text.len(), |length| at + length);
                let before = overwritten(text, start, &front);
                self.look_at_one(&before, &text[start..end], arrival, &mut each);
                from = end;
            }
        }
        carry(text, &mut front);
        self.front = front;
        self.plain = plain;
    }

    /// What comes next does not continue the line before.
    pub(super) fn begin_anew(&mut self) {
        self.front.clear();
    }

    /// Something was not read, in which phases can have ended.
    pub(super) fn skip(&mut self) {
        self.begin_anew();
        self.open.clear();
        self.open_count = 0;
    }

    fn look_at_one(
        &mut self,
        before: &[u8],
        line: &[u8],
        arrival: BootNs,
        each: &mut impl FnMut(LineMark),
    ) {
        let rules = Arc::clone(&self.rules);
        for (rule, text) in &rules.rules {
            // Without a text to look for it is not known where the message begins.
            let mut head = line.len();
            if let Some(text) = text {
                let Some(at) = text.find(line) else {
                    continue;
                };
                head = at;
            }
            let mut attrs = Map::new();
            if let Some(pattern) = &rule.pattern {
                let Some(groups) = pattern.captures(line) else {
                    continue;
                };
                for name in pattern.capture_names().flatten() {
                    if let Some(group) = groups.name(name) {
                        attrs.insert(name.to_owned(), value(group.as_bytes()));
                    }
                }
            }
            let who = &Who::of(before, &line[..head]);
            if let Some(Tgid(tgid)) = who.tgid {
                attrs.entry("pid").or_insert(Value::from(tgid));
            }
            if let Some(rank) = &who.rank {
                attrs.entry("rank").or_insert(Value::from(rank.as_str()));
            }
            if let Some(source) = &who.source {
                let source = Value::from(source.as_str());
                attrs.entry("log_source").or_insert(source);
            }
            attrs.entry("line").or_insert(Value::from(kept(line)));
            self.check(rule, &attrs);
            let repeated = repeated(line);
            if let Some(count) = repeated {
                attrs.entry("repeated").or_insert(Value::from(count));
            }
            if let Some(kill) = &rule.kill {
                note_kill(kill, &mut attrs);
                each(mark(MarkKind::Kill, &rule.name, arrival, None, who, attrs));
                continue;
            }
            let is_sure = !who.is_unsure && repeated.is_none();
            // The line says that its own process did so, which has to be known.
            if is_sure && !who.is_behind_a_time() {
                for name in rule.ends.iter().chain(&rule.ends_in_tree) {
                    self.end(name, who, arrival, each);
                }
                for name in &rule.ends_in_tree {
                    for descendant in self.descendants_with(name, who) {
                        self.end(name, &descendant, arrival, each);
                    }
                }
            }
            for name in &rule.over {
                self.note_over(name, who.source.as_deref(), arrival, each);
            }
            if is_sure {
                self.tell(rule, arrival, who, attrs, each);
                continue;
            }
            // It is not known who began or ended this, or not when.
            if rule.kind == MarkRuleKind::End {
                self.note_over(&rule.name, who.source.as_deref(), arrival, each);
            }
            each(mark(
                MarkKind::Instant,
                &rule.name,
                arrival,
                None,
                who,
                attrs,
            ));
        }
    }

    /// Keeps a version that the rule was not checked with.
    fn check(&mut self, rule: &MarkRule, attrs: &Map<String, Value>) {
        let Some(checked) = &rule.versions else {
            return;
        };
        let version = match attrs.get("version") {
            Some(Value::String(version)) => version.clone(),
            Some(version) => version.to_string(),
            None => return,
        };
        if !checked.has(&version) {
            self.unchecked = Some(format!("{} {version}, and {checked}", rule.program()));
        }
    }

    fn tell(
        &mut self,
        rule: &MarkRule,
        arrival: BootNs,
        who: &Who,
        attrs: Map<String, Value>,
        each: &mut impl FnMut(LineMark),
    ) {
        let name = rule.name.as_str();
        match rule.kind {
            MarkRuleKind::Instant | MarkRuleKind::Kill => {
                each(mark(MarkKind::Instant, name, arrival, None, who, attrs));
            }
            MarkRuleKind::Begin
                if rule.is_once && !who.is_behind_a_time() && self.has_open(name, who) => {}
            MarkRuleKind::Begin => match self.begin(name, who, arrival, each) {
                Some(span) => each(mark(MarkKind::Begin, name, arrival, Some(span), who, attrs)),
                None => each(mark(MarkKind::Instant, name, arrival, None, who, attrs)),
            },
            MarkRuleKind::End => {
                let span = self.close(name, who);
                // By name the end would close what another process began. What this process began
                // elsewhere, in another log, it does close.
                let span = span.or_else(|| who.here().is_none().then(next_span));
                each(mark(MarkKind::End, name, arrival, span, who, attrs));
            }
            MarkRuleKind::Took => match attrs.get("seconds").and_then(Value::as_f64) {
                // Before the machine was started there was nothing.
                Some(seconds) if (0.0..=arrival.0 as f64 / 1e9).contains(&seconds) => {
                    let begin = arrival + DurationNs(-((seconds * 1e9) as i64));
                    let span = Some(next_span());
                    each(mark(MarkKind::Begin, name, begin, span, who, Map::new()));
                    each(mark(MarkKind::End, name, arrival, span, who, attrs));
                }
                _ => each(mark(MarkKind::Instant, name, arrival, None, who, attrs)),
            },
        }
    }

    /// Ends the newest phase of that name that a process has open, if it has one.
    fn end(&mut self, name: &str, who: &Who, at: BootNs, each: &mut impl FnMut(LineMark)) {
        if let Some(span) = self.close(name, who) {
            each(mark(MarkKind::End, name, at, Some(span), who, Map::new()));
        }
    }

    /// The descendants of a line's process that have a phase of that name open.
    fn descendants_with(&self, name: &str, who: &Who) -> Vec<Who> {
        let Some(above) = who.here().or(self.writer.filter(|_| who.tgid.is_none())) else {
            return Vec::new();
        };
        let is_below = |tgid: Tgid| tgid != above && (self.lineage)(tgid).contains(&above);
        let open = self.open.keys().filter(|(open, _)| open == name);
        open.filter(|(_, opener)| opener.here().is_some_and(is_below))
            .map(|(_, opener)| opener.clone())
            .collect()
    }

    /// Phases of that name are over by now, and when each of them ended is not known.
    fn note_over(
        &mut self,
        name: &str,
        source: Option<&str>,
        at: BootNs,
        each: &mut impl FnMut(LineMark),
    ) {
        self.open.retain(|(opened, who), open| {
            if opened != name || who.source.as_deref() != source {
                return true;
            }
            open.owed = 0;
            open.over = open.spans.last().copied().or(open.over);
            self.open_count -= open.spans.len();
            for span in open.spans.drain(..) {
                each(over(name, at, span, who));
            }
            open.over.is_some()
        });
    }

    fn has_open(&self, name: &str, who: &Who) -> bool {
        let open = self.open.get(&(name.to_owned(), who.identity()));
        open.is_some_and(|open| !open.spans.is_empty())
    }

    /// The span of a new phase; `None` where others may have begun the same under this name.
    fn begin(
        &mut self,
        name: &str,
        who: &Who,
        at: BootNs,
        each: &mut impl FnMut(LineMark),
    ) -> Option<i64> {
        if self.open_count >= OPEN_MAX || self.open.len() >= 2 * OPEN_MAX {
            return Some(next_span());
        }
        let open = self
            .open
            .entry((name.to_owned(), who.identity()))
            .or_default();
        if at - open.at > OWED_FOR {
            open.owed = 0;
        }
        open.at = at;
        if who.is_shared() && (open.owed > 0 || !open.spans.is_empty()) {
            self.open_count -= open.spans.len();
            open.owed += open.spans.len() + 1;
            for span in open.spans.drain(..) {
                each(over(name, at, span, who));
            }
            return None;
        }
        self.open_count += 1;
        let span = next_span();
        open.spans.push(span);
        Some(span)
    }

    fn close(&mut self, name: &str, who: &Who) -> Option<i64> {
        let key = (name.to_owned(), who.identity());
        let open = self.open.get_mut(&key)?;
        let span = open.spans.pop();
        let span = match span {
            Some(_) => {
                self.open_count -= 1;
                span
            }
            None if open.owed > 0 => {
                open.owed -= 1;
                None
            }
            None => open.over.take(),
        };
        if open.spans.is_empty() && open.over.is_none() && open.owed == 0 {
            self.open.remove(&key);
        }
        span
    }
}

/// The front of what stands in a line before `start`, with what of it came earlier.
fn overwritten<'t>(text: &'t [u8], start: usize, front: &[u8]) -> Cow<'t, [u8]> {
    let (front, begun) = match memchr::memrchr(b'\n', &text[..start]) {
        Some(end) => (&[][..], &text[end + 1..start]),
        None => (front, &text[..start]),
    };
    let room = FRONT_BYTES_MAX.saturating_sub(front.len());
    let begun = &begun[..begun.len().min(room)];
    match front {
        [] => Cow::Borrowed(begun),
        _ => Cow::Owned([front, begun].concat()),
    }
}

/// Keeps the front of a line that is not over yet.
fn carry(text: &[u8], front: &mut Vec<u8>) {
    if !matches!(text.last(), Some(b'\r')) {
        // Text without its end is the last of its log, or is too long.
        return front.clear();
    }
    let begun = match memchr::memrchr(b'\n', text) {
        Some(end) => {
            front.clear();
            &text[end + 1..]
        }
        None => text,
    };
    let room = FRONT_BYTES_MAX.saturating_sub(front.len());
    front.extend_from_slice(&begun[..begun.len().min(room)]);
}

/// Adds to a line that tells of a kill what its rule knows.
fn note_kill(kill: &KillRule, attrs: &mut Map<String, Value>) {
    let reason = kill.reason(|name| match attrs.get(name)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    });
    attrs.insert("killer".to_owned(), Value::from(kill.killer.as_str()));
    attrs.insert("reason".to_owned(), Value::from(reason));
    attrs.insert("senders".to_owned(), Value::from(kill.senders.clone()));
    if !kill.exit_codes.is_empty() {
        attrs.insert(
            "exit_codes".to_owned(),
            Value::from(kill.exit_codes.clone()),
        );
    }
    if let Some(seconds) = kill.look_back_seconds {
        attrs.insert("look_back_seconds".to_owned(), Value::from(seconds));
    }
}

/// For how many more lines this one stands.
fn repeated(text: &[u8]) -> Option<u32> {
    let at = memchr::memmem::rfind(text, REPEATED.as_bytes())?;
    let rest = &text[at + REPEATED.len()..];
    let end = memchr::memmem::find(rest, b"x across cluster]")?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

/// That a phase is over, and not since when.
fn over(name: &str, at: BootNs, span: i64, who: &Who) -> LineMark {
    let attrs = Map::from_iter([(END_IS_UNKNOWN.to_owned(), Value::Bool(true))]);
    mark(MarkKind::Instant, name, at, Some(span), who, attrs)
}

/// Spans of lines count from the lowest number: those of programs are their own, and positive.
pub(in crate::marks) fn next_span() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(i64::MIN);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn mark(
    kind: MarkKind,
    name: &str,
    at: BootNs,
    span: Option<i64>,
    who: &Who,
    attrs: Map<String, Value>,
) -> LineMark {
    let mut message = MarkMessage::new(kind, name, at);
    message.span = span;
    message.attrs = attrs;
    LineMark {
        kind,
        message,
        tgid: who.named(),
        is_inside: who.is_inside,
    }
}

/// A number where it is one, with commas between its thousands or without; else text.
fn value(group: &[u8]) -> Value {
    let text = kept(group);
    let digits = text.replace(',', "");
    if let Ok(number) = digits.parse::<i64>() {
        return Value::from(number);
    }
    let starts_as_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let number = digits.parse::<f64>().ok().filter(|_| starts_as_number);
    number
        .and_then(serde_json::Number::from_f64)
        .map_or(Value::from(text), Value::Number)
}

fn kept(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(KEPT_BYTES_MAX)]).into_owned()
}

const ESCAPE: u8 = 0x1b;

/// Copies text without its escape sequences: those of colours and the cursor (CSI), titles
/// and links (OSC), and those of two bytes (ECMA-48, 5.4). `first` is where the first begins.
fn strip(text: &[u8], first: usize, plain: &mut Vec<u8>) {
    plain.clear();
    plain.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let Some(sequence) = rest.strip_prefix(&[ESCAPE]) {
        let length = match sequence.first() {
            Some(b'[') => {
                let end = sequence[1..]
                    .iter()
                    .position(|byte| !(0x20..0x40).contains(byte));
                // A sequence that is broken off ends with its line.
                end.map_or(sequence.len(), |end| match sequence[1 + end] {
                    0x40..=0x7e => end + 2,
                    _ => end + 1,
                })
            }
            Some(b']') => {
                let is_end = |byte: &u8| matches!(*byte, 0x07 | ESCAPE | b'\n' | b'\r');
                let end = sequence.iter().position(is_end);
                end.map_or(sequence.len(), |end| match &sequence[end..] {
                    [0x07, ..] => end + 1,
                    [ESCAPE, b'\\', ..] => end + 2,
                    _ => end,
                })
            }
            Some(0x20..=0x7e) => 1,
            _ => 0,
        };
        rest = &sequence[length..];
        let next = memchr::memchr(ESCAPE, rest).unwrap_or(rest.len());
        plain.extend_from_slice(&rest[..next]);
        rest = &rest[next..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::{builtin_mark_rules, mark_rules};

    #[test]
    fn a_line_that_tells_of_a_kill_is_one_event_with_its_killer_and_reason_whoever_wrote_it() {
        let line = "(raylet) Selected to kill: (Task: job ID=01000000, task name=f, pid=4711, \
                    actual memory used=1.60GB, worker ID=d)";
        for before in [
            "",
            "node7>> (Actor pid=1) ",
            "50%|█████     | 1/2 [00:01<00:01,  1.31it/s]",
        ] {
            let mut marks = Vec::new();
            let text = format!("{before}{line}\n");
            let mut matcher = matcher(builtin_mark_rules().unwrap());
            matcher.look_at(text.as_bytes(), BootNs(7), |mark| marks.push(mark));
            let [mark] = marks.as_slice() else {
                panic!("{} marks", marks.len());
            };
            assert_eq!((mark.kind, mark.message.span), (MarkKind::Kill, None));
            let attrs = &mark.message.attrs;
            assert_eq!(attrs["killed_pid"], 4711);
            assert_eq!(attrs["killer"], "Ray's memory monitor");
            assert_eq!(
                attrs["reason"],
                "the node ran low on memory; this process held 1.60GB"
            );
            assert_eq!(attrs["senders"], serde_json::json!(["raylet"]));
        }
    }

    /// Name, kind, time, span and process of each mark.
    type Reported = (String, MarkKind, i64, Option<i64>, Option<u32>);

    fn reported(rules: Vec<MarkRule>, lines: &[(i64, &str)]) -> Vec<Reported> {
        reported_by(&mut matcher(rules), lines)
    }

    fn matcher(rules: Vec<MarkRule>) -> Matcher {
        let mut matcher = Matcher::new(Arc::new(Rules::new(rules).unwrap()), None);
        // A command, two engines below it, and two workers below each.
        matcher.lineage = |Tgid(tgid)| match tgid {
            31 | 32 => vec![Tgid(tgid), Tgid(30), Tgid(1)],
            41 | 42 => vec![Tgid(tgid), Tgid(40), Tgid(1)],
            30 | 40 => vec![Tgid(tgid), Tgid(1)],
            _ => vec![Tgid(tgid)],
        };
        matcher
    }

    fn reported_by(matcher: &mut Matcher, lines: &[(i64, &str)]) -> Vec<Reported> {
        let mut shown = Vec::new();
        for (at, line) in lines {
            let text = format!("{line}\n");
            matcher.look_at(text.as_bytes(), BootNs(*at), |mark| {
                shown.push((
                    mark.message.name,
                    mark.kind,
                    mark.message.boot_ns,
                    mark.message.span,
                    mark.tgid.map(|tgid| tgid.0),
                ));
            });
        }
        shown
    }

    fn attributes(rules: Vec<MarkRule>, line: &str) -> Map<String, Value> {
        let mut matcher = matcher(rules);
        let mut found = Map::new();
        matcher.look_at(line.as_bytes(), BootNs(1), |mark| {
            found = mark.message.attrs
        });
        found
    }

    #[test]
    fn each_example_of_each_built_in_rule_gives_its_mark() {
        for rule in builtin_mark_rules().unwrap() {
            for line in &rule.examples {
                let shown = reported(builtin_mark_rules().unwrap(), &[(1 << 60, line)]);
                assert!(
                    shown.iter().any(|mark| mark.0 == rule.name),
                    "{line}: {shown:?}"
                );
            }
        }
    }

    #[test]
    fn a_worker_that_loads_is_reported_with_its_process_its_time_and_its_numbers() {
        let rules = || builtin_mark_rules().unwrap();
        let begin =
            "(Worker_TP0 pid=34) INFO 05-06 20:59:28 [m.py:1] Starting to load model Qwen/Q...";
        let end = "(Worker_TP0 pid=34) INFO 05-06 20:59:59 [m.py:2] Model loading took 12.66 GiB memory and 31.5 seconds";
        let other = begin.replace("pid=34", "pid=35");
        let marks = reported(rules(), &[(10, begin), (11, &other), (20, end)]);
        let kinds: Vec<_> = marks.iter().map(|mark| (mark.1, mark.2, mark.4)).collect();
        assert_eq!(
            kinds,
            [
                (MarkKind::Begin, 10, Some(34)),
                (MarkKind::Begin, 11, Some(35)),
                (MarkKind::End, 20, Some(34)),
            ]
        );
        assert_eq!(marks[0].3, marks[2].3, "they go together");
        assert_ne!(marks[0].3, marks[1].3);
        let attrs = attributes(rules(), end);
        assert_eq!(attrs["gib"], 12.66);
        assert_eq!(attrs["seconds"], 31.5);
        assert_eq!(attrs["pid"], 34);
        assert_eq!(attrs["line"], end);
        let size = attributes(rules(), "INFO GPU KV cache size: 1,131,008 tokens");
        assert_eq!(size["tokens"], 1_131_008);
        let began = attributes(rules(), begin);
        assert_eq!(began["model"], "Qwen/Q");
    }

    #[test]
    fn a_line_that_says_how_long_it_took_is_a_phase_that_began_then() {
        let line = "INFO 05-06 [default_loader.py:384] Loading weights took 2.50 seconds";
        let marks = reported(builtin_mark_rules().unwrap(), &[(10_000_000_000, line)]);
        assert_eq!((marks[0].1, marks[0].2), (MarkKind::Begin, 7_500_000_000));
        assert_eq!((marks[1].1, marks[1].2), (MarkKind::End, 10_000_000_000));
        assert_eq!(marks[0].3, marks[1].3);
        let early = reported(builtin_mark_rules().unwrap(), &[(1, line)]);
        let kinds: Vec<_> = early.iter().map(|mark| mark.1).collect();
        assert_eq!(kinds, [MarkKind::Instant], "before the machine was started");
    }

    #[test]
    fn a_rule_ends_others_only_where_they_are_open() {
        let begin = "(EngineCore pid=3) INFO Starting to load model m...";
        let warm = "(EngineCore pid=3) INFO Warming up model for the compilation...";
        let marks = reported(
            builtin_mark_rules().unwrap(),
            &[(1, begin), (2, warm), (3, warm)],
        );
        let kinds: Vec<_> = marks.iter().map(|mark| (mark.0.as_str(), mark.1)).collect();
        assert_eq!(
            kinds,
            [
                ("vllm.load_model", MarkKind::Begin),
                ("vllm.load_model", MarkKind::End),
                ("vllm.warm_up", MarkKind::Begin),
                ("vllm.warm_up", MarkKind::Begin),
            ]
        );
        assert_eq!(marks[0].3, marks[1].3);
    }

    /// What ended: name, time and process, in the order of processes.
    fn ended(shown: &[Reported]) -> Vec<(&str, i64, Option<u32>)> {
        let ends = shown.iter().filter(|mark| mark.1 == MarkKind::End);
        let mut ended: Vec<_> = ends.map(|mark| (mark.0.as_str(), mark.2, mark.4)).collect();
        ended.sort_by_key(|end| end.2);
        ended
    }

    #[test]
    fn what_workers_began_ends_with_the_line_of_their_engine_and_of_no_other() {
        let begin = |pid: u32| format!("(Worker pid={pid}) INFO Starting to load model m...");
        let sized = "(EngineCore_DP0 pid=30) INFO CPU KV cache size: 65,536 tokens";
        let begins: Vec<String> = [31, 32, 41, 99].map(begin).to_vec();
        let mut lines: Vec<(i64, &str)> = begins.iter().map(|line| (1, line.as_str())).collect();
        lines.push((7, sized));
        lines.push((8, sized));
        let shown = reported(builtin_mark_rules().unwrap(), &lines);
        let expected = [31, 32].map(|pid| ("vllm.load_model", 7, Some(pid)));
        assert_eq!(ended(&shown), expected);
        let span_of = |kind, pid| {
            let mut of = shown
                .iter()
                .filter(|mark| (mark.1, mark.4) == (kind, Some(pid)));
            of.next().unwrap().3
        };
        for pid in [31, 32] {
            assert_eq!(span_of(MarkKind::Begin, pid), span_of(MarkKind::End, pid));
        }
    }

    #[test]
    fn a_line_that_names_no_process_ends_what_descendants_of_the_logs_writer_began() {
        let lines = [
            (
                1,
                "(VllmWorkerProcess pid=31) INFO Starting to load model m...",
            ),
            (2, "INFO Starting to load model m..."),
            (9, "INFO CPU KV cache size: 65,536 tokens"),
        ];
        let of_command = |writer| {
            let mut matcher = matcher(builtin_mark_rules().unwrap());
            matcher.writer = writer;
            let shown = reported_by(&mut matcher, &lines);
            let loaded = ended(&shown)
                .into_iter()
                .filter(|end| end.0 == "vllm.load_model");
            loaded.map(|end| end.2).collect::<Vec<_>>()
        };
        assert_eq!(of_command(Some(Tgid(1))), [None, Some(31)]);
        assert_eq!(of_command(None), [None], "who wrote a file is not known");
    }

    #[test]
    fn a_worker_ends_nothing_of_its_siblings_and_a_process_of_another_machine_nothing_here() {
        let lines = [
            (1, "(Worker_TP0 pid=31) INFO Starting to load model m..."),
            (1, "(Worker_TP1 pid=32) INFO Starting to load model m..."),
            (
                2,
                "(Worker_TP0 pid=31) INFO Warming up model for the compilation...",
            ),
            (
                3,
                "(Engine pid=30, ip=10.0.0.3) INFO GPU KV cache size: 1 tokens",
            ),
        ];
        let shown = reported(builtin_mark_rules().unwrap(), &lines);
        assert_eq!(ended(&shown), [("vllm.load_model", 2, Some(31))]);
    }

    #[test]
    fn colours_links_and_titles_are_no_part_of_a_line() {
        let cases: &[(&str, &str)] = &[
            (
                "\x1b[32mINFO\x1b[0m: on \x1b[1;31mhttp\x1b[m!",
                "INFO: on http!",
            ),
            (
                "\x1b]8;;http://a\x1b\\link\x1b]8;;\x07 \x1b(Bx\x1b[?25l",
                "link Bx",
            ),
            ("cut \x1b[31", "cut "),
            ("\x1b[3\nnext", "\nnext"),
            ("\x1b]title\nnext\x1b", "\nnext"),
            ("\x1b\x1b[0mü", "ü"),
        ];
        for (text, expected) in cases {
            let first = memchr::memchr(ESCAPE, text.as_bytes()).unwrap();
            let mut plain = Vec::new();
            strip(text.as_bytes(), first, &mut plain);
            assert_eq!(String::from_utf8_lossy(&plain), *expected, "{text:?}");
        }
        let marks = reported(
            builtin_mark_rules().unwrap(),
            &[(
                1,
                "\x1b[36m(APIServer pid=5)\x1b[0m \x1b[32mINFO\x1b[0m: Application \x1b[1mstartup\x1b[0m complete.",
            )],
        );
        assert_eq!((marks[0].0.as_str(), marks[0].4), ("server_ready", Some(5)));
    }

    #[test]
    fn a_process_of_another_machine_is_not_taken_for_one_of_this() {
        let rules = || {
            mark_rules(
                "t",
                "builtin = false\n[[rule]]\nname = \"a\"\ncontains = \"up\"",
            )
            .unwrap()
        };
        assert_eq!(
            reported(rules(), &[(1, "(T pid=5, ip=10.0.0.3) up")])[0].4,
            None
        );
        let attrs = attributes(rules(), "(T pid=5, ip=10.0.0.3) up");
        assert_eq!(attrs["pid"], 5);
    }

    #[test]
    fn a_pattern_that_takes_the_front_of_a_line_hides_nobody() {
        let rules = |text: &str| mark_rules("t", &format!("builtin = false\n{text}")).unwrap();
        let whole = "[[rule]]\nname = \"a\"\nmatch = '^.*step (?<step>\\d+)'";
        let named = "[[rule]]\nname = \"a\"\ncontains = \"step\"\nmatch = 'pid=5\\) step'";
        for text in [whole, named] {
            assert_eq!(
                reported(rules(text), &[(1, "(T pid=5) step 3")])[0].4,
                Some(5)
            );
        }
    }

    #[test]
    fn numbers_are_numbers_and_the_rest_is_text() {
        for (text, expected) in [
            ("12", Value::from(12)),
            ("-9", Value::from(-9)),
            ("1,131,008", Value::from(1_131_008)),
            ("12.50", Value::from(12.5)),
            ("0.32.0", Value::from("0.32.0")),
            ("inf", Value::from("inf")),
            ("nan", Value::from("nan")),
            ("", Value::from("")),
        ] {
            assert_eq!(value(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(value(b"\xff"), Value::from("\u{fffd}"));
    }
}
