//! The lines of a view: which there are, in which order, and what stands in their cells.

use super::app::App;
use super::columns::{Column, Lines, PHASES, PROCESSES, ProcessLine, ROLES, TREE};
use super::order::Key;
use super::view::View;
use memtrace_analyze::{Amounts, Frame, Live, PhaseLine, RoleNow, Who};
use memtrace_model::{Bytes, Order};
use memtrace_report::{Chapter, Line, Tone, columns, lines, visible};

/// Branches are drawn so deep; what is below stands at that depth.
const DEPTH_MAX: usize = 12;
/// So many lines the ledger has of each group, and the GPUs of holders.
const TOP: usize = 40;

/// A line as it is drawn.
#[derive(Debug)]
pub(super) struct Drawn {
    /// What it is of, while there is anything of it; 0 for text.
    pub(super) id: u64,
    pub(super) cells: Vec<String>,
    /// Whether it is of something that is over.
    pub(super) is_over: bool,
    pub(super) tone: Tone,
}

/// What there is to draw below the heading.
#[derive(Debug)]
pub(super) struct Listing {
    /// Titles and widths of the columns that are shown, with their places; empty for text.
    pub(super) columns: Vec<Shown>,
    /// Columns for which there is no room.
    pub(super) left_out: Vec<&'static str>,
    /// Lines from the first that is on the screen.
    pub(super) lines: Vec<Drawn>,
    /// How many lines there are in all.
    pub(super) count: usize,
    /// Which of them is the first on the screen.
    pub(super) first: usize,
    /// What to say where there are none.
    pub(super) nothing: String,
}

/// A column on the screen.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) place: usize,
    pub(super) title: &'static str,
    pub(super) width: usize,
    pub(super) is_name: bool,
}

/// The columns for which there is room. A name has at least so many.
const NAME_MIN: usize = 20;

fn fitting<L: Lines>(columns: &[Column<L>], width: usize) -> (Vec<Shown>, Vec<&'static str>) {
    let mut shown: Vec<(u8, Shown)> = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let one = Shown {
            place,
            title: column.title,
            width: column.width.max(column.title.len()),
            is_name: column.width == 0,
        };
        shown.push((column.rank, one));
    }
    let mut left_out = Vec::new();
    let fixed = |shown: &[(u8, Shown)]| -> usize {
        let fixed = shown.iter().filter(|(_, one)| !one.is_name);
        fixed.map(|(_, one)| one.width + 1).sum()
    };
    while fixed(&shown) + NAME_MIN > width {
        let ranks = shown.iter().enumerate();
        let last = ranks.max_by_key(|(place, (rank, _))| (*rank, *place));
        match last {
            Some((place, (1.., _))) => left_out.push(shown.remove(place).1.title),
            _ => break,
        }
    }
    let room = width.saturating_sub(fixed(&shown));
    for (_, one) in &mut shown {
        if one.is_name {
            one.width = room;
        }
    }
    left_out.reverse();
    (shown.into_iter().map(|(_, one)| one).collect(), left_out)
}

/// A figure for which there is no room is left without its error, or an instant without its sign: cut in
/// its middle it would be another one.
fn fitted<'a>(cell: &'a str, column: &Shown) -> &'a str {
    if column.is_name || columns(cell) <= column.width {
        return cell;
    }
    let figure = cell.split_once(" ±").map_or(cell, |(figure, _)| figure);
    figure.strip_prefix('+').unwrap_or(figure)
}

/// What a view shows on so many lines.
pub(super) fn listing(app: &mut App, live: &Live, width: usize, height: usize) -> Listing {
    match app.view {
        View::Tree | View::Processes => processes(app, live, width, height),
        View::Roles => roles(app, live, width, height),
        View::Phases => phases(app, width, height),
        View::Ledger => {
            let reported = app.deep.as_ref().and_then(|deep| deep.ledger(TOP));
            text(
                app,
                reported,
                width,
                height,
                "What is in use is not known yet.",
            )
        }
        View::Gpus => {
            let reported = app.deep.as_ref().and_then(|deep| deep.gpus(TOP));
            text(app, reported, width, height, "No GPU is recorded.")
        }
        View::Stacks => stacks(app, width, height),
    }
}

