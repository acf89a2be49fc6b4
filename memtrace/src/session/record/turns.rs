//! Asking the collectors in turn, at the pace that the budget allows, and handing over what
//! they saw.

use super::movement::{LastAsked, Movement};
use super::{Session, tick};
use crate::session::{Progress, self_cost};
use memtrace_collect::{Collector, NAME_BYTES_KEPT, Part, Pass, Tick};
use memtrace_host::clock;
use memtrace_model::{BootNs, Bytes, DiagKind, DurationNs, Record, Severity};

/// A full row of every process at least this often: it bounds how far a reader must look
/// back.
pub(super) const KEYFRAME_PERIOD: DurationNs = DurationNs(30_000_000_000);
/// What was observed survives a kill -9 after at most this long.
const FLUSH_PERIOD: DurationNs = DurationNs(1_000_000_000);
/// What the recorder itself costs is a row so often, and where its memory has moved by this much.
const COST_PERIOD: DurationNs = DurationNs(10_000_000_000);
const COST_MOVED: Bytes = Bytes(256 << 10);
/// The clocks are compared this often.
pub(super) const CLOCK_PERIOD: DurationNs = DurationNs(60_000_000_000);

/// A collector and when it is asked next.
pub(super) struct Turn {
    pub(super) collector: Box<dyn Collector>,
    pub(super) next: BootNs,
    last: LastAsked,
}

impl Turn {
    pub(super) fn new(collector: Box<dyn Collector>, next: BootNs) -> Self {
        Self {
            collector,
            next,
            last: LastAsked::default(),
        }
    }

    /// Whether its time has come, or what it read has gone out of date before that.
    fn is_due(&mut self, tick: &Tick, movement: &Movement) -> bool {
        if self.next <= tick.boot || tick.is_keyframe {
            return true;
        }
        let has_moved = self.collector.follows_processes() && self.last.is_out_of_date(movement);
        self.last.may_be_asked(tick.boot) && (has_moved || self.collector.is_out_of_date())
    }
}

impl Session {
    /// When there is something to do: a collector's turn, or rows to bring to disk, which
    /// are due each second also where the turns are further apart.
    pub(super) fn next_turn(&self) -> BootNs {
        self.turns
            .iter()
            .map(|turn| turn.next)
            .fold(self.next_flush, BootNs::min)
    }

    /// Asks every collector whose turn it is.
    pub(super) fn take_turns(&mut self, progress: &mut impl FnMut(&Progress)) {
        let now = clock::boot();
        let is_keyframe = now >= self.next_keyframe;
        if is_keyframe {
            self.next_keyframe = now + KEYFRAME_PERIOD;
        }
        let tick = tick(is_keyframe);
        let slowest = self.pace.interval();
        let ((), cost) = self_cost::timed(|| {
            let mut failures = Vec::new();
            let mut pass = Pass::new(&tick, &mut self.table, &mut self.batch);
            in_turn(&mut self.turns, &mut pass, |turn, pass| {
                self.movement.note(pass.out);
                if !turn.is_due(&tick, &self.movement) {
                    return;
                }
                let period = turn.collector.period();
                let period = match turn.collector.is_urged() {
                    true => period,
                    false => DurationNs(period.0.max(slowest.0)),
                };
                if turn.next <= tick.boot {
                    turn.next = next_after(turn.next, tick.boot, period);
                }
                let (collected, cost) = self_cost::timed(|| turn.collector.collect(pass));
                let budget = self.pace.budget();
                turn.last.note(&self.movement, tick.boot, cost, budget);
                if let Err(error) = collected {
                    failures.push((turn.collector.name(), error));
                }
            });
            for (name, error) in failures {
                self.report(&tick, DiagKind::Unavailable, name, &error.to_string());
            }
        });
        if let Some(interval) = self.pace.note(cost) {
            let millis = interval.0 / 1_000_000;
            let (severity, detail) = if self.pace.is_as_asked() {
                (Severity::Info, format!("every {millis} ms again"))
            } else {
                (
                    Severity::Degraded,
                    format!("snapshots every {millis} ms, to stay within --budget"),
                )
            };
            self.pass(&tick)
                .tell(severity, DiagKind::BackOff, "budget", None, detail);
        }
        self.tell_cut_names(&tick);
        let is_flush_due = now >= self.next_flush;
        self.hand_over(is_keyframe || is_flush_due);
        if is_flush_due {
            self.next_flush = next_after(self.next_flush, now, FLUSH_PERIOD);
            self.note_cost(&tick, false);
            self.output.flush();
            progress(&self.progress(false));
        }
        if now >= self.next_clock {
            self.next_clock = now + CLOCK_PERIOD;
            self.info.clocks.push(clock::read());
            if self.is_rotating {
                self.output.update(self.info.clone());
            }
        }
    }

    /// How far it has come.
    pub(in crate::session) fn progress(&self, is_closing: bool) -> Progress {
        let stats = self.output.stats();
        Progress {
            elapsed: clock::boot() - self.started,
            process_count: self.table.len(),
            row_count: stats.row_count,
            written_bytes: stats.written_bytes,
            is_closing,
        }
    }

