//! `cargo xtask book`: the pages of docs/ as a site in target/site, by mdbook, and its links looked up.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = "0.5.4";
/// What mdbook writes beside pages: all pages as one, and what is shown where there is none.
const NO_PAGES: &[&str] = &["print.html", "404.html", "toc.html"];

/// Options of `cargo xtask book`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First install mdbook into target/tools where it is missing.
    #[arg(long)]
    install_tools: bool,
}

/// Builds the site, and checks that its links lead somewhere.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = sh::target_dir().join("tools");
    let mdbook = tools.join("bin/mdbook");
    if args.install_tools && !mdbook.is_file() {
        // It runs for seconds: not worth minutes of optimising.
        let words = ["install", "--debug", "--locked", "--version", VERSION];
        let mut install = sh::cargo();
        // Without what serves and watches, which is most of it.
        install
            .args(words)
            .args(["--no-default-features", "--features", "search"]);
        sh::run(install.arg("--root").arg(&tools).arg("mdbook"))?;
    }
    if !mdbook.is_file() {
        bail!("mdbook is not installed; run `cargo xtask book --install-tools`");
    }
    let site = sh::target_dir().join("site");
    let mut build = Command::new(&mdbook);
    build.arg("build").arg(sh::root().join("docs"));
    sh::run(build.arg("--dest-dir").arg(&site))?;
    let lost = lost_links(&site)?;
    if !lost.is_empty() {
        bail!("links of the site lead nowhere:\n{}", lost.join("\n"));
    }
    println!(
        "the site is in {}; its links lead somewhere",
        site.display()
    );
    Ok(())
}

/// The links of all pages that lead nowhere on the site.
fn lost_links(site: &Path) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    let mut pages = 0;
    for entry in fs::read_dir(site).with_context(|| format!("failed to list {}", site.display()))? {
        let page = entry?.path();
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(".html") || NO_PAGES.contains(&&*name) {
            continue;
        }
        pages += 1;
        let text = read(&page)?;
        for link in links(&text) {
            if !leads_somewhere(site, &page, &link)? {
                lost.push(format!("{name}: {link}"));
            }
        }
    }
    if pages == 0 {
        bail!("{} has no pages", site.display());
    }
    lost.sort_unstable();
    lost.dedup();
    Ok(lost)
}

/// What a page names, but for what lies elsewhere.
fn links(page: &str) -> impl Iterator<Item = String> {
    let named = ["href=\"", "src=\""].into_iter().flat_map(|key| {
        let values = page.split(key).skip(1);
        values.filter_map(|rest| rest.split('"').next())
    });
    let is_elsewhere = |link: &str| {
        let scheme = link.split(['/', '#']).next().unwrap_or_default();
        scheme.contains(':') || link.starts_with("//")
    };
    named
        .filter(move |link| !is_elsewhere(link))
        .map(|link| link.replace("&amp;", "&"))
}

fn leads_somewhere(site: &Path, page: &Path, link: &str) -> Result<bool> {
    let (file, place) = link.split_once('#').unwrap_or((link, ""));
    let file: PathBuf = match file {
        "" => page.to_path_buf(),
        file => site.join(file),
    };
    if !file.exists() {
        return Ok(false);
    }
    Ok(place.is_empty() || read(&file)?.contains(&format!("id=\"{place}\"")))
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(page).with_context(|| format!("failed to read {}", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulldown_cmark::{Event, Parser, Tag, TagEnd};
    use std::collections::{BTreeMap, BTreeSet};

    /// What a page in Markdown names, and the places on it that can be named.
    #[derive(Default)]
    struct Page {
        links: Vec<String>,
        places: BTreeSet<String>,
    }

    impl Page {
        fn read(path: &Path) -> Self {
            let mut page = Self::default();
            let mut heading: Option<String> = None;
            for event in Parser::new(&read(path).expect("a page")) {
                match event {
                    Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                        page.links.push(dest_url.into_string());
                    }
                    Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                    Event::End(TagEnd::Heading(_)) => page.add(&heading.take().unwrap_or_default()),
                    Event::Html(text) | Event::InlineHtml(text) => page.links.extend(links(&text)),
                    Event::Text(text) | Event::Code(text) => {
                        heading
                            .iter_mut()
                            .for_each(|heading| heading.push_str(&text));
                    }
                    _ => {}
                }
            }
            page
        }

        /// A heading, by the name that mdbook gives it.
        fn add(&mut self, heading: &str) {
            let kept = |char: char| match char {
                char if char.is_alphanumeric() || char == '_' || char == '-' => Some(char),
                char if char.is_whitespace() => Some('-'),
                _ => None,
            };
            let name: String = heading.to_lowercase().chars().filter_map(kept).collect();
            let numbered = (1..).map(|number| format!("{name}-{number}"));
            let mut names = std::iter::once(name.clone()).chain(numbered);
            let free = names.find(|name| !self.places.contains(name));
            self.places.extend(free);
        }
    }

    /// So that a link is checked where a page changes, and the site need not be made for that.
    #[test]
    fn links_of_the_pages_lead_to_pages_of_the_site_and_to_headings_on_them() {
        let docs = sh::root().join("docs");
        let listed = Page::read(&docs.join("SUMMARY.md")).links;
        let pages: BTreeMap<&str, Page> = listed
            .iter()
            .map(|name| (name.as_str(), Page::read(&docs.join(name))))
            .collect();
        let mut count = 0;
        for (name, page) in &pages {
            let inside = page.links.iter().filter(|link| !link.contains("://"));
            for link in inside {
                let (file, place) = link.split_once('#').unwrap_or((link, ""));
                let file = if file.is_empty() { *name } else { file };
                let has_place = |page: &Page| place.is_empty() || page.places.contains(place);
                let leads = match pages.get(file) {
                    Some(page) => has_place(page),
                    // Nothing outside of docs is on the site.
                    None => {
                        let is_page =
                            file.ends_with(".md") || file.split('/').any(|part| part == "..");
                        !is_page && docs.join(file).exists()
                    }
                };
                assert!(leads, "docs/{name}: {link} leads nowhere");
                count += 1;
            }
        }
        assert!(
            pages.len() > 20 && count > 100,
            "{} pages, {count} links",
            pages.len()
        );
    }

    #[test]
    fn headings_have_the_names_that_mdbook_gives_them() {
        let mut page = Page::default();
        for heading in ["What it is", "`mem`: a row", "Don't", "What it is"] {
            page.add(heading);
        }
        let names: Vec<&str> = page.places.iter().map(String::as_str).collect();
        assert_eq!(names, ["dont", "mem-a-row", "what-it-is", "what-it-is-1"]);
    }

    #[test]
    fn a_link_leads_to_a_page_a_place_or_nowhere_and_what_lies_elsewhere_is_not_looked_up() {
        let site = std::env::temp_dir().join(format!("memtrace-site-{}", std::process::id()));
        fs::create_dir_all(&site).unwrap();
        fs::write(site.join("there.html"), r#"<h2 id="place">"#).unwrap();
        let page = r##"<h1 id="here"><a href="#here"><a href="there.html#place"><a href="there.html#lost">
            <a href="lost.html"><a href="https://example.org/x"><img src="mailto:x"><img src="lost.png">"##;
        fs::write(site.join("page.html"), page).unwrap();
        let lost = lost_links(&site);
        fs::remove_dir_all(&site).unwrap();
        assert_eq!(
            lost.unwrap(),
            [
                "page.html: lost.html",
                "page.html: lost.png",
                "page.html: there.html#lost"
            ]
        );
    }
}
