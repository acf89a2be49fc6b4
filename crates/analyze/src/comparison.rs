//! Two reports of one kind against each other, whatever they are of: figures before and after, what
//! rose by more than was allowed, and how that is written.

use memtrace_model::{Bytes, keys};
use memtrace_report::words::{self, bytes_or_unknown, change, percent};
use memtrace_report::{
    Cell, Chapter, DEFAULT_TOP, Parts, Style, Table, Written, one_part, write_object,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A change of less is not worth a line of its own.
pub(super) const MIN_CHANGE: i64 = 1 << 20;
/// Nor is one by less than this part of what was: two runs of the same differ by as much.
const MIN_CHANGE_SHARE: f64 = 0.02;
/// A role that never holds this part of the whole in either recording fails no comparison:
/// small ones come and go.
pub(super) const MIN_SHARE: i64 = 20;
/// A rise by less than this over all steps is no leak worth telling.
pub(super) const MIN_RISE_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// What changed between two reports of one kind.
pub trait Difference: Serialize + Sized + 'static {
    /// What the object of JSON says that it is.
    const FORMAT: &'static str;
    /// The version of that object.
    const VERSION: u32;
    /// Which two they are, and what to know before comparing them.
    const HEAD: fn(&DiffReport<Self>) -> Chapter;
    /// Every figure, for programs, in lists of at most so many lines.
    const TABLE: fn(&DiffReport<Self>, usize) -> Table;
    /// What people read below the head.
    const CHANGES: &'static [Changes<Self>];
    /// The report that is compared with another.
    type Of;
    /// What stands of it in the JSON.
    type Side<'a>: Serialize;

    /// Compares two reports of one kind.
    fn between(before: &Self::Of, after: &Self::Of) -> Self;

    /// What rose by more than `allowed`, a part of what it was, and by more than it can be off.
    fn excesses(&self, allowed: f64) -> Vec<Excess>;

    /// Whether the second failed and the first did not.
    fn is_newly_failed(&self) -> bool;

    /// Leaves at most so many in each list.
    fn cut(&mut self, top: usize);

    /// What stands of one of them in the JSON.
    fn side(of: &Self::Of) -> Self::Side<'_>;

    /// What [`Written::page`] writes.
    ///
    /// # Errors
    /// When `out` can't be written to, and where there is no page.
    fn write_page(
        _report: &mut DiffReport<Self>,
        _style: &Style,
        _reported: &[Chapter],
        _out: &mut dyn io::Write,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What is said of some changes, with so many lines in a list; `None` where there is nothing to say.
pub type Changes<D> = fn(&DiffReport<D>, usize) -> Option<Chapter>;

/// What there is to tell of two reports.
#[derive(Debug)]
pub struct DiffReport<D: Difference> {
    /// The first report.
    pub before: D::Of,
    /// The second report.
    pub after: D::Of,
    /// What changed from one to the other.
    pub diff: D,
    /// By which part of itself a figure may rise, and those that rose by more; `None` where
    /// that was not asked.
    pub limit: Option<(f64, Vec<Excess>)>,
}

/// A figure before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// In the first recording.
    pub before: Option<Bytes>,
    /// In the second.
    pub after: Option<Bytes>,
}

/// A figure that rose by more than was allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Excess {
    /// The role, or `all`; of `per_step` the numbered phase, of a run after its role.
    pub name: Arc<str>,
    /// `held_peak` of all; `peak` or `mean` of RSS, `gpu_peak`, or `per_step`. Of a run `peak`: what all
    /// hosts held, `host_peak` and `gpu_peak`: the most on one host, `role_peak`: the most on one host,
    /// `role_median`: the median over its hosts, or `per_step`: what the fastest rank grows by.
    pub figure: &'static str,
    /// The figure in words, before and after.
    #[serde(skip)]
    pub words: String,
    /// Before and after.
    #[serde(flatten)]
    pub change: Change,
}

