//! `cargo xtask macos`: type-checks memtrace for macOS from Linux.
//!
//! No Apple SDK is needed for that: only C files of dependencies (zstd) are compiled, and
//! zig brings the headers. The standard library is built from Debian's source package, or
//! from a rustup nightly with rust-src.

use crate::compiler::Compiler;
use crate::venv::Venv;
use crate::{debian, sh};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

const TARGET: &str = "aarch64-apple-darwin";
const ZIG: &str = "ziglang==0.15.1";

/// Options of `cargo xtask macos`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First install what is missing: Debian packages (as root), and zig into target/zig.
    #[arg(long)]
    install_tools: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let venv = Venv::named("zig");
    if args.install_tools {
        debian::install(&["rustc-web", "rust-web-src"])?;
        venv.install([ZIG])?;
    }
    let has_zig = sh::capture(venv.python().args(["-m", "ziglang", "version"])).is_ok();
    if !has_zig {
        bail!(
            "{} has no zig; run `cargo xtask macos --install-tools`",
            venv.dir().display()
        );
    }
    let compiler = Compiler::find(None, None)?;
    let cc = wrapper(&venv, "cc", "cc -target aarch64-macos")?;
    let ar = wrapper(&venv, "ar", "ar")?;
    let underscored = TARGET.replace('-', "_");
    sh::run(
        compiler
            .cargo()
            .current_dir(sh::root())
            .args(["check", "--locked", "-Zbuild-std", "--package", "memtrace"])
            .args(["--target", TARGET, "--target-dir"])
            .arg(sh::target_dir().join("macos"))
            .env(format!("CC_{underscored}"), cc)
            .env(format!("AR_{underscored}"), ar)
            .env("RUSTFLAGS", "-Dwarnings"),
    )?;
    println!("memtrace type-checks for {TARGET}");
    Ok(())
}

/// A program that calls zig without the options that Apple's compiler knows and zig does
/// not: the cc crate passes them for every Apple target.
fn wrapper(venv: &Venv, name: &str, command: &str) -> Result<PathBuf> {
    let path = venv.dir().join(format!("{name}-for-macos"));
    let script = format!(
        r#"#!/bin/sh
# Written by cargo xtask macos.
skip=
for argument do
    shift
    if [ -n "$skip" ]; then skip=; continue; fi
    case "$argument" in
        -arch) skip=1 ;;
        -mmacosx-version-min=*|--target=*) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{}' -m ziglang {command} "$@"
"#,
        venv.program("python3").display()
    );
    std::fs::write(&path, script).with_context(|| format!("failed to write {}", path.display()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode)?;
    Ok(path)
}
