//! `cargo xtask deny`: licences and origins of dependencies, by cargo-deny and deny.toml.
//!
//! Security advisories are asked for by `--advisories`: they need the network, and a new
//! one would fail a build that nobody changed.

use crate::sh;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

const VERSION: &str = "0.20.2";

/// Options of `cargo xtask deny`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First install cargo-deny into target/tools where it is missing.
    #[arg(long)]
    install_tools: bool,
    /// Check the database of security advisories too.
    #[arg(long)]
    advisories: bool,
}

/// Checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.install_tools && find().is_none() {
        sh::run(
            sh::cargo()
                // It runs for seconds: not worth minutes of optimising.
                .args([
                    "install",
                    "--debug",
                    "--locked",
                    "--version",
                    VERSION,
                    "--root",
                ])
                .arg(sh::target_dir().join("tools"))
                .arg("cargo-deny"),
        )?;
    }
    let program =
        find().context("cargo-deny is not installed; run `cargo xtask deny --install-tools`")?;
    let mut deny = Command::new(program);
    deny.current_dir(sh::root())
        .args(["--locked", "check", "licenses", "bans", "sources"]);
    if args.advisories {
        deny.arg("advisories");
    }
    sh::run(&mut deny)
}

fn find() -> Option<PathBuf> {
    let own = sh::target_dir().join("tools/bin/cargo-deny");
    [Some(own), sh::find_in_path("cargo-deny")]
        .into_iter()
        .flatten()
        .find(|program| program.is_file())
}
