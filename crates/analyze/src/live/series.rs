//! The newest figures of a recording as series for a monitoring system: so few that it can keep
//! them for every host, and with no process among their labels.

use super::Live;
use super::metrics::{
    CGROUP_LIMIT, CGROUP_MEMORY, CGROUP_WORKING_SET, GPU_TOTAL, GPU_USED, HELD, HELD_AT_LEAST,
    HELD_AT_MOST, Metric, NEWEST, OOM_KILLS, RECORDER_CPU, RECORDER_LOST, RECORDER_MEMORY,
    ROLE_MEMORY, ROLE_PROCESSES,
};
use memtrace_model::tables::{CgroupMemRow, GpuDeviceRow};
use memtrace_model::{Bytes, Kind, Label as _, Order, WallNs};
use memtrace_timeline::Totals;
use std::cmp::Reverse;
use std::fmt;

/// So many series there are at most.
pub const SERIES_MAX: usize = 200;
/// Roles that are distinguished; each has a series a kind, and one of its processes.
const ROLES: usize = 16;
/// Cgroups that are reported, with three series each; there is no sum of the rest, for one contains another.
const CGROUPS: usize = 16;
/// Devices that are distinguished, with two series each.
const DEVICES: usize = 16;
/// What stands for the rest.
const OTHER: &str = "other";

/// Series of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// What they tell.
    pub metric: &'static Metric,
    /// Labels, and the value.
    pub samples: Vec<(Vec<Label>, f64)>,
}

/// A label's name and its value.
pub type Label = (&'static str, String);

impl Family {
    fn new(metric: &'static Metric) -> Self {
        Self {
            metric,
            samples: Vec::new(),
        }
    }

    /// A family with a single series.
    pub fn single(metric: &'static Metric, value: f64) -> Self {
        let mut family = Self::new(metric);
        family.samples.push((Vec::new(), value));
        family
    }

    /// Adds a series where its value is known.
    fn add(&mut self, labels: Vec<Label>, value: Option<Bytes>) {
        if let Some(Bytes(value)) = value {
            self.samples.push((labels, value as f64));
        }
    }
}

/// Writes it in Prometheus's text format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.
impl fmt::Display for Family {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { name, help, .. } = self.metric;
        let kind = match self.metric.is_counter {
            true => "counter",
            false => "gauge",
        };
        writeln!(out, "# HELP {name} {help}")?;
        writeln!(out, "# TYPE {name} {kind}")?;
        for (labels, value) in &self.samples {
            write!(out, "{name}")?;
            for (place, (label, text)) in labels.iter().enumerate() {
                let before = if place == 0 { '{' } else { ',' };
                let text = text.replace('\\', "\\\\").replace('"', "\\\"");
                write!(out, "{before}{label}=\"{}\"", text.replace('\n', "\\n"))?;
            }
            let end = if labels.is_empty() { "" } else { "}" };
            writeln!(out, "{end} {value}")?;
        }
        Ok(())
    }
}

impl Live {
    /// The newest figures, at most [`SERIES_MAX`] series: what is held in all, roles by kind of
    /// memory, cgroups and devices: those that hold most by their names, and of roles and devices the
    /// rest as `other`.
    pub fn series(&self) -> Vec<Family> {
        let mut families = self.whole();
        families.extend(self.of_recorder());
        families.extend(self.of_roles());
        families.extend(self.of_cgroups());
        families.extend(self.of_devices());
        families.retain(|family| !family.samples.is_empty());
        families
    }

    fn whole(&self) -> Vec<Family> {
        let held = self.now().held;
        let amount = |Bytes(bytes): Bytes| bytes as f64;
        let mut families = vec![
            Family::single(&HELD, amount(held.bytes)),
            Family::single(&HELD_AT_LEAST, amount(held.at_least)),
            Family::single(&HELD_AT_MOST, amount(held.at_most)),
            Family::single(&OOM_KILLS, self.kills().len() as f64),
        ];
        if let Some(WallNs(wall)) = self.clock().to_wall(self.now().at) {
            families.push(Family::single(&NEWEST, wall as f64 / 1e9));
        }
        families
    }

