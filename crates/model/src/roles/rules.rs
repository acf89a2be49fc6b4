//! The rules in force, and what they say of one process at one moment.

use super::command::{command, script};
use super::file::{self, Rule, RulesError};
use crate::Tgid;
use regex::bytes::Captures;
use std::borrow::Cow;
use std::fmt;

/// The role of a process that was asked for, where no rule knows more.
pub const MAIN: &str = "main";

/// Whether a role stands only for not knowing yet: the rules for it have a low weight, so that
/// any other replaces it.
pub fn says_little(role: &str) -> bool {
    const WORDS: [&str; 3] = [MAIN, "idle worker", "multiprocessing child"];
    WORDS.contains(&role) || role.starts_with("fork of ")
}

/// What a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role {
    /// The framework it belongs to, as people write it: "vLLM", "Ray".
    pub framework: Option<String>,
    /// What it is there: "worker", "actor Trainer".
    pub role: String,
    /// Which of several: "TP0", "DP1_TP0", a number.
    pub rank: Option<String>,
}

impl Role {
    /// What it has in common with the other ranks: "vLLM worker".
    pub fn kind(&self) -> String {
        match &self.framework {
            Some(framework) => format!("{framework} {}", self.role),
            None => self.role.clone(),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind())?;
        match &self.rank {
            Some(rank) => write!(f, " {rank}"),
            None => Ok(()),
        }
    }
}

/// Where the environments of processes can be read.
pub trait Environments: fmt::Debug + Send + Sync {
    /// A variable of the environment that a process was started with. `None` also where that can't
    /// be read: it is gone, another user's, or has overwritten it with a title.
    fn variable(&self, tgid: Tgid, variable: &str) -> Option<String>;
}

/// What shows of a process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessTraits<'a> {
    /// The kernel's name, cut at 15 bytes.
    pub comm: &'a str,
    /// The argument area: the command line, or the title over it.
    pub title: Option<&'a str>,
    /// The command line of the last exec.
    pub cmdline: Option<&'a str>,
    /// The file executed last.
    pub exe: Option<&'a str>,
    /// The role of its parent, or of the nearest ancestor where the parent has none.
    pub parent: Option<&'a Role>,
    /// Whether that is the parent itself.
    pub is_parent_near: bool,
    /// The command line of its parent's last exec; `None` when the parent is not known.
    pub parent_cmdline: Option<&'a str>,
    /// Whether it still runs the program it was forked in.
    pub is_forked: bool,
    /// Whether it took another name since it was forked, in that program.
    pub is_renamed: bool,
    /// Where its environment can be read, and as whose.
    pub environment: Option<(&'a dyn Environments, Tgid)>,
}

/// What the rules say of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// What it is.
    pub role: Role,
    /// How much that says: a role of less weight does not replace one of more.
    pub weight: u8,
    /// The environment variable that has the rank, where the looks do not tell it.
    pub rank_variable: Option<&'a str>,
    /// What this makes of its parent, where no rule says what that is.
    pub role_of_parent: Option<Role>,
}

/// Rules in the order in which they are asked.
#[derive(Clone, Debug)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// The rules that come with memtrace.
    ///
    /// # Errors
    /// Never, as a test makes sure.
    pub fn builtin() -> Result<Self, RulesError> {
        file::parse(include_str!("rules.toml")).map(Self)
    }

    /// The same, with those of a file asked first. `text` is what is in the file.
    ///
    /// # Errors
    /// When the text is not of the form; the message names the line.
    pub fn with(text: &str) -> Result<Self, RulesError> {
        let mut rules = file::parse(text)?;
        rules.extend(Self::builtin()?.0);
        Ok(Self(rules))
    }

    /// What a process is that looks so.
    pub fn find(&self, looks: &ProcessTraits<'_>) -> Option<Found<'_>> {
        // Where the arguments could not be read, the name is all there is of the title.
        let comm = Some(looks.comm).filter(|comm| !comm.is_empty());
        let title = looks.title.filter(|title| !title.is_empty()).or(comm);
        let texts = Texts {
            comm,
            title,
            run: title.map(command),
            parent_run: looks.parent_cmdline.map(command),
        };
        self.0.iter().find_map(|rule| rule.find(looks, &texts))
    }
}

