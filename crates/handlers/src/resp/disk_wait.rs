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
use runtime::engine::Engine;
use runtime::shared::Shared;
use runtime::walks::Caller;
use runtime::walks::{DiskWait, Written};
use runtime::walks::{Slice, Source};
use wire::resp::ErrorReply;

use crate::gather::Gather;

/// The interval at which it checks whether the work is done.
const LOOK_EVERY_MS: u64 = 1;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Starts `job`, and replies when it is done.
    pub(super) fn write_to_disk(
        &mut self,
        caller: Caller,
        written: Written,
        job: impl FnOnce(&Shared) -> io::Result<()> + Send + 'static,
    ) {
        // Inside EXEC the locks of the keys are held.
        if self.engine.session().is_none() {
            let outcome = job(&self.core.shared);
            return self.say_written(caller, written, &outcome);
        }
        let shared = Arc::clone(&self.core.shared);
        match self.core.shared.disk_thread().run(move || job(&shared)) {
            Ok(pending) => {
                self.begin_slices(caller, Source::Disk(DiskWait { written, pending }));
            }
            Err(error) => self.say_written(caller, written, &Err(error)),
        }
    }

    /// Checks whether the job is done.
    pub(super) fn disk_slice(&mut self, caller: Caller, wait: &DiskWait) -> Slice {
        let Some(outcome) = wait.pending.outcome() else {
            self.core.rest(caller.slot, UnixMillis(unix_now().0 + LOOK_EVERY_MS));
            return Slice::More;
        };
        self.say_written(caller, wait.written, outcome);
        Slice::Last
    }

    fn say_written(&mut self, caller: Caller, written: Written, outcome: &io::Result<()>) {
        let Err(error) = outcome else {
            match written {
                Written::Users => {}
                Written::Settings => tracing::info!("CONFIG REWRITE"),
                Written::Log => self.core.shared.note_save(unix_now()),
            }
            return self.say(caller, |encoder| encoder.ok());
        };
        match written {
            Written::Users => {
                tracing::warn!("ACL SAVE: {error}");
                self.fail(caller, &super::acl::NOT_SAVED);
            }
            Written::Settings => {
                tracing::warn!("CONFIG REWRITE failed: {error}");
                let text = error.to_string();
                // The system's text, as Redis reports it.
                let reason = text.split(" (os error").next().unwrap_or(&text);
                self.fail(caller, &ErrorReply::ConfigRewriteFailed(reason));
            }
            Written::Log => {
                tracing::warn!("SAVE failed: {error}");
                self.say(caller, |encoder| encoder.out().extend_from_slice(b"-ERR\r\n"));
            }
        }
    }
}
