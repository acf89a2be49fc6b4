//! What the person has chosen: the view, the order, the instant, what is folded and filtered.

use super::order::Order;
use super::view::View;
use memtrace_analyze::{Deep, Frame, Live};
use memtrace_model::Upid;
use std::collections::HashSet;
use std::time::{Duration, Instant};

const VIEWS: usize = View::ALL.len();

/// What the report finds is asked for again no sooner than this, and when so many times as long as
/// it took has passed.
const DEEP_EVERY: Duration = Duration::from_secs(1);
const DEEP_REST: u32 = 100;

/// Which instant is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The newest, as it comes.
    Now,
    /// The newest when the person asked to stay there.
    Paused,
    /// An earlier one.
    Back,
    /// That at which most was held so far.
    Peak,
}

/// What is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Keys are commands.
    None,
    /// Text that lines must have.
    Filter,
    /// A name for this moment.
    Mark(String),
}

/// Where things stand on the screen, for the mouse.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// The line of the tabs, and from which column to which each is.
    pub(super) tabs: (u16, Vec<(u16, u16, View)>),
    /// The line of the titles, and from which column to which each is, by the place of the column.
    pub(super) titles: (u16, Vec<(u16, u16, usize)>),
    /// The first line of the list, and what stands on each.
    pub(super) rows: (u16, Vec<u64>),
}

/// All of it.
#[derive(Debug)]
pub(super) struct App {
    pub(super) view: View,
    sort: [(usize, bool); VIEWS],
    orders: [Order; VIEWS],
    selected: [Option<u64>; VIEWS],
    /// The line that is selected, where what was selected is gone.
    line: [usize; VIEWS],
    offset: [usize; VIEWS],
    pub(super) filter: String,
    pub(super) entry: Entry,
    pub(super) hides_ended: bool,
    pub(super) folded: HashSet<Upid>,
    pub(super) shown: Shown,
    /// What is shown.
    pub(super) frame: Frame,
    pub(super) has_help: bool,
    pub(super) message: Option<String>,
    pub(super) deep: Option<Deep>,
    deep_due: Option<Instant>,
    pub(super) places: Places,
    /// Lines of the list that were on the screen.
    pub(super) page: usize,
}

impl App {
    pub(super) fn new(view: View) -> Self {
        let mut app = Self {
            view,
            sort: [(0, false); VIEWS],
            orders: Default::default(),
            selected: [None; VIEWS],
            line: [0; VIEWS],
            offset: [0; VIEWS],
            filter: String::new(),
            entry: Entry::None,
            hides_ended: false,
            folded: HashSet::new(),
            shown: Shown::Now,
            frame: Frame::default(),
            has_help: false,
            message: None,
            deep: None,
            deep_due: None,
            places: Places::default(),
            page: 1,
        };
        // By the sum of a branch, by RSS, and by when they began.
        for (view, by) in [(View::Tree, 2), (View::Roles, 2), (View::Processes, 1)] {
            app.sort[view.place()] = (by, false);
        }
        app
    }

    /// Takes in what is new.
    pub(super) fn update(&mut self, live: &Live) {
        match self.shown {
            Shown::Now => self.frame = live.now().clone(),
            // It can have moved, and so can have its figures.
            Shown::Peak => match live.peak() {
                Some(peak) => self.frame = peak,
                None => self.shown = Shown::Now,
            },
            Shown::Paused | Shown::Back => {}
        }
    }

    /// Asks for what the report finds, where it is shown and due.
    pub(super) fn update_deep(&mut self, live: &mut Live) {
        let is_due = self.deep_due.is_none_or(|due| Instant::now() >= due);
        let is_new = self
            .deep
            .as_ref()
            .is_none_or(|deep| deep.at < live.now().at);
        if !self.view.is_deep() || !is_due || !is_new || self.shown == Shown::Paused {
            return;
        }
        let begin = Instant::now();
        if let Some(deep) = live.deep() {
            self.deep = Some(deep);
        }
        let rest = DEEP_EVERY.max(begin.elapsed() * DEEP_REST);
        self.deep_due = Some(Instant::now() + rest);
    }

    pub(super) fn go_to(&mut self, view: View) {
        self.view = view;
    }

    /// The column by which the view is ordered, and whether the lowest come first.
    pub(super) fn sort(&self) -> (usize, bool) {
        self.sort[self.view.place()]
    }

    /// Orders by a column; by that one already: the other way round.
    pub(super) fn sort_by(&mut self, column: usize) {
        let (by, is_reversed) = self.sort();
        self.sort[self.view.place()] = (column, by == column && !is_reversed);
    }

