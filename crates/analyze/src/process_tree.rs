//! Who descends from whom, and which siblings are so alike that one line can stand for them.

use super::process::Process;
use super::who::Bundle;
use memtrace_model::{Bytes, Order};
use std::collections::HashMap;
use std::sync::Arc;

/// This many similar processes can be reported in one line.
const MIN_BUNDLE: usize = 5;
/// Up to this many similar processes that matter still get a line each: the workers of one
/// tensor-parallel group, say.
const MAX_ALIKE_SHOWN: usize = 8;
/// A process matters if it holds this share of the whole.
const HEAVY_SHARE: i64 = 50;

/// Children by parent. Processes whose parent is not in the recording are roots.
#[derive(Clone, Debug, Default)]
pub struct ProcessTree {
    roots: Vec<usize>,
    children: HashMap<usize, Vec<usize>>,
    /// The highest own peak in the subtree of each process.
    heaviest: Vec<i64>,
    /// The number of processes below each one.
    descendant_count: Vec<usize>,
}

/// One line of the tree view: a process, or several siblings that are alike, or all small, with all
/// that descends from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLine {
    /// For each level above, whether that branch goes on below this line; the last entry is its
    /// own. Empty for a root.
    pub branches: Vec<bool>,
    /// Whom the line is about.
    pub who: Bundle,
    /// How many processes are below them.
    pub descendant_count: usize,
    /// The highest own peak among them and below them.
    pub heaviest: Option<Bytes>,
}

impl ProcessTree {
    pub(super) fn of(processes: &[Process]) -> Self {
        let mut tree = Self {
            heaviest: processes
                .iter()
                .map(|process| process.peak.rss_bytes.map_or(0, |bytes| bytes.0))
                .collect(),
            descendant_count: vec![0; processes.len()],
            ..Self::default()
        };
        for (position, process) in processes.iter().enumerate() {
            match process.parent {
                Some(parent) => tree.children.entry(parent).or_default().push(position),
                None => tree.roots.push(position),
            }
        }
        // Children before parents, without recursion: a chain of double forks can be as deep
        // as the recording is long.
        let order = tree.parents_first();
        for &position in order.iter().rev() {
            if let Some(parent) = processes[position].parent {
                tree.descendant_count[parent] += tree.descendant_count[position] + 1;
                tree.heaviest[parent] = tree.heaviest[parent].max(tree.heaviest[position]);
            }
        }
        tree
    }

    fn parents_first(&self) -> Vec<usize> {
        let mut order = self.roots.clone();
        let mut next = 0;
        while let Some(&position) = order.get(next) {
            order.extend(self.children(position));
            next += 1;
        }
        order
    }

    /// The processes whose parent is not in the recording, in the order in which they started.
    pub fn roots(&self) -> &[usize] {
        &self.roots
    }

    /// The children of a process, in the order in which they started.
    pub fn children(&self, process: usize) -> &[usize] {
        self.children.get(&process).map_or(&[], Vec::as_slice)
    }

    /// How many processes descend from one.
    pub fn descendant_count(&self, process: usize) -> usize {
        self.descendant_count.get(process).copied().unwrap_or(0)
    }

    /// The tree view, the heaviest branch first. Siblings that matter little against `whole`
    /// share a line, similar ones first.
    pub fn lines(&self, processes: &[Process], whole: Option<Bytes>) -> Vec<TreeLine> {
        let mut lines = Vec::new();
        let mut open = self.siblings(processes, &self.roots, whole);
        open.reverse();
        let mut open: Vec<(Vec<bool>, Node)> =
            open.into_iter().map(|node| (Vec::new(), node)).collect();
        while let Some((branches, node)) = open.pop() {
            match node {
                Node::One(process) => {
                    let below = self.siblings(processes, self.children(process), whole);
                    let count = below.len();
                    for (place, child) in below.into_iter().enumerate().rev() {
                        let mut branches = branches.clone();
                        branches.push(place + 1 < count);
                        open.push((branches, child));
                    }
                    lines.push(self.line(processes, branches, vec![process]));
                }
                Node::Many(members) => lines.push(self.line(processes, branches, members)),
            }
        }
        lines
    }

