//! The scenario of a run: drawn from the seed, and small enough to be shrunk.
//!
//! ```text
//!  0        60 ms                        faults_end          all healed       judged
//!  | forms  | clients ask, faults strike |  what was cut is  | final reads    |
//! ```

use cluster::Scheme;

use crate::cluster::Options;
use crate::cluster::dice::Dice;

pub(super) const MS: u64 = 1_000_000;

/// Kinds of faults, as `--faults` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Messages and frames are lost.
    Loss,
    /// Some are late, and overtake each other.
    Delay,
    /// Some are duplicated.
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
    /// The config store cannot be reached, and sessions end.
    Session,
    /// Shards are moved.
    Move,
    /// Clocks of servers jump forward.
    Jump,
    /// Bits flip on several disks, under running servers.
    Decay,
    /// Several disks do nothing for a while.
    Stall,
    /// Servers shut down in order, hand over their shards, and start again.
    End,
}

impl FaultKind {
    /// The description, in one line.
    pub fn about(self) -> &'static str {
        match self {
            FaultKind::Loss => "messages and frames are lost, all along",
            FaultKind::Delay => "some take long, and overtake each other",
            FaultKind::Duplicate => "some come twice",
            FaultKind::Cut => "one end point or a group from all others, one way or both",
            FaultKind::Crash => "servers and managers die, and start again",
            FaultKind::Pause => "processes stop and go on; their clocks do not stop",
            FaultKind::Clock => "clocks begin anywhere, and drift up to the stated bound",
            FaultKind::Disk => "syncs of one disk are slow",
            FaultKind::Rot => "a server dies, and a bit of its disk flips",
            FaultKind::Power => "all servers die at once",
            FaultKind::Session => "the config store cannot be reached, sessions end",
            FaultKind::Move => "an operator moves shards",
            FaultKind::Jump => "the clock of a server jumps forward, by up to 17 s",
            FaultKind::Decay => "bits flip on several disks; servers notice when they start again",
            FaultKind::Stall => "several disks do not sync at all for a while",
            FaultKind::End => "servers are told to end, hand over, and start again",
        }
    }
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
    ("jump", FaultKind::Jump),
    ("decay", FaultKind::Decay),
    ("stall", FaultKind::Stall),
    ("end", FaultKind::End),
];

/// The kinds that are drawn after all others, each from its own stream: so runs without them are
/// the same as before they existed.
const LATER_KINDS: [FaultKind; 4] =
    [FaultKind::Jump, FaultKind::Decay, FaultKind::Stall, FaultKind::End];
/// This many runs in a million have more than five servers.
const LARGE_PPM: u64 = 300_000;

/// One fault at one time.
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
    HideConfigStore,
    Move {
        shard: u16,
        node: usize,
    },
    Jump {
        node: usize,
        by_ns: u64,
    },
    /// Of these servers, as bits.
    Decay {
        group: u64,
    },
    /// Of these servers, as bits.
    Stall {
        group: u64,
    },
    End {
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
    /// Whether the installed entries of a node are its log, as in the server's store.
    pub(super) replica_store_is_log: bool,
    /// Whether nodes have digest threads.
    pub(super) digests_later: bool,
    /// The replication scheme: half of the runs use the default one.
    pub(super) scheme: Scheme,
    pub(super) loss_ppm: u64,
    pub(super) long_delay_ppm: u64,
    pub(super) duplicate_ppm: u64,
    pub(super) drift_ppm: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) faults_end_ns: u64,
}

/// It is computed without a draw, so that the seeds of earlier releases give the same runs
/// otherwise.
fn scheme_of(seed: u64) -> Scheme {
    let others = &Scheme::ALL[1..];
    let place = (seed / 2 % (2 * others.len() as u64)) as usize;
    others.get(place.wrapping_sub(others.len())).copied().unwrap_or_default()
}

