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

/// What each has at an instant, in MiB, and whether that is an estimate.
fn parts(run: &Script, at: &str) -> Vec<(i64, bool)> {
    let at = run.clone().analyzed(Some(at)).at.expect("a state");
    let part = |share: &crate::shares::Share| (share.bytes().0 / MIB, share.is_estimate());
    at.shares.iter().map(part).collect()
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
    let held = |run: &Script| parts(run, "+10s");
    let expected = [(600, false), (100, false), (200, true)];
    assert_eq!(held(&run), expected, "the eldest has what it shares");
    let shown = text(&run);
    assert!(shown.contains(" ~200 MiB 22% 600 MiB"), "{shown}");
    assert!(shown.contains("~ marks an estimate"), "{shown}");
    read(&mut run, 502, 8.0, [400.0, 600.0]);
    assert_eq!(held(&run)[2], (200, false));
    assert!(!text(&run).contains('~'));
}

#[test]
fn what_only_a_later_reading_says_is_an_estimate_until_then() {
    let mut run = orphans();
    live_in_the_group(&mut run, [500, 501, 502]);
    for at in [2.0, 30.0] {
        charged(&mut run, at, [300, 0], Some((0, 0)));
    }
    // It shares 200 MiB.
    read(&mut run, 501, 20.0, [150.0, 250.0]);
    assert_eq!(parts(&run, "+10s"), [(220, false), (50, true), (30, false)]);
    let shown = text(&run);
    assert!(shown.contains(" ~50.0 MiB 17% 250 MiB"), "{shown}");
    assert_eq!(
        parts(&run, "+25s"),
        [(220, false), (50, false), (30, false)]
    );
}

#[test]
fn what_copies_that_were_read_have_copied_since_is_an_estimate() {
    let mut run = forked();
    run.process(502, Some(500), 5.0, "y");
    run.inherits(502, 600.0);
    run.mem(502, 5.1, [600.0, 0.0, 0.0]);
    live_in_the_group(&mut run, [500, 501, 502]);
    read(&mut run, 501, 7.0, [400.0, 600.0]);
    read(&mut run, 502, 7.0, [400.0, 600.0]);
    charged(&mut run, 8.0, [1000, 0], Some((0, 0)));
    charged(&mut run, 20.0, [1200, 0], Some((0, 0)));
    charged(&mut run, 21.0, [1200, 0], Some((0, 0)));
    let read_now = parts(&run, "+8s");
    assert_eq!(read_now, [(600, false), (200, false), (200, false)]);
    let later = parts(&run, "+20.5s");
    assert_eq!(later, [(600, false), (300, true), (300, true)]);
}
