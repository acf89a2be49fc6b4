//! Makes text from a recording safe to show.
//!
//! Names come from the traced programs, which can set them to anything: escape codes that
//! clear the screen, newlines that fake a line of the report, marks that reverse its text.

use std::borrow::Cow;
use std::fmt::Write;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The text with everything that a terminal would act on, or that would not show, written out:
/// `\n`, `\x1b`, `\u{202e}`. A backslash stays as it is, so doing it twice changes nothing.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if is_hidden(c) && c.is_ascii() => {
                // Writing into a String can't fail.
                let _ = write!(shown, "\\x{:02x}", u32::from(c));
            }
            c if is_hidden(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// C0, DEL and C1 controls, line and paragraph separators, marks of direction, characters
/// without width (which can make two names look the same), and tags.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}'
            | '\u{17b5}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// The text in at most `width` columns. The middle is left out: a command line says most at
/// its start (the program) and at its end (the last arguments).
pub fn shorten(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    let Some(room) = width.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let tail_room = room / 3;
    let head = take_columns(text.chars(), room - tail_room);
    let tail: String = take_columns(text.chars().rev(), tail_room)
        .chars()
        .rev()
        .collect();
    Cow::Owned(format!("{head}…{tail}"))
}

fn take_columns(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut taken = String::new();
    let mut used = 0;
    for c in chars {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        taken.push(c);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        let cases = [
            ("plain ünïcödé 训练", "plain ünïcödé 训练"),
            ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
            ("\u{9b}31m\u{85}\x7f", "\\u{9b}31m\\u{85}\\x7f"),
            ("\u{202e}rtl\u{2066}", "\\u{202e}rtl\\u{2066}"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("back\\slash", "back\\slash"),
        ];
        for (text, shown) in cases {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn the_middle_is_left_out_and_wide_characters_count_twice() {
        assert_eq!(shorten("abcdefghijklmnop", 10), "abcdef…nop");
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("训练进程训练进程", 8), "训练…程");
        assert_eq!(shorten("abc", 1), "…");
        assert_eq!(shorten("abc", 0), "");
    }

    proptest! {
        #[test]
        fn nothing_hidden_passes_and_twice_is_once(text in any::<String>()) {
            let shown = visible(&text).into_owned();
            prop_assert!(!shown.contains(is_hidden));
            prop_assert_eq!(visible(&shown).into_owned(), shown.clone());
        }

        #[test]
        fn a_shortened_text_fits(text in "\\PC*", width in 0..40_usize) {
            prop_assert!(columns(&shorten(&text, width)) <= width);
        }
    }
}
