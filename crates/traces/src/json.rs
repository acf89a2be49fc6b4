//! Values of a JSON text as they come, without keeping what nobody asks for: the one visitor.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Takes a value, whatever its form. What it has no use for is read over.
pub(super) trait Take {
    fn number(&mut self, _number: f64) {}

    /// A number without a part of one, which can have more digits than the other holds.
    fn whole(&mut self, number: i64) {
        self.number(number as f64);
    }

    fn text(&mut self, _text: &str) {}

    fn list<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Reads the next key of an object over the last one; false at its end.
pub(super) fn next_key<'de, A: MapAccess<'de>>(
    object: &mut A,
    key: &mut Text,
) -> Result<bool, A::Error> {
    key.0.clear();
    Ok(object.next_key_seed(To(key))?.is_some())
}

/// Hands a value on.
pub(super) struct To<'a, T>(pub(super) &'a mut T);

impl<'de, T: Take> DeserializeSeed<'de> for To<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: Take> Visitor<'de> for To<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.0.whole(number);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.0.whole(number),
            Err(_) => self.0.number(number as f64),
        }
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.0.number(number);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        self.0.list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        self.0.object(object)
    }
}

/// The number that a value is.
impl Take for Option<f64> {
    fn number(&mut self, number: f64) {
        *self = Some(number);
    }
}

/// The whole number that a value is.
impl Take for Option<i64> {
    fn whole(&mut self, number: i64) {
        *self = Some(number);
    }
}

/// The text that a value is, in room that is used again.
#[derive(Debug, Default)]
pub(super) struct Text(pub(super) String);

/// Longer texts are cut: kernels of templates have names of thousands of characters.
const TEXT_MAX: usize = 512;

impl Take for Text {
    fn text(&mut self, text: &str) {
        self.0.clear();
        let ends = (0..=TEXT_MAX.min(text.len())).rev();
        let end = ends.into_iter().find(|&end| text.is_char_boundary(end));
        self.0.push_str(&text[..end.unwrap_or(0)]);
    }
}
