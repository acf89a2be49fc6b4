//! Installs each package into a clean root, or environment, and records something real there.

mod others;

use super::{Release, emptied, wheel};
use crate::sh;
use crate::venv::Venv;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Debian 11 to 13: glibc 2.31, 2.36 and 2.41.
const SUITES: &[&str] = &["bullseye", "bookworm", "trixie"];
/// What is held by the program that is recorded.
const HELD_BYTES: u64 = 300 << 20;
/// From the file to the first report.
const LIMIT_S: f64 = 10.0;
/// Where a root has the packages.
const PACKAGES: &str = "/packages";

/// Tries what was made for this machine.
pub(super) fn run(release: &Release, made: &[PathBuf]) -> Result<()> {
    let named = |part: &str| {
        let is = |path: &&PathBuf| file_name(path).contains(part);
        made.iter().find(is).cloned()
    };
    let tarball = named("linux-x86_64.tar.gz").context("no tarball was made")?;
    let deb = named(".deb").context("no Debian package was made")?;
    for suite in SUITES {
        let root = Root::of(suite)?;
        let unpack = format!(
            "tar -xzf {PACKAGES}/{} --strip-components=1",
            file_name(&tarball)
        );
        root.record(
            &format!("{suite}, tarball"),
            &[&tarball],
            &unpack,
            "bin/memtrace",
        )?;
        let install = format!("dpkg --install {PACKAGES}/{}", file_name(&deb));
        root.record(
            &format!("{suite}, deb"),
            &[&deb],
            &install,
            "/usr/bin/memtrace",
        )?;
        root.run(&[], "dpkg --purge memtrace && ! test -e /usr/bin/memtrace")?;
    }
    sh::run(
        Command::new("lintian")
            .args([
                "--fail-on",
                "error,warning",
                "--info",
                "--tag-display-limit",
                "0",
            ])
            // That one is for what goes into Debian itself.
            .args([
                "--allow-root",
                "--suppress-tags",
                "initial-upload-closes-no-bugs",
            ])
            .arg(&deb),
    )?;
    python(release)?;
    let sources = made.iter();
    let sources: Vec<&PathBuf> = sources
        .filter(|path| wheel::is_source(&file_name(path), release))
        .collect();
    from_source(release, &sources)?;
    if let Some(image) = named("-image-") {
        container(&image)?;
    }
    others::run(release, made)
}

/// A clean Debian.
struct Root {
    dir: PathBuf,
}

impl Root {
    /// Made once, and used again: every trial has a directory of its own.
    fn of(suite: &str) -> Result<Self> {
        let dir = sh::target_dir().join("dist-roots").join(suite);
        if !dir.join("usr").is_dir() {
            emptied(dir.clone())?;
            sh::run(
                Command::new("mmdebstrap")
                    .args([
                        "--quiet",
                        "--variant=apt",
                        "--include=python3-minimal,debconf",
                        suite,
                    ])
                    .arg(&dir),
            )?;
        }
        Ok(Self { dir })
    }

    /// Runs a script in it, which sees this machine's /proc, /sys and /dev, and the packages. Gives
    /// what it prints.
    fn run(&self, packages: &[&PathBuf], script: &str) -> Result<String> {
        let shared = emptied(self.dir.join(PACKAGES.trim_start_matches('/')))?;
        for package in packages {
            std::fs::copy(package, shared.join(file_name(package)))?;
        }
        let outer = r#"for dir in proc sys dev; do mount --rbind "/$dir" "$0/$dir"; done
mount -t tmpfs none "$0/run"
exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    DEBIAN_FRONTEND=noninteractive sh -e -c "$1""#;
        sh::capture(
            Command::new("unshare")
                .args([
                    "--mount",
                    "--propagation",
                    "private",
                    "sh",
                    "-e",
                    "-c",
                    outer,
                ])
                .arg(&self.dir)
                .arg(script),
        )
    }

    /// Installs by a command, records a program and looks at the report.
    fn record(
        &self,
        name: &str,
        packages: &[&PathBuf],
        install: &str,
        memtrace: &str,
    ) -> Result<()> {
        let script = format!(
            "rm -rf /trial && mkdir /trial && cd /trial\n{install} >&2\n{}",
            recording(memtrace, "python3")
        );
        let start = Instant::now();
        let report = self.run(packages, &script)?;
        reported(name, start, &report)
    }
}

/// A script that records a program, and prints the report.
fn recording(memtrace: &str, python: &str) -> String {
    format!(
        "{memtrace} --version >&2\n\
         {memtrace} record --quiet -o recording -- \
         {python} -c 'import time; held = b\"x\" * {HELD_BYTES}; time.sleep(1)'\n\
         {memtrace} report recording --format json"
    )
}