    fn line(&self, processes: &[Process], branches: Vec<bool>, members: Vec<usize>) -> TreeLine {
        let below = |&member: &usize| self.descendant_count(member);
        let heaviest = members.iter().map(|&member| self.heaviest[member]).max();
        TreeLine {
            branches,
            descendant_count: members.iter().map(below).sum(),
            heaviest: heaviest.filter(|&bytes| bytes > 0).map(Bytes),
            who: Bundle::of(processes, members),
        }
    }

    fn siblings(
        &self,
        processes: &[Process],
        siblings: &[usize],
        whole: Option<Bytes>,
    ) -> Vec<Node> {
        let weight = |&member: &usize| self.heaviest[member];
        let (mut single, mut bundles) =
            bundle_similar(siblings, |&member| &processes[member].shape, weight, whole);
        // What is left can still be a shell script's worth of small helpers.
        let is_light = |member: &usize| weight(member) < heavy_from(whole);
        let small: Vec<usize> = single.iter().copied().filter(is_light).collect();
        if whole.is_some() && small.len() >= MIN_BUNDLE {
            single.retain(|member| !is_light(member));
            bundles.push(small);
        }
        let mut nodes: Vec<Node> = single.into_iter().map(Node::One).collect();
        nodes.order_by_key(|node| std::cmp::Reverse(node.weight(&self.heaviest)));
        nodes.extend(bundles.into_iter().map(Node::Many));
        nodes
    }
}

enum Node {
    One(usize),
    Many(Vec<usize>),
}

impl Node {
    fn weight(&self, heaviest: &[i64]) -> i64 {
        match self {
            Self::One(process) => heaviest[*process],
            Self::Many(_) => 0,
        }
    }
}

/// From where on a process matters.
fn heavy_from(whole: Option<Bytes>) -> i64 {
    whole.map_or(i64::MAX, |whole| (whole.0 / HEAVY_SHARE).max(1))
}

/// Parts those that get a line each from bundles of similar ones. Order is kept within both.
pub(super) fn bundle_similar<'a, T: Copy>(
    members: &[T],
    shape: impl Fn(&T) -> &'a Arc<str>,
    weight: impl Fn(&T) -> i64,
    whole: Option<Bytes>,
) -> (Vec<T>, Vec<Vec<T>>) {
    let heavy_from = heavy_from(whole);
    let mut shapes: Vec<Vec<T>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for member in members {
        let place = *places.entry(shape(member)).or_insert(shapes.len());
        match shapes.get_mut(place) {
            Some(alike) => alike.push(*member),
            None => shapes.push(vec![*member]),
        }
    }
    let (mut single, mut bundles) = (Vec::new(), Vec::new());
    for alike in shapes {
        let (heavy, light): (Vec<T>, Vec<T>) = alike
            .iter()
            .partition(|member| weight(member) >= heavy_from);
        if alike.len() >= MIN_BUNDLE && heavy.len() > MAX_ALIKE_SHOWN {
            bundles.push(alike);
        } else if light.len() >= MIN_BUNDLE {
            single.extend(heavy);
            bundles.push(light);
        } else {
            single.extend(alike);
        }
    }
    (single, bundles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundled(weights: &[(&str, i64)], whole: i64) -> (usize, Vec<usize>) {
        let shapes: Vec<Arc<str>> = weights.iter().map(|(shape, _)| Arc::from(*shape)).collect();
        let members: Vec<usize> = (0..weights.len()).collect();
        let (single, bundles) = bundle_similar(
            &members,
            |&member| &shapes[member],
            |&member| weights[member].1,
            Some(Bytes(whole)),
        );
        (single.len(), bundles.iter().map(Vec::len).collect())
    }

    #[test]
    fn many_small_similar_processes_share_a_line_and_the_heavy_one_keeps_its_own() {
        let mut weights = vec![("cc1plus", 1); 20];
        weights.push(("cc1plus", 500));
        weights.push(("vllm", 400));
        assert_eq!(bundled(&weights, 1_000), (2, vec![20]));
    }

    #[test]
    fn the_workers_of_a_tensor_parallel_group_get_a_line_each() {
        assert_eq!(bundled(&[("worker", 100); 8], 1_000), (8, vec![]));
    }

    #[test]
    fn more_heavy_ones_than_fit_a_screen_share_a_line() {
        assert_eq!(bundled(&[("loader", 100); 64], 1_000), (0, vec![64]));
    }

    #[test]
    fn four_similar_ones_are_not_worth_bundling() {
        assert_eq!(bundled(&[("sh", 1); 4], 1_000), (4, vec![]));
    }
}
