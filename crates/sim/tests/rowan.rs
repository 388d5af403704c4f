//! Rowan-KV's device figures, held against the paper's numbers.

use sim::figure::{Fidelity, Options, Report};
use sim::rowan::FIGURES;

fn run(name: &str) -> Report {
    let figure = FIGURES.iter().find(|figure| figure.name == name).expect("a figure of Rowan-KV");
    let options =
        Options { requests: Some(120_000), seed: 1, fidelity: Fidelity::Honest, threads: 2 };
    (figure.run)(&options).expect("the figure runs")
}

/// The cell of `column` in the row whose first cells are these.
#[track_caller]
fn number(report: &Report, cells: &[&str], column: &str) -> f64 {
    let at = report.table.columns.iter().position(|name| name == column).expect("a column");
    let row = report.table.rows.iter().find(|row| row[..cells.len()] == *cells);
    row.unwrap_or_else(|| panic!("no row {cells:?}"))[at].parse().expect("a number")
}

#[track_caller]
fn check_near(found: f64, want: f64, within: f64) {
    let ratio = found / want;
    assert!((1.0 - within..=1.0 + within).contains(&ratio), "{found}, the paper has {want}");
}

#[test]
fn many_logs_of_small_writes_amplify_and_few_do_not() {
    let report = run("rowan-fig2");
    let at = |streams, size, local| number(&report, &[streams, size, local], "amplification");
    for (size, local) in [("64", "0"), ("128", "0"), ("64", "18"), ("128", "18")] {
        assert!(at("72", size, local) < 1.1, "{size} B, {local} local writers");
    }
    check_near(at("144", "64", "0"), 2.48, 0.15);
    check_near(at("144", "128", "0"), 1.58, 0.15);
}

#[test]
fn one_log_for_all_does_not_amplify() {
    let report = run("rowan-fig8");
    let at = report.table.columns.iter().position(|name| name == "amplification").unwrap();
    for row in &report.table.rows {
        assert!(row[at].parse::<f64>().unwrap() <= 1.056, "{row:?}");
    }
}

#[test]
fn a_log_for_each_remote_worker_amplifies_in_the_store_too() {
    let report = run("rowan-fig10");
    let at = |scheme| number(&report, &[scheme, "100 % PUT"], "amplification");
    assert!(at("rowan") <= 1.03 && at("rpc") <= 1.045);
    check_near(at("write"), 1.54, 0.05);
    assert!(at("batch") < at("write"), "sending together helps");
}
