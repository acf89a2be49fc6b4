//! The report as a page with pictures: one file for a browser, that works offline and asks nothing
//! of anybody. What the text report says stands in it too, for a reader without scripts and for
//! printing.

use super::chapter::{Block, Chapter, Tone};
use super::table::{Column, Layout, Table};
use super::visible::visible;
use super::{Style, Written};
use memtrace_page::escaped;
use std::io::{self, Write};

/// Writes one HTML file.
pub(super) fn write(
    report: &mut dyn Written,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let reported = report.chapters(style);
    let title = reported.first().map_or("memtrace", |first| &first.title);
    memtrace_page::write(
        out,
        &visible(title),
        |out| {
            reported
                .iter()
                .try_for_each(|chapter| write_chapter(chapter, out))
        },
        |out| report.page(style, &reported, out),
    )
}

fn write_chapter(chapter: &Chapter, out: &mut dyn Write) -> io::Result<()> {
    let (class, title) = (class(chapter.tone), text(&chapter.title));
    writeln!(out, "<h2 class=\"{class}\">{title}</h2>")?;
    for block in &chapter.blocks {
        match block {
            Block::Line(tone, line) => {
                writeln!(
                    out,
                    "<p class=\"{}\">{}</p>",
                    self::class(*tone),
                    text(line)
                )?;
            }
            Block::Drawing(drawing) | Block::Command(drawing) => {
                writeln!(out, "<pre>{}</pre>", text(drawing))?;
            }
            Block::Table(table) => write_table(table, out)?,
        }
    }
    Ok(())
}

fn write_table(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let columns: Vec<(&str, &Column)> = table.shown().collect();
    write!(out, "<table>\n<thead><tr>")?;
    for (title, column) in &columns {
        write!(out, "<th{}>{}</th>", layout(column), text(title))?;
    }
    write!(out, "</tr></thead>\n<tbody>\n")?;
    for row in 0..table.row_count() {
        write!(out, "<tr>")?;
        for (_, column) in &columns {
            let cell = text(&column.cells[row].shown());
            write!(out, "<td{}>{cell}</td>", layout(column))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody>\n</table>")
}

fn layout(column: &Column) -> &'static str {
    match column.layout {
        Layout::Figures => " class=\"figures\"",
        Layout::Words | Layout::Flexible => "",
    }
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Strong => "strong",
        Tone::Alert => "alert",
        Tone::Quiet => "quiet",
    }
}

/// Text as it is, whatever a browser would make of it.
fn text(text: &str) -> String {
    escaped(&visible(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableOf;

    #[test]
    fn nothing_in_a_name_is_markup() {
        let mut chapter = Chapter::alarming("<b>\u{202e}title</b>");
        chapter.say("a & b\n</div><script>alert(1)</script>");
        let table = TableOf::of(["<img src=x onerror=alert(1)>"]);
        let table = table.words("name", 0, |name| *name);
        chapter.table(
            table
                .figures("a_bytes", 0, |_| memtrace_model::Bytes(1))
                .done(),
        );
        let mut out = Vec::new();
        write_chapter(&chapter, &mut out).expect("a Vec can be written to");
        let written = String::from_utf8(out).expect("UTF-8");
        assert_eq!(
            written,
            "<h2 class=\"alert\">&lt;b&gt;\\u{202e}title&lt;/b&gt;</h2>\n\
             <p class=\"plain\">a &amp; b\\n&lt;/div&gt;&lt;script&gt;alert(1)&lt;/script&gt;</p>\n\
             <table>\n<thead><tr><th>NAME</th><th class=\"figures\">A</th></tr></thead>\n<tbody>\n\
             <tr><td>&lt;img src=x onerror=alert(1)&gt;</td><td class=\"figures\">1 B</td></tr>\n\
             </tbody>\n</table>\n"
        );
    }
}
