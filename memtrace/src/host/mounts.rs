//! The mount table of this process, /proc/self/mountinfo.
//!
//! Parsed here rather than with the procfs crate: that one leaves `\040` in paths as it
//! is, and one line that it does not understand loses the whole table.

use std::path::PathBuf;

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The part of the file system that the mount shows as its top.
    pub(super) root: String,
    /// Where it is mounted.
    pub(super) mount_point: PathBuf,
    /// Type of the file system.
    pub(super) fs_type: String,
    /// Options of the file system, comma-separated.
    pub(super) super_options: String,
}

impl Mount {
    /// The value of an option of the form `name=value`, or "" for a bare `name`.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.super_options.split(',').find_map(|option| {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            (key == name).then_some(value)
        })
    }
}

/// The mounts in the order in which they were made; lines that are not understood are
/// left out.
pub(super) fn parse_mountinfo(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// One line: `22 27 0:21 ROOT MOUNT_POINT OPTIONS [TAG…] - FS_TYPE SOURCE SUPER_OPTIONS`
/// (show_mountinfo() in fs/proc_namespace.c).
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let mount_point = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = rest.next()?;
    let super_options = rest.nth(1)?;
    Some(Mount {
        root: unescape(root),
        mount_point: PathBuf::from(unescape(mount_point)),
        fs_type: unescape(fs_type),
        super_options: unescape(super_options),
    })
}

/// Turns `\040` and its like back into the byte (mangle_path() in fs/seq_file.c).
fn unescape(field: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
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
        assert_eq!(mount.option("hidepid"), Some("invisible"));
        assert_eq!(mount.option("memory"), Some(""));
        assert_eq!(mount.option("mem"), None);
    }

    #[test]
    fn a_line_that_is_cut_off_does_not_lose_the_others() {
        let text = b"36 35 98:0 / /a rw -\n22 27 0:21 / /proc rw - proc proc rw\n";
        assert_eq!(parse_mountinfo(text).len(), 1);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_mountinfo(&text);
            let _ = unescape(&text);
        }
    }
}
