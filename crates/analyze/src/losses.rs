//! What was lost or not visible, from `diag`, one finding per kind and subject.

use super::clock::RunClock;
use super::cost::RecorderCost;
use memtrace_model::tables::{DiagKind, DiagRow, Severity};
use memtrace_model::{Instant, Order, RowSource, RunInfo};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// Something a reader must know before trusting an absence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Loss {
    /// How much it matters; a severity that this version does not know counts as a loss.
    pub severity: Severity,
    /// What kind of thing; `None` when this version does not know it.
    pub kind: Option<DiagKind>,
    /// What it concerns.
    pub subject: String,
    /// How often in all; `None` when it can't be counted.
    pub count: Option<i64>,
    /// One sentence, of the last of the gravest rows.
    pub detail: String,
    /// When first; `None` for what is known of the recording as a whole.
    pub first: Option<Instant>,
    /// When last; `None` where `first` is.
    pub last: Option<Instant>,
}

/// Reads `diag`: losses first, then what was degraded, then what is good to know.
pub(super) fn read<S: RowSource>(
    source: &S,
    info: &RunInfo,
    cost: Option<&RecorderCost>,
    clock: &RunClock,
) -> Result<Vec<Loss>, S::Error> {
    let mut losses: Vec<Loss> = Vec::new();
    let mut places: HashMap<(Option<DiagKind>, String), usize> = HashMap::new();
    source.scan(&[], |row: DiagRow| {
        let boot_ns = row.boot_ns;
        let place = *places
            .entry((row.kind, row.subject.clone()))
            .or_insert(losses.len());
        match losses.get_mut(place) {
            Some(loss) => loss.repeat(row, clock.at(boot_ns)),
            None => losses.push(Loss::first(row, clock.at(boot_ns))),
        }
    })?;
    losses.extend(uncounted(&losses, cost));
    losses.extend(polling(&losses, info));
    // Stable: within a severity, the order in which they happened.
    losses.order_by_key(|loss| std::cmp::Reverse(loss.severity));
    Ok(losses)
}

impl Loss {
    fn first(row: DiagRow, at: Instant) -> Self {
        Self {
            severity: row.severity.unwrap_or(Severity::Loss),
            kind: row.kind,
            subject: row.subject,
            count: row.count,
            detail: row.detail,
            first: Some(at),
            last: Some(at),
        }
    }

    fn repeat(&mut self, row: DiagRow, at: Instant) {
        let severity = row.severity.unwrap_or(Severity::Loss);
        if severity >= self.severity {
            self.severity = severity;
            self.detail = row.detail;
        }
        self.count = match (self.count, row.count) {
            (Some(so_far), Some(more)) => Some(so_far.saturating_add(more)),
            (so_far, more) => so_far.or(more),
        };
        self.first = self.first.min(Some(at));
        self.last = self.last.max(Some(at));
    }
}

/// Events that the recorder counted as lost without a row that says which: the last rows of
/// `diag` can be missing where the recording was cut off.
fn uncounted(losses: &[Loss], cost: Option<&RecorderCost>) -> Option<Loss> {
    let reported: i64 = losses
        .iter()
        .filter(|loss| {
            matches!(
                loss.kind,
                Some(DiagKind::LostEvents | DiagKind::UndecodedEvents)
            )
        })
        .filter_map(|loss| loss.count)
        .sum();
    let missing = cost?.lost_event_count.saturating_sub(reported);
    (missing > 0).then(|| Loss {
        severity: Severity::Loss,
        kind: Some(DiagKind::LostEvents),
        subject: "events of unknown class".to_owned(),
        count: Some(missing),
        detail: "the recorder counted them; no row has details".to_owned(),
        first: None,
        last: None,
    })
}

/// What polling cannot see is said even where the recorder did not write it down.
fn polling(losses: &[Loss], info: &RunInfo) -> Option<Loss> {
    let is_reported = losses
        .iter()
        .any(|loss| loss.kind == Some(DiagKind::PollingLimit));
    (info.backend != "bpf" && !is_reported).then(|| Loss {
        severity: Severity::Degraded,
        kind: Some(DiagKind::PollingLimit),
        subject: "polling".to_owned(),
        count: None,
        detail: "a process that lives less than the interval, and a peak between two polls, can \
                 be missed"
            .to_owned(),
        first: None,
        last: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::BootNs;
    use memtrace_model::{Bytes, DurationNs};

    fn cost(lost_event_count: i64) -> RecorderCost {
        RecorderCost {
            cpu_ns: DurationNs(0),
            cpu_share: None,
            peak_rss_bytes: None,
            bpf_run_ns: None,
            written_bytes: Bytes(0),
            row_count: 0,
            lost_event_count,
            interval_ns: DurationNs(1),
            span: (BootNs(0), BootNs(1)),
        }
    }

    #[test]
    fn what_is_over_is_reported_with_its_span_and_not_in_the_words_of_its_end() {
        let row = |at, severity, detail: &str| DiagRow {
            ts: memtrace_model::WallNs(at),
            boot_ns: BootNs(at),
            severity: Some(severity),
            kind: Some(DiagKind::BackOff),
            subject: "budget".to_owned(),
            count: None,
            detail: detail.to_owned(),
        };
        let [early, late] = [5, 9].map(|at| Instant::unsettled(BootNs(at)));
        let mut loss = Loss::first(row(5, Severity::Degraded, "every 200 ms"), early);
        loss.repeat(row(9, Severity::Info, "every 100 ms again"), late);
        assert_eq!(loss.detail, "every 200 ms");
        assert_eq!(loss.severity, Severity::Degraded);
        assert_eq!((loss.first, loss.last), (Some(early), Some(late)));
    }

    #[test]
    fn events_that_a_row_tells_of_are_not_of_unknown_class_however_grave() {
        let degraded = Loss {
            severity: Severity::Degraded,
            kind: Some(DiagKind::LostEvents),
            subject: "sample".to_owned(),
            count: Some(5),
            detail: String::new(),
            first: None,
            last: None,
        };
        let losses = [degraded];
        assert_eq!(uncounted(&losses, Some(&cost(5))), None);
        let unknown = uncounted(&losses, Some(&cost(7))).unwrap();
        assert_eq!(unknown.count, Some(2));
    }
}
