//! MICA Fig. 14: the uneven load of the cores under a skewed workload.

use std::fmt::Write as _;

use super::loads::Population;
use super::platform::Platform;
use super::run::Outcome;
use super::{System, setup, skew_of};
use crate::figure::{Axis, Chart, Figure, Options, Report, Scale, Series, Style, Table};
use sim::SimError;
use sim::parallel;

/// `mica-fig14`.
pub const FIGURE: Figure = Figure {
    name: "mica-fig14",
    about: "load of each core under EREW and a skewed workload, on 120 and 240 cores",
    run,
};

const REQUESTS: u64 = 2_000_000;

/// One server's cores.
struct Found {
    platform: Platform,
    hottest_over_mean: f64,
    /// Requests of each core over the hottest's, in per cent, hottest first.
    loads_pct: Vec<f64>,
}

fn run(options: &Options) -> Result<Report, SimError> {
    let (skew, hash_seed) = skew_of(options.fidelity);
    let population = Population::new(skew);
    let requests = options.requests.unwrap_or(REQUESTS);
    let platforms = [Platform::DUAL, Platform::QUAD];
    let found = parallel::map("mica-fig14", options.threads, &platforms, |platform| {
        let setup = setup(*platform, System::Erew, 0.95, &population, hash_seed);
        // Half of what it carries: nothing is lost, so that what is served is the load.
        let outcome = setup.offer(setup.estimate_saturation_mrps() / 2.0, requests, options.seed);
        Found {
            platform: *platform,
            hottest_over_mean: setup.loads.hottest_over_mean(),
            loads_pct: loads_pct(&outcome),
        }
    });
    Ok(Report { table: table(&found), charts: vec![chart(&found)], text: text(&found) })
}

fn loads_pct(outcome: &Outcome) -> Vec<f64> {
    let mut sorted = outcome.core_mrps.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let hottest = sorted[0];
    sorted.iter().map(|mrps| 100.0 * mrps / hottest).collect()
}

fn table(found: &[Found]) -> Table {
    let columns = ["cores", "rank", "load_pct_of_hottest"].map(str::to_owned).to_vec();
    let rows = found.iter().flat_map(|found| {
        found.loads_pct.iter().enumerate().map(|(rank, load_pct)| {
            vec![found.platform.cores.to_string(), (rank + 1).to_string(), format!("{load_pct:.2}")]
        })
    });
    Table { columns, rows: rows.collect() }
}

fn chart(found: &[Found]) -> Chart {
    let series = found.iter().map(|found| {
        let cores = found.loads_pct.len() as f64;
        let place = |(rank, load_pct): (usize, &f64)| (100.0 * rank as f64 / cores, *load_pct);
        Series {
            label: format!("{} cores", found.platform.cores),
            style: Style::Line,
            points: found.loads_pct.iter().enumerate().map(place).collect(),
        }
    });
    let paper = Series {
        label: "over 90 % of cores are below (paper)".to_owned(),
        style: Style::Marks,
        points: vec![(10.0, 20.0)],
    };
    Chart {
        title: "load of the cores, hottest first".to_owned(),
        x: Axis { label: "cores (%)".to_owned(), scale: Scale::Linear },
        y: Axis { label: "load of the hottest core (%)".to_owned(), scale: Scale::Linear },
        series: series.chain([paper]).collect(),
    }
}

fn text(found: &[Found]) -> String {
    let mut text = String::from("# MICA Fig. 14: the load of each core\n\n");
    for found in found {
        let above_pct = |pct: f64| found.loads_pct.iter().filter(|load| **load > pct).count();
        let cores = found.platform.cores;
        let lightest = &found.loads_pct[cores - 20..];
        let _ = writeln!(
            text,
            "- {cores} cores: the hottest has {:.2} times the mean, the next {:.0}, {:.0} and \
             {:.0} % of it; {:.0} % of the cores are below 20 % of it; the 20 lightest have at \
             most {:.1} % of it.",
            found.hottest_over_mean,
            found.loads_pct[1],
            found.loads_pct[2],
            found.loads_pct[3],
            100.0 * (cores - above_pct(20.0)) as f64 / cores as f64,
            lightest[0],
        );
    }
    text.push_str(
        "\nThe paper: only two very hot cores, more than 90 % of the cores below 20 % of the \
         hottest, the 20 lightest below 12 % of it. The shape is that of Zipf 0.99 itself: a core \
         that owns the key of rank r has about 1/r of the hottest core's load plus an even rest. \
         Which core is second depends on the hash when two of the first keys meet. EREW with 95 % \
         GET, at half the load that saturates it, so that what is served is what is asked for; the \
         server's router places each request.\n",
    );
    text
}
