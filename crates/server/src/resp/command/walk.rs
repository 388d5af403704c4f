//! The replies of COMMAND on many names or keys, as a source of slices.
//!
//! ```text
//!  COMMAND DOCS get nosuch get ... ─▶ Counting: 1024 names a turn ─▶ Named: 64 KiB a turn
//!  COMMAND INFO                    ─▶ All
//!  COMMAND GETKEYS mget a b ...    ─▶ Keys
//! ```

use wire::resp::{ArgIter, ArgPlace, Encoder, Keys, Spec, keys_asked};

use crate::commands::{describe, document, flags_of};
use crate::engine::Engine;
use crate::gather::Gather;
use crate::resp::Caller;
use crate::resp::slices::{SLICE_BYTES, Slice, Source};
use crate::work::Work;

/// The number of names or keys that one slice looks at.
const NAMES_PER_SLICE: usize = 1024;

/// The cost of a described byte, some 15 ns: descriptions consist of words and numbers that are
/// looked up and encoded one by one.
const STEPS_PER_BYTE: u64 = 12;

/// The position of the walk.
pub(in crate::resp) enum CommandWalk {
    /// Every command, from this one on.
    All { told: Told, from: usize },
    /// The named commands.
    Named { told: Told, names: ArgPlace },
    /// DOCS first counts the known names, then describes them.
    Counting { known_count: usize, left: ArgPlace, names: ArgPlace },
    /// The keys of a command, each `step` arguments from the one before.
    Keys { keys: ArgPlace, step: u32, flags: Option<Flagged> },
}

/// What is reported of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Told {
    /// COMMAND INFO.
    Info,
    /// COMMAND DOCS.
    Docs,
}

/// COMMAND GETKEYSANDFLAGS: the data needed to find a key's flags.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct Flagged {
    spec: &'static Spec,
    /// The whole command in question.
    words: ArgPlace,
    /// The position of the next key among the keys.
    at: usize,
}

impl Told {
    fn of(self, spec: &'static Spec, encoder: &mut Encoder<'_>) {
        match self {
            Told::Info => describe(encoder, spec),
            Told::Docs => {
                encoder.bulk(spec.name.as_bytes());
                document(encoder, spec);
            }
        }
    }
}

impl CommandWalk {
    /// Appends a slice.
    fn encode(&mut self, command: &[u8], encoder: &mut Encoder<'_>) -> Slice {
        let start = encoder.out().len();
        let is_full = |encoder: &mut Encoder<'_>| encoder.out().len() - start >= SLICE_BYTES;
        match self {
            CommandWalk::All { told, from } => {
                for spec in Spec::top_level().skip(*from) {
                    if is_full(encoder) {
                        return Slice::More;
                    }
                    told.of(spec, encoder);
                    *from += 1;
                }
            }
            CommandWalk::Named { told, names } => {
                let mut walk = names.walk(command);
                for name in walk.by_ref().take(NAMES_PER_SLICE) {
                    match (Spec::by_name(name), &told) {
                        (Some(spec), _) => told.of(spec, encoder),
                        (None, Told::Info) => encoder.null(),
                        (None, Told::Docs) => {}
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
                    *self = CommandWalk::Named { told: Told::Docs, names: *names };
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
    fn encode(&mut self, command: &[u8], key: &[u8], encoder: &mut Encoder<'_>) {
        let flags = flags_of(self.spec, self.at, self.words.walk(command));
        let fixed = || flags.iter().filter(|flag| **flag != "variable_flags");
        encoder.array_header(2);
        encoder.bulk(key);
        encoder.set_header(fixed().count());
        fixed().for_each(|flag| encoder.simple(flag));
        self.at += 1;
    }
}

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// COMMAND, and COMMAND INFO without names.
    pub(super) fn command_table(&mut self, caller: Caller) {
        self.say(caller, |encoder| encoder.array_header(Spec::top_level().count()));
        let walk = CommandWalk::All { told: Told::Info, from: 0 };
        self.begin_slices(caller, Source::Commands(walk));
    }

    pub(super) fn command_info(&mut self, caller: Caller, names: ArgIter<'a>) {
        if names.len() == 0 {
            return self.command_table(caller);
        }
        self.say(caller, |encoder| encoder.array_header(names.len()));
        let walk = CommandWalk::Named { told: Told::Info, names: names.place_in(self.raw) };
        self.begin_slices(caller, Source::Commands(walk));
    }

    pub(super) fn command_docs(&mut self, caller: Caller, names: ArgIter<'a>) {
        let walk = if names.len() == 0 {
            self.say(caller, |encoder| encoder.map_header(Spec::top_level().count()));
            CommandWalk::All { told: Told::Docs, from: 0 }
        } else {
            let names = names.place_in(self.raw);
            CommandWalk::Counting { known_count: 0, left: names, names }
        };
        self.begin_slices(caller, Source::Commands(walk));
    }

    pub(super) fn command_get_keys(&mut self, caller: Caller, keys: Keys<'a>) {
        self.tell_keys(caller, keys, None);
    }

    pub(super) fn command_get_keys_and_flags(&mut self, caller: Caller, words: ArgIter<'a>) {
        match keys_asked(words) {
            Err(error) => self.fail(caller, &error),
            Ok((spec, keys)) => {
                let words = words.place_in(self.raw);
                self.tell_keys(caller, keys, Some(Flagged { spec, words, at: 0 }));
            }
        }
    }

    fn tell_keys(&mut self, caller: Caller, keys: Keys<'a>, flags: Option<Flagged>) {
        self.say(caller, |encoder| encoder.array_header(keys.len()));
        let (arguments, step) = keys.arguments();
        let keys = arguments.place_in(self.raw);
        self.begin_slices(caller, Source::Commands(CommandWalk::Keys { keys, step, flags }));
    }

    /// A slice of COMMAND's reply. A client that wants no reply gets none.
    pub(in crate::resp) fn commands_slice(
        &mut self,
        caller: Caller,
        walk: &mut CommandWalk,
        command: &[u8],
    ) -> Slice {
        let (mut ended, mut made_bytes) = (Slice::Last, 0);
        self.say(caller, |encoder| {
            let start = encoder.out().len();
            ended = walk.encode(command, encoder);
            made_bytes = encoder.out().len() - start;
        });
        self.core.charge(Work::steps(made_bytes as u64 * STEPS_PER_BYTE));
        ended
    }
}
