//! A small /proc for tests.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory that looks like /proc with a few processes in it.
pub(super) struct FakeProc(TempDir);

impl FakeProc {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    fn dir(&self, tgid: u32) -> PathBuf {
        self.root().join(tgid.to_string())
    }

    /// A process that sleeps, with one thread and 1,000 resident pages.
    pub(super) fn process(&self, tgid: u32, comm: &str, ppid: u32) {
        self.process_started_at(tgid, comm, ppid, 1000);
    }

    pub(super) fn process_started_at(&self, tgid: u32, comm: &str, ppid: u32, ticks: i64) {
        self.write_all(
            &self.dir(tgid),
            &stat(tgid, comm, ppid, ticks, 'S', 1000),
            1000,
        );
        self.write(tgid, "cmdline", comm.as_bytes());
    }

    pub(super) fn thread(&self, tgid: u32, tid: u32, comm: &str, rss: i64) {
        let dir = self.dir(tgid).join("task").join(tid.to_string());
        self.write_all(&dir, &stat(tid, comm, 1, 1100, 'S', rss), rss);
    }

    /// A process that has ended and waits to be waited for.
    pub(super) fn zombie(&self, tgid: u32, comm: &str, ppid: u32, wait_status: i32) {
        let stat =
            stat(tgid, comm, ppid, 1000, 'Z', 0).replace(" 0\n", &format!(" {wait_status}\n"));
        self.write_all(&self.dir(tgid), &stat, 0);
        self.write(tgid, "cmdline", b"");
    }

    pub(super) fn set_rss(&self, tgid: u32, pages: i64) {
        let stat = fs::read_to_string(self.dir(tgid).join("stat")).unwrap();
        let mut words: Vec<String> = stat.trim_end().split(' ').map(str::to_owned).collect();
        words[22] = if pages == 0 {
            "0".into()
        } else {
            "9000000".into()
        };
        words[23] = pages.to_string();
        self.write_all(&self.dir(tgid), &(words.join(" ") + "\n"), pages);
    }

    fn write_all(&self, dir: &Path, stat: &str, rss: i64) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("stat"), stat).unwrap();
        let size = if rss == 0 { 0 } else { 9000 };
        fs::write(dir.join("statm"), format!("{size} {rss} 0 0 0 0 0\n")).unwrap();
        let mut status = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t42\n".to_owned();
        if rss != 0 {
            let kib = rss * 4;
            status += &format!(
                "VmSize:\t 36000 kB\nVmHWM:\t {kib} kB\nVmRSS:\t {kib} kB\nRssAnon:\t {kib} kB\nRssFile:\t 0 kB\nRssShmem:\t 0 kB\nVmSwap:\t 0 kB\n"
            );
        }
        fs::write(dir.join("status"), status).unwrap();
    }

    pub(super) fn write(&self, tgid: u32, name: &str, text: &[u8]) {
        fs::write(self.dir(tgid).join(name), text).unwrap();
    }

    /// Sets PF_EXITING, which comes long before the state of a zombie.
    pub(super) fn start_to_exit(&self, tgid: u32) {
        let stat = fs::read_to_string(self.dir(tgid).join("stat")).unwrap();
        let exiting = stat.replace(" 4194304 ", " 4194308 ");
        self.write(tgid, "stat", exiting.as_bytes());
    }

    pub(super) fn link(&self, tgid: u32, name: &str, target: &str) {
        let _ = fs::remove_file(self.dir(tgid).join(name));
        std::os::unix::fs::symlink(target, self.dir(tgid).join(name)).unwrap();
    }

    pub(super) fn remove(&self, tgid: u32, name: &str) {
        fs::remove_file(self.dir(tgid).join(name)).unwrap();
    }

    pub(super) fn end(&self, tgid: u32) {
        fs::remove_dir_all(self.dir(tgid)).unwrap();
    }
}

fn stat(pid: u32, comm: &str, ppid: u32, ticks: i64, state: char, rss: i64) -> String {
    let vsize = if rss == 0 { 0 } else { 9_000_000 };
    let filler = "0 ".repeat(23);
    format!(
        "{pid} ({comm}) {state} {ppid} 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} {vsize} {rss} {filler}140730000000100 0 0 0 0\n"
    )
}
