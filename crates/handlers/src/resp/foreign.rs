//! Redis commands that this server does not implement, each answered with the alternative it has;
//! and LOLWUT and MODULE LIST.

use runtime::engine::Engine;
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

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs one of these.
    pub(super) fn foreign(&mut self, caller: Caller, id: CommandId, mut args: ArgIter<'a>) {
        self.settle(caller.slot);
        match id {
            CommandId::Lolwut => self.lolwut(caller, args),
            CommandId::ReplicaOf | CommandId::SlaveOf => {
                let words = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
                let error = if self.core.cluster.is_some() {
                    Some(ErrorReply::Other("REPLICAOF not allowed in cluster mode."))
                } else {
                    let is_no_one =
                        words.0.eq_ignore_ascii_case(b"no") && words.1.eq_ignore_ascii_case(b"one");
                    (!is_no_one).then_some(REPLICATION)
                };
                self.answer_or_ok(caller, error);
            }
            CommandId::Failover => self.fail(caller, &FAILOVER),
            CommandId::ModuleList => self.say(caller, |encoder| encoder.array_header(0)),
            CommandId::ModuleLoad | CommandId::ModuleLoadEx | CommandId::ModuleUnload => {
                self.fail(caller, &MODULES);
            }
            _ => self.fail(caller, &REPLICATION),
        }
    }

    fn answer_or_ok(&mut self, caller: Caller, error: Option<ErrorReply<'_>>) {
        match error {
            Some(error) => self.fail(caller, &error),
            None => self.say(caller, |encoder| encoder.ok()),
        }
    }

    /// The joint that the server is named after.
    fn lolwut(&mut self, caller: Caller, mut args: ArgIter<'a>) {
        if args.next().is_some_and(|word| word.eq_ignore_ascii_case(b"version"))
            && args.next().is_some_and(|version| parse_i64(version).is_none())
        {
            return self.fail(caller, &ErrorReply::NotAnInteger);
        }
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("{JOINT}Dovetail ver. {version}\n");
        self.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
    }
}

const JOINT: &str = "\
 ____   ____   ____
 \\  /___\\  /___\\  /__
 /__\\   /__\\   /__\\

";
