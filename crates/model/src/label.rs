//! Closed sets of words that stand in table cells and in the JSON of a report: sources,
//! severities, kinds. A person may read other words for them.

/// One word out of a closed set, as it is written into a recording.
///
/// A reader of a newer recording may meet a word it does not know; `from_word` then
/// answers `None` and the cell reads as unknown.
pub trait Label: Copy + Sized + 'static {
    /// Every word of the set with its meaning, in the order of declaration.
    const WORDS: &'static [(&'static str, &'static str)];
    /// Every label, in the same order.
    const ALL: &'static [Self];
    /// The word as stored.
    fn as_str(self) -> &'static str;
    /// The words for it that a person reads.
    fn shown(self) -> &'static str;
    /// The label for a stored word.
    fn from_word(word: &str) -> Option<Self>;
}

/// Declares an enum whose variants are written as words; each word has a doc line, which
/// `memtrace schema` prints. Where a person reads other words, they stand after a bar.
#[macro_export]
macro_rules! labels {
    ($(#[doc = $doc:literal])* pub enum $name:ident {
        $($(#[doc = $variant_doc:literal])+ $variant:ident = $word:literal $(| $shown:literal)?,)+
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $variant_doc])+ $variant,)+ }

        impl $crate::Label for $name {
            const WORDS: &'static [(&'static str, &'static str)] =
                &[$(($word, concat!($($variant_doc),+))),+];
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
            fn shown(self) -> &'static str {
                match self {
                    $(Self::$variant => $crate::shown!($word $($shown)?),)+
                }
            }
            fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str($crate::Label::as_str(*self))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let words = <Self as $crate::Label>::WORDS.iter();
                let words = words.map(|(word, doc)| {
                    serde_json::json!({"const": word, "description": doc.trim()})
                });
                schemars::json_schema!({
                    "description": concat!($($doc),*).trim(),
                    "oneOf": words.collect::<Vec<_>>(),
                })
            }
        }
    };
}
#[doc(hidden)]
#[macro_export]
macro_rules! shown {
    ($word:literal) => {
        $word
    };
    ($word:literal $shown:literal) => {
        $shown
    };
}
