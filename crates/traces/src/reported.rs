//! What is said of traces to people.

use super::activity::{DeviceActivity, Gap};
use super::kernels::KindTotal;
use super::names::NameTotals;
use super::overview::Overview;
use super::rank::RankSource;
use super::skew::{RankInWindow, Window};
use super::summary::{TraceGpu, TraceSummary};
use super::times::{percent, took};
use memtrace_model::{Bytes, DurationNs};
use memtrace_report::words::{self, counted};
use memtrace_report::{
    Cell, Chapter, Parts, Style, TableOf, Tone, Written, one_part, write_object,
};
use std::io;

impl Written for Overview {
    fn chapters(&self, _style: &Style) -> Vec<Chapter> {
        let mut chapters = Vec::new();
        if !self.has_only_windows {
            chapters.extend(self.traces.iter().map(TraceSummary::reported));
        }
        chapters.extend(
            self.windows
                .iter()
                .map(|window| window.chapter(&self.traces)),
        );
        if chapters.is_empty() {
            let mut nothing = Chapter::new("No ranks to compare");
            nothing.say(
                "No two traces overlap in time, or they do not say what their times count from.",
            );
            chapters.push(nothing);
        }
        chapters
    }

    fn tables<'a>(&'a self, _style: &Style) -> Parts<'a> {
        let all = self.traces.iter().flat_map(|trace| {
            let names = |what: &'static str, totals: &'a NameTotals| {
                totals.list.iter().map(move |one| (trace, what, one))
            };
            names("operator", &trace.operators).chain(names("kernel", &trace.kernels))
        });
        let table = TableOf::of(all)
            .words("file", 0, |(trace, ..)| &*trace.file)
            .figures("rank", 0, |(trace, ..)| rank_of(trace))
            .words("what", 0, |(_, what, _)| *what)
            .flexible("name", |(.., one)| &*one.name)
            .figures("count", 0, |(.., one)| Cell::known(Some(one.count)))
            .figures("total_s", 0, |(.., one)| Cell::Took(Some(one.total_ns)))
            .figures("self_s", 0, |(.., one)| Cell::Took(one.self_ns));
        one_part(table.done())
    }

    fn json(&mut self, _style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        write_object(self, out)
    }
}

impl TraceSummary {
    fn reported(&self) -> Chapter {
        let title = match self.rank {
            Some(rank) => format!("Rank {rank}: {}", self.file),
            None => self.file.clone(),
        };
        let mut chapter = match self.problem.is_some() || !self.is_trace {
            true => Chapter::alarming(title),
            false => Chapter::new(title),
        };
        if !self.is_trace {
            chapter.alert(match self.problem {
                Some(_) => "No list of events was found in it.",
                None => "It is not a trace of a profiler: it has no list of events. Memory timelines and \
                         memory snapshots of torch are not traces.",
            });
        }
        if let Some(problem) = &self.problem {
            chapter.alert(format!("Not read to its end: {problem}."));
        }
        if !self.is_trace {
            return chapter;
        }
        chapter.say(self.span_in_words());
        let about = [self.job_in_words(), self.devices_in_words()];
        chapter.tell(Tone::Plain, about.into_iter().flatten());
        for hint in &self.hints {
            chapter.tell(Tone::Strong, [format!("Hint: {}", hint.text)]);
        }
        memory_table(self).add_to(&mut chapter);
        operator_memory_table(&mut chapter, self);
        names_table(&mut chapter, "operator", &self.operators);
        names_table(&mut chapter, "kernel", &self.kernels);
        kinds_table(self).add_to(&mut chapter);
        for device in &self.activity {
            chapter.say(device.in_words());
        }
        gaps_table(self).add_to(&mut chapter);
        chapter
    }

