//! A configuration of three nodes, for tests here and above.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{Addresses, Configuration, NodeId, Shard, Slot, Term};

/// A node in its first incarnation.
pub fn node(name: u16) -> NodeId {
    NodeId { name, incarnation: 1 }
}

fn shard(slots: (u16, u16), primary: u16, backups: &[u16]) -> Shard {
    Shard {
        first: Slot(slots.0),
        last: Slot(slots.1),
        epoch: 3,
        primary: node(primary),
        backups: backups.iter().map(|name| node(*name)).collect(),
        joining: None,
        filling_from: None,
        waiting: Vec::new(),
    }
}

/// As in the module's picture: n1 and n2 are masters, n3 has only copies.
pub fn three_nodes() -> (Configuration, [NodeId; 3]) {
    let addresses = |name: u16| {
        Arc::new(Addresses {
            host: format!("10.0.0.{name}"),
            resp: 6379,
            memcached: 11211,
            peer: format!("10.0.0.{name}:7400"),
            ..Addresses::default()
        })
    };
    let configuration = Configuration {
        term: Term(7),
        members: vec![node(1), node(2), node(3)],
        shards: vec![
            shard((0, 5460), 1, &[2, 3]),
            shard((5461, 10922), 1, &[2, 3]),
            shard((10923, 16383), 2, &[1, 3]),
        ],
        addresses: (1..=3).map(|name| (node(name), addresses(name))).collect::<BTreeMap<_, _>>(),
    };
    (configuration, [node(1), node(2), node(3)])
}
