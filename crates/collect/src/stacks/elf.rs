//! What is read of a mapped program or library: its build id, its table for unwinding, its
//! functions' names. Whoever runs it made it, so every length is bounded before it is believed.

use object::LittleEndian as LE;
use object::elf::{
    ELFMAG, ET_DYN, ET_EXEC, FileHeader64, PF_X, PT_LOAD, ProgramHeader64, SHF_COMPRESSED,
    SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_OBJECT, SectionHeader64, Sym64,
};
use object::pod::{self, Pod};
use std::cell::OnceCell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file with more than this has no names, or no unwinding by tables.
const SECTIONS_MAX: u64 = 4_096;
const SEGMENTS_MAX: u64 = 256;
const SECTION_NAMES_MAX: u64 = 64 << 10;
const NOTE_MAX: u64 = 4 << 10;
const SYMBOLS_BYTES_MAX: u64 = 48 << 20;
/// So much of a symbol is read.
const NAME_MAX: usize = 1_024;
/// Symbols are read in pieces of so many.
const PIECE: usize = 8_192;
/// No symbol that is asked for by its name has a longer one.
const ASKED_NAME_MAX: usize = 32;
/// Their names are read in pieces of so many bytes, in all so many: they need not be in order.
const NAMES_PIECE: u64 = 256 << 10;
const NAMES_MAX: u64 = 64 << 20;
/// What a Python interpreter has, and no other program.
const OF_PYTHON: [&str; 3] = ["_PyRuntime", "Py_Version", "_PyEval_EvalFrameDefault"];

/// The part of a file that is mapped to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Where it is in the file.
    pub(super) offset: u64,
    /// Where the file says that it belongs.
    pub(super) address: u64,
    pub(super) len: u64,
}

/// A section and where the file says that it belongs.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) address: u64,
    pub(super) bytes: Arc<[u8]>,
}

/// A program or library in ELF.
pub(super) struct Elf {
    file: File,
    pub(super) build_id: Option<String>,
    pub(super) segments: Vec<Segment>,
    pub(super) eh_frame: Option<Section>,
    pub(super) eh_frame_hdr: Option<Section>,
    symbols: Option<SymbolTable>,
    /// Those that it offers to others, or takes from them.
    dynamic: Option<SymbolTable>,
    /// Found once, and asked for by each process that maps it.
    python: OnceCell<[Option<Range<u64>>; OF_PYTHON.len()]>,
}

/// Where symbols are in the file.
#[derive(Clone, Copy)]
struct SymbolTable {
    offset: u64,
    count: u64,
    names: u64,
}

/// A function, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    address: u64,
    /// 0 where the file does not say.
    len: u32,
    name: u32,
}

/// The functions of a file in order of their addresses.
#[derive(Default)]
pub(super) struct Functions(Vec<Function>);

impl Elf {
    /// Reads the heads, and the tables for unwinding where they take no more than `room` bytes.
    /// `None` for what is not ELF of 64 bits, little-endian.
    pub(super) fn read(file: File, room: u64) -> Option<Self> {
        let header: FileHeader64<LE> = one(&file, 0)?;
        let is_ours = header.e_ident.magic == ELFMAG
            && header.e_ident.class == object::elf::ELFCLASS64
            && header.e_ident.data == object::elf::ELFDATA2LSB
            && [ET_DYN, ET_EXEC].contains(&header.e_type.get(LE));
        if !is_ours {
            return None;
        }
        let segments = segments(&file, &header)?;
        let mut elf = Self {
            file,
            build_id: None,
            segments,
            eh_frame: None,
            eh_frame_hdr: None,
            symbols: None,
            dynamic: None,
            python: OnceCell::new(),
        };
        elf.read_sections(&header, room);
        Some(elf)
    }

