//! Python packages: one with each program, and one for Python programs, which stays pure.

use super::programs::Programs;
use super::toolchain::Toolchain;
use super::{Release, emptied, stage, write};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package with a program.
struct ProgramPackage {
    program: &'static str,
    /// As its files are called.
    name: &'static str,
    /// Where its pyproject.toml is.
    dir: &'static str,
}

const PACKAGES: &[ProgramPackage] = &[
    ProgramPackage {
        program: "memtrace",
        name: "memtrace_recorder",
        dir: "python/recorder",
    },
    ProgramPackage {
        program: "memtrace-remote",
        name: "memtrace_remote",
        dir: "python/remote",
    },
];
/// Any Python: there is only a program in it.
const TAG: &str = "py3-none";

/// As Python calls what the programs run on.
fn platform(programs: &Programs) -> &'static str {
    match programs.is_release {
        true => "manylinux2014_x86_64",
        false => "linux_x86_64",
    }
}

/// Wheels and source packages of the programs, and the package for Python programs.
pub(super) fn pack(
    staged: &Path,
    programs: &Programs,
    toolchain: &Toolchain,
    release: &Release,
) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for package in PACKAGES {
        made.push(package.pack(staged, platform(programs), toolchain, release)?);
        made.push(package.pack_source(toolchain, release)?);
    }
    made.push(pack_python(toolchain, release)?);
    Ok(made)
}

/// Whether a file is a source package of a program.
pub(super) fn is_source(file: &str, release: &Release) -> bool {
    let of = |package: &ProgramPackage| file == package.source_file(release);
    PACKAGES.iter().any(of)
}

impl ProgramPackage {
    /// Packs the program that is built: maturin would compile it once more.
    fn pack(
        &self,
        staged: &Path,
        platform: &str,
        toolchain: &Toolchain,
        release: &Release,
    ) -> Result<PathBuf> {
        let (name, program, version) = (self.name, self.program, &release.version);
        let dir = emptied(release.dir.join("wheel").join(name))?;
        let info = dir.join(format!("{name}-{version}.dist-info"));
        let scripts = dir.join(format!("{name}-{version}.data/scripts"));
        std::fs::create_dir_all(&scripts)?;
        std::fs::copy(staged.join("bin").join(program), scripts.join(program))?;
        let wheel = format!(
            "Wheel-Version: 1.0\nGenerator: memtrace xtask\nRoot-Is-Purelib: false\nTag: {TAG}-{platform}\n"
        );
        write(&info.join("WHEEL"), wheel)?;
        write(&info.join("METADATA"), self.metadata(toolchain, release)?)?;
        let bill = format!("{program}.cdx.json");
        for (folder, file) in [
            ("licenses", "LICENSE"),
            ("licenses", "THIRD-PARTY-LICENSES"),
            ("sboms", bill.as_str()),
        ] {
            let text = std::fs::read(stage::documents(staged).join(file))?;
            write(&info.join(folder).join(file), text)?;
        }
        sh::run(
            Command::new(toolchain.python())
                .args(["-m", "wheel", "pack"])
                .arg(&dir)
                .arg("--dest-dir")
                .arg(&release.dir)
                .env("SOURCE_DATE_EPOCH", &release.epoch),
        )?;
        made(
            release
                .dir
                .join(format!("{name}-{version}-{TAG}-{platform}.whl")),
        )
    }

    /// What pip shows of the package: as maturin makes it of its pyproject.toml.
    fn metadata(&self, toolchain: &Toolchain, release: &Release) -> Result<String> {
        let dir = emptied(release.dir.join("metadata"))?;
        let script = "import sys, maturin; \
                      print(maturin.prepare_metadata_for_build_wheel(sys.argv[1]))";
        let said = sh::capture(
            Command::new(toolchain.python())
                .current_dir(sh::root().join(self.dir))
                .args(["-c", script])
                .arg(&dir)
                .env("PATH", toolchain.path()),
        )?;
        let name = said.lines().last().context("maturin named no directory")?;
        let text = std::fs::read_to_string(dir.join(name).join("METADATA"))?;
        if !text.contains(&format!("\nVersion: {}\n", release.version)) {
            let (dir, version) = (self.dir, &release.version);
            bail!("{dir}/pyproject.toml has not the version {version}");
        }
        Ok(text)
    }

    /// Its sources, from which pip builds it where there is no wheel and a Rust compiler.
    fn pack_source(&self, toolchain: &Toolchain, release: &Release) -> Result<PathBuf> {
        sh::run(
            Command::new(toolchain.python())
                .current_dir(sh::root().join(self.dir))
                .args(["-m", "maturin", "sdist", "--out"])
                .arg(&release.dir)
                .env("PATH", toolchain.path())
                .env("SOURCE_DATE_EPOCH", &release.epoch),
        )?;
        let packed = made(release.dir.join(self.source_file(release)))?;
        let listed = sh::capture(Command::new("tar").arg("-tzf").arg(&packed))?;
        let licence = format!("{}-{}/LICENSE", self.name, release.version);
        check_licence(&listed, &licence, &packed)?;
        Ok(packed)
    }

    fn source_file(&self, release: &Release) -> String {
        format!("{}-{}.tar.gz", self.name, release.version)
    }
}

fn made(packed: PathBuf) -> Result<PathBuf> {
    packed
        .metadata()
        .with_context(|| format!("{} was not made", packed.display()))?;
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
fn pack_python(toolchain: &Toolchain, release: &Release) -> Result<PathBuf> {
    let project = std::fs::read_to_string(sh::root().join("python/pyproject.toml"))?;
    for package in PACKAGES {
        let wanted = format!("{}=={}\"", package.name.replace('_', "-"), release.version);
        if !project.contains(&wanted) {
            bail!("the extras of python/pyproject.toml have not \"{wanted}");
        }
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
