//! Segments closed by time: what a node that is lost leaves where only its parts were carried.

use super::*;
use crate::batch::Projection;
use crate::resequence::WINDOW_NS;
use crate::sources::Sources;
use crate::{Recording, Tail, TailState, recover};
use memtrace_model::tables::{DiagRow, Severity};
use memtrace_model::{PlaceName, Row, RunPlace};
use std::time::{Duration, Instant};

const MINUTE: DurationNs = DurationNs(60_000_000_000);
const SECOND_MS: i64 = 1_000;

fn diag(boot_ms: i64) -> DiagRow {
    DiagRow {
        boot_ns: BootNs(boot_ms * 1_000_000),
        ts: WallNs(EPOCH_NS + boot_ms * 1_000_000),
        severity: Some(Severity::Info),
        kind: None,
        subject: "s".to_owned(),
        count: None,
        detail: String::new(),
    }
}

/// A recording under a root.
fn placed() -> RunInfo {
    let name = |text: &str| text.parse::<PlaceName>().unwrap();
    let place = RunPlace {
        run: name("1"),
        host: name("h"),
        rec: name("r"),
        rotate_ns: MINUTE,
        expected_hosts: None,
    };
    RunInfo {
        place: Some(place),
        ..info()
    }
}

/// A recorder whose clock is the test's: four rows of `mem` a second, each fourth 2 s late, a row of
/// `diag` at given seconds, and of `process` each 10 s.
struct Recorder {
    writer: Writer,
    diags: Vec<i64>,
    mem: Vec<MemRow>,
}

impl Recorder {
    fn start(dir: &Path, diags: &[i64]) -> Self {
        Self {
            writer: Writer::create(dir, &placed()).unwrap().rotating(MINUTE),
            diags: diags.to_vec(),
            mem: Vec::new(),
        }
    }

    fn second(&mut self, second: i64) {
        let now = second * SECOND_MS;
        let times = [now - 750, now - 500, now - 250, now - 2_000];
        let rows: Vec<MemRow> = times.iter().map(|&time| mem(time.max(0), 7)).collect();
        append_all(&mut self.writer, &rows);
        self.mem.extend(rows);
        if self.diags.contains(&second) {
            append_all(&mut self.writer, &[diag(now - 100)]);
        }
        if second % 10 == 0 {
            append_all(&mut self.writer, &[process(second, "a")]);
        }
        self.writer.flush().unwrap();
        self.writer.rotate(BootNs(now * 1_000_000)).unwrap();
    }
}

fn times<R>(rows: &[R], time: impl Fn(&R) -> BootNs) -> Vec<i64> {
    rows.iter().map(|row| time(row).0).collect()
}

#[test]
fn of_a_lost_node_all_but_the_last_minute_and_what_is_held_back_is_in_parts() {
    // The row at 60 s comes when a segment is closed, and none comes after it for long.
    let diags = [1, 60, 200];
    for lost_at in [59, 61, 64, 100, 121, 125, 190, 262, 300] {
        let (_parent, dir) = new_dir();
        let mut recorder = Recorder::start(&dir, &diags);
        (1..=lost_at).for_each(|second| recorder.second(second));
        let mut all = times(&recorder.mem, |row| row.boot_ns);
        all.sort_unstable();
        kill(recorder.writer);
        let whole = Recording::open(&dir).unwrap();
        assert!(!whole.is_open(), "{lost_at}: it was left behind");
        let read = times(&whole.rows::<MemRow>().unwrap(), |row| row.boot_ns);
        assert_eq!(
            read, all,
            "{lost_at}: with the spool nothing is missing, nor there twice"
        );
        let seen = diags.iter().filter(|&&second| second <= lost_at).count();
        assert_eq!(whole.rows::<DiagRow>().unwrap().len(), seen, "{lost_at}");

        std::fs::remove_dir_all(dir.join("spool")).unwrap();
        let parts = Recording::open(&dir).unwrap();
        assert!(parts.is_open(), "{lost_at}");
        // A second, for the looks at the clock are so far apart.
        let certain = lost_at * 1_000_000_000 - MINUTE.0 - WINDOW_NS - 1_000_000_000;
        let read = times(&parts.rows::<MemRow>().unwrap(), |row| row.boot_ns);
        let expected: Vec<i64> = all
            .iter()
            .copied()
            .filter(|&time| time <= certain)
            .collect();
        assert_eq!(read.get(..expected.len()), Some(&expected[..]), "{lost_at}");
        assert!(
            all.starts_with(&read),
            "{lost_at}: no later row without an earlier one"
        );
        let read = times(&parts.rows::<DiagRow>().unwrap(), |row| row.boot_ns);
        let expected: Vec<i64> = diags
            .iter()
            .map(|second| (second * SECOND_MS - 100) * 1_000_000)
            .filter(|&time| time <= certain)
            .collect();
        assert!(
            read.starts_with(&expected),
            "{lost_at}: {read:?} of {expected:?}"
        );
        let processes = parts.rows::<ProcessRow>().unwrap().len() as i64;
        assert!(processes >= (lost_at - 61) / 10, "{lost_at}: {processes}");
        assert_eq!(parts.problems(), []);
    }
}

