//! Snapshots of torch's CUDA caching allocator: what `torch.cuda.memory._dump_snapshot` and
//! `memtrace.torch_snapshot` write, and its rows.
//!
//! Of such a file only the segments are read. They come before the history of allocations
//! (`device_traces`), which can be a thousand times as long.

use super::pickle::{PickleError, Value, Values, read_until};
use memtrace_model::tables::{CudaCallRow, FrameKind, StackRow, TorchBlockState, TorchMemoryRow};
use memtrace_model::{BootNs, Bytes, Upid, WallNs, cut_at};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::rc::Rc;

/// No process had as many, and a file can name a block any number of times.
const BLOCKS_MAX: usize = 1_000_000;
/// Frames of a stack that are kept, the innermost.
const FRAMES_MAX: usize = 64;
/// The longest name of a file or a function that is kept.
const NAME_BYTES_MAX: usize = 1 << 10;

/// What torch held at one moment.
#[derive(Debug, Default, PartialEq)]
pub struct Snapshot {
    /// When it was taken; only `memtrace.torch_snapshot` says it.
    pub boot_ns: Option<BootNs>,
    /// What torch took from the driver, in the order of the file.
    pub segments: Vec<Segment>,
    /// The stacks of its blocks, each once; innermost frame first.
    pub stacks: Vec<Vec<Frame>>,
}

/// Memory that torch took from the driver in one piece.
#[derive(Debug, PartialEq)]
pub struct Segment {
    device: i32,
    address: i64,
    size: Bytes,
    is_expandable: bool,
    pool: Option<String>,
    /// Its blocks by state and stack.
    blocks: BTreeMap<(TorchBlockState, Option<usize>), Blocks>,
}

/// Blocks of one segment, state and stack.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Blocks {
    count: i64,
    size: Bytes,
    requested: Bytes,
    largest: Bytes,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    file: Option<Rc<str>>,
    function: Option<Rc<str>>,
    line: Option<i64>,
}

/// Why a file is no snapshot that can be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It can't be read.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// It is a pickle of something else.
    #[error(
        "use it: it has no segments, as what torch.cuda.memory._dump_snapshot writes has \
         (torch 2.0 or newer)"
    )]
    NotSnapshot,
    /// A segment or a block lacks something, or has it in another form.
    #[error("use it: {what} of segment {segment} is missing or not understood")]
    Field {
        /// What that is.
        what: &'static str,
        /// The place of the segment in the file.
        segment: usize,
    },
    /// The sizes of blocks don't add up.
    #[error("use it: the blocks of segment {segment} don't add up to its size")]
    Uneven {
        /// The place of the segment in the file.
        segment: usize,
    },
    /// It has too many blocks.
    #[error("use it: it has more than {BLOCKS_MAX} blocks")]
    TooMany,
}

impl Snapshot {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is no snapshot, or can't be read.
    pub fn read(file: impl BufRead) -> Result<Self, SnapshotError> {
        let (values, root) = read_until(file, "segments")?;
        let segments = values.get(root, "segments");
        let segments = segments.and_then(|segments| values.list(segments));
        let mut stacks = Stacks::of(&values);
        let mut read = Vec::new();
        let mut left = BLOCKS_MAX;
        for (place, segment) in segments
            .ok_or(SnapshotError::NotSnapshot)?
            .iter()
            .enumerate()
        {
            // Also one without blocks takes room.
            left = left.checked_sub(1).ok_or(SnapshotError::TooMany)?;
            let segment = Dict {
                values: &values,
                dict: *segment,
                place,
            };
            read.push(Segment::read(&segment, &mut stacks, &mut left)?);
        }
        let boot_ns = match values.get(root, "boot_ns") {
            Some(Value::Int(boot_ns)) => Some(BootNs(boot_ns)),
            _ => None,
        };
        Ok(Self {
            boot_ns,
            segments: read,
            stacks: stacks.all,
        })
    }

