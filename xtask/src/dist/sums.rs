//! SHA-256 of what was made.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Writes them as `sha256sum --check` reads them.
pub(super) fn write(dir: &Path, made: &[PathBuf]) -> Result<()> {
    let lines: Result<Vec<String>> = made.iter().map(|path| line(path)).collect();
    super::write(&dir.join("SHA256SUMS"), lines?.concat())
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
    let digest = Sha256::digest(bytes);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digits}  {name}\n"))
}
