//! One screen as plain text, for scripts.

use super::Feed;
use super::app::App;
use super::draw::draw;
use super::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Lines of a screen that has no terminal.
const HEIGHT: u16 = 50;

/// What the screen shows at this moment, in so many columns. The keys are left out.
pub fn once<F: Feed>(feed: &mut F, view: View, width: u16, height: Option<u16>) -> String {
    let mut app = App::new(view);
    app.update(feed.live());
    app.update_deep(feed.live_mut());
    let area = Rect::new(0, 0, width.max(20), height.unwrap_or(HEIGHT).max(10));
    let mut buffer = Buffer::empty(area);
    draw(feed, &mut app, false, area, &mut buffer);
    let mut lines = lines(&buffer);
    lines.pop();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

/// The lines of a screen, without blanks at their ends.
pub(super) fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let row = |y: u16| {
        let mut text = String::new();
        let mut x = area.left();
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            text.push_str(symbol);
            // A wide character takes the cell behind it too.
            x += (memtrace_report::columns(symbol) as u16).max(1);
        }
        text.truncate(text.trim_end().len());
        text
    };
    (area.top()..area.bottom()).map(row).collect()
}
