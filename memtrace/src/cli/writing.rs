//! How a report is written and where it goes: the options that `report` and `diff` have in common.

use super::browser;
use super::output::{has_color, width};
use super::part::Part;
use super::values::parse_count;
use anyhow::{Context, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use memtrace_report::{FORMATS, Format, Style, Written};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

/// How and where to write.
#[derive(Debug, clap::Args)]
pub(super) struct Writing {
    /// How to write
    #[arg(short, long, value_name = "FORMAT", value_parser = format_names(), default_value = FORMATS[0].name)]
    format: String,
    /// Write to a file instead of the terminal
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write html and open it in a browser: the one that BROWSER names, or the desktop's. Without
    /// -o it goes to a temporary file
    #[arg(long, conflicts_with = "format")]
    open: bool,
    /// How many processes, phases or roles to list [default: 10; html: 500; json and csv: all]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    top: Option<usize>,
}

impl Writing {
    pub(super) fn format(&self) -> anyhow::Result<&'static Format> {
        let mut formats = FORMATS.iter();
        let found = match self.open {
            true => formats.find(|format| format.is_page),
            false => formats.find(|format| format.name == self.format),
        };
        let found = found.with_context(|| format!("there is no format {}", self.format))?;
        if found.is_page && self.output.is_none() && !self.open && io::stdout().is_terminal() {
            bail!(
                "{} is for a browser, not for a terminal: add -o report.html, or --open to see it",
                found.name
            );
        }
        Ok(found)
    }

    pub(super) fn style(&self) -> Style {
        Style {
            width: width(),
            has_color: self.output.is_none() && has_color(),
            top: self.top,
            ..Style::default()
        }
    }

    /// Hands the place to write to to `write`.
    pub(super) fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let buffered = |out: &mut dyn Write| {
            let mut out = BufWriter::new(out);
            write(&mut out)?;
            out.flush()
        };
        let Some(path) = &self.output else {
            if self.open {
                let mut page = browser::private_file()?;
                buffered(page.as_file_mut()).context("failed to write the page")?;
                let (_, path) = page.keep().context("failed to keep the page")?;
                browser::open(&path);
                return Ok(());
            }
            return match buffered(&mut io::stdout().lock()) {
                // `memtrace report | head` has what it wants.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written.context("failed to write the report"),
            };
        };
        let doing = || format!("failed to write {}", path.display());
        match Part::in_place_of(path) {
            Some(mut part) => {
                buffered(&mut part.file).with_context(doing)?;
                part.finish()?;
            }
            None => {
                let mut file = File::create(path).with_context(doing)?;
                buffered(&mut file).with_context(doing)?;
            }
        }
        if self.open {
            browser::open(path);
        }
        Ok(())
    }
}

/// Writes what has no page to stdout, in the format of that name.
pub(super) fn write_data(written: &mut dyn Written, format: &str) -> anyhow::Result<()> {
    let style = Style {
        width: width(),
        has_color: has_color(),
        ..Style::default()
    };
    let format = data_formats().find(|one| one.name == format);
    let format = format.context("no such format")?;
    let mut out = BufWriter::new(io::stdout().lock());
    let written = format.write(written, &style, &mut out);
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to write to stdout"),
    }
}

/// The names of these formats; `csv` says what a line is of.
pub(super) fn data_format_names(csv: &'static str) -> impl TypedValueParser<Value = String> {
    let names = data_formats().map(|format| {
        let doc = match format.name {
            "csv" => csv,
            _ => format.doc,
        };
        PossibleValue::new(format.name).help(doc)
    });
    PossibleValuesParser::new(names)
}

fn data_formats() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().filter(|format| !format.is_page)
}

fn format_names() -> impl TypedValueParser<Value = String> {
    let formats = FORMATS.iter();
    PossibleValuesParser::new(
        formats.map(|format| PossibleValue::new(format.name).help(format.doc)),
    )
}
