//! The workers' view of the cluster: which node serves which slot, and until when this node may
//! answer.
//!
//! The control thread writes it, workers read it, no thread waits.
//!
//! # Invariants
//! W1: a slot is `Here` only if the node's shard served and its lease was held when that was
//!     published; a worker that has read from it asks [`View::may_answer`] before the reply leaves
//!     (K22).
//! W2: `generation` grows before a slot ceases to be `Here`; a worker that finds it changed after
//!     an execution looks again. A flush does not change it: a read that precedes it was requested
//!     before the flush had ended.
//! W3: figures are for people: nothing is decided by them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::socket::Counters;
use super::{DigestFigures, Receiver, SlotReads};
use cluster::{Configuration, NodeId, Role, Scheme, ShardId, Slot, Version};
use store::Item;

/// Where requests of a slot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// No node is known to serve it.
    Nowhere = 0,
    /// Another node is its primary; the configuration says which.
    Elsewhere = 1,
    /// This node is its primary, but only the control thread may execute: the shard is not served
    /// yet, or is being filled.
    ThroughControl = 2,
    /// This node serves it.
    Here = 3,
}

/// See the module's page.
pub struct View {
    /// The counts of each worker that has ever started.
    reads: Mutex<Vec<Arc<SlotReads>>>,
    /// The receivers of workers that have not started yet, if workers receive entries.
    receivers: Mutex<Vec<Option<Receiver>>>,
    slots: Box<[AtomicU8]>,
    /// By slot: the version up to which all was flushed.
    floors: Box<[AtomicU64]>,
    /// By slot: whether this node is a backup.
    copies: Box<[AtomicBool]>,
    generation: AtomicU64,
    /// On the monotonic clock of the leases, ns.
    lease_until: AtomicU64,
    state: Mutex<State>,
}

struct State {
    own: NodeId,
    configuration: Option<Arc<Configuration>>,
    figures: Figures,
}

/// The control thread's counts and measurements (W3).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Times that this node became the primary of a shard whose primary was lost.
    pub failovers: u64,
    /// By shard that this node gives or is being given: how much has been copied, 0 to 1.
    pub progress_ratio: BTreeMap<ShardId, f64>,
    /// Bytes that each backup has not acknowledged yet.
    pub lag_bytes: BTreeMap<NodeId, u64>,
    /// Of replication, to backups and as a backup.
    pub replication: ReplicationFigures,
    /// The figures of each digest thread.
    pub digest: Vec<DigestFigures>,
}

/// Replication's counts of sent and received data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationFigures {
    /// The scheme of the cluster.
    pub scheme: Scheme,
    /// Datagrams: entries and acknowledgements.
    pub datagrams: Counters,
    /// Frames with entries that were sent.
    pub sent_frames: u64,
    /// Frames that arrived whole.
    pub received_frames: u64,
    /// Logs that receive other nodes' entries.
    pub streams: u64,
}

impl View {
    /// A view before anything is known.
    pub fn new(own: NodeId) -> View {
        View {
            reads: Mutex::default(),
            receivers: Mutex::default(),
            slots: (0..cluster::slot::SLOT_COUNT).map(|_| AtomicU8::new(0)).collect(),
            floors: (0..cluster::slot::SLOT_COUNT).map(|_| AtomicU64::new(0)).collect(),
            copies: (0..cluster::slot::SLOT_COUNT).map(|_| AtomicBool::new(false)).collect(),
            generation: AtomicU64::new(0),
            lease_until: AtomicU64::new(0),
            state: Mutex::new(State { own, configuration: None, figures: Figures::default() }),
        }
    }

    /// Where requests of a slot go now.
    #[inline]
    pub fn place(&self, slot: Slot) -> Place {
        match self.slots[usize::from(slot.0)].load(Ordering::Acquire) {
            1 => Place::Elsewhere,
            2 => Place::ThroughControl,
            3 => Place::Here,
            _ => Place::Nowhere,
        }
    }

    /// The same by the newest configuration, whose places are published a moment after it.
    pub fn settled_place(&self, slot: Slot) -> Place {
        let place = self.place(slot);
        if matches!(place, Place::Here | Place::ThroughControl) {
            return place;
        }
        let state = self.state();
        let is_given = state.configuration.as_ref().is_some_and(|all| {
            all.shard(all.shard_of_slot(slot)).is_some_and(|shard| shard.primary == state.own)
        });
        if is_given { Place::ThroughControl } else { place }
    }

    /// Whether this node is the primary of a slot, serving or about to.
    #[inline]
    pub fn is_own(&self, slot: Slot) -> bool {
        matches!(self.place(slot), Place::Here | Place::ThroughControl)
    }

    /// Whether this node may show an item that is in the index: not if it was flushed and is still
    /// there.
    #[inline]
    pub fn shows(&self, slot: Slot, version: u64) -> bool {
        self.is_own(slot) && !self.is_flushed(slot, version)
    }

