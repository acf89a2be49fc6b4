//! Installing Debian packages that tasks need.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::process::Command;

/// Installs the Debian packages of a list that are missing. Tasks that run at the same time wait for
/// each other: apt-get gives up where another one runs.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let _alone = alone()?;
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if !missing.is_empty() {
        if sh::find_in_path("apt-get").is_none() {
            bail!("this is not a Debian machine; the packages needed there are {missing:?}");
        }
        if !is_root()? {
            bail!("run as root: apt-get install {}", missing.join(" "));
        }
        sh::run(Command::new("apt-get").args(["-qq", "update"]))?;
        sh::run(
            Command::new("apt-get")
                .args(["-qq", "--no-install-recommends", "--yes", "install"])
                .args(&missing)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )?;
    }
    Ok(())
}

/// Held by one task at a time.
fn alone() -> Result<File> {
    let dir = sh::target_dir();
    std::fs::create_dir_all(&dir)?;
    let path = dir.join("debian.lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.lock()?;
    Ok(file)
}

/// Whether packages can be installed here: Debian, and root.
pub(crate) fn can_install() -> bool {
    sh::find_in_path("apt-get").is_some() && is_root().unwrap_or(false)
}

fn is_root() -> Result<bool> {
    Ok(sh::capture(Command::new("id").arg("-u"))?.trim() == "0")
}

fn is_installed(package: &str) -> bool {
    sh::capture(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]))
        .is_ok_and(|status| status.trim() == "installed")
}
