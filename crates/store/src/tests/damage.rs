//! Damaged recordings: what changes an answer is reported, and what can't be read is kept.

use super::*;
use crate::batch::Projection;
use crate::framing::{Frame, frame_at};
use crate::gather::concat;
use crate::layout::segment_path;
use crate::sources::Sources;
use crate::{ProblemKind, Recording, StoreError, recover};
use arrow_array::RecordBatch;
use memtrace_model::tables::{DiagKind, DiagRow, Severity};
use memtrace_model::{Row, TABLES};
use std::os::unix::fs::FileExt;

/// How many bits are flipped in each kind of recording; `MEMTRACE_TEST_FLIPS` says another
/// number.
const FLIPS: u64 = 60;

/// Knuth's MMIX generator: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A recording with rows in several tables and segments.
fn fill(dir: &Path) -> Writer {
    let mut writer = Writer::create_with(dir, &info(), None, SMALL).unwrap();
    let mems: Vec<MemRow> = (0..420).map(|i| mem(i * 100, i % 7)).collect();
    append_all(&mut writer, &mems);
    let processes: Vec<ProcessRow> = (0..30).map(|i| process(i, &format!("p{i}"))).collect();
    append_all(&mut writer, &processes);
    let diag = DiagRow {
        ts: WallNs(EPOCH_NS),
        boot_ns: BootNs(5),
        severity: Some(Severity::Loss),
        kind: Some(DiagKind::LostEvents),
        subject: "ring".to_owned(),
        count: Some(3),
        detail: "as memtrace.footer_crc32 says \"checksum\": \"crc32:00000000\"".to_owned(),
    };
    append_all(&mut writer, &[diag]);
    writer
}

/// All that a recording says.
fn contents(recording: &Recording) -> Result<(RunInfo, Vec<RecordBatch>), StoreError> {
    let mut tables = Vec::new();
    for &table in TABLES {
        let projection = Projection::all(table);
        let sources = Sources::open(recording.reading(), table)?;
        let batches: Result<Vec<RecordBatch>, _> = sources.rows(&projection).collect();
        tables.push(concat(projection.schema(), &batches.unwrap()).unwrap());
    }
    Ok((recording.info().clone(), tables))
}

fn flips_change_no_answer_without_being_reported(dir: &Path, mut random: Random) {
    let whole = Recording::open(dir).unwrap();
    let truth = contents(&whole).unwrap();
    assert_eq!(whole.problems(), []);
    let files = files_below(dir);
    let flips = std::env::var("MEMTRACE_TEST_FLIPS").map_or(FLIPS, |count| count.parse().unwrap());
    let mut shown = 0;
    for flip in 0..flips {
        let name = &files[random.below(files.len() as u64) as usize];
        let path = dir.join(name);
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let length = file.metadata().unwrap().len();
        let (at, bit) = (random.below(length), random.below(8));
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
        if let Ok(recording) = Recording::open(dir) {
            let said = contents(&recording);
            let is_same = said.is_ok_and(|said| said == truth);
            let is_reported = !recording.problems().is_empty();
            assert!(
                is_same || is_reported,
                "flip {flip}: bit {bit} of byte {at} of {name}"
            );
            shown += u64::from(is_reported);
        } else {
            shown += 1;
        }
        file.write_all_at(&byte, at).unwrap();
    }
    // What is never read, as the names that Parquet repeats for other readers, may be wrong.
    assert!(
        shown * 10 > flips * 9,
        "{shown} of {flips} flips were reported"
    );
}

#[test]
fn a_flipped_bit_in_a_closed_recording_changes_no_answer_without_being_reported() {
    let (_parent, dir) = new_dir();
    fill(&dir).finish(info()).unwrap();
    flips_change_no_answer_without_being_reported(&dir, Random(1));
}

#[test]
fn a_flipped_bit_in_an_open_recording_changes_no_answer_without_being_reported() {
    let (_parent, dir) = new_dir();
    kill(fill(&dir));
    flips_change_no_answer_without_being_reported(&dir, Random(2));
}

/// Leaves a recording of five batches of two rows, and gives where they start.
fn five_batches(dir: &Path) -> Vec<u64> {
    let mut writer = Writer::create(dir, &info()).unwrap();
    for batch in 0..5 {
        append_all(&mut writer, &[mem(batch * 2, 1), mem(batch * 2 + 1, 1)]);
        writer.flush().unwrap();
    }
    kill(writer);
    let bytes = std::fs::read(dir.join(segment_path("mem", 1))).unwrap();
    let mut starts = Vec::new();
    let mut at = 0;
    while let Frame::Message(message) = frame_at(&&bytes[..], at, bytes.len() as u64).unwrap() {
        starts.push(at);
        at = message.body.end;
    }
    starts
}

