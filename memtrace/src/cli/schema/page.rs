//! The page on the JSON of reports: a chapter for each section, a table for each type, all read
//! from the schema of the findings and the list of sections.

use super::report_schema;
use memtrace_analyze::{Report, SECTIONS};
use memtrace_model::Order;
use memtrace_report::Section;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What the page begins with.
const PREFACE: &str = include_str!("preface.md");
const KEYS: &str = "\n| key | type | meaning |\n|---|---|---|\n";
/// What the report is in the schema.
const REPORT: &str = "Report";
/// The other objects in it, and what their chapters are called.
const OTHERS: [(&str, &str); 4] = [
    ("Diff", "The object of memtrace diff"),
    ("Run", "The object of memtrace report ROOT"),
    ("RunDiff", "The object of memtrace diff of two runs"),
    ("HostPart", "The line of memtrace report --reduce"),
];

/// The page, in Markdown.
pub(super) fn markdown() -> String {
    // A test holds it against the findings.
    let schema: Value = serde_json::from_str(&report_schema()).unwrap_or_default();
    let page = Page(&schema["$defs"]);
    let mut out = format!("{PREFACE}\n## The object\n");
    page.object(&mut out);
    let chapters = page.chapters();
    let mut places = BTreeMap::new();
    for name in chapters.iter().flat_map(|chapter| &chapter.types) {
        *places.entry(*name).or_insert(0) += 1;
    }
    let mut shared = Vec::new();
    for chapter in &chapters {
        // Writing to a String can't fail.
        let _ = write!(out, "\n## {}\n\n{}\n{KEYS}", chapter.title, chapter.doc);
        page.rows(&mut out, &chapter.rows);
        for name in &chapter.types {
            match places[name] {
                1 => page.describe(&mut out, name),
                _ if shared.contains(name) => {}
                _ => shared.push(*name),
            }
        }
    }
    out.push_str(
        "\n## Shared types\n\nTypes that are used in several places, the most common \
         first.\n",
    );
    shared.order_by_key(|name| Reverse(places[name]));
    for name in shared {
        page.describe(&mut out, name);
    }
    out
}

/// A row of a table of keys.
enum Row<'a> {
    /// A key, and the schema of its value.
    Key(&'a str, &'a Value),
    /// All keys of a type that has a table of its own.
    KeysOf(&'a str),
}

/// A part of the page, about a few keys.
struct Chapter<'a> {
    title: String,
    doc: String,
    rows: Vec<Row<'a>>,
    /// The types that it leads to, each before those that stand in it.
    types: Vec<&'a str>,
}

/// The types of the schema.
#[derive(Clone, Copy)]
struct Page<'a>(&'a Value);

