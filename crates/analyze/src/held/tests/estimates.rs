//! What each of those has that share pages, as far as that was read.

use super::account::{charged, live_in_the_group};
use super::*;
use memtrace_report::{FORMATS, Style};

/// The report of an instant, as text.
fn text(run: &Script) -> String {
    let mut report = run.clone().reported(Some("+10s"), None);
    let mut out = Vec::new();
    let format = FORMATS[0].write(&mut report, &Style::default(), &mut out);
    format.expect("a Vec can be written to");
    let text = String::from_utf8(out).expect("a report is UTF-8");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_no_reading_explains_is_of_those_that_were_not_read_and_an_estimate() {
    let mut run = forked();
    run.process(502, Some(500), 5.0, "y");
    run.inherits(502, 600.0);
    run.mem(502, 5.1, [600.0, 0.0, 0.0]);
    run.edit(502, |row| row.cmdline = Some("y".into()));
    live_in_the_group(&mut run, [500, 501, 502]);
    for at in [6.0, 11.0] {
        charged(&mut run, at, [900, 0], Some((0, 0)));
    }
    read(&mut run, 501, 7.0, [350.0, 600.0]);
    let held = |run: &Script| {
        let at = run.clone().analyzed(Some("+10s")).at.expect("a state");
        let share = |share: &crate::shares::Share| (share.bytes().0 / MIB, share.is_estimate());
        at.shares.iter().map(share).collect::<Vec<_>>()
    };
    let expected = [(600, false), (100, false), (200, true)];
    assert_eq!(held(&run), expected, "the eldest has what it shares");
    let shown = text(&run);
    assert!(shown.contains(" ~200 MiB 22% 600 MiB"), "{shown}");
    assert!(shown.contains("~ marks an estimate"), "{shown}");
    read(&mut run, 502, 8.0, [400.0, 600.0]);
    assert_eq!(held(&run)[2], (200, false));
    assert!(!text(&run).contains('~'));
}
