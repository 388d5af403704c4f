//! Redis commands that this server does not implement, each answered with the alternative it has;
//! and LOLWUT and MODULE LIST.

use runtime::walks::Caller;
use wire::resp::number::parse_i64;
use wire::resp::{ArgIter, CommandId, ErrorReply};

use crate::gather::Gather;

const REPLICATION: ErrorReply<'static> = ErrorReply::Other(
    "this server replicates by its cluster: start it with --cluster, see docs/cluster.md",
);

const FAILOVER: ErrorReply<'static> = ErrorReply::Other(
    "failover is the cluster's: dovetail cluster move|drain, see docs/cluster.md",
);

const MODULES: ErrorReply<'static> = ErrorReply::Other("modules are not supported");

/// Runs one of these.
pub(super) fn foreign<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    mut args: ArgIter<'a>,
) {
    gather.settle(caller.slot);
    match id {
        CommandId::Lolwut => lolwut(gather, caller, args),
        CommandId::ReplicaOf | CommandId::SlaveOf => {
            let words = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
            let error = if gather.core.cluster.is_some() {
                Some(ErrorReply::Other("REPLICAOF not allowed in cluster mode."))
            } else {
                let is_no_one =
                    words.0.eq_ignore_ascii_case(b"no") && words.1.eq_ignore_ascii_case(b"one");
                (!is_no_one).then_some(REPLICATION)
            };
            answer_or_ok(gather, caller, error);
        }
        CommandId::Failover => gather.fail(caller, &FAILOVER),
        CommandId::ModuleList => gather.say(caller, |encoder| encoder.array_header(0)),
        CommandId::ModuleLoad | CommandId::ModuleLoadEx | CommandId::ModuleUnload => {
            gather.fail(caller, &MODULES);
        }
        _ => gather.fail(caller, &REPLICATION),
    }
}

fn answer_or_ok(gather: &mut Gather<'_, '_>, caller: Caller, error: Option<ErrorReply<'_>>) {
    match error {
        Some(error) => gather.fail(caller, &error),
        None => gather.say(caller, |encoder| encoder.ok()),
    }
}

/// The joint that the server is named after.
fn lolwut<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    if args.next().is_some_and(|word| word.eq_ignore_ascii_case(b"version"))
        && args.next().is_some_and(|version| parse_i64(version).is_none())
    {
        return gather.fail(caller, &ErrorReply::NotAnInteger);
    }
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("{JOINT}Dovetail ver. {version}\n");
    gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
}

const JOINT: &str = "\
 ____   ____   ____
 \\  /___\\  /___\\  /__
 /__\\   /__\\   /__\\

";
