//! How far a COMMAND INFO, DOCS, GETKEYS or GETKEYSANDFLAGS has come.

use commands::facts::{describe, document, flags_of};
use wire::resp::{ArgPlace, Encoder, Keys, Spec};

use super::{SLICE_BYTES, Slice};

/// The number of names or keys that one slice looks at.
pub const NAMES_PER_SLICE: usize = 1024;

/// The cost of a described byte, some 15 ns: descriptions consist of words and numbers that are
/// looked up and encoded one by one.
pub const STEPS_PER_BYTE: u64 = 12;

/// The position of the walk.
pub enum CommandWalk {
    /// Every command, from this one on.
    All {
        /// What is reported.
        detail: Detail,
        /// The position of the next one.
        from: usize,
    },
    /// The named commands.
    Named {
        /// What is reported.
        detail: Detail,
        /// The names that are left.
        names: ArgPlace,
    },
    /// DOCS first counts the known names, then describes them.
    Counting {
        /// How many exist so far.
        known_count: usize,
        /// The names that are not counted yet.
        left: ArgPlace,
        /// All names.
        names: ArgPlace,
    },
    /// The keys of a command, each `step` arguments from the one before.
    Keys {
        /// The keys that are left.
        keys: ArgPlace,
        /// From one key to the next.
        step: u32,
        /// With flags: what they are found by.
        flags: Option<Flagged>,
    },
}

/// What is reported of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// COMMAND INFO.
    Info,
    /// COMMAND DOCS.
    Docs,
}

/// COMMAND GETKEYSANDFLAGS: the data needed to find a key's flags.
#[derive(Clone, Copy, Debug)]
pub struct Flagged {
    /// The command that the keys belong to.
    pub spec: &'static Spec,
    /// The whole command in question.
    pub words: ArgPlace,
    /// The position of the next key among the keys.
    pub at: usize,
}

impl Detail {
    /// Encodes what is detail of a command.
    pub fn of(self, spec: &'static Spec, encoder: &mut Encoder<'_>) {
        match self {
            Detail::Info => describe(encoder, spec),
            Detail::Docs => {
                encoder.bulk(spec.name.as_bytes());
                document(encoder, spec);
            }
        }
    }
}

impl CommandWalk {
    /// Appends a slice.
    pub fn encode(&mut self, command: &[u8], encoder: &mut Encoder<'_>) -> Slice {
        let start = encoder.out().len();
        let is_full = |encoder: &mut Encoder<'_>| encoder.out().len() - start >= SLICE_BYTES;
        match self {
            CommandWalk::All { detail, from } => {
                for spec in Spec::top_level().skip(*from) {
                    if is_full(encoder) {
                        return Slice::More;
                    }
                    detail.of(spec, encoder);
                    *from += 1;
                }
            }
            CommandWalk::Named { detail, names } => {
                let mut walk = names.walk(command);
                for name in walk.by_ref().take(NAMES_PER_SLICE) {
                    match (Spec::by_name(name), &detail) {
                        (Some(spec), _) => detail.of(spec, encoder),
                        (None, Detail::Info) => encoder.null(),
                        (None, Detail::Docs) => {}
                    }
                    if is_full(encoder) {
                        break;
                    }
                }
                *names = walk.place_in(command);
                return if walk.len() == 0 { Slice::Last } else { Slice::More };
            }
            CommandWalk::Counting { known_count, left, names } => {
                let mut walk = left.walk(command);
                let looked_at = walk.by_ref().take(NAMES_PER_SLICE);
                *known_count += looked_at.filter_map(Spec::by_name).count();
                *left = walk.place_in(command);
                if walk.len() == 0 {
                    encoder.map_header(*known_count);
                    *self = CommandWalk::Named { detail: Detail::Docs, names: *names };
                }
                return Slice::More;
            }
            CommandWalk::Keys { keys, step, flags } => {
                let mut walk = Keys::among(keys.walk(command), *step);
                for key in walk.by_ref().take(NAMES_PER_SLICE) {
                    match flags {
                        None => encoder.bulk(key),
                        Some(flagged) => flagged.encode(command, key, encoder),
                    }
                    if is_full(encoder) {
                        break;
                    }
                }
                *keys = walk.arguments().0.place_in(command);
                return if walk.is_empty() { Slice::Last } else { Slice::More };
            }
        }
        Slice::Last
    }
}

impl Flagged {
    /// Encodes the reply about one key.
    pub fn encode(&mut self, command: &[u8], key: &[u8], encoder: &mut Encoder<'_>) {
        let flags = flags_of(self.spec, self.at, self.words.walk(command));
        let fixed = || flags.iter().filter(|flag| **flag != "variable_flags");
        encoder.array_header(2);
        encoder.bulk(key);
        encoder.set_header(fixed().count());
        fixed().for_each(|flag| encoder.simple(flag));
        self.at += 1;
    }
}
