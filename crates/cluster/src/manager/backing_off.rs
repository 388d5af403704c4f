//! Nodes that a primary does not get as copies for some time, because it waited for them in vain.
//!
//! ```text
//!  Overdue ─▶ | backing off: 4 patiences | asked again ─ Overdue ─▶ | 8 | ... | 128 at most |
//!             good for as long again as it was backing off ─▶ forgotten
//! ```

use std::collections::{BTreeMap, BTreeSet};

use base::Instant;

use crate::ids::NodeId;
use crate::settings::after;

/// The length of the first spell, in patiences.
const FIRST: u64 = 4;
/// How often the length doubles at most.
const DOUBLINGS_MAX: u32 = 5;

/// Spells by primary and copy.
#[derive(Debug, Default)]
pub(super) struct BackingOff(BTreeMap<(NodeId, NodeId), Spell>);

#[derive(Debug)]
struct Spell {
    until: Instant,
    len_ns: u64,
    doublings: u32,
}

impl BackingOff {
    /// Begins a spell now, longer than the last one if that was lately. During a spell nothing
    /// changes.
    pub(super) fn back_off(&mut self, pair: (NodeId, NodeId), patience_ns: u64, now: Instant) {
        let before = self.0.get(&pair);
        if before.is_some_and(|spell| now < spell.until) {
            return;
        }
        let is_again = |spell: &&Spell| now < after(spell.until, spell.len_ns);
        let doublings = before.filter(is_again).map_or(0, |spell| spell.doublings + 1);
        let doublings = doublings.min(DOUBLINGS_MAX);
        let len_ns = (FIRST << doublings) * patience_ns;
        self.0.retain(|_, spell| now < after(spell.until, spell.len_ns));
        self.0.insert(pair, Spell { until: after(now, len_ns), len_ns, doublings });
    }

    pub(super) fn at(&self, now: Instant) -> BTreeSet<(NodeId, NodeId)> {
        self.0.iter().filter(|(_, spell)| now < spell.until).map(|(pair, _)| *pair).collect()
    }

    /// The times at which spells end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Instant> + '_ {
        self.0.values().map(|spell| spell.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_fails_again_waits_longer_and_one_that_does_not_is_forgiven() {
        let pair = (NodeId { name: 1, incarnation: 1 }, NodeId { name: 2, incarnation: 1 });
        let at = |ns: u64| Instant { ns };
        let mut backing_off = BackingOff::default();
        backing_off.back_off(pair, 10, at(0));
        assert!(backing_off.at(at(39)).contains(&pair) && backing_off.at(at(40)).is_empty());
        backing_off.back_off(pair, 10, at(50));
        assert!(backing_off.at(at(129)).contains(&pair) && backing_off.at(at(130)).is_empty());
        backing_off.back_off(pair, 10, at(130 + 80));
        assert!(backing_off.at(at(249)).contains(&pair) && backing_off.at(at(250)).is_empty());
    }
}
