//! Reads redis.conf as Redis and Valkey do.
//!
//! ```text
//!  "maxmemory 2gb  # no comment"  ─▶ words ─▶ Directive ─▶ translate ─▶ Setting | Ignored
//! ```
//!
//! # Invariants
//! I1: a line is split as Redis splits it: double quotes with \n, \xHH and the like, single quotes
//!     with \' only; a `#` begins a comment only at the line's beginning.
//! I2: the list of ignored directives never contains a password.

mod translate;

use wire::resp::split_words;

pub use translate::import;

/// A line that is not a directive, or that Redis would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Mistake {
    /// From 1 on.
    pub line: usize,
    /// The error text.
    pub what: &'static str,
}

/// One directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Its line, from 1 on.
    pub line: usize,
    /// The name in lower case.
    pub name: String,
    /// Its arguments.
    pub values: Vec<Vec<u8>>,
}

impl Directive {
    /// An argument as text; empty if it is missing or not text.
    fn text(&self, index: usize) -> &str {
        self.values.get(index).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
    }
}

/// The directives of a file, in order.
///
/// # Errors
/// Quotes that are not closed; the first such line.
pub fn directives(file: &[u8]) -> Result<Vec<Directive>, Mistake> {
    let mut found = Vec::new();
    for (index, line) in file.split(|byte| *byte == b'\n').enumerate() {
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() || trimmed.starts_with(b"#") {
            continue;
        }
        let line = index + 1;
        let what = "quotes are not closed, or something follows them without a space";
        let mut words = split_words(trimmed).ok_or(Mistake { line, what })?.into_iter();
        let Some(name) = words.next() else { continue };
        let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
        found.push(Directive { line, name, values: words.collect() });
    }
    Ok(found)
}