    /// Takes what woke us between two turns.
    pub(in crate::session) fn drain(&mut self) {
        let tick = tick(false);
        let mut pass = Pass::new(&tick, &mut self.table, &mut self.batch);
        in_turn(&mut self.turns, &mut pass, |turn, pass| {
            // An error here comes again at the collector's turn, which reports it.
            let _ = turn.collector.drain(pass);
        });
        self.hand_over(false);
    }

    /// Peaks go out with every flush, not with every batch, for they rise often: so no more
    /// of them is lost with the recorder than of anything else.
    pub(super) fn hand_over(&mut self, are_peaks_due: bool) {
        self.movement.note(&self.batch);
        self.movement.begin_batch();
        self.table.write_changes(are_peaks_due, &mut self.batch);
        self.roles.fill(&mut self.batch, &mut self.table);
        self.sections
            .take(&self.batch, &mut self.table, clock::boot());
        let has_oom = self
            .batch
            .iter()
            .any(|record| matches!(record, Record::Oom(_)));
        if let Some(gpu_only) = &mut self.gpu_only {
            gpu_only.keep(&mut self.batch);
        }
        self.output.send(std::mem::take(&mut self.batch));
        if has_oom {
            // Where memory has run out, the machine may be next.
            self.output.sync();
        }
    }

    /// Writes what the recorder has cost, where that is due.
    pub(super) fn note_cost(&mut self, tick: &Tick, is_last: bool) {
        let interval = self.pace.interval();
        let cgroup = self.own_cgroup.as_deref();
        let row = self_cost::row(tick, &self.table, &self.output, interval, cgroup);
        let anon = row.rss_anon_bytes.unwrap_or_default();
        let is_due = self.noted_cost.is_none_or(|(at, noted)| {
            let has_lost = row.lost_event_count > self.noted_losses;
            let has_moved = Bytes((anon - noted).0.abs()) >= COST_MOVED;
            tick.boot - at >= COST_PERIOD || has_lost || has_moved
        });
        if is_due || is_last {
            self.noted_cost = Some((tick.boot, anon));
            self.noted_losses = row.lost_event_count;
            self.output.send(vec![row.into()]);
        }
    }

    fn tell_cut_names(&mut self, tick: &Tick) {
        let count = std::mem::take(&mut self.table.news.cut_names_count);
        if count > 0 {
            let detail = format!(
                "the command lines of all live processes take {} MiB, the limit; of further ones \
                 only the first {NAME_BYTES_KEPT} bytes are kept",
                Part::Names.limit() >> 20
            );
            self.pass(tick)
                .tell_degraded(DiagKind::Limit, "process", Some(count), detail);
        }
    }

    /// Reports a failure once per message.
    pub(super) fn report(&mut self, tick: &Tick, kind: DiagKind, subject: &str, detail: &str) {
        if self.reported.insert(format!("{subject}: {detail}")) {
            self.pass(tick).tell_degraded(kind, subject, None, detail);
        }
    }
}

/// Asks one collector after the other. Those for whom one of them saw somebody killed are looked at
/// before the next one is asked, which may take as long as they live.
fn in_turn(turns: &mut [Turn], pass: &mut Pass<'_>, mut ask: impl FnMut(&mut Turn, &mut Pass<'_>)) {
    for place in 0..turns.len() {
        if let Some(turn) = turns.get_mut(place) {
            ask(turn, pass);
        }
        for turn in &mut *turns {
            turn.collector.look_at_killed_for(pass.table);
        }
    }
}

/// The next turn on the collector's own beat; turns that were missed are not made up for.
fn next_after(planned: BootNs, now: BootNs, period: DurationNs) -> BootNs {
    let missed = (now - planned).0.max(0) / period.0.max(1);
    planned + DurationNs((missed + 1) * period.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_collect::{CollectError, ProcessTable};
    use memtrace_model::Upid;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Says what it is asked to do.
    struct Reported {
        name: &'static str,
        sees_kill: bool,
        looks: bool,
        log: Rc<RefCell<Vec<String>>>,
    }

    impl Collector for Reported {
        fn name(&self) -> &'static str {
            self.name
        }

        fn period(&self) -> DurationNs {
            DurationNs(1)
        }

        fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
            self.log.borrow_mut().push(self.name.to_owned());
            if self.sees_kill {
                pass.table.news.note_killed_for(Upid(7));
            }
            Ok(())
        }

        fn look_at_killed_for(&mut self, table: &mut ProcessTable) {
            if self.looks {
                let killed_for = std::mem::take(&mut table.news.killed_for);
                let text = killed_for.iter().map(|upid| format!("look at {upid}"));
                self.log.borrow_mut().extend(text);
            }
        }
    }

    #[test]
    fn whose_group_was_full_is_looked_at_before_the_next_collector_is_asked() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let text = |name, sees_kill, looks| {
            let log = Rc::clone(&log);
            let collector = Reported {
                name,
                sees_kill,
                looks,
                log,
            };
            Turn::new(Box::new(collector), BootNs(0))
        };
        let mut turns = [
            text("backend", true, false),
            text("groups", false, false),
            text("memory", false, true),
        ];
        let (tick, mut table) = (tick(false), ProcessTable::default());
        let mut out = Vec::new();
        let mut pass = Pass::new(&tick, &mut table, &mut out);
        in_turn(&mut turns, &mut pass, |turn, pass| {
            turn.collector.collect(pass).unwrap();
        });
        assert_eq!(*log.borrow(), ["backend", "look at 7", "groups", "memory"]);
    }
}
