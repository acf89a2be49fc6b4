//! Draws the screen.

use super::app::{App, Entry, Places};
use super::lines::{Drawn, Listing, listing};
use super::view::View;
use super::{Feed, header, help};
use memtrace_report::{Tone, columns, shorten, visible};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// What fits without anything left out.
const WHOLE: (u16, u16) = (80, 24);
/// The curve gets half of the lines that a higher screen has, up to so many.
const CURVE_MAX: u16 = 12;
/// Lines of the list that the header leaves room for.
const LIST_MIN: u16 = 5;

/// Draws all of it, and notes what stands where.
pub(super) fn draw<F: Feed>(feed: &F, app: &mut App, has_color: bool, area: Rect, to: &mut Buffer) {
    let mut canvas = Canvas {
        to,
        area,
        has_color,
    };
    app.places = Places::default();
    if area.is_empty() {
        return;
    }
    if area.width < 20 || area.height < 3 {
        canvas.line(0, "too small", Style::new());
        return;
    }
    let width = usize::from(area.width);
    let spare = area.height.saturating_sub(WHOLE.1);
    let lines = header::lines(feed, app, width, (spare / 2).clamp(1, CURVE_MAX));
    let wanted = lines.len() as u16;
    // Tabs, titles and the last line.
    let room = area.height.saturating_sub(3 + LIST_MIN).max(1);
    let mut y = 0;
    for line in lines.iter().take(usize::from(room)) {
        let mut style = Style::new();
        if line.is_strong {
            style = style.add_modifier(Modifier::BOLD);
        }
        if line.is_alert {
            style = canvas.alert(style);
        }
        canvas.line(y, &line.text, style);
        y += 1;
    }
    tabs(&mut canvas, app, y);
    y += 1;
    let bottom = area.height - 1;
    let mut left_out = Vec::new();
    if room < wanted {
        left_out.push(format!("{} lines above", wanted - room));
    }
    if app.has_help {
        for (place, line) in help::lines().iter().enumerate() {
            let at = y + place as u16;
            if at < bottom {
                canvas.line(at, line, Style::new());
            }
        }
        canvas.line(bottom, "any key goes back", canvas.quiet());
        return;
    }
    let has_titles = !app.view.is_text();
    let height = usize::from(bottom.saturating_sub(y + u16::from(has_titles)));
    let list = listing(app, feed.live(), width, height);
    if !list.left_out.is_empty() {
        left_out.push(list.left_out.join(" "));
    }
    if has_titles && y < bottom {
        titles(&mut canvas, app, &list, y);
        y += 1;
    }
    app.places.rows = (area.y + y, list.lines.iter().map(|line| line.id).collect());
    if list.count == 0 {
        canvas.line(y, &list.nothing, canvas.quiet());
    }
    for (place, line) in list.lines.iter().enumerate() {
        let at = y + place as u16;
        if at < bottom {
            row(&mut canvas, app, &list, line, at);
        }
    }
    let is_small = area.width < WHOLE.0 || area.height < WHOLE.1;
    footer(&mut canvas, app, &list, (bottom, is_small), &left_out);
}

struct Canvas<'a> {
    to: &'a mut Buffer,
    area: Rect,
    has_color: bool,
}

impl Canvas<'_> {
    /// A line over the whole width.
    fn line(&mut self, y: u16, text: &str, style: Style) {
        self.put(0, y, text, usize::from(self.area.width), style);
    }

    fn put(&mut self, x: u16, y: u16, text: &str, width: usize, style: Style) {
        let (x, y) = (self.area.x + x, self.area.y + y);
        let text = shorten(text, width);
        self.to.set_stringn(x, y, text, width, style);
    }

    fn alert(&self, style: Style) -> Style {
        match self.has_color {
            true => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            false => style.add_modifier(Modifier::BOLD),
        }
    }

    fn quiet(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn accent(&self, style: Style) -> Style {
        match self.has_color {
            true => style.fg(Color::Cyan),
            false => style,
        }
    }
}

fn tabs(canvas: &mut Canvas<'_>, app: &mut App, y: u16) {
    let mut said = Vec::new();
    if !app.filter.is_empty() {
        said.push(format!("filter: {}", visible(&app.filter)));
    }
    if app.hides_ended {
        said.push("ended hidden".to_owned());
    }
    let said = said.join(", ");
    let whole: usize = View::ALL.iter().map(|view| view.name().len() + 5).sum();
    let is_whole = said.is_empty() || whole + columns(&said) < usize::from(canvas.area.width);
    let mut x = 0;
    let line = canvas.area.y + y;
    let mut places = Vec::new();
    for (place, view) in View::ALL.into_iter().enumerate() {
        // Where there is no room for all of it, the numbers stand for the others.
        let text = match is_whole || view == app.view {
            true => format!(" {} {} ", place + 1, view.name()),
            false => format!(" {} ", place + 1),
        };
        let width = text.len() as u16;
        if x + width > canvas.area.width {
            break;
        }
        let style = match view == app.view {
            true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            false => canvas.accent(Style::new()),
        };
        canvas.put(x, y, &text, usize::from(width), style);
        let from = canvas.area.x + x;
        places.push((from, from + width, view));
        x += width + 1;
    }
    app.places.tabs = (line, places);
    let room = usize::from(canvas.area.width.saturating_sub(x + 1));
    let said = shorten(&said, room).into_owned();
    let at = canvas.area.width.saturating_sub(columns(&said) as u16);
    let style = canvas.accent(Style::new());
    canvas.put(at, y, &said, room, style);
}

