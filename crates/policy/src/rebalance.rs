//! Resharding by load: which shards move, and to which server (Rowan-KV §4.6).
//!
//! ```text
//!  load   ████████████ B        average ────┐        B is above 1.3 x the average: overloaded
//!         ███████ A                         │        its hottest shard that fits goes to D,
//!         ██████ C      ████ D  ────────────┘        and so on, until B is within 5 %
//! ```
//!
//! Every window (500 ms) servers report the number of requests for each shard; the leading manager
//! passes the reports in and orders the moves. A pure function: no window, no clock.
//!
//! # Invariants
//! I1: a move never makes its target the busier of the two.
//! I2: if no server is overloaded nothing moves, however uneven the rest is.
//! I3: a shard moves once, and only from an overloaded server.
//!
//! # Trade-offs
//! The algorithm is greedy, largest first: within 5 % where shards are small against the average. A
//! shard that alone is more than the average moves only to relieve the other shards of its server.

/// The rules for when to move shards, and how far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RebalanceRules {
    /// A server is overloaded when its load exceeds the average by this fraction.
    pub overload_ratio: f64,
    /// Moves continue until a server is within this fraction of the average.
    pub aim_ratio: f64,
    /// With fewer requests in all, no move is worth its cost.
    pub requests_min: f64,
    /// The most moves in one window.
    pub moves_max: usize,
}

impl Default for RebalanceRules {
    fn default() -> RebalanceRules {
        RebalanceRules {
            overload_ratio: 0.30,
            aim_ratio: 0.05,
            requests_min: 1_000.0,
            moves_max: 8,
        }
    }
}

/// A shard's load on the server that serves it, in requests of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShardLoad {
    /// The shard.
    pub shard: u16,
    /// The index of its primary.
    pub server: usize,
    /// The requests, including replication to backups.
    pub requests: f64,
}

/// One shard to be served by another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: u16,
    /// The server that it leaves.
    pub source: usize,
    /// The server that it moves to.
    pub target: usize,
}

/// The moves that bring overloaded servers back to the average. `base` is each server's other load
/// (landed writes of other servers, in requests); its length is the number of servers.
pub fn rebalance(base: &[f64], shards: &[ShardLoad], rules: &RebalanceRules) -> Vec<Move> {
    let mut loads = base.to_vec();
    for shard in shards {
        loads[shard.server] += shard.requests;
    }
    let total: f64 = loads.iter().sum();
    let average = total / loads.len().max(1) as f64;
    let mut moves = Vec::new();
    if total < rules.requests_min || loads.len() < 2 {
        return moves;
    }
    let mut overloaded: Vec<usize> = (0..loads.len())
        .filter(|server| loads[*server] > average * (1.0 + rules.overload_ratio))
        .collect();
    overloaded.sort_by(|one, other| loads[*other].total_cmp(&loads[*one]));
    for source in overloaded {
        let mut own: Vec<ShardLoad> =
            shards.iter().copied().filter(|shard| shard.server == source).collect();
        own.sort_by(|one, other| other.requests.total_cmp(&one.requests));
        for shard in own {
            if moves.len() == rules.moves_max || loads[source] <= average * (1.0 + rules.aim_ratio)
            {
                break;
            }
            if let Some(target) = target_of(&loads, source, shard.requests, average, rules) {
                loads[source] -= shard.requests;
                loads[target] += shard.requests;
                moves.push(Move { shard: shard.shard, source, target });
            }
        }
    }
    moves
}

/// The least busy server, if the move makes the busier of the two less busy.
fn target_of(
    loads: &[f64],
    source: usize,
    requests: f64,
    average: f64,
    rules: &RebalanceRules,
) -> Option<usize> {
    let others = (0..loads.len()).filter(|server| *server != source);
    let target = others.min_by(|one, other| loads[*one].total_cmp(&loads[*other]))?;
    let after = loads[target] + requests;
    let fits = after <= average * (1.0 + rules.aim_ratio);
    // I1. A shard that does not fit still moves if that makes the busier of the two less busy.
    let helps = requests > 0.0 && after < loads[source];
    let is_worth_it = helps && after.max(loads[source] - requests) < 0.95 * loads[source];
    (fits && helps || is_worth_it).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shards of a server by their loads.
    fn shards(servers: &[&[f64]]) -> Vec<ShardLoad> {
        let mut all = Vec::new();
        for (server, loads) in servers.iter().enumerate() {
            for requests in *loads {
                all.push(ShardLoad { shard: all.len() as u16, server, requests: *requests });
            }
        }
        all
    }

    fn after(base: &[f64], shards: &[ShardLoad], moves: &[Move]) -> Vec<f64> {
        let mut loads = base.to_vec();
        for shard in shards {
            let moved = moves.iter().find(|one| one.shard == shard.shard);
            loads[moved.map_or(shard.server, |one| one.target)] += shard.requests;
        }
        loads
    }

    #[test]
    fn nothing_moves_below_the_threshold() {
        let all = shards(&[&[1200.0], &[1000.0], &[800.0]]);
        assert_eq!(rebalance(&[0.0; 3], &all, &RebalanceRules::default()), []);
    }

    #[test]
    fn the_hot_shard_of_figure_15_goes_to_the_server_that_lost_its_load() {
        let even: &[f64] = &[100.0; 10];
        let mut hot = vec![100.0; 10];
        hot.push(800.0);
        let all = shards(&[&[20.0; 10], &hot, even, even, even, even]);
        let moves = rebalance(&[0.0; 6], &all, &RebalanceRules::default());
        assert_eq!(moves, [Move { shard: 20, source: 1, target: 0 }]);
        let loads = after(&[0.0; 6], &all, &moves);
        assert!(loads.iter().all(|load| *load <= 1050.0), "{loads:?}");
    }

    #[test]
    fn many_small_shards_end_within_five_percent() {
        let busy = [50.0; 60];
        let all = shards(&[&busy, &busy[..20], &busy[..20], &busy[..20]]);
        let rules = RebalanceRules { moves_max: 100, ..RebalanceRules::default() };
        let moves = rebalance(&[0.0; 4], &all, &rules);
        let loads = after(&[0.0; 4], &all, &moves);
        assert!(loads.iter().all(|load| (load / 1500.0 - 1.0).abs() <= 0.05), "{loads:?}");
    }

    #[test]
    fn one_shard_that_is_everything_stays() {
        let all = shards(&[&[5000.0], &[0.0], &[0.0]]);
        assert_eq!(rebalance(&[0.0; 3], &all, &RebalanceRules::default()), []);
    }

    #[test]
    fn an_idle_cluster_moves_nothing() {
        let all = shards(&[&[10.0, 10.0], &[0.0]]);
        assert_eq!(rebalance(&[0.0; 2], &all, &RebalanceRules::default()), []);
    }

    #[test]
    fn no_move_makes_its_target_the_busier_one() {
        let mut seed = 1_u64;
        let mut draw = || {
            seed = base::hash::mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
            (seed % 1000) as f64
        };
        for _ in 0..500 {
            let loads: Vec<Vec<f64>> =
                (0..5).map(|_| (0..6).map(|_| draw() * draw() / 100.0).collect()).collect();
            let slices: Vec<&[f64]> = loads.iter().map(Vec::as_slice).collect();
            let all = shards(&slices);
            let before = after(&[0.0; 5], &all, &[]);
            let moves = rebalance(&[0.0; 5], &all, &RebalanceRules::default());
            let now = after(&[0.0; 5], &all, &moves);
            let most = |loads: &[f64]| loads.iter().copied().fold(0.0, f64::max);
            assert!(most(&now) <= most(&before));
        }
    }
}