    /// What the recorder itself takes.
    fn of_recorder(&self) -> Vec<Family> {
        let Some(cost) = self.kept.newest_cost() else {
            return Vec::new();
        };
        let cpu = cost.cpu_user_ns.as_secs_f64() + cost.cpu_system_ns.as_secs_f64();
        let mut memory = Family::new(&RECORDER_MEMORY);
        memory.add(Vec::new(), cost.rss_bytes);
        vec![
            Family::single(&RECORDER_CPU, cpu),
            memory,
            Family::single(&RECORDER_LOST, cost.lost_event_count as f64),
        ]
    }

    fn of_roles(&self) -> [Family; 2] {
        let mut memory = Family::new(&ROLE_MEMORY);
        let mut processes = Family::new(&ROLE_PROCESSES);
        let mut roles = self.roles(self.now());
        roles.retain(|role| role.process_count > 0);
        // A program can be called what stands for the rest: then it is of the rest.
        roles.order_by_key(|role| &*role.name == OTHER);
        let named = roles.iter().filter(|role| &*role.name != OTHER).count();
        let (reported, rest) = roles.split_at(named.min(ROLES));
        let mut add = |name: &str, count: usize, sum: &dyn Fn(Kind) -> Option<Bytes>| {
            let role = || ("role", name.to_owned());
            for &kind in Kind::ALL {
                let word = kind.key().trim_end_matches("_bytes").to_owned();
                memory.add(vec![role(), ("kind", word)], sum(kind));
            }
            processes.samples.push((vec![role()], count as f64));
        };
        for role in reported {
            let totals: &Totals = &role.totals;
            add(&role.name, role.process_count, &|kind| totals[kind].bytes());
        }
        if !rest.is_empty() {
            let count = rest.iter().map(|role| role.process_count).sum();
            add(OTHER, count, &|kind| {
                sum(rest.iter().map(|role| role.totals[kind].bytes()))
            });
        }
        [memory, processes]
    }

    fn of_cgroups(&self) -> [Family; 3] {
        let mut memory = Family::new(&CGROUP_MEMORY);
        let mut working = Family::new(&CGROUP_WORKING_SET);
        let mut limits = Family::new(&CGROUP_LIMIT);
        let mut groups: Vec<&CgroupMemRow> = self.kept.cgroups().collect();
        groups.order_by_key(|row| (Reverse(row.current_bytes), row.cgroup.clone()));
        for row in groups.into_iter().take(CGROUPS) {
            let cgroup = || vec![("cgroup", row.cgroup.clone())];
            memory.add(cgroup(), row.current_bytes);
            working.add(cgroup(), row.working_set_bytes());
            limits.add(cgroup(), row.limit_bytes);
        }
        [memory, working, limits]
    }

    fn of_devices(&self) -> [Family; 2] {
        let mut used = Family::new(&GPU_USED);
        let mut total = Family::new(&GPU_TOTAL);
        let mut devices: Vec<&GpuDeviceRow> = self.kept.devices();
        devices.order_by_key(|row| (Reverse(row.used_bytes), row.device.clone()));
        let (reported, rest) = devices.split_at(devices.len().min(DEVICES));
        for row in reported {
            let gpu = || vec![("gpu", row.device.clone())];
            used.add(gpu(), row.used_bytes);
            total.add(gpu(), row.total_bytes);
        }
        if !rest.is_empty() {
            let other = || vec![("gpu", OTHER.to_owned())];
            used.add(other(), sum(rest.iter().map(|row| row.used_bytes)));
            total.add(other(), sum(rest.iter().map(|row| row.total_bytes)));
        }
        [used, total]
    }
}

