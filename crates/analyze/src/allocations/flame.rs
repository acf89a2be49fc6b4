//! Resident memory by stack as trees, for whoever draws it.

use super::resident::{Resident, ResidentProcess, RssThen};
use memtrace_model::{Bytes, FrameKind, Order, RowSource, Upid};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Processes that have a tree.
const PROCESSES_MAX: usize = 30;
/// Functions of one process: the largest.
const PARTS_MAX: usize = 2_000;
/// A stack is cut at so many frames from the outermost.
const FRAMES_MAX: usize = 256;
/// Smaller ones than one part in so many of a process are not drawn.
const SMALLEST: i64 = 1_000;

/// A function with what was resident of memory that it, or what it called, touched first.
#[derive(Clone, Debug, Serialize)]
pub struct Flame {
    /// What it is called; at the root the process.
    name: String,
    /// What it is of; null at the root.
    kind: Option<FrameKind>,
    /// Whose it is, at the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    upid: Option<Upid>,
    /// Resident memory, by samples.
    bytes: Bytes,
    /// What it called, the largest first. They can add up to less.
    parts: Vec<Flame>,
}

/// The trees of the processes of which most was resident, at an instant or at the end.
pub(crate) fn flames<S: RowSource>(
    source: &S,
    at: Option<&RssThen>,
) -> Result<Vec<Flame>, S::Error> {
    let resident = Resident::read(source, at)?;
    let trees = resident.processes.iter();
    let mut trees: Vec<Flame> = trees.map(|process| tree(&resident, process)).collect();
    trees.order_by_key(|tree| Reverse(tree.bytes));
    trees.truncate(PROCESSES_MAX);
    Ok(trees)
}

/// A function in a stack: its place among those of a process is that of the first stack that has it.
struct Node<'a> {
    /// Its caller, which comes before it.
    caller: usize,
    frame: Option<&'a super::StackFrame>,
    bytes: i64,
}

fn tree(resident: &Resident, process: &ResidentProcess) -> Flame {
    let mut nodes = vec![Node {
        caller: 0,
        frame: None,
        bytes: 0,
    }];
    let mut places: HashMap<(usize, String), usize> = HashMap::new();
    for (stack_id, Bytes(bytes)) in &process.stacks {
        let mut at = 0;
        nodes[at].bytes = nodes[at].bytes.saturating_add(*bytes);
        let frames = resident.frames(*stack_id);
        for frame in frames.iter().rev().take(FRAMES_MAX) {
            let count = nodes.len();
            let place = *places.entry((at, frame.in_words())).or_insert(count);
            if place == count {
                nodes.push(Node {
                    caller: at,
                    frame: Some(frame),
                    bytes: 0,
                });
            }
            nodes[place].bytes = nodes[place].bytes.saturating_add(*bytes);
            at = place;
        }
    }
    let mut sizes: Vec<i64> = nodes.iter().map(|node| node.bytes).collect();
    sizes.sort_unstable_by_key(|bytes| Reverse(*bytes));
    let whole = sizes.first().copied().unwrap_or_default();
    let least = sizes.get(PARTS_MAX).copied().unwrap_or_default();
    let least = least.max(whole / SMALLEST);
    // From the last on, so that what a function called is complete when it comes to its caller.
    let mut parts: Vec<Vec<Flame>> = nodes.iter().map(|_| Vec::new()).collect();
    for (place, node) in nodes.iter().enumerate().skip(1).rev() {
        let mut called = std::mem::take(&mut parts[place]);
        called.order_by_key(|part| Reverse(part.bytes));
        if node.bytes > least {
            parts[node.caller].push(Flame {
                name: node
                    .frame
                    .map(super::StackFrame::in_words)
                    .unwrap_or_default(),
                kind: node.frame.and_then(|frame| frame.row.kind),
                upid: None,
                bytes: Bytes(node.bytes),
                parts: called,
            });
        }
    }
    let mut called = std::mem::take(&mut parts[0]);
    called.order_by_key(|part| Reverse(part.bytes));
    Flame {
        name: process.name.clone(),
        kind: None,
        upid: Some(process.upid),
        bytes: Bytes(whole),
        parts: called,
    }
}