impl<'a> Page<'a> {
    /// One chapter for each section, and one for each of the other objects.
    fn chapters(self) -> Vec<Chapter<'a>> {
        let report = &self.0[REPORT];
        let sections = SECTIONS.iter().map(|section| {
            let rows = keys(report).filter(|(key, _)| section.keys.contains(key));
            let reported = rows.clone().filter(|(key, _)| is_reported_in(key, section));
            let mut types = Vec::new();
            reported.for_each(|(_, value)| self.follow(value, &mut types));
            Chapter {
                title: format!("Section {}", section.name),
                doc: sentence(section.doc),
                rows: rows.map(|(key, value)| Row::Key(key, value)).collect(),
                types,
            }
        });
        let others = OTHERS.iter().map(|(name, title)| {
            let object = &self.0[*name];
            let mut types = Vec::new();
            keys(object).for_each(|(_, value)| self.follow(value, &mut types));
            Chapter {
                title: (*title).to_owned(),
                doc: meaning(object),
                rows: self.folded(object),
                types,
            }
        });
        sections.chain(others).collect()
    }

    /// The keys that are no section's, and the sections.
    fn object(self, out: &mut String) {
        let keys = keys(&self.0[REPORT]);
        let head = keys.filter(|(key, _)| SECTIONS.iter().all(|one| !one.keys.contains(key)));
        let head: Vec<Row<'_>> = head.map(|(key, value)| Row::Key(key, value)).collect();
        out.push_str(KEYS);
        self.rows(out, &head);
        out.push_str("\n| section | what it shows | its keys |\n|---|---|---|\n");
        for section in SECTIONS {
            let name = section.name;
            let keys: Vec<String> = section.keys.iter().map(|key| format!("`{key}`")).collect();
            let _ = writeln!(
                out,
                "| [{name}](#section-{name}) | {} | {} |",
                section.doc,
                keys.join(", ")
            );
        }
    }

    fn rows(self, out: &mut String, rows: &[Row<'_>]) {
        for row in rows {
            let _ = match row {
                Row::Key(key, value) => {
                    writeln!(out, "| `{key}` | {} | {} |", type_of(value), meaning(value))
                }
                Row::KeysOf(name) => {
                    let of = &self.0[name];
                    let keys: Vec<String> = keys(of).map(|(key, _)| format!("`{key}`")).collect();
                    let link = link(name);
                    writeln!(
                        out,
                        "| {} | keys of {link} | {} |",
                        keys.join(", "),
                        meaning(of)
                    )
                }
            };
        }
    }

    /// A type: its keys, its words, or what it can be.
    fn describe(self, out: &mut String, name: &str) {
        let schema = &self.0[name];
        let _ = writeln!(out, "\n### {name}\n\n{}", meaning(schema));
        let Some(several) = several(schema) else {
            out.push_str(KEYS);
            return self.rows(out, &self.folded(schema));
        };
        if several.iter().all(|one| one["const"].is_string()) {
            out.push_str("\n| word | meaning |\n|---|---|\n");
        } else {
            out.push_str("\n| one of | meaning |\n|---|---|\n");
        }
        for one in several {
            let _ = writeln!(out, "| {} | {} |", type_of(one), meaning(one));
        }
    }

    /// The keys of an object, those together that are all keys of another type.
    fn folded(self, schema: &'a Value) -> Vec<Row<'a>> {
        let own: Vec<(&str, &Value)> = keys(schema).collect();
        let mut types: Vec<(&str, &Map<String, Value>)> = self
            .0
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, of)| Some((name.as_str(), of["properties"].as_object()?)))
            .filter(|(_, keys)| (3..own.len()).contains(&keys.len()))
            .filter(|(_, keys)| {
                keys.iter()
                    .all(|(key, of)| own.contains(&(key.as_str(), of)))
            })
            .collect();
        types.order_by_key(|(_, keys)| Reverse(keys.len()));
        let mut rows = Vec::new();
        let mut reported = BTreeSet::new();
        for (key, value) in &own {
            if reported.contains(key) {
                continue;
            }
            let whole = types.iter().find(|(_, keys)| {
                keys.contains_key(*key) && keys.keys().all(|key| !reported.contains(key.as_str()))
            });
            match whole {
                Some((name, keys)) => {
                    reported.extend(keys.keys().map(String::as_str));
                    rows.push(Row::KeysOf(name));
                }
                None => rows.push(Row::Key(key, value)),
            }
        }
        rows
    }

    /// Adds the types that a value leads to, each before those that stand in it.
    fn follow(self, value: &'a Value, types: &mut Vec<&'a str>) {
        if let Some(name) = reference(value) {
            self.follow_type(name, types);
        }
        let within = several(value)
            .into_iter()
            .flatten()
            .chain(value.get("items"));
        within.for_each(|one| self.follow(one, types));
        keys(value).for_each(|(_, value)| self.follow(value, types));
    }

    fn follow_type(self, name: &'a str, types: &mut Vec<&'a str>) {
        if types.contains(&name) {
            return;
        }
        types.push(name);
        let schema = &self.0[name];
        if several(schema).is_some() {
            return self.follow(schema, types);
        }
        for row in self.folded(schema) {
            match row {
                Row::Key(_, value) => self.follow(value, types),
                Row::KeysOf(name) => self.follow_type(name, types),
            }
        }
    }
}

