//! The reviewed list of intended differences between this server and Redis 7.0, with reasons.
//!
//! Each entry is in docs/compatibility.md with its reason, under the same name.

use super::commands::Words;
use super::reply::Reply;

/// One entry: its name, and a function that says whether it explains two replies to a command.
struct Difference {
    name: &'static str,
    explains: fn(&Seen<'_>) -> bool,
}

/// Two replies that differ.
struct Seen<'s> {
    words: &'s Words,
    ours: &'s Reply,
    theirs: &'s Reply,
}

impl Seen<'_> {
    fn is(&self, names: &[&str]) -> bool {
        let words = self.words.iter().zip(names);
        self.words.len() >= names.len()
            && words.into_iter().all(|(word, name)| word.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Whether both are bulk strings, and the original's has this body.
    fn answers(&self, bodies: &[&str]) -> bool {
        let has = |reply: &Reply| {
            let Reply::One(bytes) = reply else { return false };
            let body = bytes.strip_suffix(b"\r\n").unwrap_or(bytes);
            bodies.iter().any(|it| body.ends_with(format!("\n{it}").as_bytes()))
        };
        has(self.ours) && has(self.theirs)
    }

    fn are_integers(&self) -> bool {
        self.ours.integer().is_some() && self.theirs.integer().is_some()
    }
}

/// Whether a bulk or verbatim string begins with this text.
fn has_body(bytes: &[u8], start: &[u8]) -> bool {
    let body = bytes.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default();
    body.starts_with(start) || body.strip_prefix(b"txt:").is_some_and(|it| it.starts_with(start))
}

const DIFFERENCES: [Difference; 11] = [
    Difference {
        name: "HELLO tells another version and id",
        explains: |seen| {
            let shape = |reply: &Reply| match reply {
                Reply::Many(marker, items) => Some((*marker, items.len())),
                _ => None,
            };
            seen.is(&["HELLO"])
                && shape(seen.ours).is_some()
                && shape(seen.ours) == shape(seen.theirs)
        },
    },
    Difference {
        name: "OBJECT ENCODING tells what a fresh value would have",
        explains: |seen| {
            seen.is(&["OBJECT", "ENCODING"]) && seen.answers(&["raw", "embstr", "int"])
        },
    },
    Difference {
        name: "OBJECT REFCOUNT is 1",
        explains: |seen| seen.is(&["OBJECT", "REFCOUNT"]) && seen.are_integers(),
    },
    Difference {
        name: "OBJECT IDLETIME is 0",
        explains: |seen| seen.is(&["OBJECT", "IDLETIME"]) && seen.are_integers(),
    },
    Difference {
        name: "MEMORY USAGE tells the bytes of our log",
        explains: |seen| seen.is(&["MEMORY", "USAGE"]) && seen.are_integers(),
    },
    Difference {
        name: "DBSIZE counts what has expired until a client meets it",
        explains: |seen| seen.is(&["DBSIZE"]) && seen.are_integers(),
    },
    Difference {
        name: "CLIENT LIST tells our own numbers",
        explains: |seen| {
            let is_list = |reply: &Reply| matches!(reply, Reply::One(it) if has_body(it, b"id="));
            seen.is(&["CLIENT", "LIST"]) && is_list(seen.ours) && is_list(seen.theirs)
        },
    },
    Difference {
        name: "Errors of subcommands name them in lower case within EXEC",
        explains: |seen| {
            let lower = |reply: &Reply| reply.shown().to_ascii_lowercase();
            let theirs = lower(seen.theirs);
            theirs.contains("unknown subcommand or wrong number") && lower(seen.ours) == theirs
        },
    },
    Difference {
        name: "HELLO reads all its options first",
        explains: |seen| {
            let is_error = |reply: &Reply, start: &[u8]| match reply {
                Reply::One(bytes) => bytes.starts_with(start),
                _ => false,
            };
            seen.is(&["HELLO"])
                && is_error(seen.ours, b"-ERR Syntax error in HELLO")
                && is_error(seen.theirs, b"-WRONGPASS")
        },
    },
    Difference {
        name: "BITCOUNT and BITPOS look at their arguments first",
        explains: |seen| {
            let is_error = |reply: &Reply| matches!(reply, Reply::One(it) if it.starts_with(b"-"));
            let is_absent = matches!(seen.theirs.integer(), Some(0 | -1));
            (seen.is(&["BITCOUNT"]) || seen.is(&["BITPOS"])) && is_error(seen.ours) && is_absent
        },
    },
    Difference {
        name: "DUMP does not compress",
        explains: |seen| {
            let is_compressed =
                |reply: &Reply| matches!(reply, Reply::One(it) if has_body(it, b"\0\xc3"));
            seen.is(&["DUMP"]) && is_compressed(seen.theirs) && !is_compressed(seen.ours)
        },
    },
];

/// The number of differences that each entry explained.
#[derive(Default)]
pub struct Hits([u64; DIFFERENCES.len()]);

impl Hits {
    /// Whether some entry explains the difference.
    pub fn explain(&mut self, words: &Words, ours: &Reply, theirs: &Reply) -> bool {
        let seen = Seen { words, ours, theirs };
        let found = DIFFERENCES.iter().position(|it| (it.explains)(&seen));
        if let Some(entry) = found {
            self.0[entry] += 1;
        }
        found.is_some()
    }

    /// Entries that explained nothing.
    pub fn stale(&self) -> Vec<&'static str> {
        let unhit = DIFFERENCES.iter().zip(&self.0).filter(|(_, hits)| **hits == 0);
        unhit.map(|(difference, _)| difference.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_has_its_reason_in_the_documentation() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = std::fs::read_to_string(root.join("docs/compatibility.md")).expect("the page");
        for Difference { name, .. } in &DIFFERENCES {
            assert!(page.contains(name), "docs/compatibility.md does not explain: {name}");
        }
    }

    #[test]
    fn an_entry_explains_only_its_own_command() {
        let mut hits = Hits::default();
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let one = |text: &str| Reply::One(text.as_bytes().to_vec());
        let (ours, theirs) = (one(":1\r\n"), one(":2147483647\r\n"));
        assert!(hits.explain(&words("object refcount a"), &ours, &theirs));
        assert!(!hits.explain(&words("STRLEN a"), &ours, &theirs));
        assert!(!hits.explain(&words("OBJECT REFCOUNT a"), &ours, &one("-ERR\r\n")));
        assert_eq!(hits.stale().len(), DIFFERENCES.len() - 1);
    }
}
