//! The columns of each view: a line each, from which the title, the width, the order and the cells
//! follow.

use super::order::Key;
use memtrace_analyze::{Amounts, PhaseEnd, PhaseLine, Process, RoleNow};
use memtrace_model::{Bytes, Instant, Kind};
use memtrace_report::words::{self, bytes_or_unknown};

/// One process at the instant that is shown.
pub(super) struct ProcessLine<'a> {
    pub(super) process: &'a Process,
    /// What it holds; `None` where it is not there.
    pub(super) held: Option<&'a Amounts>,
    /// What it and all that descend from it hold.
    pub(super) below: Option<Bytes>,
    pub(super) role: &'a str,
    /// Whether it had ended by then.
    pub(super) is_over: bool,
    /// What stands before its name.
    pub(super) branch: String,
}

/// What the lines of a table are of.
pub(super) trait Lines {
    type Line<'a>;
}

pub(super) struct OfProcesses;
pub(super) struct OfRoles;
pub(super) struct OfPhases;

impl Lines for OfProcesses {
    type Line<'a> = ProcessLine<'a>;
}

impl Lines for OfRoles {
    type Line<'a> = RoleNow;
}

impl Lines for OfPhases {
    type Line<'a> = PhaseLine;
}

pub(super) struct Column<L: Lines> {
    pub(super) title: &'static str,
    /// 0 takes what is left.
    pub(super) width: usize,
    /// Columns of a higher rank are left out first; 0 always stays.
    pub(super) rank: u8,
    pub(super) cell: for<'a> fn(&L::Line<'a>) -> String,
    /// What lines are ordered by; `None` where that would say nothing.
    pub(super) key: Option<for<'a> fn(&L::Line<'a>) -> Key>,
}

fn bytes(amount: Option<Bytes>) -> Key {
    Key::Bytes(amount.map_or(-1, |bytes| bytes.0))
}

fn time(at: Option<Instant>) -> Key {
    Key::Number(at.map_or(i64::MIN, |at| at.boot_ns.0))
}

fn at(instant: Option<Instant>) -> String {
    instant.map_or_else(String::new, |at| words::after(at.offset_ns))
}

fn name(line: &ProcessLine<'_>) -> String {
    let process = line.process;
    let main = if process.is_main { " (main)" } else { "" };
    format!("{}{}{main}", line.branch, process.name)
}

/// An amount of a process; nothing where it is not there.
fn held(line: &ProcessLine<'_>, kind: Kind) -> String {
    match line.held {
        Some(held) => bytes_or_unknown(held.get(kind)),
        None => "-".to_owned(),
    }
}

fn amount(line: &ProcessLine<'_>, kind: Kind) -> Key {
    bytes(line.held.and_then(|held| held.get(kind)))
}

/// How it ended, and when.
fn ended(line: &ProcessLine<'_>) -> String {
    match line.process.end.filter(|_| line.is_over) {
        Some(end) => words::after(end.offset_ns),
        None => String::new(),
    }
}

fn ending(line: &ProcessLine<'_>) -> String {
    match line.is_over {
        true => line.process.ending.shown(),
        false => String::new(),
    }
}

/// A kind of memory, by what tells it of a line and what orders lines by it.
macro_rules! kind {
    ($title:literal, $rank:literal, $kind:expr, $cell:ident, $key:ident) => {
        Column {
            title: $title,
            width: 8,
            rank: $rank,
            cell: |line| $cell(line, $kind),
            key: Some(|line| $key(line, $kind)),
        }
    };
}

const PID: Column<OfProcesses> = Column {
    title: "PID",
    width: 7,
    rank: 0,
    cell: |line| {
        let pid = line.process.tgid;
        pid.map_or_else(|| words::UNKNOWN.to_owned(), |pid| pid.to_string())
    },
    key: Some(|line| Key::Number(-line.process.tgid.map_or(0, |pid| i64::from(pid.0)))),
};
const RSS: Column<OfProcesses> = kind!("RSS", 0, Kind::Rss, held, amount);
const BELOW: Column<OfProcesses> = Column {
    title: "BRANCH",
    width: 8,
    rank: 0,
    cell: |line| bytes_or_unknown(line.below),
    key: Some(|line| bytes(line.below)),
};
const ANON: Column<OfProcesses> = kind!("ANON", 4, Kind::Anon, held, amount);
const SHMEM: Column<OfProcesses> = kind!("SHMEM", 5, Kind::Shmem, held, amount);
const FILE: Column<OfProcesses> = kind!("FILE", 6, Kind::File, held, amount);
const SWAP: Column<OfProcesses> = kind!("SWAP", 7, Kind::Swap, held, amount);
const PEAK: Column<OfProcesses> = Column {
    title: "PEAK",
    width: 10,
    rank: 0,
    cell: |line| line.process.peak.in_words(),
    key: Some(|line| bytes(line.process.peak.rss_bytes)),
};
const AT: Column<OfProcesses> = Column {
    title: "AT",
    width: 9,
    rank: 3,
    cell: |line| at(line.process.peak.at),
    key: Some(|line| time(line.process.peak.at)),
};
const ENDED: Column<OfProcesses> = Column {
    title: "ENDED",
    width: 9,
    rank: 0,
    cell: ended,
    key: Some(|line| time(line.process.end.filter(|_| line.is_over))),
};
const HOW: Column<OfProcesses> = Column {
    title: "HOW",
    width: 9,
    rank: 2,
    cell: ending,
    key: Some(|line| Key::Text(ending(line))),
};
const ROLE: Column<OfProcesses> = Column {
    title: "ROLE",
    width: 16,
    rank: 3,
    cell: |line| line.role.to_owned(),
    key: Some(|line| Key::Text(line.role.to_owned())),
};
const NAME: Column<OfProcesses> = Column {
    title: "NAME",
    width: 0,
    rank: 0,
    cell: name,
    key: Some(|line| Key::Text(line.process.name.to_string())),
};

