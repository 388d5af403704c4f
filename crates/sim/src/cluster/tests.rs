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
fn one_seed_is_one_run() {
    let reports = [1, 1].map(|seed| format!("{:?}", run(&Options::all_faults(seed))));
    assert_eq!(reports[0], reports[1]);
}
