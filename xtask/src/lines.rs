//! `cargo xtask lines`: how much code there is, and how long its functions are.
//!
//! A line counts where it has a token: blank lines and comments have none. What is compiled for tests
//! alone is counted apart.

use crate::circles::{is_for_tests, module_of, rust_files, sources, test_modules};
use crate::sh;
use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// What is compiled for tests alone.
const FOR_TESTS: &[&str] = &["crates/golden/src", "tests"];
/// A function that is longer does not read in one glance.
const LONG: usize = 80;

/// What was counted of a place.
#[derive(Default)]
struct Count {
    code: usize,
    tests: usize,
    /// Functions that are longer than [`LONG`], with their lines.
    long: Vec<(usize, String)>,
    longest: usize,
}

/// Prints a line for each place, and their sum.
pub(crate) fn run() -> Result<()> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let root = sh::root();
    for source in sources()?.into_iter().chain([root.join("tests")]) {
        let place = source.strip_prefix(&root).unwrap_or(&source);
        let place = place.to_string_lossy().into_owned();
        let count = count(&source, FOR_TESTS.contains(&&*place))?;
        counts.insert(place, count);
    }
    println!("   CODE   TESTS  LONGEST");
    for (place, count) in &counts {
        let Count {
            code,
            tests,
            longest,
            ..
        } = count;
        println!("{code:>7} {tests:>7} {longest:>8}  {place}");
    }
    let sum = |of: fn(&Count) -> usize| counts.values().map(of).sum::<usize>();
    let (code, tests) = (sum(|count| count.code), sum(|count| count.tests));
    println!("{code:>7} {tests:>7}");
    let mut long: Vec<_> = counts.into_values().flat_map(|count| count.long).collect();
    long.sort_by(|one, other| other.cmp(one));
    println!("{} functions of more than {LONG} lines", long.len());
    for (lines, name) in &long {
        println!("{lines:>7}  {name}");
    }
    Ok(())
}

fn count(source: &Path, is_for_tests: bool) -> Result<Count> {
    let mut files = Vec::new();
    rust_files(source, &mut files)?;
    let mut read = Vec::new();
    let mut for_tests = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let parse = || format!("failed to parse {}", file.display());
        let inside = file.strip_prefix(source).unwrap_or(file);
        let module = module_of(inside);
        let shown = file.strip_prefix(sh::root()).unwrap_or(file).display();
        for_tests.extend(test_modules(&module, &text).with_context(parse)?);
        read.push((
            module,
            shown.to_string(),
            syn::parse_file(&text).with_context(parse)?,
        ));
    }
    let mut count = Count::default();
    for (module, shown, file) in read {
        let all = lines_of(&file);
        let is_test = is_for_tests || for_tests.iter().any(|tests| module.starts_with(tests));
        let mut found = Found::default();
        found.visit_file(&file);
        let tests = if is_test {
            all.len()
        } else {
            found.tests.len()
        };
        count.code += all.len() - tests;
        count.tests += tests;
        if !is_test {
            for (lines, name) in found.functions {
                count.longest = count.longest.max(lines);
                if lines > LONG {
                    count.long.push((lines, format!("{name} in {shown}")));
                }
            }
        }
    }
    Ok(count)
}

fn lines_of(tokens: &impl quote::ToTokens) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    add(tokens.to_token_stream(), &mut lines);
    lines
}

/// Adds the lines of tokens; a comment of a doc is an attribute to the compiler.
fn add(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_mark = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '#');
        if is_mark
            && let Some(TokenTree::Punct(bang)) = tokens.peek()
            && bang.as_char() == '!'
        {
            tokens.next();
        }
        if is_mark
            && let Some(TokenTree::Group(group)) = tokens.peek()
            && is_doc(group)
        {
            tokens.next();
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                if group.delimiter() != Delimiter::None {
                    lines.insert(group.span_open().start().line);
                    lines.insert(group.span_close().start().line);
                }
                add(group.stream(), lines);
            }
            token => lines.extend(token.span().start().line..=token.span().end().line),
        }
    }
}

fn is_doc(group: &proc_macro2::Group) -> bool {
    let first = group.stream().into_iter().next();
    matches!(first, Some(TokenTree::Ident(name)) if name == "doc")
}

/// The lines for tests alone, and the length of every other function with its name.
#[derive(Default)]
struct Found {
    tests: BTreeSet<usize>,
    functions: Vec<(usize, String)>,
}

impl Found {
    /// Whether it is for tests alone: then its lines are noted.
    fn is_test(&mut self, attributes: &[syn::Attribute], item: &impl quote::ToTokens) -> bool {
        let is_test = is_for_tests(attributes);
        if is_test {
            self.tests.extend(lines_of(item));
        }
        is_test
    }

    fn function(&mut self, name: &syn::Ident, all: &impl Spanned) {
        let span = all.span();
        let lines = span.end().line + 1 - span.start().line;
        self.functions.push((lines, name.to_string()));
    }
}

impl<'a> Visit<'a> for Found {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !self.is_test(&item.attrs, item) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if !self.is_test(&item.attrs, item) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !self.is_test(&item.attrs, item) {
            self.function(&item.sig.ident, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !self.is_test(&item.attrs, item) {
            self.function(&item.sig.ident, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_docs_are_no_code() {
        let text = "//! A file.\n\n/// Adds.\n// Fast.\nfn add() -> &'static str {\n    /* none */\n    \"a\n     b\"\n}\n";
        let file = syn::parse_file(text).unwrap();
        assert_eq!(
            lines_of(&file).into_iter().collect::<Vec<_>>(),
            [5, 7, 8, 9]
        );
    }

    #[test]
    fn what_is_for_tests_is_apart_and_has_no_long_functions() {
        let text = "fn one() {\n    two();\n}\n\n#[cfg(test)]\nmod tests {\n    fn three() {}\n}\n";
        let file = syn::parse_file(text).unwrap();
        let mut found = Found::default();
        found.visit_file(&file);
        assert_eq!(found.functions, [(3, "one".to_owned())]);
        assert_eq!((lines_of(&file).len(), found.tests.len()), (7, 4));
    }
}
