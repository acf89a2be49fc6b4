//! One mapping as /proc/PID/maps and smaps name it, and what kind of memory it is.
//!
//! Parsed here and not with the procfs crate: that reads the whole text at once, which
//! leaves no place to rest in between, and procfs 0.18 panics on a file named `/SYSV1`.

use memtrace_model::MappingKind;

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Device {
    /// From the number that stat(2) tells.
    pub(super) fn of(number: u64) -> Self {
        Self {
            major: rustix::fs::major(number),
            minor: rustix::fs::minor(number),
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The first line of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) device: Device,
    pub(crate) inode: u64,
    /// Whether what is written to it is written to the object: MAP_SHARED.
    pub(crate) is_shared: bool,
    /// As the kernel writes it: a line break as `\012`, and ` (deleted)` behind what has
    /// lost its name, or is called so.
    pub(crate) path: &'a [u8],
}

impl<'a> Header<'a> {
    /// `55d0-55d1 rw-p 00001000 fd:01 1234    /usr/bin/x` (show_map_vma() in
    /// fs/proc/task_mmu.c). `None` for every other line of smaps.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let range = words.next()?;
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (start, end) = (hex(range.get(..dash)?)?, hex(range.get(dash + 1..)?)?);
        let (flags, _offset) = (words.next()?, words.next()?);
        let device = words.next()?;
        let colon = device.iter().position(|byte| *byte == b':')?;
        let part = |bytes: Option<&[u8]>| u32::try_from(hex(bytes?)?).ok();
        let device = Device {
            major: part(device.get(..colon))?,
            minor: part(device.get(colon + 1..))?,
        };
        let inode = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let path = words.next().unwrap_or_default();
        let blank = path.iter().take_while(|byte| **byte == b' ').count();
        (start < end).then_some(Self {
            start,
            end,
            device,
            inode,
            is_shared: flags.ends_with(b"s"),
            path: path.get(blank..).unwrap_or_default(),
        })
    }

    /// The path without the mark of one that was removed, and whether it had that.
    pub(crate) fn name(&self) -> (&'a [u8], bool) {
        match self.path.strip_suffix(b" (deleted)") {
            Some(name) if self.inode != 0 => (name, true),
            _ => (self.path, false),
        }
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// What lies on a device, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// The kernel's own tmpfs, which no path leads to: memfd, SysV, shared anonymous.
    KernelTmpfs,
    /// A tmpfs that is mounted somewhere.
    Tmpfs,
    Devtmpfs,
    Hugetlbfs,
    /// Everything else: disks and networks.
    Files,
}

/// The kind of a mapping; `backing` is what lies on its device.
pub(super) fn kind(header: &Header<'_>, backing: Backing) -> MappingKind {
    let (name, _) = header.name();
    if header.inode == 0 {
        return match name {
            b"[heap]" => MappingKind::Heap,
            b"[stack]" => MappingKind::Stack,
            name if name.starts_with(b"[v") || name == b"[uprobes]" => MappingKind::Kernel,
            name if name.starts_with(b"/") || name.starts_with(b"anon_inode:") => {
                MappingKind::Device
            }
            _ => MappingKind::Anonymous,
        };
    }
    match backing {
        Backing::KernelTmpfs if name.starts_with(b"/SYSV") => MappingKind::Sysv,
        Backing::KernelTmpfs if name.starts_with(b"/memfd:") => MappingKind::Memfd,
        Backing::KernelTmpfs => MappingKind::SharedAnonymous,
        Backing::Tmpfs => MappingKind::Tmpfs,
        Backing::Hugetlbfs => MappingKind::Hugetlb,
        Backing::Devtmpfs => MappingKind::Device,
        Backing::Files if name.starts_with(b"anon_inode:") || name.starts_with(b"/dmabuf:") => {
            MappingKind::Device
        }
        Backing::Files => MappingKind::File,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind_of(line: &str, backing: Backing) -> MappingKind {
        kind(&Header::parse(line.as_bytes()).unwrap(), backing)
    }

    #[test]
    fn a_header_is_distinguished_from_the_lines_below_it() {
        let line = b"7f0a1000-7f0a3000 rw-p 00001000 fd:01 1234                       /usr/lib/a b.so (deleted)";
        let header = Header::parse(line).unwrap();
        assert_eq!((header.start, header.end), (0x7f0a_1000, 0x7f0a_3000));
        assert_eq!(header.device.to_string(), "253:1");
        assert_eq!(header.inode, 1234);
        assert_eq!(header.name(), (b"/usr/lib/a b.so".as_slice(), true));
        for other in [
            "Size:                136 kB",
            "VmFlags: rd ex mr",
            "",
            "THPeligible:    0",
        ] {
            assert_eq!(Header::parse(other.as_bytes()), None);
        }
        let bare = Header::parse(b"7f0a1000-7f0a3000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(bare.path, b"");
    }

    #[test]
    fn what_a_program_calls_its_file_does_not_change_its_kind() {
        let shared = "1000-2000 rw-s 00000000 00:01 77 ";
        let sysv = format!("{shared}/SYSV00000001 (deleted)");
        assert_eq!(kind_of(&sysv, Backing::KernelTmpfs), MappingKind::Sysv);
        for name in [
            "/SYSV1",
            "/SYSV",
            "/SYSV00000001 (deleted)",
            "/memfd:x",
            "/dev/zero (deleted)",
        ] {
            let line = format!("1000-2000 rw-s 00000000 fd:01 77 {name}");
            assert_eq!(kind_of(&line, Backing::Files), MappingKind::File, "{name}");
        }
        let zero = format!("{shared}/dev/zero (deleted)");
        assert_eq!(
            kind_of(&zero, Backing::KernelTmpfs),
            MappingKind::SharedAnonymous
        );
    }

    #[test]
    fn a_path_keeps_its_escaped_line_break_and_its_blanks() {
        let line = b"1000-2000 r--p 00000000 fd:01 9 /tmp/a\\012b  (deleted) (deleted)";
        let header = Header::parse(line).unwrap();
        assert_eq!(header.name(), (b"/tmp/a\\012b  (deleted)".as_slice(), true));
    }

    #[test]
    fn memory_without_a_file_is_reported_by_the_kernels_names() {
        let line = |name: &str| format!("1000-2000 rw-p 00000000 00:00 0 {name}");
        let cases = [
            ("[heap]", MappingKind::Heap),
            ("[stack]", MappingKind::Stack),
            ("[vdso]", MappingKind::Kernel),
            ("[vvar_vclock]", MappingKind::Kernel),
            ("[anon:glibc: malloc]", MappingKind::Anonymous),
            ("", MappingKind::Anonymous),
        ];
        for (name, kind) in cases {
            assert_eq!(kind_of(&line(name), Backing::Files), kind, "{name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(header) = Header::parse(&line) {
                let _ = (header.name(), kind(&header, Backing::KernelTmpfs));
            }
        }
    }
}
