//! What the descendants of a process held together, at most, in a section that the process
//! marked: the answer to a question that it may ask once the section has ended.
//!
//! The same sum that a reader makes of the recording: rows of `mem` as step functions, those
//! of all descendants added up. Rows come a little out of order (a maximum is reported when RSS
//! has fallen from it), and begins after rows that are later than they, so both wait before
//! they are folded into the sums: until a question needs them, or for [`LAG`] and until the next
//! whole look.

use super::{ProcessTable, Reply, SectionNews};
use memtrace_model::{
    BootNs, DescendantsAnswer, DescendantsSource, DurationNs, MemRow, MemSource, ProcessRow,
    Record, Upid,
};
use std::collections::{HashMap, HashSet};
use std::mem::take;

/// How long rows and begins may be on their way.
const LAG: DurationNs = DurationNs(1_000_000_000);
/// Rows that may wait; of more, the oldest half is folded at once. Some 3 MiB.
const WAITING_MAX: usize = 1 << 16;
/// Processes that measure sections.
const OWNERS_MAX: usize = 1024;
/// Sections of one process that are known: open ones, and the newest of those that ended.
const SECTIONS_MAX: usize = 256;
/// Questions that may wait.
const QUESTIONS_MAX: usize = 64;
/// A question waits so long for the next look at all processes, then for none.
const PATIENCE: DurationNs = DurationNs(5_000_000_000);
/// When so many more have ended, they leave their places in the line of descent.
const ENDED_MAX: usize = 1024;
/// Generations between a process and an ancestor that asks, the ended ones included.
const ANCESTORS_MAX: usize = 4 * ENDED_MAX;

/// Follows what all processes hold, and the sections of those that measure some.
#[derive(Debug)]
pub struct Sections {
    source: DescendantsSource,
    /// Of whom each process descends.
    parents: HashMap<Upid, Upid>,
    ended: HashSet<Upid>,
    /// When `ended` holds so many, those that nothing is expected of any more go.
    ended_max: usize,
    /// RSS, and the time of the row that said so, as far as rows are folded.
    held: HashMap<Upid, (BootNs, i64)>,
    folded: BootNs,
    waiting: Vec<Step>,
    owners: HashMap<Upid, Owner>,
    questions: Vec<Question>,
}

/// Something that happened at a time. At one time, rows come first and an end last: what
/// begins and what ends then is within.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: BootNs,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Row { upid: Upid, rss: i64, is_exit: bool },
    Begin(Upid, i64),
    End(Upid, i64),
}

impl Step {
    fn order(&self) -> (BootNs, u8) {
        let class = match self.what {
            What::Row { .. } => 0,
            What::Begin(..) => 1,
            What::End(..) => 2,
        };
        (self.at, class)
    }
}

/// A process that measures sections.
#[derive(Debug, Default)]
struct Owner {
    /// What its descendants hold; `None` until its first begin is folded.
    sum: Option<i64>,
    /// In the order in which they were reported.
    sections: Vec<Section>,
}

#[derive(Debug)]
struct Section {
    span: i64,
    end: Option<BootNs>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Its begin is not folded yet.
    Reported,
    Running(i64),
    Over(i64),
    /// Its begin or its end came after rows that were later and are folded.
    TooLate,
}

#[derive(Debug)]
struct Question {
    owner: Upid,
    span: i64,
    at: BootNs,
    reply: ReplyBox,
}

/// A reply, which has nothing to show.
struct ReplyBox(Reply);

impl std::fmt::Debug for ReplyBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("reply")
    }
}

impl Sections {
    /// Nobody is known yet. `source`: how rows come to be.
    pub fn new(source: DescendantsSource) -> Self {
        Self {
            source,
            parents: HashMap::new(),
            ended: HashSet::new(),
            ended_max: ENDED_MAX,
            held: HashMap::new(),
            folded: BootNs(0),
            waiting: Vec::new(),
            owners: HashMap::new(),
            questions: Vec::new(),
        }
    }

    /// Takes new rows and news, and answers what can be answered by now.
    pub fn take(&mut self, rows: &[Record], table: &mut ProcessTable, now: BootNs) {
        // A process's first row of `mem` comes before its own, which is written at the end.
        for row in rows {
            match row {
                Record::Process(row) => self.meet(row),
                // What a process says of itself is not what the recorder saw.
                Record::Mem(row) if row.source == Some(MemSource::SelfReported) => {}
                Record::Mem(row) => self.waiting.push(step(row)),
                _ => {}
            }
        }
        for news in take(&mut table.news.sections) {
            self.hear(news);
        }
        if self.waiting.len() > WAITING_MAX {
            self.sort();
            let oldest = self.waiting[WAITING_MAX / 2].at;
            self.fold(oldest);
        }
        // What a look that is behind has not reported is on its way for longer.
        if let Some(seen) = table.snapshot_at() {
            self.fold(BootNs(seen.0.min(now.0 - LAG.0)));
        }
        self.answer(table.snapshot_at(), now);
        self.forget_ended();
    }

