//! Plans for nodes that an operator wants to stop: their shards move elsewhere first.
//!
//! ```text
//!  [n1*] n2 n3        n1 leaves: a backup takes over          n2 [n1*] n3
//!  n2 [n1*] n3 ~n4    another node joins (`enlist`)           n2 [n1*] n3 n4
//!  n2 [n1*] n3 n4     enough without it: it is let go         n2 n3 n4
//! ```
//!
//! # Invariants
//! N1: a copy is released when there are as many without it as there should be; where no node could
//!     take its place, when there are as many as writes need.
//! N2: a node that leaves gets no new role.

use std::collections::BTreeSet;

use crate::configuration::Configuration;
use crate::ids::NodeId;
use crate::settings::Settings;

/// Takes one step in moving roles away from leaving nodes, in a few shards at a time.
pub(super) fn leave(new: &mut Configuration, leaving: &BTreeSet<u16>, settings: &Settings) {
    if leaving.is_empty() {
        return;
    }
    let mut room = settings.copies_at_once;
    for index in 0..new.shards.len() {
        let shard = &new.shards[index];
        let is_still = shard.joining.is_none() && shard.filling_from.is_none();
        if room == 0 || !is_still || !new.has(shard.primary) {
            continue;
        }
        let leaves = |node: &NodeId| leaving.contains(&node.name);
        let has_changed = if leaves(&shard.primary) {
            hand_over(new, index, leaves)
        } else {
            let has_leaving = shard.backups.iter().any(leaves);
            has_leaving && is_enough(new, index, leaving, settings) && {
                new.shards[index].backups.retain(|node| !leaves(node));
                true
            }
        };
        room -= u16::from(has_changed);
    }
}

/// Makes one of the staying backups primary.
pub(super) fn hand_over(
    new: &mut Configuration,
    index: usize,
    leaves: impl Fn(&NodeId) -> bool,
) -> bool {
    let shard = &new.shards[index];
    let staying = shard.backups.iter().filter(|node| !leaves(node));
    let heir = staying.copied().min_by_key(|node| new.primary_count(*node));
    let Some(heir) = heir else { return false };
    let shard = &mut new.shards[index];
    shard.backups.retain(|node| *node != heir);
    shard.backups.push(shard.primary);
    shard.primary = heir;
    shard.epoch += 1;
    true
}

/// Whether there are enough copies without the leaving one (N1).
fn is_enough(
    new: &Configuration,
    index: usize,
    leaving: &BTreeSet<u16>,
    settings: &Settings,
) -> bool {
    let shard = &new.shards[index];
    let stays = |node: &NodeId| !leaving.contains(&node.name);
    let staying = shard.full_copies().filter(stays).count();
    let is_free = |node: &NodeId| stays(node) && shard.role_of(*node).is_none();
    let has_free = new.members.iter().any(is_free);
    let wanted = if has_free { settings.copies } else { settings.min_copies };
    staying >= usize::from(wanted)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, alive, node};
    use crate::ids::ShardId;

    #[test]
    fn a_node_that_leaves_hands_over_and_is_replaced() {
        let mut bench = Bench::new(1, &[1, 2, 3, 4]);
        let all = alive(&[1, 2, 3, 4]);
        bench.leaving.insert(1);
        assert!(bench.next(&all, true));
        assert_eq!(bench.shard().primary, node(2));
        assert_eq!(bench.shard().backups, [node(3), node(1)]);
        assert_eq!(bench.shard().epoch, 2);
        assert_eq!(bench.shard().joining, Some(node(4)), "N1");
        bench.joined.insert((ShardId(0), node(4)));
        assert!(bench.next(&all, true));
        assert_eq!((&bench.shard().backups[..]), [node(3), node(4)]);
        assert!(!bench.next(&all, true), "N2");
    }

    #[test]
    fn where_no_node_could_take_its_place_as_many_stay_as_writes_need() {
        let mut bench = Bench::new(1, &[1, 2, 3]);
        let all = alive(&[1, 2, 3]);
        bench.leaving.insert(3);
        assert!(bench.next(&all, true));
        assert_eq!(bench.shard().backups, [node(2)]);
        bench.leaving.insert(2);
        assert!(!bench.next(&all, true), "two copies are needed for writes");
    }

    #[test]
    fn no_node_joins_while_joining_is_paused() {
        let mut bench = Bench::new(1, &[1, 2, 3, 4]);
        bench.is_paused = true;
        assert!(bench.next(&alive(&[1, 3, 4]), true));
        assert_eq!(bench.shard().joining, None);
        bench.is_paused = false;
        assert!(bench.next(&alive(&[1, 3, 4]), true));
        assert_eq!(bench.shard().joining, Some(node(4)));
    }
}
