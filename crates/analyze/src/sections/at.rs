//! Who held the memory at the instant that was asked for, with its ledger and its GPUs.

use super::{gpus, held_by_line, ledger, peak};
use crate::{Composition, Report};
use memtrace_model::Kind;
use memtrace_report::words::bytes_or_unknown;
use memtrace_report::{Chapter, Mode, Section, one_part, words};

pub(super) const SECTION: Section<Report> = Section {
    name: "at",
    doc: "who held the memory at the instant that --at gives",
    keys: &["at"],
    modes: &[Mode::At],
    tables: Some(|analysis, top| one_part(peak::holders(analysis, analysis.at.as_ref(), top))),
    tell: |analysis, view| {
        let Some(at) = &analysis.at else {
            return Vec::new();
        };
        let highest = analysis.peak.as_ref().and_then(Composition::bytes);
        let figure = match &at.held {
            Some(held) => held.all().in_words(),
            None => format!("{} of RSS", bytes_or_unknown(at.totals[Kind::Rss].bytes())),
        };
        let mut section = Chapter::new(format!(
            "At {}: {figure}, {} of the peak",
            analysis.clock.when(at.at),
            words::share(at.bytes(), highest),
        ));
        peak::table(&mut section, analysis, at, view.top);
        peak::notes(&mut section, analysis, at, view.most(peak::MAX_CGROUPS));
        let mut reported = vec![section];
        reported.extend(ledger::ledger(
            analysis,
            at,
            view.top.min(view.most(ledger::MAX_LINES)),
        ));
        reported.extend(gpus::at(analysis, at, view.top));
        reported.extend(held_by_line::chapter(analysis, view.top));
        reported.push(peak::in_short(analysis));
        reported
    },
    ..Section::EMPTY
};
