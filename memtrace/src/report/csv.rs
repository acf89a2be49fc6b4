//! The processes as CSV (RFC 4180), one per line, for a spreadsheet or a script.

use super::visible::visible;
use super::{DiffReport, Format, Style, words};
use crate::analyze::{
    Analysis, Change, Comparison, Composition, Ending, Kind, KindChange, Process,
};
use crate::model::{Bytes, Label};
use std::collections::HashMap;
use std::io::{self, Write};

/// One line per process.
#[derive(Debug)]
pub(super) struct Csv;

struct Row<'a> {
    process: &'a Process,
    analysis: &'a Analysis,
    /// `None` where no instant was asked for or there is no peak.
    at_peak: Option<Option<Bytes>>,
    at_time: Option<Option<Bytes>>,
    place: usize,
    /// `None` without an OOM kill that concerns the recording.
    at_oom: Option<Option<Bytes>>,
}

type Cell = fn(&Row<'_>) -> Option<String>;

/// Every column and how it is filled; an empty cell is unknown or does not apply.
const COLUMNS: &[(&str, Cell)] = &[
    ("pid", |row| Some(row.process.tgid?.to_string())),
    ("upid", |row| Some(row.process.upid.to_string())),
    ("parent_upid", |row| {
        Some(row.analysis.processes[row.process.parent?].upid.to_string())
    }),
    ("root_upid", |row| {
        Some(row.analysis.processes[row.process.root?].upid.to_string())
    }),
    ("name", |row| Some(row.process.name.to_string())),
    ("framework", |row| {
        row.process.role.as_ref()?.framework.clone()
    }),
    ("role", |row| Some(row.process.role.as_ref()?.role.clone())),
    ("rank", |row| row.process.role.as_ref()?.rank.clone()),
    ("comm", |row| Some(row.process.comm.to_string())),
    ("start", |row| {
        words::rfc3339(row.analysis.clock.to_wall(row.process.start_boot_ns)?)
    }),
    ("start_s", |row| {
        let offset = row.analysis.clock.offset(row.process.start_boot_ns);
        Some(format!("{:.6}", offset.as_secs_f64()))
    }),
    ("end_s", |row| {
        let offset = row.analysis.clock.offset(row.process.exit_boot_ns?);
        Some(format!("{:.6}", offset.as_secs_f64()))
    }),
    ("ended", |row| match row.process.ending {
        Ending::Unknown => None,
        ending => Some(ending.shown()),
    }),
    ("exit_code", |row| {
        Some(row.process.ending.exit_code()?.to_string())
    }),
    ("exit_signal", |row| {
        Some(row.process.ending.exit_signal()?.to_string())
    }),
    ("oom_killed", |row| {
        Some(row.process.ending.by_oom_killer()?.to_string())
    }),
    ("peak_rss_bytes", |row| amount(row.process.peak.rss_bytes)),
    ("peak_bound", |row| {
        row.process.peak.rss_bytes?;
        Some(row.process.peak.bound.as_str().to_owned())
    }),
    ("peak_error_bytes", |row| {
        amount(row.process.peak.bound.error())
    }),
    ("peak_source", |row| {
        Some(row.process.peak.origin?.as_str().to_owned())
    }),
    ("peak_s", |row| {
        let offset = row.analysis.clock.offset(row.process.peak.boot_ns?);
        Some(format!("{:.6}", offset.as_secs_f64()))
    }),
    ("peak_anon_bytes", |row| {
        amount(row.process.peak.amounts.anon())
    }),
    ("peak_file_bytes", |row| {
        amount(row.process.peak.amounts.file())
    }),
    ("peak_shmem_bytes", |row| {
        amount(row.process.peak.amounts.shmem())
    }),
    ("rss_at_tree_peak_bytes", |row| amount(row.at_peak?)),
    ("rss_at_time_bytes", |row| amount(row.at_time?)),
    ("gpu_peak_bytes", |row| {
        amount(row.analysis.gpus.as_ref()?.peak_of(row.place))
    }),
    ("gpu_at_tree_peak_bytes", |row| {
        let gpus = row.analysis.gpus.as_ref();
        let peak = row.analysis.peak.as_ref().filter(|_| gpus.is_some())?;
        amount(peak.gpu_held_by(row.place).unwrap_or(Some(Bytes(0))))
    }),
    ("rss_at_oom_bytes", |row| amount(row.at_oom?)),
    ("outlived_root", |row| {
        let mut outlived = row.analysis.leftovers.outlived.iter();
        let survivor = outlived.find(|one| one.row.upid == row.process.upid)?;
        Some(survivor.row.fate?.as_str().to_owned())
    }),
    ("growth_bytes_per_hour", |row| {
        Some(format!("{:.0}", row.process.growth?.bytes_per_hour))
    }),
    ("growth_margin_bytes_per_hour", |row| {
        let margin = row.process.growth?.margin_bytes_per_hour();
        margin.is_finite().then(|| format!("{margin:.0}"))
    }),
    ("cgroup", |row| {
        Some(row.process.cgroup.as_deref()?.to_owned())
    }),
    ("cmdline", |row| {
        Some(row.process.cmdline.as_deref()?.to_owned())
    }),
];

impl Format for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn doc(&self) -> &'static str {
        "one line per process, of a diff per role and kind (RFC 4180)"
    }

    fn write(&self, analysis: &Analysis, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        write_line(COLUMNS.iter().map(|(name, _)| (*name).to_owned()), out)?;
        let at_peak = analysis.peak.as_ref().map(held);
        let at_time = analysis.at.as_ref().map(held);
        let mut kills = analysis.ooms.iter().filter(|kill| !kill.is_elsewhere);
        let at_oom = kills.find_map(|kill| kill.holders.as_ref()).map(held);
        let order = analysis.by_peak();
        for &position in order.iter().take(style.top.unwrap_or(usize::MAX)) {
            let at = |state: &Option<HashMap<usize, Option<Bytes>>>| {
                let held = state.as_ref()?.get(&position);
                Some(held.copied().unwrap_or(Some(Bytes(0))))
            };
            let row = Row {
                process: &analysis.processes[position],
                analysis,
                at_peak: at(&at_peak),
                at_time: at(&at_time),
                place: position,
                at_oom: at(&at_oom),
            };
            write_line(COLUMNS.iter().map(|(_, cell)| written(cell(&row))), out)?;
        }
        Ok(())
    }

    fn write_diff(
        &self,
        told: &DiffReport<'_>,
        style: &Style,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        write_line(DIFF_COLUMNS.iter().map(|(name, _)| (*name).to_owned()), out)?;
        let roles = told.diff.roles.iter().take(style.top.unwrap_or(usize::MAX));
        for role in std::iter::once(&told.diff.whole).chain(roles) {
            let gpu = told.has_gpu().then_some(DiffKind::Gpu);
            for kind in Kind::ALL.map(DiffKind::Of).into_iter().chain(gpu) {
                let row = DiffRow { role, kind };
                write_line(
                    DIFF_COLUMNS.iter().map(|(_, cell)| written(cell(&row))),
                    out,
                )?;
            }
        }
        Ok(())
    }
}

