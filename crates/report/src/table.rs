//! Tables: a column is declared once, and what text, Markdown and CSV show follows from that.

use super::words;
use memtrace_model::{Bytes, DurationNs, Instant, Kind, Label};

/// A table, column by column.
#[derive(Debug, Default)]
pub struct Table {
    /// Its columns, all of one length.
    pub columns: Vec<Column>,
}

/// A column with its cells, one for each row.
#[derive(Debug)]
pub struct Column {
    /// Its name with its unit, for programs; empty where it is for people only.
    pub name: String,
    /// What stands above it; `None` where it is for programs only.
    pub title: Option<String>,
    /// How its cells stand.
    pub layout: Layout,
    /// Columns of a higher rank are left out first where space is short; 0 always stays.
    pub rank: u8,
    /// What it is filled with.
    pub cells: Vec<Cell>,
}

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// On the right.
    Figures,
    /// On the left.
    Words,
    /// On the left, shortened in the middle where space is short: one column of a table at most.
    Flexible,
}

/// A value of a table. A person and a program read it in different words.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Does not apply. People see no column of nothing else.
    Absent,
    /// Words, or that they are unknown.
    Text(Option<String>),
    /// An amount, or that it is unknown.
    Bytes(Option<Bytes>),
    /// An amount where zero would be noise.
    Held(Option<Bytes>),
    /// An amount that is more by what is not known.
    AtLeast(Option<Bytes>),
    /// By how much an amount changed.
    Change(Option<Bytes>),
    /// Bytes per hour.
    Rate(Option<f64>),
    /// A part of a whole.
    Share(Option<Bytes>, Option<Bytes>),
    /// A length of time.
    Took(Option<DurationNs>),
    /// A time since the start of the recording.
    At(Option<DurationNs>),
    /// Words for people, and what stands in their place for programs.
    Both {
        /// The words for people.
        shown: String,
        /// The value for programs.
        data: String,
    },
}

impl Cell {
    /// Words for people that mean nothing to a program.
    pub fn shown_only(shown: &str) -> Self {
        Self::Absent.shown_as(shown.to_owned())
    }

    /// The same value, reported to people in other words.
    pub fn shown_as(&self, shown: String) -> Self {
        let data = self.data();
        Self::Both { shown, data }
    }

    /// What there is to tell, if it is known.
    pub fn known(value: Option<impl ToString>) -> Self {
        Self::Text(value.map(|value| value.to_string()))
    }

    /// An instant; nothing where there is none.
    pub fn reached(at: Option<Instant>) -> Self {
        at.map_or_else(|| "".into(), Self::from)
    }

    /// An amount that may be a lower bound.
    pub fn bounded(bytes: Option<Bytes>, is_lower_bound: bool) -> Self {
        match is_lower_bound {
            true => Self::AtLeast(bytes),
            false => Self::Bytes(bytes),
        }
    }

    /// For people: amounts in units that read well, and a mark where something is unknown.
    pub fn shown(&self) -> String {
        let unknown = || words::UNKNOWN.to_owned();
        match self {
            Self::Absent => String::new(),
            Self::Text(text) => text.clone().unwrap_or_else(unknown),
            Self::Both { shown, .. } => shown.clone(),
            Self::Held(Some(Bytes(0))) => "-".to_owned(),
            Self::Bytes(bytes) | Self::Held(bytes) => words::bytes_or_unknown(*bytes),
            Self::AtLeast(bytes) => words::bytes_at_least(*bytes),
            Self::Change(bytes) => words::change(*bytes),
            Self::Rate(rate) => rate.map_or_else(unknown, words::slope),
            Self::Share(part, whole) => words::share(*part, *whole),
            Self::Took(length) => length.map_or_else(unknown, words::duration),
            Self::At(offset) => offset.map_or_else(unknown, words::after),
        }
    }

    /// For programs: bytes, seconds, parts of one; empty where something is unknown.
    pub fn data(&self) -> String {
        let figure = match self {
            Self::Absent => None,
            Self::Text(text) => text.clone(),
            Self::Both { data, .. } => Some(data.clone()),
            Self::Bytes(bytes) | Self::Held(bytes) | Self::AtLeast(bytes) | Self::Change(bytes) => {
                bytes.map(|bytes| bytes.to_string())
            }
            Self::Rate(rate) => rate.map(|rate| format!("{rate:.0}")),
            Self::Share(Some(part), Some(whole)) if whole.0 > 0 => {
                Some(format!("{:.6}", part.0 as f64 / whole.0 as f64))
            }
            Self::Share(..) => None,
            Self::Took(time) | Self::At(time) => {
                time.map(|time| format!("{:.6}", time.as_secs_f64()))
            }
        };
        figure.unwrap_or_default()
    }
}

