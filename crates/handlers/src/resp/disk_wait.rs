//! Commands that wait for the disk: ACL SAVE, CONFIG REWRITE and SAVE.
//!
//! A separate thread does the work ([`host::disk_thread`]). Meanwhile the connection is paused,
//! like one whose command runs in slices, and nothing is read from it.
//!
//! # Trade-offs
//! In EXEC these commands run at once, under the locks of the group: the commands of a group do not
//! wait for another thread.

use std::io;
use std::sync::Arc;

use base::UnixMillis;
use host::process::unix_now;
use runtime::shared::Shared;
use runtime::walks::Caller;
use runtime::walks::{DiskWait, Written};
use runtime::walks::{Slice, Source};
use wire::resp::ErrorReply;

use crate::gather::Gather;
use crate::resp::slices::begin_slices;

/// The interval at which it checks whether the work is done.
const LOOK_EVERY_MS: u64 = 1;

/// Starts `job`, and replies when it is done.
pub(super) fn write_to_disk(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    written: Written,
    job: impl FnOnce(&Shared) -> io::Result<()> + Send + 'static,
) {
    // Inside EXEC the locks of the keys are held.
    if gather.engine.session().is_none() {
        let outcome = job(&gather.core.shared);
        return say_written(gather, caller, written, &outcome);
    }
    let shared = Arc::clone(&gather.core.shared);
    match gather.core.shared.disk_thread().run(move || job(&shared)) {
        Ok(pending) => {
            begin_slices(gather, caller, Source::Disk(DiskWait { written, pending }));
        }
        Err(error) => say_written(gather, caller, written, &Err(error)),
    }
}

/// Checks whether the job is done.
pub(super) fn disk_slice(gather: &mut Gather<'_, '_>, caller: Caller, wait: &DiskWait) -> Slice {
    let Some(outcome) = wait.pending.outcome() else {
        gather.core.rest(caller.slot, UnixMillis(unix_now().0 + LOOK_EVERY_MS));
        return Slice::More;
    };
    say_written(gather, caller, wait.written, outcome);
    Slice::Last
}

fn say_written(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    written: Written,
    outcome: &io::Result<()>,
) {
    let Err(error) = outcome else {
        match written {
            Written::Users => {}
            Written::Settings => tracing::info!("CONFIG REWRITE"),
            Written::Log => gather.core.shared.observations().note_save(unix_now()),
        }
        return gather.say(caller, |encoder| encoder.ok());
    };
    match written {
        Written::Users => {
            tracing::warn!("ACL SAVE: {error}");
            gather.fail(caller, &super::acl::NOT_SAVED);
        }
        Written::Settings => {
            tracing::warn!("CONFIG REWRITE failed: {error}");
            let text = error.to_string();
            // The system's text, as Redis reports it.
            let reason = text.split(" (os error").next().unwrap_or(&text);
            gather.fail(caller, &ErrorReply::ConfigRewriteFailed(reason));
        }
        Written::Log => {
            tracing::warn!("SAVE failed: {error}");
            gather.say(caller, |encoder| encoder.out().extend_from_slice(b"-ERR\r\n"));
        }
    }
}
