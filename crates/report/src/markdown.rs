//! The report as Markdown, for an issue or a chat.

use super::chapter::{Block, Tone};
use super::table::{Column, Layout, Table};
use super::visible::visible;
use super::{Style, Written};
use std::io::{self, Write};

/// Writes GitHub-flavoured Markdown.
pub(super) fn write(
    report: &mut dyn Written,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (place, section) in report.chapters(style).iter().enumerate() {
        let level = if place == 0 { "#" } else { "##" };
        let gap = if place == 0 { "" } else { "\n" };
        writeln!(out, "{gap}{level} {}", escape(&section.title))?;
        for block in &section.blocks {
            writeln!(out)?;
            write_block(block, out)?;
        }
    }
    Ok(())
}

fn write_block(block: &Block, out: &mut dyn Write) -> io::Result<()> {
    match block {
        Block::Line(Tone::Alert, text) => writeln!(out, "**{}**", with_commands(text)),
        Block::Line(_, text) => writeln!(out, "{}", with_commands(text)),
        Block::Drawing(text) => writeln!(out, "`{}`", visible(text)),
        // As code by its indent: there is no fence that a name could end.
        Block::Command(text) => writeln!(out, "    {}", visible(text)),
        Block::Table(table) => write_table(table, out),
    }
}

fn write_table(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let columns: Vec<(&str, &Column)> = table.shown().collect();
    write_row(columns.iter().map(|(title, _)| (*title).to_owned()), out)?;
    let rules = columns.iter().map(|(_, column)| match column.layout {
        Layout::Figures => "---:",
        Layout::Words | Layout::Flexible => "---",
    });
    writeln!(out, "| {} |", rules.collect::<Vec<_>>().join(" | "))?;
    for row in 0..table.row_count() {
        let cells = columns.iter().map(|(_, column)| &column.cells[row]);
        write_row(cells.map(|cell| escape(&cell.shown())), out)?;
    }
    Ok(())
}

fn write_row(cells: impl Iterator<Item = String>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "))
}

/// How what stands between backticks begins where it is for a person to type.
const COMMANDS: [&str; 2] = ["memtrace ", "--"];

/// A line in which commands stay code. What a name brings along is code at worst, in which
/// Markdown makes nothing of anything.
fn with_commands(text: &str) -> String {
    let mut parts = text.split('`');
    let mut line = escape(parts.next().unwrap_or_default());
    while let Some(part) = parts.next() {
        let is_command = COMMANDS.iter().any(|begin| part.starts_with(begin));
        if is_command && let Some(rest) = parts.next() {
            line.push_str(&format!("`{}`{}", visible(part), escape_within(rest)));
        } else {
            line.push_str("\\`");
            line.push_str(&escape_within(part));
        }
    }
    line
}

/// Text as it is, whatever Markdown would make of it. Leading spaces (the tree) are kept.
fn escape(text: &str) -> String {
    let text = visible(text);
    let body = text.trim_start_matches(' ');
    "&nbsp;".repeat(text.len() - body.len()) + &escape_within(body)
}

/// The same for a part of a line.
fn escape_within(text: &str) -> String {
    let mut escaped = String::new();
    for c in visible(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '$' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markdown() {
        let cases = [
            ("a|b", "a\\|b"),
            ("`x` *y* <b>", "\\`x\\` \\*y\\* &lt;b&gt;"),
            ("[l](u)\n# h", "\\[l\\](u)\\\\n\\# h"),
            ("  └ x", "&nbsp;&nbsp;└ x"),
        ];
        for (text, escaped) in cases {
            assert_eq!(escape(text), escaped);
        }
    }

    #[test]
    fn a_command_is_code_and_a_name_with_backticks_is_not() {
        let cases = [
            (
                "See `memtrace report --at +6.2s`, <b>.",
                "See `memtrace report --at +6.2s`, &lt;b&gt;.",
            ),
            ("`a_b` or `--end`", "\\`a\\_b\\` or `--end`"),
            ("torn `--end", "torn \\`--end"),
        ];
        for (text, written) in cases {
            assert_eq!(with_commands(text), written);
        }
    }
}
