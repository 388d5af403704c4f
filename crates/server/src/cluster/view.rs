//! What workers see of the cluster: who serves which slot, and until when this node may answer.
//!
//! The control thread writes it, workers read it, nobody waits.
//!
//! # Invariants
//! W1: a slot is `Here` only while the node's shard serves and its lease was held when that was
//!     published; whoever has read from it asks [`View::may_answer`] before the reply leaves (K22).
//! W2: `generation` grows before a slot ceases to be `Here`; a worker that finds it changed after
//!     it has executed looks again.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::{Configuration, NodeId, Slot};

/// Where requests of a slot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// Nobody is known to serve it.
    Nowhere = 0,
    /// Another node is its primary; the configuration says which.
    Elsewhere = 1,
    /// This node is its primary, but only the control thread may execute: it does not serve yet,
    /// or is being filled.
    ThroughControl = 2,
    /// This node serves it.
    Here = 3,
}

/// See the module's page.
pub struct View {
    slots: Box<[AtomicU8]>,
    generation: AtomicU64,
    /// Of the monotonic clock that leases are counted on, ns.
    lease_until: AtomicU64,
    state: Mutex<State>,
}

struct State {
    own: NodeId,
    configuration: Option<Arc<Configuration>>,
}

impl View {
    /// Nothing is known.
    pub fn new(own: NodeId) -> View {
        View {
            slots: (0..cluster::slot::SLOT_COUNT).map(|_| AtomicU8::new(0)).collect(),
            generation: AtomicU64::new(0),
            lease_until: AtomicU64::new(0),
            state: Mutex::new(State { own, configuration: None }),
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

    /// This life of this server.
    pub fn own(&self) -> NodeId {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).own
    }

    /// What the node has installed; none before it has joined.
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).configuration.clone()
    }

    /// Counts changes of places.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether what was executed until `now_ns`, of the leases' clock, may be answered (K22).
    #[inline]
    pub fn may_answer(&self, now_ns: u64) -> bool {
        now_ns < self.lease_until.load(Ordering::Acquire)
    }

    /// By the control thread: another configuration.
    pub fn set_configuration(&self, configuration: Arc<Configuration>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.configuration = Some(configuration);
    }

    /// By the control thread: where a slot's requests go from now on.
    pub fn set_place(&self, slot: Slot, place: Place) {
        let cell = &self.slots[usize::from(slot.0)];
        if cell.load(Ordering::Relaxed) == Place::Here as u8 && place != Place::Here {
            self.generation.fetch_add(1, Ordering::AcqRel); // W2
        }
        cell.store(place as u8, Ordering::Release);
    }

    /// By the control thread: the lease lasts until then.
    pub fn set_lease(&self, until_ns: u64) {
        self.lease_until.store(until_ns, Ordering::Release);
    }
}
