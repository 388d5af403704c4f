//! Faults strike, and are healed.

use cluster::{Configuration, NodeId, manager};

use crate::cluster::scenario::{Fault, Ways, What};
use crate::cluster::world::{Happening, World};

impl World<'_> {
    pub(super) fn begin_fault(&mut self, index: usize) {
        let Fault { for_ns, what, .. } = self.scenario.faults[index].clone();
        if self.options.trace {
            eprintln!("{:>12} fault {index}: {what:?} for {for_ns}", self.now_ns);
        }
        let until_ns = self.now_ns + for_ns;
        let has_struck = match what {
            What::Crash { node, rots } => self.may_crash(node, rots) && self.crash(node, rots),
            What::CrashManager { manager } => {
                self.offices[manager].manager = None;
                true
            }
            What::Pause { node } => {
                self.servers[node].paused_until_ns = until_ns;
                true
            }
            What::PauseManager { manager } => {
                self.offices[manager].paused_until_ns = until_ns;
                true
            }
            What::Cut { group, ways } => {
                self.cut(group, ways, 1);
                true
            }
            What::SlowDisk { node } => {
                self.servers[node].disk_slow_until_ns = until_ns;
                true
            }
            What::Power => {
                (0..self.servers.len()).for_each(|node| {
                    self.crash(node, false);
                });
                true
            }
            What::HideRegister => {
                self.cut(1 << self.register_point(), Ways::Both, 1);
                true
            }
            What::Move { shard, node } => self.order_move(shard, node),
        };
        self.struck += u64::from(has_struck);
        self.push(until_ns, Happening::FaultEnds(index));
    }

    pub(super) fn end_fault(&mut self, index: usize) {
        match self.scenario.faults[index].what {
            What::Crash { node, .. } => self.start_node(node),
            What::CrashManager { manager } => self.start_manager(manager),
            What::Cut { group, ways } if !self.is_quiet => self.cut(group, ways, -1),
            What::HideRegister if !self.is_quiet => {
                self.cut(1 << self.register_point(), Ways::Both, -1);
            }
            What::Power => (0..self.servers.len()).for_each(|node| self.start_node(node)),
            _ => {}
        }
    }

    /// The end of all faults: everything runs, everything is connected.
    pub(super) fn heal(&mut self) {
        self.is_quiet = true;
        self.cuts.iter_mut().flatten().for_each(|count| *count = 0);
        for server in &mut self.servers {
            server.paused_until_ns = self.now_ns.min(server.paused_until_ns);
            server.disk_slow_until_ns = 0;
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

    /// Whether this server's death leaves somebody who has all of each shard (K23): without disks
    /// nobody promises anything beyond.
    fn may_crash(&self, name: usize, rots: bool) -> bool {
        let Some(node) = &self.servers[name].node else { return false };
        if self.scenario.is_durable && !rots {
            return true;
        }
        let id = node.id();
        let managers = self.offices.iter().filter_map(|office| office.manager.as_ref());
        let known = managers.flat_map(|manager| [manager.configuration(), manager.proposed()]);
        let known = known.flatten().map(|known| (**known).clone());
        known.chain(self.stored()).all(|configuration| self.outlives(&configuration, id))
    }

    /// Whether every shard has a full copy that lives, besides this one.
    fn outlives(&self, configuration: &Configuration, id: NodeId) -> bool {
        let lives = |copy: NodeId| {
            let server = &self.servers[usize::from(copy.name)];
            copy.name != id.name && server.node.is_some() && server.life == copy.life
        };
        configuration.shards.iter().all(|shard| shard.full_copies().any(lives))
    }

    fn crash(&mut self, name: usize, rots: bool) -> bool {
        let server = &mut self.servers[name];
        if server.node.take().is_none() {
            return false;
        }
        server.disk.crash(&mut self.chance);
        if rots {
            server.is_rotten = true;
            server.disk.rot(&mut self.chance);
        }
        true
    }

    /// An operator's wish, heard by all managers; whoever leads heeds it.
    fn order_move(&mut self, shard: u16, node: usize) -> bool {
        let life = self.servers[node].life;
        let target = NodeId { name: node as u16, life };
        let shard = cluster::ShardId(shard);
        for id in 0..self.offices.len() {
            let what = manager::Event::Move { shard, target };
            let life = self.offices[id].life;
            self.push(self.now_ns, Happening::Manager { id, life, what });
        }
        true
    }
}
