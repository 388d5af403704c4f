//! Bad samples for each rule of the supply chain.

use serde_json::json;

use super::*;
use crate::tidy::testing::expect_all;

fn package(name: &str, version: &str) -> Package {
    Package {
        name: name.to_owned(),
        version: version.to_owned(),
        licence: Some("MIT".to_owned()),
        source: Some(REGISTRY.to_owned()),
        is_member: false,
    }
}

#[track_caller]
fn check(rule: fn(&[Package]) -> Vec<Problem>, packages: &[Package], want: &[&str]) {
    let found: Vec<String> = rule(packages).iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), want.len(), "{found:?}");
    for (found, want) in found.iter().zip(want) {
        assert!(found.contains(want), "{found} has no {want}");
    }
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    let with = |name: &str, licence: Option<&str>| Package {
        licence: licence.map(str::to_owned),
        ..package(name, "1.0.0")
    };
    check(licences, &[with("a", Some("MIT OR GPL-3.0"))], &[]);
    check(licences, &[with("a", Some("GPL-3.0-only"))], &["a 1.0.0: licence GPL-3.0-only"]);
    check(licences, &[with("a", None)], &["a 1.0.0: names no licence"]);
    check(licences, &[with("cbindgen", Some("MPL-2.0"))], &[]);
    check(licences, &[with("other", Some("MPL-2.0"))], &["other 1.0.0: licence MPL-2.0"]);
    let ours = Package { is_member: true, source: None, ..with("ours", None) };
    check(licences, &[ours], &[]);
}

#[test]
fn expressions_of_licences_are_read_by_their_rules() {
    for good in [
        "MIT",
        "MIT/GPL-2.0",
        "GPL-2.0 OR Apache-2.0 WITH LLVM-exception",
        "MIT AND BSD-3-Clause",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "MIT OR Apache-2.0 AND GPL-3.0",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "Apache-2.0 WITH Other-exception",
        "(MIT OR GPL-3.0) AND GPL-2.0",
        "(MIT",
        "MIT Apache-2.0",
        "mit",
    ] {
        assert!(!is_allowed(bad), "{bad}");
    }
}

#[test]
fn a_source_besides_the_registry_is_found() {
    let from = |source: Option<&str>, is_member| Package {
        source: source.map(str::to_owned),
        is_member,
        ..package("a", "1.0.0")
    };
    check(sources, &[package("a", "1.0.0"), from(None, true)], &[]);
    check(sources, &[from(None, false)], &["a path outside the workspace"]);
    check(sources, &[from(Some("git+https://example.org/a#1"), false)], &["git+https://example"]);
    check(sources, &[from(Some("registry+https://example.org/"), false)], &["registry+https://e"]);
}

#[test]
fn a_banned_package_is_found() {
    check(bans, &[package("openssl-sys", "0.9.0")], &["openssl-sys 0.9.0: is banned: TLS is"]);
    check(bans, &[package("openssl-probe", "0.1.0")], &[]);
}

#[test]
fn a_copy_that_is_new_or_gone_is_found() {
    let known: Vec<Package> = COPIES
        .iter()
        .flat_map(|name| [package(name, "1.0.0"), package(name, "2.0.0")])
        .chain([package("alone", "1.0.0")])
        .collect();
    check(copies, &known, &[]);
    let more = [&known[..], &[package("alone", "3.0.0")]].concat();
    check(copies, &more, &["alone: comes in versions 1.0.0, 3.0.0"]);
    check(copies, &known[1..], &["ahash has one version"]);
}

#[test]
fn packages_are_read_from_what_cargo_prints() {
    let metadata = json!({
        "packages": [
            { "name": "ours", "version": "0.1.0", "id": "path+ours", "license": "MIT" },
            { "name": "a", "version": "1.0.0", "id": "a 1", "license": "MIT", "source": REGISTRY },
        ],
        "workspace_members": ["path+ours"],
        "resolve": { "nodes": [
            { "id": "path+ours", "deps": [
                { "pkg": "a 1", "dep_kinds": [{ "kind": null }] },
            ] },
            { "id": "a 1", "deps": [{ "pkg": "path+ours", "dep_kinds": [{ "kind": "dev" }] }] },
        ] },
    });
    let ours = Package { is_member: true, source: None, ..package("ours", "0.1.0") };
    assert_eq!(packages(&metadata), [ours, package("a", "1.0.0")]);
    let want = BTreeMap::from([("a".to_owned(), BTreeSet::from(["ours".to_owned()]))]);
    assert_eq!(parents(&metadata), want);
}

#[test]
fn the_list_has_a_row_for_each_foreign_package_and_its_purpose() {
    let tree = "dovetail v0.1.0 (/x)|MIT\na v1.0.0|MIT OR ISC\nb v2.0.0|MIT (*)\n\
                a v1.0.0|MIT OR ISC (*)\n";
    let parents = BTreeMap::from([(
        "b".to_owned(),
        BTreeSet::from(["a".to_owned(), "not-linked".to_owned()]),
    )]);
    let reasons = BTreeMap::from([("a".to_owned(), "Numbers.".to_owned())]);
    let list = list(tree, &parents, &reasons);
    assert!(list.contains(": 2 of them"), "{list}");
    let rows = "| `a` | 1.0.0 | MIT OR ISC | Numbers. |\n| `b` | 2.0.0 | MIT | of `a` |\n";
    assert!(list.ends_with(rows), "{list}");
}

#[test]
fn a_dependency_that_nothing_uses_is_found() {
    let manifest = "[dependencies]\nitoa.workspace = true # Numbers.\n\
                    [target.'cfg(unix)'.dev-dependencies]\nmem-chr.workspace = true # Bytes.\n";
    let with = |source: &str, want: &[&str]| {
        expect_all(
            unused,
            &[("crates/x/Cargo.toml", manifest), ("crates/x/src/lib.rs", source)],
            want,
        );
    };
    with("use itoa::Buffer;\nmem_chr::find();\n", &[]);
    with("// itoa\nuse itoas::Buffer;\nuse mem_chr;\n", &["nothing uses itoa"]);
    with("use itoa::Buffer;\n", &["nothing uses mem-chr"]);
}

#[test]
fn a_name_of_the_workspace_that_no_crate_takes_is_found() {
    let root = "[workspace.dependencies]\nitoa = \"1\"\nhistogram = \"1\"\n";
    let member = "[dependencies]\nitoa.workspace = true\n";
    let files = [("Cargo.toml", root), ("crates/x/Cargo.toml", member)];
    expect_all(unnamed, &files, &["no crate takes histogram"]);
}
