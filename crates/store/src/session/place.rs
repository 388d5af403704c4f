//! The choice of the queue for a client's write (S3-FIFO), made before the copy and without a lock.
//!
//! ```text
//!  a slot with the key's tag is there  ──▶ the queue that its entry is in
//!  none, and the ghost table knows it  ──▶ main
//!  none                                ──▶ small
//! ```
//!
//! Both looks are guesses: another session may insert or move the key meanwhile, and once in some
//! thousand times a tag is that of another key. A wrong guess costs an item its proper queue once.
//! Policies with one queue write all items to the session's first appender.

use base::KeyHash;
use index::hash::slot::Tag;

use super::Local;
use super::execute::Call;
use crate::inner::Inner;
use crate::log::Queue;

/// The queue for the key's new entry. If it is in the ghost table, it is removed from there,
/// even if the request then writes nothing.
#[inline]
pub(super) fn queue_for(local: &mut Local, call: Call<'_>, hash: KeyHash) -> Queue {
    let Call { inner, guess, .. } = call;
    match (inner.ghosts.is_some(), guess.in_head()) {
        (false, _) => Queue::Main,
        // Stage 2 has found a slot.
        (true, Some(seen)) => inner.log.queue_of(seen.slot.offset_bytes()),
        (true, None) => queue_of_two(local, inner, hash),
    }
}

fn queue_of_two(local: &mut Local, inner: &Inner, hash: KeyHash) -> Queue {
    let head = inner.index.head_of(hash);
    let tag = Tag::of(hash);
    let seen = inner.index.guess(head, tag).or_else(|| {
        let second = inner.index.overflow_of(head)?;
        inner.index.guess(second, tag)
    });
    if let Some(position) = seen {
        return inner.log.queue_of(position.slot.offset_bytes());
    }
    let is_ghost = inner.ghosts.as_ref().is_some_and(|ghosts| ghosts.take(hash));
    local.tally.counts.ghost_hits += u64::from(is_ghost);
    if is_ghost { Queue::Main } else { Queue::Small }
}
