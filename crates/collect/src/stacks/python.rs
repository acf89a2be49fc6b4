//! CPython from outside: where an interpreter keeps its frames, and what a code object is called.
//!
//! 3.13 and 3.14 describe themselves (`_Py_DebugOffsets` at the begin of `_PyRuntime`); the offsets of 3.9
//! to 3.12 are those that offsetof gives with CPython's headers, the same in every release of a
//! version. Of any other version, and of builds without the GIL, nothing is read. A code object is
//! believed when its type is called `code`.

use super::elf::Elf;
use memtrace_abi::PythonLayout;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Names and paths are no longer than this, in characters.
const NAME_MAX: u64 = 2_048;
/// Where lines are in code, of the longest function that is believed.
const TABLE_MAX: u64 = 256 << 10;
/// What is read of a code object lies within so much.
const CODE_MAX: u64 = 4 << 10;
/// Code objects that are remembered of one process, and bytes of their tables.
const CODES_MAX: usize = 8_192;
const TABLES_MAX: usize = 4 << 20;

/// A line of Python.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PythonLine {
    pub(super) file: Arc<str>,
    /// The qualified name of the function.
    pub(super) function: Arc<str>,
    /// 0 where it is not known.
    pub(super) line: u32,
}

/// Offsets in objects that only user space reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Objects {
    code_filename: u64,
    code_qualname: u64,
    code_linetable: u64,
    code_first_line: u64,
    lines: Lines,
    /// sizeof(PyASCIIObject), where its characters begin.
    ascii: u64,
    /// sizeof(PyCompactUnicodeObject), where its characters begin.
    compact: u64,
    /// From here on the byte at `frame_mark` says that the interpreter's loop was entered with it.
    entry_mark: u8,
    /// Whether such a frame stands between others and runs nothing itself.
    is_entry_a_shim: bool,
}

/// How a frame and its code say which line it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    /// 3.9: `co_lnotab`, and the frame has the offset of the instruction in bytes.
    Changes,
    /// 3.10: `co_linetable`, and the frame has the number of the instruction.
    Ranges,
    /// 3.11 on: the location table, and the frame has the address of the instruction. Code begins so
    /// far into its object.
    Locations(u64),
}

/// An interpreter in a process.
pub(super) struct Interpreter {
    /// What the programs are reported.
    pub(super) layout: PythonLayout,
    /// The loop that runs frames of Python, in memory.
    pub(super) evaluates: Range<u64>,
    /// The file that it is in.
    pub(super) file: usize,
    objects: Objects,
    codes: HashMap<u64, Known>,
    table_bytes: usize,
    /// Types called `code`.
    code_type: Option<u64>,
}

/// A code object that was read, with what shows that it is still the same.
struct Known {
    words: [u64; 4],
    file: Arc<str>,
    function: Arc<str>,
    table: Box<[u8]>,
}

/// Offsets in objects that all versions share.
const OB_TYPE: u64 = 8;
const TP_NAME: u64 = 24;
const VAR_SIZE: u64 = 16;
const BYTES: u64 = 32;
const STR_LENGTH: u64 = 16;
const STR_STATE: u64 = 32;

/// Before 3.11 every frame is an object, and the interpreter's loop is entered with each, whatever its
/// mark.
const fn layout_before_3_11(last_instruction: u32) -> PythonLayout {
    PythonLayout {
        mm: 0,
        interpreters: 32,
        interpreter_next: 0,
        interpreter_threads: 8,
        thread_next: 8,
        thread_id: 176,
        thread_frame: 24,
        cframe_frame: PythonLayout::NO_CFRAME,
        frame_code: 32,
        frame_previous: 24,
        frame_instruction: last_instruction,
        frame_mark: 0,
        is_looked_for: 0,
        is_thread_by_address: 1,
    }
}

