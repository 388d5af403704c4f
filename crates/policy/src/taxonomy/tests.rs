//! Tests that each workload that C-4 names is in the region that C-4 gives it.

use super::*;

/// The share of the hottest of C-4's 1.6 million keys.
fn hottest_share_ratio(exponent: f64) -> f64 {
    let weights = (1..=1_600_000).map(|rank| f64::from(rank).powf(-exponent));
    1.0 / weights.sum::<f64>()
}

fn observed(exponent: f64, write_percent: u64) -> Observed {
    Observed {
        read_count: 100 - write_percent,
        write_count: write_percent,
        worker_count: 64,
        popularity: Some(Popularity {
            hottest_share_ratio: hottest_share_ratio(exponent),
            zipf_exponent: Some(exponent),
        }),
    }
}

#[track_caller]
fn check(exponent: f64, write_percent: u64, region: &str, recommendation: &str) {
    let found = observed(exponent, write_percent).region();
    assert_eq!(found.to_string(), region, "exponent {exponent}, {write_percent} % writes");
    assert_eq!(found.recommendation().to_string(), recommendation);
}

const CREW: &str = "--write-policy crew --compaction off";
const DYNAMIC: &str = "--write-policy d-crew --compaction off";
const COMPACTING: &str = "--write-policy d-crew --compaction on";

#[test]
fn uniform_workloads_with_half_writes_are_write_intensive() {
    check(0.0, 50, "WI_uni", DYNAMIC); // C-4 Fig. 9
    check(0.0, 85, "WI_uni", DYNAMIC); // C-4 Fig. 10
    check(0.0, 92, "WI_uni", DYNAMIC); // C-4 §2.1, statistics for machine learning
}

#[test]
fn uniform_workloads_with_few_writes_are_read_mostly() {
    check(0.0, 0, "R_uni", CREW);
    check(0.0, 5, "R_uni", CREW);
    check(0.0, 6, "RW_uni", DYNAMIC);
    check(0.0, 49, "RW_uni", DYNAMIC);
}

#[test]
fn skewed_workloads_whose_hottest_writer_is_overloaded_are_read_write() {
    check(0.99, 35, "RW_sk", COMPACTING); // C-4 §3.2: 56 % of the ideal
    check(1.4, 5, "RW_sk", COMPACTING); // C-4 §3.2: 66 % of the ideal
    check(1.25, 5, "RW_sk", COMPACTING); // C-4 Fig. 11
}

#[test]
fn skewed_workloads_with_half_writes_are_compacted_too() {
    check(0.99, 50, "WI_sk", COMPACTING); // C-4 Fig. 13
}

#[test]
fn skewed_reads_are_read_mostly() {
    check(0.99, 0, "R_sk", CREW);
    check(0.9, 5, "R_sk", CREW);
    check(1.4, 1, "R_sk", CREW);
}

#[test]
fn a_key_that_fills_a_worker_is_skew_without_any_law() {
    let popularity = Some(Popularity { hottest_share_ratio: 0.02, zipf_exponent: None });
    let of_workers = |worker_count| Observed { worker_count, popularity, ..observed(0.0, 50) };
    assert_eq!(of_workers(64).region().to_string(), "WI_sk");
    assert_eq!(of_workers(8).region().to_string(), "WI_uni");
}

#[test]
fn one_worker_is_always_balanced() {
    let popularity = Some(Popularity { hottest_share_ratio: 1.0, zipf_exponent: None });
    let alone = Observed { worker_count: 1, popularity, ..observed(0.0, 50) };
    assert_eq!(alone.region().skew, Skew::Uniform);
}

#[test]
fn no_requests_are_no_reason_for_anything() {
    let popularity = Some(Popularity::of([], 0));
    let nothing = Observed { read_count: 0, write_count: 0, worker_count: 8, popularity };
    assert_eq!(nothing.region().to_string(), "R_uni");
}

#[test]
fn the_exponent_is_found_in_exact_counts() {
    for exponent in [0.5, 0.9, 0.99, 1.25, 1.4] {
        let count_of = |rank: u32| (1e6 * f64::from(rank).powf(-exponent)).round() as u32;
        let popularity = Popularity::of((1..=1_000).map(count_of), 10_000_000);
        let fitted = popularity.zipf_exponent.expect("a thousand keys");
        assert!((fitted - exponent).abs() < 0.01, "{fitted} for {exponent}");
        assert_eq!(popularity.hottest_share_ratio, 0.1);
    }
}

#[test]
fn few_or_rare_keys_are_fitted_to_no_law() {
    assert_eq!(Popularity::of([1_000; 7], 10_000).zipf_exponent, None);
    assert_eq!(Popularity::of([7; 1_000], 10_000).zipf_exponent, None);
}

#[test]
fn equally_popular_keys_have_exponent_zero() {
    let exponent = Popularity::of([50; 100], 5_000).zipf_exponent.expect("a hundred keys");
    assert!(exponent.abs() < 1e-9);
}

#[test]
fn keys_that_were_not_sampled_leave_open_what_depends_on_them() {
    let check = |write_percent, region: &str, recommendation: &str| {
        let found = Observed { popularity: None, ..observed(1.4, write_percent) }.region();
        assert_eq!(found.to_string(), region);
        assert_eq!(found.recommendation().to_string(), recommendation);
    };
    check(5, "R_?", CREW);
    check(35, "RW_?", "--write-policy d-crew");
    check(92, "WI_?", "--write-policy d-crew");
}
