//! Injects faults and heals them.

use cluster::{Configuration, Node, NodeId, manager};

use crate::cluster::Plant;
use crate::cluster::groups::Groups;
use crate::cluster::scenario::{Fault, Ways, What};
use crate::cluster::world::{Happening, World};

/// Interval between two checks whether the others can do without an ending server.
const END_AGAIN_NS: u64 = 10_000_000;

impl World<'_> {
    pub(super) fn begin_fault(&mut self, index: usize) {
        let Fault { for_ns, what, .. } = self.scenario.faults[index].clone();
        if self.options.trace {
            eprintln!("{:>12} fault {index}: {what:?} for {for_ns}", self.now_ns);
        }
        let until_ns = self.now_ns + for_ns;
        let has_struck = self.strike(what, until_ns);
        self.struck += u64::from(has_struck);
        self.push(until_ns, Happening::FaultEnds(index));
    }

    /// Injects a fault. Returns false if it has no target, or if it would lose more than is
    /// promised.
    fn strike(&mut self, what: What, until_ns: u64) -> bool {
        match what {
            What::Crash { node, rots } => {
                return self.may_crash(node, rots) && self.crash(node, rots);
            }
            What::CrashManager { manager } => self.offices[manager].manager = None,
            What::Pause { node } => self.servers[node].paused_until_ns = until_ns,
            What::PauseManager { manager } => self.offices[manager].paused_until_ns = until_ns,
            What::Cut { group, ways } => self.cut(group, ways, 1),
            What::SlowDisk { node } => self.servers[node].disk_slow_until_ns = until_ns,
            What::Stall { group } => {
                let stalled = self.servers.iter_mut().enumerate();
                stalled.filter(|(name, _)| group >> name & 1 == 1).for_each(|(_, server)| {
                    server.disk_stalled_until_ns = until_ns;
                });
            }
            What::Decay { group } => return self.decay(group),
            What::Jump { node, by_ns } => self.servers[node].clock.jump(by_ns as i64),
            What::Power => {
                if !self.has_good_copies(|_| false) {
                    return false;
                }
                (0..self.servers.len()).for_each(|node| {
                    self.crash(node, false);
                });
            }
            What::HideConfigStore => self.cut(1 << self.config_store_point(), Ways::Both, 1),
            What::Move { shard, node } => return self.order_move(shard, node),
            What::End { node } => return self.order_end(node),
        }
        true
    }

    pub(super) fn end_fault(&mut self, index: usize) {
        let Fault { for_ns, what, .. } = self.scenario.faults[index].clone();
        match what {
            What::Crash { node, .. } => self.start_node(node),
            What::End { node } => self.end_node(index, node),
            What::CrashManager { manager } => self.start_manager(manager),
            What::Cut { group, ways } if !self.is_quiet => self.cut(group, ways, -1),
            What::HideConfigStore if !self.is_quiet => {
                self.cut(1 << self.config_store_point(), Ways::Both, -1);
            }
            What::Power => (0..self.servers.len()).for_each(|node| self.start_node(node)),
            What::Pause { node } if self.options.plant == Some(Plant::Suspend) => {
                self.servers[node].clock.jump(-(for_ns as i64));
            }
            _ => {}
        }
    }

    /// Ends all faults: everything runs, everything is connected.
    pub(super) fn heal(&mut self) {
        self.is_quiet = true;
        self.cuts.iter_mut().flatten().for_each(|count| *count = 0);
        for server in &mut self.servers {
            server.paused_until_ns = self.now_ns.min(server.paused_until_ns);
            server.disk_slow_until_ns = 0;
            server.disk_stalled_until_ns = 0;
        }
        for office in &mut self.offices {
            office.paused_until_ns = self.now_ns.min(office.paused_until_ns);
        }
        (0..self.servers.len()).for_each(|node| self.start_node(node));
        (0..self.offices.len()).for_each(|id| self.start_manager(id));
    }

    fn cut(&mut self, group: u64, ways: Ways, by: i32) {
        for from in 0..self.cuts.len() {
            for to in 0..self.cuts.len() {
                let (leaves, comes) = (group >> from & 1, group >> to & 1);
                let is_hit = match ways {
                    Ways::Out => leaves == 1 && comes == 0,
                    Ways::In => leaves == 0 && comes == 1,
                    Ways::Both => leaves != comes,
                };
                if is_hit {
                    let count = &mut self.cuts[from][to];
                    *count = count.saturating_add_signed(by);
                }
            }
        }
    }

    /// Whether, after this server's death, some server still has all of each shard (K23): beyond
    /// that nothing is promised. Data on a good disk is not lost.
    fn may_crash(&self, name: usize, rots: bool) -> bool {
        let Some(node) = &self.servers[name].node else { return false };
        let id = node.id();
        let is_lost = rots || !self.is_good(id);
        if !is_lost && self.scenario.is_durable {
            return true;
        }
        let lives = |copy: NodeId| {
            let server = &self.servers[usize::from(copy.name)];
            server.node.is_some() && server.incarnation == copy.incarnation
        };
        self.has_good_copies(|copy| copy.name == id.name || !lives(copy))
    }

    /// Whether the data of this incarnation of a server is, or may be, on a medium that keeps it.
    fn is_good(&self, copy: NodeId) -> bool {
        copy.incarnation > self.servers[usize::from(copy.name)].rotten_through_incarnation
    }

    /// Whether each shard has another good full copy. The set of full copies differs while a new
    /// configuration is on its way: none of the configurations may have too few.
    fn has_good_copies(&self, is_lost: impl Fn(NodeId) -> bool) -> bool {
        let has_good = |all: &Configuration| {
            let is_kept = |copy: NodeId| !is_lost(copy) && self.is_good(copy);
            all.shards.iter().all(|shard| shard.full_copies().any(is_kept))
        };
        let managers = self.offices.iter().filter_map(|office| office.manager.as_ref());
        let known = managers.flat_map(|manager| [manager.configuration(), manager.proposed()]);
        known.flatten().all(|all| has_good(all)) && self.stored().is_none_or(has_good)
    }

    /// Flips a bit on the disk of each of these servers, while it runs, if other servers have all
    /// data without it.
    fn decay(&mut self, group: u64) -> bool {
        let mut has_struck = false;
        for name in 0..self.servers.len() {
            if group >> name & 1 == 1 && self.may_crash(name, true) {
                self.rot(name);
                has_struck = true;
            }
        }
        has_struck
    }

    fn rot(&mut self, name: usize) {
        let server = &mut self.servers[name];
        server.rotten_through_incarnation = server.incarnation;
        server.disk.rot(&mut self.chance);
    }

    fn crash(&mut self, name: usize, rots: bool) -> bool {
        let server = &mut self.servers[name];
        if server.node.take().is_none() {
            return false;
        }
        server.groups = Groups::default();
        server.disk.crash(&mut self.chance);
        if rots {
            self.rot(name);
        }
        true
    }

    /// Tells a server to end. It stops when it has left (`World::watch_leaving`), ...
    fn order_end(&mut self, name: usize) -> bool {
        let node = self.servers[name].node.as_mut();
        node.map(Node::end).is_some()
    }

    /// ... or when its time is over, as soon as that is safe; then it starts again.
    fn end_node(&mut self, index: usize, name: usize) {
        let is_ending = self.servers[name].node.as_ref().is_some_and(Node::is_ending);
        if is_ending && !self.may_crash(name, false) {
            return self.push(self.now_ns + END_AGAIN_NS, Happening::FaultEnds(index));
        }
        if is_ending {
            self.crash(name, false);
        }
        self.start_node(name);
    }

    /// Stops a node that has left, as its process would: no promise depends on it.
    pub(super) fn watch_leaving(&mut self, name: usize) {
        let has_left = self.servers[name].node.as_ref().is_some_and(Node::has_left);
        if has_left && self.may_crash(name, false) && self.crash(name, false) {
            self.left += 1;
        }
    }

    /// Sends an operator's command to all managers; the leading one executes it.
    fn order_move(&mut self, shard: u16, node: usize) -> bool {
        let incarnation = self.servers[node].incarnation;
        let target = NodeId { name: node as u16, incarnation };
        let shard = cluster::ShardId(shard);
        for id in 0..self.offices.len() {
            let what = manager::Event::Move { shard, target };
            let incarnation = self.offices[id].incarnation;
            self.push(self.now_ns, Happening::Manager { id, incarnation, what });
        }
        true
    }
}
