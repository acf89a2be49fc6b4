//! How old the figures are, in words.

use super::Recorder;
use memtrace_model::DurationNs;
use memtrace_report::words;

/// How old the newest row is, and whether more can be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// Since the newest row; `None` before there is one.
    pub age: Option<DurationNs>,
    /// What became of the recorder.
    pub recorder: Recorder,
}

/// Later than this nothing may be heard of a recorder that runs.
const SILENCE: DurationNs = DurationNs(5_000_000_000);

impl Age {
    /// `data 0.4 s old`, `recorder gone, data 12 s old`, `recording closed`.
    pub fn in_words(self) -> String {
        let old = self.age.map(|age| {
            let seconds = age.as_secs_f64().max(0.0);
            match seconds {
                s if s < 99.95 => format!("data {s:.1} s old"),
                _ => format!("data {} old", words::duration(age)),
            }
        });
        match (self.recorder, old) {
            (Recorder::Closed, _) => "recording closed".to_owned(),
            (Recorder::Gone, Some(old)) => format!("recorder gone, {old}"),
            (Recorder::Gone, None) => "recorder gone".to_owned(),
            (Recorder::Recording, Some(old)) => old,
            (Recorder::Recording, None) => "waiting for data".to_owned(),
        }
    }

    /// Whether the figures are not those of now.
    pub fn is_stale(self) -> bool {
        self.recorder == Recorder::Gone || self.age.is_some_and(|age| age > SILENCE)
    }
}
