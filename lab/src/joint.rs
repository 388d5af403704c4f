//! Compares the joint default with every preset, each where its paper's design is strong.
//!
//! ```text
//!  four regions of C-4's taxonomy ─┐                      ┌─▶ throughput under SLO, each preset
//!  three size mixes of Minos ──────┴─▶ plan, 4 to 240 ────┘    beside the joint default
//! ```
//!
//! Every preset gets the same requests and the same costs, line transfers included. The model is
//! that of [`sim::plan`], which lists what it leaves out.

use policy::Access;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use workload::scramble::mix;
use workload::{Popularity, RankSampler};

use crate::figure::{Axis, Chart, Figure, Options, Report, Scale, Series, Style, Table};
use sim::measure::CostTable;
use sim::plan::{Item, PRESETS, Plan, PlanOptions, REQUEST_NS_DEFAULT, Workload, plan};
use sim::{SimError, parallel};

/// The figures of this model.
pub const FIGURES: &[Figure] = &[Figure {
    name: "joint",
    about: "the joint default against every preset, by region, size mix and number of cores",
    run,
}];

const REQUESTS_DEFAULT: u64 = 60_000;
const CORES: [usize; 5] = [4, 8, 16, 64, 240];
const KEY_COUNT: u64 = 1_600_000;
/// Items of the regions: C-4's largest, 16-byte keys and 512-byte values.
const ITEM_BYTES: u64 = 528;
/// The presets in the picture; the table has all.
const DRAWN: [&str; 8] =
    ["dovetail", "c4", "c4-crew", "c4-comp", "hkh-ws", "minos", "basekv", "mica-erew"];

/// A kind of traffic.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    name: &'static str,
    about: &'static str,
    write_share: f64,
    zipf: f64,
    /// Bytes of a large item; 0: there are none.
    large_bytes: u64,
}

/// One in this many requests is for a large item in Minos's mixes (Minos §5.3: 0.125 %).
const LARGE_SHARE: f64 = 0.00125;
/// Minos's tiny and small items: 40 % of 1 to 13 bytes, 60 % of 14 to 1400 bytes.
const TINY_SHARE: f64 = 0.4;

const fn region(name: &'static str, about: &'static str, write_share: f64, zipf: f64) -> Traffic {
    Traffic { name, about, write_share, zipf, large_bytes: 0 }
}

const fn sizes(name: &'static str, about: &'static str, large_bytes: u64) -> Traffic {
    Traffic { name, about, write_share: 0.05, zipf: 0.99, large_bytes }
}

const TRAFFIC: [Traffic; 7] = [
    region("RW_uni", "20 % writes, uniform keys", 0.2, 0.0),
    region("RW_sk", "5 % writes, Zipf 1.25", 0.05, 1.25),
    region("WI_uni", "75 % writes, uniform keys", 0.75, 0.0),
    region("WI_sk", "75 % writes, Zipf 1.25", 0.75, 1.25),
    sizes("250KB", "Minos's sizes, large items of up to 250 KB", 250_000),
    sizes("500KB", "Minos's sizes, large items of up to 500 KB", 500_000),
    sizes("1000KB", "Minos's sizes, large items of up to 1000 KB", 1_000_000),
];

/// In the order of [`TRAFFIC`].
const NAMES: &[&str] = &["RW_uni", "RW_sk", "WI_uni", "WI_sk", "250KB", "500KB", "1000KB"];

fn run(options: &Options) -> Result<Report, SimError> {
    let request_count = options.requests.unwrap_or(REQUESTS_DEFAULT) as usize;
    let costs = CostTable::committed()?;
    let mut points = Vec::new();
    for cores in CORES {
        points.extend((0..TRAFFIC.len()).map(|index| (cores, index)));
    }
    let plans = parallel::map("joint", options.threads, &points, |(cores, index)| {
        let workload = draw(&TRAFFIC[*index], request_count, options.seed);
        let asked = PlanOptions {
            cores: *cores,
            slo_ns: None,
            request_ns: REQUEST_NS_DEFAULT,
            seed: options.seed,
            threads: 1,
        };
        plan(&workload, &costs, &asked)
    });
    let plans = plans.into_iter().collect::<Result<Vec<Plan>, SimError>>()?;
    let results: Vec<(usize, usize, Plan)> =
        points.into_iter().zip(plans).map(|((cores, index), plan)| (cores, index, plan)).collect();
    Ok(Report {
        table: table(&results),
        charts: CORES.iter().map(|cores| chart(&results, *cores)).collect(),
        text: text(&results, request_count),
    })
}

fn draw(traffic: &Traffic, request_count: usize, seed: u64) -> Workload {
    let mut random = SmallRng::seed_from_u64(mix(seed));
    let popularity = match traffic.zipf {
        0.0 => Popularity::Uniform,
        exponent => Popularity::Zipf { exponent },
    };
    let ranks = RankSampler::new(popularity, KEY_COUNT);
    let item = |_| {
        let is_large = traffic.large_bytes > 0 && random.random::<f64>() < LARGE_SHARE;
        let rank = ranks.draw(&mut random);
        let (key, size_bytes) = match (traffic.large_bytes, is_large) {
            (0, _) => (rank, ITEM_BYTES),
            (_, false) => (rank, small_bytes(rank)),
            // Ten thousand large items, beside the others.
            (most, true) => {
                let key = KEY_COUNT + random.random_range(0..10_000);
                (key, 1500 + mix(key) % (most - 1500))
            }
        };
        let is_write = random.random::<f64>() < traffic.write_share;
        let access = if is_write { Access::Write } else { Access::Read };
        Item { key, access, size_bytes }
    };
    Workload { about: traffic.about.to_owned(), items: (0..request_count).map(item).collect() }
}

