//! A process that grows: its mapped files, its interpreter, its memory and page table, each opened
//! once, so that what is read is of this process also when its id is another's by then.

use super::elf::{Elf, Functions};
use super::frames::{Code, Native, NativeRole, Python};
use super::perf_map::PerfMap;
use super::python::Interpreter;
use super::unwind::{Registers, Unwinder};
use crate::smaps::Blocks;
use memtrace_abi::{PythonLayout, StackSample};
use memtrace_host::clock;
use memtrace_model::{BootNs, PageSize, Tgid};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So much of the list of mappings is read.
const MAPS_MAX: u64 = 16 << 20;
/// The same for the brk heap, which lies low.
const LOW_MAPS_MAX: u64 = 64 << 10;
/// Where code is found that no known mapping holds, mappings are listed anew, but not more often.
const LIST_NS: i64 = 500_000_000;
/// A young process is looked through for an interpreter again after this, an older one more rarely.
const LOOK_NS: i64 = 5_000_000;
const LOOK_MAX_NS: i64 = 20_000_000_000;
/// The programs wake the reader for that as long as it is looked for at least so often.
const LOOK_URGENT_NS: i64 = 1_000_000_000;

/// Files that are kept, and bytes of their tables.
const FILES_MAX: usize = 512;
const TABLES_MAX: u64 = 24 << 20;
const FUNCTIONS_MAX: usize = 600_000;
/// Bytes of names of code that programs make as they run.
const MADE_MAX: usize = 8 << 20;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A page of a file or of shared memory.
const OF_FILE: u64 = 1 << 61;
/// One that is mapped once (4.2).
const MAPPED_ONCE: u64 = 1 << 56;

/// The mapped files of all processes.
pub(super) struct Files {
    list: Vec<MappedFile>,
    by_inode: HashMap<Inode, usize>,
    table_bytes: u64,
    function_count: usize,
    /// What is left of [`MADE_MAX`].
    made_room: usize,
}

/// A file and its content.
type Inode = (u64, u64, i64, i64);

/// A file that is mapped to run.
pub(super) struct MappedFile {
    pub(super) path: String,
    elf: Option<Elf>,
    functions: Option<Functions>,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            by_inode: HashMap::new(),
            table_bytes: 0,
            function_count: 0,
            made_room: MADE_MAX,
        }
    }
}

impl Files {
    /// The file behind a mapping; `None` where it can't be had, or too many are known.
    fn place(&mut self, file: File, path: &str) -> Option<usize> {
        let stat = file.metadata().ok().filter(|stat| stat.is_file())?;
        let inode = (stat.dev(), stat.ino(), stat.mtime(), stat.mtime_nsec());
        if let Some(place) = self.by_inode.get(&inode) {
            return Some(*place);
        }
        if self.list.len() >= FILES_MAX {
            return None;
        }
        let elf = Elf::read(file, TABLES_MAX - self.table_bytes);
        self.table_bytes += elf.as_ref().map_or(0, Elf::held_bytes);
        let place = self.list.len();
        self.list.push(MappedFile {
            path: path.to_owned(),
            elf,
            functions: None,
        });
        self.by_inode.insert(inode, place);
        Some(place)
    }

    fn elf(&self, place: usize) -> Option<&Elf> {
        self.list.get(place)?.elf.as_ref()
    }

    /// The file's path, its build id, and the function at an address.
    pub(super) fn names(&mut self, code: &Code) -> Names {
        let Some(file) = code.file.and_then(|place| self.list.get_mut(place)) else {
            let function = code.made.as_deref().map(str::to_owned);
            return Names {
                function,
                ..Names::default()
            };
        };
        let mut names = Names {
            path: Some(file.path.clone()),
            ..Names::default()
        };
        if let Some(elf) = &file.elf {
            let room = FUNCTIONS_MAX - self.function_count;
            let functions = file.functions.get_or_insert_with(|| {
                let functions = elf.functions(room);
                self.function_count += functions.len();
                functions
            });
            names.build_id.clone_from(&elf.build_id);
            names.function = elf.name(functions, code.address);
        }
        names
    }
}

