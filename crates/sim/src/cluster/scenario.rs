//! What is to happen in a run: drawn from the seed, and small enough to be shrunk.
//!
//! ```text
//!  0        60 ms                        faults_end          all healed       judged
//!  | forms  | clients ask, faults strike |  what was cut is  | final reads    |
//! ```

use crate::cluster::Options;
use crate::cluster::dice::Dice;

pub(super) const MS: u64 = 1_000_000;

/// Kinds of faults, as `--faults` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Messages and frames are lost.
    Loss,
    /// Some take long, and overtake each other.
    Delay,
    /// Some come twice.
    Duplicate,
    /// Links are cut, one way or both, for one server or for groups.
    Cut,
    /// Servers and managers die and start again.
    Crash,
    /// Processes stop and go on.
    Pause,
    /// Clocks differ, and drift within the stated bound.
    Clock,
    /// Disks are slow.
    Disk,
    /// Bits on disks flip.
    Rot,
    /// All servers die at once, and start from their disks.
    Power,
    /// The register cannot be reached, and sessions end.
    Session,
    /// Shards are moved.
    Move,
}

/// By name.
pub const FAULT_KINDS: &[(&str, FaultKind)] = &[
    ("loss", FaultKind::Loss),
    ("delay", FaultKind::Delay),
    ("duplicate", FaultKind::Duplicate),
    ("cut", FaultKind::Cut),
    ("crash", FaultKind::Crash),
    ("pause", FaultKind::Pause),
    ("clock", FaultKind::Clock),
    ("disk", FaultKind::Disk),
    ("rot", FaultKind::Rot),
    ("power", FaultKind::Power),
    ("session", FaultKind::Session),
    ("move", FaultKind::Move),
];

/// One thing that goes wrong at one time.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) at_ns: u64,
    pub(super) for_ns: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Crash {
        node: usize,
        rots: bool,
    },
    CrashManager {
        manager: usize,
    },
    Pause {
        node: usize,
    },
    PauseManager {
        manager: usize,
    },
    /// Between a group of end points, as bits, and all others.
    Cut {
        group: u64,
        ways: Ways,
    },
    SlowDisk {
        node: usize,
    },
    Power,
    HideRegister,
    Move {
        shard: u16,
        node: usize,
    },
}

/// Which messages a cut stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    Out,
    In,
    Both,
}

/// A whole run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) node_count: usize,
    pub(super) manager_count: usize,
    pub(super) client_count: usize,
    pub(super) requests_per_client: usize,
    pub(super) shards: u16,
    pub(super) keys: usize,
    pub(super) is_durable: bool,
    /// Whether what nodes have installed is what they log, as the server's store does.
    pub(super) shelf_is_log: bool,
    pub(super) loss_ppm: u64,
    pub(super) long_delay_ppm: u64,
    pub(super) duplicate_ppm: u64,
    pub(super) drift_ppm: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) faults_end_ns: u64,
}

impl Scenario {
    pub(super) fn draw(options: &Options) -> Scenario {
        let dice = &mut Dice::new(options.seed, 1);
        let has = |kind| options.faults.contains(&kind);
        let node_count = options.nodes.unwrap_or_else(|| dice.between(3, 5) as usize);
        let manager_count = 1 + dice.index(3);
        // Half of the runs keep their data on disks; only those survive that all die.
        let is_durable = dice.happens(500_000);
        let chance = |dice: &mut Dice, kind, ppm_max| {
            let ppm = dice.below(ppm_max);
            if has(kind) && dice.happens(700_000) { ppm } else { 0 }
        };
        let mut scenario = Scenario {
            node_count,
            manager_count,
            client_count: options.clients.unwrap_or_else(|| dice.between(2, 5) as usize),
            requests_per_client: options.requests.unwrap_or(60),
            shards: dice.between(1, 4) as u16,
            keys: dice.between(2, 8) as usize,
            is_durable,
            shelf_is_log: options.seed % 2 == 1,
            loss_ppm: chance(dice, FaultKind::Loss, 60_000),
            long_delay_ppm: chance(dice, FaultKind::Delay, 50_000),
            duplicate_ppm: chance(dice, FaultKind::Duplicate, 50_000),
            drift_ppm: if has(FaultKind::Clock) { 1_000 } else { 0 },
            faults: Vec::new(),
            faults_end_ns: 700 * MS,
        };
        scenario.draw_faults(options, dice);
        scenario
    }

    fn draw_faults(&mut self, options: &Options, dice: &mut Dice) {
        let kinds: Vec<FaultKind> =
            options.faults.iter().copied().filter(|kind| self.strikes(*kind)).collect();
        if kinds.is_empty() {
            return;
        }
        for _ in 0..dice.between(1, 12) {
            let at_ns = dice.between(60 * MS, self.faults_end_ns - 100 * MS);
            let for_ns = dice.between(MS, 100 * MS);
            let what = self.draw_fault(kinds[dice.index(kinds.len())], dice);
            self.faults.push(Fault { at_ns, for_ns, what });
        }
        self.faults.sort_by_key(|fault| fault.at_ns);
        if let Some(kept) = &options.only_faults {
            let mut index = 0;
            self.faults.retain(|_| {
                index += 1;
                kept.contains(&(index - 1))
            });
        }
    }

    /// Whether the kind comes at a time, not all along, and means anything in this run.
    fn strikes(&self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Loss | FaultKind::Delay | FaultKind::Duplicate | FaultKind::Clock => false,
            FaultKind::Disk | FaultKind::Rot | FaultKind::Power => self.is_durable,
            _ => true,
        }
    }

    fn draw_fault(&self, kind: FaultKind, dice: &mut Dice) -> What {
        let node = dice.index(self.node_count);
        let manager = dice.index(self.manager_count);
        match kind {
            FaultKind::Crash if dice.happens(250_000) => What::CrashManager { manager },
            FaultKind::Crash => What::Crash { node, rots: false },
            FaultKind::Rot => What::Crash { node: 0, rots: true },
            FaultKind::Pause if dice.happens(250_000) => What::PauseManager { manager },
            FaultKind::Pause => What::Pause { node },
            FaultKind::Disk => What::SlowDisk { node },
            FaultKind::Power => What::Power,
            FaultKind::Session => What::HideRegister,
            FaultKind::Move => {
                What::Move { shard: dice.below(u64::from(self.shards)) as u16, node }
            }
            _ => self.draw_cut(dice),
        }
    }

    /// One end point, or a group, against the others; both ways or one.
    fn draw_cut(&self, dice: &mut Dice) -> What {
        let end_points = self.node_count + self.manager_count + 1;
        let all = (1_u64 << end_points) - 1;
        let group = match dice.below(3) {
            0 => 1 << dice.index(self.node_count),
            1 => 1 << dice.index(end_points),
            _ => dice.roll() & all,
        };
        let ways = match dice.below(4) {
            0 => Ways::Out,
            1 => Ways::In,
            _ => Ways::Both,
        };
        What::Cut { group, ways }
    }
}