fn write_line(cells: impl Iterator<Item = String>, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{}\r\n", cells.collect::<Vec<_>>().join(","))
}

fn written(cell: Option<String>) -> String {
    quote(&cell.unwrap_or_default())
}

/// A line of a comparison: a role and a kind.
struct DiffRow<'a> {
    role: &'a Comparison,
    kind: DiffKind,
}

/// What a line of a comparison is about.
#[derive(Clone, Copy)]
enum DiffKind {
    Of(Kind),
    /// All GPUs together, of which only the peak is compared.
    Gpu,
}

type DiffCell = fn(&DiffRow<'_>) -> Option<String>;

/// Every column of a comparison.
const DIFF_COLUMNS: &[(&str, DiffCell)] = &[
    ("role", |row| Some(row.role.name.to_string())),
    ("kind", |row| Some(row.kind_name().to_owned())),
    ("processes_a", |row| {
        Some(row.role.process_counts.0?.to_string())
    }),
    ("processes_b", |row| {
        Some(row.role.process_counts.1?.to_string())
    }),
    ("peak_a_bytes", |row| amount(row.peak().before)),
    ("peak_b_bytes", |row| amount(row.peak().after)),
    ("mean_a_bytes", |row| amount(row.change()?.mean.before)),
    ("mean_b_bytes", |row| amount(row.change()?.mean.after)),
    ("growth_a_bytes_per_hour", |row| {
        amount(row.change()?.slope.before)
    }),
    ("growth_b_bytes_per_hour", |row| {
        amount(row.change()?.slope.after)
    }),
];

impl DiffRow<'_> {
    fn kind_name(&self) -> &'static str {
        match self.kind {
            DiffKind::Of(kind) => kind.as_str(),
            DiffKind::Gpu => "gpu",
        }
    }

    /// `None` for GPUs.
    fn change(&self) -> Option<&KindChange> {
        match self.kind {
            DiffKind::Of(kind) => Some(self.role.kind(kind)),
            DiffKind::Gpu => None,
        }
    }

    fn peak(&self) -> Change {
        self.change()
            .map_or(self.role.gpu_peak, |change| change.peak)
    }
}

fn held(state: &Composition) -> HashMap<usize, Option<Bytes>> {
    let holders = state.holders.iter();
    holders
        .map(|holder| (holder.process, holder.amounts.rss()))
        .collect()
}

fn amount(bytes: Option<Bytes>) -> Option<String> {
    Some(bytes?.to_string())
}

/// A cell that a spreadsheet shows and does not run. A text that starts like a formula gets an
/// apostrophe in front; figures keep their minus.
pub(super) fn quote(cell: &str) -> String {
    let cell = visible(cell);
    let is_figure = cell.parse::<f64>().is_ok();
    let is_formula = cell.starts_with(['=', '+', '-', '@']) && !is_figure;
    let cell = if is_formula {
        format!("'{cell}")
    } else {
        cell.into_owned()
    };
    if cell.contains([',', '"', '\'']) || cell.starts_with(' ') || cell.ends_with(' ') {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_described_in_its_order() {
        let described: Vec<&str> = include_str!("../../../docs/report.md")
            .lines()
            .skip_while(|line| *line != "| column | meaning |")
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
            .map(|(name, _)| name)
            .collect();
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(described, names);
    }

    #[test]
    fn cells_are_quoted_and_formulas_defused() {
        let cases = [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "\"'=1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("-12.5", "-12.5"),
            ("-x", "\"'-x\""),
            ("two\nlines", "two\\nlines"),
        ];
        for (cell, quoted) in cases {
            assert_eq!(quote(cell), quoted);
        }
    }
}
