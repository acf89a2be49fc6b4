//! What a part may say: it is written elsewhere, and one that no recording can be is refused before
//! anything is allocated or added up by it.

use super::part::HostPart;
use crate::bins::{BINS_MAX, SECOND_NS, WIDTHS_S};
use memtrace_model::{Bytes, WallNs};

/// Figures of bytes are below this: those of a recording are.
const BYTES_MAX: i64 = 1 << 60;
/// Counts are below this, for the same reason.
const COUNT_MAX: usize = 1 << 32;
/// Lists are no longer; reducing bounds them below that.
const LIST_MAX: usize = 20_000;
/// The end of the 22nd century, in seconds since the epoch.
const SECONDS_MAX: i64 = 7_258_118_400;

impl HostPart {
    /// The first thing that no recording says; `None` where all can be.
    pub(super) fn out_of_bounds(&self) -> Option<&'static str> {
        let is_in = |bounds: bool, what| (!bounds).then_some(what);
        is_in(self.has_times(), "its times are outside of 1970 to 2199")
            .or(is_in(self.has_lists(), "its lists are too long"))
            .or(is_in(self.has_counts(), "its counts are too high"))
            .or(is_in(
                self.has_amounts(),
                "its amounts of memory are too high",
            ))
            .or(is_in(self.has_curve(), "no recording has such a curve"))
    }

    fn has_times(&self) -> bool {
        let ends = self.ends.iter().map(|end| end.wall_ns);
        let steps = self.marks.iter().flat_map(|marks| marks.steps());
        let peak = self.peak.as_ref().and_then(|peak| peak.wall_ns);
        let mut times = [self.start_wall_ns, self.end_wall_ns, peak]
            .into_iter()
            .chain(ends)
            .flatten()
            .chain(steps.map(|(_, at)| WallNs(at)));
        let mut durations = (self.phases.iter())
            .flat_map(|phase| [phase.total_ns, phase.longest_ns])
            .chain(self.rotate_ns)
            .chain(self.clock.error_ns);
        times.all(|at| (0..SECONDS_MAX * SECOND_NS).contains(&at.0))
            && durations.all(|long| (0..=i64::MAX / 4).contains(&long.0))
    }

    fn has_lists(&self) -> bool {
        let lengths = [
            self.expected_hosts.as_ref().map_or(0, Vec::len),
            self.problems.len(),
            self.losses.len(),
            self.roles.len(),
            self.ranks.len(),
            self.phases.len(),
            self.marks.len(),
            self.ends.len(),
            self.gpus.len(),
            self.held.as_ref().map_or(0, |held| held.parts.len()),
        ];
        lengths.into_iter().all(|length| length <= LIST_MAX)
    }

    fn has_counts(&self) -> bool {
        let phases = self.phases.iter();
        let own = [
            self.problem_count,
            self.loss_count,
            self.role_count,
            self.rank_count,
            self.phase_count,
            self.end_count,
        ];
        own.into_iter()
            .chain(self.roles.iter().map(|role| role.process_count))
            .chain(phases.flat_map(|phase| [phase.count, phase.open_count]))
            .all(|count| count <= COUNT_MAX)
    }

    fn has_amounts(&self) -> bool {
        let peak = self.peak.iter().flat_map(|peak| {
            [
                Some(peak.at_least_bytes),
                Some(peak.bytes),
                Some(peak.at_most_bytes),
            ]
        });
        let limit = self.limit.iter();
        let limit = limit.flat_map(|limit| [Some(limit.limit_bytes), Some(limit.headroom_bytes)]);
        let roles = self.roles.iter();
        let roles =
            roles.flat_map(|role| [role.at_peak_bytes, role.peak_bytes, Some(role.error_bytes)]);
        let ranks = self.ranks.iter();
        let ranks = ranks.flat_map(|rank| [rank.peak_bytes, rank.at_peak_bytes]);
        let gpus = self.gpus.iter();
        let gpus = gpus.flat_map(|gpu| [gpu.total_bytes, gpu.peak_bytes]);
        peak.chain(limit)
            .chain(roles)
            .chain(ranks)
            .chain(gpus)
            .chain([self.machine.mem_total_bytes])
            .flatten()
            .all(|Bytes(bytes)| is_amount(bytes))
    }

    /// Whether its bins are those of a recording: so many as there are at most, and in a time.
    fn has_curve(&self) -> bool {
        let Some(curve) = &self.held else {
            return true;
        };
        let bins_max = 2 * BINS_MAX as i64 + 1;
        let Some(last) = curve.first_bin.checked_add(bins_max) else {
            return false;
        };
        let mut count = 0_i64;
        let mut is_short = |of_run: i64| {
            count = count.saturating_add(of_run);
            count <= bins_max
        };
        let are_amounts = |bin: crate::bins::Bin| {
            [bin.at_least, bin.least, bin.mean, bin.most, bin.at_most]
                .into_iter()
                .all(is_amount)
        };
        WIDTHS_S.contains(&curve.bin_s)
            && curve.first_bin >= -1
            && last
                .checked_mul(curve.bin_s)
                .is_some_and(|last| last < 2 * SECONDS_MAX)
            && curve
                .runs()
                .all(|(of_run, bin)| is_short(of_run) && are_amounts(bin))
    }
}

fn is_amount(bytes: i64) -> bool {
    (-BYTES_MAX..BYTES_MAX).contains(&bytes)
}
