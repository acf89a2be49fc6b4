//! Deflates what memtrace carries beside its code: some 0.7 MiB, of which a sixth remains. `model::packed`
//! gives it back. And learns how it is built, for `memtrace --version`.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// What is carried, and the files that it is made of, in their order.
const CARRIED: &[(&str, &[&str])] = &[
    ("memtrace.bpf.o", &["bpf/memtrace.bpf.o"]),
    ("report.schema.json", &["src/cli/schema/report.schema.json"]),
    // uPlot, as its package has it (src/page/vendor/README.md), and its style.
    ("charts.js", &["src/page/vendor/uPlot.iife.min.js"]),
    ("charts.css", &["src/page/vendor/uPlot.min.css"]),
    ("page.css", &["src/page/page.css"]),
    (
        "page.js",
        &[
            "src/page/script/words.js",
            "src/page/script/series.js",
            "src/page/script/dom.js",
            "src/page/script/colours.js",
            "src/page/script/clock.js",
            "src/page/script/view.js",
            "src/page/script/chart.js",
            "src/page/script/overlay.js",
            "src/page/script/readout.js",
            "src/page/script/memory.js",
            "src/page/script/gpus.js",
            "src/page/script/icicle.js",
            "src/page/script/ledger.js",
            "src/page/script/pinned.js",
            "src/page/script/lanes.js",
            "src/page/script/phases.js",
            "src/page/script/steps.js",
            "src/page/script/processes.js",
            "src/page/script/compare.js",
            "src/page/script/about.js",
            "src/page/script/run.js",
            "src/page/script/panels.js",
            "src/page/script/runtables.js",
            "src/page/script/page.js",
        ],
    ),
];

/// Where the page's script is.
const SCRIPT: &str = "src/page/script";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    // One that is forgotten would fail in the browser only.
    println!("cargo::rerun-if-changed={SCRIPT}");
    for entry in std::fs::read_dir(SCRIPT)? {
        let path = entry?.path();
        let is_script = path.extension().is_some_and(|ending| ending == "js");
        let mut carried = CARRIED.iter().flat_map(|(_, files)| *files);
        if is_script && !carried.any(|file| Path::new(file) == path) {
            return Err(format!("build.rs does not carry {}", path.display()).into());
        }
    }
    for (name, files) in CARRIED {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        for file in *files {
            println!("cargo::rerun-if-changed={file}");
            let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            encoder.write_all(&bytes)?;
        }
        std::fs::write(Path::new(&out).join(name), encoder.finish()?)?;
    }
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
