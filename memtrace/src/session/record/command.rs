//! The command where it is not recorded: before the backend knows it, and without one.

use crate::session::signals::{Request, Signals, pass_on, signals_end_us_again};
use crate::session::{Held, held};
use memtrace_collect::{Birth, ProcessTable, Tick};
use memtrace_model::{FirstSeenBy, Tgid};

/// Enters the command where the backend has not: a poll may come too late to see it, and
/// that it ran and how it ended is known without one.
pub(super) fn enter_command(held: &Held, tick: &Tick, table: &mut ProcessTable) {
    let birth = Birth {
        tgid: held.tgid(),
        start: held.forked(),
        seen_by: FirstSeenBy::Command,
        parent: None,
        comm: held.comm(),
    };
    // Until its exec it goes by the recorder's own command line.
    let upid = match table.upid(held.tgid()) {
        Some(upid) => upid,
        None => table.enter(birth, tick.boot),
    };
    if let Some(process) = table.process_mut(upid) {
        process.row_mut().cmdline = Some(held.argv().join(" ").into());
    }
}

/// Waits for the command without recording it. Answers its exit code.
pub(super) async fn outlive(command: Tgid, signals: &mut Signals) -> i32 {
    loop {
        if let Some(end) = held::wait(command) {
            return end.exit_code();
        }
        if let Request::PassOn(number) = signals.next().await {
            pass_on(number, command);
            // Nothing is left to lose: the next one ends us.
            signals_end_us_again(true);
        }
    }
}