    /// What torch reserved.
    pub fn reserved(&self) -> Bytes {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// The rows of its segments; `first_stack` is the id of the first of its stacks.
    pub fn rows(
        &self,
        name: &str,
        (ts, boot_ns): (WallNs, BootNs),
        upid: Option<Upid>,
        first_stack: i64,
    ) -> impl Iterator<Item = TorchMemoryRow> {
        let name = name.to_owned();
        let blocks = move |segment: &Segment| {
            let of = segment.row();
            let name = name.clone();
            let blocks = segment.blocks.clone().into_iter();
            blocks.map(move |((state, stack), blocks)| TorchMemoryRow {
                ts,
                boot_ns,
                upid,
                snapshot: name.clone(),
                state: Some(state),
                stack_id: stack.map_or(0, |stack| first_stack + stack as i64),
                block_count: blocks.count,
                size_bytes: blocks.size,
                requested_bytes: blocks.requested,
                largest_block_bytes: blocks.largest,
                ..of.clone()
            })
        };
        self.segments.iter().flat_map(blocks)
    }

    /// The rows of its stacks.
    pub fn stack_rows(
        &self,
        (ts, boot_ns): (WallNs, BootNs),
        first_stack: i64,
    ) -> impl Iterator<Item = StackRow> {
        (first_stack..)
            .zip(&self.stacks)
            .flat_map(move |(stack_id, frames)| {
                let frames = (0..).zip(frames);
                frames.map(move |(depth, frame)| StackRow {
                    ts,
                    boot_ns,
                    stack_id,
                    depth,
                    kind: Some(frame.kind()),
                    function: frame.function.as_deref().map(str::to_owned),
                    file: frame.file.as_deref().map(str::to_owned),
                    line: frame.line,
                    ..StackRow::default()
                })
            })
    }
}

impl Segment {
    fn read(
        dict: &Dict<'_>,
        stacks: &mut Stacks<'_>,
        left: &mut usize,
    ) -> Result<Self, SnapshotError> {
        let device = i32::try_from(dict.int("device")?).map_err(|_| dict.wrong("device"))?;
        let mut segment = Self {
            device,
            address: dict.int("address")?,
            size: dict.bytes("total_size")?,
            // Segments were not expandable before torch 2.1.
            is_expandable: dict.get("is_expandable") == Some(Value::Bool(true)),
            pool: dict.pool(),
            blocks: BTreeMap::new(),
        };
        let mut sum = 0_i64;
        for block in dict.list("blocks")? {
            *left = left.checked_sub(1).ok_or(SnapshotError::TooMany)?;
            let block = dict.other(*block);
            let state = block
                .get("state")
                .and_then(|state| block.values.text(state));
            let state = match state {
                Some("active_allocated") => TorchBlockState::Allocated,
                Some("active_pending_free" | "active_awaiting_free") => {
                    TorchBlockState::AwaitingFree
                }
                Some("inactive") => TorchBlockState::Inactive,
                _ => return Err(block.wrong("the state of a block")),
            };
            let is_free = state == TorchBlockState::Inactive;
            let size = block.bytes("size")?;
            let requested = match is_free {
                true => Bytes(0),
                // Older versions of torch do not say what was asked for.
                false => block.bytes("requested_size").unwrap_or(size),
            };
            let stack = match is_free {
                true => None,
                false => block.get("frames").and_then(|frames| stacks.place(frames)),
            };
            let blocks = segment.blocks.entry((state, stack)).or_default();
            blocks.count += 1;
            blocks.size = blocks.size + size;
            blocks.requested = blocks.requested + requested.min(size);
            blocks.largest = blocks.largest.max(size);
            sum = sum.saturating_add(size.0);
        }
        match sum == segment.size.0 {
            true => Ok(segment),
            false => Err(SnapshotError::Uneven {
                segment: dict.place,
            }),
        }
    }

    /// What all its rows have.
    fn row(&self) -> TorchMemoryRow {
        TorchMemoryRow {
            cuda_device: self.device,
            segment_address: self.address,
            segment_bytes: self.size,
            is_expandable: self.is_expandable,
            pool: self.pool.clone(),
            ..TorchMemoryRow::default()
        }
    }
}

impl Frame {
    /// C++ frames name the source they were compiled from, or a library.
    fn kind(&self) -> FrameKind {
        match self.file.as_deref() {
            Some(file) if file.ends_with(".py") || file.starts_with('<') => FrameKind::Python,
            _ => FrameKind::Native,
        }
    }
}

/// A dict of a segment, or of one of its blocks.
struct Dict<'a> {
    values: &'a Values,
    dict: Value,
    /// The place of the segment.
    place: usize,
}

impl<'a> Dict<'a> {
    fn get(&self, key: &str) -> Option<Value> {
        self.values.get(self.dict, key)
    }

    fn int(&self, key: &'static str) -> Result<i64, SnapshotError> {
        match self.get(key) {
            Some(Value::Int(number)) => Ok(number),
            _ => Err(self.wrong(key)),
        }
    }

    fn bytes(&self, key: &'static str) -> Result<Bytes, SnapshotError> {
        match self.int(key)? {
            bytes @ 0.. => Ok(Bytes(bytes)),
            _ => Err(self.wrong(key)),
        }
    }

