//! One row of the result: a requirement, what was measured, and whether it is met.

use crate::stats::Estimate;
use memtrace_tests::scenario::Score;
use serde::Serialize;

/// Whether a requirement is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    /// It is not.
    Missed,
    /// The spread of the measurement reaches over the limit: neither can be said.
    Unresolved,
    /// Nothing is required; the number is what there is to know.
    Reported,
    /// The measurement itself failed.
    Failed,
}

/// A requirement and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    /// What is required.
    pub(crate) requirement: String,
    /// What was measured, for people.
    pub(crate) text: String,
    /// The number; null where the measurement failed.
    pub(crate) value: Option<f64>,
    /// Where the value lies; the note says what the interval is.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) verdict: Verdict,
    /// What else to know.
    pub(crate) note: Option<String>,
}

impl Measured {
    /// A number that must not be above a limit.
    pub(crate) fn at_most(name: &str, what: &str, unit: &str, limit: f64, value: f64) -> Self {
        let verdict = if value <= limit {
            Verdict::Met
        } else {
            Verdict::Missed
        };
        Self {
            name: name.to_owned(),
            requirement: format!("{what} <= {limit} {unit}"),
            text: format!("{value:.2} {unit}"),
            value: Some(value),
            interval: None,
            verdict,
            note: None,
        }
    }

    /// The same for a number with a spread: both ends must be on one side of the limit.
    pub(crate) fn estimate_at_most(
        name: &str,
        what: &str,
        unit: &str,
        limit: f64,
        estimate: Estimate,
    ) -> Self {
        let verdict = if estimate.high <= limit {
            Verdict::Met
        } else if estimate.low > limit {
            Verdict::Missed
        } else {
            Verdict::Unresolved
        };
        Self {
            text: format!(
                "{:.3} {unit} [{:.3}, {:.3}]",
                estimate.median, estimate.low, estimate.high
            ),
            interval: Some((estimate.low, estimate.high)),
            verdict,
            ..Self::at_most(name, what, unit, limit, estimate.median)
        }
        .with_note(estimate.meaning())
    }

    /// A number with a spread of which nothing is required.
    pub(crate) fn reported(name: &str, what: &str, unit: &str, estimate: Estimate) -> Self {
        Self {
            requirement: what.to_owned(),
            verdict: Verdict::Reported,
            ..Self::estimate_at_most(name, what, unit, f64::INFINITY, estimate)
        }
    }

    /// A statement that must hold in every case.
    pub(crate) fn score(name: &str, score: Score) -> Self {
        Self {
            name: name.to_owned(),
            requirement: score.requirement.to_owned(),
            text: format!("{} of {}", score.held, score.cases),
            value: (score.cases > 0).then(|| score.held as f64 / score.cases as f64),
            interval: None,
            verdict: if score.is_full() {
                Verdict::Met
            } else {
                Verdict::Missed
            },
            note: score.first_failure,
        }
    }

    /// A number of cases, of which a share must hold.
    pub(crate) fn share(name: &str, what: &str, held: usize, cases: usize, least: f64) -> Self {
        let share = held as f64 / cases.max(1) as f64;
        Self {
            name: name.to_owned(),
            requirement: format!("{what} >= {:.0} %", least * 100.0),
            text: format!("{held} of {cases}"),
            value: (cases > 0).then_some(share),
            interval: None,
            verdict: if cases > 0 && share >= least {
                Verdict::Met
            } else {
                Verdict::Missed
            },
            note: None,
        }
    }

    /// A number that must not be below a limit.
    pub(crate) fn at_least(name: &str, what: &str, unit: &str, limit: f64, value: f64) -> Self {
        Self {
            requirement: format!("{what} >= {limit} {unit}"),
            verdict: if value >= limit {
                Verdict::Met
            } else {
                Verdict::Missed
            },
            ..Self::at_most(name, what, unit, limit, value)
        }
    }

    /// A measurement that could not be made.
    pub(crate) fn failed(name: &str, error: &anyhow::Error) -> Self {
        Self {
            name: name.to_owned(),
            requirement: "can be measured".to_owned(),
            text: "failed".to_owned(),
            value: None,
            interval: None,
            verdict: Verdict::Failed,
            note: Some(format!("{error:#}")),
        }
    }

    /// Adds what else to know.
    pub(crate) fn with_note(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }
}

/// Prints a table whose columns are as wide as they need to be.
pub(crate) fn print(rows: &[Measured]) {
    let width = |of: fn(&Measured) -> &str| {
        rows.iter()
            .map(|row| of(row).chars().count())
            .max()
            .unwrap_or(0)
    };
    let name = width(|row| &row.name);
    let requirement = width(|row| &row.requirement);
    let text = width(|row| &row.text);
    println!();
    for row in rows {
        let verdict = match row.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Unresolved => "unresolved",
            Verdict::Reported => "reported",
            Verdict::Failed => "FAILED",
        };
        let note = row.note.as_deref().unwrap_or_default();
        println!(
            "{:name$}  {:requirement$}  {:text$}  {verdict:10}  {note}",
            row.name, row.requirement, row.text
        );
    }
}
