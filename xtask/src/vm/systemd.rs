//! A machine with Debian's systemd, for what memtrace asks of that: its disk has the smallest Debian that
//! boots with it, a person with a manager of their own, and the programs, which run in a session of root's
//! and end it.

use super::image::{PROGRAMS, files_below};
use super::machine::{self, Start};
use super::programs::{Programs, Test, write_plan};
use super::{PERSON, dir};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests that run in it; all others run where there is less.
pub(super) const TESTS: &str = "needs_systemd::";

const NAME: &str = "systemd";
const PACKAGES: &str = "systemd-sysv,dbus,dbus-user-session,libpam-systemd";
/// Written where systemd looks for units.
const UNIT: (&str, &str) = (
    "etc/systemd/system/memtrace-guest.service",
    "[Unit]\n\
     After=dbus.service user@1000.service\n\
     Wants=dbus.service user@1000.service\n\
     [Service]\n\
     Type=oneshot\n\
     ExecStart=/bin/sh -c 'stty -F /dev/ttyS1 raw; exec systemd-run --scope --quiet --collect \
     --unit=session-1 --slice=user-0.slice /memtrace/memtrace-guest >/dev/ttyS1'\n\
     ExecStopPost=/bin/systemctl --force poweroff\n",
);

/// What a kernel starts such a machine with.
pub(super) fn start(programs: &Programs) -> Result<Start> {
    let root = root()?;
    let inside = root.join(PROGRAMS.trim_start_matches('/'));
    if inside.exists() {
        std::fs::remove_dir_all(&inside)?;
    }
    for file in files_below(&programs.dir)? {
        let to = inside.join(file.strip_prefix(&programs.dir)?);
        std::fs::create_dir_all(to.parent().context("a directory")?)?;
        std::fs::copy(&file, &to).with_context(|| format!("failed to write {}", to.display()))?;
    }
    write_plan(&inside, &tests(programs), false)?;
    std::fs::write(root.join(UNIT.0), UNIT.1)?;
    Ok(Start {
        name: NAME.to_owned(),
        initramfs: None,
        disk: machine::disk(NAME, Some(&root))?,
        options: "root=/dev/nvme0n1 rw systemd.unit=memtrace-guest.service".to_owned(),
    })
}

/// Those that run there.
pub(super) fn tests(programs: &Programs) -> Vec<Test> {
    let tests = programs.tests.iter();
    tests
        .filter(|test| test.to_string().contains(TESTS))
        .cloned()
        .collect()
}

/// The files of its disk, made unless that was done before.
fn root() -> Result<PathBuf> {
    let place = dir()?.join(NAME);
    if place.is_dir() {
        return Ok(place);
    }
    let part = dir()?.join(format!("{NAME}.part"));
    if part.exists() {
        std::fs::remove_dir_all(&part)?;
    }
    let mut make = Command::new("mmdebstrap");
    make.args(["--mode=root", "--variant=essential", "--quiet"])
        .arg(format!("--include={PACKAGES}"))
        .arg(format!(
            "--customize-hook=chroot \"$1\" useradd --create-home --uid 1000 {PERSON}"
        ))
        .arg(codename()?)
        .arg(&part);
    sh::run(&mut make).context("mmdebstrap makes the machine's disk, as root")?;
    std::fs::rename(&part, &place)?;
    Ok(place)
}

/// Of the Debian here, whose libraries the programs were linked to.
fn codename() -> Result<String> {
    let release = std::fs::read_to_string(Path::new("/etc/os-release"))?;
    let mut lines = release.lines();
    let Some(name) = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME=")) else {
        bail!("/etc/os-release names no VERSION_CODENAME");
    };
    Ok(name.to_owned())
}