    fn read_sections(&mut self, header: &FileHeader64<LE>, room: u64) -> Option<()> {
        let count = u64::from(header.e_shnum.get(LE));
        let sections: Vec<SectionHeader64<LE>> =
            many(&self.file, header.e_shoff.get(LE), count, SECTIONS_MAX)?;
        let names = sections.get(usize::from(header.e_shstrndx.get(LE)))?;
        let names = section_bytes(&self.file, names, SECTION_NAMES_MAX)?;
        let mut room = room;
        let mut take = |file: &File, section: &SectionHeader64<LE>| {
            let bytes = section_bytes(file, section, room)?;
            room -= bytes.len() as u64;
            Some(Section {
                address: section.sh_addr.get(LE),
                bytes: bytes.into(),
            })
        };
        for section in &sections {
            match name_at(&names, section.sh_name.get(LE) as usize) {
                b".eh_frame" => self.eh_frame = take(&self.file, section),
                b".eh_frame_hdr" => self.eh_frame_hdr = take(&self.file, section),
                b".note.gnu.build-id" => {
                    let note = section_bytes(&self.file, section, NOTE_MAX);
                    self.build_id = note.as_deref().and_then(build_id);
                }
                _ => {}
            }
            let kind = section.sh_type.get(LE);
            if kind == SHT_SYMTAB || kind == SHT_DYNSYM {
                let names = sections.get(section.sh_link.get(LE) as usize);
                let size = section.sh_size.get(LE);
                let names = names.filter(|_| size <= SYMBOLS_BYTES_MAX);
                let table = names.map(|names| SymbolTable {
                    offset: section.sh_offset.get(LE),
                    count: size / size_of::<Sym64<LE>>() as u64,
                    names: names.sh_offset.get(LE),
                });
                match kind {
                    SHT_DYNSYM => self.dynamic = table,
                    _ => self.symbols = table,
                }
            }
        }
        Some(())
    }

    /// Bytes that it holds for unwinding.
    pub(super) fn held_bytes(&self) -> u64 {
        [&self.eh_frame, &self.eh_frame_hdr]
            .into_iter()
            .flatten()
            .map(|section| section.bytes.len() as u64)
            .sum()
    }

    /// From an address of the file to one in a process that has it mapped from `offset` at `start`.
    pub(super) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            // The kernel maps whole pages.
            let begin = segment.offset & !0xfff;
            (begin..segment.offset.saturating_add(segment.len)).contains(&offset)
        })?;
        let address = segment
            .address
            .wrapping_add(offset.wrapping_sub(segment.offset));
        Some(start.wrapping_sub(address))
    }

    /// Its functions, at most so many.
    pub(super) fn functions(&self, max: usize) -> Functions {
        let mut functions = Vec::new();
        // The full table has all that the dynamic one has.
        self.each_symbol(self.symbols.or(self.dynamic), |symbol| {
            let is_function = symbol.st_info & 0xf == STT_FUNC;
            if is_function && functions.len() < max {
                functions.push(Function {
                    address: symbol.st_value.get(LE),
                    len: u32::try_from(symbol.st_size.get(LE)).unwrap_or(u32::MAX),
                    name: symbol.st_name.get(LE),
                });
            }
        });
        functions.sort_unstable_by_key(|function| (function.address, function.len));
        functions.shrink_to_fit();
        Functions(functions)
    }

    /// Where a Python interpreter has its state, its version and its loop. It offers these to its modules;
    /// the full table is many times as large, and what the process runs until it is read has no frames of
    /// Python.
    pub(super) fn python(&self) -> [Option<Range<u64>>; OF_PYTHON.len()] {
        let find = || {
            let found = self.find(OF_PYTHON, self.dynamic);
            match &found {
                [Some(_), _, Some(_)] => found,
                _ => self.find(OF_PYTHON, self.symbols),
            }
        };
        self.python.get_or_init(find).clone()
    }

    /// Where symbols of these names are.
    fn find<const N: usize>(
        &self,
        names: [&str; N],
        table: Option<SymbolTable>,
    ) -> [Option<Range<u64>>; N] {
        let mut found = [const { None }; N];
        let Some(strings) = table.map(|table| table.names) else {
            return found;
        };
        let mut text = SymbolNames::new(&self.file, strings);
        self.each_symbol(table, |symbol| {
            if ![STT_FUNC, STT_OBJECT].contains(&(symbol.st_info & 0xf)) {
                return;
            }
            let Some(name) = text.at(symbol.st_name.get(LE)) else {
                return;
            };
            for (place, wanted) in found.iter_mut().zip(names) {
                if name == wanted.as_bytes() {
                    let begin = symbol.st_value.get(LE);
                    *place = Some(begin..begin.saturating_add(symbol.st_size.get(LE)));
                }
            }
        });
        found
    }

    fn each_symbol(&self, table: Option<SymbolTable>, mut each: impl FnMut(&Sym64<LE>)) {
        let Some(table) = table else {
            return;
        };
        let mut done = 0;
        while done < table.count {
            let count = (table.count - done).min(PIECE as u64);
            let at = table
                .offset
                .saturating_add(done * size_of::<Sym64<LE>>() as u64);
            let Some(symbols) = many::<Sym64<LE>>(&self.file, at, count, PIECE as u64) else {
                return;
            };
            symbols
                .iter()
                .filter(|symbol| symbol.st_shndx.get(LE) != SHN_UNDEF)
                .for_each(&mut each);
            done += count;
        }
    }

    fn symbol_name(&self, at: u32) -> Option<Vec<u8>> {
        let names = self.symbols.or(self.dynamic)?.names;
        let mut bytes = vec![0; NAME_MAX];
        let read = self
            .file
            .read_at(&mut bytes, names.checked_add(u64::from(at))?)
            .ok()?;
        bytes.truncate(read);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        bytes.truncate(end);
        Some(bytes)
    }

    /// The name of the function at an address of the file, as a person knows it.
    pub(super) fn name(&self, functions: &Functions, address: u64) -> Option<String> {
        let function = functions.at(address)?;
        let name = self.symbol_name(function.name)?;
        Some(demangled(&String::from_utf8_lossy(&name)))
    }
}