    /// The order of the view.
    pub(super) fn order(&mut self) -> &mut Order {
        &mut self.orders[self.view.place()]
    }

    /// Whether one of the texts has what lines must have.
    pub(super) fn matches(&self, texts: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty()
            || texts
                .iter()
                .any(|text| text.to_lowercase().contains(&wanted))
    }

    /// What is selected.
    pub(super) fn selected(&self) -> Option<u64> {
        self.selected[self.view.place()]
    }

    pub(super) fn select(&mut self, id: u64) {
        self.selected[self.view.place()] = Some(id).filter(|id| *id != 0);
    }

    /// Moves the selection by so many lines. In text the text moves.
    pub(super) fn move_by(&mut self, lines: i64) {
        let view = self.view.place();
        let moved = |line: usize| {
            let line = i64::try_from(line).unwrap_or(i64::MAX);
            usize::try_from(line.saturating_add(lines).max(0)).unwrap_or(0)
        };
        self.line[view] = moved(self.line[view]);
        self.selected[view] = None;
        if self.view.is_text() {
            self.offset[view] = moved(self.offset[view]);
        }
    }

    /// The first line on the screen, so that the selected one is on it.
    pub(super) fn scroll_to(&mut self, ids: &[u64], height: usize) -> usize {
        let view = self.view.place();
        let height = height.max(1);
        let found = self.selected[view].and_then(|id| ids.iter().position(|one| *one == id));
        let line = found.unwrap_or(self.line[view]);
        let line = line.min(ids.len().saturating_sub(1));
        self.line[view] = line;
        self.selected[view] = ids.get(line).copied();
        self.page = height;
        let last = ids.len().saturating_sub(height);
        let lowest = (line + 1).saturating_sub(height);
        self.offset[view] = self.offset[view].clamp(lowest, line).min(last.max(lowest));
        self.offset[view]
    }

    /// The first line of text on the screen.
    pub(super) fn scroll_text(&mut self, count: usize, height: usize) -> usize {
        let view = self.view.place();
        self.page = height.max(1);
        self.offset[view] = self.offset[view].min(count.saturating_sub(height));
        self.line[view] = self.offset[view];
        self.offset[view]
    }

    /// Shows an earlier or a later state: so many steps of the history.
    pub(super) fn step(&mut self, live: &Live, steps: i64) {
        let history = live.history();
        let at = self.frame.at;
        let place = history.partition_point(|frame| frame.at < at);
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        let place = place.saturating_add(steps);
        let last = i64::try_from(history.len()).unwrap_or(i64::MAX) - 1;
        if place >= last && steps > 0 {
            return self.follow(live);
        }
        let place = usize::try_from(place.max(0)).unwrap_or(0);
        if let Some(frame) = history.get(place) {
            self.frame = frame.clone();
            self.shown = Shown::Back;
        }
    }

    /// Shows the newest state, as it comes.
    pub(super) fn follow(&mut self, live: &Live) {
        self.shown = Shown::Now;
        self.update(live);
    }

    /// Stays at what is shown, or goes on.
    pub(super) fn pause(&mut self, live: &Live) {
        match self.shown {
            Shown::Now => self.shown = Shown::Paused,
            _ => self.follow(live),
        }
    }

    /// Shows the state in which most was held; from there, the newest.
    pub(super) fn show_peak(&mut self, live: &Live) {
        if self.shown == Shown::Peak {
            return self.follow(live);
        }
        match live.peak() {
            Some(peak) => {
                self.frame = peak;
                self.shown = Shown::Peak;
            }
            None => self.message = Some("Nothing is held yet.".to_owned()),
        }
    }

    /// Folds the branch of what is selected, or unfolds it.
    pub(super) fn fold(&mut self) {
        let Some(id) = self.selected().filter(|_| self.view == View::Tree) else {
            return;
        };
        let upid = Upid(id.cast_signed());
        if !self.folded.remove(&upid) {
            self.folded.insert(upid);
        }
    }

    /// Unfolds all, or folds all that have a branch.
    pub(super) fn fold_all(&mut self, live: &Live) {
        if !self.folded.is_empty() {
            return self.folded.clear();
        }
        let processes = live.processes().iter().enumerate();
        let with_branches = processes.filter(|(place, process)| {
            let is_below = process.parent.is_some();
            is_below && !live.tree().children(*place).is_empty()
        });
        self.folded = with_branches.map(|(_, process)| process.upid).collect();
    }
}