    fn list(&self, key: &'static str) -> Result<&'a [Value], SnapshotError> {
        let list = self.get(key).and_then(|list| self.values.list(list));
        list.ok_or_else(|| self.wrong(key))
    }

    /// The private pool: (0, 0) is the common one.
    fn pool(&self) -> Option<String> {
        let id = self.get("segment_pool_id")?;
        match self.values.list(id)? {
            [Value::Int(0), Value::Int(0)] => None,
            [Value::Int(of), Value::Int(pool)] => Some(format!("{of}.{pool}")),
            _ => None,
        }
    }

    fn other(&self, dict: Value) -> Self {
        Self { dict, ..*self }
    }

    fn wrong(&self, what: &'static str) -> SnapshotError {
        SnapshotError::Field {
            what,
            segment: self.place,
        }
    }
}

/// The stacks of blocks, each once.
struct Stacks<'a> {
    values: &'a Values,
    all: Vec<Vec<Frame>>,
    /// By what they are.
    places: HashMap<Vec<Frame>, usize>,
    /// By the list of the pickle.
    lists: HashMap<usize, Option<usize>>,
    /// Texts of the pickle.
    names: HashMap<usize, Option<Rc<str>>>,
}

impl<'a> Stacks<'a> {
    fn of(values: &'a Values) -> Self {
        Self {
            values,
            all: Vec::new(),
            places: HashMap::new(),
            lists: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// Which stack a list of frames is; `None` for an empty one.
    fn place(&mut self, list: Value) -> Option<usize> {
        let Value::List(key) = list else {
            return None;
        };
        if let Some(&place) = self.lists.get(&key) {
            return place;
        }
        let frames = self.values.list(list)?.iter().take(FRAMES_MAX);
        let frames: Vec<Frame> = frames.map(|frame| self.frame(*frame)).collect();
        let place = (!frames.is_empty()).then(|| match self.places.entry(frames) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.all.push(new.key().clone());
                *new.insert(self.all.len() - 1)
            }
        });
        self.lists.insert(key, place);
        place
    }

    fn frame(&mut self, frame: Value) -> Frame {
        let values = self.values;
        let mut name = |key| self.name(values.get(frame, key)?);
        let (file, function) = (name("filename"), name("name"));
        let line = match values.get(frame, "line") {
            Some(Value::Int(line @ 1..)) => Some(line),
            _ => None,
        };
        Frame {
            file,
            function,
            line,
        }
    }

    /// A name; `None` for what torch writes where there is none.
    fn name(&mut self, text: Value) -> Option<Rc<str>> {
        let Value::Text(key) = text else {
            return None;
        };
        let name = || match self.values.text(text)? {
            "" | "??" => None,
            text => {
                let mut text = text.to_owned();
                cut_at(&mut text, NAME_BYTES_MAX);
                Some(text.into())
            }
        };
        self.names.entry(key).or_insert_with(name).clone()
    }
}

/// Who asked the driver for the segments of a snapshot, by the calls of the recording.
#[derive(Debug)]
pub struct Owners {
    /// Start and end of each segment, in the order of addresses.
    segments: Vec<(i64, i64)>,
    reserved: Bytes,
    until: BootNs,
    /// By process, what lies at each address.
    found: HashMap<Upid, HashMap<i64, Bytes>>,
}

impl Owners {
    /// Of a snapshot that was taken then.
    pub fn of(snapshot: &Snapshot, at: BootNs) -> Self {
        let segments = snapshot.segments.iter();
        let mut segments: Vec<(i64, i64)> = segments
            .map(|one| (one.address, one.address.saturating_add(one.size.0)))
            .collect();
        segments.sort_unstable();
        Self {
            segments,
            reserved: snapshot.reserved(),
            until: at,
            found: HashMap::new(),
        }
    }

    /// Takes a call.
    pub fn call(&mut self, row: &CudaCallRow) {
        let (Some(address), Some(size)) = (row.address, row.size_bytes) else {
            return;
        };
        let is_of_memory = row.call.starts_with("cuMemAlloc") || row.call == "cuMemMap";
        if row.result != CudaCallRow::SUCCESS || row.boot_ns > self.until || !is_of_memory {
            return;
        }
        let after = self.segments.partition_point(|(from, _)| *from <= address);
        let Some((from, to)) = after.checked_sub(1).and_then(|at| self.segments.get(at)) else {
            return;
        };
        if (*from..*to).contains(&address) {
            let within = size.min(Bytes(to.saturating_sub(address)));
            self.found
                .entry(row.upid)
                .or_default()
                .insert(address, within);
        }
    }

    /// The process whose calls explain most of the segments: half of them at least, and twice as much as
    /// those of any other, since addresses of processes can be equal.
    pub fn owner(&self) -> Option<Upid> {
        let sum = |found: &HashMap<i64, Bytes>| found.values().copied().sum::<Bytes>();
        let mut sums: Vec<(Bytes, Upid)> = self
            .found
            .iter()
            .map(|(upid, found)| (sum(found), *upid))
            .collect();
        sums.sort_unstable();
        let ((most, upid), rest) = sums.split_last()?;
        let is_enough = most.0 > 0 && most.0 >= self.reserved.0 / 2;
        let is_alone = rest.last().is_none_or(|(next, _)| next.0 < most.0 / 2);
        (is_enough && is_alone).then_some(*upid)
    }
}

#[cfg(test)]
mod tests;
