//! Names of code that a program makes as it runs, where its compiler writes them for profilers: into
//! /tmp/perf-PID.map, as those of Node.js, JVMs and CPython do when they are asked to. A line is the
//! address, the length, both in hexadecimal digits, and the name.

use crate::fields::{number, pairs};
use memtrace_host::clock;
use memtrace_model::{BootNs, Tgid};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// So much is read at once, and so often before others have their turn: whoever writes it may never end.
const PIECE: usize = 256 << 10;
const PIECES: usize = 16;
/// So much of a name is kept.
const NAME_MAX: usize = 256;
/// An address that has no name makes more be read, but not more often.
const READ_NS: i64 = 500_000_000;

/// A function that a program has made: where it begins, and its name.
pub(super) type Made = (u64, Arc<str>);

/// The names of one process.
#[derive(Default)]
pub(super) struct PerfMap {
    /// Length and name by where they begin: what is made anew at a place replaces what was there.
    functions: BTreeMap<u64, (u64, Arc<str>)>,
    file: Option<File>,
    /// So much of it is taken.
    taken: u64,
    read_at: Option<BootNs>,
}

impl PerfMap {
    /// The function at an address of a process. What is kept of names is taken from `room`.
    pub(super) fn find(&mut self, proc: &Path, address: u64, room: &mut usize) -> Option<Made> {
        self.known(address).or_else(|| {
            let now = clock::boot();
            if self.read_at.is_some_and(|read| (now - read).0 < READ_NS) {
                return None;
            }
            self.read_at = Some(now);
            if self.file.is_none() {
                self.file = open(proc);
            }
            self.read(room);
            self.known(address)
        })
    }

    fn known(&self, address: u64) -> Option<Made> {
        let (start, (len, name)) = self.functions.range(..=address).next_back()?;
        (address - start < *len).then(|| (*start, Arc::clone(name)))
    }

    /// Takes the lines that have been written since.
    fn read(&mut self, room: &mut usize) {
        let Some(file) = &self.file else {
            return;
        };
        let mut piece = vec![0; PIECE];
        for _ in 0..PIECES {
            let count = file.read_at(&mut piece, self.taken).unwrap_or(0);
            let lines = piece.get(..count).unwrap_or_default();
            let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else {
                return;
            };
            let lines = lines.get(..end).unwrap_or_default();
            for (start, len, name) in lines.split(|byte| *byte == b'\n').filter_map(function) {
                let Some(left) = room.checked_sub(name.len() + size_of::<(u64, u64, Made)>())
                else {
                    return;
                };
                *room = left;
                self.functions.insert(start, (len, name.into()));
            }
            self.taken += end as u64 + 1;
        }
    }
}

/// A line of the file.
fn function(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line);
    let (start, rest) = line.split_once(' ')?;
    let (len, name) = rest.split_once(' ')?;
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let name: String = name.chars().take(NAME_MAX).collect();
    Some((hex(start)?, hex(len)?, without_tier(name)))
}

/// V8 marks which of its compilers has made a function (`JS:*grow`): it is the same function by each.
fn without_tier(mut name: String) -> String {
    if let Some((kind, rest)) = name.split_once(':')
        && !kind.is_empty()
        && kind.bytes().all(|byte| byte.is_ascii_alphabetic())
        && rest.starts_with(['~', '^', '+', '*'])
    {
        name.remove(kind.len() + 1);
    }
    name
}

