//! Whose a phase is, in a table: what the process is to its framework, or else its process id.

use crate::{Analysis, Repeated, Who};
use memtrace_model::Upid;
use memtrace_report::{Cell, shorten, words};
use std::collections::HashMap;

/// Longer names leave no room for amounts.
const WIDTH: usize = 20;

/// What the processes that have a role are called.
pub(super) struct Names(HashMap<Upid, String>);

impl Names {
    pub(super) fn of(analysis: &Analysis) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, process) in analysis.processes.iter().enumerate() {
            let Some(role) = &process.role else { continue };
            let rank = role.rank.as_deref();
            let rank = rank.map_or_else(String::new, |rank| format!(" {rank}"));
            let name = format!("{}{rank}", role.role);
            by_name.entry(name).or_default().push(place);
        }
        let named = by_name.into_iter().flat_map(|(name, places)| {
            let is_one = places.len() == 1;
            places.into_iter().filter_map(move |place| {
                let process = &analysis.processes[place];
                let name = match is_one {
                    true => shorten(&name, WIDTH).into_owned(),
                    false => {
                        let pid = process.tgid?.to_string();
                        let room = WIDTH.saturating_sub(pid.len() + 1);
                        format!("{} {pid}", shorten(&name, room))
                    }
                };
                Some((process.upid, name))
            })
        });
        Self(named.collect())
    }

    /// Whose it is.
    pub(super) fn cell(&self, who: &Who) -> Cell {
        let name = who.upid.and_then(|upid| self.0.get(&upid));
        match name {
            Some(name) => pid_of(who).shown_as(name.clone()),
            None => pid_of(who),
        }
    }

    /// The process of all of them, or how many there are.
    pub(super) fn of_all(&self, many: &Repeated) -> Cell {
        match (many.who.upid, many.process_count) {
            (None, count @ 1..) => words::times(count).into(),
            _ => self.cell(&many.who),
        }
    }
}

/// Its process id.
pub(super) fn pid_of(who: &Who) -> Cell {
    match who.upid {
        Some(_) => Cell::known(who.pid),
        None => Cell::shown_only("-"),
    }
}
