//! SHA-256 of what was made.

use crate::hex::hexadecimal;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// What has them.
const FILE: &str = "SHA256SUMS";

/// Writes them as `sha256sum --check` reads them.
pub(super) fn write(dir: &Path, made: &[PathBuf]) -> Result<()> {
    let lines: Result<Vec<String>> = made.iter().map(|path| line(path)).collect();
    super::write(&dir.join(FILE), lines?.concat())
}

/// That what was made since is the same.
pub(super) fn check(dir: &Path, made: &[PathBuf]) -> Result<()> {
    let file = dir.join(FILE);
    let written = std::fs::read_to_string(&file)
        .with_context(|| format!("failed to read {}", file.display()))?;
    for path in made {
        if !written.contains(&line(path)?) {
            bail!("{} is another when it is made again", path.display());
        }
    }
    println!(
        "{} packages are the same when they are made again",
        made.len()
    );
    Ok(())
}

/// Prints them with their sizes.
pub(super) fn show(made: &[PathBuf]) -> Result<()> {
    for path in made {
        let mebibytes = path.metadata()?.len() as f64 / f64::from(1 << 20);
        println!("{mebibytes:7.2} MiB  {}", path.display());
    }
    Ok(())
}

fn line(path: &Path) -> Result<String> {
    let bytes =
        std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let name = path
        .file_name()
        .context("a package has a name")?
        .to_string_lossy();
    let digits = hexadecimal(&Sha256::digest(bytes));
    Ok(format!("{digits}  {name}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_another_when_it_is_made_again_is_named() -> Result<()> {
        let dir = std::env::temp_dir().join(format!("memtrace-sums-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let made = ["one.tar.gz", "two.tar.gz"].map(|name| dir.join(name));
        for path in &made {
            std::fs::write(path, "the same")?;
        }
        write(&dir, &made)?;
        let same = check(&dir, &made);
        std::fs::write(&made[1], "another")?;
        let other = check(&dir, &made).map_err(|error| error.to_string());
        std::fs::remove_dir_all(&dir)?;
        same?;
        assert!(other.is_err_and(|said| said.contains("two.tar.gz is another")));
        Ok(())
    }
}
