//! What grows over time, and how fast.

use crate::analyze::section::{Section, Tables, View, one_part};
use crate::analyze::{Analysis, Growth, Verdict, Who};
use crate::model::{Bytes, DurationNs};
use crate::report::{Cell, Chapter, Table, TableOf, Tone, words};
use schemars::JsonSchema;
use serde::Serialize;

/// Time to the limit beyond which an extrapolation is idle.
const FAR_NS: i64 = 30 * 86_400 * 1_000_000_000;

/// Growth of all together and of each process.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Growths {}

impl Section for Growths {
    const NAME: &'static str = "growth";
    const DOC: &'static str = "what grows steadily, and how fast";
    const KEYS: &'static [&'static str] = &["growth"];
    const TABLES: Option<Tables<Self>> =
        Some(|_, analysis, top| one_part(table(&growing(analysis), top)));

    fn tell(&self, analysis: &Analysis, view: &View<'_>) -> Vec<Chapter> {
        if analysis.peak.is_none() {
            return Vec::new();
        }
        let Some(all) = &analysis.growth else {
            let mut section = Chapter::new("Growth: too short, or too few rows, to tell");
            section.tone = Tone::Plain;
            return vec![section];
        };
        let growing = growing(analysis);
        let mut section = Chapter::new(format!("Growth: {}", headline(all, &growing)));
        section.table(table(&growing, view.top));
        section.tell(Tone::Alert, time_to_limit(analysis, all));
        section.rest(growing.len(), view.top, words::processes, " more.");
        if growing.is_empty() && all.verdict == Verdict::NoTrend {
            return vec![section];
        }
        section.quiet(
            "The trend of each life after its warm-up (a quarter, and a minute at least); told only \
             where it is sure, ± being its 95 % interval, and memory was still rising at the end.",
        );
        vec![section]
    }
}

/// The processes that grow steadily, the one that grew most first.
fn growing(analysis: &Analysis) -> Vec<(Who, Growth)> {
    let grown = analysis.processes.iter();
    let grown = grown.filter_map(|process| Some((Who::from(process), process.growth?)));
    let growing = grown.filter(|(_, growth)| growth.verdict == Verdict::Growing);
    let mut growing: Vec<(Who, Growth)> = growing.collect();
    growing.sort_by_key(|(_, growth)| std::cmp::Reverse(growth.rise_bytes));
    growing
}

fn table(growing: &[(Who, Growth)], top: usize) -> Table {
    TableOf::of(growing.iter().take(top))
        .who(|(grown, _)| grown.cells())
        .data("upid", |(grown, _)| Cell::known(grown.upid))
        .figures(("growth_bytes_per_hour", "GROWS BY"), 0, |(_, growth)| {
            Cell::Rate(Some(growth.bytes_per_hour))
        })
        .figures("rose_bytes", 1, |(_, growth)| growth.rise_bytes)
        .figures("over_s", 2, |(_, growth)| {
            Cell::Took(Some(growth.to.boot_ns - growth.from.boot_ns))
        })
        .figures(("margin_bytes_per_hour", "±"), 3, |(_, growth)| {
            margin(growth)
        })
        .done()
}

fn headline(all: &Growth, growing: &[(Who, Growth)]) -> String {
    let each = match growing {
        [] => "no process grows steadily".to_owned(),
        [(only, _)] => format!("{} grows steadily", only.in_words()),
        [(most, _), ..] => format!(
            "{} processes grow steadily, {} most",
            words::count(growing.len()),
            most.in_words()
        ),
    };
    match (all.verdict, growing.len()) {
        (Verdict::NoTrend, 0) => "nothing grows steadily".to_owned(),
        (Verdict::NoTrend, _) => format!("{each}, the sum does not"),
        (Verdict::Growing | Verdict::Shrinking, _) => {
            format!("{} in sum, {each}", words::slope(all.bytes_per_hour))
        }
    }
}

/// Half of the interval of the slope.
pub(super) fn margin(growth: &Growth) -> Cell {
    let margin = growth.margin_bytes_per_hour();
    Cell::Rate(Some(margin).filter(|margin| margin.is_finite()))
        .shown_as(format!("{}/h", words::margin(margin)))
}

/// When the cgroup that holds most reaches its limit at this rate, counted from the peak.
fn time_to_limit(analysis: &Analysis, all: &Growth) -> Option<String> {
    let cgroup = analysis.peak.as_ref()?.cgroups.first()?;
    let limit = cgroup.effective_limit_bytes?;
    let headroom: Bytes = limit - cgroup.row.current_bytes?;
    let left: DurationNs = all.time_to_fill(headroom)?;
    (left.0 < FAR_NS).then(|| {
        format!(
            "At this rate the limit of {} is reached {} after the peak.",
            words::bytes(limit),
            words::duration(left)
        )
    })
}
