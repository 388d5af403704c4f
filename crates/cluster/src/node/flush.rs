//! A flush: one entry deletes all keys of a shard.
//!
//! ```text
//!  version   7      8      9 flush            10
//!            put a  put b  ── waits for 7, 8   put c: waits until 9 is everywhere
//!  a backup  7, 9, then 8 once more: older than 9, dropped                     K2
//! ```
//!
//! The entry lands, is acknowledged, gathered, scattered and copied like any other. A copy that has
//! it has no older entry of the shard, whatever still arrives ([`crate::replica_store`], S3).
//!
//! # Invariants
//! F1: a flush completes after all entries with a lower version, and no entry of the shard has a
//!     higher one until then. A write that is computed later finds the flush on all copies, so the
//!     flush need not travel with it (N5).
//! F2: a primary that is being filled answers nothing for the shard meanwhile: its source may have
//!     the flush already, and would say of a key that it is not there, which is not yet true (M2).
//! F3: a filling does not end while a flush is under way: the entries that the source left out
//!     because of the flush must be gone everywhere (M3).

use crate::ids::Version;
use crate::message::{Outcome, Request};
use crate::node::Action;
use crate::node::primary::Primary;
use crate::node::requests::answer;

impl Primary {
    /// The flush that a request must wait for (F1, F2).
    pub(super) fn flush_before(&self, request: &Request) -> Option<Version> {
        let may_pass = request.operation.is_read() && self.filling.is_none();
        self.flush.filter(|_| !may_pass)
    }

    /// Makes a request wait until the flush is on all copies; then it is executed anew.
    pub(super) fn wait_for_flush(
        &mut self,
        flush: Version,
        request: Request,
        waiting_max: usize,
        actions: &mut Vec<Action>,
    ) {
        if self.waiting_count >= waiting_max {
            return answer(&request, Outcome::TryAgain, actions);
        }
        self.wait(flush, request);
    }
}
