//! Keys and the mouse.

use super::Feed;
use super::app::{App, Entry, Shown};
use super::columns::{Column, OfProcesses, PHASES, PROCESSES, ROLES, TREE};
use super::view::View;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

/// What the loop has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing that can be seen has changed.
    None,
    Draw,
    /// Give the terminal back, and stop until someone lets it go on.
    Suspend,
    Quit,
}

/// Lines that a wheel moves.
const WHEEL: i64 = 3;
/// Steps of the history that are about a minute.
const MINUTE: i64 = 120;
/// A name or a filter is no longer.
const ENTRY_MAX: usize = 200;

/// Takes an event.
pub(super) fn take<F: Feed>(app: &mut App, feed: &mut F, event: &Event) -> Action {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => take_key(app, feed, key),
        Event::Mouse(mouse) => take_mouse(app, mouse),
        Event::Resize(..) => Action::Draw,
        _ => Action::None,
    }
}

fn take_key<F: Feed>(app: &mut App, feed: &mut F, key: &KeyEvent) -> Action {
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if has_control => return Action::Quit,
        KeyCode::Char('z') if has_control => return Action::Suspend,
        _ => {}
    }
    app.message = None;
    if app.entry != Entry::None {
        enter(app, feed, key);
        return Action::Draw;
    }
    if std::mem::take(&mut app.has_help) {
        return Action::Draw;
    }
    let page = i64::try_from(app.page).unwrap_or(1);
    match key.code {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Char('?' | 'h') => app.has_help = true,
        KeyCode::Char(digit @ '1'..='7') => {
            let place = digit as usize - '1' as usize;
            app.go_to(View::ALL[place]);
        }
        KeyCode::Tab => app.go_to(app.view.beside(false)),
        KeyCode::BackTab => app.go_to(app.view.beside(true)),
        KeyCode::Up | KeyCode::Char('k') => app.move_by(-1),
        KeyCode::Down | KeyCode::Char('j') => app.move_by(1),
        KeyCode::PageUp => app.move_by(-page),
        KeyCode::PageDown => app.move_by(page),
        KeyCode::Home => app.move_by(-i64::from(i32::MAX)),
        KeyCode::End => app.move_by(i64::from(i32::MAX)),
        KeyCode::Char('s') => sort_by_next(app, false),
        KeyCode::Char('S') => sort_by_next(app, true),
        KeyCode::Char('r') => app.sort_by(app.sort().0),
        KeyCode::Char('/') => app.entry = Entry::Filter,
        KeyCode::Char('m') => app.entry = Entry::Mark(String::new()),
        KeyCode::Char('d') => app.hides_ended = !app.hides_ended,
        KeyCode::Char('f') => app.fold_all(feed.live()),
        KeyCode::Enter => app.fold(),
        KeyCode::Char(' ') => app.pause(feed.live()),
        KeyCode::Left => app.step(feed.live(), -1),
        KeyCode::Right => app.step(feed.live(), 1),
        KeyCode::Char('[') => app.step(feed.live(), -MINUTE),
        KeyCode::Char(']') => app.step(feed.live(), MINUTE),
        KeyCode::Char('p') => app.show_peak(feed.live()),
        KeyCode::Esc if app.shown != Shown::Now => app.follow(feed.live()),
        KeyCode::Esc => app.filter.clear(),
        _ => return Action::None,
    }
    Action::Draw
}

/// Takes a key of what is being typed.
fn enter<F: Feed>(app: &mut App, feed: &mut F, key: &KeyEvent) {
    let mut entry = std::mem::replace(&mut app.entry, Entry::None);
    let text = match &mut entry {
        Entry::Mark(name) => name,
        _ => &mut app.filter,
    };
    match key.code {
        KeyCode::Esc => {
            if entry == Entry::Filter {
                app.filter.clear();
            }
            return;
        }
        KeyCode::Enter => {
            if let Entry::Mark(name) = entry {
                mark(app, feed, name.trim());
            }
            return;
        }
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(letter) if text.len() < ENTRY_MAX => text.push(letter),
        _ => {}
    }
    app.entry = entry;
}

fn mark<F: Feed>(app: &mut App, feed: &mut F, name: &str) {
    if name.is_empty() {
        return;
    }
    app.message = Some(match feed.mark(name) {
        Ok(()) => format!("{name} is marked"),
        Err(reason) => format!("not marked: {reason}"),
    });
}

/// Which columns of the view lines can be ordered by.
fn sortable(view: View) -> Vec<bool> {
    let of_processes = |columns: &[Column<OfProcesses>]| {
        columns.iter().map(|column| column.key.is_some()).collect()
    };
    match view {
        View::Tree => of_processes(TREE),
        View::Processes => of_processes(PROCESSES),
        View::Roles => ROLES.iter().map(|column| column.key.is_some()).collect(),
        View::Phases => PHASES.iter().map(|column| column.key.is_some()).collect(),
        View::Ledger | View::Gpus | View::Stacks => Vec::new(),
    }
}

/// Orders by the next column of those that the terminal has room for: its title shows the order.
fn sort_by_next(app: &mut App, is_back: bool) {
    let sortable = sortable(app.view);
    let (by, _) = app.sort();
    let count = sortable.len();
    let step = if is_back { count.saturating_sub(1) } else { 1 };
    let mut next = (1..=count).map(|nth| (by + nth * step) % count);
    let (_, drawn) = &app.places.titles;
    let is_drawn = |place| drawn.iter().any(|(.., column)| *column == place);
    if let Some(next) = next.find(|place| sortable[*place] && is_drawn(*place)) {
        app.sort_by(next);
    }
}

fn take_mouse(app: &mut App, mouse: &MouseEvent) -> Action {
    match mouse.kind {
        MouseEventKind::ScrollUp => app.move_by(-WHEEL),
        MouseEventKind::ScrollDown => app.move_by(WHEEL),
        MouseEventKind::Down(MouseButton::Left) => return click(app, mouse.column, mouse.row),
        _ => return Action::None,
    }
    Action::Draw
}

fn click(app: &mut App, column: u16, row: u16) -> Action {
    if std::mem::take(&mut app.has_help) {
        return Action::Draw;
    }
    let is_in = |from: u16, to: u16| (from..to).contains(&column);
    let (tabs, views) = &app.places.tabs;
    let tab = views
        .iter()
        .find(|(from, to, _)| *tabs == row && is_in(*from, *to));
    if let Some((.., view)) = tab {
        app.go_to(*view);
        return Action::Draw;
    }
    let (titles, columns) = &app.places.titles;
    let title = columns
        .iter()
        .find(|(from, to, _)| *titles == row && is_in(*from, *to));
    if let Some(&(.., place)) = title {
        if sortable(app.view).get(place) == Some(&true) {
            app.sort_by(place);
        }
        return Action::Draw;
    }
    let (first, ids) = &app.places.rows;
    let line = row.checked_sub(*first);
    if let Some(&id) = line.and_then(|line| ids.get(usize::from(line))) {
        // A second click folds.
        match app.selected() == Some(id) {
            true => app.fold(),
            false => app.select(id),
        }
        return Action::Draw;
    }
    Action::None
}