/// What a column may be filled with.
macro_rules! cells {
    ($($from:ty => |$value:ident| $cell:expr,)+) => {
        $(impl From<$from> for Cell {
            fn from($value: $from) -> Self {
                $cell
            }
        })+
    };
}

cells! {
    String => |text| Self::Text(Some(text)),
    &str => |text| Self::Text(Some(text.to_owned())),
    Option<String> => |text| Self::Text(text),
    Bytes => |bytes| Self::Bytes(Some(bytes)),
    Option<Bytes> => |bytes| Self::Bytes(bytes),
    usize => |count| Self::Text(Some(count.to_string())),
    DurationNs => |length| Self::Took(Some(length)),
    Option<DurationNs> => |length| Self::Took(length),
    Instant => |at| Self::At(Some(at.offset_ns)),
    Option<Instant> => |at| Self::At(at.map(|at| at.offset_ns)),
    Option<Self> => |cell| cell.unwrap_or(Self::Absent),
}

/// The name of a column and what stands above it: the name without its unit, unless said.
#[derive(Debug)]
pub struct Heading(String, Option<String>);

impl From<&str> for Heading {
    fn from(name: &str) -> Self {
        let units = ["_bytes_per_hour", "_bytes", "_s"];
        let bare = units.iter().find_map(|unit| name.strip_suffix(unit));
        let title = bare.unwrap_or(name).replace('_', " ").to_uppercase();
        Self(name.to_owned(), Some(title))
    }
}

impl From<(&str, &str)> for Heading {
    fn from((name, title): (&str, &str)) -> Self {
        Self(name.to_owned(), Some(title.to_owned()))
    }
}

/// A table in the making: its rows, and the columns so far.
#[derive(Debug)]
pub struct TableOf<R> {
    rows: Vec<R>,
    table: Table,
}

impl<R> TableOf<R> {
    /// A table of so many rows, without a column yet.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Self {
        Self {
            rows: rows.into_iter().collect(),
            table: Table::default(),
        }
    }

    /// A column of figures.
    pub fn figures<C: Into<Cell>>(
        self,
        heading: impl Into<Heading>,
        rank: u8,
        get: impl Fn(&R) -> C,
    ) -> Self {
        self.column(heading.into(), Layout::Figures, rank, get)
    }

    /// A column of amounts in which zero would be noise.
    pub fn held<B: Into<Option<Bytes>>>(
        self,
        heading: impl Into<Heading>,
        rank: u8,
        get: impl Fn(&R) -> B,
    ) -> Self {
        self.figures(heading, rank, |row| Cell::Held(get(row).into()))
    }

    /// A column of changes.
    pub fn change<B: Into<Option<Bytes>>>(
        self,
        heading: impl Into<Heading>,
        rank: u8,
        get: impl Fn(&R) -> B,
    ) -> Self {
        self.figures(heading, rank, |row| Cell::Change(get(row).into()))
    }

    /// The kinds of resident memory, a column each; what stands before each name and each title.
    pub fn kinds<C: Into<Cell>>(
        self,
        (name, title): (&str, &str),
        rank: u8,
        get: impl Fn(&R, Kind) -> C,
    ) -> Self {
        let kinds = [(Kind::Anon, 0), (Kind::File, 2), (Kind::Shmem, 1)];
        kinds.into_iter().fold(self, |table, (kind, later)| {
            let (name, title) = (
                format!("{name}{}", kind.key()),
                format!("{title}{}", kind.shown()),
            );
            table.figures((&*name, &*title), rank + later, |row| get(row, kind))
        })
    }

    /// Shows the last column to people only if it says anything.
    pub fn only_if(mut self, says_anything: bool) -> Self {
        if let Some(last) = self.table.columns.last_mut().filter(|_| !says_anything) {
            last.title = None;
        }
        self
    }

    /// A column of words.
    pub fn words<C: Into<Cell>>(
        self,
        heading: impl Into<Heading>,
        rank: u8,
        get: impl Fn(&R) -> C,
    ) -> Self {
        self.column(heading.into(), Layout::Words, rank, get)
    }

    /// The column that gives way when space is short.
    pub fn flexible<C: Into<Cell>>(
        self,
        heading: impl Into<Heading>,
        get: impl Fn(&R) -> C,
    ) -> Self {
        self.column(heading.into(), Layout::Flexible, 0, get)
    }

    /// Two columns that say who it is: the process id, and a name.
    pub fn who(self, get: impl Fn(&R) -> [Cell; 2]) -> Self {
        self.figures("pid", 0, |row| get(row)[0].clone())
            .flexible("process", |row| get(row)[1].clone())
    }

    fn column<C: Into<Cell>>(
        mut self,
        Heading(name, title): Heading,
        layout: Layout,
        rank: u8,
        get: impl Fn(&R) -> C,
    ) -> Self {
        let cells = self.rows.iter().map(|row| get(row).into()).collect();
        self.table.columns.push(Column {
            name,
            title,
            layout,
            rank,
            cells,
        });
        self
    }

    /// A column for programs only.
    pub fn data<C: Into<Cell>>(self, name: &str, get: impl Fn(&R) -> C) -> Self {
        self.column(Heading(name.to_owned(), None), Layout::Words, 0, get)
    }

    /// A column for programs only, of what can be unknown.
    pub fn known<V: ToString>(self, name: &str, get: impl Fn(&R) -> Option<V>) -> Self {
        self.data(name, |row| Cell::known(get(row)))
    }

    /// The table, finished.
    pub fn done(self) -> Table {
        self.table
    }
}

