//! The mappings of a process that anonymous pages can lie in, from /proc/PID/maps.

use super::super::budget::Stop;
use super::super::mappings::{Backing, Header, kind};
use super::super::text::{Lines, ReadError};
use memtrace_model::{LayoutPart, MappingKind};
use std::collections::HashMap;
use std::fs::File;

/// A mapping, in addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) sort: AreaSort,
    /// Whether it may be read and written.
    pub(super) is_writable: bool,
    /// Whether the mapping right below is one page that nobody may touch, as below a stack.
    pub(super) is_guarded: bool,
}

/// What a mapping is, as far as its line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AreaSort {
    /// The brk heap.
    Heap,
    /// The stack of the main thread.
    Stack,
    /// Private anonymous memory.
    Anonymous,
    /// The same with a name, by its place among the names.
    Named(u32),
    /// A private mapping of a file, by the place of the file's name.
    File(u32),
    /// A shared mapping of a file.
    SharedFile(u32),
    /// Shared anonymous memory.
    Pinned,
}

/// What is listed of a process.
#[derive(Debug, Default)]
pub(super) struct Areas {
    pub(super) list: Vec<Area>,
    pub(super) names: Names,
    /// The allocator whose library is mapped, and the library.
    pub(super) allocator: Option<(LayoutPart, String)>,
}

/// Texts that stand for numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    list: Vec<String>,
    places: HashMap<Vec<u8>, u32>,
}

/// A program can map files without end; what comes later has no name.
const NAMES_MAX: usize = 4_096;
/// So much of a name is kept.
const NAME_BYTES_MAX: usize = 512;

impl Names {
    fn place(&mut self, name: &[u8]) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        if self.list.len() >= NAMES_MAX {
            return u32::MAX;
        }
        let place = self.list.len() as u32;
        let shown = name.get(..NAME_BYTES_MAX).unwrap_or(name);
        self.list.push(String::from_utf8_lossy(shown).into_owned());
        self.places.insert(name.to_vec(), place);
        place
    }

    pub(super) fn get(&self, place: u32) -> Option<&str> {
        self.list.get(place as usize).map(String::as_str)
    }
}

/// The begins of the names of libraries that take the place of malloc.
const ALLOCATORS: [(&str, LayoutPart); 3] = [
    ("libjemalloc", LayoutPart::Jemalloc),
    ("libmimalloc", LayoutPart::Mimalloc),
    ("libtcmalloc", LayoutPart::Tcmalloc),
];

impl Areas {
    pub(super) fn read(mut maps: &File, page_size: u64, stop: &Stop) -> Result<Self, ReadError> {
        let mut areas = Self::default();
        let mut lines = Lines::default();
        let mut guard_end = None;
        loop {
            let is_more = lines
                .fill(&mut maps)
                .map_err(|error| ReadError::of("maps", error))?;
            while let Some(line) = lines.next() {
                if let Some(header) = Header::parse(line) {
                    areas.enter(&header, line, page_size, &mut guard_end);
                }
            }
            if !is_more {
                return Ok(areas);
            }
            stop.check()?;
        }
    }

    /// `guard_end` is where the last guard page ended.
    fn enter(
        &mut self,
        header: &Header<'_>,
        line: &[u8],
        page_size: u64,
        guard_end: &mut Option<u64>,
    ) {
        let rights = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let is_none = rights.starts_with(b"---");
        let is_guarded = *guard_end == Some(header.start);
        if header.inode == 0 && is_none && header.end - header.start == page_size {
            *guard_end = Some(header.end);
        }
        let (name, _) = header.name();
        let sort = match kind(header, Backing::Files) {
            MappingKind::Heap => AreaSort::Heap,
            MappingKind::Stack => AreaSort::Stack,
            MappingKind::Anonymous => match given_name(name) {
                Some(given) => AreaSort::Named(self.names.place(given)),
                None => AreaSort::Anonymous,
            },
            // The kernel names shared anonymous memory so, and no path of a file ends like that.
            MappingKind::File if header.is_shared && header.path == b"/dev/zero (deleted)" => {
                AreaSort::Pinned
            }
            // Pages of hugetlbfs, which the kernel counts apart (HUGETLB_ANON_FILE).
            MappingKind::File if name.starts_with(b"/anon_hugepage") => return,
            MappingKind::File if header.is_shared && !is_shared_memory(name) => {
                AreaSort::SharedFile(self.names.place(name))
            }
            MappingKind::File if !header.is_shared => {
                self.note_allocator(name);
                AreaSort::File(self.names.place(name))
            }
            _ => return,
        };
        // Address space that is only reserved.
        if is_none {
            return;
        }
        self.list.push(Area {
            start: header.start,
            end: header.end,
            sort,
            is_writable: rights.starts_with(b"rw"),
            is_guarded,
        });
    }