const fn objects_before_3_11(lines: Lines) -> Objects {
    Objects {
        code_filename: 104,
        // co_name: code has no qualified one.
        code_qualname: 112,
        code_linetable: 120,
        code_first_line: 40,
        lines,
        ascii: 48,
        compact: 72,
        entry_mark: 0,
        is_entry_a_shim: false,
    }
}

const fn layout_3_11() -> PythonLayout {
    PythonLayout {
        mm: 0,
        interpreters: 40,
        interpreter_next: 0,
        interpreter_threads: 16,
        thread_next: 8,
        thread_id: 160,
        thread_frame: 56,
        cframe_frame: 8,
        frame_code: 32,
        frame_previous: 48,
        frame_instruction: 56,
        frame_mark: 68,
        is_looked_for: 0,
        is_thread_by_address: 0,
    }
}

const OBJECTS_3_11: Objects = Objects {
    code_filename: 112,
    code_qualname: 128,
    code_linetable: 136,
    code_first_line: 72,
    lines: Lines::Locations(184),
    ascii: 48,
    compact: 72,
    entry_mark: 1,
    is_entry_a_shim: false,
};

const fn layout_3_12() -> PythonLayout {
    PythonLayout {
        mm: 0,
        interpreters: 40,
        interpreter_next: 0,
        interpreter_threads: 72,
        thread_next: 8,
        thread_id: 144,
        thread_frame: 56,
        cframe_frame: 0,
        frame_code: 0,
        frame_previous: 8,
        frame_instruction: 56,
        frame_mark: 70,
        is_looked_for: 0,
        is_thread_by_address: 0,
    }
}

/// FRAME_OWNED_BY_CSTACK, of a frame without code of its own.
const OWNED_BY_C: u8 = 3;

const OBJECTS_3_12: Objects = Objects {
    code_filename: 112,
    code_qualname: 128,
    code_linetable: 136,
    code_first_line: 68,
    lines: Lines::Locations(192),
    ascii: 40,
    compact: 56,
    entry_mark: OWNED_BY_C,
    is_entry_a_shim: true,
};

/// Words of `_Py_DebugOffsets` that are read.
const OFFSETS: usize = 81;

/// Where a version has what in `_Py_DebugOffsets`, in words.
struct Places {
    thread_next: usize,
    thread_frame: usize,
    thread_native_id: usize,
    frame_previous: usize,
    frame_code: usize,
    frame_instruction: usize,
    frame_mark: usize,
    /// Of filename, qualname, linetable, firstlineno and co_code_adaptive.
    code: [usize; 5],
    ascii: usize,
}

const PLACES_3_13: Places = Places {
    thread_next: 21,
    thread_frame: 23,
    thread_native_id: 25,
    frame_previous: 29,
    frame_code: 30,
    frame_instruction: 31,
    frame_mark: 33,
    code: [35, 37, 38, 39, 43],
    ascii: 70,
};

const PLACES_3_14: Places = Places {
    thread_next: 24,
    thread_frame: 26,
    thread_native_id: 28,
    frame_previous: 32,
    frame_code: 33,
    frame_instruction: 34,
    frame_mark: 36,
    code: [40, 42, 43, 44, 48],
    ascii: 80,
};

