//! What grows over time, and how fast.

use crate::{Analysis, Growth, Report, Verdict, Who};
use memtrace_model::{Bytes, DurationNs, Kind, Label, Order};
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, Tone, one_part, words};

/// Time to the limit beyond which an extrapolation is idle.
const FAR_NS: DurationNs = DurationNs(30 * 86_400 * 1_000_000_000);
/// All together have a trend of their own only over more than a start-up.
const LONG_NS: DurationNs = DurationNs(600_000_000_000);

/// Growth of all together and of each process.
pub(super) const SECTION: Section<Report> = Section {
    name: "growth",
    doc: "what grows steadily, and how fast",
    keys: &["growth"],
    tables: Some(|analysis, top| one_part(table(&growing(analysis), top))),
    is_worth_telling: |analysis| in_short(analysis).is_some() || of_all(analysis).is_some(),
    tell: |analysis, view| {
        if analysis.peak.is_none() {
            return Vec::new();
        }
        // All together can be unknown where one process is not.
        if analysis.growth.is_none() && in_short(analysis).is_none() {
            let mut section = Chapter::new("Growth: unknown (too short, or too few rows)");
            section.tone = Tone::Plain;
            return vec![section];
        }
        let growing = growing(analysis);
        let mut section = Chapter::new(format!("Growth: {}", headline(analysis, &growing)));
        section.table(table(&growing, view.top));
        section.rest(growing.len(), view.top, words::processes, " more.");
        if growing.is_empty() && of_all(analysis).is_none() {
            return vec![section];
        }
        section.explain(
            "Growth is the trend of each process after its warm-up (a quarter of its life, and a \
             minute at least). It is shown only where it is statistically certain, ± being its 95 \
             % interval, and memory was still rising at the end.",
        );
        vec![section]
    },
    ..Section::EMPTY
};

/// The processes that grow steadily, the one that grew most first.
fn growing(analysis: &Analysis) -> Vec<(Who, Growth)> {
    with_verdict(analysis, Verdict::Growing)
}

fn with_verdict(analysis: &Analysis, verdict: Verdict) -> Vec<(Who, Growth)> {
    let grown = analysis.processes.iter();
    let grown = grown.filter_map(|process| Some((Who::from(process), *process.growth.as_deref()?)));
    let growing = grown.filter(|(_, growth)| growth.verdict == verdict);
    let mut growing: Vec<(Who, Growth)> = growing.collect();
    growing.order_by_key(|(_, growth)| std::cmp::Reverse(growth.rise_bytes));
    growing
}

fn table(growing: &[(Who, Growth)], top: usize) -> Table {
    TableOf::of(growing.iter().take(top))
        .who(|(grown, _)| grown.cells())
        .known("upid", |(grown, _)| grown.upid)
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
        .words("kind", 2, |(_, growth)| {
            growth.kind.map_or("", |kind| kind.as_str())
        })
        .done()
}

fn headline(analysis: &Analysis, growing: &[(Who, Growth)]) -> String {
    let each = match growing {
        [] => "no process grows steadily".to_owned(),
        [(only, _)] => format!("{} grows steadily", only.in_words()),
        [(most, _), ..] => format!(
            "{} processes grow steadily, {} most",
            words::count(growing.len()),
            most.in_words()
        ),
    };
    match (of_all(analysis), growing.len()) {
        (None, 0) => match rising_in_short(analysis) {
            Some(rising) => rising.trim_end_matches('.').to_owned(),
            None => "nothing grows steadily".to_owned(),
        },
        (None, _) => format!("{each}, but the sum does not"),
        (Some(all), _) => format!("{} in sum, {each}", words::slope(all.bytes_per_hour)),
    }
}

/// The trend of all together, where there is one. That a server starts, one process after the
/// other, is none.
fn of_all(analysis: &Analysis) -> Option<&Growth> {
    let all = analysis.growth.as_ref()?;
    let is_long = all.to.boot_ns - all.from.boot_ns >= LONG_NS;
    let is_trend = matches!(all.verdict, Verdict::Growing | Verdict::Shrinking);
    let is_trend = is_trend && (is_long || !growing(analysis).is_empty());
    is_trend.then_some(all)
}

/// Who grows most, of those that grow steadily.
pub(super) fn grower(analysis: &Analysis) -> Option<(Who, Growth)> {
    growing(analysis).into_iter().next()
}

/// What grows, in a sentence; `None` where nothing does.
pub(super) fn in_short(analysis: &Analysis) -> Option<String> {
    let growing = growing(analysis);
    let Some((most, growth)) = growing.first() else {
        return sum_in_short(analysis).or_else(|| rising_in_short(analysis));
    };
    let others = match growing.len() {
        1 => String::new(),
        count => format!(", and {} more grow", words::count(count - 1)),
    };
    let how = in_words(growth);
    Some(format!("{} {how}{others}.", analysis.with_role(most)))
}

/// How somebody grows.
pub fn in_words(growth: &Growth) -> String {
    format!(
        "grows by {} ±{}/h (95 %), {} in {}{}",
        words::slope(growth.bytes_per_hour).trim_start_matches('+'),
        words::margin(growth.margin_bytes_per_hour()),
        words::bytes(growth.rise_bytes),
        words::duration(growth.to.boot_ns - growth.from.boot_ns),
        kind(growth)
    )
}

fn sum_in_short(analysis: &Analysis) -> Option<String> {
    let all = of_all(analysis).filter(|all| all.verdict == Verdict::Growing)?;
    let slope = words::slope(all.bytes_per_hour);
    Some(format!("{slope} in sum; no process grows steadily."))
}

/// Who rose most until the end of a run that is too short to tell a leak from a start-up.
fn rising_in_short(analysis: &Analysis) -> Option<String> {
    let rising = with_verdict(analysis, Verdict::Rising);
    let (most, growth) = rising.first()?;
    Some(format!(
        "{} rose by {} in its last {}{}, and was still rising; too short to tell a leak from a start-up.",
        analysis.with_role(most),
        words::bytes(growth.rise_bytes),
        words::duration(growth.to.boot_ns - growth.from.boot_ns),
        kind(growth)
    ))
}

/// `, mostly anonymous memory`.
fn kind(growth: &Growth) -> &'static str {
    match growth.kind {
        Some(Kind::Anon) => ", mostly anonymous memory",
        Some(Kind::File) => ", mostly mapped files",
        Some(Kind::Shmem) => ", mostly shared memory",
        _ => "",
    }
}

/// Half of the interval of the slope.
pub(super) fn margin(growth: &Growth) -> Cell {
    let margin = growth.margin_bytes_per_hour();
    Cell::Rate(Some(margin).filter(|margin| margin.is_finite()))
        .shown_as(format!("{}/h", words::margin(margin)))
}

/// The trend of all, and how long after its end so much more is held at that rate, counted from what
/// all held then against what they held at the peak; `None` where that is idle to say.
pub(crate) fn time_to_fill(analysis: &Analysis, left_at_peak: Bytes) -> Option<(f64, DurationNs)> {
    let all = of_all(analysis)?;
    let at_peak = analysis.peak.as_ref()?.held.as_ref()?.all().bytes;
    let until = |offset: DurationNs| offset <= all.to.offset_ns;
    let mut points = analysis.curve.iter().rev();
    let at_end = points.find(|point| until(point.offset_ns))?.mean_bytes;
    let left = all.time_to_fill(left_at_peak + (at_peak - at_end))?;
    (left < FAR_NS).then_some((all.bytes_per_hour, left))
}
