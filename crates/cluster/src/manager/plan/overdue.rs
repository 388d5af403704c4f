//! Plans for nodes that are alive and hold a shard up: their primary cannot reach them, or they
//! have no room.
//!
//! | node | what follows |
//! |---|---|
//! | a joining node | it joins no more |
//! | the node that a primary fills from | it serves again |
//! | a backup, and enough copies for writes are left | it is released |
//! | a backup, and too few would be left | another node joins first (`enlist`) |
//! | all of two backups or more | one of them becomes primary: it is the primary that is cut off |
//!
//! # Invariants
//! O2: no node is released for being slow where writes would then be refused.

use std::collections::BTreeSet;

use crate::configuration::Configuration;
use crate::ids::{NodeId, ShardId};
use crate::manager::plan::{Facts, crown};
use crate::settings::Settings;

/// Removes nodes that hold a shard up from it, as far as its other copies allow.
pub(super) fn replace(
    new: &mut Configuration,
    overdue: &BTreeSet<(ShardId, NodeId)>,
    settings: &Settings,
) {
    for (id, node) in overdue {
        let index = id.index();
        let is_led = new.shards.get(index).is_some_and(|shard| new.has(shard.primary));
        if !is_led {
            continue;
        }
        let is_late = |node: &NodeId| overdue.contains(&(*id, *node));
        let heir = heir(new, index);
        let shard = &mut new.shards[index];
        shard.joining = shard.joining.filter(|joining| joining != node);
        if shard.filling_from == Some(*node) {
            crown(shard, *node);
            continue;
        }
        let are_all_late = shard.backups.len() > 1 && shard.backups.iter().all(is_late);
        if let Some(heir) = heir.filter(|_| are_all_late && shard.filling_from.is_none()) {
            let before = shard.primary;
            crown(shard, heir);
            shard.backups.push(before);
            continue;
        }
        let staying_count = shard.full_copies().filter(|node| !is_late(node)).count();
        if staying_count >= usize::from(settings.min_copies) {
            shard.backups.retain(|backup| backup != node);
        }
    }
}

/// The backup with the fewest shards to serve.
fn heir(new: &Configuration, index: usize) -> Option<NodeId> {
    let backups = new.shards[index].backups.iter().copied();
    backups.min_by_key(|node| new.primary_count(*node))
}

/// Releases one backup too many, after another has joined in place of one that takes writes again.
pub(super) fn trim(new: &mut Configuration, facts: &Facts<'_>, settings: &Settings) {
    let backup_max = usize::from(settings.copies) - 1;
    for index in 0..new.shards.len() {
        let shard = &new.shards[index];
        let is_still = shard.joining.is_none() && shard.filling_from.is_none();
        if !is_still || shard.backups.len() <= backup_max || !new.has(shard.primary) {
            continue;
        }
        let id = ShardId(index as u16);
        let rank = |node: &NodeId| {
            let leaves = facts.leaving.contains(&node.name);
            (facts.overdue.contains(&(id, *node)), leaves, new.role_count(*node))
        };
        let last = shard.backups.iter().copied().max_by_key(rank);
        new.shards[index].backups.retain(|node| Some(*node) != last);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, alive, node};
    use crate::ids::ShardId;

    #[test]
    fn a_backup_that_takes_nothing_is_let_go_and_another_joins() {
        let mut bench = Bench::new(1, &[1, 2, 3, 4]);
        let all = alive(&[1, 2, 3, 4]);
        bench.overdue.insert((ShardId(0), node(2)));
        bench.backing_off.insert((node(1), node(2)));
        assert!(bench.next(&all, true));
        assert_eq!((&bench.shard().backups[..]), [node(3)]);
        assert_eq!((bench.shard().joining, bench.shard().epoch), (Some(node(4)), 1));
    }

    #[test]
    fn where_too_few_would_be_left_another_joins_first() {
        let mut bench = Bench::new(1, &[1, 2, 3]);
        assert!(bench.next(&alive(&[1, 2]), true));
        bench.overdue.insert((ShardId(0), node(2)));
        bench.backing_off.insert((node(1), node(2)));
        assert!(!bench.next(&alive(&[1, 2]), true), "O2");
        let all = alive(&[1, 2, 3]);
        assert!(bench.next(&all, true));
        assert_eq!(
            (&bench.shard().backups[..], bench.shard().joining),
            (&[node(2)][..], Some(node(3)))
        );
        bench.joined.insert((ShardId(0), node(3)));
        assert!(bench.next(&all, true));
        assert_eq!((&bench.shard().backups[..]), [node(3)]);
        assert!(!bench.next(&all, true), "a node that is backing off is not asked at once");
        bench.backing_off.clear();
        bench.overdue.clear();
        assert!(bench.next(&all, true));
        assert_eq!(bench.shard().joining, Some(node(2)));
    }

    #[test]
    fn a_primary_that_reaches_none_of_its_backups_hands_over() {
        let mut bench = Bench::new(1, &[1, 2, 3]);
        let all = alive(&[1, 2, 3]);
        bench.overdue.extend([2, 3].map(|name| (ShardId(0), node(name))));
        assert!(bench.next(&all, true));
        assert_eq!((bench.shard().primary, bench.shard().epoch), (node(2), 2));
        assert_eq!((&bench.shard().backups[..]), [node(3), node(1)]);
        bench.overdue.clear();
        bench.overdue.insert((ShardId(0), node(1)));
        bench.backing_off.insert((node(2), node(1)));
        assert!(bench.next(&all, true));
        assert_eq!((&bench.shard().backups[..]), [node(3)]);
    }

    #[test]
    fn a_joining_node_and_a_source_that_are_cut_off_are_given_up() {
        let mut bench = Bench::new(1, &[1, 2, 3, 4]);
        assert!(bench.next(&alive(&[1, 2, 4]), true));
        assert_eq!(bench.shard().joining, Some(node(4)));
        bench.overdue.insert((ShardId(0), node(4)));
        bench.backing_off.insert((node(1), node(4)));
        assert!(bench.next(&alive(&[1, 2, 4]), true));
        assert_eq!(bench.shard().joining, None);
        bench.overdue.clear();
        bench.moves.push_back((ShardId(0), node(4)));
        assert!(bench.next(&alive(&[1, 2, 4]), true));
        assert_eq!(bench.shard().filling_from, Some(node(1)));
        bench.overdue.insert((ShardId(0), node(1)));
        assert!(bench.next(&alive(&[1, 2, 4]), true));
        assert_eq!((bench.shard().primary, bench.shard().filling_from), (node(1), None));
    }

    #[test]
    fn one_copy_too_many_is_let_go_when_the_slow_one_is_back() {
        let mut bench = Bench::new(1, &[1, 2, 3]);
        assert!(bench.next(&alive(&[1, 2]), true));
        bench.settings.copies = 2;
        bench.overdue.insert((ShardId(0), node(2)));
        let all = alive(&[1, 2, 3]);
        assert!(bench.next(&all, true));
        bench.overdue.clear();
        bench.joined.insert((ShardId(0), node(3)));
        assert!(bench.next(&all, true));
        assert_eq!(bench.shard().full_copies().count(), 2);
    }
}