/// What an interpreter says of itself.
fn described(
    words: &[u64; OFFSETS],
    version: u64,
    places: &Places,
) -> Option<(PythonLayout, Objects)> {
    let is_free_threaded = words[2] != 0;
    if words[0].to_le_bytes() != *b"xdebugpy" || words[1] != version || is_free_threaded {
        return None;
    }
    let offset = |place: usize| u32::try_from(words[place]).ok().filter(|at| *at < 1 << 20);
    let layout = PythonLayout {
        mm: 0,
        interpreters: offset(5)?.into(),
        interpreter_next: offset(8)?,
        interpreter_threads: offset(9)?,
        thread_next: offset(places.thread_next)?,
        thread_id: offset(places.thread_native_id)?,
        thread_frame: offset(places.thread_frame)?,
        cframe_frame: PythonLayout::NO_CFRAME,
        frame_code: offset(places.frame_code)?,
        frame_previous: offset(places.frame_previous)?,
        frame_instruction: offset(places.frame_instruction)?,
        frame_mark: offset(places.frame_mark)?,
        is_looked_for: 0,
        is_thread_by_address: 0,
    };
    let [file, name, table, first_line, instructions] = places.code;
    let ascii = u64::from(offset(places.ascii)?);
    let objects = Objects {
        code_filename: offset(file)?.into(),
        code_qualname: offset(name)?.into(),
        code_linetable: offset(table)?.into(),
        code_first_line: offset(first_line)?.into(),
        lines: Lines::Locations(offset(instructions)?.into()),
        ascii,
        // Behind it the length of the text in UTF-8 and a pointer to that.
        compact: ascii + 16,
        entry_mark: OWNED_BY_C,
        is_entry_a_shim: true,
    };
    Some((layout, objects))
}

/// The lowest bit of a reference in a frame of 3.14 says who counts it.
const REFERENCE: u64 = !1;

/// Memory of a process.
pub(super) trait Memory {
    fn read(&self, at: u64, bytes: &mut [u8]) -> Option<()>;

    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    fn bytes(&self, at: u64, len: u64, max: u64) -> Option<Vec<u8>> {
        if len > max {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.read(at, &mut bytes)?;
        Some(bytes)
    }
}

impl Memory for File {
    fn read(&self, at: u64, bytes: &mut [u8]) -> Option<()> {
        self.read_exact_at(bytes, at).ok()
    }
}

impl Interpreter {
    /// The interpreter that a mapped file holds, where it is one of a version that is known.
    /// It is mapped with this bias.
    pub(super) fn find(
        (elf, path): (&Elf, &str),
        file: usize,
        bias: u64,
        mm: u64,
        memory: &File,
    ) -> Option<Self> {
        let [runtime, version, evaluates] = elf.python();
        let at = |address: u64| address.wrapping_add(bias);
        let (runtime, evaluates) = (at(runtime?.start), evaluates?);
        let version = match version {
            Some(version) => memory.word(at(version.start))?,
            None => version_by_name(path)?,
        };
        let (mut layout, objects) = match version >> 16 {
            0x0309 => (layout_before_3_11(104), objects_before_3_11(Lines::Changes)),
            0x030a => (layout_before_3_11(96), objects_before_3_11(Lines::Ranges)),
            0x030b => (layout_3_11(), OBJECTS_3_11),
            0x030c => (layout_3_12(), OBJECTS_3_12),
            minor @ (0x030d | 0x030e) => {
                let bytes = memory.bytes(runtime, 8 * OFFSETS as u64, 1 << 12)?;
                let mut words = [0; OFFSETS];
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                let places = match minor {
                    0x030d => &PLACES_3_13,
                    _ => &PLACES_3_14,
                };
                described(&words, version, places)?
            }
            _ => return None,
        };
        layout.mm = mm;
        layout.interpreters = layout.interpreters.wrapping_add(runtime);
        Some(Self {
            layout,
            evaluates: at(evaluates.start)..at(evaluates.end),
            file,
            objects,
            codes: HashMap::new(),
            table_bytes: 0,
            code_type: None,
        })
    }

    /// Whether the interpreter's loop was entered with a frame that has this mark, and whether the
    /// frame is none of Python's.
    pub(super) fn entry(&self, mark: u8) -> (bool, bool) {
        let is_entry = mark >= self.objects.entry_mark;
        (is_entry, is_entry && self.objects.is_entry_a_shim)
    }

