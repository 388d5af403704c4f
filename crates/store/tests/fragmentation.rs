//! Tests of the log's use of space, in suites/fragmentation.rs, with each index.

#[path = "suites/fragmentation.rs"]
mod with_hash;
#[path = "suites/fragmentation.rs"]
#[allow(clippy::duplicate_mod)] // The same tests with another index.
mod with_tree;

/// The index that the name of a copy of the suite stands for.
fn index_kind(module: &str) -> store::IndexKind {
    match module.ends_with("with_tree") {
        true => store::IndexKind::Tree,
        false => store::IndexKind::Hash,
    }
}
