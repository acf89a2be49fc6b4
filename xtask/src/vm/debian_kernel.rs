//! Kernels that exist as Debian packages, or as such a package's file.

use super::{dir, package};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's kernels for virtual machines: the smallest, with every driver needed here
/// built in.
const FLAVOUR: &str = "-cloud-amd64";

/// A kernel that exists as a package.
pub(super) struct Kernel {
    /// Name of the package.
    pub(super) package: String,
    /// Its file; apt fetches it where there is none.
    file: Option<PathBuf>,
}

impl Kernel {
    /// The newest of a series, or the one of a package's name or file.
    pub(super) fn named(name: &str) -> Result<Self> {
        let file = Path::new(name);
        if file.extension().is_some_and(|kind| kind == "deb") {
            let package = file.file_stem().context("the file has no name")?;
            // One of the same name can have been another.
            let kept = dir()?.join(package);
            if kept.exists() {
                std::fs::remove_dir_all(&kept)?;
            }
            return Ok(Self {
                package: package.to_string_lossy().into_owned(),
                file: Some(std::fs::canonicalize(file).with_context(|| name.to_owned())?),
            });
        }
        if name.starts_with("linux-image-") {
            return Ok(Self::packaged(name.to_owned()));
        }
        let mut newest = newest_of_series(&packages()?);
        match newest.remove(name) {
            Some(package) => Ok(Self::packaged(package)),
            None => bail!(
                "there is no package linux-image-{name}…{FLAVOUR}; the series are {}",
                newest.into_keys().collect::<Vec<_>>().join(", ")
            ),
        }
    }

    /// The newest kernel of each series.
    pub(super) fn of_every_series() -> Result<Vec<Self>> {
        let mut newest: Vec<String> = newest_of_series(&packages()?).into_values().collect();
        if newest.is_empty() {
            bail!("apt knows no package linux-image-…{FLAVOUR}; run `apt-get update`");
        }
        newest.sort_by_key(|package| numbers(package));
        Ok(newest.into_iter().map(Self::packaged).collect())
    }

    fn packaged(package: String) -> Self {
        let file = None;
        Self { package, file }
    }

    /// A disk whose driver is built in: Debian's kernels for virtual machines have that of NVMe,
    /// Ubuntu's that of IDE.
    pub(super) fn disk_device(&self) -> &'static str {
        match self.package.contains("-cloud-") {
            true => "nvme,drive=disk,serial=memtrace",
            false => "ide-hd,drive=disk",
        }
    }

    /// The file to boot.
    pub(super) fn image(&self) -> Result<PathBuf> {
        let boot = match &self.file {
            Some(file) => package::directory_of(file, &self.package, "boot")?,
            None => package::directory(&self.package, "boot")?,
        };
        for entry in std::fs::read_dir(&boot)? {
            let entry = entry?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(b"vmlinuz-")
            {
                return Ok(entry.path());
            }
        }
        bail!("{} has no boot/vmlinuz-*", self.package)
    }
}

/// Every package of the flavour that apt knows, and every one that is kept here.
fn packages() -> Result<Vec<String>> {
    let known = sh::capture(Command::new("apt-cache").args(["pkgnames", "linux-image-"]))?;
    let mut packages: Vec<String> = known.lines().map(str::to_owned).collect();
    for entry in std::fs::read_dir(dir()?)?.flatten() {
        packages.extend(entry.file_name().into_string().ok());
    }
    packages.retain(|name| name.starts_with("linux-image-") && name.ends_with(FLAVOUR));
    Ok(packages)
}

/// The numbers in a name, which order the versions in it.
fn numbers(package: &str) -> Vec<u32> {
    package
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// By series ("6.12") the package with the highest version. Packages without a third
/// number stand for whichever is the newest, and hold nothing themselves.
fn newest_of_series(packages: &[String]) -> BTreeMap<String, String> {
    let mut newest: BTreeMap<String, String> = BTreeMap::new();
    for package in packages {
        let version = package
            .trim_start_matches("linux-image-")
            .trim_end_matches(FLAVOUR);
        let [major, minor, _, ..] = numbers(version)[..] else {
            continue;
        };
        let newer = newest.entry(format!("{major}.{minor}")).or_default();
        if numbers(package) > numbers(newer) {
            newer.clone_from(package);
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_each_series_is_reported_by_its_numbers() {
        let packages = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.99+deb12-cloud-amd64",
            "linux-image-6.12-cloud-amd64",
            "linux-image-cloud-amd64",
        ];
        let newest = newest_of_series(&packages.map(str::to_owned));
        let newest: Vec<_> = newest.into_values().collect();
        assert_eq!(
            newest,
            [
                "linux-image-6.1.0-56-cloud-amd64",
                "linux-image-6.12.117+deb12-cloud-amd64"
            ]
        );
    }
}
