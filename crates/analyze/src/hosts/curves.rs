//! What hosts held over time, for a page: of all of them together within bounds, of some a curve
//! each, and of the others how they lie together. However many hosts there are and however long
//! they ran, it is as much.

use super::sum::{Course, Sums};
use crate::bins::SECOND_NS;
use crate::curves::{CurveSeries, Gaps};
use memtrace_model::{Bytes, DurationNs, Order, WallNs};
use serde::Serialize;

/// So many stretches of time have figures.
const STRETCHES_MAX: i64 = 600;
/// So many hosts have a curve of their own.
pub(super) const HOSTS_MAX: usize = 60;

/// Memory over time. Times are in nanoseconds since the first of them, amounts in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunCurves {
    /// The first instant on the wall clock.
    start_unix_ns: WallNs,
    /// When the last stretch ends.
    end_ns: DurationNs,
    /// How long a stretch is: its figures are of all instants within it.
    stretch_ns: DurationNs,
    /// The begins of stretches, and the end of the last.
    time_ns: Gaps,
    /// The most that all held together: the best figure, what it was no less than, and no more than.
    all: [CurveSeries; 3],
    /// The hosts that have a curve.
    hosts: Vec<HostCurve>,
    /// The hosts that have none.
    others: Option<OtherHosts>,
}

/// What a host held in each stretch; unknown where it was not recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct HostCurve {
    host: String,
    /// The most of it, then the least.
    held: [CurveSeries; 2],
}

/// Hosts without a curve of their own.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct OtherHosts {
    count: usize,
    /// What they held at most in each stretch: the highest of them, the median and the lowest.
    held: [CurveSeries; 3],
}

/// The bins that make up a stretch.
struct Stretches {
    first: i64,
    /// How many bins each has.
    width: i64,
    count: usize,
}

impl RunCurves {
    /// The first instant.
    pub(super) fn start(&self) -> WallNs {
        self.start_unix_ns
    }

    /// The curves of a run; `None` without a row of memory. The courses are of hosts in the order of
    /// `names`, and those of `drawn` have a curve, in that order.
    pub(super) fn of(
        courses: &[Course<'_>],
        names: &[&str],
        width_s: i64,
        drawn: &[&str],
    ) -> Option<Self> {
        let sums = Sums::of(courses, width_s);
        let bins = i64::try_from(sums.bin_count())
            .ok()
            .filter(|count| *count > 0)?;
        let width = (bins + STRETCHES_MAX - 1) / STRETCHES_MAX;
        let stretches = Stretches {
            first: sums.first,
            width,
            count: usize::try_from((bins + width - 1) / width).ok()?,
        };
        let (mut hosts, mut rest) = (Vec::new(), Vec::new());
        for (course, name) in courses.iter().zip(names) {
            let Some((most, least)) = stretches.of_host(course, width_s) else {
                continue;
            };
            match drawn.contains(name) {
                true => hosts.push(HostCurve {
                    host: (*name).to_owned(),
                    held: [
                        series("most", "most", &most),
                        series("least", "least", &least),
                    ],
                }),
                false => rest.push(most),
            }
        }
        hosts.order_by_key(|curve| drawn.iter().position(|host| *host == curve.host));
        let length = width * width_s * SECOND_NS;
        let begins = (0..=stretches.count).map(|place| length * i64::try_from(place).unwrap_or(0));
        let end = begins.clone().max()?;
        Some(Self {
            start_unix_ns: WallNs(sums.first.saturating_mul(width_s * SECOND_NS)),
            end_ns: DurationNs(end),
            stretch_ns: DurationNs(length),
            time_ns: Gaps::of(begins),
            all: stretches.of_all(&sums),
            hosts,
            others: (!rest.is_empty()).then(|| OtherHosts::of(&rest)),
        })
    }
}

impl Stretches {
    /// The most and the least that a host held in each stretch.
    #[expect(clippy::type_complexity, reason = "two lists of the same")]
    fn of_host(
        &self,
        course: &Course<'_>,
        width_s: i64,
    ) -> Option<(Vec<Option<Bytes>>, Vec<Option<Bytes>>)> {
        let dense = course.dense(width_s)?;
        let (mut most, mut least) = (vec![None; self.count], vec![None; self.count]);
        for (number, bin) in (dense.first..).zip(&dense.bins) {
            let place = number.saturating_sub(self.first).div_euclid(self.width);
            let Ok(place) = usize::try_from(place) else {
                continue;
            };
            // It was not recorded, or nobody was there.
            if bin.at_most == 0 || bin.most == 0 {
                continue;
            }
            if let Some((most, least)) = most.get_mut(place).zip(least.get_mut(place)) {
                *most = Some(Bytes(bin.most)).max(*most);
                let so_far = least.unwrap_or(Bytes(bin.least));
                *least = Some(so_far.min(Bytes(bin.least)));
            }
        }
        Some((most, least))
    }