    fn span_in_words(&self) -> String {
        let events = counted(
            usize::try_from(self.event_count).unwrap_or(usize::MAX),
            "event",
            "events",
        );
        let Some(duration) = self.duration_ns else {
            return format!("{events}, none with a time.");
        };
        let steps = match self.steps.len() {
            0 => String::new(),
            count if self.has_more_steps => format!(", {} steps and more", words::count(count)),
            count => format!(", {}", counted(count, "step", "steps")),
        };
        let begin = self.begin_wall_ns;
        let begin = begin.and_then(|begin| words::date_and_time(begin, None));
        let begin = begin.unwrap_or_else(|| "At an unknown time".to_owned());
        let graphs = match self.graph_launch_count {
            0 => String::new(),
            1 => ", 1 launch of a CUDA graph".to_owned(),
            launches => format!(", {} launches of CUDA graphs", count(launches)),
        };
        format!("{begin}, for {}: {events}{steps}{graphs}.", took(duration))
    }

    fn job_in_words(&self) -> Option<String> {
        let of = self.world_size.map(|size| format!(" of {size}"));
        let backend = self.backend.as_ref().map(|backend| format!(" ({backend})"));
        let more = of.unwrap_or_default() + &backend.unwrap_or_default();
        let from = match self.rank_from? {
            RankSource::Trace => "as the trace says",
            RankSource::FileName => "by the name of the file",
        };
        Some(format!("Rank {}{more}, {from}.", self.rank?))
    }

    fn devices_in_words(&self) -> Option<String> {
        let in_words = |gpu: &TraceGpu| {
            let name = gpu.name.as_deref().unwrap_or("of unknown model");
            let total = gpu
                .total_bytes
                .map(|total| format!(" ({})", words::bytes(total)));
            format!("device {}: {name}{}", gpu.number, total.unwrap_or_default())
        };
        let devices: Vec<String> = self.devices.iter().map(in_words).collect();
        let has_kernels = !self.kernels.list.is_empty() || self.kernels.other_count > 0;
        let verb = match (self.has_used_devices, has_kernels) {
            (true, _) => "Ran on",
            (false, true) if devices.len() == 1 => "Ran on",
            (false, true) => "Ran on some of",
            (false, false) => "Nothing ran on",
        };
        (!devices.is_empty()).then(|| format!("{verb} {}.", devices.join(", ")))
    }
}

fn rank_of(trace: &TraceSummary) -> Cell {
    trace
        .rank
        .map_or(Cell::Absent, |rank| Cell::known(Some(rank)))
}

fn memory_table(trace: &TraceSummary) -> TableOf<&super::memory::DeviceMemory> {
    let after = |at: Option<memtrace_model::WallNs>| {
        let begin = trace.begin_wall_ns;
        let offset = at
            .zip(begin)
            .map(|(at, begin)| DurationNs(at.0.saturating_sub(begin.0)));
        offset.map_or(Cell::Absent, |offset| {
            Cell::At(Some(offset)).shown_as(format!("+{}", took(offset)))
        })
    };
    let absent = |bytes: Option<Bytes>| bytes.map_or(Cell::Absent, Cell::from);
    TableOf::of(&trace.memory)
        .words("device", 0, |memory| &*memory.device)
        .figures("peak_allocated_bytes", 0, |memory| {
            memory.peak_allocated_bytes
        })
        .figures("at_s", 1, |memory| after(memory.peak_allocated_at_wall_ns))
        .flexible("in", |memory| {
            memory
                .peak_allocated_in
                .as_deref()
                .map_or(Cell::Absent, Cell::from)
        })
        .figures("peak_reserved_bytes", 0, |memory| {
            absent(memory.peak_reserved_bytes)
        })
        .figures(("reserved_at_s", "AT"), 1, |memory| {
            after(memory.peak_reserved_at_wall_ns)
        })
        .figures("events", 2, |memory| count(memory.event_count))
}

