//! Tests of the names, and of the means that the sources state.

use super::*;

fn profile(name: &str) -> Profile {
    name.parse().unwrap()
}

#[test]
fn every_listed_name_is_a_workload_of_that_name() {
    let names = Profile::names();
    assert_eq!(names.len(), 25 + 53);
    for name in &names {
        let found = profile(name);
        assert_eq!(&found.name, name);
        assert!(!found.about.is_empty() && !found.about.contains('\n'));
        assert!(found.mix.total() > 0);
    }
    for wanted in ["twitter-12", "twitter-19", "twitter-31", "minos", "zippydb", "ycsb-load"] {
        assert!(names.iter().any(|name| name == wanted), "{wanted}");
    }
}

#[track_caller]
fn check_refused(name: &str, want: &str) {
    let error = name.parse::<Profile>().expect_err(name).to_string();
    assert!(error.contains(want) && !error.contains('\n'), "{name}: {error}");
}

#[test]
fn an_unknown_name_is_told_the_known_ones_in_one_line() {
    for name in ["", "ycsb-g", "ycsb-", "minos-2", "minos-", "zippydb-1", "etc-7", "get-1"] {
        check_refused(name, "write one of get, set, put, ycsb-load, ycsb-a,");
    }
    for name in ["twitter-0", "twitter-55", "twitter-", "twitter", "twitter--1"] {
        check_refused(name, "twitter-1 to twitter-54");
    }
    check_refused("twitter-5", "no published sizes");
}

/// The mean of key and value over the keys themselves, not by formula.
fn measured_item_mean_bytes(profile: &Profile, key_count: u64) -> f64 {
    let sizes = profile.value_sizes(key_count);
    let sum: u64 = (0..key_count).map(|id| sizes.len_of(id) as u64).sum();
    profile.key_len_bytes as f64 + sum as f64 / key_count as f64
}

#[test]
fn facebooks_objects_have_the_means_that_rowan_quotes() {
    for (name, want_bytes) in [("zippydb", 90.8), ("up2x", 57.25), ("udb", 153.8)] {
        let found = profile(name);
        assert!((found.item_mean_bytes() - want_bytes).abs() < 0.05, "{name}");
        let measured = measured_item_mean_bytes(&found, 500_000);
        assert!((measured / want_bytes - 1.0).abs() < 0.01, "{name}: {measured}");
    }
}

#[test]
fn twitters_values_have_the_published_means() {
    for number in (1..=twitter::CLUSTERS).filter(|number| *number != 5) {
        let cluster = twitter::Cluster::of(number).unwrap();
        let found = profile(&format!("twitter-{number}"));
        let want_bytes = cluster.value_len_bytes as f64;
        let mean_bytes = found.value_sizes(1000).len_mean_bytes();
        assert!((mean_bytes - want_bytes).abs() <= 0.01 * want_bytes, "{number}: {mean_bytes}");
        assert!((found.mix.write_share() - (1.0 - cluster.read_share())).abs() < 1e-4);
    }
}

#[test]
fn etc_items_are_about_the_256_bytes_that_they_are_compared_with() {
    let mean_bytes = profile("etc").value_sizes(1000).len_mean_bytes();
    assert!((235.0..265.0).contains(&mean_bytes), "{mean_bytes}");
    for (name, write_share) in [("etc", 0.1), ("etc-10", 0.9), ("etc-50", 0.5), ("etc-90", 0.1)] {
        assert_eq!(profile(name).mix.write_share(), write_share, "{name}");
    }
}

/// Minos Table 1: the share of bytes that large requests move.
#[track_caller]
fn check_minos(name: &str, want_bytes_pct: f64) {
    let found = profile(name);
    let Popularity::ZipfBesideRare { rare, .. } = found.popularity else { panic!("{name}") };
    let large_bytes = found.large_sizes.as_ref().unwrap().len_mean_bytes() * rare.request_share;
    let regular_bytes = found.regular_sizes.len_mean_bytes() * (1.0 - rare.request_share);
    let large_pct = 100.0 * large_bytes / (regular_bytes + large_bytes);
    assert!((large_pct - want_bytes_pct).abs() < 3.0, "{name}: {large_pct} %");
}

#[test]
fn minos_moves_the_bytes_of_its_table() {
    check_minos("minos-250k", 25.0);
    check_minos("minos", 40.0);
    check_minos("minos-1000k", 60.0);
    check_minos("minos-0.0625", 25.0);
    check_minos("minos-0.25", 60.0);
    check_minos("minos-0.5", 75.0);
    check_minos("minos-0.75", 80.0);
}

#[test]
fn minos_draws_large_items_as_rarely_as_it_says() {
    const DRAWS: usize = 400_000;
    let found = profile("minos-0.75");
    // A tenth of the paper's keys: the shares of keys stay.
    let mut requests = found.requests(MINOS_KEYS / 10, 1);
    let drawn: Vec<_> = (0..DRAWS).map(|_| requests.draw()).collect();
    let share = |low: usize, high: usize| {
        let is_in = |length: &usize| (low..=high).contains(length);
        drawn.iter().map(|request| request.value_len_bytes).filter(is_in).count() as f64
            / DRAWS as f64
    };
    assert!((share(1500, 500_000) - 0.0075).abs() < 0.0006);
    assert_eq!(share(1401, 1499), 0.0);
    assert!((share(1, 1400) - 0.9925).abs() < 0.0006);
    let large = drawn.iter().filter(|request| request.value_len_bytes >= 1500);
    assert!(large.clone().all(|request| request.rank == request.id && request.id >= 1_599_000));
}

#[test]
fn scaled_key_sets_keep_the_share_of_large_keys() {
    let found = profile("minos");
    for key_count in [2, 1000, 160_000, MINOS_KEYS] {
        let sizes = found.value_sizes(key_count);
        assert!(sizes.len_of(key_count - 1) >= 1500, "{key_count}: the last is large");
        assert!(sizes.len_of(0) <= 1400, "{key_count}: the first is not");
    }
    let mean_bytes = found.item_mean_bytes();
    let want_bytes = 8.0 + 427.0 + (250_750.0 - 427.0) / 1600.0;
    assert!((mean_bytes - want_bytes).abs() < 1.0, "{mean_bytes} {want_bytes}");
}
