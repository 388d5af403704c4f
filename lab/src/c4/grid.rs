//! Figures 3, 4, 9 and 10 of C-4: the policies over loads, shares of writes and skew.

mod fig3;
mod fig4;
mod load_latency;

use crate::figure::Figure;

/// What this model draws.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "c4-fig3",
        about: "throughput under SLO and p99 of EREW, CREW and d-CREW by share of writes",
        run: fig3::run,
    },
    Figure {
        name: "c4-fig4",
        about: "throughput under SLO by skew and share of writes, with and without compaction",
        run: fig4::run,
    },
    Figure {
        name: "c4-fig9",
        about: "p99 by load at 50 % writes, uniform keys",
        run: load_latency::fig9,
    },
    Figure {
        name: "c4-fig10",
        about: "p99 by load at 50 % and 85 % writes, uniform keys",
        run: load_latency::fig10,
    },
];

/// A cell of the artifact's published results.
fn published<'a>(csv: &'a str, column: &str) -> impl Iterator<Item = f64> + 'a {
    let head = csv.lines().next().unwrap_or_default();
    let place = head.split(',').position(|name| name == column);
    csv.lines().skip(1).filter_map(move |line| line.split(',').nth(place?)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::published;

    #[test]
    fn published_columns_are_read_by_name() {
        let csv = "a,b\n1,2.5\n3,4\n";
        assert_eq!(published(csv, "b").collect::<Vec<f64>>(), [2.5, 4.0]);
        assert_eq!(published(csv, "c").count(), 0);
    }
}
