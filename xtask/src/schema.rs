//! `cargo xtask schema`: writes docs/tables.md from the tables that memtrace declares, and
//! docs/report.schema.json and docs/report-json.md from its findings; `--check` compares.

use crate::sh;
use anyhow::{Context, Result, bail};

/// Options of `cargo xtask schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare with the committed pages; change nothing.
    #[arg(long)]
    check: bool,
}

/// Every page, and what `cargo run` prints it with. `memtrace` carries the schema, from which it makes the
/// page on it.
const PAGES: &[(&str, &[&str])] = &[
    (
        "docs/tables.md",
        &["--bin", "memtrace", "--", "schema", "--format", "md"],
    ),
    ("docs/report.schema.json", &["--example", "report_schema"]),
    (
        "docs/report-json.md",
        &[
            "--bin", "memtrace", "--", "schema", "--report", "--format", "md",
        ],
    ),
];

/// Writes or compares the pages.
pub(crate) fn run(args: &Args) -> Result<()> {
    for (name, command) in PAGES {
        page(name, command, args.check)?;
    }
    Ok(())
}

fn page(name: &str, command: &[&str], is_check: bool) -> Result<()> {
    let page = sh::root().join(name);
    let fresh = sh::capture(
        sh::cargo()
            .current_dir(sh::root())
            .args(["run", "--quiet", "--locked", "--package", "memtrace"])
            .args(command),
    )?;
    if fresh.trim().is_empty() {
        bail!("`cargo run {}` printed nothing", command.join(" "));
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