#[test]
fn a_table_to_which_nothing_comes_has_no_files_and_one_with_a_row_has_one_part() {
    let (_parent, dir) = new_dir();
    let mut recorder = Recorder::start(&dir, &[30]);
    (1..=400).for_each(|second| recorder.second(second));
    kill(recorder.writer);
    let files = files_below(&dir);
    let of = |table: &str| files.iter().filter(|name| name.starts_with(table)).count();
    assert_eq!(of("diag/"), 1);
    assert_eq!(of("oom/"), 0);
    assert_eq!(of("mem/"), 6, "{files:?}");
    assert_eq!(of("spool/diag"), 0, "{files:?}");
}

#[test]
fn what_was_held_back_at_a_size_goes_out_although_nothing_comes_after_it() {
    let (_parent, dir) = new_dir();
    let writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    let mut writer = writer.rotating(MINUTE);
    // Of 60 rows in one second 50 make a segment.
    let rows: Vec<MemRow> = (0..60).map(|i| mem(i, 1)).collect();
    append_all(&mut writer, &rows[..50]);
    for second in 1..=150 {
        writer.flush().unwrap();
        writer.rotate(BootNs(second * 1_000_000_000)).unwrap();
        if second == 1 {
            append_all(&mut writer, &rows[50..]);
        }
    }
    kill(writer);
    std::fs::remove_dir_all(dir.join("spool")).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), rows);
}

#[test]
fn whoever_follows_a_recording_meets_every_row_once_while_its_segments_come_and_go() {
    let (_parent, dir) = new_dir();
    let mut recorder = Recorder::start(&dir, &[1, 60, 122, 200]);
    recorder.second(1);
    let mut tail = Tail::open(&dir).unwrap();
    let (mut mem_times, mut diags) = (Vec::new(), 0);
    for second in 2..=300 {
        recorder.second(second);
        assert_eq!(tail.look().unwrap(), TailState::Live, "{second}");
        tail.read::<MemRow>(&[], |row| mem_times.push(row.boot_ns.0))
            .unwrap();
        tail.read::<DiagRow>(&[], |_| diags += 1).unwrap();
    }
    mem_times.sort_unstable();
    let mut all = times(&recorder.mem, |row| row.boot_ns);
    all.sort_unstable();
    assert_eq!(mem_times, all);
    assert_eq!(diags, 4);
}

