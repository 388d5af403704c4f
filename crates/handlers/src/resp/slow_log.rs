//! SLOWLOG: lists the commands that took too long.

use runtime::walks::Caller;
use sessions::slow_log::Entry;
use wire::resp::number::parse_i64;
use wire::resp::{ArgIter, CommandId, Encoder, ErrorReply};

use crate::gather::Gather;

/// The number of entries that SLOWLOG GET shows by default.
const SHOWN: usize = 10;

/// Runs one of these.
pub(super) fn slow_log<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    args: ArgIter<'a>,
) {
    gather.settle(caller.slot);
    match id {
        CommandId::SlowlogLen => {
            let len = gather.core.shared.observations().slow_log.len() as i64;
            gather.say(caller, |encoder| encoder.integer(len));
        }
        CommandId::SlowlogReset => {
            gather.core.shared.observations().slow_log.clear();
            gather.say(caller, |encoder| encoder.ok());
        }
        _ => slow_log_get(gather, caller, args),
    }
}

fn slow_log_get<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let count = match (args.next(), args.next()) {
        (None, _) => Ok(SHOWN),
        (Some(count), None) => read_count(count),
        _ => Err(ErrorReply::SubcommandSyntax(CommandId::SlowlogGet)),
    };
    match count {
        Err(error) => gather.fail(caller, &error),
        Ok(count) => {
            let entries = gather.core.shared.observations().slow_log.newest(count);
            gather.say(caller, |encoder| {
                encoder.array_header(entries.len());
                entries.iter().for_each(|entry| encode(encoder, entry));
            });
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
