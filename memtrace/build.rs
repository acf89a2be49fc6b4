//! Packs the JSON Schema of reports, and learns how memtrace is built, for `memtrace --version`.

use std::error::Error;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    memtrace_packed::pack("report.schema.json", &["src/cli/schema/report.schema.json"])?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    println!(
        "cargo::rustc-env=MEMTRACE_BUILD={}",
        build(Path::new(&out))?
    );
    Ok(())
}

/// The profile, what for, and by which compiler.
fn build(out: &Path) -> Result<String, Box<dyn Error>> {
    let variable = |name| std::env::var(name).map_err(|_| format!("cargo sets {name}"));
    // PROFILE is the one that a profile of our own inherits from. Its own name is where cargo builds:
    // <profile>/build/memtrace-<hash>/out.
    let mut above = out.ancestors().skip_while(|dir| !dir.ends_with("build"));
    let profile = match above.nth(1).and_then(Path::file_name) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => variable("PROFILE")?,
    };
    let rustc = Command::new(variable("RUSTC")?).arg("--version").output()?;
    let rustc = String::from_utf8(rustc.stdout)?;
    let target = variable("TARGET")?;
    Ok(format!("profile {profile} for {target}, {}", rustc.trim()))
}
