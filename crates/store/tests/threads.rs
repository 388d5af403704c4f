//! Tests with several threads, in suites/threads.rs, with each index.

#[path = "suites/threads.rs"]
mod with_hash;
#[path = "suites/threads.rs"]
#[allow(clippy::duplicate_mod)] // The same tests with another index.
mod with_tree;

/// The index that the name of a copy of the suite stands for.
fn index_kind(module: &str) -> store::IndexKind {
    match module.ends_with("with_tree") {
        true => store::IndexKind::Tree,
        false => store::IndexKind::Hash,
    }
}
