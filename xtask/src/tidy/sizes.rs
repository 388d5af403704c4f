//! Size budgets: lines of files and functions, and the allow-list, which may only shrink.
//!
//! A line of `xtask/tidy-allow.txt` is `PATH LINES` or `PATH::FUNCTION LINES`; for crates and types
//! (`budgets`) `CRATE LINES`, `CRATE::TYPE::methods COUNT` or `CRATE::TYPE::files COUNT`. An entry
//! that allows more than there is is a problem too: the list must follow every reduction.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tidy::budgets::{self, Over};
use crate::tidy::{Problem, Repository, is_test_file};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const ALLOW_LIST: &str = "xtask/tidy-allow.txt";

/// Files and functions over their budget, and entries of the allow-list that are too large.
pub fn check(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut allowed = BTreeMap::new();
    for (index, line) in repository.text(ALLOW_LIST).unwrap_or_default().lines().enumerate() {
        match line.split_once(' ').map(|(name, lines)| (name, lines.parse::<usize>())) {
            Some((name, Ok(lines))) => drop(allowed.insert(name.to_owned(), lines)),
            _ if line.is_empty() || line.starts_with('#') => {}
            _ => problems.push(Problem::at(ALLOW_LIST, index + 1, "write `PATH LINES`")),
        }
    }
    for (name, count, unit) in over_budget(repository).into_iter().chain(budgets::over(repository))
    {
        match allowed.remove(&name) {
            None => problems.push(Problem::of(&name, format!("{count} {unit}: split it"))),
            Some(most) if count > most => problems.push(Problem::of(
                &name,
                format!("{count} {unit}, and {ALLOW_LIST} allows {most}: split it"),
            )),
            Some(most) if count < most => problems.push(Problem::of(
                ALLOW_LIST,
                format!("{name} has shrunk to {count} {unit}: write that"),
            )),
            Some(_) => {}
        }
    }
    let stale = allowed.keys().map(|name| format!("{name} is within its budget: remove the line"));
    problems.extend(stale.map(|message| Problem::of(ALLOW_LIST, message)));
    problems
}

fn over_budget(repository: &Repository) -> Vec<Over> {
    let mut found = Vec::new();
    for (path, text) in repository.rust() {
        if is_test_file(path) {
            continue;
        }
        let Ok(file) = syn::parse_file(text) else { continue };
        let mut sizes = Sizes::default();
        sizes.visit_file(&file);
        let file_lines = text.lines().count() - sizes.test_lines;
        if file_lines > FILE_LINES_MAX {
            found.push((path.to_owned(), file_lines, "lines"));
        }
        let large = sizes.functions.into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        found.extend(large.map(|(name, lines)| (format!("{path}::{name}"), lines, "lines")));
    }
    found
}

/// Whether an item exists only for tests.
pub fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                list.tokens.to_string().split([' ', '(', ',', ')']).any(|word| word == "test")
            })
    })
}

#[derive(Default)]
struct Sizes {
    functions: Vec<(String, usize)>,
    test_lines: usize,
}

impl Sizes {
    fn measure(&mut self, name: &syn::Ident, signature_and_body: proc_macro2::Span) {
        self.functions.push((name.to_string(), line_count(signature_and_body)));
    }
}

fn line_count(span: proc_macro2::Span) -> usize {
    span.end().line - span.start().line + 1
}

impl<'ast> Visit<'ast> for Sizes {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test_only(&item.attrs) {
            self.test_lines += line_count(item.span());
        } else {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig.ident, item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig.ident, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::{expect, expect_all};

    fn function_of(line_count: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(line_count - 2))
    }

    #[test]
    fn a_long_function_is_found() {
        expect(check, "a.rs", &function_of(71), &["a.rs::long: 71 lines: split it"]);
        expect(check, "a.rs", &function_of(70), &[]);
        let method = format!("impl A {{\n{}}}\n", function_of(71));
        expect(check, "a.rs", &method, &["a.rs::long: 71 lines"]);
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let items = "const A: u8 = 0;\n".repeat(801);
        expect(check, "a.rs", &items, &["a.rs: 801 lines: split it"]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{items}}}\n");
        expect(check, "a.rs", &tests, &[]);
        let not_tests = format!("#[cfg(not(loom))]\nmod inner {{\n{items}}}\n");
        expect(check, "a.rs", &not_tests, &["a.rs: 804 lines"]);
    }

    #[test]
    fn the_allow_list_only_shrinks() {
        let long = function_of(80);
        let with = |list: &str, want: &[&str]| {
            expect_all(check, &[("a.rs", &long), (ALLOW_LIST, list)], want);
        };
        with("a.rs::long 80\n", &[]);
        with("a.rs::long 79\n", &["a.rs::long: 80 lines, and"]);
        with("a.rs::long 81\n", &["has shrunk to 80"]);
        with("a.rs::long 80\nb.rs 900\n", &["b.rs is within its budget"]);
        with("a.rs::long 80\nnonsense\n", &["txt:2: write `PATH LINES`"]);
    }
}
