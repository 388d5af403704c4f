//! Tests of roles, ranges, ids and lines, with a configuration written by hand.

use super::testing::{node, three_nodes};
use super::*;

#[test]
fn a_node_is_a_master_or_a_replica() {
    let (configuration, [one, two, three]) = three_nodes();
    let announced = Announced::new(&configuration, one);
    assert_eq!([one, two, three].map(|it| announced.master_of(it)), [None, None, Some(one)], "T1");
    assert_eq!(announced.replicas_of(one).collect::<Vec<_>>(), [three]);
    assert_eq!(announced.replicas_of(two).count(), 0);
    assert_eq!(announced.own_backups(), [two, three]);
    assert_eq!(announced.own_copies_min(), 2);
}

#[test]
fn ranges_of_the_same_nodes_are_one() {
    let (mut configuration, [one, two, three]) = three_nodes();
    let range = |first, last, primary, replicas: &[NodeId]| Range {
        first: Slot(first),
        last: Slot(last),
        primary,
        replicas: replicas.to_vec(),
    };
    let found = Announced::new(&configuration, one).ranges();
    assert_eq!(found, [range(0, 10922, one, &[three]), range(10923, 16383, two, &[three])]);
    // Without the second of them, n3 is no longer a copy everywhere.
    configuration.shards[1].backups.pop();
    let found = Announced::new(&configuration, one).ranges();
    assert_eq!(found[..2], [range(0, 5460, one, &[three]), range(5461, 10922, one, &[])]);
    // T3: no client is sent to a node that has left.
    configuration.members.retain(|it| *it != two);
    configuration.addresses.remove(&two);
    let announced = Announced::new(&configuration, one);
    assert_eq!(announced.ranges().len(), 2);
    assert!(announced.info().starts_with("cluster_state:fail\r\ncluster_slots_assigned:16384\r\n"));
    assert!(announced.info().contains("cluster_slots_fail:5461\r\n"));
}

#[test]
fn an_id_is_of_the_name_and_not_of_the_incarnation() {
    let ids: Vec<String> = (0..=u16::MAX).map(|name| node_id(node(name))).collect();
    assert!(ids.iter().all(|id| id.len() == 40 && id.bytes().all(|it| it.is_ascii_hexdigit())));
    assert_eq!(ids[3], node_id(NodeId { name: 3, incarnation: 9 }), "T2");
    let distinct: std::collections::BTreeSet<&str> = ids.iter().map(|id| &id[..16]).collect();
    assert_eq!(distinct.len(), ids.len());
    assert_ne!(ids[3], shard_id(node(3)));
}

#[test]
fn lines_are_those_of_cluster_nodes() {
    let (configuration, [one, two, three]) = three_nodes();
    let announced = Announced::new(&configuration, one);
    let (first, second, third) = (node_id(one), node_id(two), node_id(three));
    for (node, want) in [
        (one, format!("{first} 10.0.0.1:6379@7400 myself,master - 0 0 3 connected 0-10922")),
        (two, format!("{second} 10.0.0.2:6379@7400 master - 0 99 3 connected 10923-16383")),
        (three, format!("{third} 10.0.0.3:6379@7400 slave {first} 0 99 3 connected")),
    ] {
        assert_eq!(announced.node_line(node, 99), want);
    }
}
