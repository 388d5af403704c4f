//! Size budgets of crates and types: a crate is read from one page, a type from a few files.
//!
//! ```text
//!  crates/store          lines without tests      at most 16,000 (two have another budget)
//!  crates/store::Local   methods, files           at most 60 in at most 5
//! ```
//!
//! Methods of traits do not count: their number is that of the trait.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tidy::sizes::is_test_only;
use crate::tidy::{Repository, is_test_file};

const CRATE_LINES_MAX: usize = 16_000;
/// `server` composes; `store` is read as a whole: the log, its files, the executor.
const OTHER_CRATE_LINES_MAX: [(&str, usize); 2] =
    [("crates/server", 5_000), ("crates/store", 20_000)];
const TYPE_METHODS_MAX: usize = 60;
const TYPE_FILES_MAX: usize = 5;

/// What is over its budget: its name, its size, and what is counted.
pub type Over = (String, usize, &'static str);

/// Crates and types over their budget.
pub fn over(repository: &Repository) -> Vec<Over> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for (path, text) in repository.rust() {
        let Some((package, file)) = path.split_once("/src/") else { continue };
        if !package.starts_with("crates/") || is_test_file(path) {
            continue;
        }
        let Ok(parsed) = syn::parse_file(text) else { continue };
        let mut found = Found::default();
        found.visit_file(&parsed);
        let sum = crates.entry(package).or_default();
        sum.lines += text.lines().count() - found.test_lines;
        for (name, methods) in found.methods {
            let (sum_methods, files) = sum.types.entry(name).or_default();
            *sum_methods += methods;
            files.insert(file.to_owned());
        }
    }
    crates.iter().flat_map(|(package, found)| over_in(package, found)).collect()
}

fn over_in(package: &str, found: &Crate) -> Vec<Over> {
    let other = OTHER_CRATE_LINES_MAX.iter().find(|(name, _)| *name == package);
    let lines_max = other.map_or(CRATE_LINES_MAX, |(_, lines_max)| *lines_max);
    let is_long = found.lines > lines_max;
    let mut over: Vec<Over> =
        is_long.then(|| (package.to_owned(), found.lines, "lines")).into_iter().collect();
    for (name, (methods, files)) in &found.types {
        if *methods > TYPE_METHODS_MAX {
            over.push((format!("{package}::{name}::methods"), *methods, "methods"));
        }
        if files.len() > TYPE_FILES_MAX {
            over.push((format!("{package}::{name}::files"), files.len(), "files"));
        }
    }
    over
}

/// A crate's sums.
#[derive(Default)]
struct Crate {
    lines: usize,
    /// By type: its methods, and the files that have some.
    types: BTreeMap<String, (usize, BTreeSet<String>)>,
}

/// What one file has.
#[derive(Default)]
struct Found {
    test_lines: usize,
    methods: BTreeMap<String, usize>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test_only(&item.attrs) {
            self.test_lines += item.span().end().line - item.span().start().line + 1;
        } else {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let syn::Type::Path(path) = &*item.self_ty else { return };
        let Some(name) = path.path.segments.last() else { return };
        if item.trait_.is_none() {
            let is_method = |it: &&syn::ImplItem| matches!(it, syn::ImplItem::Fn(_));
            let count = item.items.iter().filter(is_method).count();
            *self.methods.entry(name.ident.to_string()).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::repository;

    #[track_caller]
    fn check(files: &[(&str, &str)], want: &[(&str, usize)]) {
        let found = over(&repository(files));
        let found: Vec<(&str, usize)> = found.iter().map(|it| (it.0.as_str(), it.1)).collect();
        assert_eq!(found, want);
    }

    fn methods(count: usize) -> String {
        format!("impl<T> A<T> {{\n{}}}\n", "fn f() {}\n".repeat(count))
    }

    #[test]
    fn a_type_with_many_methods_is_found() {
        check(&[("crates/x/src/a.rs", &methods(60))], &[]);
        check(&[("crates/x/src/a.rs", &methods(61))], &[("crates/x::A::methods", 61)]);
        let both = [("crates/x/src/a.rs", &*methods(31)), ("crates/x/src/a/b.rs", &methods(30))];
        check(&both, &[("crates/x::A::methods", 61)]);
        check(&[both[0], ("crates/y/src/a.rs", &methods(30))], &[]);
        let of_a_trait = methods(61).replace("impl<T>", "impl<T> F for");
        check(&[("crates/x/src/a.rs", &of_a_trait)], &[]);
        check(&[("crates/x/src/tests.rs", &methods(61)), ("lab/src/a.rs", &methods(61))], &[]);
    }

    #[test]
    fn a_type_in_many_files_is_found() {
        let paths: Vec<String> = (0..6).map(|at| format!("crates/x/src/{at}.rs")).collect();
        let text = methods(1);
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (&**path, &*text)).collect();
        check(&files[1..], &[]);
        check(&files, &[("crates/x::A::files", 6)]);
    }

    #[test]
    fn a_long_crate_is_found_and_its_tests_do_not_count() {
        let items = "const A: u8 = 0;\n".repeat(5_001);
        check(&[("crates/server/src/a.rs", &items)], &[("crates/server", 5_001)]);
        check(&[("crates/store/src/a.rs", &items)], &[]);
        let long = |package: &'static str, count: usize| {
            let of = |at: usize| (format!("crates/{package}/src/{at}.rs"), items.clone());
            (0..count).map(of).collect::<Vec<_>>()
        };
        let check_long = |package, count, want: &[(&str, usize)]| {
            let files = long(package, count);
            let files: Vec<(&str, &str)> = files.iter().map(|it| (&*it.0, &*it.1)).collect();
            check(&files, want);
        };
        check_long("index", 3, &[]);
        check_long("index", 4, &[("crates/index", 20_004)]);
        check_long("store", 3, &[]);
        check_long("store", 4, &[("crates/store", 20_004)]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{items}}}\n");
        check(&[("crates/server/src/a.rs", &tests)], &[]);
    }
}
