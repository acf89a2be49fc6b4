//! The mount table of this process, /proc/self/mountinfo.

use procfs::process::MountInfo;
use std::path::PathBuf;

/// The mounts in the order in which they were made. Line by line, so that one that is not
/// understood does not lose the others.
pub(super) fn parse_mountinfo(text: &[u8]) -> Vec<MountInfo> {
    let lines = text.split(|byte| *byte == b'\n');
    let mounts = lines.filter_map(|line| {
        let mut mount = MountInfo::from_line(&String::from_utf8_lossy(line)).ok()?;
        mount.root = unescape(&mount.root);
        mount.mount_point = PathBuf::from(unescape(mount.mount_point.to_str()?));
        Some(mount)
    });
    mounts.collect()
}

/// Each tmpfs of a mount table by its device, `major:minor`, and where it is mounted first.
pub fn tmpfs_mounts(text: &[u8]) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for mount in parse_mountinfo(text) {
        let is_new = !found.iter().any(|(device, _)| *device == mount.majmin);
        if mount.fs_type == "tmpfs" && mount.root == "/" && is_new {
            found.push((mount.majmin, mount.mount_point));
        }
    }
    found
}

/// Turns `\040` and its like back into the byte (mangle_path() in fs/seq_file.c).
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        match octal(rest) {
            Some(escaped) => {
                bytes.push(escaped);
                rest = rest.get(4..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn octal(bytes: &[u8]) -> Option<u8> {
    let [b'\\', digits @ ..] = bytes.get(..4)? else {
        return None;
    };
    digits.iter().try_fold(0_u8, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_with_tags_and_an_escaped_space_is_understood() {
        let mounts = parse_mountinfo(
            b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/root rw,hidepid=invisible,memory\n",
        );
        let [mount] = mounts.as_slice() else {
            panic!("{mounts:?}");
        };
        assert_eq!(mount.mount_point, PathBuf::from("/mnt 2"));
        assert_eq!(mount.root, "/mnt1");
        assert_eq!(mount.fs_type, "ext3");
        let option = |name| mount.super_options.get(name).map(Option::as_deref);
        assert_eq!(option("hidepid"), Some(Some("invisible")));
        assert_eq!(option("memory"), Some(None));
        assert_eq!(option("mem"), None);
    }

    #[test]
    fn each_tmpfs_is_found_once() {
        let text = b"25 30 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=65536k\n26 30 0:23 /a /mnt rw - tmpfs tmpfs rw\n27 30 0:24 / /proc rw - proc proc rw\n";
        let found = tmpfs_mounts(text);
        assert_eq!(found, [("0:23".to_owned(), PathBuf::from("/dev/shm"))]);
    }

    #[test]
    fn a_line_that_is_cut_off_does_not_lose_the_others() {
        let text = b"36 35 98:0 / /a rw -\n37 35 98:0 / /b rw - ext4 /dev/\xff rw\n22 27 0:21 / /proc rw - proc proc rw\n";
        assert_eq!(parse_mountinfo(text).len(), 2);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_mountinfo(&text);
            let _ = unescape(&String::from_utf8_lossy(&text));
        }
    }
}
