//! The way to a file of a root that is a directory: who else may write to it must not lead elsewhere
//! what is put there or removed. `object_store` follows links, so they are looked for before.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// That what is below a root at a path is reached through no link, and through folders only of this
/// user, of root, or of the owner of the root. The rest of a path that is not there is made by us.
///
/// # Errors
/// When it is not, in words for the person.
pub(super) fn check(root: &Path, relative: &str) -> Result<(), String> {
    let refused =
        |path: &Path, error: io::Error| format!("failed to look at {}: {error}", path.display());
    let trusted = [
        rustix::process::geteuid().as_raw(),
        0,
        root.metadata().map_err(|error| refused(root, error))?.uid(),
    ];
    let mut path = root.to_path_buf();
    let mut names = relative
        .split('/')
        .filter(|name| !name.is_empty())
        .peekable();
    while let Some(name) = names.next() {
        path.push(name);
        let there = match path.symlink_metadata() {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(refused(&path, error)),
        };
        let shown = path.display();
        if there.is_symlink() {
            return Err(format!(
                "{shown} is a link, and none is followed below a root: remove it"
            ));
        }
        if is_of_another(&there, trusted) && names.peek().is_some() {
            return Err(format!(
                "{shown} belongs to user {}, who is neither this user nor the owner of {}: what they could \
                 change is not written to; remove it, or take another run or root",
                there.uid(),
                root.display()
            ));
        }
    }
    Ok(())
}

fn is_of_another(there: &Metadata, trusted: [u32; 3]) -> bool {
    !trusted.contains(&there.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_refused_at_every_step_and_what_is_not_there_is_not() {
        let root = tempfile::tempdir().unwrap();
        let victim = tempfile::tempdir().unwrap();
        let at = "run=a/host=b/rec=c/mem/part-00001.parquet";
        let steps: Vec<&str> = at.split('/').collect();
        for count in 1..=steps.len() {
            let link = root.path().join(steps[..count].join("/"));
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            check(root.path(), at).unwrap();
            symlink(victim.path(), &link).unwrap();
            let refused = check(root.path(), at).unwrap_err();
            let shown = link.display().to_string();
            assert!(
                refused.starts_with(&format!("{shown} is a link")),
                "{refused}"
            );
            std::fs::remove_file(link).unwrap();
        }
    }

    #[test]
    fn folders_of_strangers_are_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("run=a/host=b")).unwrap();
        check(root.path(), "run=a/host=b/rec=c").unwrap();
        let there = root.path().metadata().unwrap();
        assert!(!is_of_another(&there, [there.uid(), 0, 0]));
        assert!(is_of_another(&there, [there.uid() + 1; 3]));
        // Only root can give folders away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(root.path().join("run=a"), Some(65534), None).unwrap();
            let refused = check(root.path(), "run=a/host=b/rec=c").unwrap_err();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
            // In a root of their own they may.
            std::os::unix::fs::chown(root.path(), Some(65534), None).unwrap();
            check(root.path(), "run=a/host=b/rec=c").unwrap();
        }
    }
}
