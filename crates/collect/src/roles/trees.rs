//! Walks trees of processes of real frameworks, `trees.txt`, and compares what each is called.

use super::tests::Stage;
use super::*;
use std::collections::{BTreeMap, HashMap};

/// Environments of the processes of a tree.
#[derive(Debug, Default)]
struct Written(HashMap<(Tgid, String), String>);

impl Environments for Written {
    fn variable(&self, tgid: Tgid, variable: &str) -> Option<String> {
        self.0.get(&(tgid, variable.to_owned())).cloned()
    }
}

/// The process of a line, what happens to it, and the rest of the line.
fn words(line: &str) -> (u32, &str, &str) {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default();
    (word().parse().expect(line), word(), word())
}

/// One tree: the wrong names in it, and how many processes it has.
fn differences(lines: &[&str]) -> (Vec<String>, usize) {
    let mut environments = Written::default();
    for line in lines {
        if let (tgid, "env", rest) = words(line) {
            let (name, value) = rest.split_once('=').expect(line);
            let name = (Tgid(tgid), name.to_owned());
            environments.0.insert(name, value.to_owned());
        }
    }
    let mut stage = Stage::new();
    stage.roles.environments = Box::new(environments);
    let mut processes: BTreeMap<u32, Upid> = BTreeMap::new();
    let mut expected: BTreeMap<u32, &str> = BTreeMap::new();
    for line in lines {
        let (tgid, what, rest) = words(line);
        let known = processes.get(&tgid).copied();
        match what {
            "exec" => {
                let (parent, command) = rest.split_once(' ').expect(line);
                let parent = processes.get(&parent.parse().expect(line)).copied();
                let upid = known.unwrap_or_else(|| stage.fork(tgid, parent));
                stage.name(upid, TitleSource::Exec, command);
                processes.insert(tgid, upid);
            }
            "fork" => {
                let parent = processes.get(&rest.parse().expect(line)).copied();
                processes.insert(tgid, stage.fork(tgid, parent));
            }
            "title" => stage.name(known.expect(line), TitleSource::Rename, rest),
            "comm" => stage.name_comm(known.expect(line), rest),
            "env" => {}
            "=" => {
                expected.insert(tgid, rest);
            }
            _ => panic!("{line}"),
        }
        stage.write();
    }
    let names: BTreeMap<u32, String> = processes
        .iter()
        .map(|(&tgid, &upid)| (tgid, stage.role(upid)))
        .collect();
    let all = names.keys().chain(expected.keys());
    let wrong = all.filter_map(|tgid| {
        let name = names.get(tgid).map(|name| match name.as_str() {
            "" => "-",
            name => name,
        });
        let expected = expected.get(tgid).copied();
        (name != expected).then(|| format!("{tgid} is {name:?}, not {expected:?}"))
    });
    (wrong.collect(), names.len())
}

#[test]
fn every_process_of_a_frameworks_tree_is_called_what_it_is() {
    let mut trees: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in include_str!("trees.txt").lines() {
        if let Some(name) = line.strip_prefix("== ") {
            trees.push((name, Vec::new()));
        } else if !line.is_empty()
            && let Some((_, lines)) = trees.last_mut()
        {
            lines.push(line);
        }
    }
    let mut wrong = Vec::new();
    for (name, lines) in &trees {
        let (differences, count) = differences(lines);
        assert!(count > 1, "{name}");
        wrong.extend(differences.iter().map(|what| format!("{name}: {what}")));
    }
    assert!(trees.len() > 20);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
