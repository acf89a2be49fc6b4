//! Python packages: one with the command, one for Python programs, which stays pure.

use super::programs::HOST;
use super::toolchain::Toolchain;
use super::{Release, emptied, stage, write};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the package with the command, as its files have it.
const NAME: &str = "memtrace_recorder";
/// Any Python: there is only a program in it.
const TAG: &str = "py3-none";
/// As Python calls what the programs run on.
const PLATFORM: &str = "manylinux2014_x86_64";

/// Packs the programs that are built: maturin would compile them once more.
pub(super) fn pack(staged: &Path, toolchain: &Toolchain, release: &Release) -> Result<PathBuf> {
    let version = &release.version;
    let dir = emptied(release.dir.join("wheel").join(HOST.name))?;
    let info = dir.join(format!("{NAME}-{version}.dist-info"));
    let scripts = dir.join(format!("{NAME}-{version}.data/scripts"));
    std::fs::create_dir_all(&scripts)?;
    for program in super::programs::PROGRAMS {
        std::fs::copy(staged.join("bin").join(program), scripts.join(program))?;
    }
    let platform = PLATFORM;
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: memtrace xtask\nRoot-Is-Purelib: false\nTag: {TAG}-{platform}\n"
    );
    write(&info.join("WHEEL"), wheel)?;
    write(&info.join("METADATA"), metadata(toolchain, release)?)?;
    for file in ["LICENSE", "THIRD-PARTY-LICENSES"] {
        let text = std::fs::read(stage::documents(staged).join(file))?;
        write(&info.join("licenses").join(file), text)?;
    }
    for program in super::programs::PROGRAMS {
        let file = format!("{program}.cdx.json");
        write(
            &info.join("sboms").join(&file),
            std::fs::read(stage::documents(staged).join(&file))?,
        )?;
    }
    sh::run(
        Command::new(toolchain.python())
            .args(["-m", "wheel", "pack"])
            .arg(&dir)
            .arg("--dest-dir")
            .arg(&release.dir)
            .env("SOURCE_DATE_EPOCH", &release.epoch),
    )?;
    let packed = release
        .dir
        .join(format!("{NAME}-{version}-{TAG}-{platform}.whl"));
    packed
        .metadata()
        .with_context(|| format!("{} was not made", packed.display()))?;
    Ok(packed)
}

/// What pip shows of the package: as maturin makes it of python/recorder/pyproject.toml.
fn metadata(toolchain: &Toolchain, release: &Release) -> Result<String> {
    let dir = emptied(release.dir.join("metadata"))?;
    let script = "import sys, maturin; \
                  print(maturin.prepare_metadata_for_build_wheel(sys.argv[1]))";
    let said = sh::capture(
        Command::new(toolchain.python())
            .current_dir(sh::root().join("python/recorder"))
            .args(["-c", script])
            .arg(&dir)
            .env("PATH", toolchain.path()),
    )?;
    let name = said.lines().last().context("maturin named no directory")?;
    let text = std::fs::read_to_string(dir.join(name).join("METADATA"))?;
    if !text.contains(&format!("\nVersion: {}\n", release.version)) {
        bail!(
            "python/recorder/pyproject.toml has not the version {}",
            release.version
        );
    }
    Ok(text)
}

/// The sources of the command, from which pip builds it where there is no wheel and a Rust compiler.
/// It has no `memtrace-remote`: a Python package is of one crate.
pub(super) fn pack_source(toolchain: &Toolchain, release: &Release) -> Result<PathBuf> {
    sh::run(
        Command::new(toolchain.python())
            .current_dir(sh::root().join("python/recorder"))
            .args(["-m", "maturin", "sdist", "--out"])
            .arg(&release.dir)
            .env("PATH", toolchain.path())
            .env("SOURCE_DATE_EPOCH", &release.epoch),
    )?;
    let packed = release
        .dir
        .join(format!("{NAME}-{}.tar.gz", release.version));
    packed
        .metadata()
        .with_context(|| format!("{} was not made", packed.display()))?;
    let listed = sh::capture(Command::new("tar").arg("-tzf").arg(&packed))?;
    let licence = format!("{NAME}-{}/LICENSE", release.version);
    check_licence(&listed, &licence, &packed)?;
    Ok(packed)
}

/// In the folders of Python's packages the licence is a link to that of the checkout; what packs them
/// finds it by its name.
fn check_licence(listed: &str, licence: &str, packed: &Path) -> Result<()> {
    if !listed.contains(licence) {
        bail!("{} has no {licence}", packed.display());
    }
    Ok(())
}

/// The package for Python programs.
pub(super) fn pack_python(toolchain: &Toolchain, release: &Release) -> Result<PathBuf> {
    let extra = format!("memtrace-recorder=={}\"", release.version);
    if !std::fs::read_to_string(sh::root().join("python/pyproject.toml"))?.contains(&extra) {
        bail!(
            "the extra `recorder` of python/pyproject.toml has not the version {}",
            release.version
        );
    }
    let dir = emptied(release.dir.join("python"))?;
    sh::run(
        Command::new(toolchain.python())
            .args(["-m", "build", "--wheel", "--outdir"])
            .arg(&dir)
            .arg(sh::root().join("python"))
            .env("SOURCE_DATE_EPOCH", &release.epoch),
    )?;
    let made = std::fs::read_dir(&dir)?
        .next()
        .context("no package for Python was made")??;
    let packed = release.dir.join(made.file_name());
    std::fs::copy(made.path(), &packed)?;
    let listed = sh::capture(
        Command::new(toolchain.python())
            .args(["-m", "zipfile", "-l"])
            .arg(&packed),
    )?;
    check_licence(&listed, ".dist-info/licenses/LICENSE", &packed)?;
    Ok(packed)
}
