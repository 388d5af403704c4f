//! Rules for documents: everything they name exists, and the required documents exist.

use crate::tidy::{Problem, Repository};

/// All rules of this module.
pub fn check(repository: &Repository) -> Vec<Problem> {
    [decisions, formats, links, code_links, commands, metrics]
        .iter()
        .flat_map(|rule| rule(repository))
        .collect()
}

const DECISION_PARTS: [&str; 5] =
    ["Context", "Decision", "Alternatives", "Consequences", "How we would notice"];

/// docs/decisions/NNNN-title.md: numbered from 1 without gaps, each with all its parts.
fn decisions(repository: &Repository) -> Vec<Problem> {
    let is_decision = |path: &str| {
        path.strip_prefix("docs/decisions/")
            .is_some_and(|name| name.ends_with(".md") && name != "README.md")
    };
    let mut problems = Vec::new();
    for (index, (path, text)) in repository.named(is_decision).enumerate() {
        let number = format!("{:04}", index + 1);
        let name = path.trim_start_matches("docs/decisions/");
        if !name.starts_with(&format!("{number}-")) {
            problems.push(Problem::of(path, format!("the next number is {number}")));
        }
        let head = text.lines().next().unwrap_or_default();
        if !head.starts_with(&format!("# {}", name.get(..4).unwrap_or_default())) {
            problems.push(Problem::at(path, 1, "the title starts with `# ` and the number"));
        }
        for part in DECISION_PARTS {
            if !text.lines().any(|line| line.starts_with(&format!("## {part}"))) {
                problems.push(Problem::of(path, format!("the part `## {part}` is missing")));
            }
        }
    }
    problems
}

/// A format page is named by the code that it describes, and each page that code names exists.
fn formats(repository: &Repository) -> Vec<Problem> {
    const FOLDER: &str = "docs/formats/";
    let mut problems = Vec::new();
    let mut named = Vec::new();
    for (path, text) in repository.rust().filter(|(path, _)| !path.starts_with("xtask/")) {
        for (index, line) in text.lines().enumerate() {
            for rest in line.split(FOLDER).skip(1) {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
                let page = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
                if page.is_empty() {
                    continue;
                }
                let page = format!("{FOLDER}{page}");
                if repository.text(&page).is_none() {
                    problems.push(Problem::at(path, index + 1, format!("{page} does not exist")));
                }
                named.push(page);
            }
        }
    }
    let pages = repository.named(|path| path.starts_with(FOLDER) && path.ends_with(".md"));
    for (page, _) in pages.filter(|(page, _)| !page.ends_with("README.md")) {
        if !named.iter().any(|name| name == page) {
            problems.push(Problem::of(page, "no source file names this page"));
        }
    }
    problems
}

/// STABILITY.md names each metric of the server, and no other.
fn metrics(repository: &Repository) -> Vec<Problem> {
    const PAGE: &str = "STABILITY.md";
    const PREFIX: &str = "dovetail_";
    let name_at = |rest: &str| {
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        format!("{PREFIX}{}", &rest[..end.unwrap_or(rest.len())])
    };
    let page = repository.text(PAGE).unwrap_or_default();
    let mut promised: Vec<String> = page.split(PREFIX).skip(1).map(name_at).collect();
    let is_source = |path: &str| {
        path.starts_with("crates/observe/src/") && path.ends_with(".rs") && !path.contains("tests")
    };
    let mut problems = Vec::new();
    for (path, text) in repository.named(is_source) {
        for (index, line) in text.lines().enumerate() {
            for name in line.split("\"dovetail_").skip(1).map(name_at) {
                // Parts of a histogram, and names that are put together.
                let is_part =
                    ["_bucket", "_sum", "_count", "_"].iter().any(|end| name.ends_with(end));
                let is_promised = |known: &String| {
                    ["", "_total", "_info"].map(|end| format!("{name}{end}")).contains(known)
                };
                if !is_part && !promised.iter().any(is_promised) {
                    problems.push(Problem::at(path, index + 1, format!("{name} is not in {PAGE}")));
                }
            }
        }
    }
    let shown: Vec<&str> = repository.named(is_source).map(|(_, text)| text).collect();
    promised.retain(|name| {
        let family = name.strip_suffix("_total").or_else(|| name.strip_suffix("_info"));
        let family = family.unwrap_or(name);
        !shown.iter().any(|text| text.contains(family))
    });
    let unknown = |name: &String| Problem::of(PAGE, format!("no source file names {name}"));
    problems.extend(promised.iter().map(unknown));
    problems
}

/// A relative link leads to a file or a folder of the repository.
fn links(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in repository.named(|path| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            for rest in line.split("](").skip(1) {
                let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
                if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let full = resolve(folder, target);
                let below = format!("{full}/");
                let exists = repository.text(&full).is_some()
                    || repository.files.keys().any(|known| known.starts_with(&below));
                if !exists {
                    problems.push(Problem::at(path, index + 1, format!("no such file: {target}")));
                }
            }
        }
    }
    problems
}