/// The names of symbols, read piece by piece.
struct SymbolNames<'a> {
    file: &'a File,
    /// Where they begin.
    start: u64,
    /// The last piece, and where it is among them.
    piece: Vec<u8>,
    at: u64,
    /// So much may still be read.
    left: u64,
}

impl<'a> SymbolNames<'a> {
    fn new(file: &'a File, start: u64) -> Self {
        Self {
            file,
            start,
            piece: Vec::new(),
            at: 0,
            left: NAMES_MAX,
        }
    }

    /// The name there. `None` for a longer one than is asked for.
    fn at(&mut self, at: u32) -> Option<&[u8]> {
        let at = u64::from(at);
        let end = self.at + self.piece.len() as u64;
        if at < self.at || at + ASKED_NAME_MAX as u64 > end {
            self.read(at - at % NAMES_PIECE)?;
        }
        let rest = self.piece.get(usize::try_from(at - self.at).ok()?..)?;
        let end = rest
            .iter()
            .take(ASKED_NAME_MAX)
            .position(|byte| *byte == 0)?;
        rest.get(..end)
    }

    fn read(&mut self, at: u64) -> Option<()> {
        if self.at == at && !self.piece.is_empty() {
            // The file ends in it.
            return Some(());
        }
        let len = NAMES_PIECE + ASKED_NAME_MAX as u64;
        self.left = self.left.checked_sub(len)?;
        self.piece.resize(usize::try_from(len).ok()?, 0);
        let read = self
            .file
            .read_at(&mut self.piece, self.start.checked_add(at)?);
        self.piece.truncate(read.unwrap_or(0));
        self.at = at;
        Some(())
    }
}

impl Functions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn at(&self, address: u64) -> Option<Function> {
        let after = self
            .0
            .partition_point(|function| function.address <= address);
        let function = *self.0.get(after.checked_sub(1)?)?;
        let is_within = function.len == 0 || address - function.address < u64::from(function.len);
        is_within.then_some(function)
    }
}

