//! Rows of the table: what was tried, what was asked for, and what was found.

use anyhow::{Context, Result};
use serde::Deserialize;

/// One row. The lab writes each as a line of JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) trial: String,
    pub(super) what: String,
    pub(super) asked: String,
    pub(super) found: String,
    pub(super) verdict: Verdict,
}

/// Whether what was found will do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) enum Verdict {
    #[serde(rename = "ok")]
    Met,
    #[serde(rename = "MISSED")]
    Missed,
    /// It could not be found out here.
    #[serde(rename = "unknown")]
    Unknown,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Met => "ok",
            Self::Missed => "MISSED",
            Self::Unknown => "unknown",
        }
    }
}

impl Finding {
    pub(super) fn of_line(line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("the lab said {line:?}"))
    }

    pub(super) fn is_missed(&self) -> bool {
        self.verdict == Verdict::Missed
    }

    fn cells(&self) -> [&str; 5] {
        [
            self.verdict.as_str(),
            &self.trial,
            &self.what,
            &self.asked,
            &self.found,
        ]
    }
}

/// The table, as a person reads it.
pub(super) fn table(findings: &[Finding]) -> String {
    let mut rows = vec![["", "TRIAL", "WHAT", "ASKED", "FOUND"]];
    rows.extend(findings.iter().map(Finding::cells));
    let widths: [usize; 5] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    });
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"trial": "cow", "what": "processes", "asked": "all", "found": "4 of 5", "verdict": "MISSED"}"#;

    #[test]
    fn a_line_of_the_lab_is_a_row_and_anything_else_an_error_that_shows_it() {
        let finding = Finding::of_line(LINE).unwrap();
        assert!(finding.is_missed());
        let error = Finding::of_line("Traceback").unwrap_err();
        assert!(format!("{error:#}").contains("Traceback"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let missed = Finding::of_line(LINE).unwrap();
        let met = Finding {
            trial: "forkstorm".to_owned(),
            verdict: Verdict::Met,
            ..missed.clone()
        };
        let expected = "        TRIAL      WHAT       ASKED  FOUND\n\
                        MISSED  cow        processes  all    4 of 5\n\
                        ok      forkstorm  processes  all    4 of 5\n";
        assert_eq!(table(&[missed, met]), expected);
    }
}
