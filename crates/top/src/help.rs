//! The keys, and the page that names them.

use super::view::View;

/// A key and what it does.
const KEYS: &[(&str, &str)] = &[
    ("1-7, Tab, Shift-Tab", "the view"),
    ("Up Down PgUp PgDn Home End", "the line"),
    ("s, S", "order by the next column, the one before"),
    ("r", "reverse the order"),
    ("/", "only lines with a text; Esc takes it away"),
    ("Enter, click", "fold a branch of the tree, or unfold it"),
    ("f", "fold all branches, or unfold them"),
    ("d", "hide what has ended, or show it"),
    ("Space", "pause, and go on"),
    ("Left Right, [ ]", "look back, by one update or by a minute"),
    ("p", "the peak so far, and back"),
    ("Esc", "back to now"),
    ("m", "mark this moment, by a name"),
    ("q, Ctrl-C", "quit"),
];

pub(super) fn lines() -> Vec<String> {
    let keys = KEYS.iter().map(|(key, what)| format!("{key:<27} {what}"));
    let views = View::ALL.iter().enumerate();
    let views =
        views.map(|(place, view)| format!("{}  {:<9} {}", place + 1, view.name(), view.doc()));
    let mut lines: Vec<String> = keys.collect();
    lines.push(String::new());
    lines.extend(views);
    lines.push(String::new());
    lines.extend(
        [
            "Held: every page once. RSS: a page that several map counts in each. PEAK is a",
            "process's own highest, as the kernel kept it where that is known, also of those",
            "that have ENDED. Ledger, GPUs, phases and stacks are always of now.",
        ]
        .map(str::to_owned),
    );
    lines
}
