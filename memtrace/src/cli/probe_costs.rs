//! `memtrace doctor --measure`: what seeing mmap and brk costs on this machine.

use memtrace_host::{ProbeCosts, ProbeWay, Slowdown};
use serde::Serialize;
use std::fmt;

/// What one way costs, or why it can't be had.
#[derive(Debug, Serialize)]
pub(super) struct WayCosts {
    way: ProbeWay,
    #[serde(flatten)]
    costs: Option<ProbeCosts>,
    /// Why there are no costs.
    refused: Option<String>,
}

/// Every way, best first.
#[derive(Debug)]
pub(super) struct Costs(pub(super) Vec<WayCosts>);

impl Costs {
    pub(super) fn of(measured: Vec<(ProbeWay, Result<ProbeCosts, String>)>) -> Self {
        let ways = measured.into_iter().map(|(way, outcome)| match outcome {
            Ok(costs) => WayCosts {
                way,
                costs: Some(costs),
                refused: None,
            },
            Err(reason) => WayCosts {
                way,
                costs: None,
                refused: Some(reason),
            },
        });
        Self(ways.collect())
    }
}

/// What is measured, as the heads of columns.
const COLUMNS: [&str; 4] = ["MMAP", "BRK", "MMAP OF OTHERS", "OTHER CALLS"];
const WIDTH: usize = 16;

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "What seeing mmap and brk costs here, measured just now:")?;
        write!(f, "  {:8}", "--probes")?;
        for column in COLUMNS {
            write!(f, "  {column:>WIDTH$}")?;
        }
        writeln!(f)?;
        for WayCosts { way, costs, .. } in &self.0 {
            let Some(costs) = costs else { continue };
            write!(f, "  {:8}", way.as_str())?;
            let cells = [
                costs.traced_mmap,
                costs.traced_brk,
                costs.untraced_mmap,
                costs.other_call,
            ];
            for cell in cells {
                write!(f, "  {:>WIDTH$}", reported(cell))?;
            }
            writeln!(f)?;
        }
        for WayCosts { way, refused, .. } in &self.0 {
            if let Some(reason) = refused {
                writeln!(f, "  {:8}  not available: {reason}", way.as_str())?;
            }
        }
        writeln!(
            f,
            "CPU time of a call with the probes attached, over that without. MMAP (1 MiB, with its \
             munmap) and\nBRK in a recorded process, the other two in any process of the machine \
             while a recording runs; other\ncalls stand for all other system calls, the cheapest \
             of which (getppid) is measured."
        )
    }
}

fn reported(cost: Slowdown) -> String {
    let more = cost.with_ns - cost.without_ns;
    format!("{:.2}x ({more:+.0} ns)", cost.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_reported_with_its_costs_or_with_what_stands_against_it() {
        let slowdown = |ratio: f64| Slowdown::between(&[200.0], &[200.0 * ratio]);
        let costs = ProbeCosts {
            traced_mmap: slowdown(1.1),
            traced_brk: slowdown(1.05),
            untraced_mmap: slowdown(1.0),
            other_call: slowdown(1.5),
        };
        let text = Costs::of(vec![
            (
                ProbeWay::Kprobe,
                Err("this kernel has no kprobes".to_owned()),
            ),
            (ProbeWay::Syscalls, Ok(costs)),
        ])
        .to_string();
        let lines: Vec<&str> = text.lines().collect();
        let heads: Vec<&str> = lines[1]
            .split("  ")
            .filter(|cell| !cell.is_empty())
            .collect();
        assert_eq!(heads.len(), COLUMNS.len() + 1, "{text}");
        assert!(lines[2].trim_start().starts_with("syscalls"), "{text}");
        assert!(lines[2].ends_with("1.50x (+100 ns)"), "{text}");
        assert_eq!(
            lines[3].trim(),
            "kprobe    not available: this kernel has no kprobes"
        );
    }
}
