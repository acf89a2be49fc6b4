//! One process on one page: its life, what it held and who laid that out, its mappings, phases,
//! shared objects, GPUs and children.

use super::{allocations, layout};
use crate::life;
use crate::{Analysis, Life, MappingLine, Phase, PhaseLine, Process, Report};
use memtrace_model::tables::MappingKind;
use memtrace_model::{Instant, Kind, Label, RowSource};
use memtrace_report::words::{bytes, bytes_or_unknown};
use memtrace_report::{
    Cell, Chapter, Mode, Section, Table, TableOf, View, one_part, shorten, visible, words,
};
use schemars::JsonSchema;
use serde::Serialize;

/// Parts and mappings that get a line each.
const LINES_MAX: usize = 10;
/// So much of a command line is shown.
const COMMAND_MAX: usize = 280;
/// Other holders and children that are named in a line.
const NAMED_MAX: usize = 3;

/// The process that `--process` gives.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct OneProcess {
    /// Its life; `None` where none was asked for.
    process: Option<Life>,
}

pub(super) const SECTION: Section<Report> = Section {
    name: "process",
    doc: "the life of the process that --process gives",
    keys: &["process"],
    modes: &[Mode::Process],
    tables: Some(|report, top| {
        let mappings = report.life.process.iter().flat_map(|life| &life.mappings);
        let mappings: Vec<&MappingLine> = mappings.take(top).collect();
        one_part(of_mappings(&mappings))
    }),
    tell: |analysis, view| {
        let Some(life) = &analysis.life.process else {
            return Vec::new();
        };
        let process = &analysis.processes[life.process];
        let most = view.most(view.style.top.unwrap_or(LINES_MAX));
        let mut chapter = vec![head(analysis, life, process, view)];
        chapter.extend(inside(analysis, life, most));
        chapter.extend(allocations::of_process(analysis, &life.who, most));
        chapter.extend(mappings(analysis, life, most));
        chapter.extend(phases(analysis, life, most));
        chapter.extend(shared(life, most));
        chapter.extend(on_gpus(analysis, process));
        chapter.extend(children(life, most));
        chapter
    },
    ..Section::EMPTY
};

impl OneProcess {
    pub(super) fn find<S: RowSource>(source: &S, analysis: &Analysis) -> Result<Self, S::Error> {
        let life = analysis.process;
        let life = life.map(|place| life::read(source, analysis, place));
        Ok(Self {
            process: life.transpose()?,
        })
    }
}

fn head(analysis: &Analysis, life: &Life, process: &Process, view: &View<'_>) -> Chapter {
    let mut section = Chapter::new(format!("Process {}", analysis.with_role(&life.who)));
    let begin = analysis.clock.when(process.start);
    let end = match process.end {
        Some(end) => format!(
            "ended at {}: {}",
            analysis.clock.when(end),
            process.ended_in_words()
        ),
        None => "still running at the end".to_owned(),
    };
    let parent = process.parent.map(|place| &analysis.processes[place]);
    let parent = parent.map_or_else(String::new, |parent| {
        format!(", forked by {}", crate::Who::from(parent).in_words())
    });
    section.say(format!("Started at {begin}{parent}; {end}."));
    if let Some(cmdline) = &process.cmdline {
        let cmdline = visible(cmdline);
        section.say(format!(
            "Command: {}",
            shorten(&cmdline, view.most(COMMAND_MAX))
        ));
    }
    section.say(format!(
        "Peak RSS {}{}{}.",
        bytes_or_unknown(process.peak.rss_bytes),
        match process.inherited_rss_bytes {
            Some(inherited) if inherited.0 > 0 =>
                format!(", of which fork gave it {}", bytes(inherited)),
            _ => String::new(),
        },
        process
            .cgroup
            .as_deref()
            .map_or_else(String::new, |cgroup| {
                format!("; {}", analysis.cgroup_in_words(cgroup))
            })
    ));
    TableOf::of(&life.course)
        .figures("at_s", 0, |point| point.at)
        .words(("is_peak", ""), 0, |point| match point.is_peak {
            true => "peak".to_owned(),
            false => String::new(),
        })
        .held("rss_bytes", 0, |point| point.held.rss())
        .kinds(("", ""), 1, |point, kind| Cell::Held(point.held.get(kind)))
        .add_to(&mut section);
    section
}

/// Who laid out its memory: why it came, and as it was at its peak and at the instant that was asked
/// for.
fn inside(analysis: &Analysis, life: &Life, most: usize) -> Vec<Chapter> {
    let mut chapter = Vec::new();
    let mut reported_of: Vec<Instant> = Vec::new();
    let verdicts = analysis.layouts.iter();
    if let Some(verdict) = verdicts
        .into_iter()
        .find(|layout| layout.process == life.process)
    {
        let at = analysis.clock.when(verdict.at);
        let mut section = Chapter::new(format!("Inside, as read at {at}"));
        section.strong(layout::sentence(analysis, verdict));
        section.quiet(layout::age(analysis, verdict));
        section.table(layout::table(&verdict.parts, most));
        chapter.push(section);
        reported_of.push(verdict.at);
    }
    for found in &life.layouts {
        if reported_of.contains(&found.at) {
            continue;
        }
        let which = if found.is_asked { "--at" } else { "its peak" };
        let at = analysis.clock.when(found.at);
        let mut section = Chapter::new(format!("Inside, as read nearest to {which}, at {at}"));
        section.table(layout::table(&found.parts, most));
        chapter.push(section);
        reported_of.push(found.at);
    }
    chapter
}

