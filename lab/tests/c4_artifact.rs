//! Tests that the artifact's model, fed with the artifact's streams, gives its published numbers.

use lab::c4::{Balance, PointOptions, Policy, point};
use lab::figure::Fidelity;

const SHORT: &str = include_str!("../data/excess_tlat_short.csv");
const BASELINE: &str = include_str!("../data/baseline_short.csv");
const COMPACTION: &str = include_str!("../data/compaction_short.csv");

fn rows(csv: &str) -> impl Iterator<Item = Vec<f64>> {
    csv.lines().skip(1).map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect())
}

fn artifact(policy: Policy, load: f64, write_percent: f64, requests: u64) -> PointOptions {
    let fidelity = Fidelity::Artifact;
    PointOptions { policy, load, write_percent, requests, fidelity, ..PointOptions::default() }
}

#[track_caller]
fn check(options: PointOptions, want_p99_ns: f64) {
    assert_eq!(point(&options).unwrap().p99_ns as f64, want_p99_ns, "{options:?}");
}

/// 5 million requests each; together they are most of this crate's test time.
#[test]
fn the_long_runs_come_out_to_the_digit_with_reads_and_owners() {
    let load = 0.958_695_652_173_913;
    check(artifact(Policy::Ideal, load, 0.0, 5_000_000), 1781.0);
    check(artifact(Policy::Erew, 0.752_173_913_043_478_2, 50.0, 5_000_000), 6631.0);
}

#[test]
fn the_long_run_of_crew_at_50_comes_out_to_the_digit() {
    check(artifact(Policy::Crew, 0.958_695_652_173_913, 50.0, 5_000_000), 3395.0);
}

#[test]
fn the_long_run_of_crew_at_75_comes_out_to_the_digit() {
    check(artifact(Policy::Crew, 0.958_695_652_173_913, 75.0, 5_000_000), 6079.0);
}

#[test]
fn the_long_run_of_d_crew_comes_out_to_the_digit_and_never_fills_the_artifacts_table() {
    let result = point(&artifact(Policy::DCrew, 0.958_695_652_173_913, 85.0, 5_000_000)).unwrap();
    assert_eq!((result.p99_ns, result.ewt_max), (1783, 124));
    assert!((85.0..87.0).contains(&result.ewt_avg), "{}", result.ewt_avg);
}

#[test]
fn every_short_row_of_fig_3_comes_out_to_the_digit() {
    for row in rows(SHORT) {
        let [share, _, ideal, crew_load, crew, _, dcrew_load, dcrew, _, erew_load, erew, _] =
            row[..]
        else {
            panic!("{row:?}")
        };
        check(artifact(Policy::Crew, crew_load, share, 200_000), crew);
        check(artifact(Policy::DCrew, dcrew_load, share, 200_000), dcrew);
        if share == 0.0 {
            check(artifact(Policy::Ideal, dcrew_load, 0.0, 200_000), ideal);
            check(artifact(Policy::Erew, erew_load, 0.0, 200_000), erew);
        }
    }
}

/// With skewed keys simultaneous events decide more, and their order is the event engine's own:
/// most points are equal to the digit, the others near.
#[test]
fn skewed_points_are_near_the_published_ones() {
    let (mut count, mut equal) = (0, 0);
    for (csv, compaction) in [(BASELINE, false), (COMPACTION, true)] {
        for row in rows(csv).step_by(7) {
            let [zipf, share, _, _, load, want, ..] = row[..] else { panic!("{row:?}") };
            let point_options = PointOptions {
                zipf,
                compaction,
                balance: Balance::Bounded(2),
                ..artifact(Policy::Crew, load, share, 200_000)
            };
            let got = point(&point_options).unwrap().p99_ns as f64;
            assert!((got / want - 1.0).abs() <= 0.10, "{got} for {want}: {point_options:?}");
            count += 1;
            equal += u32::from(got == want);
        }
    }
    assert!(equal * 2 > count, "{equal} of {count} equal");
}
