//! A few kilobytes of a kernel's BTF that answer for some of its types as the whole does:
//! how the layouts of kernels are kept for tests.

use super::{
    Btf, KIND_ARRAY, KIND_CONST, KIND_ENUM, KIND_ENUM64, KIND_FLOAT, KIND_FUNC, KIND_FUNC_PROTO,
    KIND_FWD, KIND_INT, KIND_PTR, KIND_RESTRICT, KIND_STRUCT, KIND_TYPE_TAG, KIND_TYPEDEF,
    KIND_UNION, KIND_VOLATILE, Type, blob, string_at, u32_at,
};
use std::collections::HashMap;

impl Btf<'_> {
    /// BTF that holds the named types with all that can be asked about them: fields,
    /// enumerators, arguments, sizes. Of types that they refer to only kind and size are
    /// kept, of a pointer that it is one. `None` when the data refers to what is not in it.
    pub fn reduced(&self) -> Option<Vec<u8>> {
        let mut kept = Kept {
            btf: self,
            types: Vec::new(),
            count: 0,
            strings: vec![0],
            ids: HashMap::new(),
            depth: 0,
        };
        let mut ids: Vec<u32> = self.named.values().copied().collect();
        ids.sort_unstable();
        for id in ids {
            kept.keep(id, true)?;
        }
        Some(blob(&kept.types, &kept.strings))
    }
}

/// What is kept so far.
struct Kept<'a> {
    btf: &'a Btf<'a>,
    types: Vec<u8>,
    count: u32,
    strings: Vec<u8>,
    /// New ids by old ones, and by whether all was kept.
    ids: HashMap<(u32, bool), u32>,
    /// How many types the one in hand is within.
    depth: u32,
}

/// No type of a kernel is within so many; one that is within itself would never end.
const DEPTH_MAX: u32 = 100;

impl Kept<'_> {
    /// Keeps a type and what it refers to; gives its new id. 0 is `void` in both.
    fn keep(&mut self, id: u32, is_whole: bool) -> Option<u32> {
        if id == 0 {
            return Some(0);
        }
        let is_whole = is_whole || self.btf.named.values().any(|named| *named == id);
        if let Some(known) = self.ids.get(&(id, is_whole)) {
            return Some(*known);
        }
        if self.depth == DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let new = self.keep_new(id, is_whole);
        self.depth -= 1;
        self.ids.insert((id, is_whole), new?);
        new
    }

    fn keep_new(&mut self, id: u32, is_whole: bool) -> Option<u32> {
        let found = self.btf.by_id(id)?;
        Some(match found.kind {
            // A qualifier, or a name that nobody asks for, is as good as what it stands for.
            KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                self.keep(found.size_or_type, is_whole)?
            }
            KIND_TYPEDEF if !is_whole => self.keep(found.size_or_type, false)?,
            KIND_TYPEDEF | KIND_FUNC => {
                let target = self.keep(found.size_or_type, true)?;
                self.push(found, 0, target, &[])
            }
            KIND_PTR => {
                let to = self.btf.resolved(found.size_or_type);
                let is_function = to.is_some_and(|to| to.kind == KIND_FUNC_PROTO);
                let target = if is_whole && is_function {
                    self.keep(found.size_or_type, true)?
                } else {
                    0
                };
                self.push(found, 0, target, &[])
            }
            KIND_ARRAY => {
                let element = self.keep(self.word(found, 12)?, false)?;
                let index = self.keep(self.word(found, 16)?, false)?;
                let length = self.word(found, 20)?;
                self.push(found, 0, 0, &[element, index, length])
            }
            KIND_STRUCT | KIND_UNION => self.keep_members(found, is_whole)?,
            KIND_ENUM | KIND_ENUM64 if is_whole => self.keep_enumerators(found)?,
            KIND_ENUM | KIND_ENUM64 => self.push(found, 0, found.size_or_type, &[]),
            KIND_FUNC_PROTO => self.keep_parameters(found)?,
            KIND_INT => {
                let encoding = self.word(found, 12)?;
                self.push(found, 0, found.size_or_type, &[encoding])
            }
            KIND_FLOAT => self.push(found, 0, found.size_or_type, &[]),
            KIND_FWD => self.push(found, 0, 0, &[]),
            // Nothing that has a size refers to the other kinds.
            _ => return None,
        })
    }

    fn keep_members(&mut self, found: Type, is_whole: bool) -> Option<u32> {
        let mut rest = Vec::new();
        let count = if is_whole { found.vlen } else { 0 };
        for index in 0..count {
            let at = 12 + index * 12;
            let name = self.word(found, at)?;
            let is_anonymous = string_at(self.btf.strings, name).is_empty();
            let type_id = self.word(found, at + 4)?;
            let type_id = self.keep(type_id, is_anonymous)?;
            rest.extend([self.string(name), type_id, self.word(found, at + 8)?]);
        }
        Some(self.push(found, count, found.size_or_type, &rest))
    }

    fn keep_enumerators(&mut self, found: Type) -> Option<u32> {
        let words = if found.kind == KIND_ENUM64 { 3 } else { 2 };
        let mut rest = Vec::new();
        for index in 0..found.vlen {
            let at = 12 + index * words * 4;
            let name = self.word(found, at)?;
            rest.push(self.string(name));
            for word in 1..words {
                rest.push(self.word(found, at + word * 4)?);
            }
        }
        Some(self.push(found, found.vlen, found.size_or_type, &rest))
    }

    fn keep_parameters(&mut self, found: Type) -> Option<u32> {
        let mut rest = Vec::new();
        for index in 0..found.vlen {
            let type_id = self.word(found, 12 + index * 8 + 4)?;
            rest.extend([0, self.keep(type_id, false)?]);
        }
        let result = self.keep(found.size_or_type, false)?;
        Some(self.push(found, found.vlen, result, &rest))
    }

    /// A word of a type, at an offset from its beginning.
    fn word(&self, found: Type, offset: usize) -> Option<u32> {
        u32_at(self.btf.bytes, found.at + offset).ok()
    }

    /// A string's new place.
    fn string(&mut self, old: u32) -> u32 {
        let text = string_at(self.btf.strings, old);
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text);
        self.strings.push(0);
        at
    }

    /// Appends a type like `found`, with so many members; gives its id.
    fn push(&mut self, found: Type, vlen: usize, size_or_type: u32, rest: &[u32]) -> u32 {
        let name = self.string(found.name);
        let has_bit_fields = self.word(found, 4).unwrap_or(0) & (1 << 31);
        let info = has_bit_fields | found.kind << 24 | vlen as u32;
        let words = [name, info].into_iter().chain([size_or_type]);
        for word in words.chain(rest.iter().copied()) {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }
}