/// Of the tree.
pub(super) const TREE: &[Column<OfProcesses>] = &[
    PID, RSS, BELOW, ANON, SHMEM, FILE, SWAP, PEAK, AT, ENDED, HOW, NAME,
];

/// Of processes one by one.
pub(super) const PROCESSES: &[Column<OfProcesses>] = &[
    PID, RSS, ANON, SHMEM, FILE, SWAP, PEAK, AT, ENDED, HOW, ROLE, NAME,
];

fn sum(role: &RoleNow, kind: Kind) -> String {
    bytes_or_unknown(role.totals[kind].bytes())
}

fn sum_of(role: &RoleNow, kind: Kind) -> Key {
    bytes(role.totals[kind].bytes())
}

pub(super) const ROLES: &[Column<OfRoles>] = &[
    Column {
        title: "NOW",
        width: 5,
        rank: 0,
        cell: |role| words::count(role.process_count),
        key: Some(|role| Key::Number(role.process_count as i64)),
    },
    Column {
        title: "EVER",
        width: 6,
        rank: 1,
        cell: |role| words::count(role.ever_count),
        key: Some(|role| Key::Number(role.ever_count as i64)),
    },
    kind!("RSS", 0, Kind::Rss, sum, sum_of),
    kind!("ANON", 2, Kind::Anon, sum, sum_of),
    kind!("SHMEM", 3, Kind::Shmem, sum, sum_of),
    kind!("FILE", 4, Kind::File, sum, sum_of),
    kind!("SWAP", 5, Kind::Swap, sum, sum_of),
    Column {
        title: "PEAK",
        width: 9,
        rank: 0,
        cell: |role| bytes_or_unknown(role.peak.map(|(bytes, _)| bytes)),
        key: Some(|role| bytes(role.peak.map(|(bytes, _)| bytes))),
    },
    Column {
        title: "AT",
        width: 9,
        rank: 0,
        cell: |role| at(role.peak.map(|(_, at)| at)),
        key: Some(|role| time(role.peak.map(|(_, at)| at))),
    },
    Column {
        title: "ROLE",
        width: 0,
        rank: 0,
        cell: |role| role.name.to_string(),
        key: Some(|role| Key::Text(role.name.to_string())),
    },
];

fn began(line: &PhaseLine) -> Option<Instant> {
    match line {
        PhaseLine::One(phase) => phase.begin,
        PhaseLine::Many(many) => Some(many.begin),
    }
}

fn took(line: &PhaseLine) -> String {
    match line {
        PhaseLine::One(phase) => {
            let took = phase.duration_ns.map_or_else(String::new, words::duration);
            match phase.ended_by {
                PhaseEnd::Recording => format!("{took}…"),
                _ => took,
            }
        }
        PhaseLine::Many(many) => words::times(many.count),
    }
}

fn own_delta(line: &PhaseLine) -> Option<Bytes> {
    match line {
        PhaseLine::One(phase) => phase.own.and_then(|own| own.delta.rss()),
        PhaseLine::Many(_) => None,
    }
}

fn all_delta(line: &PhaseLine) -> Option<Bytes> {
    match line {
        PhaseLine::One(phase) => phase.tree.delta.rss(),
        PhaseLine::Many(many) => many.tree_delta_bytes,
    }
}

fn whose(line: &PhaseLine) -> String {
    let who = match line {
        PhaseLine::One(phase) => &phase.who,
        PhaseLine::Many(many) => &many.who,
    };
    let pid = who.pid.map(|pid| format!("{pid} ")).unwrap_or_default();
    pid + who.name.as_deref().unwrap_or_default()
}

pub(super) const PHASES: &[Column<OfPhases>] = &[
    Column {
        title: "BEGAN",
        width: 9,
        rank: 0,
        cell: |line| at(began(line)),
        key: Some(|line| time(began(line))),
    },
    Column {
        title: "TOOK",
        width: 8,
        rank: 0,
        cell: took,
        key: Some(|line| match line {
            PhaseLine::One(phase) => Key::Number(phase.duration_ns.map_or(-1, |took| took.0)),
            PhaseLine::Many(_) => Key::Number(-1),
        }),
    },
    Column {
        title: "OWN",
        width: 9,
        rank: 0,
        cell: |line| own_delta(line).map_or_else(String::new, |delta| words::change(Some(delta))),
        key: Some(|line| bytes(own_delta(line))),
    },
    Column {
        title: "ALL",
        width: 9,
        rank: 0,
        cell: |line| words::change(all_delta(line)),
        key: Some(|line| bytes(all_delta(line))),
    },
    Column {
        title: "PHASE",
        width: 20,
        rank: 0,
        cell: |line| match line {
            PhaseLine::One(phase) => format!("{}{}", "  ".repeat(phase.depth.min(4)), phase.name),
            PhaseLine::Many(many) => many.name.to_string(),
        },
        key: None,
    },
    Column {
        title: "PROCESS",
        width: 0,
        rank: 1,
        cell: whose,
        key: None,
    },
];