impl Excess {
    pub(super) fn of(name: &Arc<str>, figure: &'static str, shown: &str, change: Change) -> Self {
        Self {
            name: Arc::clone(name),
            figure,
            words: format!("{shown} {}", in_words(&change)),
            change,
        }
    }
}

impl Change {
    /// A figure of both.
    pub(super) fn of<T>([before, after]: [T; 2], figure: impl Fn(T) -> Option<Bytes>) -> Self {
        Self {
            before: figure(before),
            after: figure(after),
        }
    }

    /// By how much it rose; below zero where it fell.
    pub fn difference(&self) -> Option<Bytes> {
        Some(self.after? - self.before?)
    }

    /// The rise as a part of what was before; `None` where that was nothing.
    pub fn ratio(&self) -> Option<f64> {
        let before = self.before.filter(|before| before.0 > 0)?;
        Some(self.difference()?.0 as f64 / before.0 as f64)
    }

    /// By how much it moved, up or down.
    pub(super) fn moved(&self) -> i64 {
        let difference = self.difference();
        difference.map_or(0, |bytes| bytes.0.saturating_abs())
    }

    /// Whether it moved by more than two runs of the same do.
    pub(super) fn is_notable(&self) -> bool {
        let ratio = self.ratio();
        self.moved() >= MIN_CHANGE && ratio.is_none_or(|ratio| ratio.abs() >= MIN_CHANGE_SHARE)
    }

    pub(super) fn highest(&self) -> i64 {
        let highest = self.before.max(self.after);
        highest.map_or(0, |bytes| bytes.0)
    }

    /// Whether it rose by more than a part of what it was, however far both are off.
    pub(super) fn exceeds(
        &self,
        allowed: f64,
        (before_error, after_error): (Bytes, Bytes),
    ) -> bool {
        let (Some(before), Some(after)) = (self.before, self.after) else {
            return false;
        };
        let (least, most) = (after - after_error, before + before_error);
        least.0 as f64 > most.0 as f64 * (1.0 + allowed)
    }
}

keys! {
    as
    /// A figure before and after.
    ChangeKeys of change: Change {
        /// In the first recording.
        before_bytes: Option<Bytes> = change.before,
        /// In the second.
        after_bytes: Option<Bytes> = change.after,
        /// What it rose by.
        change_bytes: Option<Bytes> = change.difference(),
        /// The same as a part of what was; null where that was nothing, or unknown. Digits beyond
        /// four differ between machines and say nothing.
        change_ratio: Option<f64> = change.ratio().map(|ratio| (ratio * 1e4).round() / 1e4),
    }
}

impl<D: Difference> DiffReport<D> {
    /// Compares two. Figures may rise by a part of `allowed`.
    pub fn of(before: D::Of, after: D::Of, allowed: Option<f64>) -> Self {
        let diff = D::between(&before, &after);
        Self {
            limit: allowed.map(|allowed| (allowed, diff.excesses(allowed))),
            before,
            after,
            diff,
        }
    }
}

impl<'a, S, D: Difference> Object<'a, S, D> {
    pub(super) fn of(
        [before, after]: [S; 2],
        diff: &'a D,
        limit: Option<&'a (f64, Vec<Excess>)>,
    ) -> Self {
        Self {
            format: D::FORMAT,
            version: D::VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            before,
            after,
            allowed_ratio: limit.map(|(allowed, _)| *allowed),
            excesses: limit.map(|(_, excesses)| &**excesses),
            diff,
        }
    }
}

impl<D: Difference> Written for DiffReport<D> {
    fn chapters(&self, style: &Style) -> Vec<Chapter> {
        let top = style.top.unwrap_or(DEFAULT_TOP);
        let mut chapters = vec![(D::HEAD)(self)];
        chapters.extend(self.limit.as_ref().map(verdict));
        chapters.extend(D::CHANGES.iter().filter_map(|tell| tell(self, top)));
        chapters
    }

