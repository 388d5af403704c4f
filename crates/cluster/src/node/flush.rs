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

use base::Instant;

use crate::ids::{ShardId, Version};
use crate::message::{Outcome, Request};
use crate::node::requests::answer;
use crate::node::{Action, Node};
use crate::replica_store::ReplicaStore;

impl<S: ReplicaStore> Node<S> {
    /// The flush that a request must wait for (F1, F2).
    pub(super) fn flush_before(&self, shard: ShardId, request: &Request) -> Option<Version> {
        let primary = self.shards.get(&shard)?.primary.as_ref()?;
        let flush = primary.flush?;
        let may_pass = request.operation.is_read() && primary.filling.is_none();
        (!may_pass).then_some(flush)
    }

    /// Makes a request wait until the flush is on all copies; then it is executed anew.
    pub(super) fn wait_for_flush(
        &mut self,
        shard: ShardId,
        flush: Version,
        request: Request,
        actions: &mut Vec<Action>,
    ) {
        let waiting_max = self.settings.pending_max;
        let is_full = |primary: &mut super::Primary| primary.waiting_count >= waiting_max;
        if self.primary_mut(shard).is_none_or(is_full) {
            return answer(&request, Outcome::TryAgain, actions);
        }
        self.wait(shard, flush, request);
    }

    /// Called when a write of the shard completes: it may be the last one that a flush waited for
    /// (F1).
    pub(super) fn complete_flush(
        &mut self,
        shard: ShardId,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if let Some(flush) = self.primary_mut(shard).and_then(|primary| primary.flush) {
            self.complete(shard, flush, now, actions);
        }
    }
}
