//! Plans for servers that are about to shut down: their roles go at once to nodes that already have
//! a copy.
//!
//! ```text
//!  [n1*] n2 n3    n1 ends: a backup takes over                     n2 [n1*] n3
//!  n2 [n1*] n3    no client waits for n1 now: it is let go         n2 n3, and n1 is no member
//! ```
//!
//! Unlike nodes that an operator wants to stop (`leave`), they do not wait until others have
//! joined: their process ends within seconds, with or without this.
//!
//! # Invariants
//! E2: a copy is released only if as many are left as writes need.
//! E3: a node that is shutting down gets no new role, and stays a member while it has one.

use std::collections::BTreeMap;

use crate::configuration::Configuration;
use crate::ids::NodeId;
use crate::manager::plan::{crown, leave};
use crate::settings::Settings;

/// Takes roles from nodes that are shutting down, where other nodes have the data too. The value
/// says whether the node is settled: no client waits for an answer from it.
pub(super) fn end(new: &mut Configuration, ending: &BTreeMap<NodeId, bool>, settings: &Settings) {
    if ending.is_empty() {
        return;
    }
    let ends = |node: &NodeId| ending.contains_key(node);
    for index in 0..new.shards.len() {
        let shard = &mut new.shards[index];
        shard.joining = shard.joining.filter(|node| !ends(node));
        if !new.has(new.shards[index].primary) {
            continue;
        }
        let shard = &mut new.shards[index];
        if ends(&shard.primary) {
            match shard.filling_from {
                Some(source) if !ends(&source) => crown(shard, source),
                Some(_) => {}
                None => drop(leave::hand_over(new, index, ends)),
            }
            continue;
        }
        let is_settled = |node: &NodeId| ending.get(node).copied().unwrap_or(false);
        let is_source = |node: &NodeId| shard.filling_from == Some(*node);
        let goes = |node: &NodeId| is_settled(node) && !is_source(node);
        let staying_count = shard.full_copies().filter(|node| !goes(node)).count();
        if staying_count >= usize::from(settings.min_copies) {
            let staying = shard.backups.iter().copied().filter(|node| !goes(node)).collect();
            shard.backups = staying;
        }
    }
    let has_role = |node: &NodeId| {
        new.shards.iter().any(|shard| shard.role_of(*node).is_some() || shard.needs(node.name))
    };
    let staying: Vec<NodeId> =
        new.members.iter().copied().filter(|node| !ends(node) || has_role(node)).collect();
    if !staying.is_empty() {
        new.members = staying;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, alive, node};

    #[test]
    fn an_ending_node_hands_over_and_is_let_go_when_no_client_waits_for_it() {
        let mut bench = Bench::new(2, &[1, 2, 3]);
        let all = alive(&[1, 2, 3]);
        bench.ending.insert(node(1), false);
        assert!(bench.next(&all, true));
        assert_eq!((bench.shard().primary, bench.shard().epoch), (node(3), 2));
        assert_eq!((&bench.shard().backups[..]), [node(2), node(1)]);
        assert!(!bench.next(&all, true), "it owes answers");
        bench.ending.insert(node(1), true);
        assert!(bench.next(&all, true));
        assert_eq!((&bench.shard().backups[..]), [node(2)]);
        assert_eq!(bench.members(), [node(2), node(3)]);
        assert!(!bench.next(&all, true), "E3");
    }

    #[test]
    fn as_many_stay_as_writes_need() {
        let mut bench = Bench::new(1, &[1, 2]);
        let all = alive(&[1, 2]);
        bench.ending.insert(node(2), true);
        assert!(!bench.next(&all, true), "E2");
        bench.settings.min_copies = 1;
        assert!(bench.next(&all, true));
        assert_eq!(bench.members(), [node(1)]);
    }

    #[test]
    fn a_copy_that_its_shard_waits_for_comes_back_though_its_node_ends() {
        let mut bench = Bench::new(1, &[1, 2]);
        assert!(bench.next(&alive(&[1]), true), "the lease of 2 has run out");
        assert_eq!((bench.shard().waiting.len(), bench.members()), (1, &[node(1)][..]));
        bench.ending.insert(node(2), true);
        let all = alive(&[1, 2]);
        assert!(bench.next(&all, true));
        assert_eq!((&bench.shard().backups[..], bench.members().len()), (&[node(2)][..], 2));
        assert!(!bench.next(&all, true), "no term follows the other for ever");
    }

    #[test]
    fn where_all_nodes_end_none_hands_over() {
        let mut bench = Bench::new(1, &[1, 2, 3]);
        bench.ending.extend([1, 2, 3].map(|name| (node(name), true)));
        assert!(!bench.next(&alive(&[1, 2, 3]), true));
    }

    #[test]
    fn a_move_to_an_ending_node_is_rolled_back_and_none_begins() {
        let mut bench = Bench::new(1, &[1, 2, 3, 4]);
        let all = alive(&[1, 2, 3, 4]);
        bench.moves.push_back((crate::ids::ShardId(0), node(4)));
        assert!(bench.next(&all, true));
        assert_eq!(bench.shard().filling_from, Some(node(1)));
        bench.ending.insert(node(4), false);
        assert!(bench.next(&all, true));
        assert_eq!((bench.shard().primary, bench.shard().filling_from), (node(1), None));
        bench.ending.insert(node(4), true);
        bench.moves.push_back((crate::ids::ShardId(0), node(4)));
        assert!(!bench.next(&all, true) || bench.shard().primary == node(1), "E3");
    }
}
