//! The golden recordings, analysed.

use crate::{Analysis, HostPart, Options, Place, Report, analyze, reduce};

pub use memtrace_golden::*;

/// What a report has of a golden recording.
pub trait Reported: Sized {
    fn reported_with(self, options: Options) -> Report;

    fn analyzed(self, at: Option<&str>) -> Analysis {
        self.analyzed_with(at, None)
    }

    /// The findings, with an eye on a phase.
    fn analyzed_with(self, at: Option<&str>, phase: Option<&str>) -> Analysis {
        self.reported(at, phase).analysis
    }

    /// The report, with an eye on a phase.
    fn reported(self, at: Option<&str>, phase: Option<&str>) -> Report {
        let at = at.map(|at| at.parse().expect("a moment"));
        self.reported_with(Options {
            at,
            phase: phase.map(str::to_owned),
            ..Options::default()
        })
    }

    /// The report, with what it is drawn from.
    fn drawn(self) -> Report {
        self.reported_with(Options {
            has_curves: true,
            ..Options::default()
        })
    }
}

impl Reported for Script {
    fn reported_with(self, options: Options) -> Report {
        let (info, rows, problems) = self.recorded();
        let options = Options {
            path: Some("memtrace-gpu-node-7-20260301T120144Z".to_owned()),
            ..options
        };
        let mut report = analyze(&info, &rows, options).expect("a run that can be analysed");
        report.analysis.problems = problems;
        report
    }
}

/// What a recording adds to the report of its job.
pub fn reduced(member: Member) -> HostPart {
    let place = Place {
        run: "4711".to_owned(),
        host: member.host.to_owned(),
        rec: member.rec.to_owned(),
    };
    let (info, rows, last_boot_ns) = member.recorded();
    let options = Options {
        last_boot_ns,
        ..Options::default()
    };
    reduce(&info, &rows, options, place).expect("a run that can be analysed")
}
