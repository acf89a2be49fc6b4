use super::*;
use crate::{Birth, Tick, exit_row};
use memtrace_model::{Bytes, FirstSeenBy, Tgid};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const SECOND: i64 = 1_000_000_000;

/// A recording by hand: times are in milliseconds, amounts in any unit.
struct Script {
    sections: Sections,
    table: ProcessTable,
    rows: Vec<Record>,
    answers: Arc<Mutex<Vec<DescendantsAnswer>>>,
}

impl Script {
    fn new() -> Self {
        Self {
            sections: Sections::new(DescendantsSource::Events),
            table: ProcessTable::default(),
            rows: Vec::new(),
            answers: Arc::default(),
        }
    }

    fn fork(&mut self, parent: Option<Upid>, at_ms: i64) -> Upid {
        let tgid = Tgid(1000 + u32::try_from(self.table.entered_count()).unwrap());
        let birth = Birth {
            tgid,
            start: ms(at_ms),
            seen_by: FirstSeenBy::Fork,
            parent,
            comm: String::new(),
        };
        self.table.enter(birth, ms(at_ms))
    }

    fn holds(&mut self, upid: Upid, at_ms: i64, rss: i64) {
        let row = MemRow {
            rss_bytes: Some(Bytes(rss)),
            source: Some(MemSource::RssStat),
            ..exit_row(upid, ms(at_ms), &tick(at_ms))
        };
        self.rows.push(Record::Mem(row));
    }

    fn exit(&mut self, upid: Upid, at_ms: i64) {
        let row = exit_row(upid, ms(at_ms), &tick(at_ms));
        self.rows.push(Record::Mem(row));
        self.table.end(upid, ms(at_ms), Some(0));
    }

    fn begin(&mut self, owner: Upid, span: i64, at_ms: i64) {
        let at = ms(at_ms);
        let news = SectionNews::Begin { owner, span, at };
        self.table.news.sections.push(news);
    }

    fn end(&mut self, owner: Upid, span: i64, at_ms: i64) {
        let at = ms(at_ms);
        self.table
            .news
            .sections
            .push(SectionNews::End { owner, span, at });
    }

    fn ask(&mut self, owner: Upid, span: i64, at_ms: i64) {
        let answers = Arc::clone(&self.answers);
        self.table.news.sections.push(SectionNews::Question {
            owner,
            span,
            at: ms(at_ms),
            reply: Box::new(move |answer| answers.lock().unwrap().push(answer.clone())),
        });
    }

    /// A turn: everybody was looked at, and what came until now is taken.
    fn turn(&mut self, at_ms: i64) {
        self.turn_seen_until(at_ms, at_ms);
    }

    /// The same where what happened is reported only until some time before.
    fn turn_seen_until(&mut self, seen_ms: i64, at_ms: i64) {
        let cost = DurationNs(0);
        self.table.note_snapshot(ms(seen_ms), cost);
        self.table.write_changes(true, &mut self.rows);
        let rows = take(&mut self.rows);
        self.sections.take(&rows, &mut self.table, ms(at_ms));
    }

    fn answers(&self) -> Vec<DescendantsAnswer> {
        take(&mut *self.answers.lock().unwrap())
    }

    fn known(&self) -> Vec<Option<i64>> {
        self.answers()
            .into_iter()
            .map(|answer| answer.bytes)
            .collect()
    }

    fn reasons(&self) -> Vec<Option<&'static str>> {
        self.answers()
            .into_iter()
            .map(|answer| answer.reason)
            .collect()
    }
}

fn ms(at: i64) -> BootNs {
    BootNs(SECOND + at * 1_000_000)
}

fn tick(at_ms: i64) -> Tick {
    Tick::at(ms(at_ms))
}

#[test]
fn of_a_look_that_is_behind_what_is_reported_later_still_counts() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    let child = script.fork(Some(root), 1);
    script.begin(root, 7, 10);
    script.holds(child, 11, 100);
    script.turn(20);
    // For three seconds nothing more comes.
    script.end(root, 7, 1_600);
    script.ask(root, 7, 1_610);
    script.turn_seen_until(20, 3_000);
    assert_eq!(script.known(), []);
    script.holds(child, 1_500, 120);
    script.exit(child, 1_550);
    script.turn(3_100);
    assert_eq!(script.known(), [Some(120)]);
}

