//! The time of operators without what they called on their thread, and which of them a moment is in.
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
/// The bit of a name that is one of a range, which is none either.
const RANGE: u32 = 1 << 30;

/// A name by its place among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Named {
    Operator(u32),
    /// A call of the device's runtime, or a step.
    Call(u32),
    /// A range that the program named.
    Range(u32),
}

impl Named {
    fn packed(self) -> u32 {
        match self {
            Self::Operator(place) => place,
            Self::Call(place) => place | CALL,
            Self::Range(place) => place | RANGE,
        }
    }

    fn unpacked(name: u32) -> Self {
        match name {
            _ if name & CALL != 0 => Self::Call(name & !CALL),
            _ if name & RANGE != 0 => Self::Range(name & !RANGE),
            _ => Self::Operator(name),
        }
    }
}

/// Something at a time of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<T> {
    /// The place of the thread.
    pub(super) thread: u32,
    pub(super) at: i64,
    pub(super) what: T,
}

/// An operator that ran.
#[derive(Clone, Copy, Debug)]
struct Span {
    thread: u32,
    name: u32,
    begin: i64,
    ns: i64,
}

impl Span {
    fn end(&self) -> i64 {
        self.begin.saturating_add(self.ns)
    }

    /// By thread; what is within another stands behind it.
    fn order(&self) -> (u32, i64, Reverse<i64>) {
        (self.thread, self.begin, Reverse(self.ns))
    }
}

/// The operators so far.
#[derive(Debug, Default)]
pub(super) struct Spans {
    list: Vec<Span>,
    threads: HashMap<(i64, i64), u32>,
    has_too_many: bool,
}

impl Spans {
    /// The place of a thread; `None` for one too many.
    pub(super) fn thread(&mut self, thread: (i64, i64)) -> Option<u32> {
        let next = self.threads.len();
        if next == THREADS_MAX && !self.threads.contains_key(&thread) {
            self.has_too_many = true;
            return None;
        }
        Some(*self.threads.entry(thread).or_insert(next as u32))
    }

    /// Takes an operator, a call or a range of a thread, by the place of its name.
    pub(super) fn take(&mut self, thread: (i64, i64), name: Named, begin: i64, ns: i64) {
        let (Some(thread), false) = (self.thread(thread), self.has_too_many) else {
            return;
        };
        if self.list.len() == SPANS_MAX {
            self.has_too_many = true;
            self.list = Vec::new();
            return;
        }
        self.list.push(Span {
            thread,
            name: name.packed(),
            begin,
            ns,
        });
    }

    /// All of them; `None` where there were too many.
    pub(super) fn sorted(mut self) -> Option<Sorted> {
        // Of two that take the same time the first is around the second: the sort is stable.
        self.list.sort_by_key(Span::order);
        (!self.has_too_many).then_some(Sorted(self.list))
    }
}

/// Spans by thread; what is within another stands behind it.
#[derive(Debug)]
pub(super) struct Sorted(Vec<Span>);

impl Sorted {
    /// The time of each name of an operator without what it called, by place; `None` where more are within
    /// each other than are followed.
    pub(super) fn own(&self, places: usize) -> Option<Vec<i64>> {
        let operators = self.0.iter().copied();
        let operators = operators.filter(|span| span.name & (CALL | RANGE) == 0);
        let mut own = vec![0_i64; places];
        each_own(operators, |_, name, ns| {
            let own = &mut own[name as usize];
            *own = own.saturating_add(ns);
        })?;
        Some(own)
    }

