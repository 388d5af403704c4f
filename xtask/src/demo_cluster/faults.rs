//! The faults: each is drawn from the seed, injected, and healed.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::crew::Crew;
use super::dice::Dice;
use super::place::Spot;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// kill -9 of a server, which starts again later
    #[default]
    Kill,
    /// SIGTERM of a server, which starts again
    Restart,
    /// SIGSTOP and SIGCONT of a server
    Stop,
    /// A server's link is down
    Cut,
    /// A server and others do not reach each other
    Pair,
    /// A server does not reach some of the others, but they reach it
    OneWay,
    /// kill -9 of the leading manager
    Manager,
    /// SIGSTOP and SIGCONT of the leading manager
    ManagerStop,
    /// The leading manager's link is down
    ManagerCut,
    /// kill -9 of a server while the leading manager is dead
    Both,
    /// SIGSTOP and SIGCONT of ZooKeeper
    ConfigStore,
    /// kill -9 of two servers at once
    Two,
    /// kill -9 of all servers at once, where their data outlives them
    All,
    /// A server's disk is full
    Disk,
}

/// All of them.
pub const ALL: [Kind; 14] = [
    Kind::Kill,
    Kind::Restart,
    Kind::Stop,
    Kind::Cut,
    Kind::Pair,
    Kind::OneWay,
    Kind::Manager,
    Kind::ManagerStop,
    Kind::ManagerCut,
    Kind::Both,
    Kind::ConfigStore,
    Kind::Two,
    Kind::All,
    Kind::Disk,
];

impl Kind {
    /// Whether this fault is possible here.
    pub fn is_possible(self, crew: &Crew) -> bool {
        match self {
            Kind::Cut | Kind::Pair | Kind::OneWay => crew.network.has_cuts(),
            // A manager cut off from all servers cannot reach ZooKeeper either, but it can reach a
            // directory.
            Kind::ManagerCut => crew.network.has_cuts() && crew.plan().jars.is_some(),
            Kind::ConfigStore => crew.plan().jars.is_some(),
            Kind::Two => crew.plan().servers >= 3,
            Kind::All => crew.plan().is_durable,
            Kind::Disk => crew.disks.can_fill(),
            _ => true,
        }
    }
}

/// One fault.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: Kind,
    server: Spot,
    others: Vec<Spot>,
    /// Another server.
    second: Spot,
    time: Duration,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fault { kind, server, others, time, .. } = self;
        let others = others.iter().map(Spot::to_string).collect::<Vec<_>>().join("+");
        match kind {
            Kind::Kill => write!(f, "kill {server}")?,
            Kind::Restart => return write!(f, "restart {server}"),
            Kind::Stop => write!(f, "stop {server}")?,
            Kind::Cut => write!(f, "cut {server}")?,
            Kind::Pair => write!(f, "cut {server}|{others}")?,
            Kind::OneWay => write!(f, "cut {server}>{others}")?,
            Kind::Manager => write!(f, "kill manager")?,
            Kind::ManagerStop => write!(f, "stop manager")?,
            Kind::ManagerCut => write!(f, "cut manager")?,
            Kind::Both => write!(f, "kill manager+{server}")?,
            Kind::ConfigStore => write!(f, "stop ZooKeeper")?,
            Kind::Two => write!(f, "kill {server}+{}", self.second)?,
            Kind::All => write!(f, "kill all servers")?,
            Kind::Disk => write!(f, "fill {server}'s disk")?,
        }
        write!(f, " {} ms", time.as_millis())
    }
}

impl Fault {
    /// The next one.
    pub fn draw(dice: &mut Dice, kinds: &[Kind], crew: &Crew) -> Fault {
        let plan = crew.plan();
        let kind = dice.of(kinds);
        let index = dice.below(plan.servers as u64) as usize;
        let servers = (0..plan.servers).filter(|other| *other != index).map(Spot::Server);
        let all: Vec<Spot> = servers.chain((0..plan.managers).map(Spot::Manager)).collect();
        let bits = 1 + dice.below((1 << all.len()) - 1);
        let is_taken = |place: &usize| bits >> place & 1 == 1;
        let others = (0..all.len()).filter(is_taken).map(|place| all[place]).collect();
        // From far below a lease to well above a session with the config store.
        let time =
            Duration::from_millis(20 << dice.below(8)) + Duration::from_millis(dice.below(200));
        let second = Spot::Server((index + 1) % plan.servers);
        Fault { kind, server: Spot::Server(index), others, second, time }
    }

    /// Injects the fault, waits, heals it. `mark` is called with the time of the injection.
    pub fn inject(&self, crew: &mut Crew) -> Result<(Instant, Instant)> {
        // The first manager, if none is known to lead.
        let leader = crew.leader().unwrap_or(Spot::Manager(0));
        let began = Instant::now();
        match self.kind {
            Kind::Kill => self.kill(crew, &[self.server])?,
            Kind::Manager => self.kill(crew, &[leader])?,
            Kind::Both => self.kill(crew, &[leader, self.server])?,
            Kind::Two => self.kill(crew, &[self.server, self.second])?,
            Kind::All => {
                let all: Vec<Spot> = (0..crew.plan().servers).map(Spot::Server).collect();
                self.kill(crew, &all)?;
            }
            Kind::Disk => self.fill(crew)?,
            Kind::Restart => {
                crew.end(self.server, "TERM")?;
                crew.start_one(self.server)?;
            }
            Kind::Stop => self.stop(crew, self.server)?,
            Kind::ManagerStop => self.stop(crew, leader)?,
            Kind::ConfigStore => self.stop(crew, Spot::Here)?,
            Kind::Cut => self.take_down(crew, self.server)?,
            Kind::ManagerCut => self.take_down(crew, leader)?,
            Kind::Pair | Kind::OneWay => {
                for other in &self.others {
                    crew.network.cut(self.server, *other)?;
                    if self.kind == Kind::Pair {
                        crew.network.cut(*other, self.server)?;
                    }
                }
                std::thread::sleep(self.time);
                for other in &self.others {
                    crew.network.mend(self.server, *other)?;
                    if self.kind == Kind::Pair {
                        crew.network.mend(*other, self.server)?;
                    }
                }
            }
        }
        Ok((began, Instant::now()))
    }

    fn kill(&self, crew: &mut Crew, spots: &[Spot]) -> Result<()> {
        // All processes get the signal before any is waited for.
        spots.iter().try_for_each(|spot| crew.signal(*spot, "KILL"))?;
        spots.iter().try_for_each(|spot| crew.end(*spot, "KILL"))?;
        std::thread::sleep(self.time);
        spots.iter().try_for_each(|spot| crew.start_one(*spot))
    }

    fn stop(&self, crew: &mut Crew, spot: Spot) -> Result<()> {
        crew.signal(spot, "STOP")?;
        std::thread::sleep(self.time);
        crew.signal(spot, "CONT")
    }

    fn fill(&self, crew: &Crew) -> Result<()> {
        let Spot::Server(index) = self.server else { return Ok(()) };
        crew.disks.fill(index)?;
        std::thread::sleep(self.time);
        crew.disks.empty(index)
    }

    fn take_down(&self, crew: &Crew, spot: Spot) -> Result<()> {
        crew.network.set_link(spot, false)?;
        std::thread::sleep(self.time);
        crew.network.set_link(spot, true)
    }
}
