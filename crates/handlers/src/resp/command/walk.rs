//! The replies of COMMAND on many names or keys, as a source of slices.
//!
//! ```text
//!  COMMAND DOCS get nosuch get ... ─▶ Counting: 1024 names a turn ─▶ Named: 64 KiB a turn
//!  COMMAND INFO                    ─▶ All
//!  COMMAND GETKEYS mget a b ...    ─▶ Keys
//! ```

use commands::work::Work;
use runtime::engine::Engine;
use runtime::walks::Caller;
use runtime::walks::CommandWalk;
use runtime::walks::commands::{Flagged, STEPS_PER_BYTE, Told};
use runtime::walks::{Slice, Source};
use wire::resp::{ArgIter, Keys, Spec, keys_asked};

use crate::gather::Gather;

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
    pub fn commands_slice(
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
