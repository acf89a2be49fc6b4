//! The texts of /proc/PID that are not numbers: names, command lines, cgroup paths.

/// Longest command line that is kept.
pub const CMDLINE_LIMIT: usize = 4096;

/// A name as the kernel keeps it. The kernel cuts at 15 bytes, which can split a
/// character; what cannot be read becomes U+FFFD.
pub(super) fn comm(bytes: &[u8]) -> String {
    let name = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    String::from_utf8_lossy(name).into_owned()
}

/// The argument area as one line: NULs between arguments become spaces, the padding that
/// a program leaves behind when it writes a shorter title is dropped. `None` when nothing
/// is left.
pub fn command_line(bytes: &[u8]) -> Option<String> {
    let cut = bytes.get(..CMDLINE_LIMIT).unwrap_or(bytes);
    let end = cut.iter().rposition(|byte| *byte != 0)? + 1;
    let mut line = cut.get(..end)?.to_vec();
    if bytes.len() >= CMDLINE_LIMIT {
        drop_split_character(&mut line);
    }
    for byte in &mut line {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    Some(String::from_utf8_lossy(&line).into_owned())
}

fn drop_split_character(text: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(text)
        && error.error_len().is_none()
    {
        text.truncate(error.valid_up_to());
    }
}

/// The path of the memory cgroup out of /proc/PID/cgroup: the v1 hierarchy that holds the
/// controller, else the unified one.
pub(crate) fn memory_cgroup(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let mut unified = None;
    // `4:memory:/path` or `0::/path`; the path itself can hold colons.
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        // Appended by the kernel when the group was removed (proc_cgroup_show()).
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        if controllers.split(',').any(|name| name == "memory") {
            return Some(path.to_owned());
        }
        if controllers.is_empty() {
            unified = Some(path.to_owned());
        }
    }
    unified
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arguments_are_joined_by_spaces() {
        let line = command_line(b"python3\0-m\0vllm serve\0");
        assert_eq!(line.as_deref(), Some("python3 -m vllm serve"));
    }

    #[test]
    fn a_title_written_over_the_arguments_loses_its_padding() {
        let line = command_line(b"VLLM::Worker_TP0\0\0\0\0\0\0\0");
        assert_eq!(line.as_deref(), Some("VLLM::Worker_TP0"));
        assert_eq!(command_line(b"\0\0\0"), None);
        assert_eq!(command_line(b""), None);
    }

    #[test]
    fn a_character_split_by_the_limit_is_dropped() {
        let mut long = vec![b'x'; CMDLINE_LIMIT - 1];
        long.extend("é".bytes());
        let line = command_line(&long).unwrap();
        assert_eq!(line.len(), CMDLINE_LIMIT - 1);
        assert!(line.bytes().all(|byte| byte == b'x'));
    }

    #[test]
    fn the_memory_controller_s_own_hierarchy_comes_before_the_unified_one() {
        let hybrid = b"4:cpu,memory:/a:b\n1:name=systemd:/c\n0::/d\n";
        assert_eq!(memory_cgroup(hybrid).as_deref(), Some("/a:b"));
        assert_eq!(memory_cgroup(b"0::/d\n").as_deref(), Some("/d"));
        assert_eq!(memory_cgroup(b"0::/d (deleted)\n").as_deref(), Some("/d"));
        assert_eq!(memory_cgroup(b"1:cpu:/\n"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (comm(&text), command_line(&text), memory_cgroup(&text));
        }
    }
}