/// A link in ARCHITECTURE.md whose text is a name of code leads to a file that defines it.
fn code_links(repository: &Repository) -> Vec<Problem> {
    const PATH: &str = "ARCHITECTURE.md";
    const KINDS: [&str; 5] = ["fn", "struct", "enum", "trait", "mod"];
    let mut problems = Vec::new();
    for (index, line) in repository.text(PATH).unwrap_or_default().lines().enumerate() {
        for rest in line.split("[`").skip(1) {
            let Some((name, rest)) = rest.split_once("`](") else { continue };
            let target = rest.split(')').next().unwrap_or_default();
            let text = repository.text(target).unwrap_or_default();
            let defines = |kind: &str| {
                text.match_indices(&format!("{kind} {name}")).any(|(at, found)| {
                    let after = text[at + found.len()..].chars().next().unwrap_or(' ');
                    !(after.is_alphanumeric() || after == '_')
                })
            };
            if target.ends_with(".rs") && !KINDS.iter().any(|kind| defines(kind)) {
                problems.push(Problem::at(PATH, index + 1, format!("{target} has no `{name}`")));
            }
        }
    }
    problems
}

/// `target` relative to `folder`, without `.` and `..`.
fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

const XTASK: &str = "xtask/src/main.rs";
const CLI: &str = "crates/dovetail/src/cli.rs";
const SETTINGS: &str = "crates/dovetail/src/settings.rs";
const BENCH: &str = "crates/bench/src/args.rs";
const COMPARE: &str = "crates/dovetail/src/compare_command.rs";
const SIM: &str = "crates/dovetail/src/sim_command.rs";
const SIM_MODELS: [&str; 2] =
    ["crates/dovetail/src/sim_command/cache.rs", "crates/dovetail/src/sim_command/cluster.rs"];
const LAB: &str = "lab/src/bin/lab/main.rs";
const COMPARISONS: &str = "lab/src/comparisons.rs";
const PLAN: &str = "crates/dovetail/src/plan_command.rs";

/// Commands in code blocks of the front pages: their subcommands and flags exist.
fn commands(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for path in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"] {
        let mut is_in_block = false;
        for (index, line) in repository.text(path).unwrap_or_default().lines().enumerate() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                is_in_block = !is_in_block && language == "sh";
            } else if is_in_block && let Some(unknown) = unknown_word(repository, line) {
                problems.push(Problem::at(path, index + 1, format!("there is no `{unknown}`")));
            }
        }
    }
    problems
}

/// The first word of a command line of ours that the code does not know.
fn unknown_word(repository: &Repository, line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or_default().trim_start_matches("$ ").trim();
    let has =
        |path: &str, needle: &str| repository.text(path).is_some_and(|text| text.contains(needle));
    if let Some(rest) = line.strip_prefix("cargo xtask ") {
        let name = rest.split(' ').next().unwrap_or_default();
        return (!has_command(repository, XTASK, name)).then(|| format!("cargo xtask {name}"));
    }
    if let Some(rest) = line.strip_prefix("cargo run -p lab --release -- ") {
        return unknown_word_of_lab(repository, rest);
    }
    let rest = line
        .strip_prefix("cargo run --release -- ")
        .or_else(|| line.strip_prefix("target/release/dovetail "))
        .or_else(|| line.strip_prefix("dovetail "))?;
    let mut words = rest.split([' ', '=']);
    let subcommand = words.next().unwrap_or_default();
    let is_known =
        [CLI, SIM, PLAN].iter().any(|path| has(path, &format!("Command::new(\"{subcommand}\")")))
            || ["config", "doctor"].contains(&subcommand);
    if !is_known {
        return Some(format!("dovetail {subcommand}"));
    }
    let is_flag_known = |flag: &str| match subcommand {
        "serve" => has(SETTINGS, &format!("key: \"{flag}\"")) || has(CLI, &format!("\"{flag}\"")),
        "bench" => {
            has(BENCH, &format!("pub {}:", flag.replace('-', "_")))
                || has(COMPARE, &format!(".long(\"{flag}\")"))
        }
        "sim" => SIM_MODELS.iter().any(|path| has(path, &field(flag))),
        "plan" => has(PLAN, &field(flag)),
        _ => true,
    };
    words
        .filter_map(|word| word.strip_prefix("--"))
        .find(|flag| !is_flag_known(flag))
        .map(|flag| format!("dovetail {subcommand} --{flag}"))
}

/// The same behind `lab`: a comparison has flags of its own, all figures share theirs.
fn unknown_word_of_lab(repository: &Repository, words: &str) -> Option<String> {
    let mut words = words.split([' ', '=']);
    let name = words.next().unwrap_or_default();
    let sources: Vec<&str> = if has_command(repository, COMPARISONS, name) {
        let files = repository.named(|path| path.starts_with("lab/src/comparisons/"));
        files.map(|(_, text)| text).collect()
    } else {
        repository.text(LAB).into_iter().collect()
    };
    let mut flags = words.filter_map(|word| word.strip_prefix("--"));
    let is_known = |flag: &str| sources.iter().any(|text| text.contains(&field(flag)));
    flags.find(|flag| !is_known(flag)).map(|flag| format!("lab {name} --{flag}"))
}

