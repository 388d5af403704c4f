//! The connections to a target that may be a cluster.
//!
//! ```text
//!  item ─▶ slot ─▶ the node that MOVED has named for it, or the one that the user has named
//! ```
//!
//! The slot map is learned from answers alone, as in every cluster client: a single server never
//! sends MOVED, so it costs nothing more.
//!
//! # Invariants
//! N1: the slot map is dropped together with the connections: a node that is gone is not asked
//!     again before another node has named it.

use std::collections::{BTreeMap, BTreeSet};

use base::Slot;

use crate::address::Place;
use crate::error::Error;
use crate::from_redis::RespLink;

/// A host and a port.
pub(crate) type Node = (String, u16);

/// One connection to each node that was needed.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The address from the user: other nodes are contacted in the same way.
    place: Place,
    links: BTreeMap<Node, RespLink>,
    /// Every node that has ever answered.
    known: BTreeSet<Node>,
    owners: BTreeMap<u16, Node>,
    /// The node to ask about unknown slots.
    entrance: Node,
}

/// A redirection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// MOVED: from now on.
    Moved(Slot, Node),
    /// ASK: once, after ASKING.
    Ask(Node),
}

impl Nodes {
    pub(crate) fn connect(place: &Place) -> Result<Nodes, Error> {
        let entrance = (place.host.clone(), place.port);
        let mut nodes = Nodes {
            place: place.clone(),
            links: BTreeMap::new(),
            known: BTreeSet::new(),
            owners: BTreeMap::new(),
            entrance: entrance.clone(),
        };
        nodes.link(&entrance)?;
        Ok(nodes)
    }

    /// Makes new connections; through another known node, if the user's is gone.
    pub(crate) fn reconnect(&mut self) -> Result<(), Error> {
        let named = (self.place.host.clone(), self.place.port);
        self.links.clear();
        self.owners.clear(); // N1.
        let others: Vec<Node> = self.known.iter().filter(|node| **node != named).cloned().collect();
        let mut result = self.enter(named);
        for node in others {
            match result {
                Err(error) if error.is_temporary() => result = self.enter(node),
                other => return other,
            }
        }
        result
    }

    fn enter(&mut self, node: Node) -> Result<(), Error> {
        self.link(&node)?;
        self.entrance = node;
        Ok(())
    }

    /// The node that the map names for this key.
    pub(crate) fn owner(&self, key: &[u8]) -> &Node {
        match self.owners.is_empty() {
            true => &self.entrance,
            false => self.owners.get(&Slot::of(key).0).unwrap_or(&self.entrance),
        }
    }

    /// The connection to a node.
    pub(crate) fn link(&mut self, node: &Node) -> Result<&mut RespLink, Error> {
        if !self.links.contains_key(node) {
            let (host, port) = node.clone();
            let link = RespLink::connect(&Place { host, port, ..self.place.clone() })?;
            self.links.insert(node.clone(), link);
            self.known.insert(node.clone());
        }
        Ok(self.links.get_mut(node).expect("it was just put there"))
    }

    /// The node for unknown slots.
    pub(crate) fn entrance(&mut self) -> Result<&mut RespLink, Error> {
        self.link(&self.entrance.clone())
    }

    pub(crate) fn learn(&mut self, slot: Slot, node: Node) {
        self.owners.insert(slot.0, node);
    }
}

impl Elsewhere {
    /// `MOVED 3999 host:port` or `ASK ...`; without a host it is `asked`'s.
    pub(crate) fn read(answer: &[u8], asked: &Node) -> Option<Elsewhere> {
        let mut words = std::str::from_utf8(answer).ok()?.split(' ');
        let (word, slot, address) = (words.next()?, words.next()?, words.next()?);
        let slot = Slot(slot.parse().ok()?);
        let (host, port) = address.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.0 } else { host };
        let node = (host.to_owned(), port.parse().ok()?);
        match word {
            "MOVED" => Some(Elsewhere::Moved(slot, node)),
            "ASK" => Some(Elsewhere::Ask(node)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, want: Option<Elsewhere>) {
        let asked = ("asked".to_owned(), 1);
        assert_eq!(Elsewhere::read(answer.as_bytes(), &asked), want, "{answer}");
    }

    #[test]
    fn answers_that_send_elsewhere_are_read() {
        let node = |host: &str| (host.to_owned(), 6380);
        check("MOVED 3999 127.0.0.1:6380", Some(Elsewhere::Moved(Slot(3999), node("127.0.0.1"))));
        check("MOVED 1 ::1:6380", Some(Elsewhere::Moved(Slot(1), node("::1"))));
        check("ASK 7 :6380", Some(Elsewhere::Ask(node("asked"))));
        for other in ["ERR MOVED 1 h:1", "MOVED", "MOVED x h:1", "MOVED 1 h", "ASK 1 h:70000", ""] {
            check(other, None);
        }
    }
}
