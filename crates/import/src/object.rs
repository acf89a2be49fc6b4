//! Objects of JSON that other programs write: fields that are used, fields that are known and not
//! used, and all others, which are noted by name.

use super::file::{FormatError, REQUESTS_MAX};
use super::outcome::{forget_failures, kept};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::iter::Flatten;
use std::marker::PhantomData;
use std::vec::IntoIter;

/// So many unknown fields are noted, each so many characters of it.
const UNKNOWN_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 64;
/// By more fields no file is distinguished from others, nor by longer names.
const SHAPE_NAMES_MAX: usize = 1_024;

thread_local! {
    /// Requests that were read of this file, and how many it may have.
    static REQUESTS: Cell<(usize, usize)> = const { Cell::new((0, REQUESTS_MAX)) };
    /// Its fields that are not known.
    static UNKNOWN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    /// The first reason why it can't be used that was found while serde read it.
    static REFUSAL: RefCell<Option<FormatError>> = const { RefCell::new(None) };
}

/// Another file is read from here on, which may have so many requests.
pub(super) fn begin_file(requests_max: usize) {
    REQUESTS.set((0, requests_max));
    take_unknown();
    take_refusal();
    forget_failures();
}

/// Ends serde's reading of the file. Its errors are texts, so [`take_refusal`] has the reason.
#[derive(Debug, thiserror::Error)]
#[error("the file can't be used")]
pub(super) struct Refused;

impl From<FormatError> for Refused {
    fn from(reason: FormatError) -> Self {
        REFUSAL.with_borrow_mut(|first| {
            first.get_or_insert(reason);
        });
        Self
    }
}

/// Why the file can't be used, where that was found while serde read it.
pub(super) fn take_refusal() -> Option<FormatError> {
    REFUSAL.take()
}

/// The fields of the file that are not known.
pub(super) fn take_unknown() -> BTreeSet<String> {
    UNKNOWN.take()
}

/// Counts a request of the file, and answers its place there.
pub(super) fn count_request() -> Result<usize, FormatError> {
    let (place, most) = REQUESTS.get();
    REQUESTS.set((place + 1, most));
    match place < most {
        true => Ok(place),
        false if most < REQUESTS_MAX => Err(FormatError::TooManyTogether),
        false => Err(FormatError::TooMany(most)),
    }
}

/// Declares an object. Every field is optional, and null is as good as absent; whoever needs one
/// says so. What is known and not used is a name, or `…` before or after a part of one: `…` alone
/// is any.
macro_rules! object {
    (
        $(#[doc = $doc:literal])+
        $name:ident { $($field:ident $(= $key:literal)?: $type:ty,)+ }
        unused [$($unused:literal),* $(,)?]
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Default)]
        struct $name {
            $($field: Option<$type>,)+
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        let mut object = $name::default();
                        while let Some(key) = map.next_key::<String>()? {
                            match key.as_str() {
                                $($crate::object::key!($field $($key)?) => {
                                    object.$field = map.next_value().map_err(|error| {
                                        serde::de::Error::custom(format_args!("{key}: {error}"))
                                    })?;
                                })+
                                other => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                    $crate::object::note(other, &[$($unused),*]);
                                }
                            }
                        }
                        Ok(object)
                    }
                }
                from.deserialize_map(Fields)
            }
        }
    };
}
pub(super) use object;

/// The name of a field in JSON, where it is another.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}
pub(super) use key;

/// Notes a field that is not used, unless it is known.
pub(super) fn note(name: &str, known: &[&str]) {
    let is_meant = |known: &&str| match (known.strip_prefix('…'), known.strip_suffix('…')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(begin)) => name.starts_with(begin),
        (None, None) => name == *known,
    };
    UNKNOWN.with_borrow_mut(|unknown| {
        if unknown.len() < UNKNOWN_MAX && !known.iter().any(is_meant) {
            unknown.insert(name.chars().take(NAME_CHARS_MAX).collect());
        }
    });
}

