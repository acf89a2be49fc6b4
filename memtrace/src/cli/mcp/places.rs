//! Where recordings may be read: what a person named, and what is below it.

use crate::cli::recorded::address_of;
use anyhow::Context;
use memtrace_report::visible;
use std::fs::canonicalize;
use std::path::{Component, Path, PathBuf};

/// The directories and addresses that were named, the first before others.
#[derive(Debug)]
pub(super) struct Places(Vec<PathBuf>);

impl Places {
    /// Those of a person.
    ///
    /// # Errors
    /// When there is no such directory.
    pub(super) fn of(given: &[PathBuf]) -> anyhow::Result<Self> {
        let found = given.iter().map(|path| match address_of(path) {
            Some(_) => Ok(path.clone()),
            None => {
                let shown = path.display().to_string();
                canonicalize(path).with_context(|| format!("failed to open {}", visible(&shown)))
            }
        });
        Ok(Self(found.collect::<anyhow::Result<_>>()?))
    }

    /// The path that an assistant gave, from the first place on; without one that place.
    ///
    /// # Errors
    /// The sentence says why it is not read.
    pub(super) fn path(&self, given: Option<&str>) -> Result<PathBuf, String> {
        let first = self.0.first().cloned().unwrap_or_default();
        let path = match given {
            None => first,
            Some(given) if address_of(Path::new(given)).is_some() => PathBuf::from(given),
            Some(given) => first.join(given),
        };
        let shown = path.display().to_string();
        let shown = visible(&shown);
        let found = match address_of(&path) {
            Some(_) => path,
            // A link leads where it leads.
            None => {
                canonicalize(&path).map_err(|error| format!("failed to open {shown}: {error}"))?
            }
        };
        let is_below = self.0.iter().any(|place| found.starts_with(place));
        // The name of an object has no such parts, and a directory's are gone.
        let climbs = found.components().any(|part| part == Component::ParentDir);
        if !is_below || climbs {
            let places = self.0.iter().map(|place| place.display().to_string());
            let places = places.collect::<Vec<_>>().join(", ");
            return Err(format!(
                "{shown} may not be read: memtrace mcp was started to read {}; a person can name more",
                visible(&places)
            ));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beside_what_was_named() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path().canonicalize().expect("a path");
        for dir in ["own/run", "other", "own-not"] {
            std::fs::create_dir_all(root.join(dir)).expect("a directory");
        }
        std::os::unix::fs::symlink(root.join("other"), root.join("own/link")).expect("a link");
        let own = root.join("own");
        let places = [own.clone(), PathBuf::from("s3://bucket/memory")];
        let places = Places::of(&places).expect("places");
        let whole = own.join("run").display().to_string();
        for given in [Some("run"), Some("./run/../run"), Some(&*whole)] {
            assert_eq!(places.path(given), Ok(own.join("run")), "{given:?}");
        }
        assert_eq!(places.path(None), Ok(own.clone()));
        let below = "s3://bucket/memory/run=1";
        assert_eq!(places.path(Some(below)), Ok(PathBuf::from(below)));
        let beside = root.join("own-not").display().to_string();
        for given in [
            "..",
            "link",
            "/",
            &*beside,
            "s3://bucket/memory-not",
            "s3://bucket/memory/../other",
            "gs://bucket/memory",
        ] {
            let refused = places.path(Some(given)).expect_err(given);
            assert!(refused.contains("may not be read"), "{refused}");
        }
        let missing = places.path(Some("no\x1b[2J")).expect_err("no directory");
        assert!(missing.contains("no\\x1b[2J: No such file"), "{missing}");
        assert!(places.path(Some("a\0b")).is_err());
    }
}
