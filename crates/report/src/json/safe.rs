//! JSON in which what a terminal would act on is escaped. JSON itself asks that only of
//! the C0 controls, and a report is as likely to be looked at as to be parsed.

use crate::visible::is_hidden;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter};
use std::io::{self, Write};

/// JSON with those escapes, on lines of their own or on one: it is asked which, since each formatter of
/// its own is code of its own for every type that is written.
#[derive(Debug)]
pub(super) struct Safe {
    pretty: Option<PrettyFormatter<'static>>,
}

impl Safe {
    /// Each value on a line.
    pub(super) fn pretty() -> Self {
        Self {
            pretty: Some(PrettyFormatter::new()),
        }
    }

    /// All on one line.
    pub(super) fn compact() -> Self {
        Self { pretty: None }
    }
}

macro_rules! as_it_does {
    ($($method:ident($($argument:ident: $type:ty),*);)+) => {
        $(fn $method<W: ?Sized + Write>(
            &mut self,
            writer: &mut W,
            $($argument: $type),*
        ) -> io::Result<()> {
            match &mut self.pretty {
                Some(pretty) => pretty.$method(writer, $($argument),*),
                None => CompactFormatter.$method(writer, $($argument),*),
            }
        })+
    };
}

impl Formatter for Safe {
    as_it_does! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
        write_char_escape(escape: CharEscape);
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(place) = rest.find(is_hidden) {
            let (shown, tail) = rest.split_at(place);
            writer.write_all(shown.as_bytes())?;
            let mut chars = tail.chars();
            let mut units = [0; 2];
            for unit in chars
                .next()
                .into_iter()
                .flat_map(|c| c.encode_utf16(&mut units).to_vec())
            {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[test]
    fn what_a_terminal_would_act_on_is_escaped_and_reads_back_the_same() {
        let text = "c1\u{9b}31m rtl\u{202e} esc\x1b[0m tag\u{e0041} 训练 \"quoted\"";
        let mut out = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut out, Safe::pretty());
        text.serialize(&mut serializer).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert!(!written.contains(is_hidden), "{written}");
        assert!(written.contains("训练"));
        let back: String = serde_json::from_str(&written).unwrap();
        assert_eq!(back, text);
    }
}
