//! Rules for citations: each cited rule, decision and section of a paper exists.
//!
//! ```text
//!  K12            ─▶ docs/invariants.md   ### K12: ...
//!  decision 0012  ─▶ docs/decisions/0012-...md
//!  C-4 §4.3       ─▶ docs/papers.md       ## C-4, | 4.3 | ...
//! ```
//!
//! The entries of docs/invariants.md are checked too: the files that hold a rule cite it, and its
//! tests exist.

use std::collections::BTreeSet;

use crate::tidy::{Problem, Repository};

const INVARIANTS: &str = "docs/invariants.md";
const PAPERS: &str = "docs/papers.md";
const DECISIONS: &str = "docs/decisions/";
/// The papers' names in citations, which are their headings in docs/papers.md.
const NAMES: [&str; 5] = ["MICA", "Minos", "C-4", "Rowan-KV", "uTPS"];

/// All rules of this module.
pub fn check(repository: &Repository) -> Vec<Problem> {
    [rules, holders, decisions, sections].iter().flat_map(|rule| rule(repository)).collect()
}

/// The texts with citations: sources and documents, except this module's own samples.
fn texts(repository: &Repository) -> impl Iterator<Item = (&str, usize, &str)> {
    let is_text = |path: &str| {
        (path.ends_with(".rs") || path.ends_with(".md")) && !path.starts_with("xtask/src/tidy")
    };
    repository.named(is_text).flat_map(|(path, text)| {
        text.lines().enumerate().map(move |(index, line)| (path, index + 1, line))
    })
}

/// The heads `### K7: ...` of docs/invariants.md.
fn defined_rules(repository: &Repository) -> BTreeSet<&str> {
    let text = repository.text(INVARIANTS).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_prefix("### ")?.split_once(": "))
        .map(|(name, _)| name)
        .collect()
}

/// `K` with one or two digits, as a word.
fn cited_rules(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
        let digits = word.strip_prefix('K').unwrap_or_default();
        matches!(digits.len(), 1 | 2) && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Each cited rule is defined.
fn rules(repository: &Repository) -> Vec<Problem> {
    let defined = defined_rules(repository);
    // Figures of papers and sizes of keys are spelled alike elsewhere.
    let cites = |path: &str| path.ends_with(".rs") || path.starts_with("docs/design/");
    let mut problems = Vec::new();
    for (path, line_number, line) in texts(repository).filter(|(path, ..)| cites(path)) {
        for rule in cited_rules(line).filter(|rule| !defined.contains(rule)) {
            let message = format!("{rule} is not defined in {INVARIANTS}");
            problems.push(Problem::at(path, line_number, message));
        }
    }
    problems
}

/// For docs/invariants.md: the files that hold a rule cite it, and its tests exist.
fn holders(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut rule = "";
    for (index, line) in repository.text(INVARIANTS).unwrap_or_default().lines().enumerate() {
        if let Some(head) = line.strip_prefix("### ") {
            rule = head.split(':').next().unwrap_or_default();
        }
        let targets = line.split("](../").skip(1).filter_map(|rest| rest.split(')').next());
        for path in targets {
            let text = repository.text(path).unwrap_or_default();
            if line.starts_with("- held by: ") {
                if !text.lines().flat_map(cited_rules).any(|cited| cited == rule) {
                    let message = format!("{path} does not cite {rule}");
                    problems.push(Problem::at(INVARIANTS, index + 1, message));
                }
            } else if let Some(rest) = line.strip_prefix("- test: `") {
                let name = rest.split('`').next().unwrap_or_default();
                if !text.contains(&format!("fn {name}")) {
                    let message = format!("{path} has no test {name}");
                    problems.push(Problem::at(INVARIANTS, index + 1, message));
                }
            }
        }
    }
    problems
}

/// `decision 0012`, `decisions 0012 and 0013`: their pages exist.
fn decisions(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, line_number, line) in texts(repository) {
        for rest in line.split("ecision").skip(1) {
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            for number in numbers(rest) {
                let page = format!("{DECISIONS}{number}-");
                if repository.named(|path| path.starts_with(&page)).next().is_none() {
                    let message = format!("there is no decision {number}");
                    problems.push(Problem::at(path, line_number, message));
                }
            }
        }
    }
    problems
}