    /// Whether an item of a slot was flushed, though it is still in the index.
    #[inline]
    pub fn is_flushed(&self, slot: Slot, version: u64) -> bool {
        version <= self.floors[usize::from(slot.0)].load(Ordering::Acquire)
    }

    /// Whether this node has all of a slot as a backup: READONLY connections may read it.
    #[inline]
    pub fn has_copy(&self, slot: Slot) -> bool {
        self.copies[usize::from(slot.0)].load(Ordering::Acquire)
    }

    /// This incarnation of this server.
    pub fn own(&self) -> NodeId {
        self.state().own
    }

    /// The configuration that the node has installed; none before it has joined.
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.state().configuration.clone()
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        self.state().figures.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of changes of places.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether replies to requests executed until `now_ns`, on the clock of the leases, may leave
    /// (K22).
    #[inline]
    pub fn may_answer(&self, now_ns: u64) -> bool {
        now_ns < self.lease_until.load(Ordering::Acquire)
    }

    /// By the control thread: sets another configuration.
    pub fn set_configuration(&self, configuration: Arc<Configuration>) {
        let own = self.own();
        for shard in &configuration.shards {
            let is_backup = shard.role_of(own) == Some(Role::Backup);
            for slot in shard.first.0..=shard.last.0 {
                self.copies[usize::from(slot)].store(is_backup, Ordering::Release);
            }
        }
        self.state().configuration = Some(configuration);
    }

    /// A worker's own count of reads.
    pub fn count_reads(&self) -> Arc<SlotReads> {
        let own = Arc::new(SlotReads::default());
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&own));
        own
    }

    /// The counts of all workers.
    pub fn reads(&self) -> Vec<Arc<SlotReads>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// At the start: sets the receivers that workers take when they start.
    pub fn leave_receivers(&self, receivers: Vec<Receiver>) {
        let receivers = receivers.into_iter().map(Some).collect();
        *self.receivers.lock().unwrap_or_else(PoisonError::into_inner) = receivers;
    }

    /// Takes a worker's own receiver, once.
    pub fn take_receiver(&self, index: usize) -> Option<Receiver> {
        let mut receivers = self.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        receivers.get_mut(index)?.take()
    }

    /// By the control thread: sets replication's figures.
    pub fn set_replication(&self, figures: ReplicationFigures, digest: Vec<DigestFigures>) {
        let known = &mut self.state().figures;
        (known.replication, known.digest) = (figures, digest);
    }

    /// By the control thread: counts a shard, whose primary was lost, that this node has taken
    /// over.
    pub fn count_failover(&self) {
        self.state().figures.failovers += 1;
    }

    /// By the control thread: sets how much of a shard has been copied; `None`: the copying has
    /// ended.
    pub fn set_progress(&self, shard: ShardId, ratio: Option<f64>) {
        set_or_remove(&mut self.state().figures.progress_ratio, shard, ratio);
    }

    /// By the control thread: sets the bytes that a backup has not acknowledged; `None`: it is no
    /// backup any more.
    pub fn set_lag(&self, backup: NodeId, lag_bytes: Option<u64>) {
        set_or_remove(&mut self.state().figures.lag_bytes, backup, lag_bytes);
    }

    /// By the control thread: sets where a slot's requests go from now on.
    pub fn set_place(&self, slot: Slot, place: Place) {
        let cell = &self.slots[usize::from(slot.0)];
        if cell.load(Ordering::Relaxed) == Place::Here as u8 && place != Place::Here {
            self.generation.fetch_add(1, Ordering::AcqRel); // W2
        }
        cell.store(place as u8, Ordering::Release);
    }

    /// By the control thread: all of a slot was flushed up to this version; workers ask the control
    /// thread until they may read the slot again.
    pub fn set_floor(&self, slot: Slot, floor: Version) {
        self.floors[usize::from(slot.0)].store(floor.bits(), Ordering::Release);
        let (here, through) = (Place::Here as u8, Place::ThroughControl as u8);
        let cell = &self.slots[usize::from(slot.0)];
        // Only this thread changes it.
        if cell.load(Ordering::Relaxed) == here {
            cell.store(through, Ordering::Release); // W2
        }
    }

    /// By the control thread: sets the end of the lease.
    pub fn set_lease(&self, until_ns: u64) {
        self.lease_until.store(until_ns, Ordering::Release);
    }
}

fn set_or_remove<K: Ord, V>(figures: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => figures.insert(key, value),
        None => figures.remove(&key),
    };
}

/// A configuration as one line of the log.
pub fn summary(configuration: &Configuration, own: NodeId) -> String {
    let primaries = configuration.primary_count(own);
    let roles = configuration.role_count(own);
    format!(
        "{}: {} members, this node is primary of {primaries} of {} shards and has copies of {}",
        configuration.term.0,
        configuration.members.len(),
        configuration.shards.len(),
        roles - primaries,
    )
}

/// Whether this node shows an item: in a cluster the store also holds copies of other nodes' keys.
pub fn is_own(cluster: Option<&View>, item: &Item<'_>) -> bool {
    cluster.is_none_or(|view| view.shows(Slot::of(item.key), item.version))
}
