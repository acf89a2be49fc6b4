//! Runs the guest program, in an emulated machine or here, and brings back what it said.

use super::debian_kernel::Kernel;
use super::dir;
use super::image::PROGRAMS;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the guest said before it was over, or before patience was.
pub(super) struct Said {
    /// The results, in lines of JSON.
    pub(super) report: String,
    /// How it ended, where that was not in order.
    pub(super) failure: Option<String>,
}

const EMULATOR: &str = "qemu-system-x86_64";
/// Most of it is a hole.
const DISK_BYTES: u64 = 4 << 30;

/// The file system that every machine starts with.
pub(super) fn initramfs() -> Result<PathBuf> {
    Ok(dir()?.join("initramfs.cpio"))
}

/// What a kernel starts with.
pub(super) struct Start {
    /// Names the logs.
    pub(super) name: String,
    pub(super) initramfs: Option<PathBuf>,
    pub(super) disk: PathBuf,
    /// What follows on the kernel's command line.
    pub(super) options: String,
}

impl Start {
    /// With the programs alone, and an empty disk: what the guest keeps in files is page cache there that
    /// the kernel can drop, as it is elsewhere.
    pub(super) fn of_programs(kernel: &Kernel) -> Result<Self> {
        Ok(Self {
            name: kernel.package.clone(),
            initramfs: Some(initramfs()?),
            disk: disk(&kernel.package, None)?,
            // As ramfs: in a tmpfs the pages of programs would count as shared memory.
            options: format!("rootfstype=ramfs rdinit={PROGRAMS}/memtrace-guest"),
        })
    }
}

/// Boots a kernel.
pub(super) fn emulated(kernel: &Kernel, start: &Start, patience: Duration) -> Result<Said> {
    if sh::find_in_path(EMULATOR).is_none() {
        bail!("{EMULATOR} is not installed; run `cargo xtask vm --install-tools`");
    }
    let console = log(&start.name, "console")?;
    let report = log(&start.name, "report")?;
    // panic=-1 restarts at once, and -no-reboot turns that into an end.
    let command_line = format!(
        "console=ttyS0 loglevel=4 panic=-1 mitigations=off {}",
        start.options
    );
    let mut qemu = Command::new(EMULATOR);
    // One thread of ours for both CPUs of the guest: with one each, a guest that patches the
    // code which the other CPU runs (it attaches to a function) hung, or met the breakpoint
    // of the patching itself (int3).
    qemu.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2"])
        .args(["-m", "3072", "-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-serial"])
        .arg(format!("file:{}", console.display()))
        .arg("-serial")
        .arg(format!("file:{}", report.display()))
        // The kind of disk whose driver is built into the kernel. Nothing on it is to outlast the
        // machine.
        .arg("-device")
        .arg(kernel.disk_device())
        .arg("-drive")
        .arg(format!(
            "file={},if=none,id=disk,format=raw,cache=unsafe",
            start.disk.display()
        ))
        .arg("-kernel")
        .arg(kernel.image()?)
        .args(["-append", &command_line])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if let Some(initramfs) = &start.initramfs {
        qemu.arg("-initrd").arg(initramfs);
    }
    let failure = ended(qemu.spawn().context("failed to start qemu")?, patience)?;
    said(&report, failure.map(|how| how + &last_words(&console)))
}

/// A disk with the files of a directory, or an empty one.
pub(super) fn disk(name: &str, files: Option<&Path>) -> Result<PathBuf> {
    let path = dir()?.join(format!("{name}.disk"));
    let file = File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
    file.set_len(DISK_BYTES)?;
    let mut format = Command::new("mkfs.ext4");
    // A journal writes twice, and nothing here survives a crash.
    format.args(["-q", "-F", "-O", "^has_journal"]);
    if let Some(files) = files {
        format.arg("-d").arg(files);
    }
    sh::run(format.arg(&path))?;
    Ok(path)
}

/// Runs on the kernel of this machine.
pub(super) fn native(programs: &Path, patience: Duration) -> Result<Said> {
    let report = log("native", "report")?;
    let child = Command::new(programs.join("memtrace-guest"))
        .stdin(Stdio::null())
        .stdout(File::create(&report)?)
        .spawn()
        .context("failed to start memtrace-guest")?;
    let failure = ended(child, patience)?;
    said(&report, failure)
}

fn log(name: &str, what: &str) -> Result<PathBuf> {
    let path = dir()?.join(format!("{name}.{what}.log"));
    File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
    Ok(path)
}

fn said(report: &Path, failure: Option<String>) -> Result<Said> {
    let bytes = std::fs::read(report)?;
    Ok(Said {
        report: String::from_utf8_lossy(&bytes).into_owned(),
        failure,
    })
}

/// Waits for the end; what was wrong with it.
fn ended(mut child: Child, patience: Duration) -> Result<Option<String>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let failure = (!status.success()).then(|| format!("it ended with {status}"));
            return Ok(failure);
        }
        if start.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            let minutes = patience.as_secs() / 60;
            return Ok(Some(format!("it was not over after {minutes} minutes")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The end of what the kernel wrote to its console.
fn last_words(console: &Path) -> String {
    const LINES: usize = 30;
    let bytes = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    let tail = lines.get(from..).unwrap_or_default().join("\n");
    format!("; its console, {}, ends with\n{tail}", console.display())
}