#[test]
fn the_highest_sum_of_all_descendants_is_reported_the_dead_and_the_orphaned_included() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    let other = script.fork(None, 0);
    let child = script.fork(Some(root), 1);
    let grandchild = script.fork(Some(child), 2);
    script.holds(root, 1, 1_000);
    script.holds(other, 1, 5_000);
    script.holds(child, 2, 10);
    script.begin(root, 7, 10);
    script.holds(grandchild, 11, 100);
    // Its parent goes, and it is still a descendant.
    script.exit(child, 12);
    script.holds(grandchild, 13, 105);
    script.holds(grandchild, 14, 20);
    script.exit(grandchild, 15);
    script.end(root, 7, 20);
    script.ask(root, 7, 21);
    script.turn(30);
    assert_eq!(script.known(), [Some(110)]);
    script.ask(root, 7, 31);
    script.turn(40);
    let again = script.answers();
    let expected = DescendantsAnswer::of(110, DescendantsSource::Events);
    assert_eq!(again, [expected], "as often as it is asked");
}

#[test]
fn what_was_held_before_counts_from_the_begin_and_what_comes_after_the_end_does_not() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    let child = script.fork(Some(root), 1);
    script.holds(child, 2, 900);
    script.holds(child, 3, 300);
    script.begin(root, 1, 5);
    script.end(root, 1, 6);
    script.begin(root, 2, 7);
    script.holds(child, 7, 400);
    script.end(root, 2, 8);
    script.holds(child, 9, 800);
    script.ask(root, 1, 9);
    script.ask(root, 2, 9);
    script.turn(10);
    assert_eq!(script.known(), [Some(300), Some(400)]);
}

#[test]
fn a_process_without_descendants_has_zero_and_sections_nest() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    script.holds(root, 1, 1_000);
    script.begin(root, 1, 2);
    let child = script.fork(Some(root), 3);
    script.begin(child, 1, 4);
    script.holds(child, 4, 50);
    script.begin(root, 2, 5);
    script.holds(child, 6, 60);
    script.holds(child, 7, 10);
    script.end(root, 2, 8);
    script.end(child, 1, 8);
    script.holds(child, 9, 70);
    script.end(root, 1, 10);
    for (owner, span) in [(root, 1), (root, 2), (child, 1)] {
        script.ask(owner, span, 11);
    }
    script.turn(12);
    assert_eq!(script.known(), [Some(70), Some(60), Some(0)]);
}

#[test]
fn rows_and_marks_may_come_out_of_order_for_a_while() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    let child = script.fork(Some(root), 1);
    script.holds(child, 2, 10);
    script.turn(5);
    script.holds(child, 40, 20);
    // A maximum that is reported when RSS has fallen, and a begin that lay in a queue.
    script.holds(child, 30, 90);
    script.begin(root, 1, 20);
    script.turn(50);
    script.end(root, 1, 45);
    script.ask(root, 1, 51);
    script.turn(60);
    assert_eq!(script.known(), [Some(90)]);
}

#[test]
fn an_answer_waits_for_the_next_look_at_everybody_and_for_the_end() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    let child = script.fork(Some(root), 1);
    script.begin(root, 1, 2);
    // The question can be faster than the end, which comes another way.
    script.ask(root, 1, 101);
    script.turn(10);
    script.end(root, 1, 20);
    script.sections.take(&[], &mut script.table, ms(21));
    assert_eq!(script.known(), []);
    // What moved too little to be reported at once is reported by the snapshot.
    script.holds(child, 19, 40);
    script.turn(110);
    assert_eq!(script.known(), [Some(40)]);
}

#[test]
fn a_long_section_is_folded_as_it_goes() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    let child = script.fork(Some(root), 1);
    script.begin(root, 1, 2);
    script.holds(child, 3, 500);
    for at in (100..20_000).step_by(100) {
        script.holds(child, at, at % 300);
        script.turn(at);
        assert!(script.sections.waiting.len() <= 12);
    }
    script.end(root, 1, 20_001);
    script.ask(root, 1, 20_002);
    script.turn(20_100);
    assert_eq!(script.known(), [Some(500)]);
}

