//! Pickles of plain values: dicts, lists, tuples, text, numbers. Nothing in such a file is run, and a
//! pickle that names or makes an object of any other kind is refused.
//!
//! All values lie beside each other and name each other by their places, so that neither reading them
//! nor dropping them recurses, and a value that is met a thousand times is there once.

use std::io::{self, BufRead, ErrorKind, Read};

/// What a pickle may take in memory. A block of torch's allocator takes about 1 KiB.
const MEMORY_BYTES_MAX: usize = 512 << 20;
/// The longest text in it.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// What is counted for a value: where it stands on the stack, in its container and in the memo, each of
/// which can be twice as large as what is in it.
const VALUE_BYTES: usize = 6 * size_of::<Value>();
/// The dicts of torch have less than twenty keys. Of one with more, only the last ones are looked at:
/// it can be met often.
const KEYS_MAX: usize = 64;
const CONTAINER_BYTES: usize = 3 * size_of::<Vec<Value>>();

/// Opcodes that name, make or fill objects, by which a pickle can run any code.
const OBJECTS: &[(u8, &str)] = &[
    (b'c', "GLOBAL"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x81, "NEWOBJ"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x92, "NEWOBJ_EX"),
    (0x93, "STACK_GLOBAL"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
];

/// Why a pickle can't be read.
#[derive(Debug, thiserror::Error)]
pub enum PickleError {
    /// The system refused.
    #[error("read it: {0}")]
    Io(#[from] io::Error),
    /// The file is cut.
    #[error("read it: it ends too early")]
    Short,
    /// It is something else.
    #[error("read it: it is no pickle of protocol 2 to 5")]
    NotPickle,
    /// It has an object, which nobody should load who does not trust it.
    #[error(
        "read it: the opcode {name} at byte {at} makes or names an object, and a snapshot of torch \
         has none"
    )]
    Object {
        /// Name of the opcode.
        name: &'static str,
        /// Its place in the file.
        at: u64,
    },
    /// It has an opcode that such pickles don't have.
    #[error("read it: the opcode {opcode:#04x} at byte {at} is not known")]
    Unknown {
        /// Byte of the opcode.
        opcode: u8,
        /// Its place in the file.
        at: u64,
    },
    /// An opcode finds something else than it needs.
    #[error("read it: it is damaged at byte {at}")]
    Damaged {
        /// The place of the opcode in the file.
        at: u64,
    },
    /// It would take too much memory.
    #[error("read it: it takes more than {} MiB of memory", MEMORY_BYTES_MAX >> 20)]
    TooLarge,
}

/// A value of a pickle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A number that is no such integer, or bytes.
    Other,
    Text(usize),
    /// A list or a tuple.
    List(usize),
    Dict(usize),
}

/// The values of a pickle.
#[derive(Debug, Default)]
pub(super) struct Values {
    texts: Vec<Box<str>>,
    /// Of a dict each key before its value.
    containers: Vec<Vec<Value>>,
}

impl Values {
    pub(super) fn text(&self, value: Value) -> Option<&str> {
        match value {
            Value::Text(place) => self.texts.get(place).map(|text| &**text),
            _ => None,
        }
    }

    pub(super) fn list(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(place) => self.containers.get(place).map(Vec::as_slice),
            _ => None,
        }
    }

    /// What a dict has under a key.
    pub(super) fn get(&self, dict: Value, key: &str) -> Option<Value> {
        let Value::Dict(place) = dict else {
            return None;
        };
        let (pairs, _) = self.containers.get(place)?.as_chunks::<2>();
        // A key that comes again replaces what was there.
        let mut pairs = pairs.iter().rev().take(KEYS_MAX);
        let found = pairs.find(|[found, _]| self.text(*found) == Some(key));
        found.map(|[_, value]| *value)
    }
}

/// Reads the dict that a pickle is, up to the end of its value for `last`: what comes behind it in the
/// file is not read.
pub(super) fn read_until(file: impl BufRead, last: &str) -> Result<(Values, Value), PickleError> {
    read_within(file, last, MEMORY_BYTES_MAX)
}

fn read_within(
    file: impl BufRead,
    last: &str,
    memory_bytes: usize,
) -> Result<(Values, Value), PickleError> {
    let mut machine = Machine {
        file,
        at: 0,
        left: memory_bytes,
        values: Values::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
    };
    let root = machine.run(last)?;
    Ok((machine.values, root))
}