/// C++ and Rust write types into the names of functions.
fn demangled(name: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(name) {
        return format!("{name:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(name) = symbol.demangle()
    {
        return name;
    }
    name.to_owned()
}

fn segments(file: &File, header: &FileHeader64<LE>) -> Option<Vec<Segment>> {
    let count = u64::from(header.e_phnum.get(LE));
    let all: Vec<ProgramHeader64<LE>> = many(file, header.e_phoff.get(LE), count, SEGMENTS_MAX)?;
    let run = all
        .iter()
        .filter(|segment| segment.p_type.get(LE) == PT_LOAD && segment.p_flags.get(LE) & PF_X != 0);
    Some(
        run.map(|segment| Segment {
            offset: segment.p_offset.get(LE),
            address: segment.p_vaddr.get(LE),
            len: segment.p_filesz.get(LE),
        })
        .collect(),
    )
}

/// A note: lengths of name and content, a type, the name, the content.
fn build_id(note: &[u8]) -> Option<String> {
    const GNU_BUILD_ID: u32 = 3;
    let word = |at: usize| {
        let bytes = note.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let (name_len, len, kind) = (word(0)?, word(4)? as usize, word(8)?);
    if name_len != 4 || kind != GNU_BUILD_ID || note.get(12..16)? != b"GNU\0" || len > 64 {
        return None;
    }
    let id = note.get(16..16 + len)?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn name_at(names: &[u8], at: usize) -> &[u8] {
    let rest = names.get(at..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
    rest.get(..end).unwrap_or_default()
}

fn section_bytes(file: &File, section: &SectionHeader64<LE>, max: u64) -> Option<Vec<u8>> {
    if section.sh_flags.get(LE) & u64::from(SHF_COMPRESSED) != 0 {
        return None;
    }
    bytes_at(
        file,
        section.sh_offset.get(LE),
        section.sh_size.get(LE),
        max,
    )
}

fn bytes_at(file: &File, at: u64, len: u64, max: u64) -> Option<Vec<u8>> {
    if len > max {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn many<T: Pod>(file: &File, at: u64, count: u64, max: u64) -> Option<Vec<T>> {
    if count > max {
        return None;
    }
    let bytes = bytes_at(file, at, count * size_of::<T>() as u64, u64::MAX)?;
    let (items, _) = pod::slice_from_bytes(&bytes, usize::try_from(count).ok()?).ok()?;
    Some(items.to_vec())
}

fn one<T: Pod>(file: &File, at: u64) -> Option<T> {
    many(file, at, 1, 1)?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn names_are_found_across_pieces_and_at_the_end_of_the_file() {
        let piece = NAMES_PIECE as usize;
        let mut bytes = vec![b'x'; 2 * piece];
        let start = 7;
        for (at, name) in [
            (0, "first\0"),
            (piece - 3, "across\0"),
            (2 * piece - 12, "last\0"),
        ] {
            bytes[start + at..start + at + name.len()].copy_from_slice(name.as_bytes());
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut names = SymbolNames::new(&file, start as u64);
        let mut text = |at: usize| {
            let name = names.at(at as u32).map(<[u8]>::to_vec);
            name.map(|name| String::from_utf8(name).unwrap())
        };
        for _ in 0..2 {
            assert_eq!(text(2 * piece - 12).as_deref(), Some("last"));
            assert_eq!(text(0).as_deref(), Some("first"));
            assert_eq!(text(piece - 3).as_deref(), Some("across"));
        }
        assert_eq!(text(100), None, "no name of an interpreter is so long");
        assert_eq!(text(3 * piece), None);
    }

    /// A file of symbols of these names, each so many bytes long, and where it has them.
    fn table_of(names: [&str; OF_PYTHON.len()]) -> (File, SymbolTable) {
        let mut strings = vec![0];
        let mut bytes = Vec::new();
        for (place, name) in (1_u64..).zip(names) {
            let [kind, section] = [STT_FUNC, 1];
            bytes.extend((strings.len() as u32).to_le_bytes());
            bytes.extend([kind, 0, section, 0]);
            bytes.extend((0x1000 * place).to_le_bytes());
            bytes.extend(0x10_u64.to_le_bytes());
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let table = SymbolTable {
            offset: 0,
            count: names.len() as u64,
            names: bytes.len() as u64,
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.write_all(&strings).unwrap();
        (file, table)
    }

    #[test]
    fn an_interpreter_is_found_among_what_it_offers_or_else_among_all_symbols() {
        let found = |names, is_dynamic: bool| {
            let (file, table) = table_of(names);
            // Nothing can be read of the other.
            let none = SymbolTable {
                offset: 1 << 40,
                ..table
            };
            let (dynamic, symbols) = match is_dynamic {
                true => (table, none),
                false => (none, table),
            };
            let elf = Elf {
                file,
                build_id: None,
                segments: Vec::new(),
                eh_frame: None,
                eh_frame_hdr: None,
                symbols: Some(symbols),
                dynamic: Some(dynamic),
                python: OnceCell::new(),
            };
            elf.python().map(|range| range.map(|range| range.start))
        };
        let all = [Some(0x1000), Some(0x2000), Some(0x3000)];
        assert_eq!(found(OF_PYTHON, true), all);
        assert_eq!(found(OF_PYTHON, false), all);
        // 3.10 has no version among them.
        let older = ["_PyRuntime", "Py_Other", "_PyEval_EvalFrameDefault"];
        assert_eq!(found(older, true), [Some(0x1000), None, Some(0x3000)]);
        assert_eq!(found(["main", "a", "b"], true), [None, None, None]);
    }
}