#[test]
fn what_is_not_known_says_why() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    script.turn(5_000);
    script.ask(root, 9, 5_001);
    script.begin(root, 1, 5);
    script.end(root, 1, 5_001);
    script.ask(root, 1, 5_002);
    script.begin(root, 2, 5_003);
    script.ask(root, 2, 5_004);
    script.turn(5_100);
    assert_eq!(
        script.reasons(),
        [
            Some("the start of the section is unknown"),
            Some("the section was announced too late")
        ]
    );
    script.turn(10_200);
    let reasons = script.reasons();
    assert_eq!(reasons, [Some("the section was not seen to end")]);
}

#[test]
fn nobody_can_ask_for_more_than_there_is_room_for() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    for span in 0..1_000 {
        script.begin(root, span, 10);
    }
    for span in 0..1_000 {
        script.ask(root, span, 20);
    }
    script.turn(30);
    let owner = &script.sections.owners[&root];
    assert_eq!(owner.sections.len(), SECTIONS_MAX);
    assert!(script.sections.questions.len() <= QUESTIONS_MAX);
    // Those that ended make room, the oldest first.
    for span in 0..100 {
        script.end(root, span, 40);
    }
    script.turn(50);
    script.begin(root, 2_000, 60);
    script.turn(70);
    let owner = &script.sections.owners[&root];
    let spans: Vec<i64> = owner.sections.iter().map(|section| section.span).collect();
    assert_eq!(spans.len(), SECTIONS_MAX);
    assert!(!spans.contains(&0) && spans.contains(&1) && spans.contains(&2_000));
    script.exit(root, 80);
    script.turn(90);
    assert!(script.sections.owners.is_empty());
}

#[test]
fn ended_processes_are_forgotten_and_who_they_left_is_still_below() {
    let mut script = Script::new();
    let root = script.fork(None, 0);
    let mut last = root;
    // A daemon that restarts itself: of each the next one is a child.
    for at in 1..=6_000 {
        let next = script.fork(Some(last), at);
        script.holds(next, at, 7);
        if last != root {
            script.exit(last, at);
        }
        last = next;
        if at % 100 == 0 {
            script.turn(at);
        }
    }
    let known = script.sections.parents.len() + script.sections.ended.len();
    assert!(known < 4 * ENDED_MAX, "{known} of 6,000");
    assert_eq!(script.sections.held.len(), 1, "the last one");
    script.begin(root, 1, 6_001);
    script.holds(last, 6_002, 30);
    script.end(root, 1, 6_003);
    script.ask(root, 1, 6_004);
    script.turn(6_100);
    assert_eq!(script.known(), [Some(30)]);
}

const PROCESSES: usize = 6;

/// The highest sum from `begin` to `end`, of rows (process, time, RSS): what each process held
/// at each instant is what its last row until then says.
fn plainly(rows: &[(usize, i64, i64)], begin: i64, end: i64) -> i64 {
    let at = |instant: i64| -> i64 {
        let until = |process| {
            let mut mine = rows.iter().filter(|row| row.0 == process);
            let last = mine.rfind(|row| row.1 <= instant);
            last.map_or(0, |row| row.2)
        };
        (0..PROCESSES).map(until).sum()
    };
    (begin..=end).map(at).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn any_rows_give_the_sum_that_a_reader_makes_of_them(
        mut rows in prop::collection::vec((0..PROCESSES, 1..3_000_i64, 0..100_i64), 0..60),
        seed in any::<u64>(),
        begin in 1..2_500_i64,
        length in 0..500_i64,
    ) {
        rows.sort_by_key(|row| row.1);
        let mut script = Script::new();
        let root = script.fork(None, 0);
        let mut all = vec![root];
        for process in 0..PROCESSES {
            // A tree of several generations.
            let parent = all[process / 2];
            all.push(script.fork(Some(parent), 0));
        }
        let end = begin + length;
        for turn in (0..3_200).step_by(100) {
            let is_now = |at: i64| at > turn - 100 && at <= turn;
            let mut news: Vec<_> = rows.iter().filter(|row| is_now(row.1)).collect();
            // They arrive as they please, but for those of one process at one time.
            news.sort_by_key(|row| (row.0 as u64 ^ seed, row.1));
            for (process, at, rss) in news {
                script.holds(all[process + 1], *at, *rss);
            }
            if is_now(begin) {
                script.begin(root, 1, begin);
            }
            if is_now(end) {
                script.end(root, 1, end);
            }
            script.turn(turn);
        }
        script.ask(root, 1, 3_200);
        script.turn(3_300);
        prop_assert_eq!(script.known(), [Some(plainly(&rows, begin, end))]);
    }
}
