//! The form of a file of rules, and what can be wrong with one.

use crate::pattern::Pattern;
use regex::bytes::Regex;
use serde::Deserialize;
use toml::Spanned;

/// Which titles fall back to others without being another role.
const ORDINARY: u8 = 10;

/// A file of rules can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// It is not of the form.
    #[error("line {line}: {message}")]
    Form {
        /// The line that is wrong.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// It has no rules.
    #[error("has no [[role]]")]
    NoRules,
    /// A process would have no name.
    #[error("line {line}: `{key}` is empty")]
    NoName {
        /// The line the rule starts on.
        line: usize,
        /// `role` or `role_of_parent`.
        key: &'static str,
    },
    /// A rule would match every process.
    #[error(
        "line {line}: role {role:?} has nothing to match: give it a title, command, comm, cmdline, exe, parent, parent_framework or parent_command"
    )]
    MatchesAll {
        /// The line the rule starts on.
        line: usize,
        /// The role it gives.
        role: String,
    },
    /// A role takes text from a group that no pattern of the rule has.
    #[error(
        "line {line}: role {role:?} uses {{{group}}}, but no pattern of the rule has the group (?<{group}>…)"
    )]
    NoSuchGroup {
        /// The line the rule starts on.
        line: usize,
        /// The role it gives.
        role: String,
        /// The missing group.
        group: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    role: Vec<Spanned<Rule>>,
}

/// One rule, as docs/roles.md describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// What it is, with `{group}` for what that group of a pattern matched.
    pub(super) role: String,
    /// Of which framework; the parent's where there is none.
    pub(super) framework: Option<String>,
    pub(super) title: Option<Pattern>,
    pub(super) comm: Option<Pattern>,
    pub(super) cmdline: Option<Pattern>,
    pub(super) command: Option<Pattern>,
    pub(super) exe: Option<Pattern>,
    pub(super) parent: Option<Pattern>,
    pub(super) parent_framework: Option<Pattern>,
    pub(super) parent_command: Option<Pattern>,
    pub(super) is_forked: Option<bool>,
    pub(super) is_renamed: Option<bool>,
    pub(super) is_parents_script: Option<bool>,
    pub(super) environment: Option<String>,
    #[serde(default = "ordinary")]
    pub(super) weight: u8,
    #[serde(default)]
    pub(super) has_rank_of_parent: bool,
    pub(super) rank_variable: Option<String>,
    pub(super) role_of_parent: Option<String>,
}

fn ordinary() -> u8 {
    ORDINARY
}

impl Rule {
    /// The patterns whose groups can be used.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &Regex> {
        let all = [
            &self.title,
            &self.comm,
            &self.cmdline,
            &self.command,
            &self.exe,
            &self.parent,
            &self.parent_framework,
            &self.parent_command,
        ];
        all.into_iter().flatten().map(|pattern| &pattern.0)
    }

    fn check(&self, line: usize) -> Result<(), RulesError> {
        let role = || self.role.clone();
        let of_parent = self.role_of_parent.as_ref();
        for (key, role) in [("role", Some(&self.role)), ("role_of_parent", of_parent)] {
            if role.is_some_and(|role| role.trim().is_empty()) {
                return Err(RulesError::NoName { line, key });
            }
        }
        if self.patterns().next().is_none() {
            return Err(RulesError::MatchesAll { line, role: role() });
        }
        let known: Vec<&str> = self
            .patterns()
            .flat_map(|regex| regex.capture_names().flatten())
            .collect();
        for group in groups(&self.role) {
            if !known.contains(&group) {
                return Err(RulesError::NoSuchGroup {
                    line,
                    role: role(),
                    group: group.to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// The names in braces.
fn groups(template: &str) -> impl Iterator<Item = &str> {
    let parts = template.split('{').skip(1);
    parts.filter_map(|part| part.split_once('}').map(|(group, _)| group))
}

/// Reads the rules of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>, RulesError> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let file: File = toml::from_str(text).map_err(|error| RulesError::Form {
        line: line_of(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    if file.role.is_empty() {
        return Err(RulesError::NoRules);
    }
    file.role
        .into_iter()
        .map(|rule| {
            let line = line_of(rule.span().start);
            let rule = rule.into_inner();
            rule.check(line).map(|()| rule)
        })
        .collect()
}
