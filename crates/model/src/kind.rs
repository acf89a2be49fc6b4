//! The kinds of a process's memory: the one list of them.

use super::label::Label;
use super::{Bytes, MemRow};
use crate::labels;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::{Index, IndexMut};

/// Declares the kinds: for each its column of `mem`, its word, and its title in a table.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident in $column:ident = $word:literal | $title:literal,)+) => {
        labels! {
            /// A kind of memory as the kernel counts it for each process.
            pub enum Kind { $($(#[doc = $doc])+ $kind = $word | $title,)+ }
        }

        impl Kind {
            /// What a row of `mem` says of it.
            pub fn of(self, row: &MemRow) -> Option<Bytes> {
                match self { $(Self::$kind => row.$column,)+ }
            }

            /// Its column of `mem`.
            pub fn column(self) -> &'static str {
                match self { $(Self::$kind => stringify!($column),)+ }
            }

            /// An object with a key for each kind.
            pub fn schema(
                doc: &str,
                name: impl Fn(Self) -> String,
                value: Schema,
            ) -> Schema {
                let kinds = Self::ALL.iter().zip(Self::WORDS);
                let keys = kinds.map(|(kind, (_, doc))| {
                    let mut value = value.clone();
                    value.insert("description".to_owned(), doc.trim().into());
                    (name(*kind), value.to_value())
                });
                let keys: serde_json::Map<String, Value> = keys.collect();
                let required: Vec<String> = Self::ALL.iter().map(|kind| name(*kind)).collect();
                json_schema!({
                    "description": doc,
                    "type": "object",
                    "required": required,
                    "properties": keys,
                })
            }

            /// Its key among amounts by kind.
            pub fn key(self) -> &'static str {
                match self { $(Self::$kind => concat!($word, "_bytes"),)+ }
            }
        }
    };
}

kinds! {
    /// Resident memory in all.
    Rss in rss_bytes = "rss" | "RSS",
    /// Resident anonymous memory.
    Anon in rss_anon_bytes = "anon" | "ANON",
    /// Resident pages of mapped files.
    File in rss_file_bytes = "file" | "FILE",
    /// Resident shared memory.
    Shmem in rss_shmem_bytes = "shmem" | "SHMEM",
    /// Memory swapped out.
    Swap in swap_bytes = "swap" | "SWAP",
}

/// A value for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerKind<T>([T; Kind::ALL.len()]);

impl<T> PerKind<T> {
    /// The values that a function gives.
    #[inline]
    pub fn of(value: impl Fn(Kind) -> T) -> Self {
        Self(std::array::from_fn(|place| value(Kind::ALL[place])))
    }
}

impl<T: Copy> PerKind<T> {
    /// The same value for all kinds.
    pub const fn all(value: T) -> Self {
        Self([value; Kind::ALL.len()])
    }
}

impl<T> Index<Kind> for PerKind<T> {
    type Output = T;
    fn index(&self, kind: Kind) -> &T {
        &self.0[kind as usize]
    }
}

impl<T> IndexMut<Kind> for PerKind<T> {
    fn index_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind as usize]
    }
}

impl<T: JsonSchema> JsonSchema for PerKind<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}PerKind", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        Kind::schema(
            "The same of each kind of memory.",
            |kind| kind.as_str().to_owned(),
            value,
        )
    }
}

impl<T: Serialize> Serialize for PerKind<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(Kind::ALL.iter().zip(&self.0))
    }
}
