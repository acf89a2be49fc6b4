//! Recordings beside each other: which are there, and removing one.

use super::*;
use crate::{kept, remove_recording};

fn closed(dir: &Path, ended: WallNs) {
    let mut writer = Writer::create(dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    let mut info = info();
    info.clocks.push(ClockReading {
        wall_ns: ended,
        ..info.clocks[0]
    });
    writer.finish(info).unwrap();
}

#[test]
fn what_nobody_writes_to_is_kept_the_oldest_first_and_can_be_removed() {
    let parent = tempfile::tempdir().unwrap();
    let host = parent.path().join("run=1/host=a");
    std::fs::create_dir_all(&host).unwrap();
    let (first, second) = (host.join("rec=x"), parent.path().join("memtrace-y"));
    closed(&second, WallNs(EPOCH_NS + 2));
    closed(&first, WallNs(EPOCH_NS + 1));
    closed(&parent.path().join("mine"), WallNs(EPOCH_NS));
    let live = Writer::create(&parent.path().join("memtrace-live"), &info()).unwrap();
    let found = || -> Vec<PathBuf> {
        let found = kept(parent.path()).unwrap();
        assert!(found.iter().all(|kept| kept.bytes.0 > 100));
        found.into_iter().map(|kept| kept.dir).collect()
    };
    assert_eq!(found(), [first.clone(), second.clone()]);
    assert!(matches!(
        remove_recording(live.dir()),
        Err(crate::StoreError::Live { .. })
    ));
    assert!(remove_recording(&first).unwrap() && !first.exists());
    std::fs::write(second.join("mem/notes.txt"), "mine").unwrap();
    assert!(!remove_recording(&second).unwrap());
    assert_eq!(files_below(&second), ["mem/notes.txt"]);
    assert!(found().is_empty());
    // One that its recorder left goes with its spool.
    let left = live.dir().to_owned();
    kill(live);
    assert_eq!(found(), std::slice::from_ref(&left));
    assert!(remove_recording(&left).unwrap() && !left.exists());
}

#[test]
fn one_that_was_recovered_is_as_old_as_its_files() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("memtrace-y");
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    writer.flush().unwrap();
    kill(writer);
    crate::recover(&dir).unwrap();
    let [kept] = &kept(parent.path()).unwrap()[..] else {
        panic!("one recording");
    };
    // Its only clock is that of its start.
    assert!(kept.is_closed && kept.ended.0 > EPOCH_NS + 86_400_000_000_000);
}
