//! What torch held of GPU memory and did not use, by its own snapshots.

use crate::{Analysis, Report, TorchSnapshot};
use memtrace_report::words::{self, bytes};
use memtrace_report::{Cell, Chapter, MORE_IN_JSON, Section, Table, TableOf, one_part};

/// Lines that are reported unasked.
const LINES_MAX: usize = 6;

pub(super) const SECTION: Section<Report> = Section {
    name: "torch",
    doc: "what torch held of GPU memory and did not use (memtrace import torch)",
    keys: &["torch"],
    tables: Some(|analysis, top| {
        let snapshots = analysis.torch_snapshots.iter();
        one_part(table(snapshots.take(top)))
    }),
    tell: |analysis, view| {
        let all = &analysis.torch_snapshots;
        let Some(largest) = largest(all) else {
            return Vec::new();
        };
        let mut section = Chapter::new("What torch held of GPU memory");
        section.strong(sentence(analysis, largest));
        if all.len() > 1 {
            section.table(table(all.iter().take(view.top)));
            section.rest(all.len(), view.top, words::count, MORE_IN_JSON);
        }
        if !largest.sites.is_empty() {
            let most = match view.is_alone {
                true => view.top,
                false => view.most(LINES_MAX),
            };
            section.table(lines(largest, most));
            section.rest(largest.sites.len(), most, words::count, MORE_IN_JSON);
        }
        section.explain(
            "What torch held: RESERVED is what its caching allocator had taken from the driver, in \
             segments; ALLOCATED what tensors had of it; FREE what it kept for the next tensors. A \
             tensor that is larger than the largest free block needs new memory, unless segments are \
             expandable. torch.cuda.empty_cache() gives back segments that are wholly free.",
        );
        vec![section]
    },
    ..Section::EMPTY
};

/// The snapshot of one device with most, the last of equal ones.
fn largest(all: &[TorchSnapshot]) -> Option<&TorchSnapshot> {
    let mut all = all.iter().rev();
    let first = all.next()?;
    Some(all.fold(first, |largest, one| {
        match one.reserved_bytes > largest.reserved_bytes {
            true => one,
            false => largest,
        }
    }))
}

/// `22924 python3 train.py: torch held 18.2 GiB of its GPU 0 in 312 segments at +83.2s: …`
fn sentence(analysis: &Analysis, of: &TorchSnapshot) -> String {
    let who = match of.who.upid {
        Some(_) => format!("{}: torch", analysis.with_role(&of.who)),
        None => "Torch, in a process that is not known,".to_owned(),
    };
    let whole = match of.free_segment_bytes.0 {
        0 => String::new(),
        _ => format!(
            " ({} of it in whole segments)",
            bytes(of.free_segment_bytes)
        ),
    };
    let free = match of.inactive_bytes.0 {
        0 => "nothing was free inside".to_owned(),
        _ => format!(
            "{} was free inside{whole}, the largest free block {}",
            bytes(of.inactive_bytes),
            bytes(of.largest_inactive_bytes)
        ),
    };
    let waiting = match of.awaiting_free_bytes.0 {
        0 => String::new(),
        _ => format!(
            ", {} waited for other streams",
            bytes(of.awaiting_free_bytes)
        ),
    };
    let private = match of.private_pool_bytes.0 {
        0 => String::new(),
        _ => format!(" Private pools had {} of it.", bytes(of.private_pool_bytes)),
    };
    let beyond = of.driver_bytes.map(|driver| driver - of.reserved_bytes);
    let beyond = match beyond {
        Some(beyond) if beyond.0 > 0 => format!(
            " Other code of the process had {} from the driver, beside context and code.",
            bytes(beyond)
        ),
        _ => String::new(),
    };
    format!(
        "{who} held {} of its GPU {} in {} at {}: tensors had {}{waiting}, and {free}.{private}{beyond}",
        bytes(of.reserved_bytes),
        of.cuda_device,
        words::counted(of.segment_count, "segment", "segments"),
        analysis.clock.when(of.at),
        bytes(of.allocated_bytes),
    )
}

fn table<'a>(snapshots: impl IntoIterator<Item = &'a TorchSnapshot>) -> Table {
    TableOf::of(snapshots)
        .who(|of| of.who.cells())
        .data("upid", |of| Cell::known(of.who.upid))
        .figures(("cuda_device", "GPU"), 1, |of| of.cuda_device.to_string())
        .figures("at_s", 0, |of| of.at)
        .figures("reserved_bytes", 0, |of| of.reserved_bytes)
        .figures(("segment_count", "SEGMENTS"), 2, |of| {
            words::count(of.segment_count)
        })
        .figures("allocated_bytes", 1, |of| of.allocated_bytes)
        .data("requested_bytes", |of| of.requested_bytes)
        .data("awaiting_free_bytes", |of| of.awaiting_free_bytes)
        .figures(("inactive_bytes", "FREE"), 0, |of| of.inactive_bytes)
        .data("free_segment_bytes", |of| of.free_segment_bytes)
        .figures(("largest_inactive_bytes", "LARGEST FREE"), 1, |of| {
            of.largest_inactive_bytes
        })
        .data("private_pool_bytes", |of| of.private_pool_bytes)
        .data("driver_bytes", |of| Cell::Bytes(of.driver_bytes))
        .data("snapshot", |of| of.snapshot.clone())
        .done()
}

fn lines(of: &TorchSnapshot, most: usize) -> Table {
    let all = of.allocated_bytes;
    TableOf::of(of.sites.iter().take(most))
        .figures("allocated_bytes", 0, |site| site.allocated_bytes)
        .words("share", 1, move |site| {
            Cell::shown_only(&words::share(Some(site.allocated_bytes), Some(all)))
        })
        .figures(("block_count", "BLOCKS"), 2, |site| {
            words::count(site.block_count)
        })
        .flexible("place", |site| site.line.place())
        .done()
}