struct Machine<R> {
    file: R,
    /// Bytes that were read.
    at: u64,
    /// Memory that may still be taken.
    left: usize,
    values: Values,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Value>,
}

impl<R: BufRead> Machine<R> {
    fn run(&mut self, last: &str) -> Result<Value, PickleError> {
        let header = self.array::<2>().map_err(|error| match error {
            PickleError::Short => PickleError::NotPickle,
            error => error,
        })?;
        if header[0] != 0x80 || !(2..=5).contains(&header[1]) {
            return Err(PickleError::NotPickle);
        }
        loop {
            let at = self.at;
            let [opcode] = self.array()?;
            if opcode == b'.' {
                return self.pop().ok_or(PickleError::Damaged { at });
            }
            self.step(opcode, at)?.ok_or(PickleError::Damaged { at })?;
            if let Some(root) = self.root_with(last) {
                return Ok(root);
            }
        }
    }

    /// The outermost dict, once the key behind `last` and its value is there: its pairs are put into it
    /// only at its end. A value that is no key there is the only item of a list, on its way into it.
    fn root_with(&mut self, last: &str) -> Option<Value> {
        let ([1], [root @ Value::Dict(place), pairs @ .., Value::Text(_)]) =
            (&self.marks[..], &self.stack[..])
        else {
            return None;
        };
        let (whole, []) = pairs.as_chunks::<2>() else {
            return None;
        };
        let [key, _] = whole.last()?;
        if self.values.text(*key) != Some(last) {
            return None;
        }
        let whole = whole.as_flattened();
        self.values.containers.get_mut(*place)?.extend(whole);
        Some(*root)
    }

