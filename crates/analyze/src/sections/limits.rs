//! How near a limit came to being met, in words.

use crate::{Analysis, LimitKind, LimitUse};
use memtrace_model::DurationNs;
use memtrace_report::words::bytes;
use memtrace_report::{visible, words};

/// The peak is of a row of a process, and the next reading of groups comes so much later at most.
const AT_THE_PEAK: DurationNs = DurationNs(200_000_000);

/// `64 MiB of the 64 MiB of /dev/shm were in use at +3.2s (100%)`.
pub(super) fn in_words(limit_use: &LimitUse, analysis: &Analysis) -> String {
    let (limit, who) = (bytes(limit_use.limit_bytes), limit_use.who.in_words());
    let used = limit_use.used_bytes.map(bytes);
    let share = words::share(limit_use.used_bytes, Some(limit_use.limit_bytes));
    let clock = &analysis.clock;
    match (limit_use.kind, used) {
        (LimitKind::Cgroup, used) => {
            let path = limit_use.cgroup.as_deref().unwrap_or_default();
            let group = analysis.cgroup_in_short(path);
            let Some(used) = used else {
                return format!("{limit} on {group}; its usage was not recorded");
            };
            let when = limit_use.at.map(|at| clock.when(at)).unwrap_or_default();
            let (how, source) = match (limit_use.is_kernel_mark, is_of_peak(limit_use, analysis)) {
                (true, _) => (format!("had been in use by {when}"), ", the kernel's mark"),
                (false, true) => ("were in use at the peak".to_owned(), ""),
                (false, false) => (format!("were in use at {when}"), ""),
            };
            let aside = limit_use.reclaimable_bytes.unwrap_or_default();
            let aside = match aside.0 > limit_use.limit_bytes.0 / 100 {
                true => ", page cache aside",
                false => "",
            };
            let earlier = limit_use.earlier_mark_bytes.map(bytes);
            let earlier = earlier.map_or_else(String::new, |mark| {
                format!("; its mark, {mark}, may be from before")
            });
            format!("{used} of the {limit} of {group} {how}{aside} ({share}{source}{earlier})")
        }
        (LimitKind::Tmpfs, Some(used)) => {
            let path = visible(limit_use.mount_point.as_deref().unwrap_or_default());
            let at = limit_use.at.map(|at| clock.when(at)).unwrap_or_default();
            format!("{used} of the {limit} of {path} were in use at {at} ({share})")
        }
        (LimitKind::AddressSpace, Some(used)) => format!(
            "{who} had mapped {used} of the {limit} of address space that RLIMIT_AS allows it \
             ({share})"
        ),
        (LimitKind::Data, _) => {
            format!("RLIMIT_DATA allows {who} {limit} of private memory")
        }
        (_, None) => format!("RLIMIT_AS allows {who} {limit} of address space"),
    }
}

/// Whether that is of the peak of all together, or as much was in use then.
pub(super) fn is_of_peak(limit: &LimitUse, analysis: &Analysis) -> bool {
    let (Some(peak), Some(at), Some(used)) = (&analysis.peak, limit.at, limit.used_bytes) else {
        return false;
    };
    let apart = peak.at.boot_ns - at.boot_ns;
    let mut groups = peak.cgroups.iter().map(|group| &group.row);
    let own = groups.find(|row| Some(&row.cgroup) == limit.cgroup.as_ref());
    let then =
        own.and_then(|row| Some(row.current_bytes? - row.reclaimable_bytes().unwrap_or_default()));
    let is_as_much = then.is_some_and(|then| then.0 >= used.0 - used.0 / 100);
    !limit.is_kernel_mark && (apart.0.saturating_abs() <= AT_THE_PEAK.0 || is_as_much)
}
