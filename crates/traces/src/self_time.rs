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
    /// Takes an operator of a thread, by the place of its name.
    pub(super) fn take(&mut self, thread: (i64, i64), name: Option<u32>, begin: i64, ns: i64) {
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
        self.list.push(Span {
            thread,
            name,
            begin,
            ns,
        });
    }

    /// The time of each name without what it called, by place; `None` where there were too many.
    pub(super) fn own(mut self, names: usize) -> Option<Vec<i64>> {
        if self.has_too_many {
            return None;
        }
        let key = |span: &Span| (span.thread, span.begin, Reverse(span.ns));
        self.list.sort_unstable_by_key(key);
        let mut own = vec![0_i64; names];
        // What is open on the thread: until when, and its name.
        let mut open: Vec<(u32, i64, u32)> = Vec::new();
        for span in &self.list {
            let is_open = |(thread, end, _): &mut (u32, i64, u32)| {
                *thread != span.thread || *end <= span.begin
            };
            while open.pop_if(is_open).is_some() {}
            let end = span.begin.saturating_add(span.ns);
            if let Some(&(_, outer_end, outer)) = open.last() {
                let within = end.min(outer_end).saturating_sub(span.begin);
                let outer = &mut own[outer as usize];
                *outer = outer.saturating_sub(within);
            }
            let own = &mut own[span.name as usize];
            *own = own.saturating_add(span.ns);
            if open.len() == OPEN_MAX {
                return None;
            }
            open.push((span.thread, end, span.name));
        }
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_called_on_its_thread_is_not_its_own() {
        let mut spans = Spans::default();
        let (matmul, mm, fill) = (Some(0), Some(1), Some(2));
        // In no order; on the second thread nothing is called by anything.
        spans.take((1, 1), fill, 40, 10);
        spans.take((1, 1), mm, 10, 60);
        spans.take((1, 1), matmul, 0, 100);
        spans.take((1, 2), mm, 20, 30);
        spans.take((1, 1), matmul, 100, 5);
        assert_eq!(spans.own(3), Some(vec![100 - 60 + 5, 60 - 10 + 30, 10]));
    }

    #[test]
    fn a_stack_that_nobody_has_is_not_kept() {
        let mut spans = Spans::default();
        for _ in 0..=OPEN_MAX {
            spans.take((1, 1), Some(0), 0, 50);
        }
        assert_eq!(spans.own(1), None);
    }

    #[test]
    fn two_that_overlap_in_part_take_only_what_both_share() {
        let mut spans = Spans::default();
        spans.take((1, 1), Some(0), 0, 50);
        spans.take((1, 1), Some(1), 40, 30);
        assert_eq!(spans.own(2), Some(vec![40, 30]));
    }
}
