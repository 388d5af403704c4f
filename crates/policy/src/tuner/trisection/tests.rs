//! Tests with every peak of every small range, with plateaus, and of the number of measurements.

use super::*;

#[track_caller]
fn search(range: RangeInclusive<u32>, hint: u32, curve: impl Fn(u32) -> f64) -> (u32, u32) {
    let mut trisection = Trisection::new(&range, hint, 0.001);
    let mut measured = Vec::new();
    while let Some(point) = trisection.next() {
        assert!(range.contains(&point), "I2: {point}");
        assert!(!measured.contains(&point), "I1: {point} twice");
        measured.push(point);
        trisection.record(curve(point));
    }
    (trisection.best().expect("measured").0, measured.len() as u32)
}

#[test]
fn every_peak_of_every_range_is_found_within_the_stated_steps() {
    for end in 1..=40 {
        let range = 3..=end + 2;
        let steps_max = Trisection::steps_max(&range);
        for peak in range.clone() {
            let curve = |point: u32| 1_000.0 - 10.0 * f64::from(point.abs_diff(peak));
            let (found, step_count) = search(range.clone(), 3, curve);
            assert_eq!(found, peak, "{range:?}");
            assert!(step_count <= steps_max, "{range:?}, peak {peak}: {step_count} steps");
        }
    }
}

#[test]
fn the_number_of_steps_grows_with_the_logarithm() {
    for (point_count, steps) in [(1, 1), (2, 2), (4, 3), (12, 5), (27, 7), (128, 10)] {
        assert_eq!(Trisection::steps_max(&(1..=point_count)), steps, "{point_count} points");
    }
}

#[test]
fn a_plateau_on_top_is_reached() {
    let curve = |point: u32| f64::from(point.min(8)) - f64::from(point.max(20) - 20);
    let (found, _) = search(1..=27, 1, curve);
    assert!((8..=20).contains(&found), "{found}");
}

#[test]
fn on_a_flat_foot_the_hint_tells_where_the_hill_is() {
    let curve = |point: u32| 100.0 - 10.0 * f64::from(point.abs_diff(25).min(3));
    assert_eq!(search(1..=27, 24, curve).0, 25);
    let curve = |point: u32| 100.0 - 10.0 * f64::from(point.abs_diff(2).min(3));
    assert_eq!(search(1..=27, 3, curve).0, 2);
}
