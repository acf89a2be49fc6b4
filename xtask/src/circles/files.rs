//! Files of one crate that import each other in a circle: none of them can be read alone.
//!
//! That a module uses what lies below it does not count: a head that lists its parts, and parts
//! that use the head, are one thing in several files. So a circle that leads down through a head
//! is not found. What tests import does not count either.

use super::paths::Use;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A chain of re-exports is not followed further than this.
const HOPS_MAX: usize = 12;

type Module = Vec<String>;

/// What a file imports and names.
#[derive(Default)]
struct Imports {
    paths: Vec<Vec<String>>,
    /// What it calls the things that it imports, and re-exports some of.
    names: HashMap<String, Vec<String>>,
}

/// Every file that is not only for tests, by the module that it holds.
#[derive(Default)]
pub(super) struct Files(BTreeMap<Module, Imports>);

impl Files {
    /// Adds a file.
    pub(super) fn add(&mut self, module: &[String], uses: &[Use]) {
        let imports = self.0.entry(module.to_vec()).or_default();
        for used in uses.iter().filter(|used| !used.is_test) {
            let path = match used.is_ours {
                true => used.path.clone(),
                // A crate, or a module below this one.
                false => [module, &used.path].concat(),
            };
            if let Some(name) = &used.name {
                imports.names.insert(name.clone(), path.clone());
            }
            imports.paths.push(path);
        }
    }

    /// Leaves out a module, and those below it.
    pub(super) fn leave_out(&mut self, module: &[String]) {
        self.0.retain(|other, _| !other.starts_with(module));
    }

    /// The shortest circle through each file that is part of one, each circle once.
    pub(super) fn circles(&self) -> BTreeSet<Vec<String>> {
        let edges: BTreeMap<&Module, BTreeSet<&Module>> = self
            .0
            .iter()
            .map(|(module, imports)| (module, self.imported(module, imports)))
            .collect();
        let circles = edges.keys().filter_map(|from| shortest(from, &edges));
        circles.map(named).collect()
    }

    fn imported(&self, from: &Module, imports: &Imports) -> BTreeSet<&Module> {
        let files = imports.paths.iter().filter_map(|path| {
            let names_own = path.starts_with(from) && path.len() > from.len();
            let renamed = names_own
                .then(|| imports.names.get(&path[from.len()]))
                .flatten();
            match renamed.filter(|target| *target != path) {
                Some(target) => self.file_of(&[target, &path[from.len() + 1..]].concat(), 0),
                None => self.file_of(path, 0),
            }
        });
        files.filter(|to| !to.starts_with(from)).collect()
    }

    /// The file in which the thing at this path stands.
    fn file_of(&self, path: &[String], hops: usize) -> Option<&Module> {
        let (at, module, imports) = (0..=path.len()).rev().find_map(|at| {
            let (module, imports) = self.0.get_key_value(&path[..at])?;
            Some((at, module, imports))
        })?;
        let moved = path.get(at).and_then(|name| imports.names.get(name));
        match moved.filter(|target| hops < HOPS_MAX && *target != path) {
            Some(target) => self.file_of(&[target, &path[at + 1..]].concat(), hops + 1),
            None => Some(module),
        }
    }
}

fn shortest<'m>(
    from: &'m Module,
    edges: &BTreeMap<&'m Module, BTreeSet<&'m Module>>,
) -> Option<Vec<&'m Module>> {
    let mut before: HashMap<&Module, &'m Module> = HashMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(at) = waiting.pop_front() {
        for &to in edges.get(at)? {
            if to == from {
                let mut circle = vec![at];
                while let Some(&earlier) = before.get(circle[circle.len() - 1]) {
                    circle.push(earlier);
                }
                circle.reverse();
                return Some(circle);
            }
            if !before.contains_key(to) {
                before.insert(to, at);
                waiting.push_back(to);
            }
        }
    }
    None
}

/// A circle by its names, from the first of them on.
fn named(mut circle: Vec<&Module>) -> Vec<String> {
    let first = (0..circle.len()).min_by_key(|at| circle[*at]);
    circle.rotate_left(first.unwrap_or_default());
    circle.iter().map(|module| module.join("::")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{module_of, paths};
    use super::*;
    use std::path::Path;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = Files::default();
        for (file, source) in files {
            let module = module_of(Path::new(file));
            all.add(&module, &paths::of_file(&module, source).unwrap());
        }
        for (file, source) in files {
            let module = module_of(Path::new(file));
            for tests in paths::test_modules(&module, source).unwrap() {
                all.leave_out(&tests);
            }
        }
        all.circles()
            .iter()
            .map(|circle| circle.join(" > "))
            .collect()
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let a = ("room/a.rs", "use super::b::B; pub struct A;");
        let b = ("room/b.rs", "use crate::room::a::A; pub struct B;");
        assert_eq!(circles(&[a, b]), ["room::a > room::b"]);
        let alone = ("room/b.rs", "pub struct B;");
        assert!(circles(&[a, alone]).is_empty());
    }

    #[test]
    fn a_re_export_leads_to_the_file_behind_it() {
        let head = (
            "room/mod.rs",
            "mod a; mod b; mod c; pub use c::C as Renamed;",
        );
        let a = ("room/a.rs", "use super::Renamed;");
        let c = ("room/c.rs", "use super::a::A;");
        assert_eq!(circles(&[head, a, c]), ["room::a > room::c"]);
        let b = ("room/b.rs", "use super::Renamed;");
        assert!(circles(&[head, b, ("room/c.rs", "")]).is_empty());
    }

    #[test]
    fn a_module_and_what_lies_below_it_are_one_thing() {
        let head = ("room/a.rs", "mod part; use part::Part; pub struct A;");
        let part = ("room/a/part.rs", "use super::A; pub struct Part;");
        assert!(circles(&[head, part]).is_empty());
        let other = ("room/b.rs", "use super::a::A; pub struct B;");
        let reaches = ("room/a/part.rs", "use super::A; use crate::room::b::B;");
        assert_eq!(
            circles(&[("room/a.rs", "mod part; use crate::room::b::B;"), other]),
            ["room::a > room::b"]
        );
        assert!(circles(&[head, reaches, ("room/b.rs", "")]).is_empty());
    }

    #[test]
    fn what_only_tests_import_does_not_count() {
        let a = (
            "room/a.rs",
            "#[cfg(test)] mod tests { use super::super::b::B; }",
        );
        let b = ("room/b.rs", "use super::a::A;");
        assert!(circles(&[a, b]).is_empty());
        let head = ("room/mod.rs", "mod b; #[cfg(test)] mod a;");
        let a = ("room/a.rs", "use super::b::B;");
        assert!(circles(&[head, a, b]).is_empty());
    }

    #[test]
    fn a_path_through_an_imported_module_leads_there() {
        let a = ("room/a.rs", "use super::words; fn f() { words::of(1) }");
        let words = ("room/words.rs", "use super::a::A;");
        assert_eq!(circles(&[a, words]), ["room::a > room::words"]);
    }
}