fn titles(canvas: &mut Canvas<'_>, app: &mut App, list: &Listing, y: u16) {
    let style = Style::new().add_modifier(Modifier::UNDERLINED);
    let (by, is_reversed) = app.sort();
    canvas.line(y, &" ".repeat(usize::from(canvas.area.width)), style);
    let mut x = 0;
    let mut places = Vec::new();
    for column in &list.columns {
        let is_by = column.place == by;
        let style = if is_by {
            style.add_modifier(Modifier::BOLD)
        } else {
            style
        };
        let mark = match (is_by, is_reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        let text = format!("{}{mark}", column.title);
        let text = aligned(&text, column.width, is_words(column.title));
        canvas.put(x, y, &text, column.width, style);
        let from = canvas.area.x + x;
        places.push((from, from + column.width as u16, column.place));
        x += column.width as u16 + 1;
    }
    app.places.titles = (canvas.area.y + y, places);
}

/// Words stand on the left, figures on the right.
fn is_words(title: &str) -> bool {
    matches!(title, "NAME" | "ROLE" | "PHASE" | "PROCESS" | "HOW")
}

fn aligned(text: &str, width: usize, is_left: bool) -> String {
    let text = shorten(text, width);
    let padding = " ".repeat(width.saturating_sub(columns(&text)));
    match is_left {
        true => format!("{text}{padding}"),
        false => format!("{padding}{text}"),
    }
}

fn row(canvas: &mut Canvas<'_>, app: &App, list: &Listing, line: &Drawn, y: u16) {
    let is_selected = line.id != 0 && app.selected() == Some(line.id);
    let mut style = match line.tone {
        Tone::Plain => Style::new(),
        Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
        Tone::Alert => canvas.alert(Style::new()),
        Tone::Quiet => canvas.quiet(),
    };
    if line.is_over {
        style = style.add_modifier(Modifier::DIM);
    }
    if is_selected {
        style = Style::new().add_modifier(Modifier::REVERSED);
        canvas.line(y, &" ".repeat(usize::from(canvas.area.width)), style);
    }
    if list.columns.is_empty() {
        let text = line.cells.first().map(String::as_str).unwrap_or_default();
        canvas.line(y, text, style);
        return;
    }
    let mut x = 0;
    for (column, cell) in list.columns.iter().zip(&line.cells) {
        let text = aligned(cell, column.width, is_words(column.title));
        canvas.put(x, y, &text, column.width, style);
        x += column.width as u16 + 1;
    }
}

fn footer(
    canvas: &mut Canvas<'_>,
    app: &App,
    list: &Listing,
    (y, is_small): (u16, bool),
    left_out: &[String],
) {
    let strong = Style::new().add_modifier(Modifier::BOLD);
    match (&app.entry, &app.message) {
        (Entry::Filter, _) => {
            let text = format!(
                "/{}_   (Enter keeps it, Esc takes it away)",
                visible(&app.filter)
            );
            return canvas.line(y, &text, strong);
        }
        (Entry::Mark(name), _) => {
            let text = format!("mark this moment as: {}_   (Esc: not)", visible(name));
            return canvas.line(y, &text, strong);
        }
        (Entry::None, Some(message)) => return canvas.line(y, &visible(message), strong),
        (Entry::None, None) => {}
    }
    let last = (list.first + list.lines.len()).min(list.count);
    let mut right = match list.count {
        0 => String::new(),
        count => format!("{}-{last} of {count}", list.first + 1),
    };
    if !left_out.is_empty() {
        let word = if is_small { "80x24 shows more; " } else { "" };
        right = format!("{word}no room: {}  {right}", left_out.join(", "));
    }
    let width = usize::from(canvas.area.width);
    let keys = "? help  q quit  / filter  s order  space pause  p peak  m mark";
    let right = shorten(&right, width).into_owned();
    let room = width.saturating_sub(columns(&right) + 2);
    // Rather fewer keys than half a word.
    let mut reported = String::new();
    for key in keys.split("  ") {
        if reported.len() + key.len() + 2 > room {
            break;
        }
        reported = format!("{reported}{key}  ");
    }
    canvas.line(y, &reported, canvas.quiet());
    let at = canvas.area.width.saturating_sub(columns(&right) as u16);
    canvas.put(at, y, &right, width, canvas.quiet());
}
