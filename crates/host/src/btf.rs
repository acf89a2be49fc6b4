//! A reader of BTF, the kernel's description of its own types: just enough to ask where a
//! field stands, what an enumerator's value is and how many arguments a tracepoint has.
//!
//! Own code on purpose: parsing the whole graph, as the existing crates do, costs 20 to
//! 40 MB and up to 0.13 s at start; this reader indexes the raw bytes in one pass and keeps
//! four bytes per type. The format is Documentation/bpf/btf.rst in the kernel.

mod reduced;

use std::collections::{HashMap, HashSet};

/// The bytes are not BTF that this reader understands.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// No BTF magic number, or of the other byte order.
    #[error("no BTF magic number at the beginning")]
    Magic,
    /// The data ends in the middle of something.
    #[error("BTF data ends early, at byte {at}")]
    Truncated {
        /// Where something was expected.
        at: usize,
    },
    /// A kind of type that this reader does not know, so it can't step over it.
    #[error("unknown BTF kind {kind} of type {id}")]
    UnknownKind {
        /// The kind's number.
        kind: u32,
        /// The id of the type.
        id: u32,
    },
}

/// Chains of typedefs and dimensions of arrays are short; a bound keeps damaged data from looping.
const CHAIN_MAX: u32 = 32;
/// So many anonymous structs and unions are looked through for a field; a kernel's largest struct
/// has some dozen.
const NESTED_MAX: usize = 1000;
const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// Indexed BTF data.
#[derive(Debug)]
pub struct Btf<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// Where each type stands; type ids begin at 1.
    offsets: Vec<u32>,
    /// Ids of the wanted types, by kind and name.
    named: HashMap<(u32, &'a [u8]), u32>,
}

/// A field found in a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset from the beginning of the outermost struct, in bytes.
    pub offset: u32,
    /// Id of the field's type.
    pub type_id: u32,
}

#[derive(Clone, Copy)]
struct Type {
    at: usize,
    kind: u32,
    vlen: usize,
    name: u32,
    size_or_type: u32,
}

