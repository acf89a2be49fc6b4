//! What some tests need of the machine, and whether it is here.
//!
//! A test that needs something lives in a module `needs_<word>` of a test binary.
//! `cargo xtask test` asks the `memtrace-needs` program and leaves out, by that name, what
//! cannot run, so that it counts as skipped. Run in any other way such a test fails with
//! the reason; it never passes without having run.

use crate::cgroup::MemoryGroup;
use memtrace_host::HostFacts;
use std::io;
use std::path::Path;
use std::process::Command;

/// One thing that tests need.
#[derive(Debug)]
pub struct Need {
    /// The word in the names of modules.
    pub word: &'static str,
    /// What it is, in one line.
    pub doc: &'static str,
    probe: fn() -> Result<(), String>,
}

/// Everything that tests need.
pub const NEEDS: &[Need] = &[
    Need {
        word: "bpf",
        doc: "the right to load BPF programs, and a kernel with BTF",
        probe: bpf,
    },
    Need {
        word: "memcg",
        doc: "the right to make a memory cgroup with a limit",
        probe: memcg,
    },
    Need {
        word: "disk",
        doc: "a directory for temporary files that is on a disk",
        probe: disk,
    },
    Need {
        word: "kmsg",
        doc: "the kernel's log, /dev/kmsg",
        probe: kmsg,
    },
    Need {
        word: "root",
        doc: "root's user id",
        probe: root,
    },
    Need {
        word: "mount",
        doc: "the right to mount a small file system in a mount namespace",
        probe: mount,
    },
    Need {
        word: "freeze",
        doc: "the right to mount a file system on a loop device and to freeze it",
        probe: freeze,
    },
    Need {
        word: "cgroup2",
        doc: "the memory controller on the v2 hierarchy, with pressure (PSI)",
        probe: cgroup2,
    },
    Need {
        word: "systemd",
        doc: "a session of systemd's on the v2 hierarchy",
        probe: systemd,
    },
    Need {
        word: "ray",
        doc: "Ray, installed into target/ray",
        probe: ray,
    },
    Need {
        word: "fentry",
        doc: "a kernel that lets programs be attached to its functions",
        probe: fentry,
    },
    Need {
        word: "kprobe",
        doc: "a kernel with kprobes",
        probe: kprobe,
    },
    Need {
        word: "parts",
        doc: "a kernel whose counters of resident memory move with each page fault (6.2)",
        probe: parts,
    },
    Need {
        word: "gpu",
        doc: "an NVIDIA GPU, and a python3 whose torch uses it",
        probe: gpu,
    },
];

impl Need {
    /// Whether it is met here, or why not. Asks by trying.
    ///
    /// # Errors
    /// The reason, as a fragment.
    pub fn check(&self) -> Result<(), String> {
        (self.probe)()
    }
}

/// Fails the test that calls it when a need is not met.
///
/// # Panics
/// With the reason, when the need is not met or not in the list.
pub fn require(word: &str) {
    let need = NEEDS.iter().find(|need| need.word == word);
    match need.map(Need::check) {
        Some(Ok(())) => {}
        Some(Err(reason)) => panic!(
            "this test needs {word}: {reason}; `cargo xtask test` skips what cannot run here"
        ),
        None => panic!("{word} is not in the list of needs"),
    }
}

/// Page cache that the kernel can drop is only that of a file on a disk.
fn disk() -> Result<(), String> {
    let dir = std::env::temp_dir();
    let text = std::ffi::CString::new(dir.to_string_lossy().into_owned());
    let text = text.map_err(|error| error.to_string())?;
    // SAFETY: all zeroes is a valid statfs.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in NUL, and the struct is live and writable.
    if unsafe { libc::statfs(text.as_ptr(), &raw mut found) } != 0 {
        return Err(format!("{}: {}", dir.display(), io::Error::last_os_error()));
    }
    const RAMFS: i64 = 0x8584_58f6;
    match found.f_type {
        libc::TMPFS_MAGIC | RAMFS => Err(format!("{} is in memory", dir.display())),
        _ => Ok(()),
    }
}

fn kmsg() -> Result<(), String> {
    match std::fs::File::open("/dev/kmsg") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("/dev/kmsg can't be opened: {error}")),
    }
}

