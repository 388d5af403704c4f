//! The report of a comparison: medians, their spread, and ratios within rounds.

use std::fmt::Write;

use serde_json::json;

use super::Window;

/// A median with the minimum and the maximum.
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    /// Computes the spread; needs at least one number.
    fn of(mut numbers: Vec<f64>) -> Spread {
        numbers.sort_by(f64::total_cmp);
        let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
        let last = numbers.len().saturating_sub(1);
        Spread { least: at(0), median: (at(last / 2) + at(last.div_ceil(2))) / 2.0, most: at(last) }
    }

    fn text(&self, digits: usize) -> String {
        let Spread { least, median, most } = self;
        format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
    }

    fn json(&self) -> serde_json::Value {
        json!({ "median": self.median, "least": self.least, "most": self.most })
    }
}

fn spread(windows: &[Window], of: impl Fn(&Window) -> f64) -> Spread {
    Spread::of(windows.iter().map(of).collect())
}

/// The ratio of each round's window to the first preset's in the same round.
fn ratios(windows: &[Window], first: &[Window], of: impl Fn(&Window) -> f64) -> Spread {
    Spread::of(windows.iter().zip(first).map(|(own, first)| of(own) / of(first)).collect())
}

fn server_cpu_ns(window: &Window) -> f64 {
    window.server_cpu_ns.unwrap_or(f64::NAN)
}

/// One row for each preset.
pub fn table(names: &[&str], found: &[Vec<Window>]) -> String {
    let mut text = String::new();
    let rounds = found.first().map_or(0, Vec::len);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{rounds} rounds, by turns; median (least to most); ratios are to {} in the same round\n",
        names.first().unwrap_or(&"the first")
    );
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(10);
    let _ = writeln!(
        text,
        "{:width$} {:>28} {:>22} {:>26} {:>22} {:>24} {:>26}",
        "preset", "thousand ops/s", "ratio", "server CPU ns/op", "ratio", "p50 us", "p99 us"
    );
    for (name, windows) in names.iter().zip(found) {
        let first = &found[0];
        let _ = writeln!(
            text,
            "{name:width$} {:>28} {:>22} {:>26} {:>22} {:>24} {:>26}",
            spread(windows, |window| window.ops_per_second / 1e3).text(1),
            ratios(windows, first, |window| window.ops_per_second).text(2),
            spread(windows, server_cpu_ns).text(0),
            ratios(windows, first, server_cpu_ns).text(2),
            spread(windows, |window| window.p50_us).text(1),
            spread(windows, |window| window.p99_us).text(1),
        );
    }
    text
}

/// The same, with every window.
pub fn json(names: &[&str], found: &[Vec<Window>]) -> String {
    let rows = names.iter().zip(found).map(|(name, windows)| {
        let rounds: Vec<_> = windows
            .iter()
            .map(|window| {
                json!({
                    "ops_per_second": window.ops_per_second,
                    "server_cpu_ns_per_op": window.server_cpu_ns,
                    "p50_us": window.p50_us,
                    "p99_us": window.p99_us,
                })
            })
            .collect();
        let first = &found[0];
        json!({
            "preset": name,
            "ops_per_second": spread(windows, |window| window.ops_per_second).json(),
            "ops_ratio": ratios(windows, first, |window| window.ops_per_second).json(),
            "server_cpu_ns_per_op": spread(windows, server_cpu_ns).json(),
            "server_cpu_ratio": ratios(windows, first, server_cpu_ns).json(),
            "p50_us": spread(windows, |window| window.p50_us).json(),
            "p99_us": spread(windows, |window| window.p99_us).json(),
            "rounds": rounds,
        })
    });
    let page = json!({ "version": env!("CARGO_PKG_VERSION"), "presets": rows.collect::<Vec<_>>() });
    format!("{page:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(rates: &[f64]) -> Vec<Window> {
        let window = |rate: &f64| Window {
            ops_per_second: *rate,
            server_cpu_ns: Some(1e9 / rate),
            p50_us: 10.0,
            p99_us: 20.0,
        };
        rates.iter().map(window).collect()
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // Twice as fast in every round, though the machine halves its speed in between.
        let found = [windows(&[100.0, 50.0, 100.0]), windows(&[200.0, 100.0, 200.0])];
        let text = table(&["one", "two"], &found);
        let row = text.lines().find(|line| line.starts_with("two")).unwrap();
        assert!(row.contains("2.00 (2.00 to 2.00)"), "{row}");
        assert!(row.contains("0.50 (0.50 to 0.50)"), "{row}");
        let page: serde_json::Value = serde_json::from_str(&json(&["one", "two"], &found)).unwrap();
        assert_eq!(page.pointer("/presets/1/ops_ratio/median").unwrap(), 2.0);
        assert_eq!(page.pointer("/presets/1/rounds/1/ops_per_second").unwrap(), 100.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread.text(1), "2.5 (1.0 to 4.0)");
    }
}