impl Scenario {
    pub(super) fn draw(options: &Options) -> Scenario {
        let dice = &mut Dice::new(options.seed, 1);
        let has = |kind| options.faults.contains(&kind);
        // Drawn in any case: an option set by hand changes nothing else.
        let few = dice.between(3, 5) as usize;
        let node_count = options.nodes.unwrap_or_else(|| large(options.seed).unwrap_or(few));
        let manager_count = 1 + dice.index(3);
        // Half of the runs keep their data on disks; only those survive the death of all servers.
        let is_durable = dice.happens(500_000);
        let chance = |dice: &mut Dice, kind, ppm_max| {
            let ppm = dice.below(ppm_max);
            if has(kind) && dice.happens(700_000) { ppm } else { 0 }
        };
        let clients = dice.between(2, 5) as usize;
        let (shards, keys) = (dice.between(1, 4) as u16, dice.between(2, 8) as usize);
        let mut scenario = Scenario {
            node_count,
            manager_count,
            client_count: options.clients.unwrap_or(clients),
            requests_per_client: options.requests.unwrap_or(60),
            shards: options.shards.unwrap_or(shards),
            keys: keys.max(options.shards.unwrap_or(0).into()),
            is_durable,
            replica_store_is_log: options.seed % 2 == 1,
            // In half of those, entries that are installed before they are acknowledged may be
            // installed later.
            digests_later: options.seed % 4 == 1,
            scheme: options.scheme.unwrap_or_else(|| scheme_of(options.seed)),
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
        let count = if kinds.is_empty() { 0 } else { dice.between(1, 12) };
        for _ in 0..count {
            let (at_ns, for_ns) = self.draw_times(dice);
            let what = self.draw_fault(kinds[dice.index(kinds.len())], dice);
            self.faults.push(Fault { at_ns, for_ns, what });
        }
        for kind in LATER_KINDS.iter().filter(|kind| options.faults.contains(kind)) {
            self.draw_later(*kind, &mut Dice::new(options.seed, 10 + *kind as u64));
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

    fn draw_times(&self, dice: &mut Dice) -> (u64, u64) {
        let at_ns = dice.between(60 * MS, self.faults_end_ns - 100 * MS);
        (at_ns, dice.between(MS, 100 * MS))
    }

    /// Draws none to three of them; in half of the runs none.
    fn draw_later(&mut self, kind: FaultKind, dice: &mut Dice) {
        let is_of_disks = matches!(kind, FaultKind::Decay | FaultKind::Stall);
        let means_nothing = is_of_disks && !self.is_durable;
        if means_nothing || dice.happens(500_000) {
            return;
        }
        for _ in 0..dice.between(1, 3) {
            let (at_ns, for_ns) = self.draw_times(dice);
            let node = dice.index(self.node_count);
            let group = dice.roll() & ((1 << self.node_count) - 1);
            let what = match kind {
                FaultKind::Decay => What::Decay { group },
                FaultKind::Stall => What::Stall { group },
                FaultKind::End => What::End { node },
                // Each length as often as twice that.
                _ => {
                    let most_ns = 1 << dice.between(20, 34);
                    What::Jump { node, by_ns: dice.between(1, most_ns) }
                }
            };
            self.faults.push(Fault { at_ns, for_ns, what });
        }
    }

    /// Whether the kind strikes at a time, not throughout, and has an effect in this run.
    fn strikes(&self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Loss | FaultKind::Delay | FaultKind::Duplicate | FaultKind::Clock => false,
            kind if LATER_KINDS.contains(&kind) => false,
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
            FaultKind::Session => What::HideConfigStore,
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

/// Six to nine servers, if the seed draws that many.
fn large(seed: u64) -> Option<usize> {
    let dice = &mut Dice::new(seed, 5);
    dice.happens(LARGE_PPM).then(|| dice.between(6, 9) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_have_three_to_nine_servers() {
        let counts: Vec<usize> =
            (1..=300).map(|seed| Scenario::draw(&Options::all_faults(seed)).node_count).collect();
        for size in 3..=9 {
            assert!(counts.contains(&size), "{size}");
        }
        assert!(counts.iter().all(|count| (3..=9).contains(count)));
    }

    #[test]
    fn what_is_said_by_hand_changes_nothing_else() {
        let drawn = Scenario::draw(&Options::all_faults(11));
        let (nodes, clients) = (Some(drawn.node_count), Some(drawn.client_count));
        let said = Scenario::draw(&Options { nodes, clients, ..Options::all_faults(11) });
        assert_eq!(format!("{drawn:?}"), format!("{said:?}"));
    }

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let mut text = String::new();
        for seed in 1..=200 {
            text += &format!("{:?}", Scenario::draw(&Options::all_faults(seed)).faults);
        }
        for what in ["Crash", "Jump", "Decay", "Stall", "Power", "SlowDisk", "rots: true", "End"] {
            assert!(text.contains(what), "{what}");
        }
    }
}