/// Draws the lines of `order` that are on the screen.
fn drawn<'a, L: Lines>(
    app: &mut App,
    columns: &[Column<L>],
    (width, height): (usize, usize),
    ids: &[u64],
    mut line: impl FnMut(usize) -> (L::Line<'a>, bool),
) -> Listing {
    let (shown, left_out) = fitting(columns, width);
    let first = app.scroll_to(ids, height);
    let on_screen = ids.iter().enumerate().skip(first).take(height);
    let lines = on_screen.map(|(place, id)| {
        let (line, is_over) = line(place);
        let cells = shown.iter().map(|one| {
            let cell = (columns[one.place].cell)(&line);
            fitted(&visible(&cell), one).to_owned()
        });
        Drawn {
            id: *id,
            cells: cells.collect(),
            is_over,
            tone: Tone::Plain,
        }
    });
    Listing {
        lines: lines.collect(),
        columns: shown,
        left_out,
        count: ids.len(),
        first,
        nothing: String::new(),
    }
}

/// Of each process what it and all that descend from it hold, as far as it is known.
fn branches(live: &Live, frame: &Frame) -> Vec<i64> {
    let mut below = vec![0_i64; live.processes().len()];
    for (place, held) in &frame.held_by {
        if let Some(sum) = below.get_mut(*place as usize) {
            *sum = held.rss().map_or(0, |bytes| bytes.0);
        }
    }
    for place in (0..below.len()).rev() {
        // They stand in the order in which they started.
        let parent = live.processes()[place].parent;
        if let Some(parent) = parent.filter(|parent| *parent < place) {
            below[parent] = below[parent].saturating_add(below[place]);
        }
    }
    below
}

struct Picture<'a> {
    live: &'a Live,
    frame: &'a Frame,
    below: Vec<i64>,
}

impl<'a> Picture<'a> {
    fn line(&self, place: usize, branch: String) -> ProcessLine<'a> {
        let process = &self.live.processes()[place];
        let end = process.exit_boot_ns();
        let held: Option<&'a Amounts> = self.frame.held_by(place);
        ProcessLine {
            process,
            held,
            below: Some(Bytes(self.below[place])),
            role: self.live.role_of(place, self.frame.at).unwrap_or_default(),
            is_over: end.is_some_and(|end| end <= self.frame.at),
            branch,
        }
    }
}

fn processes(app: &mut App, live: &Live, width: usize, height: usize) -> Listing {
    let frame = app.frame.clone();
    let picture = Picture {
        live,
        frame: &frame,
        below: branches(live, &frame),
    };
    let columns = match app.view {
        View::Tree => TREE,
        _ => PROCESSES,
    };
    let is_there = |place: &usize| {
        let process = &live.processes()[*place];
        process.start.boot_ns <= frame.at || frame.held_by(*place).is_some()
    };
    let (by, is_reversed) = app.sort();
    let places: Vec<usize> = (0..live.processes().len()).filter(is_there).collect();
    let items: Vec<(u64, Key)> = places
        .iter()
        .map(|&place| {
            let id = live.processes()[place].upid.0.cast_unsigned();
            let key = columns.get(by).and_then(|column| column.key);
            let line = picture.line(place, String::new());
            (id, key.map_or(Key::Number(0), |key| key(&line)))
        })
        .collect();
    let order = app.order().arrange(&items, (by, is_reversed));
    let order: Vec<usize> = order.into_iter().map(|item| places[item]).collect();
    let matches = |place: usize| {
        let process = &live.processes()[place];
        let pid = process.tgid.map(|pid| pid.to_string()).unwrap_or_default();
        let texts = [
            process.name.as_ref(),
            &process.comm,
            process.cmdline.as_deref().unwrap_or_default(),
            live.role_of(place, frame.at).unwrap_or_default(),
            &pid,
        ];
        app.matches(&texts)
    };
    let is_alive = |place: usize| {
        let end = live.processes()[place].exit_boot_ns();
        end.is_none_or(|end| end > frame.at)
    };
    let is_wanted = |place: usize| matches(place) && (!app.hides_ended || is_alive(place));
    let wanted: Vec<(usize, String)> = match app.view {
        View::Tree => tree(app, live, &order, is_wanted),
        _ => order
            .into_iter()
            .filter(|place| is_wanted(*place))
            .map(|place| (place, String::new()))
            .collect(),
    };
    let ids: Vec<u64> = wanted
        .iter()
        .map(|(place, _)| live.processes()[*place].upid.0.cast_unsigned())
        .collect();
    let mut listing = drawn(app, columns, (width, height), &ids, |line| {
        let (place, branch) = &wanted[line];
        let line = picture.line(*place, branch.clone());
        let is_over = line.is_over;
        (line, is_over)
    });
    listing.nothing = match live.processes().is_empty() {
        true => "No process is known yet.".to_owned(),
        false => "No process fits the filter.".to_owned(),
    };
    listing
}

