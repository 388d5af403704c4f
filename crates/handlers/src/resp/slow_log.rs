//! SLOWLOG: lists the commands that took too long.

use runtime::engine::Engine;
use runtime::walks::Caller;
use sessions::slow_log::Entry;
use wire::resp::number::parse_i64;
use wire::resp::{ArgIter, CommandId, Encoder, ErrorReply};

use crate::gather::Gather;

/// The number of entries that SLOWLOG GET shows by default.
const SHOWN: usize = 10;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs one of these.
    pub(super) fn slow_log(&mut self, caller: Caller, id: CommandId, args: ArgIter<'a>) {
        self.settle(caller.slot);
        match id {
            CommandId::SlowlogLen => {
                let len = self.core.shared.slow_log().len() as i64;
                self.say(caller, |encoder| encoder.integer(len));
            }
            CommandId::SlowlogReset => {
                self.core.shared.slow_log().clear();
                self.say(caller, |encoder| encoder.ok());
            }
            _ => self.slow_log_get(caller, args),
        }
    }

    fn slow_log_get(&mut self, caller: Caller, mut args: ArgIter<'a>) {
        let count = match (args.next(), args.next()) {
            (None, _) => Ok(SHOWN),
            (Some(count), None) => read_count(count),
            _ => Err(ErrorReply::SubcommandSyntax(CommandId::SlowlogGet)),
        };
        match count {
            Err(error) => self.fail(caller, &error),
            Ok(count) => {
                let entries = self.core.shared.slow_log().newest(count);
                self.say(caller, |encoder| {
                    encoder.array_header(entries.len());
                    entries.iter().for_each(|entry| encode(encoder, entry));
                });
            }
        }
    }
}

/// -1: all.
fn read_count<'e>(count: &[u8]) -> Result<usize, ErrorReply<'e>> {
    match parse_i64(count) {
        Some(-1) => Ok(usize::MAX),
        Some(count) if count >= 0 => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        _ => Err(ErrorReply::Other("count should be greater than or equal to -1")),
    }
}

fn encode(encoder: &mut Encoder<'_>, entry: &Entry) {
    encoder.array_header(6);
    for number in [entry.id, entry.at_seconds, entry.took_us] {
        encoder.integer(number.cast_signed());
    }
    encoder.array_header(entry.args.len());
    for arg in &entry.args {
        encoder.bulk(arg);
    }
    encoder.bulk(entry.peer.as_bytes());
    encoder.bulk(entry.name.as_bytes());
}
