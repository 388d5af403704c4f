//! Rules for the supply chain: licences, sources, bans, copies, and the crates that the binary
//! links.
//!
//! ```text
//!  cargo metadata ─▶ packages ─▶ licences, sources, bans, copies
//!  cargo tree of the binary ─▶ docs/dependencies.md     (UPDATE_DOCS=1 writes it)
//!  manifests and sources ─▶ dependencies that nothing uses
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use toml::Table;

use crate::tidy::{Problem, Repository};

/// Licences of dependencies under which this project may be shipped.
const LICENCES: [&str; 9] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unicode-3.0",
];

/// Further licences, for tools that are in no binary.
const TOOLS: [(&str, &str); 2] =
    [("cbindgen", "MPL-2.0"), ("libfuzzer-sys", "(MIT OR Apache-2.0) AND NCSA")];

/// The only source of packages.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Banned packages, also as indirect dependencies, and the reasons.
const BANNED: [(&str, &str); 7] = [
    ("openssl", "TLS is rustls's"),
    ("openssl-sys", "TLS is rustls's"),
    ("native-tls", "TLS is rustls's"),
    ("aws-lc-rs", "rustls is built on ring: aws-lc needs cmake"),
    ("aws-lc-sys", "rustls is built on ring: aws-lc needs cmake"),
    ("async-std", "the one runtime is tokio, at the admin port and to ZooKeeper"),
    ("reqwest", "one GET is src/http.rs's"),
];

/// Packages that other packages pull in in several versions.
const COPIES: [&str; 14] = [
    "ahash",
    "crypto-common",
    "digest",
    "embedded-io",
    "getrandom",
    "hashbrown",
    "heck",
    "syn",
    "thiserror",
    "thiserror-impl",
    "toml",
    "toml_datetime",
    "toml_edit",
    "winnow",
];

/// The list of the binary's dependencies.
const LIST: &str = "docs/dependencies.md";

/// The targets of releases.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A package of the whole workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// `None`: a path.
    source: Option<String>,
    is_member: bool,
}

impl Package {
    fn place(&self) -> String {
        format!("Cargo.lock: {} {}", self.name, self.version)
    }
}

/// Rules about manifests and sources alone.
pub fn check(repository: &Repository) -> Vec<Problem> {
    [unused, unnamed].iter().flat_map(|rule| rule(repository)).collect()
}

/// The problems that a rule finds in all packages.
type Rule = fn(&[Package]) -> Vec<Problem>;

/// Rules about resolved dependencies.
pub fn check_resolved(root: &Path, repository: &Repository) -> Result<Vec<Problem>> {
    let arguments =
        ["metadata", "--format-version", "1", "--all-features", "--filter-platform", TARGET];
    let metadata = cargo(root, &arguments)?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is no JSON")?;
    let packages = packages(&metadata);
    let rules: [Rule; 4] = [licences, sources, bans, copies];
    let mut problems: Vec<Problem> = rules.iter().flat_map(|rule| rule(&packages)).collect();
    let tree = cargo(
        root,
        &[
            "tree",
            "--package",
            "dovetail",
            "--edges",
            "normal,no-proc-macro",
            "--target",
            TARGET,
            "--prefix",
            "none",
            "--format",
            "{p}|{l}",
        ],
    )?;
    let list = list(&tree, &parents(&metadata), &reasons(repository));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root.join(LIST), list).with_context(|| format!("cannot write {LIST}"))?;
    } else if repository.text(LIST) != Some(&list) {
        let message = "is not what the binary links: run UPDATE_DOCS=1 cargo xtask tidy";
        problems.push(Problem::of(LIST, message));
    }
    Ok(problems)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("cargo")
        .args(arguments)
        .arg("--locked")
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "cargo {} failed: {words}", arguments[0]);
    String::from_utf8(output.stdout).context("what cargo prints is UTF-8")
}

