//! The phases of one name: each of them, then who gained and lost over all of them, by role, on
//! GPUs, and process by process.

use super::super::{Section, figures, flexible, name, pid, words_in};
use super::{device_name, doubt, explain, per_step, repeat_table, stage_table, table};
use crate::analyze::{Amounts, Analysis, GpuChange, Level, Phase, PhaseFocus, PhasePart, Stretch};
use crate::model::Bytes;
use crate::report::words::{self, bytes_or_dash, bytes_or_unknown, change};

/// All sections.
pub(super) fn one(analysis: &Analysis, focus: &PhaseFocus, top: usize) -> Vec<Section> {
    let clock = &analysis.clock;
    let mut section = Section::new(format!(
        "Phase {}: {} from {} to {}",
        focus.name,
        match focus.phases.len() {
            1 => "once".to_owned(),
            count => format!("{} times", words::count(count)),
        },
        words::when(clock, focus.begin_boot_ns),
        words::when(clock, focus.end_boot_ns),
    ));
    if let Some(many) = &focus.line {
        match many.steps {
            Some(_) => stage_table(&mut section, analysis, &[many]),
            None => repeat_table(&mut section, analysis, &[many]),
        }
    }
    let shown = both_ends(&focus.phases, top);
    table(&mut section, analysis, &shown, true);
    doubt(&mut section, &shown);
    if shown.len() < focus.phases.len() {
        let rest = words::count(focus.phases.len() - shown.len());
        let told = format!("{rest} more between the first and the last: --top N shows N.");
        section.quiet(told);
    }
    explain(&mut section, analysis);
    let parts = [by_role(focus, top), around(analysis, focus)];
    let mut sections = vec![section];
    sections.extend(parts.into_iter().flatten());
    sections.push(holders(analysis, focus, top));
    sections
}

/// The first ones and the last ones, so many in all: what changed lies between them.
fn both_ends(phases: &[Phase], count: usize) -> Vec<&Phase> {
    let left_out = phases.len().saturating_sub(count);
    let first = (phases.len() - left_out).div_ceil(2);
    let places = 0..phases.len();
    let shown = places.filter(|&place| place < first || place >= first + left_out);
    shown.map(|place| &phases[place]).collect()
}

/// When the columns of the sections below are.
fn ends(focus: &PhaseFocus) -> &'static str {
    match focus.phases.len() {
        1 => "at its begin and at its end",
        _ => "at the first begin and at the last end",
    }
}

