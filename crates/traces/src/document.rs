//! The whole of a trace: what its head says, and its events, which are handed on one by one.

use super::event::{Event, Nothing};
use super::input::unpacked;
use super::json::{Take, Text, To, next_key};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess};
use serde_json::Deserializer;
use serde_json::error::Category;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// So many devices of a trace are kept.
pub(super) const GPUS_MAX: usize = 256;

/// A trace without a base whose times are above this counts from 1970 (2001, in ns): torch before 2.3.
const SINCE_1970: i64 = 1_000_000_000_000_000_000;

/// Takes the events of a trace, in no order.
pub(super) trait Events {
    fn take(&mut self, event: &Event);
}

/// What is said beside the events.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Whether there is a list of events at all.
    pub(super) has_events: bool,
    /// `baseTimeNanoseconds`: what times are counted from, on the wall clock.
    pub(super) base_ns: Option<i64>,
    pub(super) distributed: Distributed,
    /// By the number of the device.
    pub(super) gpus: BTreeMap<i64, Gpu>,
}

/// What the trace says of the job that it is a part of.
#[derive(Debug, Default)]
pub(super) struct Distributed {
    pub(super) rank: Option<i64>,
    pub(super) world_size: Option<i64>,
    pub(super) backend: Text,
    key: Text,
}

/// What the trace says of a device.
#[derive(Debug, Default)]
pub(super) struct Gpu {
    pub(super) name: Text,
    pub(super) total_bytes: Option<i64>,
}

impl Head {
    /// What the times of events count from, on the wall clock; `None` where that is not known. `window`
    /// is the time of the first event, and of the last.
    pub(super) fn base_ns(&self, window: Option<(i64, i64)>) -> Option<i64> {
        let is_absolute = window.is_some_and(|(begin, _)| begin > SINCE_1970);
        self.base_ns.or(is_absolute.then_some(0))
    }
}

/// Reads a trace, and hands its events on. Answers its head, and why it could not be read to its end.
///
/// # Errors
/// When the file can't be opened, or is no ordinary one.
pub(super) fn read(path: &Path, events: &mut impl Events) -> io::Result<(Head, Option<String>)> {
    // Opening a pipe would wait for somebody to write.
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let input = unpacked(file)?;
    let mut document = Document {
        head: Head::default(),
        events,
        event: Event::default(),
        key: Text::default(),
    };
    let mut parser = Deserializer::from_reader(input);
    let read = To(&mut document).deserialize(&mut parser);
    let read = read.and_then(|()| parser.end());
    Ok((document.head, read.err().map(|error| in_words(&error))))
}

fn in_words(error: &serde_json::Error) -> String {
    let is_cut = error.io_error_kind() == Some(io::ErrorKind::UnexpectedEof);
    match error.classify() {
        Category::Eof => "it is cut off".to_owned(),
        Category::Io if is_cut => "it is cut off".to_owned(),
        Category::Io => error.to_string(),
        Category::Syntax | Category::Data => format!("it is not JSON from there on: {error}"),
    }
}

/// A trace while it is read.
struct Document<'e, E> {
    head: Head,
    events: &'e mut E,
    event: Event,
    key: Text,
}

impl<E: Events> Take for Document<'_, E> {
    /// A trace may be its list of events alone. torch's memory timeline is a list too, of lists.
    fn list<'de, A: SeqAccess<'de>>(&mut self, mut events: A) -> Result<(), A::Error> {
        loop {
            self.event.clear();
            if events.next_element_seed(To(&mut self.event))?.is_none() {
                return Ok(());
            }
            self.head.has_events |= self.event.is_object;
            self.events.take(&self.event);
        }
    }

    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        while next_key(&mut object, &mut self.key)? {
            let head = &mut self.head;
            match &*self.key.0 {
                "baseTimeNanoseconds" => object.next_value_seed(To(&mut head.base_ns))?,
                "distributedInfo" => object.next_value_seed(To(&mut head.distributed))?,
                "deviceProperties" => object.next_value_seed(To(&mut Gpus(&mut head.gpus)))?,
                "traceEvents" => object.next_value_seed(To(&mut List(self)))?,
                _ => object.next_value_seed(To(&mut Nothing))?,
            }
        }
        Ok(())
    }
}

/// The list of events.
struct List<'a, 'e, E>(&'a mut Document<'e, E>);

impl<E: Events> Take for List<'_, '_, E> {
    fn list<'de, A: SeqAccess<'de>>(&mut self, events: A) -> Result<(), A::Error> {
        self.0.head.has_events = true;
        self.0.list(events)
    }
}

impl Take for Distributed {
    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        while next_key(&mut object, &mut self.key)? {
            match &*self.key.0 {
                "rank" => object.next_value_seed(To(&mut self.rank))?,
                "world_size" => object.next_value_seed(To(&mut self.world_size))?,
                "backend" => object.next_value_seed(To(&mut self.backend))?,
                _ => object.next_value_seed(To(&mut Nothing))?,
            }
        }
        Ok(())
    }
}

/// The list of devices.
struct Gpus<'a>(&'a mut BTreeMap<i64, Gpu>);

impl Take for Gpus<'_> {
    fn list<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        loop {
            let mut gpu = NumberedGpu::default();
            if list.next_element_seed(To(&mut gpu))?.is_none() {
                return Ok(());
            }
            if let Some(number) = gpu.number.filter(|_| self.0.len() < GPUS_MAX) {
                self.0.insert(number, gpu.gpu);
            }
        }
    }
}

#[derive(Debug, Default)]
struct NumberedGpu {
    number: Option<i64>,
    gpu: Gpu,
    key: Text,
}

impl Take for NumberedGpu {
    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        while next_key(&mut object, &mut self.key)? {
            match &*self.key.0 {
                "id" => object.next_value_seed(To(&mut self.number))?,
                "name" => object.next_value_seed(To(&mut self.gpu.name))?,
                "totalGlobalMem" => object.next_value_seed(To(&mut self.gpu.total_bytes))?,
                _ => object.next_value_seed(To(&mut Nothing))?,
            }
        }
        Ok(())
    }
}
