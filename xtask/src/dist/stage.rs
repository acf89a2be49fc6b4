//! The files that every package carries, as they lie below /usr.

use super::programs::{PROGRAMS, Programs, Target};
use super::toolchain::Toolchain;
use super::{Release, bill, emptied, write};
use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// As memtrace/Cargo.toml has it.
const MAINTAINER: &str = "memtrace developers <memtrace@users.noreply.github.com>";

/// Pages, with what links on them lead to, and the macros that the README reads into DuckDB; all lie beside
/// the README as in the checkout.
const PAGES: &[&str] = &["docs", "python/README.md", "python/src/memtrace/duckdb.sql"];
/// What makes a site of them.
const OF_THE_SITE: &[&str] = &["docs/SUMMARY.md", "docs/book.css", "docs/book.toml"];

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
    let dir = emptied(dir(&release.dir, programs.target()))?;
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
    for file in documentation()? {
        let from = sh::root().join(&file);
        let text =
            std::fs::read(&from).with_context(|| format!("failed to read {}", from.display()))?;
        write(&doc.join(&file), text)?;
        std::fs::set_permissions(doc.join(&file), from.metadata()?.permissions())?;
    }
    write(
        &release.dir.join("debian-changelog"),
        debian_changelog(release)?,
    )?;
    bill::write(&doc, programs.target(), toolchain, release)?;
    Ok(dir)
}

/// The files that are read, by their paths in the checkout.
fn documentation() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "LICENSE"]
        .map(PathBuf::from)
        .into();
    let mut pending: Vec<PathBuf> = PAGES.iter().map(PathBuf::from).collect();
    while let Some(path) = pending.pop() {
        let full = sh::root().join(&path);
        if full.is_dir() {
            for entry in std::fs::read_dir(&full)? {
                pending.push(path.join(entry?.file_name()));
            }
        } else if !OF_THE_SITE.iter().any(|file| Path::new(file) == path) {
            files.push(path);
        }
    }
    Ok(files)
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

/// Where a target's tree is.
pub(super) fn dir(packages: &Path, target: &Target) -> PathBuf {
    packages.join("stage").join(target.name)
}

/// Of a staged tree, the folder with the texts.
pub(super) fn documents(staged: &Path) -> PathBuf {
    staged.join("share/doc/memtrace")
}

/// What Debian's tools show of a version.
fn debian_changelog(release: &Release) -> Result<String> {
    Ok(format!(
        "memtrace ({}-1) unstable; urgency=medium\n\n  * What users see of this version stands in \
         CHANGELOG.md of the sources.\n\n -- {MAINTAINER}  {}\n",
        release.version,
        release.dated("--rfc-email")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of "Work on it" lead into a checkout, which such work needs.
    #[test]
    fn links_of_the_readme_and_of_the_pages_lead_to_files_that_packages_carry() -> Result<()> {
        let files = documentation()?;
        for file in &files {
            assert!(
                sh::root().join(file).is_file(),
                "{} is staged",
                file.display()
            );
        }
        let pages = files.iter().filter(|file| {
            let is_page = file.extension().is_some_and(|end| end == "md");
            is_page && !file.starts_with("python")
        });
        let mut count = 0;
        for page in pages {
            let text = std::fs::read_to_string(sh::root().join(page))?;
            let read = text.split("\n## Work on it\n").next().unwrap_or(&text);
            let links = read
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            for link in links.filter(|link| !link.contains("://")) {
                let file = link.split('#').next().unwrap_or(link);
                let target = page.with_file_name(file);
                let is_carried = files.iter().any(|file| file.starts_with(&target));
                assert!(file.is_empty() || is_carried, "{}: {link}", page.display());
                count += 1;
            }
        }
        assert!(count > 100, "{count} links");
        Ok(())
    }
}
