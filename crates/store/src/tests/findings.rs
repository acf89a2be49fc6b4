use super::*;
use crate::{FindingsWriter, Recording, StoreError};
use memtrace_model::tables::{Finding, RoleMemRow};

fn closed(dir: &Path) -> Recording {
    let mut writer = Writer::create(dir, &info()).unwrap();
    writer.append(&mem(1, 1).into()).unwrap();
    writer.finish(info()).unwrap();
    Recording::open(dir).unwrap()
}

fn role(boot_ns: i64) -> Finding {
    RoleMemRow {
        boot_ns: BootNs(boot_ns),
        name: "worker".to_owned(),
        ..RoleMemRow::default()
    }
    .into()
}

fn files(dir: &Path, table: &str) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(dir.join(table)).unwrap();
    let files = entries.map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        (name, entry.metadata().unwrap().len())
    });
    files.collect()
}

#[test]
fn findings_take_the_place_of_those_before_only_when_they_are_whole() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let recording = closed(&dir);
    let mut writer = FindingsWriter::create(&recording).unwrap();
    for boot_ns in 0..10_000 {
        writer.append(&role(boot_ns));
    }
    writer.finish().unwrap();
    let before = files(&dir, "role_mem");
    assert_eq!(before.len(), 1);
    assert_eq!(files(&dir, "phase").len(), 1, "an empty table is one too");
    let mut given_up = FindingsWriter::create(&recording).unwrap();
    given_up.append(&role(1));
    assert_eq!(files(&dir, "role_mem").len(), 2, "half of one");
    drop(given_up);
    assert_eq!(files(&dir, "role_mem"), before);
    let mut writer = FindingsWriter::create(&recording).unwrap();
    writer.append(&role(1));
    writer.finish().unwrap();
    assert_ne!(files(&dir, "role_mem"), before);
    assert_eq!(Recording::open(&dir).unwrap().problems(), []);
}

#[test]
fn a_recording_that_goes_on_has_no_findings_to_save() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let _writer = Writer::create(&dir, &info()).unwrap();
    let refused = FindingsWriter::create(&Recording::open(&dir).unwrap());
    let refused = refused.map(drop).unwrap_err();
    assert!(matches!(
        refused,
        StoreError::Unclosed { is_live: true, .. }
    ));
    let refused = refused.to_string();
    assert!(refused.contains("still being recorded"), "{refused}");
    assert!(!refused.contains("recover"), "{refused}");
    assert!(!dir.join("phase").exists());
}