    /// Hands on each of these moments with the innermost operator or range that its thread was in; `None`
    /// where more are within each other than are followed.
    pub(super) fn enclosing<T>(
        &self,
        moments: &mut [Moment<T>],
        mut found: impl FnMut(&Moment<T>, Option<Named>),
    ) -> Option<()> {
        moments.sort_unstable_by_key(|moment| (moment.thread, moment.at));
        let mut begun = self.0.iter().filter(|span| span.name & CALL == 0);
        let mut next = begun.next();
        let mut open: Vec<Span> = Vec::new();
        for moment in moments {
            while let Some(span) =
                next.filter(|span| (span.thread, span.begin) <= (moment.thread, moment.at))
            {
                let is_over =
                    |known: &mut Span| known.thread != span.thread || known.end() <= span.begin;
                while open.pop_if(is_over).is_some() {}
                if open.len() == OPEN_MAX {
                    return None;
                }
                open.push(*span);
                next = begun.next();
            }
            let is_over =
                |known: &mut Span| known.thread != moment.thread || known.end() < moment.at;
            while open.pop_if(is_over).is_some() {}
            found(moment, open.last().map(|span| Named::unpacked(span.name)));
        }
        Some(())
    }

    /// What took most time of its own on one thread in a stretch of time, of operators, calls and ranges:
    /// its name if anything did, and how long; `None` where more are within each other than are followed.
    pub(super) fn most_in(&self, (begin, end): (i64, i64)) -> Option<(Option<Named>, i64)> {
        let overlapping = self.0.iter().filter_map(|span| {
            let within = (span.begin.max(begin), span.end().min(end));
            (within.0 < within.1).then(|| Span {
                begin: within.0,
                ns: within.1 - within.0,
                ..*span
            })
        });
        let mut own: HashMap<(u32, u32), i64> = HashMap::new();
        each_own(overlapping, |thread, name, ns| {
            let own = own.entry((thread, name)).or_default();
            *own = own.saturating_add(ns);
        })?;
        let most = own
            .into_iter()
            .max_by_key(|&((thread, name), ns)| (ns, Reverse((name, thread))));
        let most = most.map(|((_, name), ns)| (Some(Named::unpacked(name)), ns));
        Some(most.unwrap_or((None, 0)))
    }
}