/// Says what a report found, if that is right, and took no longer than it may.
fn reported(name: &str, start: Instant, report: &str) -> Result<()> {
    let seconds = start.elapsed().as_secs_f64();
    check(name, "bpf", report)?;
    if seconds > LIMIT_S {
        bail!("{name}: {seconds:.1} s from the file to the report, more than {LIMIT_S} s");
    }
    println!("{name}: installed, recorded by bpf and reported in {seconds:.1} s");
    Ok(())
}

/// Whether a report has what was held, and who recorded it.
fn check(name: &str, by: &str, report: &str) -> Result<()> {
    let report: serde_json::Value =
        serde_json::from_str(report).with_context(|| format!("{name}: the report is no JSON"))?;
    let peak = report["processes"][0]["peak"]["rss_bytes"].as_u64();
    let backend = report["recording"]["backend"]
        .as_str()
        .unwrap_or("no backend");
    let least = HELD_BYTES;
    if !peak.is_some_and(|peak| (least..least + (64 << 20)).contains(&peak)) {
        bail!("{name}: the process held {least} bytes, and the report says {peak:?}");
    }
    if backend != by {
        bail!(
            "{name}: recorded by {backend}: {}",
            report["recording"]["backend_reason"]
        );
    }
    Ok(())
}

/// All packages for Python in an environment of its own, without the network.
fn python(release: &Release) -> Result<()> {
    let dir = emptied(release.dir.join("trial"))?;
    let venv = Venv::at(dir.join("venv"));
    venv.make()?;
    let (bin, packages) = (venv.dir().join("bin"), release.dir.display());
    let script = format!(
        "{0}/pip install --quiet --no-index --find-links {packages} 'memtrace-python[remote]' >&2\n\
         {0}/python3 -c 'import memtrace; memtrace.mark(\"tried\")' >&2\n{1}",
        bin.display(),
        recording(&bin.join("memtrace").display().to_string(), "python3")
    );
    let start = Instant::now();
    let mut command = Command::new("sh");
    let report = sh::capture(command.current_dir(&dir).args(["-e", "-c", &script]))?;
    reported("wheels", start, &report)?;
    finds_remote(&bin.join("memtrace"))
}

/// The source packages, which pip compiles in an environment of its own: that takes minutes, and pip
/// fetches what it builds with.
fn from_source(release: &Release, packages: &[&PathBuf]) -> Result<()> {
    let dir = emptied(release.dir.join("trial-source"))?;
    let venv = Venv::at(dir.join("venv"));
    venv.install(packages)?;
    let memtrace = venv.program("memtrace");
    let script = recording(&memtrace.display().to_string(), "python3");
    let start = Instant::now();
    let mut command = Command::new("sh");
    let report = sh::capture(command.current_dir(&dir).args(["-e", "-c", &script]))?;
    reported("source packages, once compiled", start, &report)?;
    finds_remote(&memtrace)
}

/// `memtrace-remote` answers this.
fn finds_remote(memtrace: &Path) -> Result<()> {
    let said = sh::capture(Command::new(memtrace).args(["load", "--help"]))?;
    if !said.contains("memtrace load") {
        bail!("`memtrace load --help` says: {said}");
    }
    Ok(())
}

/// The image, as what is in it, without what starts containers.
fn container(image: &Path) -> Result<()> {
    let buildah = |words: &[&str]| {
        let mut command = Command::new("buildah");
        let said = sh::capture(command.args(["--storage-driver", "vfs"]).args(words))?;
        Ok::<_, anyhow::Error>(said.trim().to_owned())
    };
    let container = buildah(&["from", &format!("oci-archive:{}", image.display())])?;
    let mounted = buildah(&["mount", &container])?;
    let start = Instant::now();
    // As who starts containers would; there is no shell in it, and memtrace records itself.
    let script = r#"cd "$0" && mkdir -p proc sys dev run data
for dir in proc sys dev; do mount --rbind "/$dir" "$dir"; done
mount -t tmpfs none run
chroot . /usr/bin/memtrace record --quiet -o /data/recording -- /usr/bin/memtrace schema >&2
chroot . /usr/bin/memtrace report /data/recording --format json"#;
    let said = sh::capture(
        Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-e",
                "-c",
                script,
            ])
            .arg(mounted),
    );
    buildah(&["rm", &container])?;
    let report: serde_json::Value = serde_json::from_str(&said?)?;
    if report["recording"]["backend"] != "bpf" {
        bail!("the image recorded by {}", report["recording"]["backend"]);
    }
    println!(
        "image: recorded and reported in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
