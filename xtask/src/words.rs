//! `cargo xtask words`: words that mean too many things here stand in no name, comment, message or page,
//! and no doc comment is too short to say anything.

use crate::circles::rust_files;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// A word that is refused, and what to write instead.
const REFUSED: &[(&str, &str)] = &[
    ("told", "reported, said, distinguished"),
    ("untold", "unreported"),
    ("newcomer", "new process"),
    ("newcomers", "new processes"),
    ("trouble", "failure, error"),
    ("troubles", "failures, errors"),
];
/// Where it is looked for: code, and pages.
const CODE: &[&str] = &[
    "crates",
    "memtrace",
    "memtrace-ebpf",
    "memtrace-remote",
    "tests",
    "xtask",
];
const PAGES: &[&str] = &["docs", "python", "tests"];
/// Its sources are hashed, so its doc comments may stay short.
const HASHED: &str = "memtrace-ebpf";
/// A doc comment has no fewer words: of one or two, none says what the name does not.
const DOC_WORDS_MIN: usize = 3;
/// A key of JSON that readers know.
const KNOWN_KEY: &str = "told_window_ns";
/// The file that has them as what they are.
const LIST: &str = "xtask/src/words.rs";

/// Checks every file.
pub(crate) fn run() -> Result<()> {
    let root = sh::root();
    let mut files = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for place in CODE {
        rust_files(&root.join(place), &mut files)?;
    }
    for place in PAGES {
        pages(&root.join(place), &mut files)?;
    }
    let mut found = 0;
    for file in &files {
        let place = file.strip_prefix(&root).unwrap_or(file);
        if place.components().any(|part| part.as_os_str() == "target") {
            continue;
        }
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        if place.extension().is_some_and(|end| end == "rs") && !place.starts_with(HASHED) {
            for number in short_docs(&text) {
                found += 1;
                println!(
                    "{}:{number}: a doc comment of fewer than {DOC_WORDS_MIN} words: say what it is, or remove it",
                    place.display()
                );
            }
        }
        if place == Path::new(LIST) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in refused(&line.replace(KNOWN_KEY, "")) {
                found += 1;
                println!(
                    "{}:{}: {word}: write {instead}",
                    place.display(),
                    number + 1
                );
            }
        }
    }
    if found > 0 {
        bail!("{found} refused words and short doc comments");
    }
    println!("words: none refused in {} files", files.len());
    Ok(())
}

/// The refused words of a line, also those that are a part of a name.
fn refused(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut words = Vec::new();
    for name in line.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        let mut from = 0;
        let letters = name.as_bytes();
        let is_start =
            |at: &usize| letters[*at].is_ascii_uppercase() && letters[at - 1].is_ascii_lowercase();
        for at in (1..name.len()).filter(is_start).chain([name.len()]) {
            words.push(name[from..at].to_ascii_lowercase());
            from = at;
        }
    }
    REFUSED
        .iter()
        .copied()
        .filter(move |(refused, _)| words.iter().any(|word| word == refused))
}

/// The numbers of the lines at which doc comments of too few words begin.
fn short_docs(text: &str) -> Vec<usize> {
    let mut short = Vec::new();
    let mut open = None;
    for (line, number) in text.lines().chain([""]).zip(1..) {
        let doc = line.trim_start().strip_prefix("///");
        if let Some(doc) = doc.filter(|doc| !doc.starts_with('/')) {
            let (_, words) = open.get_or_insert((number, 0));
            *words += doc.split_whitespace().count();
        } else if let Some((number, words)) = open.take()
            && words < DOC_WORDS_MIN
        {
            short.push(number);
        }
    }
    short
}

fn pages(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("failed to read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("node_modules") && !path.ends_with(".venv") {
            pages(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "md") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_word_is_found_in_prose_and_in_names() {
        let found = |line| refused(line).map(|(word, _)| word).collect::<Vec<_>>();
        assert_eq!(found("/// What is told of it."), ["told"]);
        assert_eq!(
            found("let is_told = ToldRun::of(newcomer);"),
            ["told", "newcomer"]
        );
        assert_eq!(found("const TOLD_MAX: usize = 1;"), ["told"]);
        assert!(found("stolder, retold_ and bold").is_empty());
    }

    #[test]
    fn a_doc_comment_of_fewer_than_three_words_is_found() {
        assert_eq!(short_docs("/// Its name.\nname: String,"), [1]);
        assert_eq!(short_docs("struct A;\n\n    /// Slab.\n    ///"), [3]);
        assert!(short_docs("/// What it\n/// is.\nfn name() {}").is_empty());
        assert!(short_docs("// Its name.\n//! A file.\n//// Ruler").is_empty());
    }
}
