//! The arguments that COMMAND DOCS reports, parsed from the row of each command.
//!
//! ```text
//!  key:k#0 value:s condition:o@2.6.12?(nx:t=NX xx:t=XX)
//!  │   │ │         │        │     │└ of which these
//!  │   │ └ the first key specification      └ optional; * several; + with their token
//!  │   └ type: s i d k p u t o b     └ since 2.6.12; !2.8 deprecated since; =NX: its word
//!  └ name
//! ```
//!
//! # Invariants
//! A1: the arguments of every row are parsed to its end (a test checks this).

use wire::resp::{Encoder, Spec};

/// One argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Argument {
    name: &'static str,
    type_name: &'static str,
    key_spec_index: Option<i64>,
    token: Option<&'static str>,
    since: Option<&'static str>,
    deprecated_since: Option<&'static str>,
    flags: Vec<&'static str>,
    parts: Vec<Argument>,
}

/// The arguments of a command; empty: it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(Vec<Argument>);

impl Arguments {
    /// The arguments of a command.
    pub fn of(spec: &Spec) -> Arguments {
        let mut rest = spec.arguments;
        Arguments(read_list(&mut rest))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the value of the field `arguments`.
    pub fn encode(&self, encoder: &mut Encoder<'_>) {
        encode_list(encoder, &self.0);
    }
}

fn type_name(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b's' => "string",
        b'i' => "integer",
        b'd' => "double",
        b'k' => "key",
        b'p' => "pattern",
        b'u' => "unix-time",
        b't' => "pure-token",
        b'o' => "oneof",
        b'b' => "block",
        _ => return None,
    })
}

/// Whether the byte ends a name, a number or a word.
fn is_end(byte: u8) -> bool {
    matches!(byte, b'#' | b'=' | b'@' | b'!' | b'?' | b'*' | b'+' | b'(' | b')' | b' ')
}

/// Arguments up to the end or a `)`.
fn read_list(rest: &mut &'static str) -> Vec<Argument> {
    let mut list = Vec::new();
    loop {
        *rest = rest.trim_start_matches(' ');
        if rest.is_empty() || rest.starts_with(')') {
            return list;
        }
        let Some(argument) = read_one(rest) else { return list };
        list.push(argument);
    }
}

fn read_one(rest: &mut &'static str) -> Option<Argument> {
    let bytes = rest.as_bytes();
    // Some names contain a colon.
    let is_type = |at: &usize| {
        bytes[*at] == b':'
            && bytes.get(at + 1).is_some_and(|letter| type_name(*letter).is_some())
            && bytes.get(at + 2).is_none_or(|end| is_end(*end))
    };
    let at = (0..bytes.len()).find(is_type)?;
    let type_name = type_name(bytes[at + 1])?;
    let mut argument = Argument { name: &rest[..at], type_name, ..Argument::default() };
    *rest = &rest[at + 2..];
    while let Some(mark) = rest.bytes().next().filter(|mark| !matches!(mark, b' ' | b')')) {
        *rest = &rest[1..];
        match mark {
            b'#' => argument.key_spec_index = read_word(rest).parse().ok(),
            b'=' => argument.token = Some(read_word(rest)),
            b'@' => argument.since = Some(read_word(rest)),
            b'!' => argument.deprecated_since = Some(read_word(rest)),
            b'?' => argument.flags.push("optional"),
            b'*' => argument.flags.push("multiple"),
            b'+' => argument.flags.push("multiple_token"),
            b'(' => {
                argument.parts = read_list(rest);
                *rest = rest.strip_prefix(')')?;
            }
            _ => return None,
        }
    }
    Some(argument)
}

fn read_word(rest: &mut &'static str) -> &'static str {
    let end = rest.bytes().position(is_end).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    word
}

fn encode_list(encoder: &mut Encoder<'_>, list: &[Argument]) {
    encoder.array_header(list.len());
    for argument in list {
        encode_one(encoder, argument);
    }
}

fn encode_one(encoder: &mut Encoder<'_>, argument: &Argument) {
    let words = [
        ("token", argument.token),
        ("since", argument.since),
        ("deprecated_since", argument.deprecated_since),
    ];
    let optional = usize::from(argument.key_spec_index.is_some())
        + words.iter().filter(|(_, word)| word.is_some()).count()
        + usize::from(!argument.flags.is_empty())
        + usize::from(!argument.parts.is_empty());
    encoder.map_header(2 + optional);
    encoder.bulk(b"name");
    encoder.bulk(argument.name.as_bytes());
    encoder.bulk(b"type");
    encoder.bulk(argument.type_name.as_bytes());
    if let Some(index) = argument.key_spec_index {
        encoder.bulk(b"key_spec_index");
        encoder.integer(index);
    }
    for (name, word) in words {
        if let Some(word) = word {
            encoder.bulk(name.as_bytes());
            encoder.bulk(word.as_bytes());
        }
    }
    if !argument.flags.is_empty() {
        encoder.bulk(b"flags");
        encoder.set_header(argument.flags.len());
        argument.flags.iter().for_each(|flag| encoder.simple(flag));
    }
    if !argument.parts.is_empty() {
        encoder.bulk(b"arguments");
        encode_list(encoder, &argument.parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_to_its_end() {
        for spec in Spec::all() {
            let mut rest = spec.arguments;
            read_list(&mut rest);
            assert!(rest.is_empty(), "{}: stopped before {rest:?}", spec.name);
        }
    }

    #[test]
    fn a_line_says_what_an_argument_is() {
        let mut rest = "ip:port:s!2.8.12 condition:o=C@2.6.12?(nx:t=NX key:k#1?*)";
        let list = read_list(&mut rest);
        assert_eq!((list[0].name, list[0].type_name), ("ip:port", "string"));
        assert_eq!(list[0].deprecated_since, Some("2.8.12"));
        let condition = &list[1];
        assert_eq!((condition.token, condition.since), (Some("C"), Some("2.6.12")));
        assert_eq!((condition.flags.as_slice(), condition.parts.len()), (&["optional"][..], 2));
        assert_eq!(condition.parts[1].key_spec_index, Some(1));
        assert_eq!(condition.parts[1].flags, ["optional", "multiple"]);
    }

    #[test]
    fn commands_that_need_arguments_are_described() {
        for spec in Spec::all().iter().filter(|spec| !spec.id.is_container()) {
            let needs = usize::from(spec.is_subcommand()) + 1;
            // Redis describes none of these either.
            let is_left_out = ["command|getkeys", "command|getkeysandflags", "debug"];
            let takes_some = spec.arity.unsigned_abs() as usize > needs;
            if takes_some && !is_left_out.contains(&spec.name) {
                assert!(!Arguments::of(spec).is_empty(), "{}", spec.name);
            }
        }
    }
}