/// A list with an element for each request. One of too many is not read to its end. It is kept in
/// pieces, so that what it takes is given back piece by piece while requests are made of several lists.
#[derive(Clone, Debug, Default)]
pub(super) struct PerRequest<T, const MOST: usize = REQUESTS_MAX>(Vec<Vec<T>>);

const PIECE_LENGTH: usize = 1 << 15;

impl<T, const MOST: usize> PerRequest<T, MOST> {
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn push(&mut self, element: T) {
        match self.0.last_mut() {
            Some(piece) if piece.len() < PIECE_LENGTH => piece.push(element),
            _ => self.0.push(vec![element]),
        }
    }
}

impl<T, const MOST: usize> IntoIterator for PerRequest<T, MOST> {
    type Item = T;
    type IntoIter = Flatten<IntoIter<Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for PerRequest<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Elements<T, const MOST: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
            type Value = PerRequest<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut elements = PerRequest(Vec::new());
                let mut count = 0;
                while let Some(element) = list.next_element()? {
                    if count == MOST {
                        return Err(A::Error::custom(Refused::from(match MOST {
                            REQUESTS_MAX => FormatError::TooMany(MOST),
                            _ => FormatError::TooManyRuns(MOST),
                        })));
                    }
                    count += 1;
                    elements.push(element);
                }
                Ok(elements)
            }
        }
        from.deserialize_seq(Elements::<_, MOST>(PhantomData))
    }
}

/// Words about a failure, of which no more is kept than is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words(pub(super) String);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Words, E> {
                Ok(Words(kept(text)))
            }
        }
        from.deserialize_str(Text)
    }
}

/// The sum of a list of numbers, of which nothing else is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum(pub(super) f64);

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = Sum;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sum, A::Error> {
                let mut sum = 0.0;
                while let Some(number) = list.next_element::<f64>()? {
                    sum += number;
                }
                Ok(Sum(sum))
            }
        }
        from.deserialize_seq(Numbers)
    }
}

/// The first of a list of numbers, of which nothing else is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct First {
    pub(super) first: Option<f64>,
}

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = First;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<First, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First { first })
            }
        }
        from.deserialize_seq(Numbers)
    }
}

/// The names by which a file is distinguished from others: those of its first object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An object with these fields.
    Object(BTreeSet<String>),
    /// A list, the first of which is an object with these fields.
    List(BTreeSet<String>),
    Other,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
                let mut names = BTreeSet::new();
                while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    if names.len() < SHAPE_NAMES_MAX && name.len() <= NAME_CHARS_MAX {
                        names.insert(name);
                    }
                }
                Ok(Shape::Object(names))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let first = list.next_element::<Shape>()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(match first {
                    Some(Shape::Object(names)) => Shape::List(names),
                    _ => Shape::Other,
                })
            }

            fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_unit<E>(self) -> Result<Shape, E> {
                Ok(Shape::Other)
            }
        }
        from.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_of_a_file_together_have_a_bound_and_the_next_file_has_its_own() {
        begin_file(1);
        assert_eq!(count_request().unwrap(), 0);
        let refused = count_request().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "use it: the files of this import have more than 1000000 requests together (import one \
             file at a time)"
        );
        begin_file(1);
        assert_eq!(count_request().unwrap(), 0);
    }

    #[test]
    fn a_list_of_too_many_requests_is_not_read_to_its_end() {
        let most = format!("[0{}", ",0".repeat(REQUESTS_MAX - 1));
        let read = |text: String| serde_json::from_str::<PerRequest<u8>>(&text);
        assert_eq!(read(format!("{most}]")).unwrap().len(), REQUESTS_MAX);
        // What follows is no JSON, and nobody sees it.
        read(format!("{most},0,what follows")).unwrap_err();
        let refused = take_refusal();
        assert!(
            matches!(refused, Some(FormatError::TooMany(REQUESTS_MAX))),
            "{refused:?}"
        );
    }
}
