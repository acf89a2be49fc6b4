//! When no room is left the writer says so and keeps what it has; what was written reads.
//!
//! The limit must not meet other tests, so a test starts this test program again, with
//! the limit in place and only itself to run, which then fills the disk.

use super::*;
use crate::{Recording, StoreError};
use std::process::Command;

const DIR_VARIABLE: &str = "MEMTRACE_TEST_FULL_DISK";

/// Runs [`fill_the_disk`] in a directory after a piece of shell, by way of the test of this
/// name.
fn fill_in_child(test: &str, program: &str, arguments: &[&str], prepare: &str) {
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        return fill_the_disk(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let script = format!("{prepare} && exec \"$0\" --exact tests::full_disk::{test} --nocapture");
    let output = Command::new(program)
        .args(arguments)
        .args(["sh", "-c", &script])
        .arg(this)
        .env(DIR_VARIABLE, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_limit_on_file_size_is_met_as_a_full_disk() {
    // Without the trap the kernel's signal would end the process.
    let prepare = "trap '' XFSZ && ulimit -f 256";
    fill_in_child(
        "a_limit_on_file_size_is_met_as_a_full_disk",
        "env",
        &[],
        prepare,
    );
}

mod needs_mount {
    use super::*;

    #[test]
    fn a_full_file_system_stops_the_writer_in_order() {
        let test = "needs_mount::a_full_file_system_stops_the_writer_in_order";
        let mount = format!("mount -t tmpfs -o size=400k none \"${DIR_VARIABLE}\"");
        fill_in_child(test, "unshare", &["--mount"], &mount);
    }
}

fn fill_the_disk(parent: &Path) {
    let dir = parent.join("run");
    let mut writer = Writer::create(&dir, &info()).unwrap();
    let mut rows = (0..).map(|i| mem(i, 1));
    let error = loop {
        append_all(&mut writer, &rows.by_ref().take(100).collect::<Vec<_>>());
        if let Err(error) = writer.flush() {
            break error;
        }
    };
    assert!(error.is_disk_full(), "{error:?}");
    let written = Recording::open(&dir).unwrap().rows::<MemRow>().unwrap();
    assert!(written.len() > 500);

    // Rows that do not fit are refused, not piled up.
    let limit = Limits::default().flush_rows;
    let refused = rows
        .take(3 * limit)
        .filter(|row| writer.append(&(*row).into()).is_err())
        .count();
    assert_eq!(refused, 2 * limit);

    let error = writer.finish(info()).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    let recording = Recording::open(&dir).unwrap();
    assert!(!recording.is_closed());
    assert_eq!(recording.rows::<MemRow>().unwrap(), written);
    assert_eq!(recording.problems(), []);
}
