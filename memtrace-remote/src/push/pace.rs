//! When to look at which recording, how long to wait after a failure, and when to give up.

use super::Args;
use super::carry::{Carry, Hindrance, State};
use super::limit::Limit;
use super::progress::Progress;
use super::upload::Uploads;
use crate::objects::{Objects, Way};
use crate::stop::Stop;
use memtrace_store::{Outgoing, OutgoingPart};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Looking takes a listing of some folders.
const LOOK_PACE: Duration = Duration::from_secs(1);
/// A recording whose recorder is gone changes only when somebody recovers it.
const UNCLOSED_PACE: Duration = Duration::from_secs(60);
/// The wait after the first failure; twice as long after each one more.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// So often a recording to which nobody writes is tried again without that any more of it arrives.
const TRIES: u32 = 6;
/// What is under way when somebody wishes an end has so long to arrive.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Complete,
    /// All that there is was carried, and a recording was never closed.
    Unclosed,
    Failed,
    Stopped,
}

/// A recording, and what is next with it.
struct Course {
    source: PathBuf,
    carry: Option<Carry>,
    begun: Instant,
    not_before: Instant,
    failures: u32,
    /// What was sent in all when it failed last.
    sent_then: u64,
    /// What was said last of it, to say it once.
    said: String,
    ended: Option<Outcome>,
    /// What it held then.
    held: Option<Held>,
}

/// Its `run.json` and its parts.
type Held = (Vec<u8>, Vec<OutgoingPart>);

/// Carries all recordings of the source.
///
/// # Errors
/// When there is none.
pub(super) async fn carry_all(
    args: &Args,
    objects: &Objects,
    mut stop: Stop,
) -> anyhow::Result<Outcome> {
    let limit = Limit::new(args.limit.map(|limit| limit.0.unsigned_abs()));
    let progress = Progress::new(args.quiet);
    let asked = stop.clone();
    let uploads = Uploads {
        objects,
        limit: &limit,
        stop: &asked,
    };
    let pusher = Pusher {
        args,
        uploads,
        progress: &progress,
    };
    let mut courses: Vec<Course> = Vec::new();
    loop {
        let found = Outgoing::find(&args.source)?;
        let is_single = found == [args.source.clone()];
        if found.is_empty() && !args.watch {
            let shown = args.source.display();
            anyhow::bail!(
                "{shown} holds neither a recording nor folders of runs (run=…/host=…/rec=…)"
            );
        }
        courses.retain(|course| course.ended.is_none() || found.contains(&course.source));
        for source in found {
            if !courses.iter().any(|course| course.source == source) {
                courses.push(Course::of(source));
            }
        }
        for course in &mut courses {
            let is_over = {
                let mut wished = stop.clone();
                tokio::select! {
                    () = pusher.go_on(course) => false,
                    () = async {
                        wished.wished().await;
                        sleep(STOP_PATIENCE).await;
                    } => true,
                }
            };
            if is_over || stop.is_wished() {
                return Ok(Outcome::Stopped);
            }
        }
        let has_all_ended = courses.iter().all(|course| course.ended.is_some());
        if has_all_ended && (is_single || !args.watch) {
            let outcomes = courses.iter().filter_map(|course| course.ended);
            return Ok(outcomes.max().unwrap_or(Outcome::Complete));
        }
        if timeout(LOOK_PACE, stop.wished()).await.is_ok() {
            return Ok(Outcome::Stopped);
        }
    }
}

impl Course {
    fn of(source: PathBuf) -> Self {
        Self {
            source,
            carry: None,
            begun: Instant::now(),
            not_before: Instant::now(),
            failures: 0,
            sent_then: 0,
            said: String::new(),
            ended: None,
            held: None,
        }
    }

    /// Begins anew with what has changed since it ended.
    fn look_again(&mut self, pace: Duration) {
        self.not_before = Instant::now() + pace;
        let held = held_by(&self.source);
        if held.is_some() && held != self.held {
            *self = Self::of(self.source.clone());
        }
    }
}

/// What can be read.
fn held_by(source: &Path) -> Option<Held> {
    let outgoing = Outgoing::open(source).ok()?;
    let (json, _) = outgoing.run_file().ok()?;
    Some((json, outgoing.parts().ok()?))
}

/// So many problems of a recording are reported.
const PROBLEMS_MAX: usize = 10;

struct Pusher<'a> {
    args: &'a Args,
    uploads: Uploads<'a>,
    progress: &'a Progress,
}