/// A key has one size for good.
fn small_bytes(rank: u64) -> u64 {
    let drawn = mix(rank);
    let is_tiny = (drawn >> 32) as f64 / f64::from(u32::MAX) < TINY_SHARE;
    8 + if is_tiny { 1 + drawn % 13 } else { 14 + drawn % 1387 }
}

fn throughput_rps(plan: &Plan, preset: &str) -> f64 {
    plan.rows.iter().find(|row| row.preset == preset).map_or(0.0, |row| row.throughput_rps)
}

fn best_rps(plan: &Plan) -> f64 {
    plan.rows.iter().map(|row| row.throughput_rps).fold(0.0, f64::max)
}

fn table(results: &[(usize, usize, Plan)]) -> Table {
    let columns =
        ["cores", "traffic", "preset", "slo_us", "throughput_mrps", "to_the_best", "p99_us"];
    let mut rows = Vec::new();
    for (cores, index, plan) in results {
        for preset in PRESETS {
            let Some(row) = plan.rows.iter().find(|row| row.preset == preset.name) else {
                continue;
            };
            rows.push(vec![
                cores.to_string(),
                TRAFFIC[*index].name.to_owned(),
                preset.name.to_owned(),
                format!("{:.1}", plan.slo_ns / 1e3),
                format!("{:.2}", row.throughput_rps / 1e6),
                format!("{:.3}", row.throughput_rps / best_rps(plan).max(1.0)),
                format!("{:.1}", row.p99_ns as f64 / 1e3),
            ]);
        }
    }
    Table { columns: columns.map(String::from).into(), rows }
}

fn chart(results: &[(usize, usize, Plan)], cores: usize) -> Chart {
    let series = DRAWN.iter().map(|preset| {
        let points = results.iter().filter(|result| result.0 == cores).map(|(_, index, plan)| {
            let share = throughput_rps(plan, preset) / best_rps(plan).max(1.0);
            (*index as f64, share)
        });
        Series { label: (*preset).to_owned(), style: Style::Bars, points: points.collect() }
    });
    Chart {
        title: format!("{cores} cores"),
        x: Axis { label: "traffic".into(), scale: Scale::Names(NAMES) },
        y: Axis { label: "throughput under SLO, of the best's".into(), scale: Scale::Linear },
        series: series.collect(),
    }
}

/// The cases in which the joint default loses, by how much and to which preset.
fn text(results: &[(usize, usize, Plan)], request_count: usize) -> String {
    let mut kinds = String::new();
    for traffic in &TRAFFIC {
        kinds.push_str(&format!("\n- {}: {}", traffic.name, traffic.about));
    }
    let mut losses = String::new();
    let mut wins = 0;
    for (cores, index, plan) in results {
        let (ours, best) = (throughput_rps(plan, "dovetail"), best_rps(plan));
        // A difference below the resolution of the search is not a loss.
        if ours >= 0.99 * best {
            wins += 1;
            continue;
        }
        let winner = plan.rows.iter().find(|row| row.throughput_rps == best);
        losses.push_str(&format!(
            "\n- {cores} cores, {}: {:.2} of {}.",
            TRAFFIC[*index].name,
            ours / best,
            winner.map_or("none", |row| row.preset),
        ));
    }
    let losses = if losses.is_empty() { " nowhere.".to_owned() } else { format!("\n{losses}") };
    format!(
        "Throughput under an SLO of ten mean services on the 99th percentile of all requests, \
         {request_count} requests a run, by the model of `dovetail plan` with the committed costs \
         and line transfers on. Traffic:\n{kinds}\n\nOf {} cases the joint default (d-CREW, \
         size-aware, compaction) is the best or within 1 % of it in {wins}. No server starts with \
         it: a tuner tries it beside others (decision 0112). It loses:{losses}\n\n\
         A forwarding from the receiving core to the serving one costs a quarter of a line \
         transfer, crossing from one layer to the other and back 60 ns. Of run to completion and \
         seven splits into two layers the joint default gets the best, as its tuner may choose. \
         Two things of this model weigh against it. Stealing is free but for that forwarding, and \
         finds every idle core at once. And the holder of a hot key pays for each of its writes, \
         between two layers without receiving and answering it, while presets without an owner \
         spread that over all cores and only contend for the index's line.",
        results.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::{NAMES, TRAFFIC, draw, small_bytes};

    #[test]
    fn traffic_has_the_shares_that_it_names() {
        for traffic in &TRAFFIC {
            let items = draw(traffic, 100_000, 1).items;
            let count = items.len() as f64;
            let writes = items.iter().filter(|item| item.access == policy::Access::Write).count();
            assert!((writes as f64 / count - traffic.write_share).abs() < 0.01, "{traffic:?}");
            let large = items.iter().filter(|item| item.size_bytes >= 1500).count() as f64;
            let want = if traffic.large_bytes == 0 { 0.0 } else { 0.00125 };
            assert!((large / count - want).abs() < 0.0005, "{traffic:?}: {large}");
        }
    }

    #[test]
    fn the_axis_names_the_traffic() {
        assert_eq!(TRAFFIC.map(|traffic| traffic.name)[..], *NAMES);
    }

    #[test]
    fn four_in_ten_items_are_tiny() {
        let tiny = (0..100_000).filter(|rank| small_bytes(*rank) <= 21).count();
        assert!((38_000..43_000).contains(&tiny), "{tiny}");
    }
}
