//! Which lines of a log are marks. The rules that memtrace has built in are a file of the same
//! form as a person's own, and say themselves what that form is.

use super::mark::MARK_NAME_BYTES_MAX;
use super::pattern::Pattern;
use regex::bytes::Regex;
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

/// The built-in rules, as a person reads them.
pub const BUILTIN_MARK_RULES: &str = include_str!("mark_rules.toml");

/// What the built-in list is called in an error.
const BUILTIN: &str = "the built-in rules";

/// The group of a regular expression that says how long a phase took.
const SECONDS: &str = "seconds";

/// Which line is which mark.
#[derive(Clone, Debug)]
pub struct MarkRule {
    /// The mark or phase.
    pub name: String,
    /// What the line does.
    pub kind: MarkRuleKind,
    /// Text that the line must have.
    pub contains: Option<String>,
    /// What the line must match as well. Its named groups are attributes.
    pub pattern: Option<Regex>,
    /// Phases of the line's process that end here too, if the same log began them.
    pub ends: Vec<String>,
    /// The same, of the line's process and of all its descendants.
    pub ends_in_tree: Vec<String>,
    /// Phases that are over when the line comes, whoever of the log began them: since when is not
    /// known.
    pub over: Vec<String>,
    /// Whether a begin says nothing new where its process has such a phase open.
    pub is_once: bool,
    /// Versions of the program whose lines the rule and its neighbours were checked with.
    pub versions: Option<Versions>,
    /// Of a kill, what is known of it without the line.
    pub kill: Option<KillRule>,
    /// Lines that the rule is for.
    pub examples: Vec<String>,
}

/// What is known of a kill without its line.
#[derive(Clone, Debug)]
pub struct KillRule {
    /// Who does the killing.
    pub killer: String,
    /// Why; `{name}` stands for what that group of the match has.
    pub reason: String,
    /// By which comm the kernel knows who sends the signal, `kernel` for its OOM killer; empty where
    /// it is an ancestor of the killed.
    pub senders: Vec<String>,
    /// The exit codes of the killed, where it ends by itself.
    pub exit_codes: Vec<i32>,
    /// How long before the line it can have been, where that is more than a second.
    pub look_back_seconds: Option<u32>,
}

impl KillRule {
    /// Why, with what groups of the match have.
    pub fn reason(&self, group: impl Fn(&str) -> Option<String>) -> String {
        let mut reported = String::new();
        let mut rest = self.reason.as_str();
        while let Some((text, (name, after))) = placeholder(rest) {
            reported.push_str(text);
            reported.push_str(&group(name).unwrap_or_else(|| "?".to_owned()));
            rest = after;
        }
        reported + rest
    }
}

/// What stands before the first `{name}` of a text, the name, and what comes after it.
fn placeholder(text: &str) -> Option<(&str, (&str, &str))> {
    let (before, rest) = text.split_once('{')?;
    Some((before, rest.split_once('}')?))
}

impl MarkRule {
    /// Whose lines they are: `vllm` of `vllm.load_model`.
    pub fn program(&self) -> &str {
        let parts = self.name.split_once('.');
        parts.map_or(self.name.as_str(), |(program, _)| program)
    }
}

/// Releases from one to another, both included, by their major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    first: (u32, u32),
    last: (u32, u32),
}

impl Versions {
    /// From `0.6 to 0.33`.
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once(" to ")?;
        let versions = Self {
            first: minor(first)?,
            last: minor(last)?,
        };
        (versions.first <= versions.last).then_some(versions)
    }

    /// Whether a version is one of them: `0.8.5.post1`, `v0.9.2.dev140+g8b6e1d639`. One that names
    /// no release (`dev`) is not.
    pub fn has(self, version: &str) -> bool {
        let minor = minor(version.trim_start_matches('v'));
        minor.is_some_and(|minor| (self.first..=self.last).contains(&minor))
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { first, last } = self;
        let (first, last) = (
            format!("{}.{}", first.0, first.1),
            format!("{}.{}", last.0, last.1),
        );
        write!(f, "the rules for marks were checked with {first} to {last}")
    }
}

/// The major and the minor number.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.');
    let major = numbers.next()?.parse().ok()?;
    let digits = numbers.next()?;
    let end = digits.find(|c: char| !c.is_ascii_digit());
    Some((major, digits[..end.unwrap_or(digits.len())].parse().ok()?))
}

/// The attribute of an instant that says of the phase with its `span` that it is over, and that it
/// is not known since when.
pub const END_IS_UNKNOWN: &str = "end_is_unknown";

