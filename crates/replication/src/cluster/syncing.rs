//! Syncs for the control thread, which never waits for a disk: a separate thread waits until the
//! log's thread has covered the installed entries.
//!
//! ```text
//!  node: Sync ─▶ order: a mark, how far ─▶ this thread ─ wait ─▶ done, wake ─▶ node: Synced
//! ```
//!
//! # Invariants
//! S1: the thread that installs draws a mark between two installs: every entry that it installed
//!     before is covered once the mark is.
//! S2: while the log cannot be written, this node asks for no lease: once its last lease is over it
//!     serves nothing, and other nodes take its place.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use base::Instant;
use crossbeam_channel::{Receiver, Sender, unbounded};
use host::poller::Waker;
use store::durable::{Durable, Health};

use super::ServerReplicaStore;

/// Pause after which a full disk is checked again.
const STALL_REST: Duration = Duration::from_millis(200);
/// How often keeper.rs writes down CommitVer.
const KEEP_EVERY_NS: u64 = 1_000_000_000;

/// The mark to be covered, and the position of the node's log at that time.
struct Order {
    mark: Vec<u64>,
    through_bytes: u64,
}

struct Thread {
    durable: Arc<Durable>,
    orders: Option<Sender<Order>>,
    done: Receiver<u64>,
    handle: Option<JoinHandle<()>>,
}

/// See the module's page. The default is for a node whose data nothing outlives.
#[derive(Default)]
pub struct Syncing {
    thread: Option<Thread>,
    kept_at: Instant,
}

impl Syncing {
    /// Starts the thread; `waker` wakes the control thread.
    pub fn start(durable: Arc<Durable>, waker: Waker) -> std::io::Result<Syncing> {
        let (orders, ordered) = unbounded::<Order>();
        let (told, done) = unbounded();
        let waits_on = Arc::clone(&durable);
        let handle = std::thread::Builder::new().name("sync".to_owned()).spawn(move || {
            for Order { mark, through_bytes } in ordered {
                if !wait(&waits_on, &mark) || told.send(through_bytes).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        let orders = Some(orders);
        let thread = Some(Thread { durable, orders, done, handle: Some(handle) });
        Ok(Syncing { thread, kept_at: Instant::default() })
    }

    /// Orders a sync of the installed entries; the node's log has reached that position.
    pub fn order(&self, through_bytes: u64) {
        let Some(thread) = &self.thread else { return };
        let mut mark = Vec::new();
        thread.durable.mark(&mut mark); // S1
        if let Some(orders) = &thread.orders {
            // The thread ends once the log has failed for good: then no sync is reported any more.
            let _ = orders.send(Order { mark, through_bytes });
        }
    }

    /// The log position of a completed sync.
    pub fn done(&self) -> Option<u64> {
        self.thread.as_ref()?.done.try_recv().ok()
    }

    /// Whether this node may ask for a lease (S2).
    pub fn may_serve(&self) -> bool {
        self.thread.as_ref().is_none_or(|thread| !thread.durable.is_refusing())
    }

    /// Has CommitVer written down once a second.
    pub fn keep(&mut self, replica_store: &ServerReplicaStore, now: Instant) {
        if self.thread.is_none() || now.ns.saturating_sub(self.kept_at.ns) < KEEP_EVERY_NS {
            return;
        }
        self.kept_at = now;
        replica_store.ask_to_keep();
    }
}

/// Waits until the mark is covered; returns false if it never will be.
fn wait(durable: &Durable, mark: &[u64]) -> bool {
    loop {
        let Err(error) = durable.wait_covered(mark) else { return true };
        if matches!(durable.health(), Health::Failed(_)) {
            tracing::error!(
                "the log cannot be written: {error}; this node serves nothing any more: repair \
                 the disk and start it again"
            );
            return false;
        }
        std::thread::sleep(STALL_REST);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.orders = None;
        // It waits for the log's thread, which ends later, or for a full disk.
        if let Some(handle) = self.handle.take()
            && self.durable.health() == Health::Good
            && handle.join().is_err()
        {
            tracing::error!("the thread that waits for syncs panicked");
        }
    }
}
