//! The node's place in the cluster: the configuration that it has installed, and its lease.
//!
//! ```text
//!  Lease ─▶ managers ─▶ Granted: of this term? ─▶ lease_until ─┐
//!                       Install ─▶ configuration               ├─▶ may_serve (N1)
//!                       Commit, Granted ─▶ is_committed ───────┘
//! ```
//!
//! # Invariants
//! T1: a lease counts from the time at which it was requested, on this node's own clock, and less
//!     the bound on drift. So it ends here before it ends for the managers.
//! T2: a grant for another term neither extends the lease nor commits anything.
//! T3: a new configuration serves nothing before it is committed, whatever time the lease has left.

use std::sync::Arc;

use base::Instant;

use crate::addresses::Addresses;
use crate::configuration::{Configuration, Shard};
use crate::ids::{NodeId, ShardId, Term};
use crate::message::{Message, Peer, Recovered};
use crate::node::Action;
use crate::settings::{Settings, after};

/// What the managers know of the node, and what the node knows from them.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) id: NodeId,
    manager_count: u16,
    pub(super) recovered: Recovered,
    pub(super) addresses: Arc<Addresses>,
    pub(super) configuration: Option<Arc<Configuration>>,
    is_committed: bool,
    /// The end of the lease, on the node's own clock; serving ends here.
    lease_until: Instant,
    lease_asked_at: Option<Instant>,
}

impl Membership {
    /// Without a configuration, in a cluster of `manager_count` managers.
    pub(super) fn new(id: NodeId, manager_count: u16) -> Membership {
        Membership {
            id,
            manager_count,
            recovered: Recovered::Nothing,
            addresses: Arc::default(),
            configuration: None,
            is_committed: false,
            lease_until: Instant::default(),
            lease_asked_at: None,
        }
    }

    /// The installed term; 0 before any.
    pub(super) fn term(&self) -> Term {
        self.configuration.as_ref().map_or(Term(0), |configuration| configuration.term)
    }

    /// The shard in the installed configuration.
    pub(super) fn shard(&self, shard: ShardId) -> Option<&Shard> {
        self.configuration.as_ref()?.shard(shard)
    }

    /// Whether a node is a member of the installed configuration.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.configuration.as_ref().is_some_and(|configuration| configuration.has(node))
    }

    /// Whether a shard of the installed configuration is filled from this node, by this target.
    pub(super) fn is_source(&self, shard: ShardId, target: NodeId) -> bool {
        self.shard(shard)
            .is_some_and(|shard| shard.primary == target && shard.filling_from == Some(self.id))
    }

    /// Whether the node's lease lasts and its configuration is committed (N1).
    pub(super) fn may_serve(&self, now: Instant) -> bool {
        self.is_committed && now < self.lease_until
    }

    /// The time until which the node may serve, if its configuration is committed; 0 if it is not.
    pub(super) fn serves_until(&self) -> Instant {
        if self.is_committed { self.lease_until } else { Instant::default() }
    }

    /// Replaces the installed configuration (T3). Returns the last one.
    pub(super) fn install(&mut self, new: Arc<Configuration>) -> Option<Arc<Configuration>> {
        self.is_committed = false;
        self.configuration.replace(new)
    }

    /// Notes that a term is committed, if it is the installed one.
    pub(super) fn commit(&mut self, term: Term) {
        self.is_committed |= term == self.term();
    }

    /// Takes a lease that was requested at `sent_at` (T1, T2).
    pub(super) fn take_lease(&mut self, sent_at: Instant, term: Term, settings: &Settings) {
        if term == self.term() {
            let until = after(sent_at, settings.held_ns(settings.lease_ns));
            self.lease_until = self.lease_until.max(until);
        }
    }

    /// Requests a lease, four times in the time of one.
    pub(super) fn ask_lease(&mut self, now: Instant, lease_ns: u64, actions: &mut Vec<Action>) {
        let is_due = |asked_at| now >= after(asked_at, lease_ns / 4);
        if self.lease_asked_at.is_none_or(is_due) {
            self.lease_asked_at = Some(now);
            let (term, recovered) = (self.term(), self.recovered.clone());
            let addresses = self.addresses.clone();
            let message = Message::Lease { sent_at: now, term, recovered, addresses };
            self.tell_managers(&message, actions);
        }
    }

    pub(super) fn tell_managers(&self, message: &Message, actions: &mut Vec<Action>) {
        let to_each = (0..self.manager_count)
            .map(|manager| Action::Send { to: Peer::Manager(manager), message: message.clone() });
        actions.extend(to_each);
    }
}
