//! A few short runs; crates/sim/tests/cluster.rs has hundreds.

use super::*;

#[test]
fn a_run_without_faults_is_linearizable() {
    for seed in 1..=5 {
        let report = run(&Options { seed, ..Options::default() });
        assert_eq!(report.failure, None, "seed {seed}");
        assert_eq!(report.unanswered_count, 0, "seed {seed}");
    }
}

#[test]
fn groups_without_faults_are_all_answered_under_every_scheme() {
    for scheme in Scheme::ALL {
        let mut group_count = 0;
        for seed in 1..=10 {
            let scheme = Some(scheme);
            let report = run(&Options { seed, scheme, has_groups: true, ..Options::default() });
            assert_eq!((report.failure, report.unanswered_count), (None, 0), "seed {seed}");
            group_count += report.group_count;
        }
        assert!(group_count > 0, "{scheme}"); // Not every seed has two keys in one shard.
    }
}

#[test]
fn one_seed_is_one_run() {
    let reports = [1, 1].map(|seed| format!("{:?}", run(&Options::all_faults(seed))));
    assert_eq!(reports[0], reports[1]);
}