/// The tree with its branches in `order`, and what stands before each name. What is not wanted stays
/// where something below it is.
fn tree(
    app: &App,
    live: &Live,
    order: &[usize],
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<(usize, String)> {
    let count = live.processes().len();
    let mut rank = vec![usize::MAX; count];
    for (at, &place) in order.iter().enumerate() {
        rank[place] = at;
    }
    let parent = |place: usize| live.processes()[place].parent;
    let mut is_shown = vec![false; count];
    for &place in order.iter().filter(|place| is_wanted(**place)) {
        let above = std::iter::successors(Some(place), |place| parent(*place));
        for place in above {
            if std::mem::replace(&mut is_shown[place], true) {
                break;
            }
        }
    }
    let below = |places: &[usize]| -> Vec<usize> {
        let shown = places.iter().copied();
        let mut shown: Vec<usize> = shown
            .filter(|place| is_shown.get(*place) == Some(&true) && rank[*place] != usize::MAX)
            .collect();
        shown.order_by_key(|place| std::cmp::Reverse(rank[*place]));
        shown
    };
    let mut open: Vec<(usize, usize)> = below(live.tree().roots())
        .into_iter()
        .map(|place| (place, 0))
        .collect();
    let mut lines = Vec::new();
    while let Some((place, depth)) = open.pop() {
        let children = below(live.tree().children(place));
        let upid = live.processes()[place].upid;
        let is_folded = app.folded.contains(&upid);
        let mark = match (children.is_empty(), is_folded) {
            (true, _) => "  ",
            (_, true) => "+ ",
            (_, false) => "- ",
        };
        lines.push((
            place,
            format!("{}{mark}", "  ".repeat(depth.min(DEPTH_MAX))),
        ));
        if !is_folded {
            open.extend(children.into_iter().map(|child| (child, depth + 1)));
        }
    }
    lines
}

fn roles(app: &mut App, live: &Live, width: usize, height: usize) -> Listing {
    let frame = app.frame.clone();
    let mut found: Vec<Option<RoleNow>> = live.roles(&frame).into_iter().map(Some).collect();
    let (by, is_reversed) = app.sort();
    let items: Vec<(u64, Key)> = found
        .iter()
        .flatten()
        .map(|role| {
            let key = ROLES.get(by).and_then(|column| column.key);
            let key = key.map_or(Key::Number(0), |key| key(role));
            (id_of(&role.name), key)
        })
        .collect();
    let order = app.order().arrange(&items, (by, is_reversed));
    let is_wanted = |place: &usize| {
        let role = found[*place].as_ref();
        role.is_some_and(|role| {
            let is_there = role.process_count > 0 || !app.hides_ended;
            is_there && app.matches(&[&role.name])
        })
    };
    let order: Vec<usize> = order.into_iter().filter(is_wanted).collect();
    let ids: Vec<u64> = order.iter().map(|place| items[*place].0).collect();
    let mut wanted: Vec<Option<RoleNow>> = order.iter().map(|place| found[*place].take()).collect();
    let mut listing = drawn(app, ROLES, (width, height), &ids, |line| {
        let role = wanted[line].take();
        let role = role.unwrap_or_else(|| RoleNow {
            name: "".into(),
            process_count: 0,
            ever_count: 0,
            totals: memtrace_analyze::Totals::default(),
            peak: None,
        });
        let is_over = role.process_count == 0;
        (role, is_over)
    });
    listing.nothing = "No role is known yet, or none fits the filter.".to_owned();
    listing
}

fn phases(app: &mut App, width: usize, height: usize) -> Listing {
    let all = app
        .deep
        .as_ref()
        .map_or(&[][..], |deep| deep.phases())
        .to_vec();
    let (by, is_reversed) = app.sort();
    let name = |line: &PhaseLine| match line {
        PhaseLine::One(phase) => phase.name.clone(),
        PhaseLine::Many(many) => many.name.clone(),
    };
    let places = all.iter().enumerate();
    let items: Vec<(u64, Key)> = places
        .map(|(place, line)| {
            let key = PHASES.get(by).and_then(|column| column.key);
            (
                place as u64 + 1,
                key.map_or(Key::Number(0), |key| key(line)),
            )
        })
        .collect();
    let order = app.order().arrange(&items, (by, is_reversed));
    let is_wanted = |place: &usize| app.matches(&[&name(&all[*place])]);
    let order: Vec<usize> = order.into_iter().filter(is_wanted).collect();
    let ids: Vec<u64> = order.iter().map(|place| items[*place].0).collect();
    let mut listing = drawn(app, PHASES, (width, height), &ids, |line| {
        (all[order[line]].clone(), false)
    });
    listing.nothing =
        "No marks yet: m marks this moment; docs/marks.md shows how programs and log lines can."
            .to_owned();
    listing
}

fn id_of(name: &str) -> u64 {
    // Only lines of one run are compared.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Lines that allocated, of the processes that fit the filter.
fn stacks(app: &mut App, width: usize, height: usize) -> Listing {
    let is_wanted = |who: &Who| {
        let pid = who.pid.map(|pid| pid.to_string()).unwrap_or_default();
        app.matches(&[&pid, who.name.as_deref().unwrap_or_default()])
    };
    let deep = app.deep.as_ref();
    let reported = deep.and_then(|deep| deep.stacks(TOP, is_wanted));
    let nothing = match app.filter.is_empty() {
        true => {
            "No memory is held that was sampled: top --stacks -p PID and record --stacks sample it."
        }
        false => "No process that fits the filter holds memory that was sampled.",
    };
    scrolled(
        app,
        reported.map(|reported| lines(&reported, width)),
        height,
        nothing,
    )
}

/// Lines of the report that fit the filter.
fn text(
    app: &mut App,
    reported: Option<Chapter>,
    width: usize,
    height: usize,
    nothing: &str,
) -> Listing {
    let reported = reported.map(|reported| {
        let mut lines = lines(&reported, width);
        lines.retain(|line| app.matches(&[&line.text]));
        lines
    });
    let nothing = match &reported {
        Some(_) => "No line fits the filter.",
        None => nothing,
    };
    scrolled(app, reported, height, nothing)
}

/// Lines of text, scrolled.
fn scrolled(app: &mut App, reported: Option<Vec<Line>>, height: usize, nothing: &str) -> Listing {
    let reported = reported.unwrap_or_default();
    let count = reported.len();
    let first = app.scroll_text(count, height);
    let lines = reported.into_iter().skip(first).take(height);
    let lines = lines.map(|line| Drawn {
        id: 0,
        cells: vec![format!("{}{}", line.indent, line.text)],
        is_over: false,
        tone: line.tone,
    });
    Listing {
        columns: Vec::new(),
        left_out: Vec::new(),
        lines: lines.collect(),
        count,
        first,
        nothing: nothing.to_owned(),
    }
}
