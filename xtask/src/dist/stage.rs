//! The files that every package carries, as they lie below /usr.

use super::programs::{PROGRAMS, Programs};
use super::toolchain::Toolchain;
use super::{Release, bill, emptied, write};
use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// As memtrace/Cargo.toml has it.
const MAINTAINER: &str = "memtrace developers <memtrace@users.noreply.github.com>";

/// Where completions of each shell belong.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/memtrace"),
    ("zsh", "share/zsh/vendor-completions/_memtrace"),
    ("fish", "share/fish/vendor_completions.d/memtrace.fish"),
];

/// Puts them into a directory of their own, and gives that. `here` are programs that run on this machine:
/// they write the manual and the completions, which are the same for every machine.
pub(super) fn stage(
    programs: &Programs,
    here: &Programs,
    toolchain: &Toolchain,
    release: &Release,
) -> Result<PathBuf> {
    let dir = emptied(release.dir.join("stage").join(programs.target().name))?;
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin)?;
    for program in PROGRAMS {
        let (from, to) = (programs.path(program), bin.join(program));
        std::fs::copy(&from, &to)
            .with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))?;
    }
    let memtrace = here.path("memtrace");
    write_manual(here, &dir.join("share/man/man1"), release)?;
    for (shell, path) in COMPLETIONS {
        let script = sh::capture(Command::new(&memtrace).args(["completions", shell]))?;
        write(&dir.join(path), script)?;
    }
    let doc = dir.join("share/doc/memtrace");
    for file in ["README.md", "CHANGELOG.md", "LICENSE"] {
        let from = sh::root().join(file);
        let text =
            std::fs::read(&from).with_context(|| format!("failed to read {}", from.display()))?;
        write(&doc.join(file), text)?;
    }
    write(
        &release.dir.join("debian-changelog"),
        debian_changelog(release)?,
    )?;
    bill::write(&doc, programs.target(), toolchain, release)?;
    Ok(dir)
}

/// The pages of memtrace, and those of the commands that memtrace-remote does for it.
fn write_manual(here: &Programs, man: &Path, release: &Release) -> Result<()> {
    sh::run(Command::new(here.path("memtrace")).arg("man").arg(man))?;
    let pages = emptied(release.dir.join("manual"))?;
    sh::run(
        Command::new(here.path("memtrace-remote"))
            .arg("man")
            .arg(&pages),
    )?;
    for entry in std::fs::read_dir(&pages)? {
        let page = entry?;
        if page.file_name() != "memtrace.1" {
            std::fs::copy(page.path(), man.join(page.file_name()))?;
        }
    }
    write(&man.join("memtrace-remote.1"), ".so man1/memtrace-load.1\n")
}

/// Of a staged tree, the folder with the texts.
pub(super) fn documents(staged: &Path) -> PathBuf {
    staged.join("share/doc/memtrace")
}

/// What Debian's tools show of a version.
fn debian_changelog(release: &Release) -> Result<String> {
    let date = sh::capture(
        Command::new("date")
            .args(["--utc", "--rfc-email"])
            .arg(format!("--date=@{}", release.epoch)),
    )?;
    Ok(format!(
        "memtrace ({}-1) unstable; urgency=medium\n\n  * What users see of this version stands in \
         CHANGELOG.md of the sources.\n\n -- {MAINTAINER}  {}\n",
        release.version,
        date.trim()
    ))
}
