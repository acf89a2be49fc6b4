//! `cargo xtask schema`: writes docs/tables.md from the tables that memtrace declares, and
//! docs/report.schema.json and docs/report-json.md from its findings; `--check` compares.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Options of `cargo xtask schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare with the committed pages; change nothing.
    #[arg(long)]
    check: bool,
}

/// Every page, and what prints it. `memtrace` carries the schema, from which it makes the page on it.
const PAGES: &[(&str, &str, &[&str])] = &[
    ("docs/tables.md", "memtrace", &["schema", "--format", "md"]),
    ("docs/report.schema.json", "examples/report_schema", &[]),
    (
        "docs/report-json.md",
        "memtrace",
        &["schema", "--report", "--format", "md"],
    ),
];

/// Writes or compares the pages.
pub(crate) fn run(args: &Args) -> Result<()> {
    for (name, program, words) in PAGES {
        // The page before may be a part of them.
        let programs = sh::build_programs(&["--example", "report_schema"])?;
        page(name, &programs.join(program), words, args.check)?;
    }
    Ok(())
}

fn page(name: &str, program: &Path, words: &[&str], is_check: bool) -> Result<()> {
    let page = sh::root().join(name);
    let fresh = sh::capture(Command::new(program).args(words))?;
    if fresh.trim().is_empty() {
        bail!("`{}` printed nothing", program.display());
    }
    if !is_check {
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
            "{name} differs from what memtrace declares at line {}; run `cargo xtask schema`",
            line + 1
        );
    }
    println!("{name} is what memtrace declares");
    Ok(())
}
