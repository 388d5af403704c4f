//! DEBUG: subcommands that the tests of client libraries use, enabled by `enable-debug-command`.

use std::time::Duration;

use config::DebugCommand;
use runtime::walks::Caller;
use wire::resp::{ArgIter, Encoder, ErrorCode, ErrorReply, Protocol};

use crate::gather::Gather;
use crate::resp::client::help;

/// The maximum sleep, for a test that confused the unit.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

const HELP: [&str; 14] = [
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANGE-REPL-ID",
    "    Draw another replication id.",
    "ERROR <string>",
    "    Answer an error of that text.",
    "LOG <message>",
    "    Write a message into the server's log.",
    "PROTOCOL <type>",
    "    Answer a value of that type: string, integer, double, bignum, null, array, set, map,",
    "    attrib, push, verbatim, true, false.",
    "SLEEP <seconds>",
    "    Let the thread that serves this connection sleep. Decimals are allowed.",
    "HELP",
    "    Print this help.",
];

/// Whether `enable-debug-command` allows DEBUG to this client.
pub(super) fn may_debug(gather: &Gather<'_, '_>, slot: usize) -> bool {
    match gather.core.shared.config().debug_command {
        DebugCommand::No => false,
        DebugCommand::Local => gather.core.connections[slot].client.peer.is_local(),
        DebugCommand::Yes => true,
    }
}

pub(super) fn refuse_debug(gather: &mut Gather<'_, '_>, caller: Caller) {
    gather.fail(caller, &ErrorReply::Other(NOT_ALLOWED));
}

/// DEBUG.
pub(super) fn debug<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    gather.flush();
    if !may_debug(gather, caller.slot) {
        return refuse_debug(gather, caller);
    }
    let name = args.next().unwrap_or_default();
    let word = name.to_ascii_lowercase();
    match (word.as_slice(), args.next(), args.next()) {
        (b"help", None, None) => help(gather, caller, &HELP),
        (b"change-repl-id", None, None) => {
            gather.core.shared.observations().change_replication_id();
            gather.say(caller, |encoder| encoder.ok());
        }
        (b"error", Some(text), None) => {
            gather.core.counters().failed(caller.index, ErrorCode::Err);
            gather.say(caller, |encoder| encode_error(encoder, text));
        }
        (b"log", Some(message), None) => {
            tracing::warn!("DEBUG LOG: {}", message.escape_ascii());
            gather.say(caller, |encoder| encoder.ok());
        }
        (b"protocol", Some(kind), None) => debug_protocol(gather, caller, kind),
        (b"sleep", Some(seconds), None) => {
            std::thread::sleep(read_seconds(seconds));
            gather.say(caller, |encoder| encoder.ok());
        }
        _ => gather.fail(caller, &ErrorReply::DebugSubcommand(name)),
    }
}

fn debug_protocol<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, kind: &'a [u8]) {
    let protocol = gather.core.connections[caller.slot].protocol();
    let kind = kind.to_ascii_lowercase();
    if kind == b"push" && protocol == Protocol::Resp2 {
        let text = "RESP2 is not supported by this command";
        return gather.fail(caller, &ErrorReply::Other(text));
    }
    if !KINDS.iter().any(|known| known.as_bytes() == kind) {
        let kinds = KINDS.join("|");
        let text = format!("Wrong protocol type name. Please use one of the following: {kinds}");
        return gather.fail(caller, &ErrorReply::Other(&text));
    }
    gather.say(caller, |encoder| encode_kind(encoder, &kind));
}

const NOT_ALLOWED: &str = "DEBUG command not allowed. If the enable-debug-command option is set to \
                           \"local\", you can run it from a local connection, otherwise you need \
                           to set this option in the configuration file, and then restart the \
                           server.";

const KINDS: [&str; 13] = [
    "string", "integer", "double", "bignum", "null", "array", "set", "map", "attrib", "push",
    "verbatim", "true", "false",
];

/// A word that is not a time counts as 0, as in Redis.
fn read_seconds(text: &[u8]) -> Duration {
    let seconds = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.unwrap_or_default().min(SLEEP_MAX)
}

/// The text is the whole error, including its code.
fn encode_error(encoder: &mut Encoder<'_>, text: &[u8]) {
    encoder.out().push(b'-');
    let line = text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte });
    encoder.out().extend(line);
    encoder.line_end();
}

/// One value of each type; the values are those of Redis.
fn encode_kind(encoder: &mut Encoder<'_>, kind: &[u8]) {
    let is_resp3 = encoder.protocol() == Protocol::Resp3;
    match kind {
        b"string" => encoder.bulk(b"Hello World"),
        b"integer" => encoder.integer(12_345),
        b"double" => encoder.double(3141.0 / 1000.0),
        b"bignum" if is_resp3 => {
            encoder.out().extend_from_slice(b"(1234567999999999999999999999999999999\r\n");
        }
        b"bignum" => encoder.bulk(b"1234567999999999999999999999999999999"),
        b"null" => encoder.null(),
        b"array" | b"set" => {
            if kind == b"set" {
                encoder.set_header(3);
            } else {
                encoder.array_header(3);
            }
            (0..3).for_each(|number| encoder.integer(number));
        }
        b"map" => {
            encoder.map_header(3);
            for number in 0..3 {
                encoder.integer(number);
                encoder.boolean(number == 1);
            }
        }
        b"attrib" => {
            if is_resp3 {
                encoder.out().extend_from_slice(b"|1\r\n");
                encoder.bulk(b"key-popularity");
                encoder.array_header(2);
                encoder.bulk(b"key:123");
                encoder.integer(90);
            }
            encoder.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            encoder.push_header(2);
            encoder.bulk(b"server-cpu-usage");
            encoder.integer(42);
            encoder.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => encoder.verbatim(b"This is a verbatim\nstring"),
        _ => encoder.boolean(kind == b"true"),
    }
}