fn mappings(analysis: &Analysis, life: &Life, most: usize) -> Option<Chapter> {
    let at = analysis.clock.when(life.mappings_at?);
    let mut section = Chapter::new(format!("Largest mappings, as read at {at}"));
    let mappings: Vec<&MappingLine> = life.mappings.iter().take(most).collect();
    section.table(of_mappings(&mappings));
    section.rest(
        life.mappings.len(),
        most,
        words::count,
        " more: see `--format csv`.",
    );
    Some(section)
}

fn of_mappings(mappings: &[&MappingLine]) -> Table {
    TableOf::of(mappings.iter().copied())
        .figures("rss_bytes", 0, |line| line.rss_bytes)
        .figures("pss_bytes", 1, |line| line.pss_bytes)
        .figures("swap_bytes", 3, |line| line.swap_bytes)
        .figures("size_bytes", 2, |line| line.size_bytes)
        .figures(("mapping_count", "COUNT"), 4, |line| {
            words::count(line.mapping_count)
        })
        .words("kind", 0, |line| {
            line.kind.map_or(words::UNKNOWN, Label::shown).to_owned()
        })
        .flexible("path", |line| {
            let path = line.path.as_deref().map(|path| visible(path).into_owned());
            let is_file = line.kind == Some(MappingKind::File);
            path.unwrap_or_else(|| if is_file { "small files" } else { "" }.to_owned())
        })
        .done()
}

/// What its own phases added to it.
fn phases(analysis: &Analysis, life: &Life, most: usize) -> Option<Chapter> {
    let lines = analysis.phases.iter().flat_map(|phases| &phases.lines);
    let own = lines.filter_map(|line| match line {
        PhaseLine::One(phase) if phase.who.upid == life.who.upid => Some(phase.as_ref()),
        _ => None,
    });
    let own: Vec<&Phase> = own.collect();
    if own.is_empty() {
        return None;
    }
    let mut section = Chapter::new("Its phases, and what it gained in each");
    TableOf::of(own.iter().take(most).copied())
        .figures("at_s", 0, |phase| phase.begin.unwrap_or(phase.end))
        .figures("took_s", 1, |phase| Cell::Took(phase.duration_ns))
        .change("gained_bytes", 0, |phase| {
            phase.own.and_then(|own| own.delta.get(Kind::Rss))
        })
        .flexible("phase", |phase| visible(&phase.name).into_owned())
        .add_to(&mut section);
    section.rest(own.len(), most, words::count, " more: see `--phases`.");
    Some(section)
}

fn shared(life: &Life, most: usize) -> Option<Chapter> {
    if life.shared.is_empty() {
        return None;
    }
    let mut section = Chapter::new("Shared memory that it maps");
    TableOf::of(life.shared.iter().take(most))
        .figures("rss_bytes", 0, |object| object.rss_bytes)
        .figures(("other_count", "OTHERS"), 1, |object| {
            words::count(object.other_count)
        })
        .words(("others", "ALSO MAPPED BY"), 1, |object| {
            named(
                object.others.iter().map(|who| who.in_words()),
                object.other_count,
            )
        })
        .flexible("path", |object| {
            object
                .path
                .as_deref()
                .map(|path| visible(path).into_owned())
                .unwrap_or_default()
        })
        .add_to(&mut section);
    section.rest(life.shared.len(), most, words::objects, " more.");
    Some(section)
}

/// The first names, and how many more there are.
fn named(names: impl Iterator<Item = String>, all: usize) -> String {
    let names: Vec<String> = names.take(NAMED_MAX).collect();
    match all.saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {} more", names.join(", "), words::count(more)),
    }
}

fn on_gpus(analysis: &Analysis, process: &Process) -> Option<Chapter> {
    let gpus = analysis.gpus.as_ref()?;
    let of_it = gpus.processes.iter();
    let found = of_it
        .into_iter()
        .find(|one| one.holder.who.upid == Some(process.upid))?;
    let mut section = Chapter::new(format!(
        "On GPUs: {}{} at its highest",
        if found.peak_is_lower_bound {
            "at least "
        } else {
            ""
        },
        bytes_or_unknown(found.peak_bytes)
    ));
    let devices: Vec<&str> = found.devices.iter().map(|device| &**device).collect();
    section.say(format!("Devices: {}.", devices.join(", ")));
    Some(section)
}

fn children(life: &Life, most: usize) -> Option<Chapter> {
    if life.children.is_empty() {
        return None;
    }
    let each = life.children.iter().map(|child| child.inherited_rss_bytes);
    let together = match each.clone().sum() {
        Some(all) => bytes(all),
        None => words::bytes_at_least(Some(each.flatten().sum())),
    };
    let mut section = Chapter::new(format!(
        "Forked {}, which inherited {together} of RSS together",
        words::processes(life.children.len()),
    ));
    TableOf::of(life.children.iter().take(most))
        .who(|child| child.who.cells())
        .figures("inherited_bytes", 0, |child| child.inherited_rss_bytes)
        .figures("peak_rss_bytes", 0, |child| child.peak_rss_bytes)
        .add_to(&mut section);
    section.rest(life.children.len(), most, words::processes, " more.");
    Some(section)
}
