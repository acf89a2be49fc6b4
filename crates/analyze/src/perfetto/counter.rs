//! An amount of memory as a counter. Perfetto draws the last value on until the next one, so what is
//! unknown has no value, and what was never more than nothing has no track.

use memtrace_model::{BootNs, Bytes, Kind, Label, PerKind};
use memtrace_perfetto::{Trace, Track};

/// A counter, from its first value on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter(Option<(Track, Bytes)>);

impl Counter {
    /// So much is held from a time on.
    pub(super) fn note(
        &mut self,
        trace: &mut Trace<'_>,
        at: BootNs,
        bytes: Option<Bytes>,
        declare: impl FnOnce(&mut Trace<'_>) -> Track,
    ) {
        let Some(bytes) = bytes else { return };
        let track = match self.0 {
            Some((_, last)) if last == bytes => return,
            Some((track, _)) => track,
            None if bytes == Bytes(0) => return,
            None => declare(trace),
        };
        self.0 = Some((track, bytes));
        trace.value(at, track, bytes);
    }

    /// Nothing is held from a time on.
    pub(super) fn end(&mut self, trace: &mut Trace<'_>, at: BootNs) {
        if let Some((track, _)) = self.0 {
            self.note(trace, at, Some(Bytes(0)), |_| track);
        }
    }
}

/// A counter for each kind of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KindCounters(PerKind<Counter>);

impl KindCounters {
    /// So much is held of each kind from a time on.
    pub(super) fn note(
        &mut self,
        trace: &mut Trace<'_>,
        at: BootNs,
        held: impl Fn(Kind) -> Option<Bytes>,
        mut declare: impl FnMut(&mut Trace<'_>, Kind) -> Track,
    ) {
        for &kind in Kind::ALL {
            self.0[kind].note(trace, at, held(kind), |trace| declare(trace, kind));
        }
    }
}