/// The file that a process has written, in its own /tmp and by its own id. Others can write there, too: only
/// the process's own user is believed.
fn open(proc: &Path) -> Option<File> {
    let status = std::fs::read(proc.join("status")).ok()?;
    let of =
        |wanted: &[u8]| pairs(&status).find_map(|(key, value)| (key == wanted).then_some(value));
    let id = of(b"NSpid")?.rsplit(u8::is_ascii_whitespace).next();
    let id = Tgid(id.and_then(number)?);
    let root = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let root = rustix::fs::open(proc.join("root"), root, Mode::empty()).ok()?;
    // A FIFO is not waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = format!("tmp/perf-{id}.map");
    let file = File::from(openat2(root, path, flags, Mode::empty(), resolve).ok()?);
    let metadata = file.metadata().ok()?;
    let is_theirs = of(b"Uid").and_then(number) == Some(metadata.uid());
    (metadata.is_file() && is_theirs).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    /// A process that has written a map, as /proc shows it.
    fn proc(uid: u32) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        let status = format!("Name:\tnode\nUid:\t{uid}\t0\t0\t0\nNSpid:\t4242\t17\n");
        std::fs::write(proc.path().join("status"), status).unwrap();
        std::fs::create_dir_all(proc.path().join("root/tmp")).unwrap();
        proc
    }

    fn own_uid() -> u32 {
        std::fs::metadata("/proc/self").unwrap().uid()
    }

    fn name(map: &mut PerfMap, proc: &Path, address: u64) -> Option<(u64, String)> {
        map.read_at = None;
        let found = map.find(proc, address, &mut 4096)?;
        Some((found.0, found.1.to_string()))
    }

    #[test]
    fn a_function_is_found_by_any_address_in_it_also_when_it_came_later() {
        let proc = proc(own_uid());
        let path = proc.path().join("root/tmp/perf-17.map");
        std::fs::write(
            &path,
            "1000 20 LazyCompile:~grow server.js:7\n0x2000 0x8 old\nno line\n30",
        )
        .unwrap();
        let mut map = PerfMap::default();
        let grow = Some((0x1000, "LazyCompile:grow server.js:7".to_owned()));
        assert_eq!(name(&mut map, proc.path(), 0x101f), grow);
        assert_eq!(name(&mut map, proc.path(), 0x1020), None);
        assert_eq!(
            name(&mut map, proc.path(), 0x2007),
            Some((0x2000, "old".to_owned()))
        );
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"00 10 late\n2000 8 new\n").unwrap();
        assert_eq!(
            name(&mut map, proc.path(), 0x3001),
            Some((0x3000, "late".to_owned()))
        );
        assert_eq!(
            name(&mut map, proc.path(), 0x2000),
            Some((0x2000, "new".to_owned()))
        );
    }

    #[test]
    fn a_function_has_one_name_whichever_compiler_made_it() {
        for mark in ["~", "^", "+", "*", ""] {
            let line = format!("1000 20 JS:{mark}grow leak.js:2:21");
            let found = function(line.as_bytes()).unwrap();
            assert_eq!(found.2, "JS:grow leak.js:2:21");
        }
        for name in ["py::f:/app/*.py", "void a::*b", ":*", "Stub:"] {
            assert_eq!(without_tier(name.to_owned()), name);
        }
    }

    #[test]
    fn a_map_without_end_is_read_in_turns() {
        let proc = proc(own_uid());
        let mut text = vec![b'\n'; PIECES * PIECE];
        text.extend_from_slice(b"1000 20 grow\n");
        std::fs::write(proc.path().join("root/tmp/perf-17.map"), text).unwrap();
        let mut map = PerfMap::default();
        assert_eq!(name(&mut map, proc.path(), 0x1000), None);
        assert!(name(&mut map, proc.path(), 0x1000).is_some());
    }

    #[test]
    fn what_another_user_has_put_there_is_not_believed() {
        let proc = proc(own_uid() + 1);
        std::fs::write(proc.path().join("root/tmp/perf-17.map"), "1000 20 grow\n").unwrap();
        assert_eq!(name(&mut PerfMap::default(), proc.path(), 0x1000), None);
    }

    #[test]
    fn a_link_is_not_followed_and_names_take_no_more_than_their_room() {
        let proc = proc(own_uid());
        let path = proc.path().join("root/tmp/perf-17.map");
        let elsewhere = proc.path().join("elsewhere");
        std::fs::write(&elsewhere, "1000 20 grow\n").unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(name(&mut PerfMap::default(), proc.path(), 0x1000), None);
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&elsewhere, &path).unwrap();
        assert!(
            PerfMap::default()
                .find(proc.path(), 0x1000, &mut 8)
                .is_none()
        );
        assert!(name(&mut PerfMap::default(), proc.path(), 0x1000).is_some());
    }
}
