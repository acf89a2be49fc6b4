//! Conditions of a load experiment: memory at the peak of each against the tokens in flight, what each
//! took more than the one before it on each axis, and what was held when requests failed.

use crate::{Axis, Condition, Conditions, FailedRequest, Increment, Report};
use memtrace_model::Label;
use memtrace_report::{
    Cell, Chapter, MORE_IN_JSON, Section, Table, TableOf, one_part, visible, words,
};

pub(super) const SECTION: Section<Report> = Section {
    name: "conditions",
    doc: "conditions of a load experiment: memory of each at its peak",
    keys: &["conditions"],
    tables: Some(|analysis, top| {
        let list = analysis.conditions.as_ref().map(|found| &*found.list);
        let list = list.unwrap_or_default();
        one_part(table(&list[..list.len().min(top)]))
    }),
    tell: |analysis, view| {
        let Some(conditions) = &analysis.conditions else {
            return Vec::new();
        };
        let mut section = Chapter::new(title(conditions));
        let list = &conditions.list;
        section.table(table(&list[..list.len().min(view.top)]));
        section.rest(list.len(), view.top, words::count, MORE_IN_JSON);
        section.explain(
            "HELD is the most that the host held during the condition, every page once. The \
             columns BY … show how much more that is than under the condition that differs only \
             in that value and has the next lower one. TOKENS is the highest number in flight: \
             whole prompts, and the output received by then.",
        );
        for (what, count) in [
            (
                "Requests outside all marked conditions",
                conditions.unplaced_request_count,
            ),
            (
                "Requests that are not analysed",
                conditions.left_out_request_count,
            ),
        ] {
            if count > 0 {
                section.alert(format!("{what}: {}.", words::count(count)));
            }
        }
        let mut reported = vec![section];
        let failed = &conditions.failed_requests;
        if !failed.is_empty() {
            let mut section =
                Chapter::alarming("Failed requests, and what was held in the second before");
            section.table(failures(&failed[..failed.len().min(view.top)]));
            section.rest(failed.len(), view.top, words::count, MORE_IN_JSON);
            reported.push(section);
        }
        reported
    },
    ..Section::EMPTY
};

fn title(conditions: &Conditions) -> String {
    let list = &conditions.list;
    let requests: usize = list.iter().map(|one| one.request_count).sum();
    let failed: usize = list.iter().map(|one| one.failed_count).sum();
    let of = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", words::count(number)),
    };
    format!(
        "Load: {}, {}, {} failed",
        of(list.len(), "condition"),
        of(requests, "request"),
        words::count(failed)
    )
}

fn table(list: &[Condition]) -> Table {
    let has_gpu = list.iter().any(|one| one.gpu_peak_bytes.is_some());
    let mut table = TableOf::of(list)
        .flexible("condition", |one| visible(&one.name).into_owned())
        .data("load_run", |one| one.load_run.clone())
        .data("number", |one| one.number.to_string())
        .known("input_tokens", |one| one.input_tokens)
        .known("output_tokens", |one| one.output_tokens)
        .known("concurrency", |one| one.concurrency)
        .known("request_rate", |one| one.request_rate)
        .known("prefix_reuse", |one| one.prefix_reuse)
        .data("begin_s", |one| one.begin)
        .data("end_s", |one| one.end)
        .figures("requests", 3, |one| count(one.request_count))
        .figures("failed", 0, |one| count(one.failed_count))
        .figures(("tokens_in_flight_peak", "TOKENS"), 0, |one| {
            let shown = one.tokens_in_flight_peak.map(words::count);
            Cell::known(one.tokens_in_flight_peak)
                .shown_as(shown.unwrap_or_else(|| words::UNKNOWN.to_owned()))
        })
        .data("held_begin_bytes", |one| one.held_begin_bytes)
        .figures(("held_peak_bytes", "HELD"), 0, |one| one.held_peak_bytes)
        .words(("grew_most", "GREW MOST"), 2, |one| {
            let grew = one.grew_most.as_ref();
            Cell::from(
                grew.map(|grew| visible(&grew.role).into_owned())
                    .unwrap_or_default(),
            )
        })
        .figures(("grew_most_rise_bytes", "BY"), 2, |one| {
            let grew = one.grew_most.as_ref();
            grew.map(|grew| Cell::Change(Some(grew.rise_bytes)))
        })
        .data("gpu_begin_bytes", |one| one.gpu_begin_bytes)
        .figures(("gpu_peak_bytes", "GPU"), 0, |one| one.gpu_peak_bytes)
        .only_if(has_gpu);
    for axis in Axis::ALL.iter().copied() {
        let name = axis.as_str();
        let held = format!("held_by_{name}_bytes");
        let title = format!("BY {}", axis.shown());
        let cell = |one: &&Condition, of: fn(&Increment) -> Cell| {
            increment(one, axis).map_or(Cell::Absent, of)
        };
        table = table
            .figures((&*held, &*title), 1, |one| {
                cell(one, |more| Cell::Change(more.held_more_bytes))
            })
            .data(&format!("gpu_by_{name}_bytes"), |one| {
                cell(one, |more| Cell::Change(more.gpu_more_bytes))
            });
    }
    table.done()
}

fn increment(condition: &Condition, axis: Axis) -> Option<&Increment> {
    condition.increments.iter().find(|more| more.axis == axis)
}

fn count(number: usize) -> Cell {
    Cell::from(number.to_string()).shown_as(words::count(number))
}

fn failures(list: &[FailedRequest]) -> Table {
    let has_gpu = list.iter().any(|one| one.gpu_then_bytes.is_some());
    TableOf::of(list)
        .figures("at_s", 0, |one| one.at)
        .words("condition", 1, |one| visible(&one.condition).into_owned())
        .figures("request", 0, |one| one.request.to_string())
        .words("outcome", 0, |one| {
            Cell::from(one.outcome.map(|outcome| outcome.shown().to_owned()))
        })
        .figures(("held_bytes", "HELD"), 0, |one| one.held_then_bytes)
        .figures(("gpu_bytes", "GPU"), 0, |one| one.gpu_then_bytes)
        .only_if(has_gpu)
        .figures(("tokens_in_flight", "TOKENS"), 2, |one| {
            words::count(one.tokens_in_flight)
        })
        .flexible("error", |one| {
            visible(one.error.as_deref().unwrap_or_default()).into_owned()
        })
        .done()
}