    /// Does what an opcode says; `None` where the stack has not what it needs.
    fn step(&mut self, opcode: u8, at: u64) -> Result<Option<()>, PickleError> {
        match opcode {
            b'(' => {
                self.take(2 * size_of::<usize>())?;
                self.marks.push(self.stack.len());
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'K' => {
                let [byte] = self.array()?;
                self.push(Value::Int(byte.into()))?;
            }
            b'M' => {
                let number = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(number.into()))?;
            }
            b'J' => {
                let number = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(number.into()))?;
            }
            0x8a => {
                let [length] = self.array()?;
                self.integer(length.into())?;
            }
            0x8b => {
                let length = self.length_of_4()?;
                self.integer(length)?;
            }
            b'G' => self.other(8)?,
            0x8c => {
                let [length] = self.array()?;
                self.text(length.into())?;
            }
            b'X' => {
                let length = self.length_of_4()?;
                self.text(length)?;
            }
            0x8d => {
                let length = self.length_of_8()?;
                self.text(length)?;
            }
            b'C' => {
                let [length] = self.array()?;
                self.other(length.into())?;
            }
            b'B' => {
                let length = self.length_of_4()?;
                self.other(length)?;
            }
            0x8e => {
                let length = self.length_of_8()?;
                self.other(length)?;
            }
            b']' | b')' => self.container(Value::List, 0)?,
            b'}' => self.container(Value::Dict, 0)?,
            0x85..=0x87 => {
                let Some(from) = self.stack.len().checked_sub((opcode - 0x84).into()) else {
                    return Ok(None);
                };
                self.container(Value::List, self.stack.len() - from)?;
            }
            b't' => {
                let Some(mark) = self.marks.pop() else {
                    return Ok(None);
                };
                let Some(count) = self.stack.len().checked_sub(mark) else {
                    return Ok(None);
                };
                self.container(Value::List, count)?;
            }
            b'a' => return Ok(self.fill(self.stack.len().checked_sub(1), false)),
            b's' => return Ok(self.fill(self.stack.len().checked_sub(2), true)),
            b'e' | b'u' => {
                let mark = self.marks.pop();
                return Ok(self.fill(mark, opcode == b'u'));
            }
            b'q' => {
                let [place] = self.array()?;
                return self.memoize(place.into());
            }
            b'r' => {
                let place = u32::from_le_bytes(self.array()?);
                return self.memoize(place as usize);
            }
            0x94 => return self.memoize(self.memo.len()),
            b'h' => {
                let [place] = self.array()?;
                return self.recall(place.into());
            }
            b'j' => {
                let place = u32::from_le_bytes(self.array()?);
                return self.recall(place as usize);
            }
            // A frame says only how much follows.
            0x95 => drop(self.array::<8>()?),
            opcode => {
                let named = OBJECTS.iter().find(|(object, _)| *object == opcode);
                return Err(match named {
                    Some(&(_, name)) => PickleError::Object { name, at },
                    None => PickleError::Unknown { opcode, at },
                });
            }
        }
        Ok(Some(()))
    }

    fn take(&mut self, bytes: usize) -> Result<(), PickleError> {
        self.left = self.left.checked_sub(bytes).ok_or(PickleError::TooLarge)?;
        Ok(())
    }

    fn push(&mut self, value: Value) -> Result<(), PickleError> {
        self.take(VALUE_BYTES)?;
        self.stack.push(value);
        Ok(())
    }

    /// The top of the stack, unless a mark is there.
    fn pop(&mut self) -> Option<Value> {
        match self.marks.last() {
            Some(&mark) if mark >= self.stack.len() => None,
            _ => self.stack.pop(),
        }
    }

    /// A container of the uppermost values.
    fn container(
        &mut self,
        kind: impl Fn(usize) -> Value,
        count: usize,
    ) -> Result<(), PickleError> {
        self.take(CONTAINER_BYTES)?;
        let from = self.stack.len().saturating_sub(count);
        let items = self.stack.drain(from..).collect();
        self.values.containers.push(items);
        self.push(kind(self.values.containers.len() - 1))
    }

    /// Puts the values from there on into the container below them.
    fn fill(&mut self, from: Option<usize>, is_dict: bool) -> Option<()> {
        let from = from.filter(|from| *from <= self.stack.len())?;
        let place = match (self.stack.get(from.checked_sub(1)?)?, is_dict) {
            (Value::Dict(place), true) if (self.stack.len() - from).is_multiple_of(2) => *place,
            (Value::List(place), false) => *place,
            _ => return None,
        };
        let items = self.stack.drain(from..);
        self.values.containers.get_mut(place)?.extend(items);
        Some(())
    }

    /// Python numbers them in their order.
    fn memoize(&mut self, place: usize) -> Result<Option<()>, PickleError> {
        let Some(&value) = self.stack.last() else {
            return Ok(None);
        };
        self.take(VALUE_BYTES)?;
        if place == self.memo.len() {
            self.memo.push(value);
        }
        Ok(self.memo.get_mut(place).map(|known| *known = value))
    }

    fn recall(&mut self, place: usize) -> Result<Option<()>, PickleError> {
        match self.memo.get(place) {
            Some(&value) => self.push(value).map(Some),
            None => Ok(None),
        }
    }

    fn integer(&mut self, length: u64) -> Result<(), PickleError> {
        let Ok(length @ 0..=8) = usize::try_from(length) else {
            return self.other(length);
        };
        let mut bytes = [0; 8];
        self.exactly(&mut bytes[..length])?;
        let unused = 64 - 8 * length as u32;
        let number = match length {
            0 => 0,
            // The sign is that of the last byte.
            _ => i64::from_le_bytes(bytes) << unused >> unused,
        };
        self.push(Value::Int(number))
    }

    fn text(&mut self, length: u64) -> Result<(), PickleError> {
        if length > TEXT_BYTES_MAX {
            return Err(PickleError::TooLarge);
        }
        self.take(CONTAINER_BYTES + length as usize)?;
        let mut bytes = vec![0; length as usize];
        self.exactly(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // What stands for a byte that is no text is longer.
        self.take(text.len().saturating_sub(bytes.len()))?;
        let text = text.into();
        self.values.texts.push(text);
        self.push(Value::Text(self.values.texts.len() - 1))
    }

    /// Passes by what is of no use.
    fn other(&mut self, length: u64) -> Result<(), PickleError> {
        let passed = io::copy(&mut self.file.by_ref().take(length), &mut io::sink())?;
        if passed < length {
            return Err(PickleError::Short);
        }
        self.at += length;
        self.push(Value::Other)
    }

    fn length_of_4(&mut self) -> Result<u64, PickleError> {
        Ok(u32::from_le_bytes(self.array()?).into())
    }

    fn length_of_8(&mut self) -> Result<u64, PickleError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut bytes = [0; N];
        self.exactly(&mut bytes)?;
        Ok(bytes)
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Result<(), PickleError> {
        self.file.read_exact(bytes).map_err(|error| match error {
            error if error.kind() == ErrorKind::UnexpectedEof => PickleError::Short,
            error => PickleError::Io(error),
        })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