/// Host and GPUs by role; `None` where there is nothing to tell apart.
fn by_role(focus: &PhaseFocus, top: usize) -> Option<Section> {
    let has_gpu = focus.roles.iter().any(|role| role.gpu.is_some());
    let has_steps = has_steps(focus);
    if focus.roles.is_empty() {
        return None;
    }
    let mut section = Section::new(format!("By role, {}", ends(focus)));
    let mut columns = vec![
        flexible("ROLE"),
        figures("BEGIN", 2),
        figures("END", 1),
        figures("CHANGE", 0),
        figures("ANON", 1),
        figures("FILE", 3),
        figures("SHMEM", 2),
        figures("PEAK", 4),
    ];
    if has_gpu {
        columns.extend([figures("ON GPU", 1), figures("GPU CHANGE", 0)]);
    }
    if has_steps {
        columns.push(figures("PER STEP", 0));
    }
    let rows = focus.roles.iter().take(top).map(|role| {
        let mut row = vec![role.name.to_string()];
        row.extend(host_cells(&role.stretch));
        if has_gpu {
            row.extend(gpu_cells(role.gpu));
        }
        if has_steps {
            let roles = focus.line.iter().flat_map(|line| &line.roles);
            row.push(slope_of(roles, &role.name));
        }
        row
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    if focus.roles.len() > 1 {
        let mut row = vec!["all".to_owned()];
        row.extend(host_cells(&focus.tree));
        if has_gpu {
            let all = focus.roles.iter().map(|role| role.gpu);
            row.extend(gpu_cells(all.fold(Some([Some(Bytes(0)); 2]), together)));
        }
        if has_steps {
            let steps = focus.line.as_ref().and_then(|line| line.steps);
            row.push(per_step(steps.and_then(|steps| steps.tree)));
        }
        rows.push(row);
    }
    section.old_table(columns, rows);
    if focus.roles.len() > top {
        let rest = words::more_roles(focus.roles.len() - top);
        section.quiet(format!("{rest} that changed less."));
    }
    section.quiet(
        "Who had the role by then; a process that took another within is a loss of the one and a \
         gain of the other. Shared pages count in every process that maps them.",
    );
    Some(section)
}

fn has_steps(focus: &PhaseFocus) -> bool {
    let line = focus.line.as_ref();
    line.is_some_and(|line| line.steps.is_some())
}

/// From begin to the kinds and the peak.
fn host_cells(stretch: &Stretch) -> [String; 7] {
    [
        bytes_or_dash(stretch.begin.rss()),
        bytes_or_dash(stretch.end.rss()),
        change(stretch.rss_delta()),
        change(stretch.delta(Amounts::anon)),
        change(stretch.delta(Amounts::file)),
        change(stretch.delta(Amounts::shmem)),
        stretch
            .peak
            .map_or_else(String::new, |(peak, _)| words::bytes(peak)),
    ]
}

/// On GPUs at the end, and the change until then.
fn gpu_cells(on_gpu: Option<GpuChange>) -> [String; 2] {
    let [begin, end] = on_gpu.unwrap_or_default();
    let delta = begin.zip(end).map(|(begin, end)| end - begin);
    [bytes_or_dash(end), change(delta)]
}

fn together(a: Option<GpuChange>, b: Option<GpuChange>) -> Option<GpuChange> {
    let (a, b) = (a?, b?);
    let sum = |end: usize| Some(a[end]? + b[end]?);
    Some([sum(0), sum(1)])
}

fn slope_of<'a>(parts: impl IntoIterator<Item = &'a PhasePart>, name: &str) -> String {
    let part = parts.into_iter().find(|part| &*part.name == name);
    per_step(part.and_then(|part| part.slope))
}

/// Memory of the devices, and the page cache; `None` where neither was recorded.
fn around(analysis: &Analysis, focus: &PhaseFocus) -> Option<Section> {
    if focus.devices.is_empty() && focus.page_cache.is_none() {
        return None;
    }
    let mut section = Section::new(match focus.devices.len() {
        0 => "Around it",
        _ => "On each GPU, and around it",
    });
    let mut columns = vec![
        words_in("MEMORY OF", 0),
        figures("BEGIN", 1),
        figures("END", 1),
        figures("CHANGE", 0),
        figures("PEAK", 2),
    ];
    let has_steps = has_steps(focus) && !focus.devices.is_empty();
    if has_steps {
        columns.push(figures("PER STEP", 0));
    }
    let rows = focus.devices.iter().map(|device| {
        let name = device_name(analysis, &device.device);
        let mut row = level_cells(format!("GPU {name}"), &device.level);
        if has_steps {
            let devices = focus.line.iter().flat_map(|line| &line.devices);
            row.push(slope_of(devices, &device.device));
        }
        row
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    if let Some(cache) = &focus.page_cache {
        let mut row = level_cells("page cache of the machine".to_owned(), cache);
        if has_steps {
            row.push(String::new());
        }
        rows.push(row);
    }
    section.old_table(columns, rows);
    let lists = match focus.devices.len() {
        0 => "",
        _ => "; what is on GPUs by role and process by the last list that the driver gave",
    };
    section.quiet(format!("By the last readings before{lists}."));
    Some(section)
}

fn level_cells(name: String, level: &Level) -> Vec<String> {
    vec![
        name,
        bytes_or_unknown(level.begin),
        bytes_or_unknown(level.end),
        change(level.delta()),
        bytes_or_unknown(level.peak.map(|(peak, _)| peak)),
    ]
}

fn holders(analysis: &Analysis, focus: &PhaseFocus, top: usize) -> Section {
    let mut section = Section::new(format!("Who held what {}", ends(focus)));
    let has_gpu = focus.holders.iter().any(|holder| holder.gpu.is_some());
    let mut columns = vec![
        figures("PID", 0),
        flexible("PROCESS"),
        figures("BEGIN", 1),
        figures("END", 1),
        figures("CHANGE", 0),
        figures("ANON", 2),
        figures("FILE", 4),
        figures("SHMEM", 3),
    ];
    if has_gpu {
        columns.extend([figures("ON GPU", 2), figures("GPU CHANGE", 0)]);
    }
    let rows = focus.holders.iter().take(top).map(|holder| {
        let stretch = Stretch {
            begin: holder.before,
            end: holder.after,
            peak: None,
        };
        let mut row = vec![
            pid(&analysis.processes[holder.process]),
            name(analysis, holder.process),
            bytes_or_dash(holder.before.rss()),
            bytes_or_dash(holder.after.rss()),
            change(stretch.rss_delta()),
            change(stretch.delta(Amounts::anon)),
            change(stretch.delta(Amounts::file)),
            change(stretch.delta(Amounts::shmem)),
        ];
        if has_gpu {
            row.extend(gpu_cells(holder.gpu));
        }
        row
    });
    section.old_table(columns, rows.collect());
    if focus.holders.len() > top {
        let rest = words::processes(focus.holders.len() - top);
        section.quiet(format!("{rest} more that changed less."));
    }
    section
}
