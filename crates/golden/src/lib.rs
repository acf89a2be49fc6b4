//! Hand-made recordings for tests: rows in memory behind [`RowSource`](memtrace_model::RowSource), a small language to
//! write runs in, and the list of runs on which every report format is snapshotted.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail")]

mod calls;
mod decoded;
mod devices;
mod hosts;
mod inside;
mod left;
mod limited;
mod lines;
mod loaded;
mod marked;
mod rows;
mod runs;
mod script;
mod sharing;
mod slept;
mod stream;
mod team;
mod torch;

pub use calls::{cuda_call, cuda_memory, gpu_by_calls};
pub use decoded::{Decoded, DecodedEvent, DecodedTrack};
pub use devices::{card, left_by_a_killed, on_card, put_to_sleep};
pub use hosts::{Clock, JOBS, Member, job};
pub use left::left_behind;
pub use limited::{group, near_miss, nested};
pub use loaded::server_under_load;
pub use marked::{measured_by_itself, vllm_start_up};
pub use rows::{Rows, mem_row};
pub use runs::RUNS;
pub use script::{Script, boot, gib, upid, wall};
pub use slept::{vllm_on_gpus, vllm_on_gpus_later};
pub use stream::Stream;
pub use team::{ray_with_vllm, ray_with_vllm_later};

/// Asserts that a page of docs/ shows the beginning of a report, up to a line that begins with `until`.
pub fn assert_shown(page: &str, report: &str, until: &str) {
    let end = report
        .find(&format!("\n{until}"))
        .expect("a line after what is shown");
    let indented = report[..end].trim_end().lines().map(|line| match line {
        "" => String::new(),
        line => format!("    {line}"),
    });
    let shown = indented.collect::<Vec<_>>().join("\n");
    assert!(page.contains(&shown), "the page does not show:\n{shown}");
}
