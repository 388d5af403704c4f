//! The manager and the other nodes of the cluster, as the control thread reaches them.
//!
//! # Invariants
//! E1: a message goes to the address that the configuration of the present term names. A node that
//!     it does not name gets only replies to its own requests, over the link that they came on.

use std::collections::BTreeMap;

use cluster::message::Hold;
use cluster::{Configuration, Message, NodeId, Peer};
use cluster_io::{Endpoint, Found, LinkId, Links};
use replication::replicate::Asker;

use super::forwards::NodeReply;

/// The links of the control thread, and where they lead.
pub(super) struct Peers {
    links: Links,
    leader: Option<Endpoint>,
    members: BTreeMap<NodeId, Endpoint>,
}

impl Peers {
    /// Neither a manager nor a member is known yet.
    pub fn new(links: Links) -> Peers {
        Peers { links, leader: None, members: BTreeMap::new() }
    }

    /// Takes what discovery has found.
    pub fn hear(&mut self, found: Found) {
        match found {
            Found::Leader(leader) => {
                match &leader {
                    Some(at) => tracing::info!("the cluster's manager is at {at}"),
                    None => tracing::warn!("the cluster has no manager now"),
                }
                self.leader = leader.as_deref().map(Endpoint::address);
            }
            Found::Trouble(line) => tracing::warn!("the cluster's config store: {line}"),
            Found::Settings(_) => {}
        }
    }

    /// Takes the members' addresses from a new configuration.
    pub fn set_members(&mut self, configuration: &Configuration) {
        self.members = configuration
            .members
            .iter()
            .filter_map(|node| Some((*node, configuration.addresses(*node)?)))
            .map(|(node, addresses)| (node, Endpoint::address(&addresses.peer)))
            .collect();
    }

    /// Whether the cluster has a manager.
    pub fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether a node is a member with an address.
    pub fn has(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    /// Sends a message to the manager, if there is one.
    pub fn tell_leader(&self, to: Peer, message: Message) {
        if let Some(at) = &self.leader {
            self.links.send(at, to, message);
        }
    }

    /// Sends a message to a member.
    pub fn tell(&self, to: NodeId, message: Message) {
        self.tell_held(to, message, Hold::default());
    }

    /// Sends a message whose memory stays booked until it has left. Returns whether it was
    /// accepted.
    pub fn tell_held(&self, to: NodeId, message: Message, hold: Hold) -> bool {
        let at = self.members.get(&to);
        at.is_some_and(|at| self.links.send_held(at, Peer::Node(to), message, hold))
    }

    /// Replies to a request that another node has forwarded. Returns false if its link is full
    /// (E1).
    pub fn reply(&self, reply: &NodeReply) -> bool {
        let Asker { node, link, id } = reply.to;
        let message = Message::Forwarded { id, bytes: reply.bytes.clone() };
        let at = way_back(&self.members, node, link);
        self.links.send_held(&at, Peer::Node(node), message, reply.hold.clone())
    }
}

/// Where the reply to a node goes: a node that has left, or is not known yet, has only the link on
/// which it has asked (E1).
fn way_back(members: &BTreeMap<NodeId, Endpoint>, node: NodeId, link: LinkId) -> Endpoint {
    members.get(&node).cloned().unwrap_or(Endpoint::Link(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(7);

    fn node(name: u16) -> NodeId {
        NodeId { name, incarnation: 1 }
    }

    #[test]
    fn a_node_that_has_left_gets_its_replies_over_its_link() {
        let at = Endpoint::address("db1:7400");
        let mut peers = BTreeMap::from([(node(1), at.clone())]);
        assert_eq!(way_back(&peers, node(1), LINK), at);
        peers.clear();
        assert_eq!(way_back(&peers, node(1), LINK), Endpoint::Link(LINK));
    }
}