fn packages(metadata: &Value) -> Vec<Package> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let members: BTreeSet<_> =
        array(&metadata["workspace_members"]).map(Value::to_string).collect();
    array(&metadata["packages"])
        .map(|package| Package {
            name: text(&package["name"]).unwrap_or_default(),
            version: text(&package["version"]).unwrap_or_default(),
            licence: text(&package["license"]),
            source: text(&package["source"]),
            is_member: members.contains(&package["id"].to_string()),
        })
        .collect()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn licences(packages: &[Package]) -> Vec<Problem> {
    let foreign = packages.iter().filter(|package| !package.is_member);
    foreign
        .filter_map(|package| {
            let Some(licence) = &package.licence else {
                return Some(Problem::of(&package.place(), "names no licence"));
            };
            let is_tool = TOOLS.contains(&(package.name.as_str(), licence.as_str()));
            let message =
                format!("licence {licence} is not among those of xtask/src/tidy/supply.rs");
            (!is_tool && !is_allowed(licence)).then(|| Problem::of(&package.place(), message))
        })
        .collect()
}

/// Whether an expression of SPDX can be met with [`LICENCES`] alone. `/` is an old `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at) && at == words.len()
}

fn any(words: &[&str], at: &mut usize) -> bool {
    let mut is_good = all(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        is_good |= all(words, at);
    }
    is_good
}

fn all(words: &[&str], at: &mut usize) -> bool {
    let mut is_good = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        is_good &= one(words, at);
    }
    is_good
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let is_good = any(words, at);
        let is_closed = words.get(*at) == Some(&")");
        *at += 1;
        return is_good && is_closed;
    }
    let mut name = (*word).to_owned();
    if let (Some(&"WITH"), Some(exception)) = (words.get(*at), words.get(*at + 1)) {
        name = format!("{name} WITH {exception}");
        *at += 2;
    }
    LICENCES.contains(&name.as_str())
}

fn sources(packages: &[Package]) -> Vec<Problem> {
    let is_foreign = |package: &&Package| match package.source.as_deref() {
        Some(source) => source != REGISTRY,
        None => !package.is_member,
    };
    packages
        .iter()
        .filter(is_foreign)
        .map(|package| {
            let source = package.source.as_deref().unwrap_or("a path outside the workspace");
            Problem::of(&package.place(), format!("comes from {source}, not from crates.io"))
        })
        .collect()
}

fn bans(packages: &[Package]) -> Vec<Problem> {
    let why = |package: &Package| {
        let (_, reason) = BANNED.iter().find(|(name, _)| *name == package.name)?;
        Some(Problem::of(&package.place(), format!("is banned: {reason}")))
    };
    packages.iter().filter_map(why).collect()
}

/// Each duplicate package is listed, and each listed one exists.
fn copies(packages: &[Package]) -> Vec<Problem> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let unknown = versions.iter().filter(|(name, _)| !COPIES.contains(name)).map(|(name, all)| {
        let all: Vec<_> = all.iter().copied().collect();
        let message = format!("comes in versions {}; use one, or add it to COPIES", all.join(", "));
        Problem::of(&format!("Cargo.lock: {name}"), message)
    });
    let gone = COPIES.iter().filter(|name| !versions.contains_key(*name)).map(|name| {
        Problem::of("xtask/src/tidy/supply.rs", format!("{name} has one version: leave it out"))
    });
    unknown.chain(gone).collect()
}

/// The packages that use a package.
fn parents(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeMap<String, &str> = array(&metadata["packages"])
        .map(|package| (package["id"].to_string(), package["name"].as_str().unwrap_or_default()))
        .collect();
    let mut parents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in array(&metadata["resolve"]["nodes"]) {
        let Some(parent) = names.get(&node["id"].to_string()) else { continue };
        for dependency in array(&node["deps"]) {
            let is_normal = array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
            if let Some(name) = names.get(&dependency["pkg"].to_string()).filter(|_| is_normal) {
                parents.entry((*name).to_owned()).or_default().insert((*parent).to_owned());
            }
        }
    }
    parents
}

/// The purpose of a package, from the first of our manifests that states it.
fn reasons(repository: &Repository) -> BTreeMap<String, String> {
    let mut reasons = BTreeMap::new();
    let manifests = repository.named(|path| {
        path.ends_with("/Cargo.toml") && path.starts_with("crates/") && !path.contains("/peers/")
    });
    for line in manifests.flat_map(|(_, text)| text.lines()) {
        if let (Some((name, _)), Some((_, reason))) =
            (line.split_once(['.', ' ']), line.split_once(" # "))
        {
            reasons.entry(name.to_owned()).or_insert_with(|| reason.to_owned());
        }
    }
    reasons
}

