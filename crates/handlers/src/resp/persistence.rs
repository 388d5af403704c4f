//! SAVE, BGSAVE, BGREWRITEAOF and LASTSAVE: Redis's commands for work that `--data-dir` does by
//! itself.
//!
//! The log is the durable form: a save is a commit of the log, and there is nothing to rewrite.

use std::io;

use runtime::engine::Engine;
use runtime::walks::Caller;
use runtime::walks::Written;
use wire::resp::{ArgIter, CommandId, ErrorReply};

use crate::gather::Gather;

/// The error without a data directory.
const NOT_KEPT: ErrorReply<'static> = ErrorReply::Other(
    "nothing is kept on a disk: start the server with --mode store --data-dir PATH",
);

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs one of these.
    pub(super) fn save(&mut self, caller: Caller, id: CommandId, args: ArgIter<'a>) {
        self.flush();
        if id == CommandId::BgSave && !is_schedule(args) {
            return self.fail(caller, &ErrorReply::Syntax);
        }
        let Some(data) = self.core.shared.data() else { return self.fail(caller, &NOT_KEPT) };
        let durable = std::sync::Arc::clone(data.durable());
        match id {
            CommandId::Save => {
                let mut mark = Vec::new();
                durable.mark(&mut mark);
                // SAVE is refused in MULTI: no keys are locked.
                self.write_to_disk(caller, Written::Log, move |_| {
                    durable.wait_covered(&mark).map_err(io::Error::other)
                });
            }
            CommandId::BgSave => {
                durable.want();
                self.core.shared.note_save(host::process::unix_now());
                self.say(caller, |encoder| encoder.simple("Background saving started"));
            }
            _ => {
                durable.want();
                let text = "Background append only file rewriting started";
                self.say(caller, |encoder| encoder.simple(text));
            }
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
