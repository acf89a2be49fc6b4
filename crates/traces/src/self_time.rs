//! The time of operators without what they called on their thread.
//!
//! Events of a trace come in no order, so all are kept until the end: 24 bytes each, up to a bound.

use std::cmp::Reverse;
use std::collections::HashMap;

/// Of more operators the time of their own is not known: some 100 MB.
const SPANS_MAX: usize = 4 << 20;
/// The same of more threads.
const THREADS_MAX: usize = 65_536;
/// The same of operators within each other: no stack is that deep.
const OPEN_MAX: usize = 65_536;

/// The bit of a name that is one of a call, which is no part of an operator's own time.
const CALL: u32 = 1 << 31;

/// A name by its place among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Operator(u32),
    /// A call of the device's runtime, or a range that the program named.
    Call(u32),
}

/// An operator that ran.
#[derive(Clone, Copy, Debug)]
struct Span {
    thread: u32,
    name: u32,
    begin: i64,
    ns: i64,
}

/// The operators so far.
#[derive(Debug, Default)]
pub(super) struct Spans {
    list: Vec<Span>,
    threads: HashMap<(i64, i64), u32>,
    has_too_many: bool,
}

impl Spans {
    /// Takes an operator or a call of a thread, by the place of its name.
    pub(super) fn take(&mut self, thread: (i64, i64), name: Option<Named>, begin: i64, ns: i64) {
        let next = self.threads.len();
        let thread = *self.threads.entry(thread).or_insert(next as u32);
        let Some(name) = name.filter(|_| !self.has_too_many) else {
            return;
        };
        if self.list.len() == SPANS_MAX || self.threads.len() > THREADS_MAX {
            self.has_too_many = true;
            self.list = Vec::new();
            return;
        }
        let name = match name {
            Named::Operator(place) => place,
            Named::Call(place) => place | CALL,
        };
        self.list.push(Span {
            thread,
            name,
            begin,
            ns,
        });
    }

    /// The time of each name of an operator without what it called, by place; `None` where there were
    /// too many.
    pub(super) fn own(mut self, names: usize) -> Option<Vec<i64>> {
        if self.has_too_many {
            return None;
        }
        self.list.retain(|span| span.name & CALL == 0);
        let mut own = vec![0_i64; names];
        each_own(&mut self.list, |name, ns| {
            let own = &mut own[name as usize];
            *own = own.saturating_add(ns);
        })?;
        Some(own)
    }

    /// What took most time of its own in a stretch of time, of operators and calls: its name, and how
    /// long.
    pub(super) fn most_in(&self, (begin, end): (i64, i64)) -> Option<(Named, i64)> {
        let overlapping = self.list.iter().filter_map(|span| {
            let within = (
                span.begin.max(begin),
                span.begin.saturating_add(span.ns).min(end),
            );
            (within.0 < within.1).then(|| Span {
                begin: within.0,
                ns: within.1 - within.0,
                ..*span
            })
        });
        let mut own: HashMap<u32, i64> = HashMap::new();
        each_own(&mut overlapping.collect(), |name, ns| {
            let own = own.entry(name).or_default();
            *own = own.saturating_add(ns);
        })?;
        let (name, ns) = own
            .into_iter()
            .max_by_key(|&(name, ns)| (ns, Reverse(name)))?;
        let named = match name & CALL {
            0 => Named::Operator(name),
            _ => Named::Call(name & !CALL),
        };
        Some((named, ns))
    }
}

/// Hands on the time of each span without those within it on its thread, in parts; `None` where more of
/// them are within each other than are followed.
fn each_own(list: &mut Vec<Span>, mut add: impl FnMut(u32, i64)) -> Option<()> {
    let key = |span: &Span| (span.thread, span.begin, Reverse(span.ns));
    list.sort_unstable_by_key(key);
    // What is open on the thread: until when, and its name.
    let mut open: Vec<(u32, i64, u32)> = Vec::new();
    for span in list {
        let is_open =
            |(thread, end, _): &mut (u32, i64, u32)| *thread != span.thread || *end <= span.begin;
        while open.pop_if(is_open).is_some() {}
        let end = span.begin.saturating_add(span.ns);
        if let Some(&(_, outer_end, outer)) = open.last() {
            let within = end.min(outer_end).saturating_sub(span.begin);
            add(outer, within.saturating_neg());
        }
        add(span.name, span.ns);
        if open.len() == OPEN_MAX {
            return None;
        }
        open.push((span.thread, end, span.name));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_called_on_its_thread_is_not_its_own() {
        let mut spans = Spans::default();
        let [matmul, mm, fill] = [0, 1, 2].map(|place| Some(Named::Operator(place)));
        // In no order; on the second thread nothing is called by anything.
        spans.take((1, 1), fill, 40, 10);
        spans.take((1, 1), mm, 10, 60);
        spans.take((1, 1), matmul, 0, 100);
        spans.take((1, 2), mm, 20, 30);
        spans.take((1, 1), matmul, 100, 5);
        assert_eq!(spans.own(3), Some(vec![100 - 60 + 5, 60 - 10 + 30, 10]));
    }

    #[test]
    fn a_call_takes_nothing_of_an_operator_and_can_be_what_took_most() {
        let mut spans = Spans::default();
        spans.take((1, 1), Some(Named::Operator(0)), 0, 100);
        spans.take((1, 1), Some(Named::Call(0)), 20, 70);
        spans.take((1, 2), Some(Named::Operator(1)), 0, 60);
        assert_eq!(spans.most_in((0, 200)), Some((Named::Call(0), 70)));
        assert_eq!(spans.most_in((0, 30)), Some((Named::Operator(1), 30)));
        assert_eq!(spans.most_in((90, 95)), Some((Named::Operator(0), 5)));
        assert_eq!(spans.most_in((100, 200)), None);
        assert_eq!(spans.own(2), Some(vec![100, 60]));
    }

    #[test]
    fn a_stack_that_nobody_has_is_not_kept() {
        let mut spans = Spans::default();
        for _ in 0..=OPEN_MAX {
            spans.take((1, 1), Some(Named::Operator(0)), 0, 50);
        }
        assert_eq!(spans.own(1), None);
    }

    #[test]
    fn two_that_overlap_in_part_take_only_what_both_share() {
        let mut spans = Spans::default();
        spans.take((1, 1), Some(Named::Operator(0)), 0, 50);
        spans.take((1, 1), Some(Named::Operator(1)), 40, 30);
        assert_eq!(spans.own(2), Some(vec![40, 30]));
    }
}
