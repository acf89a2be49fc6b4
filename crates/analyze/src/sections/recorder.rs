//! What the recording cost, and on which machine it was made.

use crate::Report;
use memtrace_report::{Chapter, Mode, Section, Tone, words};

pub(super) const SECTION: Section<Report> = Section {
    name: "recorder",
    doc: "how it was recorded, and what that cost",
    keys: &["cost"],
    modes: Mode::ALL,
    tell: |analysis, _| {
        let info = &analysis.info;
        let cost = match &analysis.cost {
            Some(cost) => {
                let cpu = match cost.cpu_share {
                    Some(share) => format!("{:.1}% of one CPU", share * 100.0),
                    None => format!("{} of CPU time", words::duration(cost.cpu_ns)),
                };
                let rss = words::bytes_or_unknown(cost.peak_rss_bytes);
                format!("the recorder took {cpu}, {rss}")
            }
            None => "cost of recording unknown".to_owned(),
        };
        let interval = words::interval(info.interval_ns);
        let mut section = Chapter::new(format!(
            "Recorded by {} every {interval}; {cost}",
            info.backend
        ));
        section.tone = Tone::Plain;
        let memory = info.mem_total_bytes.map(words::bytes);
        let memory = memory.map_or_else(String::new, |memory| format!(", {memory}"));
        let kernel = &info.kernel;
        section.quiet(format!(
            "{}: {} CPUs{memory}, kernel {kernel}",
            info.hostname, info.cpu_count
        ));
        if let Some(downsampled) = info.downsampled {
            let period = words::interval(downsampled.period_ns);
            section.quiet(format!(
                "Downsampled to {period}: peaks, phases, marks and the minutes around kills and crashes \
                 are exact. Between the instants that were kept, the earlier value is shown; means and \
                 growth are computed from what stayed, and whether something grows can differ"
            ));
        }
        vec![section]
    },
    ..Section::EMPTY
};
