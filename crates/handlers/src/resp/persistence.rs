//! SAVE, BGSAVE, BGREWRITEAOF and LASTSAVE: Redis's commands for work that `--data-dir` does by
//! itself.
//!
//! The log is the durable form: a save is a commit of the log, and there is nothing to rewrite.

use std::io;

use runtime::walks::Caller;
use runtime::walks::Written;
use wire::resp::{ArgIter, CommandId, ErrorReply};

use crate::gather::Gather;
use crate::resp::disk_wait::write_to_disk;

/// The error without a data directory.
const NOT_KEPT: ErrorReply<'static> = ErrorReply::Other(
    "nothing is kept on a disk: start the server with --mode store --data-dir PATH",
);

/// Runs one of these.
pub(super) fn save<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    args: ArgIter<'a>,
) {
    gather.flush();
    if id == CommandId::BgSave && !is_schedule(args) {
        return gather.fail(caller, &ErrorReply::Syntax);
    }
    let Some(data) = gather.core.shared.data() else { return gather.fail(caller, &NOT_KEPT) };
    let durable = std::sync::Arc::clone(data.durable());
    match id {
        CommandId::Save => {
            let mut mark = Vec::new();
            durable.mark(&mut mark);
            // SAVE is refused in MULTI: no keys are locked.
            write_to_disk(gather, caller, Written::Log, move |_| {
                durable.wait_covered(&mark).map_err(io::Error::other)
            });
        }
        CommandId::BgSave => {
            durable.want();
            gather.core.shared.observations().note_save(host::process::unix_now());
            gather.say(caller, |encoder| encoder.simple("Background saving started"));
        }
        _ => {
            durable.want();
            let text = "Background append only file rewriting started";
            gather.say(caller, |encoder| encoder.simple(text));
        }
    }
}

/// BGSAVE has one option: SCHEDULE.
fn is_schedule(mut args: ArgIter<'_>) -> bool {
    match (args.next(), args.next()) {
        (None, _) => true,
        (Some(word), None) => word.eq_ignore_ascii_case(b"schedule"),
        _ => false,
    }
}