    fn meet(&mut self, row: &ProcessRow) {
        if let Some(parent) = row.parent_upid {
            self.parents.insert(row.upid, parent);
        }
        if row.exit_boot_ns.is_some() {
            self.ended.insert(row.upid);
            self.owners.remove(&row.upid);
        }
    }

    fn hear(&mut self, news: SectionNews) {
        match news {
            SectionNews::Begin { owner, span, at } => {
                let has_room = self.owners.len() < OWNERS_MAX || self.owners.contains_key(&owner);
                if self.ended.contains(&owner) || !has_room {
                    return;
                }
                let state = match at < self.folded {
                    true => State::TooLate,
                    false => State::Reported,
                };
                let is_known = self.owners.entry(owner).or_default().begin(span, state);
                if is_known && at >= self.folded {
                    self.waiting.push(Step {
                        at,
                        what: What::Begin(owner, span),
                    });
                }
            }
            SectionNews::End { owner, span, at } => {
                let section = self.owners.get_mut(&owner);
                if let Some(section) = section.and_then(|owner| owner.section(span)) {
                    section.end = Some(at);
                    if at < self.folded {
                        section.state = State::TooLate;
                    }
                    self.waiting.push(Step {
                        at,
                        what: What::End(owner, span),
                    });
                }
            }
            SectionNews::Question {
                owner,
                span,
                at,
                reply,
            } => {
                if self.questions.len() < QUESTIONS_MAX {
                    let reply = ReplyBox(reply);
                    self.questions.push(Question {
                        owner,
                        span,
                        at,
                        reply,
                    });
                }
            }
        }
    }

    fn answer(&mut self, snapshot: Option<BootNs>, now: BootNs) {
        for question in take(&mut self.questions) {
            let section = self.owners.get_mut(&question.owner);
            let section = section.and_then(|owner| owner.section(question.span));
            let end = section.as_ref().and_then(|section| section.end);
            // What moved a little until the end is known from the next look at everyone.
            let is_seen = end.is_some_and(|end| snapshot.is_some_and(|seen| seen >= end));
            let is_new = now.0 - question.at.0 < PATIENCE.0;
            // An end can be behind the question, which comes another way.
            if section.is_some() && !is_seen && is_new {
                self.questions.push(question);
                continue;
            }
            if let (true, Some(end)) = (is_seen, end) {
                self.fold(end);
            }
            let section = self.owners.get_mut(&question.owner);
            let section = section.and_then(|owner| owner.section(question.span));
            let answer = match section.map(|section| &section.state) {
                Some(State::Over(bytes)) => DescendantsAnswer::of(*bytes, self.source),
                Some(State::TooLate) => DescendantsAnswer::unknown(
                    "the section was announced too \
                     late",
                ),
                Some(_) => DescendantsAnswer::unknown("the section was not seen to end"),
                None => DescendantsAnswer::unknown("the start of the section is unknown"),
            };
            (question.reply.0)(&answer);
        }
    }

    fn sort(&mut self) {
        // Stable, and close to linear: rows are nearly in order.
        self.waiting.sort_by_key(Step::order);
    }

    /// Takes everything until and with `to` into the sums.
    fn fold(&mut self, to: BootNs) {
        if to < self.folded {
            return;
        }
        self.folded = to;
        self.sort();
        let due = self.waiting.partition_point(|step| step.at <= to);
        if due == 0 {
            return;
        }
        let steps: Vec<Step> = self.waiting.drain(..due).collect();
        let mut risen: Vec<Upid> = Vec::new();
        let mut at = None;
        for step in steps {
            let is_row = matches!(step.what, What::Row { .. });
            if at != Some(step.at) || !is_row {
                self.note_highest(&mut risen);
                at = Some(step.at);
            }
            match step.what {
                What::Row { upid, rss, is_exit } => {
                    self.apply(step.at, upid, rss, is_exit, &mut risen);
                }
                What::Begin(owner, span) => self.begin(owner, span),
                What::End(owner, span) => {
                    let section = self.owners.get_mut(&owner);
                    if let Some(section) = section.and_then(|owner| owner.section(span))
                        && let State::Running(highest) = section.state
                    {
                        section.state = State::Over(highest);
                    }
                }
            }
        }
        self.note_highest(&mut risen);
    }

