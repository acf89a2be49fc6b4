//! The tarballs for other C libraries and machines: the static one where there is nothing else, the one
//! for ARM in an emulator, which has no BPF.

use super::{HELD_BYTES, check, file_name, reported};
use crate::dist::programs::{HOST, Linkage, OTHERS, Target};
use crate::dist::{Release, emptied, stage, tarball};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Runs programs for ARM; where their glibc is.
const EMULATOR: &[&str] = &["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"];

/// Tries those that were made.
pub(super) fn run(release: &Release, made: &[PathBuf]) -> Result<()> {
    let made = |target: &Target| {
        let file = tarball::name(target, release) + ".tar.gz";
        made.iter().find(|path| file_name(path) == file)
    };
    for target in OTHERS {
        if let Some(tarball) = made(target) {
            match target.linkage {
                Linkage::StaticMusl => alone(release, tarball)?,
                Linkage::Glibc => emulated(release, tarball)?,
            }
        }
    }
    Ok(())
}

/// A directory with what a tarball has.
fn unpacked(release: &Release, tarball: &Path, name: &str) -> Result<PathBuf> {
    let dir = emptied(release.dir.join(name))?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(tarball);
    sh::run(tar.args(["--strip-components=1", "--directory"]).arg(&dir))?;
    Ok(dir)
}

/// In a root with nothing but the tarball, and busybox as what is recorded.
fn alone(release: &Release, tarball: &Path) -> Result<()> {
    let start = Instant::now();
    let root = unpacked(release, tarball, "trial-static")?;
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).context("failed to copy busybox")?;
    let held = HELD_BYTES >> 20;
    let script = format!(
        r#"cd "$0" && mkdir -p proc sys dev run
for dir in proc sys dev; do mount --rbind "/$dir" "$dir"; done
mount -t tmpfs none run
chroot . /bin/memtrace record --quiet -o /recording -- \
    /bin/busybox dd if=/dev/zero of=/dev/null bs={held}M count=1 >&2
chroot . /bin/memtrace report /recording --format json"#
    );
    let inside = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-e", "-c"]);
        sh::capture(unshare.arg(script).arg(&root))
    };
    reported("static tarball", start, &inside(&script)?)?;
    for (command, asked) in [
        ("report /recording", "its report"),
        ("--version", "--version"),
        // Its exit status says whether a recording is possible, and BPF is looked at above.
        ("doctor || true", "doctor"),
    ] {
        let said = inside(&format!("cd \"$0\" && chroot . /bin/memtrace {command}"))?;
        if !said.contains("static") {
            bail!("static tarball: {asked} does not say that it is static: {said}");
        }
    }
    Ok(())
}

/// In an emulator: it records by procfs a program of this machine, and reads what this machine's own
/// programs recorded as they do.
fn emulated(release: &Release, tarball: &Path) -> Result<()> {
    let root = unpacked(release, tarball, "trial-arm")?;
    let here = stage::dir(&release.dir, &HOST).join("bin/memtrace");
    let here = [here.display().to_string()];
    let mut arm: Vec<String> = EMULATOR.iter().map(|&word| word.to_owned()).collect();
    arm.push(root.join("bin/memtrace").display().to_string());
    let run = |memtrace: &[String], words: &[&str]| {
        let mut command = Command::new(&memtrace[0]);
        sh::capture(command.current_dir(&root).args(&memtrace[1..]).args(words))
    };
    let program = format!("import time; held = b'x' * {HELD_BYTES}; time.sleep(2)");
    let record = |memtrace: &[String], backend: &str, to: &str| {
        let words = ["record", "--quiet", "--backend", backend, "-o", to, "--"];
        run(
            memtrace,
            &[&words[..], &["python3", "-c", &program]].concat(),
        )
    };
    let read = |memtrace: &[String], recording: &str| {
        run(memtrace, &["report", recording, "--format", "json"])
    };
    let start = Instant::now();
    record(&arm, "procfs", "of-arm")?;
    check("ARM, emulated", "procfs", &read(&arm, "of-arm")?)?;
    record(&here, "bpf", "of-here")?;
    let (there, here) = (read(&arm, "of-here")?, read(&here, "of-here")?);
    check("ARM, a recording of this machine", "bpf", &there)?;
    if there != here {
        bail!("ARM: another report of the same recording than of this machine");
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "ARM, emulated: recorded by procfs, and read a recording of this machine as it does, in \
         {seconds:.1} s; its BPF is untested"
    );
    Ok(())
}