/// Whether the chapter of that section tells what stands under a key: of several the one that is
/// called like it, else the first.
fn is_reported_in(key: &str, section: &Section<Report>) -> bool {
    let mut sections = SECTIONS.iter().filter(|one| one.keys.contains(&key));
    let first = sections.clone().next();
    let named = sections.find(|one| one.name == key);
    named.or(first).is_some_and(|one| one.name == section.name)
}

/// The keys of an object, in the order in which the code declares them.
fn keys(schema: &Value) -> impl Iterator<Item = (&str, &Value)> + Clone {
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let all = schema["properties"].as_object().into_iter().flatten();
    let mut all: Vec<(&str, &Value)> = all.map(|(key, of)| (key.as_str(), of)).collect();
    all.order_by_key(|(key, _)| {
        required
            .iter()
            .position(|one| one == key)
            .unwrap_or(usize::MAX)
    });
    all.into_iter()
}

/// What a value can be, where that is one of several.
fn several(schema: &Value) -> Option<&Vec<Value>> {
    ["anyOf", "oneOf"]
        .iter()
        .find_map(|key| schema[key].as_array())
}

/// The type that a value is of.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

/// With a capital, and a full stop.
fn sentence(line: &str) -> String {
    let mut letters = line.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters.clone()).chain(['.']).collect()
}

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

/// The type of a value, in words.
fn type_of(schema: &Value) -> String {
    if let Some(name) = reference(schema) {
        return link(name);
    }
    let any = |all: Vec<String>| all.join(" or ");
    if let Some(several) = several(schema) {
        return any(several.iter().map(type_of).collect());
    }
    let of_type = |name: &str| match name {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["properties"].is_object() => {
            let keys = keys(schema).map(|(key, of)| format!("`{key}`: {}", type_of(of)));
            format!("object of {}", keys.collect::<Vec<_>>().join(", "))
        }
        name => name.to_owned(),
    };
    match (&schema["const"], &schema["type"]) {
        (Value::String(word), _) => format!("`{word}`"),
        (Value::Number(number), _) => number.to_string(),
        (_, Value::Array(names)) => any(names
            .iter()
            .filter_map(Value::as_str)
            .map(of_type)
            .collect()),
        (_, name) => of_type(name.as_str().unwrap_or("any")),
    }
}

/// What a schema says of a value, with the pages that it names as links.
fn meaning(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let mut text = text.replace('|', "\\|");
    for page in ["concepts", "marks", "report", "roles", "tables"] {
        text = text.replace(
            &format!("docs/{page}.md"),
            &format!("[{page}.md]({page}.md)"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_analyze::json_schema;

    #[test]
    fn the_page_in_docs_is_what_the_command_prints() {
        let page = include_str!("../../../../docs/report-json.md");
        assert!(
            page == markdown(),
            "docs/report-json.md is out of date; run: cargo xtask schema"
        );
    }

    #[test]
    fn every_type_is_reported_once_and_every_link_leads_to_a_heading() {
        let page = markdown();
        let headings = page.lines().filter(|line| line.starts_with('#'));
        let anchors: Vec<String> = headings
            .map(|line| {
                line.trim_start_matches('#')
                    .trim()
                    .to_lowercase()
                    .replace(' ', "-")
            })
            .collect();
        let once = |anchor: &str| anchors.iter().filter(|one| *one == anchor).count() == 1;
        for (name, _) in json_schema()["$defs"].as_object().expect("types") {
            let mut objects = OTHERS.iter().map(|(name, _)| *name).chain([REPORT]);
            let is_object = objects.any(|object| object == name.as_str());
            assert!(is_object || once(&name.to_lowercase()), "{name}");
        }
        for rest in page.split("](#").skip(1) {
            let anchor = rest.split(')').next().expect("an end");
            assert!(once(anchor), "{anchor}");
        }
    }

    #[test]
    fn every_key_stands_in_the_page() {
        let page = markdown();
        let schema = json_schema();
        let types = schema["$defs"].as_object().expect("types");
        for key in types.values().flat_map(|of| keys(of).map(|(key, _)| key)) {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}