/// What a line does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkRuleKind {
    /// Names a moment.
    #[default]
    Instant,
    /// Begins a phase.
    Begin,
    /// Ends a phase.
    End,
    /// Ends a phase that began as many seconds ago as the line says.
    Took,
    /// Says that a process was killed, or will be at once.
    Kill,
}

/// Text that is no list of rules.
#[derive(Debug, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub struct MarkRuleError {
    /// The file with the rules.
    pub file: String,
    /// The line in it, from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    builtin: Option<bool>,
    #[serde(default)]
    rule: Vec<Spanned<WrittenRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    name: Spanned<String>,
    #[serde(default)]
    kind: MarkRuleKind,
    contains: Option<Spanned<String>>,
    r#match: Option<Pattern>,
    #[serde(default)]
    ends: Vec<String>,
    #[serde(default)]
    ends_in_tree: Vec<String>,
    #[serde(default)]
    over: Vec<String>,
    #[serde(default)]
    once: bool,
    versions: Option<Spanned<String>>,
    killer: Option<Spanned<String>>,
    reason: Option<String>,
    #[serde(default)]
    senders: Vec<String>,
    #[serde(default)]
    exit_codes: Vec<i32>,
    look_back_seconds: Option<u32>,
    #[serde(default)]
    examples: Vec<String>,
}

/// The built-in rules.
///
/// # Errors
/// Never, as its tests show.
pub fn builtin_mark_rules() -> Result<Vec<MarkRule>, MarkRuleError> {
    Ok(read(BUILTIN, BUILTIN_MARK_RULES)?.0)
}

/// The rules of a person's file, and the built-in ones behind them unless the file leaves
/// them out. `file` is what an error calls it.
///
/// # Errors
/// When the text is no such list; the error names the line.
pub fn mark_rules(file: &str, text: &str) -> Result<Vec<MarkRule>, MarkRuleError> {
    let (mut rules, has_builtin) = read(file, text)?;
    if has_builtin {
        rules.extend(builtin_mark_rules()?);
    }
    Ok(rules)
}

fn read(file: &str, text: &str) -> Result<(Vec<MarkRule>, bool), MarkRuleError> {
    let error = |at: Range<usize>, reason: String| MarkRuleError {
        file: file.to_owned(),
        line: 1 + text.get(..at.start).unwrap_or(text).matches('\n').count(),
        reason,
    };
    let written: Written = toml::from_str(text)
        .map_err(|wrong| error(wrong.span().unwrap_or(0..0), wrong.message().to_owned()))?;
    let rules = written.rule.into_iter().map(|rule| {
        let whole = rule.span();
        rule.into_inner()
            .checked(whole)
            .map_err(|(at, reason)| error(at, reason))
    });
    let rules: Vec<MarkRule> = rules.collect::<Result<_, _>>()?;
    Ok((rules, written.builtin.unwrap_or(true)))
}

