//! What GPUs reported of themselves, in the order of time: where it changed. Of more than there is room
//! for, the extremes stay.

use memtrace_model::{BootNs, Bytes, DurationNs, Order};
use memtrace_timeline::Thinned;

/// The functions of a device, where it is thinned.
const USED: usize = 0;
const RESERVED: usize = 1;

/// What a device reported of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) at: BootNs,
    pub(super) device: usize,
    pub(super) used: Option<Bytes>,
    pub(super) reserved: Option<Bytes>,
}

/// Readings of all devices.
#[derive(Debug)]
pub(super) struct Readings {
    /// All that were news so far, unless there are too many.
    list: Vec<Reading>,
    /// The last of each device.
    last: Vec<Option<Reading>>,
    room: usize,
    span: DurationNs,
    /// By device, once there were too many.
    thinned: Vec<Thinned>,
}

impl Readings {
    /// Of so many devices in a recording that is about so long; about `room` of them are kept.
    pub(super) fn new(device_count: usize, room: usize, span: DurationNs) -> Self {
        Self {
            list: Vec::new(),
            last: vec![None; device_count],
            room,
            span,
            thinned: Vec::new(),
        }
    }

    /// Takes the next.
    pub(super) fn take(&mut self, reading: Reading) {
        let last = self.last[reading.device].replace(reading);
        let reported = |reading: Reading| (reading.used, reading.reserved);
        if last.map(reported) == Some(reported(reading)) {
            return;
        }
        if self.thinned.is_empty() && self.list.len() >= self.room {
            let count = self.last.len();
            let thinned = || Thinned::of_unknown(2, self.room / count, self.span, Vec::new());
            self.thinned = (0..count).map(|_| thinned()).collect();
            for reading in std::mem::take(&mut self.list) {
                self.thin(reading);
            }
        }
        match self.thinned.is_empty() {
            true => self.list.push(reading),
            false => self.thin(reading),
        }
    }

    fn thin(&mut self, reading: Reading) {
        let thinned = &mut self.thinned[reading.device];
        thinned.set(reading.at, USED, reading.used);
        thinned.set(reading.at, RESERVED, reading.reserved);
    }

    /// Those that are kept.
    pub(super) fn in_order(mut self) -> Vec<Reading> {
        for (device, thinned) in self.thinned.into_iter().enumerate() {
            let thin = thinned.finish();
            let [mut used, mut reserved] = [USED, RESERVED].map(|function| {
                let mut steps = thin.steps[function].iter().peekable();
                let mut now = None;
                move |place: u32| {
                    while let Some((_, bytes)) = steps.next_if(|(at, _)| *at <= place) {
                        now = *bytes;
                    }
                    now
                }
            });
            let instants = thin.instants.iter().zip(0_u32..);
            self.list.extend(instants.map(|(&at, place)| Reading {
                at,
                device,
                used: used(place),
                reserved: reserved(place),
            }));
        }
        self.list.order_by_key(|reading| reading.at);
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn kept(room: usize) -> Vec<Reading> {
        let mut readings = Readings::new(2, room, DurationNs(20_000 * S));
        for second in 0..20_000 {
            for device in 0..2 {
                let spike = if second == 7_777 { 1 << 40 } else { 0 };
                let used = (second % 100) * 1_000_000 + spike + device as i64;
                readings.take(Reading {
                    at: BootNs(second * S),
                    device,
                    used: Some(Bytes(used)).filter(|_| second != 9_999),
                    reserved: Some(Bytes(5)),
                });
            }
        }
        readings.in_order()
    }

    #[test]
    fn where_there_is_room_all_are_kept_and_else_the_extremes_over_all_of_the_time() {
        let (all, few) = (kept(100_000), kept(2_000));
        assert_eq!(all.len(), 40_000);
        assert!(few.len() < 8_000, "{}", few.len());
        for readings in [&all, &few] {
            assert!(readings.is_sorted_by_key(|reading| reading.at));
            for device in 0..2 {
                let own = || readings.iter().filter(|reading| reading.device == device);
                let highest = own().max_by_key(|reading| reading.used).map(|high| high.at);
                assert_eq!(highest, Some(BootNs(7_777 * S)));
                assert_eq!(
                    own().next_back().map(|last| last.at),
                    Some(BootNs(19_999 * S))
                );
                assert!(own().any(|reading| reading.used.is_none()));
            }
        }
        assert!(few.iter().all(|reading| all.contains(reading)));
    }
}