    /// One row; what rises by it goes to `risen`.
    fn apply(&mut self, at: BootNs, upid: Upid, rss: i64, is_exit: bool, risen: &mut Vec<Upid>) {
        let before = self.held.get(&upid).copied();
        // One that was on its way for longer than rows wait.
        if before.is_some_and(|(last, _)| last > at) {
            return;
        }
        if is_exit {
            self.held.remove(&upid);
        } else {
            self.held.insert(upid, (at, rss));
        }
        if self.owners.is_empty() {
            return;
        }
        let change = rss - before.map_or(0, |(_, rss)| rss);
        for ancestor in ancestors(&self.parents, upid) {
            if let Some(owner) = self.owners.get_mut(&ancestor)
                && let Some(sum) = &mut owner.sum
            {
                *sum += change;
                risen.push(ancestor);
            }
        }
    }

    /// Rows of one time belong together: a snapshot reads all processes at once.
    fn note_highest(&mut self, risen: &mut Vec<Upid>) {
        for owner in risen.drain(..) {
            if let Some(owner) = self.owners.get_mut(&owner) {
                let sum = owner.sum.unwrap_or(0);
                for section in &mut owner.sections {
                    if let State::Running(highest) = &mut section.state {
                        *highest = sum.max(*highest);
                    }
                }
            }
        }
    }

    fn begin(&mut self, upid: Upid, span: i64) {
        let Some(owner) = self.owners.get_mut(&upid) else {
            return;
        };
        let sum = *owner.sum.get_or_insert_with(|| {
            let below = |(each, _): &(&Upid, _)| {
                ancestors(&self.parents, **each).any(|ancestor| ancestor == upid)
            };
            let all = self.held.iter().filter(below);
            all.map(|(_, (_, rss))| rss).sum()
        });
        if let Some(section) = owner.section(span) {
            section.state = State::Running(sum);
        }
    }

    /// Takes ended processes out of the line of descent, now and then.
    fn forget_ended(&mut self) {
        if self.ended.len() < self.ended_max {
            return;
        }
        let expected: HashSet<Upid> = self.waiting.iter().filter_map(Step::process).collect();
        let goes = |upid: &Upid| self.ended.contains(upid) && !expected.contains(upid);
        let stays = self.parents.keys().filter(|upid| !goes(upid));
        let nearest = |upid: &Upid| {
            let mut above = ancestors(&self.parents, *upid);
            Some((*upid, above.find(|ancestor| !goes(ancestor))?))
        };
        let parents = stays.filter_map(nearest).collect();
        self.ended.retain(|upid| expected.contains(upid));
        self.ended_max = self.ended.len() + ENDED_MAX;
        self.parents = parents;
    }
}

impl Step {
    fn process(&self) -> Option<Upid> {
        match self.what {
            What::Row { upid, .. } => Some(upid),
            What::Begin(..) | What::End(..) => None,
        }
    }
}

impl Owner {
    /// Enters a section; false where there is no room for it.
    fn begin(&mut self, span: i64, state: State) -> bool {
        if self.sections.len() >= SECTIONS_MAX {
            let over = |section: &Section| matches!(section.state, State::Over(_) | State::TooLate);
            let Some(oldest) = self.sections.iter().position(over) else {
                return false;
            };
            self.sections.remove(oldest);
        }
        self.sections.push(Section {
            span,
            end: None,
            state,
        });
        true
    }

    /// The newest of that name.
    fn section(&mut self, span: i64) -> Option<&mut Section> {
        let mut newest = self.sections.iter_mut().rev();
        newest.find(|section| section.span == span)
    }
}

fn step(row: &MemRow) -> Step {
    Step {
        at: row.boot_ns,
        what: What::Row {
            upid: row.upid,
            rss: row.rss_bytes.map_or(0, |bytes| bytes.0),
            is_exit: row.source == Some(MemSource::Exit),
        },
    }
}

/// Those above a process, the nearest first.
fn ancestors(parents: &HashMap<Upid, Upid>, upid: Upid) -> impl Iterator<Item = Upid> {
    let above = |upid: &Upid| parents.get(upid).copied();
    std::iter::successors(above(&upid), move |upid| above(upid)).take(ANCESTORS_MAX)
}

#[cfg(test)]
mod tests;
