//! Debian packages as archives: fetched by apt, unpacked, kept, never installed.

use super::dir;
use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where one directory of a package's files is, fetched unless that was done before.
pub(super) fn directory(package: &str, directory: &str) -> Result<PathBuf> {
    kept(package, directory, |part| {
        let mut download = Command::new("apt-get");
        // Its sandbox user may not write below this checkout.
        download.args(["-qq", "-o", "APT::Sandbox::User=root", "download", package]);
        sh::run(download.current_dir(part))?;
        only_entry(part)
    })
}

/// The same of a package that is a file here.
pub(super) fn directory_of(file: &Path, package: &str, directory: &str) -> Result<PathBuf> {
    kept(package, directory, |_| Ok(file.to_owned()))
}

/// The rest of the package is not kept: a kernel's modules are most of it.
fn kept(
    package: &str,
    directory: &str,
    archive: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<PathBuf> {
    let place = dir()?.join(package);
    if place.is_dir() {
        return Ok(place);
    }
    let part = dir()?.join(format!("{package}.part"));
    if part.exists() {
        std::fs::remove_dir_all(&part)?;
    }
    std::fs::create_dir_all(&part)?;
    let archive = archive(&part)?;
    let files = part.join("files");
    sh::run(Command::new("dpkg-deb").arg("-x").args([&archive, &files]))?;
    std::fs::rename(files.join(directory), &place)
        .with_context(|| format!("{package} has no {directory}"))?;
    std::fs::remove_dir_all(&part)?;
    Ok(place)
}

fn only_entry(dir: &Path) -> Result<PathBuf> {
    let mut entries = std::fs::read_dir(dir)?;
    let entry = entries.next().context("apt-get download left nothing")??;
    Ok(entry.path())
}