fn operator_memory_table(chapter: &mut Chapter, trace: &TraceSummary) {
    let of_devices = trace.memory.iter();
    if of_devices.clone().any(|memory| memory.operators.is_none()) {
        chapter.quiet("Memory by operator is unknown: too many events.");
    }
    let of_devices =
        of_devices.filter_map(|memory| Some((&*memory.device, memory.operators.as_ref()?)));
    let rows = of_devices
        .clone()
        .flat_map(|(device, operators)| operators.list.iter().map(move |one| (device, one)));
    TableOf::of(rows)
        .flexible("memory_by_operator", |(_, one)| {
            one.name
                .as_deref()
                .unwrap_or("(outside of operators)")
                .to_owned()
        })
        .words("device", 0, |(device, _)| *device)
        .figures("changes", 2, |(_, one)| count(one.count))
        .figures("allocated_bytes", 0, |(_, one)| one.allocated_bytes)
        .figures("freed_bytes", 0, |(_, one)| one.freed_bytes)
        .figures("kept_bytes", 0, |(_, one)| {
            let kept = one.allocated_bytes.0.saturating_sub(one.freed_bytes.0);
            Cell::Change(Some(Bytes(kept)))
        })
        .add_to(chapter);
    for (device, operators) in of_devices.filter(|(_, operators)| operators.other_count > 0) {
        chapter.quiet(format!(
            "{} on {device}: {} allocated, {} freed.",
            counted(operators.other_name_count, "other name", "other names"),
            words::bytes(operators.other_allocated_bytes),
            words::bytes(operators.other_freed_bytes),
        ));
    }
}

fn count(number: u64) -> String {
    words::count(i64::try_from(number).unwrap_or(i64::MAX))
}

fn kinds_table(trace: &TraceSummary) -> TableOf<&KindTotal> {
    let all = trace.kernel_kinds.iter().map(|one| one.total_ns.0);
    let all = all.fold(0, i64::saturating_add);
    TableOf::of(&trace.kernel_kinds)
        .words("kind", 0, |one| one.kind.in_words())
        .figures("count", 1, |one| count(one.count))
        .figures("total_s", 0, |one| took_cell(Some(one.total_ns)))
        .figures("share", 0, move |one| {
            percent(one.total_ns, DurationNs(all))
        })
}

fn gaps_table(trace: &TraceSummary) -> TableOf<(i64, &Gap)> {
    let of_devices = trace.activity.iter();
    let gaps = of_devices.flat_map(|one| one.gaps.iter().map(|gap| (one.device, gap)));
    TableOf::of(gaps)
        .figures(("device", "GAP OF DEVICE"), 0, |(device, _)| {
            Cell::known(Some(*device))
        })
        .figures("at_s", 0, |(_, gap)| {
            let after = gap.begins_after_ns;
            Cell::At(Some(after)).shown_as(format!("+{}", took(after)))
        })
        .figures("took_s", 0, |(_, gap)| took_cell(Some(gap.duration_ns)))
        .figures(("cpu_s", "OF IT"), 0, |(_, gap)| took_cell(gap.cpu_ns))
        .flexible(("cpu", "ON THE CPU"), |(_, gap)| {
            let unnamed = match gap.cpu_ns {
                Some(_) => "nothing that was traced",
                None => "unknown",
            };
            gap.cpu_name.as_deref().unwrap_or(unnamed).to_owned()
        })
}

impl DeviceActivity {
    fn in_words(&self) -> String {
        let of_span = |part| percent(part, self.span_ns);
        let communication = match self.communication_ns.0 {
            0 => String::new(),
            _ => format!(
                "; communicated {}, {} of that beside computing",
                of_span(self.communication_ns),
                percent(self.communication_beside_compute_ns, self.communication_ns)
            ),
        };
        format!(
            "Device {}: of {} busy {}, idle {} ({}); computed {}{communication}.",
            self.device,
            took(self.span_ns),
            of_span(self.busy_ns),
            of_span(self.idle_ns),
            took(self.idle_ns),
            of_span(self.compute_ns),
        )
    }
}