fn times(rows: &[MemRow]) -> Vec<i64> {
    rows.iter().map(|row| row.boot_ns.0 / 1_000_000).collect()
}

#[test]
fn what_is_behind_a_damaged_frame_is_read_and_what_is_lost_is_kept_and_reported_for_ever() {
    for (frame, rest) in [
        (2, vec![0, 1, 4, 5, 6, 7, 8, 9]),
        (5, (0..8).collect()),
        // The schema: that of this version stands in for it.
        (0, (0..10).collect::<Vec<i64>>()),
    ] {
        let (_parent, dir) = new_dir();
        let start = five_batches(&dir)[frame];
        let path = dir.join(segment_path("mem", 1));
        let mut bytes = std::fs::read(&path).unwrap();
        // The length of the metadata: the frame seems to go on beyond the file.
        bytes[start as usize + 6] ^= 1;
        std::fs::write(&path, &bytes).unwrap();

        let recording = Recording::open(&dir).unwrap();
        assert_eq!(times(&recording.rows::<MemRow>().unwrap()), rest, "{frame}");
        assert_eq!(recording.problems().len(), 1, "{frame}");
        let report = recover(&dir).unwrap();
        assert_eq!(report.problems, recording.problems(), "{frame}");

        let kept = dir.join("damaged/mem-00001.arrows");
        assert_eq!(std::fs::read(kept).unwrap(), bytes, "{frame}");
        let recording = Recording::open(&dir).unwrap();
        assert_eq!(times(&recording.rows::<MemRow>().unwrap()), rest, "{frame}");
        let [problem] = &recording.problems()[..] else {
            panic!("{:?}", recording.problems());
        };
        assert_eq!(problem.kind, ProblemKind::PutAside, "{frame}");
    }
}

/// Takes the checksums off, as recordings of older versions are.
fn without_checksums(dir: &Path) {
    let path = dir.join("run.json");
    let mut run: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for key in ["checksum", "id"] {
        assert!(run.as_object_mut().unwrap().remove(key).is_some());
    }
    std::fs::write(&path, run.to_string()).unwrap();
}

#[test]
fn a_recording_without_checksums_is_read_and_can_be_closed() {
    let (_parent, dir) = new_dir();
    let rows = [mem(1, 1), mem(2, 1)];
    let schema = crate::schema::table_schema(MemRow::TABLE);
    kill(Writer::create(&dir, &info()).unwrap());
    without_checksums(&dir);
    // As arrow writes it.
    let mut buffer = crate::append::RowBuffer::new(MemRow::TABLE);
    for row in rows {
        buffer.push(&row.into());
    }
    let mut stream = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &schema).unwrap();
    stream.write(&buffer.take().unwrap()).unwrap();
    std::fs::write(
        dir.join(segment_path("mem", 1)),
        stream.into_inner().unwrap(),
    )
    .unwrap();

    for _ in 0..2 {
        let recording = Recording::open(&dir).unwrap();
        assert_eq!(recording.rows::<MemRow>().unwrap(), rows);
        let shown: Vec<ProblemKind> = recording
            .problems()
            .into_iter()
            .map(|one| one.kind)
            .collect();
        assert_eq!(shown, [ProblemKind::Unsealed]);
        assert_eq!(recover(&dir).unwrap().problems, recording.problems());
    }
}

#[test]
fn files_without_checksums_are_not_taken_for_those_of_a_recording_that_has_them() {
    let (_parent, dir) = new_dir();
    kill(Writer::create(&dir, &info()).unwrap());
    let schema = crate::schema::table_schema(MemRow::TABLE);
    let stream = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &schema).unwrap();
    std::fs::write(dir.join(segment_path("mem", 1)), stream.get_ref()).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), []);
    assert!(!recording.problems().is_empty());
}

#[test]
fn a_changed_run_json_is_reported_and_used() {
    let (_parent, dir) = new_dir();
    kill(Writer::create(&dir, &info()).unwrap());
    let path = dir.join("run.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(": \"host\"", ": \"ghost\"")).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.info().hostname, "ghost");
    let problems = recording.problems();
    assert_eq!(problems[0].kind, ProblemKind::Changed);
}
