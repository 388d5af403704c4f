//! Import cycles between the top modules of a crate: there are none.
//!
//! ```text
//!  crates/server/src/gather.rs, gather/pace.rs ── use crate::core::... ──▶ core
//!  modules that use no other one that is left are taken out, again and again: the rest is a knot
//! ```
//!
//! Tests may use what they like: nothing depends on them.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::tidy::sizes::is_test_only;
use crate::tidy::{Problem, Repository, is_test_file};

/// The modules that each module of a crate uses.
type Uses<'r> = BTreeMap<&'r str, BTreeSet<String>>;

/// Crates whose modules use each other in a circle.
pub fn check(repository: &Repository) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Uses<'_>> = BTreeMap::new();
    for (path, text) in repository.rust() {
        let Some((package, inner)) = path.split_once("/src/") else { continue };
        let module = inner.split('/').next().unwrap_or(inner).trim_end_matches(".rs");
        if is_test_file(path) || matches!(module, "lib" | "main" | "bin" | "tests") {
            continue;
        }
        let Ok(file) = syn::parse_file(text) else { continue };
        let mut found = Found { depth: inner.matches('/').count() + 1, modules: BTreeSet::new() };
        found.visit_file(&file);
        crates.entry(package).or_default().entry(module).or_default().extend(found.modules);
    }
    let knots = crates.into_iter().map(|(package, uses)| (package, knot_of(uses)));
    let knots = knots.filter(|(_, knot)| !knot.is_empty());
    let problem = |(package, knot): (&str, Vec<&str>)| {
        let names = knot.join(", ");
        Problem::of(package, format!("these modules use each other in a circle: {names}"))
    };
    knots.map(problem).collect()
}

/// The modules on circles, and those between circles.
fn knot_of(mut uses: Uses<'_>) -> Vec<&str> {
    loop {
        let names: BTreeSet<String> = uses.keys().map(|name| (*name).to_owned()).collect();
        let used: BTreeSet<String> = uses
            .iter()
            .flat_map(|(name, used)| used.iter().filter(move |it| it != name))
            .cloned()
            .collect();
        let count = uses.len();
        uses.retain(|name, its| {
            used.contains(*name) && its.iter().any(|it| it != name && names.contains(it))
        });
        if uses.len() == count {
            return uses.into_keys().collect();
        }
    }
}

/// The top modules that a file mentions by `crate::`, or by as many `super::` as lead there.
struct Found {
    /// The number of `super` that leads to the crate's root.
    depth: usize,
    modules: BTreeSet<String>,
}

impl Found {
    /// Notes the module behind the root, if the path begins there.
    fn note(&mut self, segments: &[String]) {
        let rest = match segments.first().map(String::as_str) {
            Some("crate") => &segments[1..],
            Some("super")
                if segments.iter().take_while(|it| *it == "super").count() == self.depth =>
            {
                &segments[self.depth..]
            }
            _ => return,
        };
        self.modules.extend(rest.first().cloned());
    }

    fn note_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.note_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_tree(before, tree));
            }
            syn::UseTree::Name(name) => self.note(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.note(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.note(before),
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            self.depth += 1;
            visit::visit_item_mod(self, item);
            self.depth -= 1;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test_only(&item.attrs) {
            self.note_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.note(&segments);
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::expect_all;

    const ROUND: &str = "these modules use each other in a circle: a, b";

    #[test]
    fn a_circle_of_modules_is_found() {
        let files = [("x/src/a.rs", "use crate::b::B;"), ("x/src/b.rs", "use super::a::A;")];
        expect_all(check, &files, &[ROUND]);
        let files = [
            ("x/src/a.rs", "fn f() { crate::b::g() }"),
            ("x/src/b/inner.rs", "use super::super::{c, a::A};"),
            ("x/src/c.rs", ""),
        ];
        expect_all(check, &files, &[ROUND]);
    }

    #[test]
    fn a_module_may_use_one_below_it_and_its_tests_any() {
        let files = [
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b.rs", "use self::a::A; #[cfg(test)] mod tests { use crate::a::A; }"),
            ("x/src/b/inner.rs", "use super::a;"),
            ("x/src/b/tests.rs", "use crate::a::A;"),
            ("x/src/lib.rs", "mod a; mod b; use crate::a::A;"),
        ];
        expect_all(check, &files, &[]);
    }
}