impl WrittenRule {
    fn checked(self, whole: Range<usize>) -> Result<MarkRule, (Range<usize>, String)> {
        let at = self.name.span();
        let name = self.name.into_inner();
        if name.is_empty() || name.len() > MARK_NAME_BYTES_MAX {
            let reason = format!("a name has 1 to {MARK_NAME_BYTES_MAX} bytes");
            return Err((at, reason));
        }
        if let Some(contains) = &self.contains
            && contains.get_ref().is_empty()
        {
            return Err((contains.span(), "contains is empty".to_owned()));
        }
        let pattern = self.r#match.map(|pattern| pattern.0);
        if self.contains.is_none() && pattern.is_none() {
            let reason = format!("the rule {name:?} has neither contains nor match");
            return Err((whole, reason));
        }
        let has_seconds = |pattern: &Regex| {
            let mut names = pattern.capture_names();
            names.any(|name| name == Some(SECONDS))
        };
        if self.kind == MarkRuleKind::Took && !pattern.as_ref().is_some_and(has_seconds) {
            let reason = format!("kind \"took\" needs a match with a group (?<{SECONDS}>…)");
            return Err((whole, reason));
        }
        let kill = match (self.kind, self.killer, self.reason) {
            (MarkRuleKind::Kill, Some(killer), Some(reason)) => Some(KillRule {
                killer: killer.into_inner(),
                reason,
                senders: self.senders,
                exit_codes: self.exit_codes,
                look_back_seconds: self.look_back_seconds,
            }),
            (MarkRuleKind::Kill, ..) => {
                return Err((whole, "kind \"kill\" needs killer and reason".to_owned()));
            }
            (_, Some(killer), _) => {
                return Err((killer.span(), "only kind \"kill\" has a killer".to_owned()));
            }
            _ => None,
        };
        let versions = self.versions.map(|versions| {
            let (at, text) = (versions.span(), versions.into_inner());
            let read = Versions::parse(&text);
            read.ok_or_else(|| (at, format!("{text:?} is not of the form \"0.6 to 0.33\"")))
        });
        Ok(MarkRule {
            versions: versions.transpose()?,
            kill,
            over: self.over,
            is_once: self.once,
            name,
            kind: self.kind,
            contains: self.contains.map(Spanned::into_inner),
            pattern,
            ends: self.ends,
            ends_in_tree: self.ends_in_tree,
            examples: self.examples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        mark_rules("rules.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_built_in_rule_fits_its_examples_and_has_one() {
        let rules = builtin_mark_rules().unwrap();
        assert!(rules.len() > 30);
        for rule in rules {
            assert!(!rule.examples.is_empty(), "{rule:?}");
            let text = rule.contains.as_deref().expect("a text to look for");
            for line in &rule.examples {
                assert!(line.contains(text), "{}: {line}", rule.name);
                let pattern = rule.pattern.as_ref();
                let fits = pattern.is_none_or(|pattern| pattern.is_match(line.as_bytes()));
                assert!(fits, "{}: {line}", rule.name);
            }
        }
    }

    #[test]
    fn a_phase_that_a_built_in_rule_ends_is_begun_by_one() {
        let rules = builtin_mark_rules().unwrap();
        let begins = |name: &String| {
            let mut begins = rules.iter().filter(|rule| rule.kind == MarkRuleKind::Begin);
            begins.any(|rule| rule.name == *name)
        };
        for rule in &rules {
            let mut ended = rule.ends.iter().chain(&rule.ends_in_tree).chain(&rule.over);
            assert!(ended.all(begins), "{rule:?}");
            if rule.kind == MarkRuleKind::End {
                assert!(begins(&rule.name), "{rule:?}");
            }
        }
    }

    #[test]
    fn a_reason_names_only_groups_of_its_match() {
        let rules = builtin_mark_rules().unwrap();
        let kills = rules
            .iter()
            .filter_map(|rule| Some((rule, rule.kill.as_ref()?)));
        assert!(kills.clone().count() > 10);
        for (rule, kill) in kills {
            let pattern = rule.pattern.as_ref();
            for line in &rule.examples {
                let groups = pattern.and_then(|pattern| pattern.captures(line.as_bytes()));
                let reason = kill.reason(|name| {
                    let group = groups.as_ref()?.name(name)?;
                    Some(String::from_utf8_lossy(group.as_bytes()).into_owned())
                });
                assert!(!reason.contains(['{', '?']), "{}: {reason}", rule.name);
            }
        }
    }

    #[test]
    fn a_persons_rules_come_first_and_can_stand_alone() {
        let own = "[[rule]]\nname = \"a\"\ncontains = \"b\"\n";
        let rules = mark_rules("rules.toml", own).unwrap();
        assert_eq!(rules[0].name, "a");
        assert_eq!(rules[0].kind, MarkRuleKind::Instant);
        assert!(rules.len() > 30);
        let alone = mark_rules("rules.toml", &format!("builtin = false\n{own}")).unwrap();
        assert_eq!(alone.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_file_and_line() {
        let rule = |rest: &str| format!("\n[[rule]]\nname = \"a\"\n{rest}\n");
        for (text, line, shown) in [
            (
                rule("match = '('"),
                4,
                "\"(\" is not a regular expression: unclosed group",
            ),
            (rule("match = '(?<n>\\d{1000}){1000}'"), 4, "size limit"),
            (rule("kind = \"middle\""), 4, "unknown variant `middle`"),
            (rule("contain = \"b\""), 4, "unknown field `contain`"),
            (rule(""), 2, "neither contains nor match"),
            (rule("contains = \"\""), 4, "contains is empty"),
            (rule("kind = \"took\"\ncontains = \"b\""), 2, "(?<seconds>"),
            (
                rule("kind = \"kill\"\ncontains = \"b\""),
                2,
                "killer and reason",
            ),
            (rule("killer = \"k\"\ncontains = \"b\""), 4, "only kind"),
            (
                "[[rule]]\nname = \"\"\ncontains = \"b\"".to_owned(),
                2,
                "1 to 256 bytes",
            ),
            ("rule = 3".to_owned(), 1, "invalid type"),
            ("[[rule]\n".to_owned(), 1, ""),
        ] {
            let error = error(&text);
            let place = format!("rules.toml, line {line}: ");
            assert!(error.starts_with(&place), "{error}");
            assert!(error.contains(shown), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_rules_or_an_error(text: String) {
            let _ = mark_rules("any", &text);
        }
    }
}
