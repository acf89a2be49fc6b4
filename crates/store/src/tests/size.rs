//! How much room rows take on disk.

use super::*;

const PAGE: i64 = 4096;

/// Ten minutes of 500 processes, of which any 20 change their anonymous memory in every
/// sample of 100 ms; all of them get a keyframe every 10 s.
fn busy_processes() -> Vec<MemRow> {
    let mut seed = 7_u64;
    let mut random = |bound: i64| {
        // Knuth's MMIX generator; its upper bits are good enough.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33).cast_signed() % bound
    };
    let mut states: Vec<MemRow> = (0..500)
        .map(|upid| MemRow {
            rss_anon_bytes: Some(Bytes(PAGE * random(1 << 20))),
            rss_file_bytes: Some(Bytes(PAGE * random(1 << 14))),
            rss_shmem_bytes: Some(Bytes(PAGE * random(1 << 12))),
            swap_bytes: Some(Bytes(0)),
            vm_size_bytes: Some(Bytes(PAGE * random(1 << 24))),
            heap_bytes: Some(Bytes(PAGE * random(1 << 12))),
            ..mem(0, upid)
        })
        .collect();
    let mut rows = Vec::new();
    for sample in 0..6_000 {
        let is_keyframe = sample % 100 == 0;
        let mut changed: Vec<usize> = (0..20).map(|_| random(500) as usize).collect();
        for &index in &changed {
            let state = &mut states[index];
            let anon = state.rss_anon_bytes.unwrap().0 + PAGE * (random(257) - 128);
            state.rss_anon_bytes = Some(Bytes(anon.max(0)));
        }
        if is_keyframe {
            changed = (0..500).collect();
        }
        for index in changed {
            let state = states[index];
            let parts = [
                state.rss_anon_bytes,
                state.rss_file_bytes,
                state.rss_shmem_bytes,
            ];
            rows.push(MemRow {
                rss_bytes: Some(parts.into_iter().flatten().sum()),
                ..state
            });
            let at = mem(sample * 100, 0);
            if let Some(row) = rows.last_mut() {
                (row.ts, row.boot_ns) = (at.ts, at.boot_ns);
            }
        }
    }
    rows
}

#[test]
fn a_row_of_mem_takes_at_most_12_bytes() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    let rows = busy_processes();
    append_all(&mut writer, &rows);
    writer.finish(info()).unwrap();
    let size = std::fs::metadata(dir.join("mem/part-00001.parquet"))
        .unwrap()
        .len();
    let per_row = size as f64 / rows.len() as f64;
    assert!(per_row <= 12.0, "{per_row} bytes a row");
}
