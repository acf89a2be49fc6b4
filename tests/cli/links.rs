//! Links of the documentation lead somewhere: to a file of the checkout, and to a heading in it.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let mut pages = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for dir in [
        "docs",
        "python",
        "python/recorder",
        "python/remote",
        "tests/lab",
        "tests/page",
    ] {
        pages.extend(pages_in(&root.join(dir))?);
    }
    let mut broken = Vec::new();
    let mut count = 0;
    for page in &pages {
        let text = std::fs::read_to_string(page)?;
        for link in links_of(&text) {
            count += 1;
            if let Some(reason) = what_is_wrong(page, link)? {
                broken.push(format!("{}: {link}: {reason}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(count > 100, "{count} links were found");
    Ok(())
}

#[test]
fn the_page_on_installing_clones_the_repository_of_the_packages() -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md");
    let line = concat!("git clone ", env!("CARGO_PKG_REPOSITORY"), " ");
    assert!(std::fs::read_to_string(page)?.contains(line), "{line}");
    Ok(())
}

/// What holds a threat off is a test that there is.
#[test]
fn every_test_that_the_page_on_threats_names_is_there() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/threats.md"))?;
    let named = page.split('`').skip(1).step_by(2);
    let named: Vec<&str> = named.filter(|name| name.matches('_').count() > 2).collect();
    assert!(named.len() > 20, "{named:?}");
    let mut sources = String::new();
    let folders = [
        "crates",
        "memtrace/src",
        "memtrace-remote",
        "tests",
        "python/tests",
    ];
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let suffix = path.extension().and_then(|suffix| suffix.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if matches!(suffix, Some("rs" | "py")) {
                sources.push_str(&std::fs::read_to_string(&path)?);
            }
        }
    }
    let is_there = |name: &str| {
        ["fn ", "def "]
            .iter()
            .any(|word| sources.contains(&format!("{word}{name}(")))
    };
    let absent: Vec<&str> = named.into_iter().filter(|name| !is_there(name)).collect();
    assert!(absent.is_empty(), "no test of this name: {absent:?}");
    Ok(())
}

/// The site has the pages that its list names: mdbook leaves the others out.
#[test]
fn every_page_of_the_docs_stands_once_in_the_list_of_the_site_by_its_title() -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let list = std::fs::read_to_string(docs.join("SUMMARY.md"))?;
    let mut listed: Vec<String> = list
        .lines()
        .filter_map(|line| Some(line.trim_start().strip_prefix("- ")?.to_owned()))
        .collect();
    let pages = pages_in(&docs)?
        .into_iter()
        .filter(|page| !page.ends_with("SUMMARY.md"));
    let expected: Result<Vec<String>> = pages
        .map(|page| {
            let text = std::fs::read_to_string(&page)?;
            let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
            let title = title.with_context(|| format!("{} has no title", page.display()))?;
            let name = page.file_name().context("a page has a name")?;
            Ok(format!("[{title}]({})", name.display()))
        })
        .collect();
    let mut expected = expected?;
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    Ok(())
}

/// The pages of a folder.
pub(super) fn pages_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let paths: Result<Vec<PathBuf>> = paths.collect();
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    Ok(paths?.into_iter().filter(is_page).collect())
}

/// What stands in the round brackets of links, but for other sites.
fn links_of(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

fn what_is_wrong(page: &Path, link: &str) -> Result<Option<&'static str>> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        file => page.with_file_name(file),
    };
    if !target.exists() {
        return Ok(Some("there is no such file"));
    }
    if anchor.is_empty() || target.extension().is_none_or(|end| end != "md") {
        return Ok(None);
    }
    let anchors = anchors_of(&std::fs::read_to_string(&target)?);
    Ok((!anchors.contains(anchor)).then_some("there is no such heading"))
}

/// The names of headings, as GitHub makes them.
fn anchors_of(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}