impl<'a> Btf<'a> {
    /// Indexes `bytes`, remembering the structs, typedefs, enums and functions named in
    /// `wanted`.
    ///
    /// # Errors
    /// When the bytes are no BTF, end early, or hold a kind of type from a newer format.
    pub fn parse(bytes: &'a [u8], wanted: &[&'a str]) -> Result<Self, BtfError> {
        if bytes.len() < HEADER_LEN || u16_at(bytes, 0)? != MAGIC {
            return Err(BtfError::Magic);
        }
        let header_len = u32_at(bytes, 4)? as usize;
        let types_from = header_len + u32_at(bytes, 8)? as usize;
        let types_to = types_from + u32_at(bytes, 12)? as usize;
        let strings_from = header_len + u32_at(bytes, 16)? as usize;
        let strings_to = strings_from + u32_at(bytes, 20)? as usize;
        let strings = bytes
            .get(strings_from..strings_to)
            .ok_or(BtfError::Truncated { at: strings_to })?;
        if bytes.len() < types_to {
            return Err(BtfError::Truncated { at: types_to });
        }
        let mut btf = Self {
            bytes,
            strings,
            offsets: Vec::with_capacity((types_to - types_from) / 24),
            named: HashMap::new(),
        };
        let mut at = types_from;
        while at < types_to {
            let id = btf.offsets.len() as u32 + 1;
            let found = btf.type_at(at)?;
            let kind = match found.kind {
                KIND_STRUCT | KIND_TYPEDEF | KIND_FUNC => Some(found.kind),
                KIND_ENUM | KIND_ENUM64 => Some(KIND_ENUM),
                _ => None,
            };
            if let Some(kind) = kind {
                let name = string_at(strings, found.name);
                if let Some(name) = wanted.iter().find(|wanted| wanted.as_bytes() == name) {
                    btf.named.entry((kind, name.as_bytes())).or_insert(id);
                }
            }
            btf.offsets.push(at as u32);
            at += 12 + trailing_len(found.kind, found.vlen, id)?;
        }
        Ok(btf)
    }

    fn type_at(&self, at: usize) -> Result<Type, BtfError> {
        let info = u32_at(self.bytes, at + 4)?;
        Ok(Type {
            at,
            kind: (info >> 24) & 0x1f,
            vlen: (info & 0xffff) as usize,
            name: u32_at(self.bytes, at)?,
            size_or_type: u32_at(self.bytes, at + 8)?,
        })
    }

    fn by_id(&self, id: u32) -> Option<Type> {
        let at = *self.offsets.get((id as usize).checked_sub(1)?)?;
        self.type_at(at as usize).ok()
    }

    fn named(&self, kind: u32, name: &str) -> Option<u32> {
        self.named.get(&(kind, name.as_bytes())).copied()
    }

    /// Whether a wanted struct, typedef, enum or function is there.
    pub fn has(&self, name: &str) -> bool {
        [KIND_STRUCT, KIND_TYPEDEF, KIND_FUNC, KIND_ENUM]
            .iter()
            .any(|kind| self.named(*kind, name).is_some())
    }

    /// A BTF blob that gives the named types the ids they have here and has nothing but
    /// placeholders otherwise. Whoever wants no more than ids can parse it in a fraction
    /// of the time and memory: the graph of a whole kernel takes 20 MB.
    pub fn with_ids_only(&self, names: &[&str]) -> Vec<u8> {
        let mut kept: Vec<(u32, u32, &[u8])> = self
            .named
            .iter()
            .filter(|((_, name), _)| names.iter().any(|wanted| wanted.as_bytes() == *name))
            .map(|((kind, name), id)| (*id, *kind, *name))
            .collect();
        kept.sort_unstable();
        let last = kept.last().map_or(0, |(id, _, _)| *id);
        let mut strings = vec![0];
        let mut types = Vec::with_capacity(last as usize * 12);
        let mut next = kept.into_iter().peekable();
        for id in 1..=last {
            let (kind, name_at) = match next.next_if(|(kept, _, _)| *kept == id) {
                Some((_, kind, name)) => {
                    let at = strings.len() as u32;
                    strings.extend_from_slice(name);
                    strings.push(0);
                    (kind, at)
                }
                None => (KIND_FWD, 0),
            };
            for word in [name_at, kind << 24, 0] {
                types.extend_from_slice(&word.to_le_bytes());
            }
        }
        blob(&types, &strings)
    }

    /// Follows typedefs and qualifiers to the type behind them.
    fn resolved(&self, id: u32) -> Option<Type> {
        let mut found = self.by_id(id)?;
        for _ in 0..CHAIN_MAX {
            match found.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    found = self.by_id(found.size_or_type)?;
                }
                _ => return Some(found),
            }
        }
        None
    }

    /// A field of a struct by name, also inside its anonymous structs and unions. `None`
    /// when this kernel has no such struct or field, or keeps it in a bit field.
    pub fn field(&self, of: &str, name: &str) -> Option<Field> {
        let id = self.named(KIND_STRUCT, of)?;
        self.field_in(self.by_id(id)?, name, &mut HashSet::new())
    }

    /// A field of the struct that `field` is.
    pub fn field_of(&self, field: Field, name: &str) -> Option<Field> {
        let of = self.resolved(field.type_id)?;
        let mut inner = self.field_in(of, name, &mut HashSet::new())?;
        inner.offset = inner.offset.checked_add(field.offset)?;
        Some(inner)
    }

    /// `seen` has where the structs stand that were looked through: what is not in one of them
    /// is not in it the second time, and damaged data may have a struct within itself.
    fn field_in(&self, of: Type, name: &str, seen: &mut HashSet<usize>) -> Option<Field> {
        let is_new = seen.len() < NESTED_MAX && seen.insert(of.at);
        if !is_new || !matches!(of.kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        let has_bit_fields = u32_at(self.bytes, of.at + 4).ok()? >> 31 == 1;
        for index in 0..of.vlen {
            let at = of.at + 12 + index * 12;
            let field_name = string_at(self.strings, u32_at(self.bytes, at).ok()?);
            let type_id = u32_at(self.bytes, at + 4).ok()?;
            let place = u32_at(self.bytes, at + 8).ok()?;
            let (bits, bit_size) = if has_bit_fields {
                (place & 0x00ff_ffff, place >> 24)
            } else {
                (place, 0)
            };
            if field_name == name.as_bytes() {
                return (bits % 8 == 0 && bit_size == 0).then_some(Field {
                    offset: bits / 8,
                    type_id,
                });
            }
            if field_name.is_empty()
                && let Some(inner) = self
                    .by_id(type_id)
                    .and_then(|inner| self.field_in(inner, name, seen))
            {
                let offset = (bits / 8).checked_add(inner.offset)?;
                return Some(Field { offset, ..inner });
            }
        }
        None
    }

    /// Size of a type in bytes, where it has one of its own.
    pub fn size(&self, type_id: u32) -> Option<u32> {
        self.size_within(type_id, 0)
    }

    fn size_within(&self, type_id: u32, dimensions: u32) -> Option<u32> {
        let found = self.resolved(type_id)?;
        match found.kind {
            KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 | KIND_FLOAT => {
                Some(found.size_or_type)
            }
            KIND_PTR => Some(8),
            KIND_ARRAY if dimensions < CHAIN_MAX => {
                let element = u32_at(self.bytes, found.at + 12).ok()?;
                let count = u32_at(self.bytes, found.at + 20).ok()?;
                self.size_within(element, dimensions + 1)?
                    .checked_mul(count)
            }
            _ => None,
        }
    }

    /// Size of a struct by name.
    pub fn struct_size(&self, name: &str) -> Option<u32> {
        self.size(self.named(KIND_STRUCT, name)?)
    }

    /// The type of an array's elements; `None` when the type is no array.
    pub fn element(&self, array_type_id: u32) -> Option<u32> {
        let found = self.resolved(array_type_id)?;
        (found.kind == KIND_ARRAY).then(|| u32_at(self.bytes, found.at + 12).ok())?
    }

    /// The value of an enumerator of a named enum.
    pub fn enumerator(&self, of: &str, name: &str) -> Option<u32> {
        let found = self.by_id(self.named(KIND_ENUM, of)?)?;
        let entry_len = if found.kind == KIND_ENUM64 { 12 } else { 8 };
        (0..found.vlen)
            .map(|index| found.at + 12 + index * entry_len)
            .find(|at| {
                u32_at(self.bytes, *at)
                    .is_ok_and(|entry| string_at(self.strings, entry) == name.as_bytes())
            })
            .and_then(|at| u32_at(self.bytes, at + 4).ok())
    }

    /// The arguments of a tracepoint: for each the type id, the hidden first one left out.
    /// `None` when this kernel has no such tracepoint.
    pub fn tracepoint_arguments(&self, typedef: &str) -> Option<Vec<u32>> {
        let proto = self.tracepoint_proto(typedef)?;
        (1..proto.vlen)
            .map(|index| u32_at(self.bytes, place_of_parameter(proto, index)).ok())
            .collect()
    }

    fn tracepoint_proto(&self, typedef: &str) -> Option<Type> {
        let pointer = self.resolved(self.named(KIND_TYPEDEF, typedef)?)?;
        if pointer.kind != KIND_PTR {
            return None;
        }
        let proto = self.resolved(pointer.size_or_type)?;
        (proto.kind == KIND_FUNC_PROTO).then_some(proto)
    }

    /// Where in the data the type id of a tracepoint's argument stands, to make a kernel
    /// that declares it otherwise: for tests.
    pub fn place_of_argument(&self, typedef: &str, index: usize) -> Option<usize> {
        let proto = self.tracepoint_proto(typedef)?;
        Some(place_of_parameter(proto, index + 1))
    }

    /// The id of a function by name.
    pub fn function_id(&self, name: &str) -> Option<u32> {
        self.named(KIND_FUNC, name)
    }

    /// Whether a type is a pointer.
    pub fn is_pointer(&self, type_id: u32) -> bool {
        self.resolved(type_id)
            .is_some_and(|found| found.kind == KIND_PTR)
    }
}