/// The numbers of four digits that begin a text, with commas or words of a list between them.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', ';', ')', '.', ':', ']'])
        .skip_while(|word| word.is_empty())
        .filter(|word| !word.is_empty())
        .take_while(|word| ["and", "to", "or"].contains(word) || is_number(word))
        .filter(|word| is_number(word))
}

fn is_number(word: &str) -> bool {
    word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// `C-4 §4.3`: docs/papers.md has that section under that paper.
fn sections(repository: &Repository) -> Vec<Problem> {
    let known = known_sections(repository);
    let mut problems = Vec::new();
    for (path, line_number, line) in texts(repository) {
        let mut paper = None;
        for (index, part) in line.split('§').enumerate() {
            if index > 0
                && let Some(paper) = paper
            {
                let section = part
                    .find(|c: char| !(c.is_ascii_digit() || c == '.'))
                    .map_or(part, |end| &part[..end])
                    .trim_end_matches('.');
                if !section.is_empty() && !known.contains(&(paper, section)) {
                    let message = format!("{PAPERS} has no section {section} of {paper}");
                    problems.push(Problem::at(path, line_number, message));
                }
            }
            // A list of sections goes on; anything else names its paper anew.
            let is_list = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            if index == 0 || ![", ", " and ", " to ", ""].contains(&is_list) {
                paper = NAMES.into_iter().find(|name| part.trim_end().ends_with(name));
            }
        }
    }
    problems
}

/// Paper and section of each row of docs/papers.md.
fn known_sections(repository: &Repository) -> BTreeSet<(&str, &str)> {
    let mut paper = "";
    let mut known = BTreeSet::new();
    for line in repository.text(PAPERS).unwrap_or_default().lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            paper = heading;
        } else if let Some(section) = line.strip_prefix("| ").and_then(|row| row.split(' ').next())
        {
            known.insert((paper, section));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::{decisions, holders, rules, sections};
    use crate::tidy::testing::{expect, expect_all};

    const SOURCE: &str = "crates/store/src/lib.rs";

    #[test]
    fn rules_that_are_cited_are_defined() {
        let page = ("docs/invariants.md", "### K1: Versions\n### K12: Borrowed bytes\n");
        let cites = |text| [page, (SOURCE, text)];
        expect_all(rules, &cites("//! Grows (K1, K12). Not K100, 4K2 or K.\n"), &[]);
        expect_all(rules, &cites("// fine\n// wrong (K2)\n"), &["lib.rs:2: K2 is not defined"]);
    }

    #[test]
    fn what_holds_and_tests_a_rule_is_there() {
        let source = (SOURCE, "// K1\nfn versions_grow() {}\n");
        let page = |text| [("docs/invariants.md", text), source];
        let good = "### K1: Versions\n\n- held by: [a](../crates/store/src/lib.rs)\n\
                    - test: `versions_grow` in [a](../crates/store/src/lib.rs)\n";
        expect_all(holders, &page(good), &[]);
        let bad = good.replace("K1", "K2").replace("versions_grow", "versions_fall");
        expect_all(holders, &page(&bad), &["does not cite K2", "has no test versions_fall"]);
    }

    #[test]
    fn decisions_that_are_cited_exist() {
        let page = ("docs/decisions/0002-two.md", "");
        let cites = |text| [page, (SOURCE, text)];
        expect_all(decisions, &cites("// decision 0002; decisions at 9000 a second\n"), &[]);
        expect_all(decisions, &cites("// see decisions 0002 and 0003.\n"), &["no decision 0003"]);
    }

    #[test]
    fn sections_that_are_cited_exist() {
        let page = ("docs/papers.md", "## C-4\n\n| § | title |\n|---|---|\n| 4.3 | Compaction |\n");
        let cites = |text| [page, (SOURCE, text)];
        expect_all(sections, &cites("//! C-4 §4.3. RFC 9110 §9.9\n"), &[]);
        let want = ["no section 5 of C-4", "no section 1 of Minos"];
        expect_all(sections, &cites("//! C-4 §4.3, §5; Minos §1\n"), &want);
        expect(sections, SOURCE, "//! of C-4 §4.3\n", &["no section 4.3 of C-4"]);
    }
}