fn names_table(chapter: &mut Chapter, what: &str, totals: &NameTotals) {
    let is_any_known = totals.list.iter().any(|one| one.self_ns.is_some());
    TableOf::of(&totals.list)
        .flexible(what, |one| &*one.name)
        .figures("count", 1, |one| count(one.count))
        .figures("total_s", 0, |one| took_cell(Some(one.total_ns)))
        .figures("self_s", 0, |one| took_cell(one.self_ns))
        .only_if(is_any_known)
        .add_to(chapter);
    if totals.other_count > 0 {
        let names = match totals.has_more_names {
            true => "Other names, too many to count".to_owned(),
            false => counted(totals.other_name_count, "other name", "other names"),
        };
        let calls = count(totals.other_count);
        chapter.quiet(format!(
            "{names}: {} in {calls} {what}s.",
            took(totals.other_total_ns)
        ));
    }
}

impl Window {
    fn chapter(&self, traces: &[TraceSummary]) -> Chapter {
        let begin = words::date_and_time(self.begin_wall_ns, None).unwrap_or_default();
        let mut chapter = Chapter::new(format!("Ranks side by side: {begin}"));
        chapter.say(format!(
            "{} start within {} and end within {}.",
            counted(self.ranks.len(), "trace", "traces"),
            took(self.begin_skew_ns),
            took_cell(self.end_skew_ns).shown(),
        ));
        let trace = |rank: &RankInWindow| &traces[rank.trace];
        let file = |rank: &&RankInWindow| {
            let name = trace(rank).file.rsplit('/').next().unwrap_or_default();
            name.to_owned()
        };
        let reserved = |rank: &&RankInWindow| {
            let devices = trace(rank)
                .memory
                .iter()
                .filter(|memory| memory.device != "cpu");
            let highest = devices
                .filter_map(|memory| memory.peak_reserved_bytes)
                .max();
            highest.map_or(Cell::Absent, Cell::from)
        };
        TableOf::of(&self.ranks)
            .figures("rank", 0, |rank| rank_of(trace(rank)))
            .figures("begins_after_s", 0, |rank| {
                took_cell(Some(rank.begins_after_ns))
            })
            .figures("ends_before_s", 0, |rank| took_cell(rank.ends_before_ns))
            .figures("steps", 1, |rank| words::count(rank.step_count))
            .figures("steps_took_s", 1, |rank| {
                took_cell(Some(rank.steps_total_ns))
            })
            .figures("peak_reserved_bytes", 2, reserved)
            .flexible("file", file)
            .add_to(&mut chapter);
        let name = |place: usize| match traces[place].rank {
            Some(rank) => rank.to_string(),
            None => traces[place].file.clone(),
        };
        if let Some(late) = &self.late {
            chapter.tell(
                Tone::Strong,
                [format!(
                    "Hint: {} took longest and ended last in {} of {}, {} longer in all; all steps took {}, \
                     each where it was shortest. The others probably waited for it.",
                    match traces[late.trace].rank {
                        Some(rank) => format!("Rank {rank}"),
                        None => traces[late.trace].file.clone(),
                    },
                    late.longest_count,
                    counted(self.steps.len(), "step", "steps"),
                    took(late.longer_ns),
                    took(late.shortest_total_ns),
                )],
            );
        }
        TableOf::of(&self.steps)
            .figures("step", 0, |step| Cell::known(Some(step.number)))
            .figures("ranks", 2, |step| words::count(step.rank_count))
            .figures(("begin_skew_s", "START WITHIN"), 0, |step| {
                took_cell(Some(step.begin_skew_ns))
            })
            .figures(("end_skew_s", "END WITHIN"), 0, |step| {
                took_cell(Some(step.end_skew_ns))
            })
            .figures("shortest_s", 1, |step| took_cell(Some(step.shortest_ns)))
            .figures("longest_s", 0, |step| took_cell(Some(step.longest_ns)))
            .words(("longest_rank", "IN RANK"), 0, |step| {
                name(step.longest_trace)
            })
            .add_to(&mut chapter);
        chapter
    }
}

fn took_cell(length: Option<DurationNs>) -> Cell {
    let cell = Cell::Took(length);
    match length {
        Some(length) => cell.shown_as(took(length)),
        None => cell,
    }
}
