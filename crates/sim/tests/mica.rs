//! MICA's many-core platforms against the paper's numbers.

use sim::mica::loads::{Population, Skew};
use sim::mica::platform::Platform;
use sim::mica::run::Outcome;
use sim::mica::{HASH_SEED, HASH_SEED_AS_STATED, System, setup};

#[track_caller]
fn check_hottest(skew: Skew, hash_seed: u64, cores: usize, want: f64, tolerance: f64) {
    let loads = Population::new(skew).loads(cores, 1000, hash_seed);
    let found = loads.hottest_over_mean();
    assert!((found / want - 1.0).abs() < tolerance, "{cores}: {found}, want {want}");
    let sum: f64 = loads.partitions.iter().map(|load| load.share).sum();
    assert!((sum - 1.0).abs() < 1e-7, "{sum}");
}

#[test]
fn the_hottest_of_24_partitions_has_the_papers_load() {
    check_hottest(Skew::Zipf, HASH_SEED, 24, 1.97, 0.01);
}

#[test]
fn the_stated_loads_come_out_of_a_hottest_key_of_four_per_cent() {
    check_hottest(Skew::ZipfAsStated, HASH_SEED_AS_STATED, 24, 1.97, 0.02);
    check_hottest(Skew::ZipfAsStated, HASH_SEED_AS_STATED, 120, 5.8, 0.02);
    check_hottest(Skew::ZipfAsStated, HASH_SEED_AS_STATED, 240, 10.6, 0.02);
}

fn saturate(platform: Platform, system: System, skew: Skew, get_share: f64) -> Outcome {
    let population = Population::new(skew);
    setup(platform, system, get_share, &population, HASH_SEED).saturate(200_000, 1)
}

#[track_caller]
fn check_mrps(outcome: &Outcome, want: f64, tolerance: f64) {
    let found = outcome.mrps;
    assert!(outcome.is_carried);
    assert!((found / want - 1.0).abs() < tolerance, "{found} million a second, want {want}");
}

#[test]
fn uniform_keys_scale_with_the_cores() {
    for (platform, want) in Platform::ALL.into_iter().zip([120.5, 602.5, 1205.0]) {
        check_mrps(&saturate(platform, System::Erew, Skew::Uniform, 0.95), want, 0.05);
    }
}

#[test]
fn erew_loses_most_of_a_large_server_to_skew() {
    for (platform, want) in Platform::ALL.into_iter().zip([84.0, 130.0, 140.0]) {
        check_mrps(&saturate(platform, System::Erew, Skew::Zipf, 0.95), want, 0.15);
    }
}
