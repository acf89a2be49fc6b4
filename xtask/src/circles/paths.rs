//! Every path that a source file names, resolved as far as imports need it: what begins
//! with `crate`, `self` or `super` is ours, and anything else may be a crate.

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

#[derive(Debug)]
pub(super) struct Use {
    /// Whether it leads into this crate.
    pub(super) is_ours: bool,
    /// The path: from the crate's root where it is ours, else from a crate's name.
    /// Not empty, except that the crate's root itself reads as `*`.
    pub(super) path: Vec<String>,
    /// What the file calls it from there on, where this is an import.
    pub(super) name: Option<String>,
    /// Whether only tests do.
    pub(super) is_test: bool,
}

/// The modules that a file declares for tests only.
pub(crate) fn test_modules(module: &[String], source: &str) -> Result<Vec<Vec<String>>> {
    let items = syn::parse_file(source)?.items;
    let modules = items.iter().filter_map(|item| match item {
        syn::Item::Mod(item) if is_for_tests(&item.attrs) => {
            Some([module, &[item.ident.to_string()]].concat())
        }
        _ => None,
    });
    Ok(modules.collect())
}

/// The paths of a file that holds this module.
pub(super) fn of_file(module: &[String], source: &str) -> Result<Vec<Use>> {
    let file = syn::parse_file(source)?;
    let mut finder = Finder {
        module: module.to_vec(),
        found: Vec::new(),
        is_test: false,
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder {
    module: Vec<String>,
    found: Vec<Use>,
    is_test: bool,
}

/// Whether something is compiled for tests only.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl Finder {
    /// Visits what is inside of something with these attributes.
    fn inside(&mut self, attributes: &[syn::Attribute], visit: impl FnOnce(&mut Self)) {
        let outside = self.is_test;
        self.is_test |= is_for_tests(attributes);
        visit(self);
        self.is_test = outside;
    }

    fn found(&mut self, words: &[String], name: Option<String>) {
        let Some(first) = words.first() else { return };
        let mut module = self.module.clone();
        let mut rest = words;
        let is_ours = match first.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
                true
            }
            "self" | "super" => {
                while let Some(word) = rest.first() {
                    match word.as_str() {
                        "self" => {}
                        "super" => {
                            module.pop();
                        }
                        _ => break,
                    }
                    rest = &rest[1..];
                }
                true
            }
            _ => {
                module.clear();
                false
            }
        };
        module.extend_from_slice(rest);
        self.found.push(Use {
            is_ours,
            path: module,
            name,
            is_test: self.is_test,
        });
    }

    fn tree(&mut self, tree: &syn::UseTree, prefix: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.tree(&path.tree, prefix);
                prefix.pop();
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                // `use a::{self}` names a, and `use crate as x` everything.
                let is_self = ident == "self" && !prefix.is_empty();
                if !is_self {
                    prefix.push(ident.to_string());
                }
                let name = match tree {
                    syn::UseTree::Rename(renamed) => Some(renamed.rename.to_string()),
                    _ => prefix.last().cloned(),
                };
                let is_root = matches!(prefix.as_slice(), [only] if only == "crate");
                if is_root {
                    prefix.push("*".to_owned());
                }
                self.found(prefix, name);
                if is_root {
                    prefix.pop();
                }
                if !is_self {
                    prefix.pop();
                }
            }
            syn::UseTree::Glob(_) => {
                prefix.push("*".to_owned());
                self.found(prefix, None);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, prefix);
                }
            }
        }
    }

    /// Paths in tokens that are not parsed: the arguments of a macro, the body of a
    /// `macro_rules!`.
    fn tokens(&mut self, tokens: &TokenStream) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let is_colons = |at: usize| {
            let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
            colon(at) && colon(at + 1)
        };
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(&group.stream()),
                TokenTree::Ident(first) => {
                    let mut words = vec![first.to_string()];
                    while is_colons(at + 1) {
                        let Some(TokenTree::Ident(next)) = tokens.get(at + 3) else {
                            break;
                        };
                        words.push(next.to_string());
                        at += 3;
                    }
                    // A word alone is a variable or a field as likely as a crate.
                    if words.len() > 1 {
                        self.found(&words, None);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        self.inside(&item.attrs, |finder| visit::visit_item_mod(finder, item));
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.inside(&item.attrs, |finder| {
            finder.tree(&item.tree, &mut Vec::new());
        });
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.inside(&item.attrs, |finder| visit::visit_item_fn(finder, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.inside(&item.attrs, |finder| visit::visit_item_impl(finder, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.inside(&item.attrs, |finder| {
            visit::visit_impl_item_fn(finder, item)
        });
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.found(&[item.ident.to_string()], None);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        // A single word is a local name, whatever it is called.
        if words.len() > 1 {
            self.found(&words, None);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(&item.tokens);
        visit::visit_macro(self, item);
    }
}