    fn note_allocator(&mut self, path: &[u8]) {
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let known = ALLOCATORS
            .iter()
            .find(|(begin, _)| file.starts_with(begin.as_bytes()));
        if let (Some((_, part)), None) = (known, &self.allocator) {
            let library = String::from_utf8_lossy(file).into_owned();
            self.allocator = Some((*part, library));
        }
    }
}

/// Whether the kernel counts its pages as shared memory, by the names that it and its users give:
/// that is reported by object.
fn is_shared_memory(name: &[u8]) -> bool {
    let begins: [&[u8]; 3] = [b"/dev/shm/", b"/memfd:", b"/SYSV"];
    begins.iter().any(|begin| name.starts_with(begin))
}

/// `[anon:glibc: malloc]`: the name that the program gave (vma_set_anon_name(), Linux 5.17).
fn given_name(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(b"[anon:")?.strip_suffix(b"]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn areas(text: &str) -> Areas {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let file = File::open(file.path()).unwrap();
        Areas::read(&file, 4096, &Stop::default()).unwrap()
    }

    #[test]
    fn names_that_programs_give_are_kept_with_whatever_they_are() {
        let areas = areas(
            "7000000000-7000100000 rw-p 00000000 00:00 0 [anon:glibc: malloc arena]\n\
             7000200000-7000300000 rw-p 00000000 00:00 0 [anon:Go: heap]\n\
             7000400000-7000500000 rw-p 00000000 00:00 0 [anon:]]\n\
             7000600000-7000700000 rw-p 00000000 00:00 0 [anon:Go: heap]\n",
        );
        let names: Vec<_> = areas
            .list
            .iter()
            .map(|area| match area.sort {
                AreaSort::Named(place) => areas.names.get(place),
                other => panic!("{other:?}"),
            })
            .collect();
        let heap = Some("Go: heap");
        assert_eq!(names, [Some("glibc: malloc arena"), heap, Some("]"), heap]);
    }

    #[test]
    fn a_mapping_above_a_page_of_nobody_is_guarded_and_libraries_are_known() {
        let areas = areas(
            "1000-2000 ---p 00000000 00:00 0 \n\
             2000-802000 rw-p 00000000 00:00 0 \n\
             900000-910000 ---p 00000000 00:00 0 \n\
             980000-990000 r--s 00000000 fd:01 8 /models/weights\n\
             910000-920000 rw-p 00000000 00:00 0 \n\
             a00000-a01000 r-xp 00000000 fd:01 7 /opt/lib/libjemalloc.so.2\n\
             b00000-b01000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n\
             c00000-c01000 rw-s 00000000 00:01 9 /dev/shm/x\n\
             c80000-c81000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)\n\
             d00000-e00000 rw-p 00000000 00:00 0 [heap]\n",
        );
        let reported: Vec<_> = areas
            .list
            .iter()
            .map(|area| (area.sort, area.is_guarded))
            .collect();
        let expected = [
            (AreaSort::Anonymous, true),
            (AreaSort::SharedFile(0), false),
            (AreaSort::Anonymous, false),
            (AreaSort::File(1), false),
            (AreaSort::Pinned, false),
            (AreaSort::Heap, false),
        ];
        assert_eq!(reported, expected);
        let (part, library) = areas.allocator.unwrap();
        assert_eq!(
            (part, &*library),
            (LayoutPart::Jemalloc, "libjemalloc.so.2")
        );
    }
}
