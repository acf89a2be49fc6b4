//! Source lines of machine code, where the program or library is at hand with its debug information.

use super::frame::StackFrame;
use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, RunTimeEndian, SectionId};
use memtrace_model::FrameKind;
use object::{CompressionFormat, Object, ObjectSection, ReadCache};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Debug information of distributions' packages, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";
/// So much debug information is read in all; files that have more have no lines. It is not mapped, as a file
/// that is mapped can be made shorter by whoever builds it anew.
const DEBUG_BYTES_MAX: u64 = 256 << 20;
/// What is read of it.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// No build id is longer.
const NOTE_MAX: u64 = 4 << 10;

type Section = EndianArcSlice<RunTimeEndian>;

/// Programs and libraries by path and build id; `None` where no debug information is at hand.
pub(crate) struct SourceLines {
    files: HashMap<(String, String), Option<Context<Section>>>,
    is_wanted: bool,
    /// Bytes of debug information that may still be read.
    left: u64,
}

impl SourceLines {
    pub(crate) fn new() -> Self {
        Self {
            files: HashMap::new(),
            is_wanted: true,
            left: DEBUG_BYTES_MAX,
        }
    }

    /// Names no line at all.
    pub(crate) fn none() -> Self {
        Self {
            is_wanted: false,
            ..Self::new()
        }
    }

    /// Names the line of a native frame, and its function if it has no symbol. Of what is inlined
    /// there the line counts that it was inlined at: that is in the frame's own function.
    pub(super) fn name(&mut self, frame: &mut StackFrame) {
        let row = &frame.row;
        let (true, Some(FrameKind::Native), Some(path), Some(id), Some(address)) = (
            self.is_wanted,
            row.kind,
            &row.file,
            &row.build_id,
            row.address,
        ) else {
            return;
        };
        let key = (path.clone(), id.clone());
        let left = &mut self.left;
        let context = self.files.entry(key);
        let Some(context) = context.or_insert_with_key(|key| load(key, left)) else {
            return;
        };
        let inlined = context.find_frames(address.cast_unsigned());
        let Ok(mut inlined) = inlined.skip_all_loads() else {
            return;
        };
        let mut own = None;
        loop {
            match inlined.next() {
                Ok(Some(outer)) => own = Some(outer),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let Some(own) = own else {
            return;
        };
        if let Some(location) = own.location
            && let (Some(file), Some(line)) = (location.file, location.line)
        {
            frame.source = Some(file.to_owned());
            frame.row.line = Some(line.into());
        }
        if frame.row.function.is_none()
            && let Some(function) = own.function
            && let Ok(name) = function.demangle()
        {
            frame.row.function = Some(name.into_owned());
        }
    }
}

/// The debug information of a program or library, in a file of its own or within it.
fn load((path, build_id): &(String, String), left: &mut u64) -> Option<Context<Section>> {
    let (folder, name) = build_id.split_at_checked(2)?;
    let apart = PathBuf::from(format!("{DEBUG_FILES}/{folder}/{name}.debug"));
    let mut files = [apart, PathBuf::from(path)].into_iter();
    files.find_map(|path| read(&path, build_id, left))
}

/// Anybody may have written the recording: what is no plain file is not opened.
fn read(path: &PathBuf, build_id: &str, left: &mut u64) -> Option<Context<Section>> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let bytes = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&bytes).ok()?;
    file.section_by_name(".note.gnu.build-id")
        .filter(|note| note.size() <= NOTE_MAX)?;
    let id = file.build_id().ok()??;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    file.section_by_name(".debug_info")
        .filter(|_| id == build_id)?;
    let endian = match file.is_little_endian() {
        true => RunTimeEndian::Little,
        false => RunTimeEndian::Big,
    };
    let dwarf = Dwarf::load(|id| {
        let section = SECTIONS
            .contains(&id)
            .then(|| file.section_by_name(id.name()));
        let Some(section) = section.flatten() else {
            return Ok(EndianArcSlice::new(Arc::from([]), endian));
        };
        // Lengths are checked before anything is read.
        let range = section.compressed_file_range().map_err(|_| ())?;
        // Unpacking zstd is not bounded by the length that is said.
        if range.format == CompressionFormat::Zstandard {
            return Err(());
        }
        let len = range.compressed_size.max(range.uncompressed_size);
        *left = left.checked_sub(len).ok_or(())?;
        let packed = section.compressed_data().map_err(|_| ())?;
        let bytes = packed.decompress().map_err(|_| ())?;
        Ok::<Section, ()>(EndianArcSlice::new(Arc::from(&*bytes), endian))
    });
    Context::from_dwarf(dwarf.ok()?).ok()
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::tables::StackRow;
    use object::ObjectSymbol;
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;

    const TEXT: &str = "\
static inline __attribute__((always_inline)) char *inner(char *p) {
    *p = 1;
    return p;
}
char *grow(char *p) {
    return inner(p);
}
";

    /// A library of [`TEXT`], its function `grow`, and how long that is.
    fn built(folder: &Path, name: &str, flags: &[&str]) -> (StackFrame, i64) {
        let (text, library) = (folder.join("pool.c"), folder.join(name));
        std::fs::write(&text, TEXT).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-Wl,--build-id"]);
        let outcome = compiler
            .args(flags)
            .arg("-o")
            .arg(&library)
            .arg(&text)
            .status();
        assert!(outcome.unwrap().success());
        let bytes = std::fs::read(&library).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let mut symbols = file.dynamic_symbols();
        let grow = symbols.find(|one| one.name() == Ok("grow")).unwrap();
        let id = file.build_id().unwrap().unwrap();
        let frame = StackFrame::from(StackRow {
            kind: Some(FrameKind::Native),
            file: Some(library.display().to_string()),
            build_id: Some(id.iter().map(|byte| format!("{byte:02x}")).collect()),
            address: Some(grow.address().cast_signed()),
            ..StackRow::default()
        });
        (frame, grow.size().cast_signed())
    }

    fn named(frame: &StackFrame) -> String {
        let mut frame = frame.clone();
        SourceLines::new().name(&mut frame);
        frame.in_words()
    }

    #[test]
    fn a_native_frame_has_the_line_of_its_own_function_where_the_very_file_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (with, len) = built(folder.path(), "libpool.so", &["-g"]);
        let start = with.row.address.unwrap();
        let lines = (start..start + len).map(|address| {
            let mut frame = with.clone();
            frame.row.address = Some(address);
            named(&frame)
        });
        let lines: BTreeSet<String> = lines.collect();
        let of = |line| format!("pool.c:{line} grow (libpool.so)");
        assert!(lines.contains(&of(6)), "{lines:?}");
        assert!(lines.is_subset(&(5..=7).map(of).collect()), "{lines:?}");
        let (without, _) = built(folder.path(), "libplain.so", &["-g0"]);
        assert!(named(&without).starts_with("libplain.so+0x"));

        // Another build took its place.
        let mut other = with.clone();
        other.row.build_id.clone_from(&without.row.build_id);
        assert!(named(&other).starts_with("libpool.so+0x"));
        let mut gone = with.clone();
        gone.row.file = Some("/nowhere/libpool.so".to_owned());
        assert!(named(&gone).starts_with("libpool.so+0x"));
        let mut device = with;
        device.row.file = Some("/dev/zero".to_owned());
        assert!(named(&device).starts_with("zero+0x"));
    }
}