/// Whether the commands in `path` have one of this name.
fn has_command(repository: &Repository, path: &str, name: &str) -> bool {
    let variant: String = name.split('-').map(capitalised).collect();
    let text = repository.text(path).unwrap_or_default();
    [",", "(", " {"].iter().any(|end| text.contains(&format!("    {variant}{end}")))
}

/// How a flag stands among the fields of its command.
fn field(flag: &str) -> String {
    format!("    {}:", flag.replace('-', "_"))
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::{expect, expect_all};

    fn decision(number: &str, without: &str) -> String {
        let parts = DECISION_PARTS.iter().filter(|part| **part != without);
        let body: String = parts.map(|part| format!("## {part}\nWords.\n")).collect();
        format!("# {number} A title\n{body}")
    }

    #[test]
    fn a_link_to_code_that_has_moved_is_found() {
        let source =
            ("crates/server/src/worker.rs", "impl Worker { fn round_up() {} fn run() {} }");
        let page = |name: &str| format!("- [`{name}`](crates/server/src/worker.rs)\n");
        let (good, bad) = (page("run"), page("round"));
        expect_all(code_links, &[("ARCHITECTURE.md", &good), source], &[]);
        expect_all(code_links, &[("ARCHITECTURE.md", &bad), source], &["has no `round`"]);
    }

    #[test]
    fn a_gap_in_the_decisions_is_found() {
        let (one, three) = (decision("0001", ""), decision("0003", ""));
        let files = [("docs/decisions/0001-a.md", &*one), ("docs/decisions/0003-b.md", &*three)];
        expect_all(decisions, &files, &["0003-b.md: the next number is 0002"]);
        expect_all(decisions, &files[..1], &[]);
    }

    #[test]
    fn a_decision_without_a_part_is_found() {
        let text = decision("0001", "Alternatives");
        let want = ["the part `## Alternatives` is missing"];
        expect(decisions, "docs/decisions/0001-a.md", &text, &want);
        let text = decision("0002", "");
        expect(decisions, "docs/decisions/0001-a.md", &text, &["the title starts with"]);
    }

    #[test]
    fn format_pages_and_code_name_each_other() {
        let code = ("crates/store/src/entry.rs", "//! See docs/formats/entry.md.\n");
        expect_all(formats, &[code], &["docs/formats/entry.md does not exist"]);
        expect_all(formats, &[code, ("docs/formats/entry.md", "")], &[]);
        let page = [("docs/formats/lone.md", "")];
        expect_all(formats, &page, &["lone.md: no source file names this page"]);
    }

    #[test]
    fn a_dead_link_is_found() {
        expect(links, "docs/a.md", "see [b](../b.md)", &["docs/a.md:1: no such file: ../b.md"]);
        let live = [("docs/a.md", "[b](../b.md#part), [c](c/), [d](https://x/y)"), ("b.md", "")];
        expect_all(links, &[live[0], live[1], ("docs/c/d.md", "")], &[]);
    }

    #[test]
    fn a_command_that_does_not_exist_is_found() {
        let code = [
            (XTASK, "    Ci,\n    DemoCluster(Args),\n"),
            (CLI, "Command::new(\"serve\") Command::new(\"bench\") .long(\"print-config\")"),
            (SETTINGS, "key: \"memory\","),
            (BENCH, "    pub key_size: u64,"),
            (SIM, "Command::new(\"sim\")"),
            (SIM_MODELS[1], "    seed: u64,"),
            (LAB, "    out: PathBuf,"),
            (COMPARISONS, "    ColdStart(Args),\n"),
            ("lab/src/comparisons/cold_start.rs", "    entries: u64,"),
        ];
        let check = |line: &str, want: &[&str]| {
            let readme = format!("dovetail nonsense outside of a block\n```sh\n{line}\n```\n");
            let mut files = code.to_vec();
            files.push(("README.md", &readme));
            expect_all(commands, &files, want);
        };
        check("cargo xtask ci", &[]);
        check("cargo xtask demo-cluster # minutes", &[]);
        check("cargo xtask deploy", &["README.md:3: there is no `cargo xtask deploy`"]);
        check("cargo run --release -- serve --memory 1g", &[]);
        check("cargo run --release -- serve --memroy 1g", &["dovetail serve --memroy"]);
        check("$ dovetail bench --key-size=8", &[]);
        check("dovetail bench --speed 9", &["dovetail bench --speed"]);
        check("dovetail sim cluster --seed 3", &[]);
        check("dovetail sim cluster --sed 3", &["dovetail sim --sed"]);
        check("cargo run -p lab --release -- c4-fig3 --out out", &[]);
        check("cargo run -p lab --release -- c4-fig3 --into out", &["lab c4-fig3 --into"]);
        check("cargo run -p lab --release -- cold-start --entries 9", &[]);
        check("cargo run -p lab --release -- cold-start --out out", &["lab cold-start --out"]);
        check("dovetail fly", &["dovetail fly"]);
    }
}
