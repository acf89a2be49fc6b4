//! Which processes belong to a recording: the question that every backend answers in its
//! own way, put in one form.

use memtrace_model::Tgid;
use regex::Regex;
use std::path::PathBuf;

/// The processes a recording starts from. Their descendants belong to it too, and one
/// that belongs once belongs for good, also after it is reparented.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Processes that are named by id.
    Roots(Vec<Tgid>),
    /// Processes whose comm or command line matches, now or later.
    Match(Regex),
    /// Processes of a cgroup and of the groups below it, given as the group's directory.
    Cgroup(PathBuf),
    /// Every process that has memory of its own: kernel threads have none.
    All,
}

impl Targets {
    /// Whether the process is one of those asked for by id.
    pub fn is_root(&self, tgid: Tgid) -> bool {
        matches!(self, Self::Roots(roots) if roots.contains(&tgid))
    }

    /// Whether the process is asked for by its names; `title` is its command line, or
    /// what the program wrote over it.
    pub fn matches_name(&self, comm: &str, title: Option<&str>) -> bool {
        match self {
            Self::Match(regex) => regex.is_match(comm) || title.is_some_and(|t| regex.is_match(t)),
            _ => false,
        }
    }

    /// Whether a process can come to belong without being born of a member: by a new
    /// name or by being moved to a cgroup. Then unrecorded processes have to be looked at again.
    pub fn can_adopt(&self) -> bool {
        matches!(self, Self::Match(_) | Self::Cgroup(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_looked_for_in_the_name_and_in_the_whole_title() {
        let targets = Targets::Match(Regex::new("VLLM::Worker_TP[01]").unwrap());
        assert!(targets.matches_name("VLLM::Worker_TP", Some("VLLM::Worker_TP1")));
        assert!(!targets.matches_name("VLLM::Worker_TP", None));
        assert!(!Targets::All.matches_name("VLLM::Worker_TP1", None));
    }

    #[test]
    fn only_ids_make_a_root() {
        let targets = Targets::Roots(vec![Tgid(7)]);
        assert!(targets.is_root(Tgid(7)) && !targets.is_root(Tgid(8)));
        assert!(!Targets::All.is_root(Tgid(7)));
    }
}
