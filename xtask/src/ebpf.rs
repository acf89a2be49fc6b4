//! `cargo xtask ebpf`: builds the BPF object that is committed and embedded, so that a
//! user needs neither LLVM nor nightly; `--check` shows that the committed one is the
//! one its sources give.

mod stamp;
mod tools;

use crate::sh;
use anyhow::{Context, Result, bail};
use stamp::{Stamp, sha256_hex};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tools::Tools;

const TARGET: &str = "bpfel-unknown-none";

/// Part of the stamp's source hash, because a change here changes the object.
///
/// The architecture is fixed, or aya-ebpf's bindings would follow the machine that
/// builds and the object would not be the same everywhere. It decides nothing but the
/// layout of `pt_regs`, which a neutral object can't use anyway.
const RUSTFLAGS: &[&str] = &[
    "-Cdebuginfo=2",
    "-Clink-arg=--btf",
    "-Cpanic=abort",
    "--cfg=bpf_target_arch=\"x86_64\"",
];

/// The release profile of the workspace is for the command; a change of that one must
/// not make the object stale. Part of the stamp's source hash.
const PROFILE: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "2"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
];

/// Options of `cargo xtask ebpf`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Build beside the committed object and compare; change nothing.
    #[arg(long)]
    check: bool,
    /// First install what is missing: Debian packages (as root), and bpf-linker into
    /// target/tools.
    #[arg(long)]
    install_tools: bool,
}

/// Builds, or builds and compares.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = sh::root();
    let committed = root.join("crates/collect/bpf/memtrace.bpf.o");
    let stamp_path = root.join("crates/collect/bpf/memtrace.bpf.stamp");
    if args.install_tools {
        tools::install()?;
    }
    if args.check {
        return check(&root, &committed, &stamp_path);
    }
    // The toolchain of the stamp is preferred, so that a rebuild changes what the
    // sources changed and nothing else.
    let preferred = Stamp::read(&stamp_path).ok();
    let tools = Tools::find(preferred.as_ref().map(|stamp| &stamp.toolchain))?;
    let object = build(&root, &tools, &sh::target_dir().join("ebpf"))?;
    let stamp = Stamp::of(&root, &tools, &object)?;
    std::fs::create_dir_all(root.join("crates/collect/bpf"))?;
    std::fs::write(&committed, &object).context("failed to write the object")?;
    stamp.write(&stamp_path)?;
    println!(
        "{}: {} bytes, {}",
        committed.display(),
        object.len(),
        stamp.toolchain
    );
    Ok(())
}

fn check(root: &Path, committed: &Path, stamp_path: &Path) -> Result<()> {
    let object = std::fs::read(committed)
        .with_context(|| format!("failed to read {}", committed.display()))?;
    let stamp = Stamp::read(stamp_path)?;
    if sha256_hex(&object) != stamp.object_sha256 {
        bail!("the committed object is not the one its stamp describes; run `cargo xtask ebpf`");
    }
    let sources = stamp::hash_sources(root)?;
    if sources != stamp.sources_sha256 {
        bail!(
            "the committed object is stale: the sources below memtrace-ebpf/, their \
             dependencies or the recipe changed since it was built; run `cargo xtask ebpf`"
        );
    }
    let tools = Tools::find(Some(&stamp.toolchain))?;
    let target_dir = sh::target_dir().join("ebpf-check");
    let fresh = build(root, &tools, &target_dir)?;
    let fresh_path = target_dir.join("memtrace.bpf.o");
    std::fs::write(&fresh_path, &fresh).context("failed to write the fresh object")?;
    if tools.toolchain() == stamp.toolchain {
        if fresh != object {
            bail!(
                "the same sources and toolchain give another object ({} bytes, committed {}): \
                 compare {} with {}",
                fresh.len(),
                object.len(),
                fresh_path.display(),
                committed.display()
            );
        }
        println!("the committed object is byte for byte what its sources give");
    } else {
        println!(
            "the committed object comes from these sources by its stamp; its bytes could not be \
             compared, because the toolchain here differs\n  here:  {}\n  stamp: {}\n\
             the object built here is {}",
            tools.toolchain(),
            stamp.toolchain,
            fresh_path.display()
        );
    }
    Ok(())
}

/// Builds the object and gives its bytes, without DWARF.
fn build(root: &Path, tools: &Tools, target_dir: &Path) -> Result<Vec<u8>> {
    // The registry's directories must exist before their names can be mapped away.
    sh::run(
        sh::cargo()
            .current_dir(root)
            .args(["fetch", "--locked", "--quiet"]),
    )?;
    let mut cargo = tools.cargo();
    cargo
        .current_dir(root)
        .args(["build", "--release", "--locked", "-Zbuild-std=core"])
        .args(["--package", "memtrace-ebpf", "--bin", "memtrace-bpf"])
        .args(["--features", "bpf", "--target", TARGET, "--target-dir"])
        .arg(target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(root, tools)?)
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .envs(PROFILE.iter().copied());
    sh::run(&mut cargo)?;

    let linked = target_dir.join(TARGET).join("release/memtrace-bpf");
    let stripped = target_dir.join("memtrace-bpf.stripped");
    // DWARF is what bpf-linker makes BTF from, and of no use afterwards: the kernel and
    // aya read .BTF and .BTF.ext, and aya also the symbol table.
    sh::run(
        tools
            .objcopy()
            .arg("--strip-debug")
            .arg(&linked)
            .arg(&stripped),
    )?;
    std::fs::read(&stripped).with_context(|| format!("failed to read {}", stripped.display()))
}

/// The flags, with every path of this machine mapped to a name: BTF line information
/// holds file names, and they must not depend on who builds.
fn rustflags(root: &Path, tools: &Tools) -> Result<OsString> {
    let mut flags: Vec<OsString> = RUSTFLAGS.iter().map(OsString::from).collect();
    let cargo_home = cargo_home()?;
    let mut mappings = vec![
        (cargo_home.clone(), "/cargo".to_owned()),
        (root.to_path_buf(), "/memtrace".to_owned()),
    ];
    for dir in tools.library_sources() {
        mappings.push((dir.clone(), "/rust/library".to_owned()));
    }
    // The directory of a registry carries a hash of its address, which differs behind a
    // mirror. rustc takes the last mapping that fits, so these follow the general one.
    let registries = cargo_home.join("registry/src");
    if let Ok(entries) = std::fs::read_dir(&registries) {
        for entry in entries {
            mappings.push((entry?.path(), "/crates".to_owned()));
        }
    }
    for (from, to) in mappings {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        flags.push(flag);
    }
    Ok(flags.join(&OsString::from("\x1f")))
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(dir));
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cargo"))
}
