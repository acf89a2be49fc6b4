//! The hash of what a step reads.

use super::steps::Input;
use crate::hex::hexadecimal;
use crate::{python, sh};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of a checkout, as a commit of them would have them, by their paths in it.
pub(super) struct Files(BTreeMap<String, Content>);

/// What a file holds, with its hash.
pub(super) struct Content {
    bytes: Vec<u8>,
    hash: [u8; 32],
}

impl Content {
    fn new(bytes: Vec<u8>) -> Self {
        let hash = Sha256::digest(&bytes).into();
        Self { bytes, hash }
    }
}

impl Files {
    pub(super) fn of_checkout() -> Result<Self> {
        let mut list = Command::new("git");
        list.current_dir(sh::root())
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard");
        let listed = sh::capture(&mut list)?;
        let names = listed.split('\0').filter(|name| !name.is_empty());
        let mut files = BTreeMap::new();
        for name in names {
            // One that is deleted is listed as long as that is not committed.
            if let Some(content) = content(&sh::root().join(name))? {
                files.insert(name.to_owned(), Content::new(content));
            }
        }
        Ok(Self(files))
    }

    /// Those that an input names, which must be some.
    pub(super) fn of(&self, input: &Input) -> Result<Vec<(&str, &Content)>> {
        let all = || {
            let files = self.0.iter();
            files.map(|(name, content)| (name.as_str(), content))
        };
        let below = |place: &'static str| {
            all().filter(move |(name, _)| {
                let rest = name.strip_prefix(place);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let has = |content: &Content, word: &str| {
            memchr::memmem::find(&content.bytes, word.as_bytes()).is_some()
        };
        let chosen: Vec<_> = match *input {
            Input::At(place) => below(place).collect(),
            Input::Naming(place, words) => below(place)
                .filter(|(_, content)| words.iter().any(|word| has(content, word)))
                .collect(),
            Input::Named(wanted) => all()
                .filter(|(name, _)| name.rsplit('/').next() == Some(wanted))
                .collect(),
            Input::Golden(_) => return Ok(Vec::new()),
        };
        if chosen.is_empty() {
            bail!("{input:?} of xtask/src/ci/steps.rs names no file");
        }
        Ok(chosen)
    }
}

/// With whether it can be run, which decides for scripts; of a link, where it leads.
fn content(path: &Path) -> Result<Option<Vec<u8>>> {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::PermissionsExt;
    let Ok(metadata) = path.symlink_metadata() else {
        return Ok(None);
    };
    let shown = || format!("failed to read {}", path.display());
    let mut content = if metadata.is_symlink() {
        path.read_link()
            .with_context(shown)?
            .into_os_string()
            .into_vec()
    } else {
        std::fs::read(path).with_context(shown)?
    };
    content.push(u8::from(metadata.permissions().mode() & 0o111 != 0));
    Ok(Some(content))
}

/// The hash in lower-case hexadecimal.
pub(super) fn hash(inputs: &[Input], files: &Files) -> Result<String> {
    let mut chosen = BTreeMap::new();
    let mut endings = Vec::new();
    for input in inputs {
        chosen.extend(files.of(input)?);
        if let Input::Golden(more) = input {
            endings.extend_from_slice(more);
        }
    }
    let golden = golden(&endings)?;
    let golden = golden.iter();
    chosen.extend(golden.map(|(name, content)| (name.as_str(), content)));
    let mut hasher = Sha256::new();
    for (name, content) in chosen {
        hasher.update(format!("{} {name}\n", name.len()));
        hasher.update(content.hash);
    }
    Ok(hexadecimal(&hasher.finalize()))
}

/// What memtrace makes of the golden recordings: the files with one of these endings.
fn golden(endings: &[&str]) -> Result<BTreeMap<String, Content>> {
    let mut found = BTreeMap::new();
    if endings.is_empty() {
        return Ok(found);
    }
    let dir = python::golden_dir();
    let mut pending: Vec<PathBuf> = vec![dir.clone()];
    while let Some(path) = pending.pop() {
        let ending = path.extension().unwrap_or_default();
        if path.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
        } else if endings.iter().any(|wanted| ending == *wanted) {
            let name = path.strip_prefix(&dir).unwrap_or(&path);
            let content = Content::new(std::fs::read(&path)?);
            found.insert(format!("golden {}", name.display()), content);
        }
    }
    if found.is_empty() {
        bail!("{} has no files ending in {endings:?}", dir.display());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::steps::STEPS;
    use super::*;

    /// The table as it is, over the checkout as it is: what is named must be there.
    #[test]
    fn a_changed_byte_in_each_input_runs_its_step_again() {
        let mut files = Files::of_checkout().expect("a checkout");
        let mut checked = 0;
        for step in STEPS {
            let inputs: Vec<Input> = step.inputs().unwrap_or_default();
            let inputs: Vec<Input> = inputs
                .into_iter()
                .filter(|one| !matches!(one, Input::Golden(_)))
                .collect();
            let before = hash(&inputs, &files).expect("inputs");
            for input in &inputs {
                let named = files.of(input).expect("files");
                let names: Vec<String> = named.iter().map(|(name, _)| (*name).to_owned()).collect();
                // The first and the last stand for those between: all take the same way.
                for name in [&names[0], &names[names.len() - 1]] {
                    let mut changed = files.0[name].bytes.clone();
                    changed[0] ^= 1;
                    let kept = files.0.insert(name.clone(), Content::new(changed));
                    let after = hash(&inputs, &files);
                    files.0.insert(name.clone(), kept.expect("the file"));
                    assert_ne!(after.ok().as_ref(), Some(&before), "{}: {name}", step.name);
                    checked += 1;
                }
            }
            assert_eq!(
                hash(&inputs, &files).expect("inputs"),
                before,
                "{}",
                step.name
            );
        }
        assert!(checked > 40, "{checked} files");
    }

    #[test]
    fn a_file_that_comes_goes_or_is_renamed_runs_the_step_again() {
        let files = |names: &[&str]| {
            let files = names
                .iter()
                .map(|name| ((*name).to_owned(), Content::new(b"fn x() {}".to_vec())));
            Files(files.collect())
        };
        let inputs = [Input::At("a")];
        let of = |names: &[&str]| hash(&inputs, &files(names)).expect("inputs");
        let before = of(&["a/one.rs"]);
        assert_eq!(of(&["a/one.rs", "ab/one.rs", "b.rs"]), before);
        for others in [&["a/one.rs", "a/two.rs"][..], &["a/two.rs"], &["a"]] {
            assert_ne!(of(others), before, "{others:?}");
        }
        let refused = hash(&inputs, &files(&["b/one.rs"])).expect_err("no file");
        assert!(refused.to_string().contains("names no file"), "{refused}");
    }

    #[test]
    fn a_file_that_comes_to_name_a_word_runs_the_step_again() {
        let files = |text: &str| {
            let always = (
                "a/always.rs".to_owned(),
                Content::new(b"libc::read".to_vec()),
            );
            let other = (
                "a/other.rs".to_owned(),
                Content::new(text.as_bytes().to_vec()),
            );
            Files([always, other].into())
        };
        let of = |text| hash(&[Input::Naming("a", &["libc::"])], &files(text)).expect("inputs");
        assert_eq!(of("fn x() {}"), of("fn y() {}"));
        assert_ne!(of("fn x() {}"), of("fn x() { libc::y() }"));
    }

    #[test]
    fn what_is_made_of_the_golden_recordings_counts_where_a_step_reads_it() {
        let named = |step: &str| {
            STEPS
                .iter()
                .find(|one| one.name == step)
                .and_then(|one| one.inputs())
        };
        for step in ["python", "page"] {
            assert!(
                named(step)
                    .expect("inputs")
                    .iter()
                    .any(|input| matches!(input, Input::Golden(_))),
                "{step}"
            );
        }
    }
}
