//! The lines above the list: what is recorded, what it holds, how near the limit it is, and how that
//! went.

use super::app::{App, Shown};
use super::clock::Age;
use super::{Feed, Recorder};
use memtrace_analyze::{Limit, Live};
use memtrace_model::{BootNs, Bytes, DurationNs, Instant};
use memtrace_report::words::{self, bytes};
use memtrace_report::{columns, shorten, visible};

/// A line of the header.
#[derive(Debug)]
pub(super) struct HeaderLine {
    pub(super) text: String,
    pub(super) is_alert: bool,
    pub(super) is_strong: bool,
}

impl HeaderLine {
    fn plain(text: String) -> Self {
        Self {
            text,
            is_alert: false,
            is_strong: false,
        }
    }
}

/// How much of a limit has to be in use for it to be reported in red.
const NEAR: f64 = 0.9;
/// Columns of the bar beside a limit.
const BAR: usize = 20;

/// All lines, the most important first; where there is no room the last ones are left out. The curve has
/// so many of them.
pub(super) fn lines<F: Feed>(
    feed: &F,
    app: &App,
    width: usize,
    curve_lines: u16,
) -> Vec<HeaderLine> {
    let live = feed.live();
    let mut lines = vec![title(feed, width), held(feed, app, width)];
    lines.extend(losses(live, width));
    lines.extend(killed(live, app.frame.at, width));
    lines.extend(live.limit().map(|limit| of_limit(&limit, width)));
    let curve = curve(live, app, width, i64::from(curve_lines));
    lines.extend(curve.into_iter().map(HeaderLine::plain));
    lines
}

/// What is recorded, on the left; on the right how old that is.
fn title<F: Feed>(feed: &F, width: usize) -> HeaderLine {
    let live = feed.live();
    let now = feed.boot();
    let age = Age {
        age: (live.now().at > BootNs(0)).then(|| DurationNs((now - live.now().at).0.max(0))),
        recorder: feed.recorder(),
    };
    let length = live.clock().duration();
    let right = format!("{}  {}", words::duration(length), age.in_words());
    let left = format!("memtrace top  {}", words::target(&live.info().target));
    let room = width.saturating_sub(columns(&right) + 2);
    let left = visible(&left);
    let left = shorten(&left, room);
    let gap = width
        .saturating_sub(columns(&left) + columns(&right))
        .max(1);
    HeaderLine {
        text: format!("{left}{}{right}", " ".repeat(gap)),
        is_alert: age.is_stale() && feed.recorder() != Recorder::Closed,
        is_strong: true,
    }
}

fn held<F: Feed>(feed: &F, app: &App, width: usize) -> HeaderLine {
    let live = feed.live();
    let clock = live.clock();
    let at = clock.at(app.frame.at);
    let now = match app.shown {
        Shown::Now if feed.recorder() == Recorder::Recording => "Held now".to_owned(),
        Shown::Now => "Held last".to_owned(),
        Shown::Paused => format!("Paused at {}: held", words::after(at.offset_ns)),
        Shown::Back => format!("Back at {}: held", words::after(at.offset_ns)),
        Shown::Peak => format!("At the peak, {}: held", words::after(at.offset_ns)),
    };
    let held = format!("{now} {}", app.frame.held.in_words());
    let rss = app.frame.rss.map(|rss| format!("  (RSS {})", bytes(rss)));
    let rss = rss.unwrap_or_default();
    let peak = live.held_peak().filter(|_| app.shown != Shown::Peak);
    let peak = |when: &dyn Fn(Instant) -> String| {
        let reported = peak.map(|(at, held)| {
            let when = when(clock.at(at));
            format!("   peak so far {} at {when}", bytes(held.bytes))
        });
        reported.unwrap_or_default()
    };
    // Rather less than cut.
    let long = peak(&|at| clock.when(at));
    let short = peak(&|at| words::after(at.offset_ns));
    let tries = [
        format!("{held}{rss}{long}"),
        format!("{held}{long}"),
        format!("{held}{rss}{short}"),
        format!("{held}{short}"),
    ];
    let fitting = tries.into_iter().find(|text| columns(text) <= width);
    let text = fitting.unwrap_or(held);
    HeaderLine {
        text: shorten(&text, width).into_owned(),
        is_alert: false,
        is_strong: true,
    }
}

fn losses(live: &Live, width: usize) -> Option<HeaderLine> {
    let losses = live.losses();
    let first = losses.first()?;
    let more = match losses.len() {
        1 => String::new(),
        count => format!(" (and {} more: see memtrace report)", count - 1),
    };
    let text = format!("Lost: {first}{more}");
    Some(HeaderLine {
        text: shorten(&visible(&text), width).into_owned(),
        is_alert: true,
        is_strong: false,
    })
}

