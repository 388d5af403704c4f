//! include/dovetail.h is what cbindgen makes of the sources. UPDATE_HEADER=1 writes it anew.
use std::path::{Path, PathBuf};

fn generated(root: &Path) -> String {
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    config.header = Some(dovetail_client::HEADER.to_owned());
    let sources = ["types", "boundary", "calls"].map(|name| root.join(format!("src/{name}.rs")));
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = sources.iter().fold(builder, |builder, path| builder.with_src(path));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    // Rust's heading says nothing to a reader of C, who has the rules at the top.
    let text = String::from_utf8(text).unwrap();
    text.replace("//\n// # Safety\n// The rules at the top of the header.\n", "")
}

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
        "include/dovetail.h is old: UPDATE_HEADER=1 cargo test -p client-c --test main header"
    );
    assert!(!want.contains("# Safety"), "a heading of Rust is left in the header");
}