    fn of_all(&self, sums: &Sums) -> [CurveSeries; 3] {
        let width = usize::try_from(self.width).unwrap_or(1);
        let (mut best, mut least, mut most) = (Vec::new(), Vec::new(), Vec::new());
        for bounds in sums.bounds().collect::<Vec<_>>().chunks(width) {
            let highest = |of: fn(&[i64; 3]) -> i64| bounds.iter().map(of).max().map(Bytes);
            // What clocks leave open is not known to be nothing.
            let known = highest(|[at_least, ..]| *at_least);
            least.push(known.filter(|bytes| bytes.0 > 0 || sums.unsure_host_count() == 0));
            best.push(highest(|[_, bytes, _]| *bytes));
            most.push(highest(|[.., at_most]| *at_most));
        }
        [
            series("held", "all hosts", &best),
            series("at_least", "no less than", &least),
            series("at_most", "no more than", &most),
        ]
    }
}

impl OtherHosts {
    fn of(held: &[Vec<Option<Bytes>>]) -> Self {
        let count = held.first().map_or(0, Vec::len);
        let (mut high, mut middle, mut low) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..count {
            let amounts = held.iter().filter_map(|of| *of.get(place)?);
            let mut amounts: Vec<Bytes> = amounts.collect();
            amounts.sort_unstable();
            high.push(amounts.last().copied());
            middle.push(amounts.get(amounts.len() / 2).copied());
            low.push(amounts.first().copied());
        }
        Self {
            count: held.len(),
            held: [
                series("highest", "highest", &high),
                series("median", "median", &middle),
                series("lowest", "lowest", &low),
            ],
        }
    }
}

/// A step function of what holds in each stretch; beyond the last nothing is known.
fn series(id: &str, name: &str, held: &[Option<Bytes>]) -> CurveSeries {
    let mut steps: Vec<(u32, Option<Bytes>)> = Vec::new();
    for (place, bytes) in (0..).zip(held.iter().copied().chain([None])) {
        if steps.last().is_none_or(|(_, before)| *before != bytes) {
            steps.push((place, bytes));
        }
    }
    CurveSeries::new(id, name).with(&steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JOBS, job, reduced};
    use crate::hosts::{HostPart, RunReport, merge, merge_with_curves};
    use std::collections::BTreeSet;

    fn parts(name: &str) -> Vec<HostPart> {
        job(name).into_iter().map(reduced).collect()
    }

    fn curves(parts: Vec<HostPart>) -> (RunReport, RunCurves) {
        let mut report = merge_with_curves("4711", parts, Vec::new(), None);
        let curves = report.curves.take().expect("curves");
        (report, *curves)
    }

    #[test]
    fn curves_change_no_figure_and_reach_the_peaks_that_are_reported() {
        for (name, ..) in JOBS {
            let (report, curves) = curves(parts(name));
            assert_eq!(
                report,
                merge("4711", parts(name), Vec::new(), None),
                "{name}"
            );
            let peak = report.peak.expect("a peak");
            let [best, least, most] = &curves.all;
            assert_eq!(best.highest(), peak.bytes, "{name}");
            assert_eq!(most.highest(), peak.at_most_bytes, "{name}");
            assert!(least.highest() <= peak.at_least_bytes, "{name}");
            let hosts = curves.hosts.iter().map(|curve| &curve.host);
            assert!(
                hosts.eq(report.hosts.iter().map(|line| &line.host)),
                "{name}"
            );
            for (curve, line) in curves.hosts.iter().zip(&report.hosts) {
                let highest = curve.held[0].highest();
                assert!(
                    Some(highest) <= line.peak_at_most_bytes,
                    "{name} {}",
                    line.host
                );
                assert!(
                    Some(highest) >= line.peak_at_least_bytes,
                    "{name} {}",
                    line.host
                );
            }
        }
    }

    #[test]
    fn of_many_hosts_those_that_stand_out_have_a_curve_and_the_rest_is_reported_together() {
        let few = parts("many_hosts");
        let many = (0..200).map(|place| {
            let mut part = few[place % few.len()].clone();
            part.place.host = format!("n{place:03}");
            part
        });
        let (report, curves) = curves(many.collect());
        assert_eq!(curves.hosts.len(), HOSTS_MAX);
        let others = curves.others.expect("others");
        assert_eq!(others.count, 200 - HOSTS_MAX);
        let drawn: BTreeSet<&str> = curves.hosts.iter().map(|curve| &*curve.host).collect();
        let text = report.outliers.iter().map(|one| &*one.host);
        assert!(report.outliers.len() > 5 && text.into_iter().all(|host| drawn.contains(host)));
        let [highest, middle, lowest] = &others.held;
        assert!(lowest.highest() <= middle.highest() && middle.highest() <= highest.highest());
    }

    #[test]
    fn a_long_run_has_no_more_stretches_and_keeps_its_peak() {
        use crate::golden::{Member, Script};
        let mut script = Script::command(&["x"], 7_200.0);
        script.process(1, None, 0.0, "/bin/x");
        script.mem(1, 1.0, [100.0, 0.0, 0.0]);
        script.mem(1, 5_003.25, [900.0, 0.0, 0.0]);
        script.mem(1, 5_003.75, [100.0, 0.0, 0.0]);
        let member = Member {
            host: "a",
            rec: "20260301T120144Z",
            script,
        };
        let (report, curves) = curves(vec![reduced(member)]);
        assert_eq!(curves.stretch_ns.0, 12 * SECOND_NS);
        let peak = report.peak.expect("a peak").bytes;
        assert_eq!(curves.hosts[0].held[0].highest(), peak);
        assert_eq!(curves.all[0].highest(), peak);
    }
}