impl Pusher<'_> {
    /// Looks at a recording, if it is time.
    async fn go_on(&self, course: &mut Course) {
        if Instant::now() < course.not_before {
            return;
        }
        if course.ended.is_some() {
            if self.goes_on() {
                course.look_again(self.args.look_again_after);
            }
            return;
        }
        let objects = self.uploads.objects;
        if course.carry.is_none() {
            match Carry::of(&course.source, objects, &self.args.given) {
                Ok(carry) => course.carry = Some(carry),
                Err(error) => {
                    self.progress.say(&format!("{error:#}"));
                    course.ended = Some(Outcome::Failed);
                    return;
                }
            }
        }
        let Some(carry) = &mut course.carry else {
            return;
        };
        let destination = carry.destination(objects);
        let patience = self.args.timeout;
        // One that goes on to the end of the recording has all of that time at each look.
        let begun = match self.args.watch {
            true => Instant::now(),
            false => course.begun,
        };
        let looked = tokio::select! {
            looked = carry.look(self.uploads, self.progress) => looked,
            () = objects.silence(begun, patience) => {
                Err(Hindrance::AccessError(objects.silent(carry.below(), patience)))
            }
        };
        match looked {
            Ok(State::Complete) => self.complete(course, &destination).await,
            Ok(State::Growing) if self.args.watch => course.failures = 0,
            Ok(State::Growing) => {
                let sent = carry.sent();
                self.progress.tell(&format!(
                    "all of it so far is at {destination} ({sent}); it is still being recorded: \
                     --watch goes on until it is closed"
                ));
                course.ended = Some(Outcome::Complete);
            }
            Ok(State::Unclosed) => self.unclosed(course, &destination),
            Err(Hindrance::Stopped) => {}
            Err(Hindrance::AccessError(failure)) => {
                let is_mendable = failure.way != Way::Blocked;
                self.failed(course, &failure.words, is_mendable);
            }
        }
    }

    async fn complete(&self, course: &mut Course, destination: &str) {
        course.ended = Some(Outcome::Complete);
        let Some(mut carry) = course.carry.take() else {
            return;
        };
        let problems = carry.problems();
        for problem in problems.iter().take(PROBLEMS_MAX) {
            let source = course.source.display();
            self.progress.say(&format!("{source}: {problem}"));
        }
        course.held = carry.take_arrived();
        course.not_before = Instant::now() + self.args.look_again_after;
        let arrived = match problems.is_empty() {
            true => "is closed and complete",
            false => "is closed and has all that is here",
        };
        let complete = format!("{destination} {arrived} ({})", carry.sent());
        if !self.args.delete {
            return self.progress.tell(&complete);
        }
        let source = course.source.display();
        match carry.remove(self.uploads).await {
            Ok(true) => {
                // One that is made again in its place is another.
                course.held = None;
                let text = format!("{complete}; {source} is removed");
                self.progress.tell(&text);
            }
            Ok(false) => self.progress.say(&format!(
                "{complete}; what was uploaded is removed from {source}, which holds something \
                 else too"
            )),
            Err(Hindrance::Stopped) => {}
            Err(Hindrance::AccessError(failure)) => {
                self.progress.say(&failure.words);
                course.ended = Some(Outcome::Failed);
            }
        }
    }

    fn unclosed(&self, course: &mut Course, destination: &str) {
        let source = course.source.display();
        let text = format!(
            "the recorder of {source} is gone and did not close it: the parts that it has are at \
             {destination}; `memtrace recover {source}` closes it with what is not in parts yet, \
             and then the same push uploads the rest"
        );
        if course.said != text {
            self.progress.say(&text);
            course.said = text;
        }
        course.failures = 0;
        course.not_before = Instant::now() + UNCLOSED_PACE;
        course.ended = Some(Outcome::Unclosed).filter(|_| !self.goes_on());
    }

    /// Whether it ends by being stopped only.
    fn goes_on(&self) -> bool {
        self.args.watch && !self.args.source.join("run.json").exists()
    }

    fn failed(&self, course: &mut Course, words: &str, is_mendable: bool) {
        let carry = course.carry.as_ref();
        let sent = carry.map_or(0, |carry| carry.sent().parts);
        course.failures = match sent > course.sent_then {
            true => 1,
            false => course.failures + 1,
        };
        course.sent_then = sent;
        if course.said != words {
            self.progress.say(words);
            course.said = words.to_owned();
        }
        let is_live = carry.is_some_and(Carry::is_live);
        let has_reason = self.args.watch && (is_live || self.goes_on());
        let may_help = is_mendable || self.args.watch;
        let doubled = FIRST_WAIT.saturating_mul(1 << (course.failures - 1).min(10));
        course.not_before = Instant::now() + doubled.min(LONGEST_WAIT).mul_f64(jitter());
        let objects = self.uploads.objects;
        let is_late = course.not_before >= objects.given_up(course.begun, self.args.timeout);
        if !has_reason && (!may_help || course.failures >= TRIES || is_late) {
            course.ended = Some(Outcome::Failed);
        }
    }
}

/// So that many hosts do not come back at the same instant: from a half to the whole.
fn jitter() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    0.5 + (random % 1_000) as f64 / 2_000.0
}
