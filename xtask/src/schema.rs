//! `cargo xtask schema`: writes docs/tables.md from the tables that memtrace declares;
//! `--check` compares.

use crate::sh;
use anyhow::{Context, Result, bail};

/// Options of `cargo xtask schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare with the committed page; change nothing.
    #[arg(long)]
    check: bool,
}

/// Writes or compares the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    let page = sh::root().join("docs/tables.md");
    let fresh = sh::capture(
        sh::cargo()
            .current_dir(sh::root())
            .args(["run", "--quiet", "--locked", "--package", "memtrace", "--"])
            .args(["schema", "--format", "md"]),
    )?;
    if fresh.trim().is_empty() {
        bail!("`memtrace schema --format md` printed nothing");
    }
    if !args.check {
        return std::fs::write(&page, &fresh)
            .with_context(|| format!("failed to write {}", page.display()));
    }
    let committed = std::fs::read_to_string(&page)
        .with_context(|| format!("failed to read {}", page.display()))?;
    if committed != fresh {
        let line = committed
            .lines()
            .zip(fresh.lines())
            .position(|(committed, fresh)| committed != fresh)
            .unwrap_or_else(|| committed.lines().count().min(fresh.lines().count()));
        bail!(
            "docs/tables.md differs from the declared tables at line {}; run `cargo xtask schema`",
            line + 1
        );
    }
    println!("docs/tables.md is what the tables declare");
    Ok(())
}