    /// The line of a frame. `None` where what is there is no code object, or no longer.
    pub(super) fn line(
        &mut self,
        memory: &impl Memory,
        code: u64,
        instruction: u64,
    ) -> Option<PythonLine> {
        let objects = self.objects;
        let code = code & REFERENCE;
        let words = words_of(memory, code, &objects)?;
        if self
            .codes
            .get(&code)
            .is_none_or(|known| known.words != words)
        {
            let known = self.read(memory, code, words)?;
            self.table_bytes += known.table.len();
            if self.codes.len() >= CODES_MAX || self.table_bytes > TABLES_MAX {
                self.codes.clear();
                self.table_bytes = known.table.len();
            }
            self.codes.insert(code, known);
        }
        let known = self.codes.get(&code)?;
        let first_line = words[3] as u32;
        // A frame that has not begun stands before all instructions.
        let last = u64::from((instruction as u32).cast_signed().max(0).cast_unsigned());
        let line = match objects.lines {
            Lines::Changes => line_by_changes(&known.table, first_line, last),
            Lines::Ranges => line_by_ranges(&known.table, first_line, 2 * last),
            Lines::Locations(begin) => {
                let place = instruction.wrapping_sub(code.wrapping_add(begin));
                let unit = (place.cast_signed() / 2).max(0).cast_unsigned();
                line_at(&known.table, first_line, unit)
            }
        };
        Some(PythonLine {
            file: Arc::clone(&known.file),
            function: Arc::clone(&known.function),
            line: line.unwrap_or(0),
        })
    }