/// The sum of those that are known; `None` where none is.
fn sum(amounts: impl Iterator<Item = Option<Bytes>>) -> Option<Bytes> {
    let known = amounts.flatten();
    known.reduce(|a, b| Bytes(a.0.saturating_add(b.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{RUNS, Stream, mem_row};
    use crate::live::metrics::METRICS;
    use memtrace_model::tables::{MemRow, ProcessRow};
    use memtrace_model::{BootNs, FreshRows, Row, Tgid, Upid};
    use std::any::Any;
    use std::collections::HashSet;
    use std::convert::Infallible;

    /// Rows of some tables, reported once.
    #[derive(Default)]
    struct Rows(Vec<Box<dyn Any>>);

    impl FreshRows for Rows {
        type Error = Infallible;

        fn fresh<R: Row>(&mut self, _: &[&str], mut each: impl FnMut(R)) -> Result<(), Infallible> {
            let (of_this, rest) = std::mem::take(&mut self.0)
                .into_iter()
                .partition(|row| row.is::<R>());
            self.0 = rest;
            let rows: Vec<Box<dyn Any>> = of_this;
            let rows = rows.into_iter().filter_map(|row| row.downcast::<R>().ok());
            rows.for_each(|row| each(*row));
            Ok(())
        }
    }

    /// A host on which everything is in hundreds.
    fn crowded() -> Live {
        let info = Stream::of((RUNS[0].1)()).info;
        let mut rows = Rows::default();
        for number in 1..=300_i64 {
            rows.0.push(Box::new(ProcessRow {
                upid: Upid(number),
                tgid: Tgid(u32::try_from(number).unwrap()),
                // One is called what stands for the rest.
                role: Some(match number {
                    299 => OTHER.to_owned(),
                    _ => format!("role \\ {number}"),
                }),
                start_boot_ns: BootNs(1),
                ..ProcessRow::default()
            }));
            rows.0.push(Box::new(MemRow {
                rss_anon_bytes: Some(Bytes(number << 20)),
                ..mem_row(number, 2, Some(number << 20))
            }));
            rows.0.push(Box::new(CgroupMemRow {
                boot_ns: BootNs(2),
                cgroup: format!("/job/{number}"),
                current_bytes: Some(Bytes(number << 20)),
                inactive_file_bytes: Some(Bytes(1 << 20)),
                limit_bytes: Some(Bytes(1 << 40)),
                ..CgroupMemRow::default()
            }));
            rows.0.push(Box::new(GpuDeviceRow {
                boot_ns: BootNs(2),
                device: format!("GPU-{number}"),
                used_bytes: Some(Bytes(number << 20)),
                total_bytes: Some(Bytes(1 << 36)),
                ..GpuDeviceRow::default()
            }));
        }
        let mut live = Live::new(info, None);
        let Ok(_) = live.take(&mut rows);
        live.finish();
        live
    }

    fn all(families: &[Family]) -> impl Iterator<Item = (&'static str, &(Vec<Label>, f64))> {
        families.iter().flat_map(|family| {
            family
                .samples
                .iter()
                .map(|sample| (family.metric.name, sample))
        })
    }

    #[test]
    fn a_crowded_host_has_no_more_series_than_the_bound_and_they_add_up() {
        let families = crowded().series();
        let is_declared = |family: &Family| METRICS.contains(&family.metric);
        assert!(families.iter().all(is_declared), "{families:?}");
        let count = all(&families).count();
        assert!((100..=SERIES_MAX).contains(&count), "{count}");
        let every: HashSet<String> = all(&families)
            .map(|(name, (labels, _))| format!("{name} {labels:?}"))
            .collect();
        assert_eq!(every.len(), count, "two series of one name and labels");
        let of = |name: &str| {
            let family = families
                .iter()
                .find(|family| family.metric.name == name)
                .unwrap();
            family.samples.iter().map(|(_, value)| value).sum::<f64>()
        };
        let whole = (1..=300).sum::<i64>() as f64 * f64::from(1 << 20);
        let largest = (285..=300).sum::<i64>() as f64 * f64::from(1 << 20);
        assert_eq!(of("memtrace_cgroup_memory_bytes"), largest);
        let files = f64::from(16 << 20);
        assert_eq!(of("memtrace_cgroup_working_set_bytes"), largest - files);
        assert_eq!(of("memtrace_gpu_memory_used_bytes"), whole);
        assert_eq!(of("memtrace_role_processes"), 300.0);
    }

    #[test]
    fn no_text_that_a_program_chose_breaks_a_line() {
        let mut family = Family::new(&ROLE_PROCESSES);
        let text = "a\"} 1\nb\\";
        family.samples.push((
            vec![("role", text.to_owned()), ("kind", "rss".to_owned())],
            2.5,
        ));
        assert_eq!(
            family.to_string(),
            "# HELP memtrace_role_processes Processes of a role.\n\
             # TYPE memtrace_role_processes gauge\n\
             memtrace_role_processes{role=\"a\\\"} 1\\nb\\\\\",kind=\"rss\"} 2.5\n"
        );
    }

    #[test]
    fn what_is_held_is_what_the_live_view_says() {
        let live = crowded();
        let families = live.series();
        let held = families
            .iter()
            .find(|family| family.metric.name == "memtrace_held_bytes")
            .unwrap();
        assert_eq!(held.samples[0].1, live.now().held.bytes.0 as f64);
        assert!(live.now().held.bytes > Bytes(0));
        assert!(live.now().at > BootNs(0));
    }
}
