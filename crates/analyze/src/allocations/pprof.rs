//! Resident memory by stack as a profile of pprof. Numbers of fields are those of
//! `proto/profile.proto` in pprof's sources.

use super::frame::{StackFrame, base};
use super::resident::Resident;
use flate2::Compression;
use flate2::write::GzEncoder;
use memtrace_model::FrameKind;
use memtrace_perfetto::wire::Message;
use std::collections::HashMap;
use std::io;

/// Fields of the profile itself.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// A profile in the making: each thing is written when it is first met, and has its number from then on.
#[derive(Default)]
struct Profile {
    message: Message,
    strings: HashMap<String, u64>,
    mappings: HashMap<(String, Option<String>, bool), u64>,
    functions: HashMap<(String, String), u64>,
    locations: HashMap<StackFrame, u64>,
}

/// Writes the profile: a sample for each process and stack.
pub(super) fn write(resident: &Resident, to: &mut impl io::Write) -> io::Result<()> {
    let mut profile = Profile::default();
    // The first string is the empty one.
    profile.string("");
    let (space, bytes) = (profile.string("inuse_space"), profile.string("bytes"));
    let mut of_space = Message::default();
    of_space.number(1, space);
    of_space.number(2, bytes);
    profile.message.message(field::SAMPLE_TYPE, &of_space);
    profile.message.number(field::DEFAULT_SAMPLE_TYPE, space);
    let (pid, process_name) = (profile.string("pid"), profile.string("process"));
    for process in &resident.processes {
        let mut labels = [Message::default(), Message::default()];
        labels[0].number(1, pid);
        labels[0].number(3, process.tgid.0.into());
        labels[1].number(1, process_name);
        labels[1].number(2, profile.string(&process.name));
        for (stack_id, bytes) in &process.stacks {
            let mut sample = Message::default();
            for frame in resident.frames(*stack_id) {
                sample.number(1, profile.location(frame));
            }
            sample.signed(2, bytes.0);
            for label in &labels {
                sample.message(3, label);
            }
            profile.message.message(field::SAMPLE, &sample);
        }
    }
    let mut encoder = GzEncoder::new(to, Compression::default());
    io::Write::write_all(&mut encoder, profile.message.as_bytes())?;
    encoder.finish().map(drop)
}

impl Profile {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(place) = self.strings.get(text) {
            return *place;
        }
        let place = self.strings.len() as u64;
        self.message.text(field::STRING, text);
        self.strings.insert(text.to_owned(), place);
        place
    }

    /// A place in code: of Python a line, else an address as the library or program counts.
    fn location(&mut self, frame: &StackFrame) -> u64 {
        let frame = frame.alone();
        if let Some(id) = self.locations.get(&frame) {
            return *id;
        }
        let row = &frame.row;
        let mut location = Message::default();
        let id = self.locations.len() as u64 + 1;
        location.number(1, id);
        if row.kind == Some(FrameKind::Native) {
            location.number(2, self.mapping(&frame));
            let address = row.address.unwrap_or_default();
            location.number(3, address.cast_unsigned());
        }
        if let Some(function) = &row.function {
            let mut line = Message::default();
            let file = frame.source.as_ref().or(row.file.as_ref());
            line.number(1, self.function(function, file.map(String::as_str)));
            line.signed(2, row.line.unwrap_or_default());
            location.message(4, &line);
        }
        self.message.message(field::LOCATION, &location);
        self.locations.insert(frame, id);
        id
    }

    /// The library or program. That it has functions (7) keeps pprof from naming its code by the file,
    /// so it is said of those alone of which a name is known.
    fn mapping(&mut self, frame: &StackFrame) -> u64 {
        let path = frame.row.file.clone().unwrap_or_default();
        let has_functions = frame.row.function.is_some();
        let key = (path, frame.row.build_id.clone(), has_functions);
        if let Some(id) = self.mappings.get(&key) {
            return *id;
        }
        let mut mapping = Message::default();
        let id = self.mappings.len() as u64 + 1;
        mapping.number(1, id);
        mapping.number(3, u64::MAX);
        mapping.number(5, self.string(&key.0));
        mapping.number(6, self.string(key.1.as_deref().unwrap_or_default()));
        if has_functions {
            mapping.number(7, 1);
        }
        self.message.message(field::MAPPING, &mapping);
        self.mappings.insert(key, id);
        id
    }

    fn function(&mut self, name: &str, file: Option<&str>) -> u64 {
        let key = (name.to_owned(), file.unwrap_or_default().to_owned());
        if let Some(id) = self.functions.get(&key) {
            return *id;
        }
        let mut function = Message::default();
        let id = self.functions.len() as u64 + 1;
        function.number(1, id);
        // pprof leaves out what is in angle brackets, and so all of a name like `<module>`.
        let inner = name
            .strip_prefix('<')
            .and_then(|rest| rest.strip_suffix('>'));
        let shown = match inner {
            Some(inner) => format!("{}.{inner}", base(&key.1)),
            None => name.to_owned(),
        };
        function.number(2, self.string(&shown));
        function.number(3, self.string(name));
        function.number(4, self.string(&key.1));
        self.message.message(field::FUNCTION, &function);
        self.functions.insert(key, id);
        id
    }
}