/// What a place in machine code is called.
#[derive(Default)]
pub(super) struct Names {
    pub(super) path: Option<String>,
    pub(super) build_id: Option<String>,
    pub(super) function: Option<String>,
}

/// A mapping of a file that may run.
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
    /// The file, once it is known, and what to add to its addresses.
    file: Option<(usize, u64)>,
    is_tried: bool,
}

/// A process that grows.
pub(super) struct Watched {
    pub(super) tgid: Tgid,
    /// Its address space, as the kernel names it.
    pub(super) mm: u64,
    folder: PathBuf,
    page_size: u64,
    memory: File,
    pagemap: File,
    mappings: Vec<Mapping>,
    listed_at: Option<BootNs>,
    unwinder: Unwinder,
    interpreter: Option<Interpreter>,
    perf_map: PerfMap,
    interpreter_at: BootNs,
    look_after_ns: i64,
    blocks: Blocks,
    /// When its sampled memory was last looked at.
    pub(super) looked_at: BootNs,
    /// When its heaps were last searched.
    pub(super) searched_at: BootNs,
}

impl Watched {
    /// Opens it; `None` when it has ended, or reads are refused.
    pub(super) fn open(tgid: Tgid, mm: u64, page_size: PageSize) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{tgid}"));
        let open = |name: &str| File::open(folder.join(name)).ok();
        Some(Self {
            tgid,
            mm,
            page_size: page_size.0.cast_unsigned(),
            memory: open("mem")?,
            pagemap: open("pagemap")?,
            folder,
            mappings: Vec::new(),
            listed_at: None,
            unwinder: Unwinder::new(),
            interpreter: None,
            perf_map: PerfMap::default(),
            interpreter_at: BootNs(i64::MIN / 2),
            look_after_ns: LOOK_NS,
            blocks: Blocks::default(),
            looked_at: clock::boot(),
            searched_at: BootNs(0),
        })
    }

    /// What the BPF programs are to know of its interpreter, when that has not been looked for, or
    /// not for a while.
    pub(super) fn look_for_interpreter(&mut self, files: &mut Files) -> Option<PythonLayout> {
        let now = clock::boot();
        if self.interpreter.is_some() || (now - self.interpreter_at).0 < self.look_after_ns {
            return None;
        }
        self.interpreter_at = now;
        self.look_after_ns = (2 * self.look_after_ns).min(LOOK_MAX_NS);
        self.list();
        self.interpreter = self.find_interpreter(files);
        let none = PythonLayout {
            mm: self.mm,
            is_looked_for: u32::from(self.look_after_ns < LOOK_URGENT_NS),
            ..PythonLayout::default()
        };
        Some(self.interpreter.as_ref().map_or(none, |found| found.layout))
    }

    /// In the program, which lies lowest, or in a library that is called so.
    fn find_interpreter(&mut self, files: &mut Files) -> Option<Interpreter> {
        let is_candidate = |place: usize, mapping: &Mapping| {
            let name = mapping.path.rsplit('/').next().unwrap_or_default();
            place == 0 || name.contains("python")
        };
        for place in 0..self.mappings.len() {
            if !is_candidate(place, self.mappings.get(place)?) {
                continue;
            }
            let Some((file, bias)) = self.load(place, files) else {
                continue;
            };
            let elf = files.elf(file)?;
            let image = (elf, self.mappings.get(place)?.path.as_str());
            if let Some(found) = Interpreter::find(image, file, bias, self.mm, &self.memory) {
                return Some(found);
            }
        }
        None
    }

    /// Lists the mappings of files that may run.
    fn list(&mut self) {
        self.listed_at = Some(clock::boot());
        let mut text = Vec::new();
        let read = File::open(self.folder.join("maps"))
            .and_then(|file| file.take(MAPS_MAX).read_to_end(&mut text));
        if read.is_err() {
            return;
        }
        let lines = text.split(|byte| *byte == b'\n');
        let known: HashMap<(u64, u64, u64), Mapping> = self
            .mappings
            .drain(..)
            .map(|mapping| ((mapping.start, mapping.end, mapping.offset), mapping))
            .collect();
        let mut known = known;
        for mut mapping in lines.filter_map(mapping) {
            let key = (mapping.start, mapping.end, mapping.offset);
            if let Some(same) = known.remove(&key).filter(|same| same.path == mapping.path) {
                mapping = same;
            }
            self.mappings.push(mapping);
        }
        if !known.is_empty() {
            // Something was unmapped: what the unwinder knows of it is no longer true.
            self.unwinder = Unwinder::new();
            for mapping in &mut self.mappings {
                (mapping.file, mapping.is_tried) = (None, false);
            }
        }
    }

    /// Opens the file of a mapping and makes it known to the unwinder.
    fn load(&mut self, place: usize, files: &mut Files) -> Option<(usize, u64)> {
        let mapping = self.mappings.get_mut(place)?;
        if mapping.is_tried {
            return mapping.file;
        }
        mapping.is_tried = true;
        let name = format!("{:x}-{:x}", mapping.start, mapping.end);
        // Not by its path, which is the process's, and may lead elsewhere by now.
        let file = File::open(self.folder.join("map_files").join(name)).ok()?;
        let file = files.place(file, &mapping.path)?;
        let elf = files.elf(file)?;
        let bias = elf.bias(mapping.start, mapping.offset)?;
        // The unwinder takes one from the other.
        let bias = Some(bias).filter(|bias| *bias <= mapping.start)?;
        self.unwinder.add(mapping.start..mapping.end, bias, elf);
        mapping.file = Some((file, bias));
        mapping.file
    }

    fn find(&self, address: u64) -> Option<usize> {
        let after = self.mappings.partition_point(|one| one.start <= address);
        let place = after.checked_sub(1)?;
        (address < self.mappings.get(place)?.end).then_some(place)
    }

    /// The frames of machine code, innermost first.
    pub(super) fn native(&mut self, sample: &StackSample, files: &mut Files) -> Vec<Native> {
        let at = Registers {
            instruction: sample.instruction,
            stack: sample.stack,
            frame: sample.frame,
        };
        let len = (sample.stack_len as usize).min(sample.stack_bytes.len());
        let stack = sample.stack_bytes.get(..len).unwrap_or_default();
        if self.listed_at.is_none() {
            self.list();
        }
        // A file that unwinding comes upon has its table read, and unwinding begins anew. Each of them
        // leads at least one frame further.
        let mut addresses = self.unwinder.unwind(at, stack);
        for _ in 0..self.mappings.len() {
            if !self.load_all(&addresses, files) {
                break;
            }
            addresses = self.unwinder.unwind(at, stack);
        }
        addresses
            .iter()
            .map(|address| self.code(*address, &mut files.made_room))
            .collect()
    }

    /// Makes known what holds these addresses. False where all of it was.
    fn load_all(&mut self, addresses: &[u64], files: &mut Files) -> bool {
        let mut is_new = false;
        for address in addresses {
            if self.find(*address).is_none() && self.may_list() {
                self.list();
            }
            if let Some(place) = self.find(*address)
                && self.mappings.get(place).is_some_and(|one| !one.is_tried)
            {
                self.load(place, files);
                is_new = true;
            }
        }
        is_new
    }

    fn may_list(&self) -> bool {
        self.listed_at
            .is_none_or(|at| (clock::boot() - at).0 >= LIST_NS)
    }

    fn code(&mut self, address: u64, made_room: &mut usize) -> Native {
        let mapping = self.find(address);
        let file = mapping.and_then(|place| self.mappings.get(place)?.file);
        let role = match &self.interpreter {
            Some(interpreter) if interpreter.evaluates.contains(&address) => NativeRole::Evaluates,
            Some(interpreter) if file.is_some_and(|(file, _)| file == interpreter.file) => {
                NativeRole::OfInterpreter
            }
            _ => NativeRole::Other,
        };
        let code = match file {
            Some((file, bias)) => Code {
                file: Some(file),
                address: address.wrapping_sub(bias),
                made: None,
            },
            None => {
                let made = match mapping {
                    None => self.perf_map.find(&self.folder, address, made_room),
                    Some(_) => None,
                };
                let (address, made) = made.map_or((address, None), |(at, name)| (at, Some(name)));
                Code {
                    file: None,
                    address,
                    made,
                }
            }
        };
        Native { code, role }
    }

    /// The frames of Python, innermost first.
    pub(super) fn python(&mut self, sample: &StackSample) -> Vec<Python> {
        let Some(interpreter) = &mut self.interpreter else {
            return Vec::new();
        };
        let count = (sample.python_count as usize).min(sample.python.len());
        let frames = sample.python.iter().zip(&sample.python_marks).take(count);
        frames
            .map(|(frame, mark)| {
                let (is_entry, is_none) = interpreter.entry(*mark);
                let line = match is_none {
                    true => None,
                    false => interpreter.line(&self.memory, frame.code, frame.instruction),
                };
                Python {
                    line: line.map(Arc::new),
                    is_entry,
                }
            })
            .collect()
    }

    /// Whether the page at an address is there, in memory or swapped, and whether it is one of shared
    /// memory that others map, too; `None` when the process has ended.
    pub(super) fn page(&self, address: u64) -> Option<(bool, bool)> {
        let mut entry = [0; 8];
        let at = address.checked_div(self.page_size)? * 8;
        self.pagemap.read_exact_at(&mut entry, at).ok()?;
        let entry = u64::from_le_bytes(entry);
        let is_shared = entry & (OF_FILE | MAPPED_ONCE) == OF_FILE;
        Some((entry & (PRESENT | SWAPPED) != 0, is_shared))
    }

    /// Whether addresses, in ascending order, lie in blocks that malloc has free, as far as `left` bytes
    /// of its heaps lead; `true` with them where all of its heaps were searched.
    pub(super) fn search(&mut self, addresses: &[u64], left: &mut u64) -> (Vec<(u64, bool)>, bool) {
        self.searched_at = clock::boot();
        let files = self
            .memory
            .try_clone()
            .ok()
            .zip(self.pagemap.try_clone().ok());
        let Some(files) = files else {
            return (Vec::new(), true);
        };
        let brk = self.brk();
        self.blocks
            .search(files, self.page_size, brk, addresses, left)
    }

    /// Where its brk heap begins and ends: the mapping that the kernel calls so, right above the program.
    fn brk(&self) -> Option<(u64, u64)> {
        let mut text = Vec::new();
        let maps = File::open(self.folder.join("maps")).ok()?;
        maps.take(LOW_MAPS_MAX).read_to_end(&mut text).ok()?;
        let lines = text.split(|byte| *byte == b'\n');
        let heaps = lines.filter(|line| line.ends_with(b"[heap]"));
        let ranges = heaps.filter_map(|line| {
            let line = String::from_utf8_lossy(line);
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let hex = |word: &str| u64::from_str_radix(word, 16).ok();
            Some((hex(start)?, hex(end)?))
        });
        ranges.reduce(|(start, _), (_, end)| (start, end))
    }

    /// Whether this is still what /proc shows by that id.
    pub(super) fn is_there(&self) -> bool {
        let mut entry = [0; 8];
        Path::new(&self.folder).exists() && self.pagemap.read_at(&mut entry, 0).is_ok_and(|n| n > 0)
    }
}

/// A line of /proc/PID/maps: `start-end rwxp offset device inode path`, of a file that may run.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let (flags, offset) = (words.next()?, words.next()?);
    let (_device, inode) = (words.next()?, words.next()?);
    let path = words.next()?.trim_start();
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    if !flags.contains('x') || inode == "0" {
        return None;
    }
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        path: path.to_owned(),
        file: None,
        is_tried: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_files_that_may_run_are_listed() {
        let line =
            b"7f00-7f10 r-xp 0002a000 fe:01 77                     /usr/lib/a b.so (deleted)";
        let one = mapping(line).expect("a mapping");
        assert_eq!((one.start, one.end, one.offset), (0x7f00, 0x7f10, 0x2a000));
        assert_eq!(one.path, "/usr/lib/a b.so (deleted)");
        for line in [
            "7f00-7f10 rw-p 00000000 fe:01 77 /usr/lib/a.so",
            "7f00-7f10 r-xp 00000000 00:00 0 [vdso]",
            "7f00-7f10 r-xp 00000000 00:00 0 ",
            "7f00",
            "",
        ] {
            assert!(mapping(line.as_bytes()).is_none(), "{line}");
        }
    }
}
