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
    /// JSON lines.
    pub(super) report: String,
    /// How it ended, where that was not in order.
    pub(super) trouble: Option<String>,
}

const EMULATOR: &str = "qemu-system-x86_64";
/// Most of it is a hole.
const DISK_BYTES: u64 = 4 << 30;

/// The file system that every machine starts with.
pub(super) fn initramfs() -> Result<PathBuf> {
    Ok(dir()?.join("initramfs.cpio"))
}

/// Boots a kernel.
pub(super) fn emulated(kernel: &Kernel, patience: Duration) -> Result<Said> {
    if sh::find_in_path(EMULATOR).is_none() {
        bail!("{EMULATOR} is not installed; run `cargo xtask vm --install-tools`");
    }
    let image = kernel.image()?;
    let console = log(&kernel.package, "console")?;
    let report = log(&kernel.package, "report")?;
    let disk = disk(&kernel.package)?;
    // initramfs as ramfs: in a tmpfs the pages of programs would count as shared memory.
    // panic=-1 restarts at once, and -no-reboot turns that into an end.
    let command_line = format!(
        "console=ttyS0 loglevel=4 panic=-1 rootfstype=ramfs mitigations=off \
         rdinit={PROGRAMS}/memtrace-guest"
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
        // The one kind of disk whose driver is built into these kernels. Nothing on it is to outlast
        // the machine.
        .args(["-device", "nvme,drive=disk,serial=memtrace", "-drive"])
        .arg(format!(
            "file={},if=none,id=disk,format=raw,cache=unsafe",
            disk.display()
        ))
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs()?)
        .args(["-append", &command_line])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let trouble = ended(qemu.spawn().context("failed to start qemu")?, patience)?;
    said(&report, trouble.map(|how| how + &last_words(&console)))
}

/// An empty disk: what the guest keeps in files is page cache there that the kernel can drop, as it
/// is elsewhere.
fn disk(name: &str) -> Result<PathBuf> {
    let path = dir()?.join(format!("{name}.disk"));
    let file = File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
    file.set_len(DISK_BYTES)?;
    let mut format = Command::new("mkfs.ext4");
    // A journal writes twice, and nothing here survives a crash.
    format.args(["-q", "-F", "-O", "^has_journal"]).arg(&path);
    sh::run(&mut format)?;
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
    let trouble = ended(child, patience)?;
    said(&report, trouble)
}

fn log(name: &str, what: &str) -> Result<PathBuf> {
    let path = dir()?.join(format!("{name}.{what}.log"));
    File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
    Ok(path)
}

fn said(report: &Path, trouble: Option<String>) -> Result<Said> {
    let bytes = std::fs::read(report)?;
    Ok(Said {
        report: String::from_utf8_lossy(&bytes).into_owned(),
        trouble,
    })
}

/// Waits for the end; what was wrong with it.
fn ended(mut child: Child, patience: Duration) -> Result<Option<String>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let trouble = (!status.success()).then(|| format!("it ended with {status}"));
            return Ok(trouble);
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