    fn tables<'a>(&'a self, style: &Style) -> Parts<'a> {
        one_part((D::TABLE)(self, style.top.unwrap_or(usize::MAX)))
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        self.diff.cut(style.top.unwrap_or(usize::MAX));
        let sides = [&self.before, &self.after].map(D::side);
        write_object(&Object::of(sides, &self.diff, self.limit.as_ref()), out)
    }

    fn page(
        &mut self,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        D::write_page(self, style, reported, out)
    }
}

/// What `memtrace diff` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{D}")]
pub(super) struct Object<'a, S, D: Difference> {
    /// What object this is.
    #[schemars(extend("const" = D::FORMAT))]
    format: &'static str,
    /// Within a version no key is renamed, removed or given another meaning.
    #[schemars(extend("const" = D::VERSION))]
    version: u32,
    /// The memtrace that compared.
    memtrace_version: &'static str,
    /// The first recording or run.
    before: S,
    /// The second one.
    after: S,
    /// What `--fail-above` gave, as a part of one; else `None`.
    allowed_ratio: Option<f64>,
    /// The figures that rose by more; `None` without `--fail-above`.
    excesses: Option<&'a [Excess]>,
    #[serde(flatten)]
    diff: &'a D,
}

/// Those of either list by their names, each before and after.
pub(super) fn paired<T>(
    lists: [&[T]; 2],
    name: impl Fn(&T) -> &str,
) -> BTreeMap<&str, [Option<&T>; 2]> {
    let mut pairs: BTreeMap<&str, [Option<&T>; 2]> = BTreeMap::new();
    for (place, list) in lists.into_iter().enumerate() {
        for one in list {
            pairs.entry(name(one)).or_default()[place] = Some(one);
        }
    }
    pairs
}

/// What rose by more than was allowed, a line each.
fn verdict((allowed, excesses): &(f64, Vec<Excess>)) -> Chapter {
    let allowed = percent(Some(*allowed));
    let allowed = allowed.trim_start_matches('+');
    if excesses.is_empty() {
        return Chapter::new(format!("Nothing rose by more than {allowed}"));
    }
    let mut section = Chapter::alarming(format!("Rose by more than {allowed}"));
    for excess in excesses {
        section.say(format!("{}: {}", excess.name, excess.words));
    }
    section
}

/// That nothing of a list changed.
pub(super) fn unchanged(what: &str) -> String {
    let share = MIN_CHANGE_SHARE * 100.0;
    format!("{what}: nothing changed by {share:.0}% or more")
}

/// `7.0 GiB → 8.2 GiB (+1.2 GiB, +17%)`.
pub(super) fn in_words(figure: &Change) -> String {
    let (before, after) = (
        bytes_or_unknown(figure.before),
        bytes_or_unknown(figure.after),
    );
    let difference = change(figure.difference());
    match figure.ratio() {
        Some(ratio) => format!(
            "{before} → {after} ({difference}, {})",
            percent(Some(ratio))
        ),
        None => format!("{before} → {after} ({difference})"),
    }
}

/// `2 → 3`, or one number where both are the same.
pub(super) fn counts(before: Option<usize>, after: Option<usize>) -> String {
    let count = |count: Option<usize>| count.map_or_else(|| "-".to_owned(), words::count);
    match before == after {
        true => count(before),
        false => format!("{} → {}", count(before), count(after)),
    }
}

pub(super) fn change_share(figure: &Change) -> String {
    match figure.difference() {
        Some(Bytes(0)) => String::new(),
        _ if figure.before == Some(Bytes(0)) => "new".to_owned(),
        _ => percent(figure.ratio()),
    }
}

pub(super) fn growth(bytes_per_hour: Option<Bytes>) -> Cell {
    let rate = Cell::Rate(bytes_per_hour.map(|slope| slope.0 as f64));
    match bytes_per_hour {
        Some(Bytes(0)) => rate.shown_as("-".to_owned()),
        _ => rate,
    }
}
