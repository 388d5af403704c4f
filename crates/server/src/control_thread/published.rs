//! What the control thread has published in the view, by which workers route and read.
//!
//! # Invariants
//! W1: a lease begins before the places that it serves, and ends behind them: in between workers
//!     would read at places whose replies cannot leave.
//! W2: a shard is at place `Here` only in the stage of serving, under a lease, and without a flush
//!     under way.

use std::sync::Arc;

use base::Instant;
use cluster::node::Stage;
use cluster::{Configuration, Node, NodeId, Shard, ShardId, Slot, Term, Version};
use replication::cluster::landing::Landing;
use replication::cluster::replica_store::ServerReplicaStore;
use replication::cluster::view::{Place, View, summary};

use super::peers::Peers;

/// The view, and what stands in it.
pub(super) struct Published {
    view: Arc<View>,
    /// The address at which other nodes reach this one.
    peer: String,
    term: Term,
    /// By shard.
    places: Vec<Place>,
    floors: Vec<Version>,
}

impl Published {
    /// Nothing is published yet.
    pub fn new(view: Arc<View>, peer: String) -> Published {
        let (places, floors) = (Vec::new(), Vec::new());
        Published { view, peer, term: Term::default(), places, floors }
    }

    /// Publishes what has changed.
    pub fn update(
        &mut self,
        node: &Node<ServerReplicaStore>,
        (peers, landing): (&mut Peers, &mut Landing),
        now: Instant,
    ) {
        let until = node.serves_until();
        if now < until {
            self.view.set_lease(until.ns); // W1
        }
        if let Some(configuration) = node.configuration().cloned() {
            if configuration.term != self.term {
                self.term = configuration.term;
                peers.set_members(&configuration);
                let members = configuration.members.iter();
                let at =
                    |node: &NodeId| Some((*node, configuration.addresses(*node)?.peer.as_str()));
                landing.set_peers(configuration.term, members.filter_map(at));
                self.install(node.id(), &configuration);
            }
            self.update_places(node, &configuration, now < until);
        }
        self.view.set_lease(until.ns);
    }

    fn install(&self, own: NodeId, configuration: &Arc<Configuration>) {
        self.count_failovers(own, configuration);
        self.view.set_configuration(Arc::clone(configuration));
        tracing::info!("configuration {}", summary(configuration, own));
        self.warn_of_namesake(own, configuration);
    }

    /// Counts shards whose primary was lost and that this node serves now.
    fn count_failovers(&self, own: NodeId, after: &Configuration) {
        let Some(before) = self.view.configuration() else { return };
        let taken = after.shards().filter(|(id, shard)| {
            let was = before.shard(*id).map(|shard| shard.primary);
            shard.primary == own && was.is_some_and(|was| was != own && !after.has(was))
        });
        taken.for_each(|_| self.view.count_failover());
    }

    /// Warns of two servers with one number: each takes the other for its own later incarnation.
    fn warn_of_namesake(&self, own: NodeId, configuration: &Configuration) {
        let mut members = configuration.members.iter();
        let Some(other) = members.find(|node| node.name == own.name && **node != own) else {
            return;
        };
        let at = configuration.addresses(*other).map(|addresses| addresses.peer.as_str());
        if let Some(at) = at.filter(|at| *at != self.peer) {
            tracing::error!(
                "the server at {at} has this one's number {}: give one of them another --node-id",
                own.name
            );
        }
    }

    fn update_places(
        &mut self,
        node: &Node<ServerReplicaStore>,
        configuration: &Configuration,
        has_lease: bool,
    ) {
        self.places.resize(configuration.shards.len(), Place::Nowhere);
        self.floors.resize(configuration.shards.len(), Version::ZERO);
        let replica_store = node.replica_store();
        for (id, shard) in configuration.shards() {
            let (floor, published) = (replica_store.floor(id), &mut self.floors[id.index()]);
            if *published != floor {
                *published = floor;
                (shard.first.0..=shard.last.0)
                    .for_each(|slot| self.view.set_floor(Slot(slot), floor));
                if self.places[id.index()] == Place::Here {
                    self.places[id.index()] = Place::ThroughControl;
                }
            }
            let place = place_of(node, configuration, (id, shard), has_lease);
            let published = &mut self.places[id.index()];
            if *published != place {
                *published = place;
                (shard.first.0..=shard.last.0)
                    .for_each(|slot| self.view.set_place(Slot(slot), place));
            }
        }
    }
}

/// Where workers send the requests for a shard (W2).
fn place_of(
    node: &Node<ServerReplicaStore>,
    configuration: &Configuration,
    (id, shard): (ShardId, &Shard),
    has_lease: bool,
) -> Place {
    match node.stage(id) {
        Some(Stage::Serving) if has_lease && !node.replica_store().is_flushing(id) => Place::Here,
        Some(_) => Place::ThroughControl,
        // Clients are never sent to an earlier incarnation of this server.
        None if shard.primary.name == node.id().name => Place::Nowhere,
        None if configuration.has(shard.primary) => Place::Elsewhere,
        None => Place::Nowhere,
    }
}