/// The text of [`LIST`].
fn list(
    tree: &str,
    parents: &BTreeMap<String, BTreeSet<String>>,
    reasons: &BTreeMap<String, String>,
) -> String {
    let mut linked: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for line in tree.lines() {
        let Some((package, licence)) = line.split_once('|') else { continue };
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        // Ours have a path behind the version.
        if !package.contains("(/") {
            let licence = licence.trim_end_matches("(*)").trim_end();
            linked.insert((name, version.trim_start_matches('v')), licence);
        }
    }
    let mut text = format!(
        "# What the binary links\n\n\
         Packages of crates.io that are in `dovetail` for {TARGET}: {} of them.\n\
         `cargo xtask tidy` compares this page with what cargo resolves, and checks licences,\n\
         sources, bans and copies (`xtask/src/tidy/supply.rs`);\n\
         `UPDATE_DOCS=1 cargo xtask tidy` writes it.\n\n\
         | package | version | licence | what for |\n|---|---|---|---|\n",
        linked.len()
    );
    let is_linked = |name: &str| linked.keys().any(|(known, _)| *known == name);
    for ((name, version), licence) in &linked {
        let purpose = reasons.get(*name).cloned().unwrap_or_else(|| {
            let of = parents.get(*name).into_iter().flatten();
            let of: Vec<String> =
                of.filter(|parent| is_linked(parent)).map(|parent| format!("`{parent}`")).collect();
            format!("of {}", of.join(", "))
        });
        text.push_str(&format!("| `{name}` | {version} | {licence} | {purpose} |\n"));
    }
    text
}

/// A crate's code names each of its dependencies.
fn unused(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in repository.named(|path| path.ends_with("/Cargo.toml")) {
        let (Ok(manifest), Some(folder)) = (text.parse::<Table>(), path.strip_suffix("Cargo.toml"))
        else {
            continue;
        };
        let is_source = |path: &str| path.starts_with(folder) && path.ends_with(".rs");
        let sources: Vec<&str> = repository.named(is_source).map(|(_, text)| text).collect();
        for name in dependencies(&manifest) {
            let identifier = name.replace('-', "_");
            if !sources.iter().any(|text| mentions(text, &identifier)) {
                problems.push(Problem::of(path, format!("nothing uses {name}: leave it out")));
            }
        }
    }
    problems
}

/// The dependencies in a manifest, of every kind and for every target.
fn dependencies(manifest: &Table) -> BTreeSet<&str> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let of_targets = targets.into_iter().flat_map(Table::values).filter_map(toml::Value::as_table);
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    std::iter::once(manifest)
        .chain(of_targets)
        .flat_map(|part| kinds.iter().filter_map(|kind| part.get(*kind)?.as_table()))
        .flat_map(|table| table.keys().map(String::as_str))
        .collect()
}

/// Whether code, not a comment, has this word.
fn mentions(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).any(|code| {
        code.match_indices(word).any(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + word.len()..]);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
    })
}

/// Each dependency of the workspace is used by some member.
fn unnamed(repository: &Repository) -> Vec<Problem> {
    let Some(root) = repository.text("Cargo.toml").and_then(|text| text.parse::<Table>().ok())
    else {
        return Vec::new();
    };
    let named = root.get("workspace").and_then(|it| it.get("dependencies")?.as_table());
    let manifests: Vec<Table> = repository
        .named(|path| path.ends_with("/Cargo.toml"))
        .filter_map(|(_, text)| text.parse().ok())
        .collect();
    let is_taken = |name: &str| manifests.iter().any(|it| dependencies(it).contains(name));
    let names = named.into_iter().flat_map(Table::keys);
    names
        .filter(|name| !is_taken(name))
        .map(|name| Problem::of("Cargo.toml", format!("no crate takes {name}: leave it out")))
        .collect()
}

#[cfg(test)]
mod tests;