/// Where the type id of a function's parameter stands.
fn place_of_parameter(proto: Type, index: usize) -> usize {
    proto.at + 12 + index * 8 + 4
}

/// BTF data made of types and strings.
fn blob(types: &[u8], strings: &[u8]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(HEADER_LEN + types.len() + strings.len());
    blob.extend_from_slice(&MAGIC.to_le_bytes());
    blob.extend_from_slice(&[1, 0]);
    let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
    for word in [HEADER_LEN as u32, 0, types_len, types_len, strings_len] {
        blob.extend_from_slice(&word.to_le_bytes());
    }
    blob.extend_from_slice(types);
    blob.extend_from_slice(strings);
    blob
}

/// Bytes that follow the common part of a type.
fn trailing_len(kind: u32, vlen: usize, id: u32) -> Result<usize, BtfError> {
    Ok(match kind {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => vlen * 12,
        KIND_ENUM | KIND_FUNC_PROTO => vlen * 8,
        KIND_PTR | KIND_FWD | KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT
        | KIND_FUNC | KIND_FLOAT | KIND_TYPE_TAG => 0,
        _ => return Err(BtfError::UnknownKind { kind, id }),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, BtfError> {
    let found = bytes
        .get(at..at + 2)
        .and_then(|found| found.try_into().ok());
    found
        .map(u16::from_le_bytes)
        .ok_or(BtfError::Truncated { at })
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let found = bytes
        .get(at..at + 4)
        .and_then(|found| found.try_into().ok());
    found
        .map(u32::from_le_bytes)
        .ok_or(BtfError::Truncated { at })
}

fn string_at(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// struct inner { int a; }; struct outer { int x; struct { int y; }; }; typedef int t;
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0outer\0x\0y\0t\0";
        let mut types: Vec<u32> = Vec::new();
        types.extend([1, KIND_INT << 24, 4, 32]);
        types.extend([0, KIND_STRUCT << 24 | 1, 4, 13, 1, 0]);
        types.extend([5, KIND_STRUCT << 24 | 2, 8, 11, 1, 0, 0, 2, 32]);
        types.extend([15, KIND_TYPEDEF << 24, 1]);
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut blob = MAGIC.to_le_bytes().to_vec();
        blob.extend([1, 0]);
        let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
        for word in [24, 0, types_len, types_len, strings_len] {
            blob.extend(u32::to_le_bytes(word));
        }
        blob.extend(types);
        blob.extend(strings);
        blob
    }

    #[test]
    fn a_field_of_an_anonymous_struct_is_found_at_its_place_in_the_outer_one() {
        let blob = sample();
        let btf = Btf::parse(&blob, &["outer"]).unwrap();
        assert_eq!(btf.field("outer", "x").unwrap().offset, 0);
        assert_eq!(btf.field("outer", "y").unwrap().offset, 4);
        assert_eq!(btf.field("outer", "z"), None);
        assert_eq!(btf.field("other", "x"), None);
        assert_eq!(btf.struct_size("outer"), Some(8));
    }

    #[test]
    fn the_stand_in_keeps_ids_and_nothing_else() {
        let blob = sample();
        let btf = Btf::parse(&blob, &["outer", "t"]).unwrap();
        let small = btf.with_ids_only(&["t"]);
        let parsed = Btf::parse(&small, &["outer", "t"]).unwrap();
        assert_eq!(parsed.named(KIND_TYPEDEF, "t"), Some(4));
        assert_eq!(parsed.named(KIND_STRUCT, "outer"), None);
    }

    #[test]
    fn a_type_that_is_within_itself_has_no_reduced_part() {
        let strings = b"\0outer\0";
        // struct outer { struct outer; };
        let types = [1, KIND_STRUCT << 24 | 1, 8, 0, 1, 0];
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let bytes = blob(&types, strings);
        let btf = Btf::parse(&bytes, &["outer"]).unwrap();
        assert_eq!(btf.reduced(), None);
    }

    #[test]
    fn a_type_that_is_within_itself_a_thousand_times_is_looked_through_once() {
        // struct outer { struct outer; … };
        let mut types = vec![1, KIND_STRUCT << 24 | 1000, 8];
        types.extend([0, 1, 0].repeat(1000));
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let bytes = blob(&types, b"\0outer\0");
        let btf = Btf::parse(&bytes, &["outer"]).unwrap();
        assert_eq!(btf.field("outer", "x"), None);
    }

    #[test]
    fn an_array_of_itself_has_no_size() {
        let types = [0, KIND_ARRAY << 24, 0, 1, 1, 2];
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let bytes = blob(&types, b"\0");
        assert_eq!(Btf::parse(&bytes, &[]).unwrap().size(1), None);
    }

    #[test]
    fn a_reduced_part_answers_as_the_whole_does() {
        let blob = sample();
        let whole = Btf::parse(&blob, &["outer", "t"]).unwrap();
        let reduced = whole.reduced().unwrap();
        let part = Btf::parse(&reduced, &["outer", "t"]).unwrap();
        for name in ["x", "y", "z"] {
            let offset = |btf: &Btf<'_>| btf.field("outer", name).map(|field| field.offset);
            assert_eq!(offset(&part), offset(&whole), "{name}");
        }
        assert_eq!(part.struct_size("outer"), Some(8));
        assert!(part.has("t") && !part.has("int"));
    }

    #[test]
    fn data_that_ends_early_is_refused() {
        let blob = sample();
        for len in 0..blob.len() {
            assert!(Btf::parse(&blob[..len], &["outer"]).is_err(), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn damaged_data_never_panics(
            at in 0usize..200, value in any::<u8>(), name in "[a-z]{1,5}",
        ) {
            let mut blob = sample();
            let at = at % blob.len();
            blob[at] = value;
            if let Ok(btf) = Btf::parse(&blob, &["outer", "t"]) {
                let _ = btf.field("outer", &name);
                let _ = btf.struct_size("outer");
                let _ = btf.tracepoint_arguments("t");
            }
        }
    }
}