/// What all rules look at.
struct Texts<'a> {
    comm: Option<&'a str>,
    title: Option<&'a str>,
    /// What it runs.
    run: Option<Cow<'a, str>>,
    parent_run: Option<Cow<'a, str>>,
}

impl Rule {
    fn find(&self, looks: &ProcessTraits<'_>, texts: &Texts<'_>) -> Option<Found<'_>> {
        let is_other = |wanted: Option<bool>, is: bool| wanted.is_some_and(|wanted| wanted != is);
        if is_other(self.is_forked, looks.is_forked) || is_other(self.is_renamed, looks.is_renamed)
        {
            return None;
        }
        let parent = looks.parent.filter(|_| looks.is_parent_near);
        let Texts {
            comm,
            title,
            run,
            parent_run,
        } = texts;
        if let Some(wanted) = self.is_parents_script {
            let of_parent = parent_run.as_deref().and_then(script);
            let is_same = of_parent.is_some() && run.as_deref().and_then(script) == of_parent;
            if is_same != wanted {
                return None;
            }
        }
        let mut captured = Vec::new();
        let wanted = [
            (&self.title, *title),
            (&self.comm, *comm),
            (&self.cmdline, looks.cmdline),
            (&self.command, run.as_deref()),
            (&self.exe, looks.exe),
            (&self.parent, parent.map(|parent| parent.role.as_str())),
            (
                &self.parent_framework,
                parent.and_then(|parent| parent.framework.as_deref()),
            ),
            (&self.parent_command, parent_run.as_deref()),
        ];
        for (pattern, text) in wanted {
            if let Some(pattern) = pattern {
                captured.push(pattern.0.captures(text?.as_bytes())?);
            }
        }
        // Asked last, since it is read from the system.
        if let Some(variable) = &self.environment {
            let (environments, tgid) = looks.environment?;
            environments.variable(tgid, variable)?;
        }
        let name = fill(&self.role, &captured);
        // What it is called by matched nothing: it would lose the names it has.
        if name.trim().is_empty() {
            return None;
        }
        let framework = self
            .framework
            .clone()
            .or_else(|| looks.parent.and_then(|parent| parent.framework.clone()));
        let role = Role {
            role: name,
            rank: self.rank(group(&captured, "rank").as_deref(), looks.parent),
            framework: framework.clone(),
        };
        let of_parent = |role: &String| Role {
            framework: framework.clone(),
            role: role.clone(),
            rank: None,
        };
        Some(Found {
            role,
            weight: self.weight,
            rank_variable: self.rank_variable.as_deref(),
            role_of_parent: self.role_of_parent.as_ref().map(of_parent),
        })
    }

    /// The rank in the looks, behind that of the parent where the rule says so and the looks
    /// do not have it themselves.
    fn rank(&self, own: Option<&str>, parent: Option<&Role>) -> Option<String> {
        let parent = parent.filter(|_| self.has_rank_of_parent);
        let parent = parent.and_then(|parent| parent.rank.as_deref());
        match (parent, own) {
            (Some(parent), Some(own)) if !own.split('_').any(|part| part == parent) => {
                Some(format!("{parent}_{own}"))
            }
            (parent, own) => own.or(parent).map(str::to_owned),
        }
    }
}

fn group<'t>(captured: &[Captures<'t>], name: &str) -> Option<Cow<'t, str>> {
    let mut groups = captured.iter().filter_map(|captures| captures.name(name));
    groups
        .next()
        .map(|group| String::from_utf8_lossy(group.as_bytes()))
}

/// Puts what was captured into the braces of a role.
fn fill(template: &str, captured: &[Captures<'_>]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            break;
        };
        let text = group(captured, name).unwrap_or_default();
        // A title can have line breaks and worse; a role stands in one cell of a table.
        filled.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
        rest = behind;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_low_weight_say_little() {
        let rules = Rules::builtin().expect("rules of the form");
        let ordinary = file::parse("[[role]]\nrole = \"x\"\ncomm = \"x\"").expect("a rule");
        let is_low = |rule: &Rule| rule.weight < ordinary[0].weight;
        for rule in &rules.0 {
            // Of a role that several rules give, the one that knows least counts.
            let mut same = rules.0.iter().filter(|other| other.role == rule.role);
            assert_eq!(says_little(&rule.role), same.any(is_low), "{}", rule.role);
        }
    }
}