    fn read(&mut self, memory: &impl Memory, code: u64, words: [u64; 4]) -> Option<Known> {
        let kind = memory.word(code.wrapping_add(OB_TYPE))?;
        if self.code_type != Some(kind) {
            let name = memory.word(kind.wrapping_add(TP_NAME))?;
            if memory.bytes(name, 5, 5)? != b"code\0" {
                return None;
            }
            self.code_type = Some(kind);
        }
        let [file, function, table, _] = words;
        let len = memory.word(table.wrapping_add(VAR_SIZE))?;
        Some(Known {
            words,
            file: text(memory, file, &self.objects)?.into(),
            function: text(memory, function, &self.objects)?.into(),
            table: memory
                .bytes(table.wrapping_add(BYTES), len, TABLE_MAX)?
                .into(),
        })
    }
}

/// The version of an interpreter that exports none, from its file's name: `python3.10`,
/// `libpython3.9.so.1.0`. In the form of `PY_VERSION_HEX`, without its last two bytes.
fn version_by_name(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?.trim_start_matches("lib");
    let minor = name.strip_prefix("python3.")?;
    let digits = minor.find(|letter: char| !letter.is_ascii_digit());
    match minor.get(..digits.unwrap_or(minor.len()))? {
        "9" => Some(0x0309_0000),
        "10" => Some(0x030a_0000),
        _ => None,
    }
}

/// What tells one code object from another at the same place: file, name, table, first line.
fn words_of(memory: &impl Memory, code: u64, objects: &Objects) -> Option<[u64; 4]> {
    let places = [
        objects.code_filename,
        objects.code_qualname,
        objects.code_linetable,
        objects.code_first_line,
    ];
    // Each frame of each sample asks for them: in one call.
    let (first, last) = places.iter().fold((u64::MAX, 0), |(first, last), place| {
        (first.min(*place), last.max(*place))
    });
    let len = last.checked_sub(first)?.checked_add(8)?;
    let bytes = memory.bytes(code.checked_add(first)?, len, CODE_MAX)?;
    let word = |place: u64| {
        let at = usize::try_from(place - first).ok()?;
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let [file, name, table, first_line] = places.map(word);
    Some([file?, name?, table?, first_line? & 0xffff_ffff])
}

/// A string in its compact form, as names in code are.
fn text(memory: &impl Memory, at: u64, objects: &Objects) -> Option<String> {
    let len = memory.word(at.wrapping_add(STR_LENGTH))?;
    let state = memory.word(at.wrapping_add(STR_STATE))? as u32;
    // interned: 2, kind: 3, compact: 1, ascii: 1
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 != 0, state >> 6 & 1 != 0);
    if !is_compact || len > NAME_MAX {
        return None;
    }
    let begin = at.wrapping_add(match is_ascii {
        true => objects.ascii,
        false => objects.compact,
    });
    let bytes = memory.bytes(begin, len * u64::from(kind), 4 * NAME_MAX)?;
    let scalar = |unit: u32| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(match kind {
        1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        2 => {
            let units = bytes.as_chunks().0.iter();
            units
                .map(|unit| scalar(u16::from_le_bytes(*unit).into()))
                .collect()
        }
        4 => {
            let units = bytes.as_chunks().0.iter();
            units
                .map(|unit| scalar(u32::from_le_bytes(*unit)))
                .collect()
        }
        _ => return None,
    })
}

/// The line of a byte of code, by `co_lnotab` (Objects/lnotab_notes.txt in CPython 3.9): pairs of how far
/// the code goes on and, signed, by how much the line changes then.
fn line_by_changes(table: &[u8], first_line: u32, byte: u64) -> Option<u32> {
    let (mut line, mut at) = (i64::from(first_line), 0);
    for [length, change] in table.as_chunks().0 {
        at += u64::from(*length);
        if at > byte {
            break;
        }
        line += i64::from(change.cast_signed());
    }
    u32::try_from(line).ok()
}

/// The same by `co_linetable` (Objects/lnotab_notes.txt in 3.10): pairs of how many bytes a range has
/// and, signed, by how much the line changes at its begin; -128 where it has none.
fn line_by_ranges(table: &[u8], first_line: u32, byte: u64) -> Option<u32> {
    let (mut line, mut end) = (i64::from(first_line), 0);
    for [length, change] in table.as_chunks().0 {
        let change = i64::from(change.cast_signed());
        let has_line = change != -128;
        line += if has_line { change } else { 0 };
        end += u64::from(*length);
        if byte < end {
            return u32::try_from(line).ok().filter(|_| has_line);
        }
    }
    None
}

/// The line of a unit of code, by the location table (Objects/locations.md in CPython since 3.11):
/// entries of a first byte, which has bit 7 set, a kind and a number of units, and further bytes
/// without it. `None` where no entry covers the unit, or says that it has no line.
fn line_at(table: &[u8], first_line: u32, unit: u64) -> Option<u32> {
    const NONE: u8 = 15;
    const LONG: u8 = 14;
    const WITHOUT_COLUMNS: u8 = 13;
    let mut line = i64::from(first_line);
    let mut begin = 0;
    let mut at = 0;
    while let Some(head) = table.get(at) {
        let rest = table.get(at + 1..).unwrap_or_default();
        let len = rest.iter().take_while(|byte| **byte & 0x80 == 0).count();
        let kind = head >> 3 & 0xf;
        line += match kind {
            LONG | WITHOUT_COLUMNS => signed(rest.get(..len).unwrap_or_default()),
            10..=12 => i64::from(kind) - 10,
            _ => 0,
        };
        begin += u64::from(head & 7) + 1;
        if unit < begin {
            return u32::try_from(line).ok().filter(|_| kind != NONE);
        }
        at += 1 + len;
    }
    None
}

/// The first number: six bits a byte, bit 6 where another one follows, the sign in bit 0.
fn signed(bytes: &[u8]) -> i64 {
    let mut value: u64 = 0;
    // More bytes than a line can take are none of CPython's.
    for (place, byte) in bytes.iter().take(6).enumerate() {
        value |= u64::from(byte & 0x3f) << (6 * place);
        if byte & 0x40 == 0 {
            break;
        }
    }
    let size = (value >> 1).cast_signed();
    if value & 1 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_come_from_the_location_table() {
        // Two units of the first line, one two lines further down without columns, three of that
        // line, one without a line, one 70 lines further up.
        let up = -70_i64;
        let number = (up.unsigned_abs() << 1 | 1) as u8;
        let table = [
            0x80 | 10 << 3 | 1,
            0,
            4,
            0x80 | 13 << 3,
            2 << 1,
            0x80 | 1 << 3 | 2,
            0x12,
            0x80 | 15 << 3,
            0x80 | 13 << 3,
            number & 0x3f | 0x40,
            number >> 6,
        ];
        let line = |unit| line_at(&table, 100, unit);
        assert_eq!([line(0), line(1)], [Some(100); 2]);
        assert_eq!([line(2), line(3), line(5)], [Some(102); 3]);
        assert_eq!([line(6), line(7), line(8)], [None, Some(32), None]);
        assert_eq!(line_at(&[], 1, 0), None);
    }

    #[test]
    fn lines_of_older_versions_come_from_their_tables() {
        // As 3.9 and 3.10 compile `def f():` at line 10, two lines of body, and a loop that goes back.
        let up = (-3_i8).cast_unsigned();
        let changes = [0, 1, 8, 2, 6, up];
        let line = |byte| line_by_changes(&changes, 10, byte);
        assert_eq!([line(0), line(7)], [Some(11); 2]);
        assert_eq!([line(8), line(14)], [Some(13), Some(10)]);
        let none = (-128_i8).cast_unsigned();
        let ranges = [8, 1, 6, 2, 2, none, 4, up];
        let line = |byte| line_by_ranges(&ranges, 10, byte);
        assert_eq!([line(0), line(7)], [Some(11); 2]);
        assert_eq!([line(8), line(14)], [Some(13), None]);
        assert_eq!([line(16), line(20)], [Some(10), None]);
    }

    #[test]
    fn an_interpreter_without_a_version_is_known_by_its_name() {
        let version = |path| version_by_name(path).map(|version| version >> 16);
        assert_eq!(version("/usr/bin/python3.10"), Some(0x030a));
        assert_eq!(version("/usr/lib/libpython3.9.so.1.0"), Some(0x0309));
        for path in ["/usr/bin/python3", "/usr/bin/python3.8", "python3.100", ""] {
            assert_eq!(version(path), None, "{path}");
        }
    }

    /// Memory that holds nothing, or the same everywhere.
    struct Filled(Option<u8>);

    impl Memory for Filled {
        fn read(&self, _: u64, bytes: &mut [u8]) -> Option<()> {
            bytes.fill(self.0?);
            Some(())
        }
    }

    fn interpreter() -> Interpreter {
        Interpreter {
            layout: layout_3_12(),
            evaluates: 0..0,
            file: 0,
            objects: OBJECTS_3_12,
            codes: HashMap::new(),
            table_bytes: 0,
            code_type: None,
        }
    }

    #[test]
    fn an_interpreter_that_is_gone_or_overwritten_names_no_line() {
        for memory in [Filled(None), Filled(Some(0)), Filled(Some(0xff))] {
            for code in [0, 0x1000, u64::MAX] {
                assert_eq!(interpreter().line(&memory, code, code), None);
            }
        }
    }

    #[test]
    fn offsets_that_are_none_are_refused() {
        let mut words = [8; OFFSETS];
        words[0] = u64::from_le_bytes(*b"xdebugpy");
        (words[1], words[2]) = (0x030d_00f0, 0);
        let is_read = |words: &[u64; OFFSETS], version: u64| {
            described(words, version, &PLACES_3_13).is_some()
        };
        assert!(is_read(&words, 0x030d_00f0));
        assert!(!is_read(&words, 0x030d_01f0));
        for (place, value) in [(0, 0), (2, 1), (23, 1 << 40), (43, u64::MAX)] {
            let mut words = words;
            words[place] = value;
            assert!(!is_read(&words, 0x030d_00f0), "{place}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_tables_end(table: Vec<u8>, first: u32, unit: u64) {
            let _ = line_at(&table, first, unit);
            let _ = line_by_changes(&table, first, unit);
            let _ = line_by_ranges(&table, first, unit);
        }
    }
}