/// Hands on the time of each span without those within it on its thread, in parts; `None` where more of
/// them are within each other than are followed. They come as they are sorted.
fn each_own(list: impl Iterator<Item = Span>, mut add: impl FnMut(u32, u32, i64)) -> Option<()> {
    // What is open on the thread: until when, and its name.
    let mut open: Vec<(u32, i64, u32)> = Vec::new();
    for span in list {
        let is_open =
            |(thread, end, _): &mut (u32, i64, u32)| *thread != span.thread || *end <= span.begin;
        while open.pop_if(is_open).is_some() {}
        let end = span.end();
        if let Some(&(thread, outer_end, outer)) = open.last() {
            let within = end.min(outer_end).saturating_sub(span.begin);
            add(thread, outer, within.saturating_neg());
        }
        add(span.thread, span.name, span.ns);
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
        let [matmul, mm, fill] = [0, 1, 2].map(Named::Operator);
        // In no order; on the second thread nothing is called by anything.
        spans.take((1, 1), fill, 40, 10);
        spans.take((1, 1), mm, 10, 60);
        spans.take((1, 1), matmul, 0, 100);
        spans.take((1, 2), mm, 20, 30);
        spans.take((1, 1), matmul, 100, 5);
        assert_eq!(
            spans.sorted().unwrap().own(3),
            Some(vec![100 - 60 + 5, 60 - 10 + 30, 10])
        );
    }

    #[test]
    fn a_call_takes_nothing_of_an_operator_and_can_be_what_took_most() {
        let mut spans = Spans::default();
        spans.take((1, 1), Named::Operator(0), 0, 100);
        spans.take((1, 1), Named::Call(0), 20, 70);
        spans.take((1, 2), Named::Operator(1), 0, 60);
        let spans = spans.sorted().unwrap();
        assert_eq!(spans.most_in((0, 200)), Some((Some(Named::Call(0)), 70)));
        assert_eq!(spans.most_in((0, 30)), Some((Some(Named::Operator(1)), 30)));
        assert_eq!(spans.most_in((90, 95)), Some((Some(Named::Operator(0)), 5)));
        assert_eq!(spans.most_in((100, 200)), Some((None, 0)));
        assert_eq!(spans.own(2), Some(vec![100, 60]));
    }

    #[test]
    fn of_calls_within_each_other_that_cover_a_stretch_the_innermost_took_it() {
        let mut spans = Spans::default();
        // The innermost come first, and these two take the same time.
        for place in [41, 42] {
            spans.take((1, 1), Named::Operator(place), 39, 922);
        }
        for place in (0..39).rev() {
            let inset = i64::from(place);
            spans.take((1, 1), Named::Operator(place), inset, 1_000 - 2 * inset);
        }
        let spans = spans.sorted().unwrap();
        assert_eq!(
            spans.most_in((100, 900)),
            Some((Some(Named::Operator(42)), 800))
        );
        let mut moments = [Moment {
            thread: 0,
            at: 500,
            what: (),
        }];
        let mut innermost = None;
        spans.enclosing(&mut moments, |_, name| innermost = name);
        assert_eq!(innermost, Some(Named::Operator(42)));
    }

    #[test]
    fn threads_that_wait_in_one_call_at_once_are_not_added_up() {
        let mut spans = Spans::default();
        for thread in 0..3 {
            spans.take((1, thread), Named::Call(0), 0, 60);
        }
        spans.take((1, 7), Named::Operator(0), 0, 70);
        let spans = spans.sorted().unwrap();
        assert_eq!(
            spans.most_in((0, 100)),
            Some((Some(Named::Operator(0)), 70))
        );
        assert_eq!(spans.most_in((0, 50)), Some((Some(Named::Operator(0)), 50)));
    }

    #[test]
    fn a_moment_is_in_the_innermost_operator_or_range_of_its_thread() {
        let mut spans = Spans::default();
        spans.take((1, 1), Named::Operator(1), 10, 20);
        spans.take((1, 1), Named::Operator(0), 0, 100);
        spans.take((1, 1), Named::Call(5), 50, 30);
        spans.take((1, 2), Named::Range(7), 0, 40);
        let mut moments = Vec::new();
        for (thread, at) in [
            (1, 60),
            (1, 15),
            (1, 30),
            (1, 31),
            (1, 100),
            (1, 101),
            (2, 15),
            (2, 41),
            (3, 15),
        ] {
            let thread = spans.thread((1, thread)).expect("a place");
            moments.push(Moment {
                thread,
                at,
                what: (),
            });
        }
        let mut found = Vec::new();
        let in_order = |moment: &Moment<()>, name| found.push((moment.thread, moment.at, name));
        let spans = spans.sorted().unwrap();
        assert_eq!(spans.enclosing(&mut moments, in_order), Some(()));
        let (outer, inner, range) = (
            Some(Named::Operator(0)),
            Some(Named::Operator(1)),
            Some(Named::Range(7)),
        );
        let expected = [
            (0, 15, inner),
            (0, 30, inner),
            (0, 31, outer),
            (0, 60, outer),
            (0, 100, outer),
            (0, 101, None),
            (1, 15, range),
            (1, 41, None),
            (2, 15, None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_stack_that_nobody_has_is_not_kept() {
        let mut spans = Spans::default();
        for _ in 0..=OPEN_MAX {
            spans.take((1, 1), Named::Operator(0), 0, 50);
        }
        assert_eq!(spans.sorted().unwrap().own(1), None);
    }

    #[test]
    fn of_more_threads_than_are_followed_no_more_are_kept() {
        let mut spans = Spans::default();
        for thread in 0..=THREADS_MAX as i64 + 9 {
            spans.take((1, thread), Named::Operator(0), 0, 50);
        }
        assert_eq!(spans.threads.len(), THREADS_MAX);
        assert!(spans.sorted().is_none());
    }

    #[test]
    fn two_that_overlap_in_part_take_only_what_both_share() {
        let mut spans = Spans::default();
        spans.take((1, 1), Named::Operator(0), 0, 50);
        spans.take((1, 1), Named::Operator(1), 40, 30);
        assert_eq!(spans.sorted().unwrap().own(2), Some(vec![40, 30]));
    }
}