impl Table {
    /// How many rows it has.
    pub fn row_count(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// The columns for people: their titles, and those of which some cell applies.
    pub fn shown(&self) -> impl Iterator<Item = (&str, &Column)> {
        let titled = self.columns.iter();
        let titled = titled.filter_map(|column| Some((column.title.as_deref()?, column)));
        let applies = |cell: &Cell| !matches!(cell, Cell::Absent);
        titled.filter(move |(_, column)| column.cells.iter().any(applies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_name_without_its_unit_unless_another_is_given() {
        let table = TableOf::of([1])
            .figures("own_peak_bytes", 0, |_| Bytes(1))
            .figures("at_s", 0, |_| Cell::At(None))
            .figures(("growth_bytes_per_hour", "GROWS BY"), 0, |_| Bytes(1))
            .data("upid", |_| "1")
            .kinds(("own_", "OWN "), 3, |_, _| Bytes(1))
            .done();
        let titles: Vec<&str> = table.shown().map(|(title, _)| title).collect();
        let own = ["OWN ANON", "OWN FILE", "OWN SHMEM"];
        assert_eq!(titles[..3], ["OWN PEAK", "AT", "GROWS BY"]);
        assert_eq!(titles[3..], own);
        let ranks: Vec<u8> = table.columns.iter().map(|column| column.rank).collect();
        assert_eq!(ranks[4..], [3, 5, 4]);
    }

    #[test]
    fn a_column_that_applies_to_no_row_is_for_programs_only() {
        let table = TableOf::of([1, 2])
            .figures("a_bytes", 0, |_| None::<Cell>)
            .figures("b_bytes", 0, |row| (*row == 1).then_some(Cell::Held(None)))
            .held("c_bytes", 0, |_| Bytes(1))
            .only_if(false)
            .done();
        let titles: Vec<&str> = table.shown().map(|(title, _)| title).collect();
        assert_eq!(titles, ["B"]);
        assert_eq!(table.columns.len(), 3);
    }

    #[test]
    fn people_read_words_and_programs_the_figure() {
        let mebibyte = Some(Bytes(1 << 20));
        let cases = [
            (Cell::Bytes(mebibyte), "1.0 MiB", "1048576"),
            (Cell::Bytes(None), "?", ""),
            (Cell::Held(Some(Bytes(0))), "-", "0"),
            (Cell::AtLeast(mebibyte), "≥ 1.0 MiB", "1048576"),
            (
                Cell::Share(Some(Bytes(1)), Some(Bytes(4))),
                "25%",
                "0.250000",
            ),
            (
                Cell::Took(Some(DurationNs(1_500_000_000))),
                "1.5s",
                "1.500000",
            ),
            (
                Cell::At(Some(DurationNs(1_500_000_000))),
                "+1.5s",
                "1.500000",
            ),
            (Cell::shown_only("-"), "-", ""),
            (Cell::known(None::<i32>), "?", ""),
        ];
        for (cell, shown, data) in cases {
            assert_eq!((&*cell.shown(), &*cell.data()), (shown, data), "{cell:?}");
        }
    }
}
