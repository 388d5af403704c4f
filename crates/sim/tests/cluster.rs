//! Hundreds of seeds of whole clusters under every fault, and planted bugs that must be noticed.
//!
//! `CLUSTER_SEEDS=N` runs N seeds, `CLUSTER_FIRST_SEED=S` from S on; the nightly run sets both.

use sim::cluster::{FaultKind, Options, PLANTS, Plant, Report, Scheme, run};
use sim::parallel;

/// Without `CLUSTER_SEEDS`.
const SEED_COUNT: u64 = 400;
/// A planted bug must show within this many seeds; most do in the first ten, frames of older terms
/// in one run of some hundreds.
const PLANT_SEEDS_MAX: u64 = 2_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_seed_passes_with_every_fault() {
    let first = number("CLUSTER_FIRST_SEED", 1);
    let seeds: Vec<u64> = (first..first + number("CLUSTER_SEEDS", SEED_COUNT)).collect();
    let started = std::time::Instant::now();
    let reports = parallel::map("seeds", 2, &seeds, |seed| run(&Options::all_faults(*seed)));
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    println!(
        "{} seeds, {} requests, {} unanswered, {} faults, {} terms, {} events, {:.1} a second",
        seeds.len(),
        sum(|report| report.request_count as u64),
        sum(|report| report.unanswered_count as u64),
        sum(|report| report.struck_count),
        sum(|report| report.term_count),
        sum(|report| report.event_count),
        seeds.len() as f64 / started.elapsed().as_secs_f64(),
    );
    let mut failed = 0;
    for report in &reports {
        if let Some(failure) = &report.failure {
            failed += 1;
            println!("dovetail sim cluster --seed {}: {failure}", report.seed);
        }
    }
    let undecided: Vec<u64> =
        reports.iter().filter(|report| report.is_undecided).map(|report| report.seed).collect();
    println!("the checker gave up on seeds {undecided:?}");
    assert_eq!(failed, 0, "of {}", seeds.len());
    assert_eq!(undecided, Vec::<u64>::new(), "the checker gave up");
    // Runs in which more was lost than the design promises are not passes; they must be rare.
    let beyond = sum(|report| u64::from(report.is_beyond_promise));
    assert!(beyond * 50 <= seeds.len() as u64, "{beyond} of {} prove little", seeds.len());
    // A simulation in which little happens proves little.
    assert!(sum(|report| report.struck_count) > seeds.len() as u64);
    assert!(sum(|report| report.term_count) > 2 * seeds.len() as u64);
}

/// Commands on several keys, under each scheme.
#[test]
fn groups_pass_with_every_fault_under_every_scheme() {
    let first = number("CLUSTER_FIRST_SEED", 1);
    let seeds = first..first + number("CLUSTER_SEEDS", SEED_COUNT).div_ceil(8);
    let with = |scheme| seeds.clone().map(move |seed| (scheme, seed));
    let runs: Vec<(Scheme, u64)> = Scheme::ALL.into_iter().flat_map(with).collect();
    let reports = parallel::map("runs", 2, &runs, |(scheme, seed)| {
        let scheme = Some(*scheme);
        run(&Options { scheme, has_groups: true, ..Options::all_faults(*seed) })
    });
    for scheme in Scheme::ALL {
        let of_scheme = runs.iter().zip(&reports).filter(|((of, _), _)| *of == scheme);
        let (mut struck_count, mut group_count) = (0, 0);
        for ((_, seed), report) in of_scheme {
            assert_eq!((&report.failure, report.is_undecided), (&None, false), "{scheme} {seed}");
            struck_count += report.struck_count;
            group_count += report.group_count;
        }
        println!("{scheme}: {group_count} groups, {struck_count} faults");
        // A simulation in which little happens proves little.
        let seed_count = seeds.end - seeds.start;
        assert!(group_count > 10 * seed_count && struck_count > seed_count, "{group_count}");
    }
}

/// A rolling restart: each server is asked to end, and starts again.
#[test]
fn a_server_that_is_told_to_end_answers_every_client() {
    let (mut struck, mut left) = (0, 0);
    for seed in 1..=200 {
        let report = run(&Options { faults: vec![FaultKind::End], ..Options::all_faults(seed) });
        assert_eq!((report.failure, report.unanswered_count), (None, 0), "seed {seed}");
        struck += report.struck_count;
        left += report.left_count;
    }
    println!("{left} of {struck} had left before their time was over");
    // Those whose time was too short, and a second wish to one that is leaving.
    assert!(struck > 100 && left * 10 > struck * 7, "{left} of {struck}");
}

/// What says so first, or at least in one of the seeds: each thing that is looked at is wrong once.
const SIGNS: &[(Plant, &str)] = &[
    (Plant::Ack, " has {"),
    (Plant::Term, "no order explains"),
    (Plant::Checksum, " has {"),
    (Plant::Primary, "has primaries"),
    (Plant::Lease, "is served by"),
    (Plant::Tombstone, "no order explains"),
    (Plant::Flush, " has {"),
    (Plant::Forget, "and forgets"),
    (Plant::Hasty, "is served by"),
    (Plant::Suspend, "went back"),
    (Plant::Reuse, "went back"),
    (Plant::Sync, "no order explains"),
    (Plant::Early, " has {"),
];

#[test]
fn every_planted_bug_is_noticed_by_its_check() {
    assert_eq!(SIGNS.len(), PLANTS.len());
    for (plant, sign) in SIGNS {
        let failure = |seed: u64| {
            let plant: Option<Plant> = Some(*plant);
            run(&Options { plant, ..Options::all_faults(seed) }).failure
        };
        let shows = |seed: &u64| failure(*seed).is_some_and(|text| text.contains(sign));
        let seed = (1..=PLANT_SEEDS_MAX).find(shows);
        println!("{plant:?}, `{sign}`: seed {seed:?}");
        assert!(seed.is_some(), "the planted bug {plant:?} was not noticed: `{sign}`");
    }
}

#[test]
fn servers_that_start_together_from_their_disks_serve_all_of_64_shards() {
    let (mut struck, mut terms) = (0, 0);
    for seed in 1..=60 {
        let faults = vec![FaultKind::Power, FaultKind::Loss];
        let (shards, requests) = (Some(64), Some(150));
        let report = run(&Options { shards, requests, faults, ..Options::all_faults(seed) });
        assert_eq!((report.failure, report.is_undecided), (None, false), "seed {seed}");
        struck += report.struck_count;
        terms += report.term_count;
    }
    println!("{struck} times, {terms} configurations");
    assert!(struck > 60, "{struck} times all servers died");
    // No server is expelled while it searches its store.
    assert!(terms < 60 * 20 + 30 * struck, "{terms} configurations after {struck} power cuts");
}