#[test]
fn run_json_is_written_anew_under_its_lock_and_the_recording_closes_in_order() {
    let (_parent, dir) = new_dir();
    let mut recorder = Recorder::start(&dir, &[1]);
    (1..=70).for_each(|second| recorder.second(second));
    let mut newer = placed();
    newer.clocks.push(ClockReading {
        boot_ns: BootNs(MINUTE.0),
        monotonic_ns: MINUTE.0,
        wall_ns: WallNs(EPOCH_NS + MINUTE.0),
    });
    recorder.writer.update(newer.clone()).unwrap();
    let live = Recording::open(&dir).unwrap();
    assert!(live.is_live() && !live.is_open());
    assert_eq!(live.info().clocks.len(), 2);
    assert!(!live.is_closed());
    recorder.writer.finish(newer).unwrap();
    let closed = Recording::open(&dir).unwrap();
    assert!(closed.is_closed() && !closed.is_open());
    assert_eq!(closed.rows::<MemRow>().unwrap().len(), recorder.mem.len());
    assert_eq!(closed.rows::<DiagRow>().unwrap().len(), 1);
    assert!(!dir.join("spool").exists());
    let of_keys = files_below(&dir.join(ProcessRow::TABLE.name));
    assert_eq!(
        of_keys.len(),
        1,
        "those of a table with a key have become one"
    );
    let of_time = files_below(&dir.join(MemRow::TABLE.name));
    assert_eq!(of_time.len(), 1, "small parts have become one");
}

/// A recording with a row of `process` in each of so many parts.
fn of_processes(dir: &Path, count: i64) -> Writer {
    let mut writer = Writer::create(dir, &placed()).unwrap().rotating(MINUTE);
    for minute in 1..=count {
        append_all(&mut writer, &[process(minute, "a")]);
        writer.flush().unwrap();
        writer.rotate(BootNs(minute * 2 * MINUTE.0)).unwrap();
    }
    writer
}

#[test]
fn of_a_long_recording_parts_are_few_while_it_is_written_and_after() {
    let (_parent, dir) = new_dir();
    let mut writer = of_processes(&dir, 1);
    let mut rows = Vec::new();
    for minute in 2..=300 {
        append_all(&mut writer, &[process(minute, "a")]);
        rows.extend((0..60).map(|second| mem((minute * 60 + second) * SECOND_MS, 7)));
        append_all(&mut writer, rows.get(rows.len() - 60..).unwrap());
        writer.flush().unwrap();
        writer.rotate(BootNs(minute * 2 * MINUTE.0)).unwrap();
    }
    kill(writer);
    let count = |table: &str| files_below(&dir.join(table)).len();
    for table in [ProcessRow::TABLE, MemRow::TABLE] {
        assert!(
            count(table.name) <= 21,
            "{}: {}",
            table.name,
            count(table.name)
        );
    }
    let check = || {
        let recording = Recording::open(&dir).unwrap();
        assert_eq!(recording.rows::<ProcessRow>().unwrap().len(), 300);
        assert_eq!(recording.rows::<MemRow>().unwrap(), rows);
        assert_eq!(recording.problems(), []);
    };
    check();
    recover(&dir).unwrap();
    check();
    for table in [ProcessRow::TABLE, MemRow::TABLE] {
        assert_eq!(count(table.name), 1, "{}", table.name);
    }
}

#[test]
fn whoever_has_found_the_parts_of_a_table_reads_all_of_them_when_they_have_become_one() {
    let (_parent, dir) = new_dir();
    let writer = of_processes(&dir, 20);
    let begin = Instant::now();
    // The folder of the table may not be there yet.
    let folder = format!("{}/", ProcessRow::TABLE.name);
    let is_part = |name: &&String| name.starts_with(&folder) && name.ends_with(".parquet");
    let parts = || files_below(&dir).iter().filter(is_part).count();
    while parts() < 5 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "parts are made beside"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let live = Recording::open(&dir).unwrap();
    let sources = Sources::open_lasting(live.reading(), ProcessRow::TABLE).unwrap();
    assert!(sources.parts.len() >= 5);
    writer.finish(placed()).unwrap();
    let projection = Projection::all(ProcessRow::TABLE);
    let batches = sources.rows(&projection);
    let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 20);
    assert_eq!(live.problems(), []);
}
