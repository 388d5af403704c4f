//! Checks that include/dovetail.h declares the exported functions; with the feature `header`, that
//! it equals cbindgen's output byte for byte. UPDATE_HEADER=1 rewrites it.
#[cfg(feature = "header")]
use std::path::Path;
use std::path::PathBuf;

#[cfg(feature = "header")]
fn generated(root: &Path) -> String {
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    config.header = Some(dovetail_client::HEADER.to_owned());
    let sources = ["types", "boundary", "calls"].map(|name| root.join(format!("src/{name}.rs")));
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = sources.iter().fold(builder, |builder, path| builder.with_src(path));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    // Rust's heading says nothing to a reader of C; the rules are at the top.
    let text = String::from_utf8(text).unwrap();
    text.replace("//\n// # Safety\n// The rules at the top of the header.\n", "")
}

/// The names behind `mark` up to the next parenthesis, sorted.
fn names(text: &str, mark: &str) -> Vec<String> {
    let parts = text.split(mark).skip(1).filter_map(|rest| rest.split_once('('));
    let mut names: Vec<String> = parts.map(|(name, _)| name.trim().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_header_declares_every_call_and_no_other() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let sources = std::fs::read_to_string(root.join("src/calls.rs")).unwrap();
    let exported = names(&sources, "extern \"C\" fn ");
    let header = std::fs::read_to_string(root.join("include/dovetail.h")).unwrap();
    let is_comment = |line: &str| ["//", "/*", " *"].iter().any(|start| line.starts_with(start));
    let code: String = header.lines().filter(|line| !is_comment(line)).collect();
    let declared: Vec<&String> =
        exported.iter().filter(|name| code.contains(&format!("{name}("))).collect();
    assert!(exported.len() > 5, "{exported:?}");
    assert_eq!(declared.len(), exported.len(), "{exported:?}");
    assert_eq!(code.matches("(").count(), exported.len(), "a declaration without a call");
}

#[cfg(feature = "header")]
#[test]
fn the_header_is_what_the_sources_say() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let (path, want) = (root.join("include/dovetail.h"), generated(&root));
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &want).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(
        found == want,
        "include/dovetail.h is old: UPDATE_HEADER=1 cargo test -p client-c --features header"
    );
    assert!(!want.contains("# Safety"), "a heading of Rust is left in the header");
}