/// The process that was last killed or crashed by then, and who did it. One that an ancestor stopped
/// comes behind all others.
fn killed(live: &Live, by: BootNs, width: usize) -> Option<HeaderLine> {
    let processes = live.processes().iter();
    let killed = processes.filter(|process| process.is_violent_end());
    let killed = killed.filter_map(|process| Some((process.exit_boot_ns()?, process)));
    let killed = killed.filter(|(end, _)| *end <= by);
    let all = killed.clone().count();
    let (end, process) = killed.max_by_key(|(end, process)| (!process.is_stopped_end(), *end))?;
    let pid = process.tgid.map_or(String::new(), |pid| format!("{pid} "));
    let more = match all {
        1 => String::new(),
        _ => format!(" (and {} more)", all - 1),
    };
    let when = words::after(live.clock().at(end).offset_ns);
    let how = process.ended_in_words();
    let end = format!(": {how} at {when}{more}");
    let room = width.saturating_sub(columns(&end));
    let who = format!("Ended: {pid}{}", visible(&process.name));
    Some(HeaderLine {
        text: shorten(&format!("{}{end}", shorten(&who, room)), width).into_owned(),
        is_alert: !process.is_stopped_end(),
        is_strong: false,
    })
}

fn of_limit(limit: &Limit, width: usize) -> HeaderLine {
    let share = limit.share();
    let full = ((share.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    let bar = "#".repeat(full) + &".".repeat(BAR - full);
    let of = match &limit.cgroup {
        Some(path) => format!("cgroup {}", visible(path)),
        None => "the machine's memory".to_owned(),
    };
    let figures = format!(
        "[{bar}] {} in use, {} of {}: ",
        words::share(Some(limit.used), Some(limit.limit)),
        bytes(limit.used),
        bytes(limit.limit),
    );
    let room = width.saturating_sub(columns(&figures));
    let text = format!("{figures}{}", shorten(&of, room));
    HeaderLine {
        text: shorten(&text, width).into_owned(),
        is_alert: share >= NEAR,
        is_strong: false,
    }
}

/// What was held in the last minutes, each column the highest of its seconds, and what the height
/// stands for.
fn curve(live: &Live, app: &App, width: usize, lines: i64) -> Vec<String> {
    const SECOND_NS: i64 = 1_000_000_000;
    let seconds = live.seconds();
    let Some(&(last, _)) = seconds.last() else {
        return vec![String::new()];
    };
    let highest = |seconds: &[(i64, Bytes)]| {
        let all = seconds.iter().map(|(_, bytes)| bytes.0);
        all.max().unwrap_or(0)
    };
    let start = live.clock().start().0 / SECOND_NS;
    let room = width.saturating_sub(34).max(8) as i64;
    // A column is of so many seconds; ten minutes at most.
    let length = (last - start + 1).clamp(1, 600);
    let per_column = (length + room - 1) / room;
    let first = last - per_column * room.min((length + per_column - 1) / per_column) + 1;
    let from = seconds.partition_point(|(second, _)| *second < first);
    let top = highest(&seconds[from..])
        .max(from.checked_sub(1).map_or(0, |before| seconds[before].1.0))
        .max(1);
    let mut text = vec![String::new(); usize::try_from(lines).unwrap_or(1)];
    let mut second = first;
    while second <= last {
        let end = second + per_column;
        let begin = seconds.partition_point(|(at, _)| *at < second);
        let until = seconds.partition_point(|(at, _)| *at < end);
        // What was held when the column begins goes on until something changes.
        let before = begin.checked_sub(1).map_or(0, |before| seconds[before].1.0);
        let height = match begin == until {
            true => before,
            false => highest(&seconds[begin..until]),
        };
        let is_shown =
            app.shown != Shown::Now && (second..end).contains(&(app.frame.at.0 / SECOND_NS));
        for (line, text) in (0..lines).rev().zip(&mut text) {
            let beyond = height - top * line / lines;
            text.push(match is_shown {
                true => '|',
                false if line > 0 && beyond <= 0 => ' ',
                false => words::height(Bytes(beyond), Bytes((top / lines).max(1))),
            });
        }
        second = end;
    }
    let length = words::duration(DurationNs((last - first + 1) * SECOND_NS));
    if let Some(lowest) = text.last_mut() {
        lowest.push_str(&format!(" last {length}, up to {}", bytes(Bytes(top))));
    }
    text
}
