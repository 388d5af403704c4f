//! Rules for each source file on its own.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tidy::{Problem, Repository, is_test_file};

const WIDTH_MAX: usize = 100;
/// Names that do not describe the content.
const EMPTY_NAMES: [&str; 3] = ["util", "common", "misc"];
/// Lines above an `unsafe` block in which its comment may stand, the statement's own included.
const SAFETY_REACH_LINES: usize = 8;

/// All rules of this module.
pub fn check(repository: &Repository) -> Vec<Problem> {
    [head_line, width, names, globs, safety, notes]
        .iter()
        .flat_map(|rule| rule(repository))
        .collect()
}

/// The first line of every file says what it owns.
fn head_line(repository: &Repository) -> Vec<Problem> {
    let lacks = |text: &str| !text.lines().next().unwrap_or_default().starts_with("//! ");
    let message = "the first line must be `//! ` and what this file owns";
    repository
        .rust()
        .filter(|(_, text)| lacks(text))
        .map(|(path, _)| Problem::at(path, 1, message))
        .collect()
}

fn width(repository: &Repository) -> Vec<Problem> {
    lines(repository)
        .filter(|(.., line)| line.chars().count() > WIDTH_MAX)
        .map(|(path, number, _)| Problem::at(path, number, "wider than 100 characters"))
        .collect()
}

fn lines(repository: &Repository) -> impl Iterator<Item = (&str, usize, &str)> {
    repository.rust().flat_map(|(path, text)| {
        text.lines().enumerate().map(move |(index, line)| (path, index + 1, line))
    })
}

fn names(repository: &Repository) -> Vec<Problem> {
    let is_empty_name = |path: &str| {
        path.split('/').any(|part| EMPTY_NAMES.contains(&part.strip_suffix(".rs").unwrap_or(part)))
    };
    repository
        .rust()
        .filter(|(path, _)| is_empty_name(path))
        .map(|(path, _)| Problem::of(path, "name the idea: util, common and misc say nothing"))
        .collect()
}

/// TO-DO notes carry an issue; defects are fixed before they land.
fn notes(repository: &Repository) -> Vec<Problem> {
    // Spelled apart so that this file does not break its own rule.
    let (todo, fixme) = (concat!("TO", "DO"), concat!("FIX", "ME"));
    let mut problems = Vec::new();
    for (path, number, line) in lines(repository) {
        if line.contains(fixme) {
            problems.push(Problem::at(path, number, format!("{fixme} may not land")));
        }
        let has_issue = |rest: &str| {
            rest.strip_prefix("(#")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if line.split(todo).skip(1).any(|rest| !has_issue(rest)) {
            problems.push(Problem::at(path, number, format!("write {todo}(#issue)")));
        }
    }
    problems
}

fn globs(repository: &Repository) -> Vec<Problem> {
    walk(repository, |found| found.globs, "no glob imports outside tests")
}

fn safety(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in repository.rust() {
        let Some(found) = Found::of(path, text) else { continue };
        let all: Vec<&str> = text.lines().collect();
        for line in found.unsafe_lines {
            let from = line.saturating_sub(SAFETY_REACH_LINES + 1);
            if !all[from..line].iter().any(|line| line.contains("SAFETY:")) {
                let message = "an unsafe block needs a `// SAFETY:` comment right above";
                problems.push(Problem::at(path, line, message));
            }
        }
    }
    problems
}

fn walk(
    repository: &Repository,
    pick: fn(Found) -> Vec<usize>,
    message: &'static str,
) -> Vec<Problem> {
    repository
        .rust()
        .filter_map(|(path, text)| Some((path, pick(Found::of(path, text)?))))
        .flat_map(|(path, lines)| {
            lines.into_iter().map(move |line| Problem::at(path, line, message))
        })
        .collect()
}

/// The contents of a file's syntax tree, by line.
#[derive(Default)]
struct Found {
    globs: Vec<usize>,
    unsafe_lines: Vec<usize>,
    test_depth: usize,
}

impl Found {
    /// `None` for a file that does not parse; the compiler reports that better.
    fn of(path: &str, text: &str) -> Option<Found> {
        let mut found = Found { test_depth: usize::from(is_test_file(path)), ..Found::default() };
        found.visit_file(&syn::parse_file(text).ok()?);
        Some(found)
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = super::sizes::is_test_only(&item.attrs);
        self.test_depth += usize::from(is_test);
        visit::visit_item_mod(self, item);
        self.test_depth -= usize::from(is_test);
    }

    fn visit_use_glob(&mut self, glob: &'ast syn::UseGlob) {
        if self.test_depth == 0 {
            self.globs.push(glob.span().start().line);
        }
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.unsafe_lines.push(block.unsafe_token.span().start().line);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = item.unsafety {
            self.unsafe_lines.push(token.span().start().line);
        }
        visit::visit_item_impl(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::expect;

    #[test]
    fn a_file_without_a_head_line_is_found() {
        expect(head_line, "crates/x/src/a.rs", "use std::fmt;\n", &["a.rs:1: the first line"]);
        expect(head_line, "crates/x/src/a.rs", "", &["a.rs:1: the first line"]);
        expect(head_line, "crates/x/src/a.rs", "//! Owns a.\n", &[]);
    }

    #[test]
    fn a_wide_line_is_found() {
        let wide = format!("//! a\n// {}\n", "x".repeat(98));
        expect(width, "a.rs", &wide, &["a.rs:2: wider"]);
        expect(width, "a.rs", &wide.replacen('x', "", 1), &[]);
    }

    #[test]
    fn an_empty_name_is_found() {
        expect(names, "crates/x/src/util.rs", "", &["util.rs"]);
        expect(names, "crates/x/src/common/a.rs", "", &["common/a.rs"]);
        expect(names, "crates/x/src/utility.rs", "", &[]);
    }

    #[test]
    fn a_note_without_an_issue_is_found() {
        let (todo, fixme) = (concat!("TO", "DO"), concat!("FIX", "ME"));
        expect(notes, "a.rs", &format!("// {todo}: later\n"), &["a.rs:1: write"]);
        expect(notes, "a.rs", &format!("// {todo}(#12): later\n"), &[]);
        expect(notes, "a.rs", &format!("\n// {fixme}\n"), &["a.rs:2"]);
    }

    #[test]
    fn a_glob_outside_tests_is_found() {
        expect(globs, "a.rs", "use std::fmt::*;\n", &["a.rs:1: no glob"]);
        expect(globs, "a.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n", &[]);
        expect(globs, "crates/x/src/a/tests.rs", "use super::*;\n", &[]);
    }

    #[test]
    fn an_unsafe_block_without_its_comment_is_found() {
        // Put together here: rules that read this file are not to take it for code.
        let word = "unsafe";
        let bare = format!("fn f(p: *const u8) -> u8 {{\n    {word} {{ *p }}\n}}\n");
        expect(safety, "a.rs", &bare, &["a.rs:2: an unsafe block"]);
        let reason = format!("    // SAFETY: the caller keeps p alive.\n    {word}");
        let good = bare.replace(&format!("    {word}"), &reason);
        expect(safety, "a.rs", &good, &[]);
        let below_an_attribute = good.replace("    // SAFETY", "    #[cfg(unix)]\n    // SAFETY");
        expect(safety, "a.rs", &below_an_attribute, &[]);
        let bare_impl = format!("struct A;\n{word} impl Send for A {{}}\n");
        expect(safety, "a.rs", &bare_impl, &["a.rs:2"]);
    }
}
