//! Many devices, and processes of which not all is known.

use super::*;
use crate::golden::{Reported, Script, card, cuda_memory, gib, on_card};
use memtrace_model::Instant;
use memtrace_model::tables::CudaMemoryRow;
use memtrace_report::Block;

fn used(device: usize, used: Option<i64>) -> GpuLedger {
    GpuLedger {
        device: Arc::from(""),
        device_index: None,
        place: device,
        is_divided: false,
        at: Instant::default(),
        age_ns: DurationNs(0),
        total_bytes: None,
        used_bytes: used.map(Bytes),
        processes_bytes: Bytes(0),
        reserved_bytes: None,
        lines: Vec::new(),
        unattributed_bytes: None,
        unexplained_bytes: None,
        unknown_process_count: 0,
        candidates: Vec::new(),
    }
}

#[test]
fn of_many_devices_those_that_used_most_have_a_line_and_the_others_are_counted() {
    let all: Vec<GpuLedger> = (0..56)
        .map(|device| used(device, (device > 0).then_some(device as i64)))
        .collect();
    let all: Vec<&GpuLedger> = all.iter().collect();
    let (text, rest) = most_used(&all, 3);
    let text: Vec<usize> = text.iter().map(|ledger| ledger.place).collect();
    assert_eq!(text, [55, 54, 53, 52, 51, 50, 49, 48]);
    assert_eq!(rest, 48);
    let (text, rest) = most_used(&all[..8], 3);
    let text: Vec<usize> = text.iter().map(|ledger| ledger.place).collect();
    assert_eq!(text, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(rest, 0);
}

#[test]
fn of_lines_that_each_of_many_devices_has_some_are_reported() {
    let mut section = Chapter::new(String::new());
    say_some(&mut section, Tone::Alert, vec!["one".to_owned(); 56]);
    let last = section.blocks.last().map(|block| match block {
        Block::Line(_, line) => line.as_str(),
        Block::Drawing(_) | Block::Command(_) | Block::Table(_) => "no line",
    });
    assert_eq!(section.blocks.len(), DEVICES_MIN + 1);
    assert_eq!(last, Some("The same for 48 more: see --format json."));
}

#[test]
fn who_is_left_out_held_less_only_where_that_is_known() {
    let held = |peak: Option<i64>, is_lower_bound| GpuProcess {
        holder: GpuHolder::default(),
        devices: Vec::new(),
        device_indices: Vec::new(),
        peak_bytes: peak.map(Bytes),
        peak_is_lower_bound: is_lower_bound,
        peak_at: None,
        at_end_bytes: None,
        host_peak_bytes: None,
    };
    let text = "2 processes more held less, or an amount that the driver does not report.";
    assert_eq!(more_processes(&[]), None);
    assert_eq!(
        more_processes(&[held(Some(1), false)]).as_deref(),
        Some("1 process more held less.")
    );
    for unsure in [held(None, false), held(Some(0), true)] {
        let rest = [held(Some(1), false), unsure];
        assert_eq!(more_processes(&rest).as_deref(), Some(text));
    }
}

#[test]
fn what_the_driver_does_not_report_is_at_least_what_calls_add_up_to() {
    let mut run = Script::command(&["a"], 60.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 1.0, [10.0, 1.0, 0.0]);
    run.put(card(0, 20.0, 4.0));
    run.put(on_card(0, 1, 20.0, None));
    run.put(CudaMemoryRow {
        vmm_bytes: gib(3.0),
        ..cuda_memory(1, 19.0, 10.0)
    });
    let analysis = run.analyzed(None);
    let gpus = analysis.gpus.as_ref().expect("a GPU");
    let mut section = Chapter::new(String::new());
    calls::made_of(&mut section, &analysis, &at_peaks(gpus), 9);
    let Some(Block::Line(_, line)) = section.blocks.first() else {
        panic!("a line");
    };
    assert_eq!(line, "1 a holds at least 3.0 GiB on GPU 0: vmm 3.0 GiB.");
}