/// f1a7941243c1 gave each CPU its part of them, and did without a struct of that name.
fn parts() -> Result<(), String> {
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|error| error.to_string())?;
    let name = b"\0mm_rss_stat\0";
    match btf.windows(name.len()).any(|bytes| bytes == name) {
        true => Err("this kernel has struct mm_rss_stat".to_owned()),
        false => Ok(()),
    }
}

fn bpf() -> Result<(), String> {
    let btf = Path::new("/sys/kernel/btf/vmlinux");
    if !btf.exists() {
        return Err(format!("{} does not exist", btf.display()));
    }
    /// The beginning of `union bpf_attr` for BPF_MAP_CREATE.
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
    }
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_RINGBUF: u32 = 27;
    let attr = MapCreate {
        map_type: BPF_MAP_TYPE_RINGBUF,
        key_size: 0,
        value_size: 0,
        max_entries: 1 << 16,
        map_flags: 0,
    };
    // SAFETY: the attribute is live and of the size given; the kernel only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            &raw const attr,
            size_of::<MapCreate>(),
        )
    };
    let Ok(fd @ 0..) = i32::try_from(fd) else {
        let error = io::Error::last_os_error();
        return Err(format!("the kernel refuses a BPF ring buffer: {error}"));
    };
    // SAFETY: the descriptor was just given to us and is used nowhere else.
    unsafe { libc::close(fd) };
    Ok(())
}

fn memcg() -> Result<(), String> {
    match MemoryGroup::new("memtrace-need", 64 << 20) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn root() -> Result<(), String> {
    // SAFETY: takes nothing and can't fail.
    match unsafe { libc::geteuid() } {
        0 => Ok(()),
        uid => Err(format!("this is user {uid}")),
    }
}

fn freeze() -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let script = "cd \"$1\" && mkdir disk && truncate -s 4M image && mkfs.ext4 -q image && \
                  mount -o loop image disk && fsfreeze -f disk && fsfreeze -u disk && umount disk";
    let tried = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .output()
        .map_err(|error| format!("unshare can't be run: {error}"))?;
    match tried.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
    }
}

fn mount() -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = Command::new("unshare")
        .args(["--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "none"])
        .arg(dir.path())
        .output()
        .map_err(|error| format!("unshare can't be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn cgroup2() -> Result<(), String> {
    let group =
        MemoryGroup::new("memtrace-need", 64 << 20).map_err(|error| format!("{error:#}"))?;
    let file = group.dir().join("memory.pressure");
    match std::fs::read_to_string(&file) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn systemd() -> Result<(), String> {
    if !Path::new("/run/systemd/system").is_dir() {
        return Err("systemd does not run here".to_owned());
    }
    let own = crate::cgroup::own_directory().map_err(|error| format!("{error:#}"))?;
    if own.join("memory.stat").exists() && own.starts_with("/sys/fs/cgroup/user.slice") {
        return Ok(());
    }
    Err(format!(
        "{} is no session's group on the v2 hierarchy",
        own.display()
    ))
}

fn ray() -> Result<(), String> {
    let python = crate::program::ray_python().map_err(|error| format!("{error:#}"))?;
    let output = Command::new(python)
        .args(["-c", "import ray, numpy"])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().last().unwrap_or_default().to_owned())
}

fn fentry() -> Result<(), String> {
    let mut facts = HostFacts::read();
    facts.try_kernel();
    match facts.has_fentry {
        Some(true) => Ok(()),
        _ => Err(facts
            .unread
            .remove("has_fentry")
            .unwrap_or_else(|| "there is no right to try".to_owned())),
    }
}

fn kprobe() -> Result<(), String> {
    match HostFacts::read().has_kprobes {
        Some(true) => Ok(()),
        _ => Err("the kernel was built without kprobes".to_owned()),
    }
}

fn gpu() -> Result<(), String> {
    if !Path::new("/dev/nvidiactl").exists() {
        return Err("there is no NVIDIA device".to_owned());
    }
    let output = Command::new("python3")
        .args(["-c", "import torch; assert torch.cuda.is_available()"])
        .output()
        .map_err(|error| format!("python3 can't be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().last().unwrap_or("torch finds no GPU");
    Err(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_has_its_own_word_and_a_doc_line() {
        let mut words: Vec<_> = NEEDS.iter().map(|need| need.word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), NEEDS.len());
        assert!(NEEDS.iter().all(|need| !need.doc.is_empty()));
    }

    #[test]
    #[should_panic(expected = "not in the list")]
    fn a_need_that_is_not_in_the_list_fails_the_test() {
        require("luck");
    }
}
