//! Tests of MICA's many-core servers against the paper's numbers (MICA §5.3, §6.2).
//!
//! Tolerances are wide where the paper rounds ("0.13 billion") or contradicts itself, and each
//! states the model's present error.

use lab::figure::{Fidelity, Options, Report};
use lab::mica::loads::{KEYS, Population, Skew, harmonic};
use lab::mica::platform::{CLOCK_GHZ, Costs, Platform, UNIFORM_CORE_MRPS};
use lab::mica::run::{Outcome, Setup};
use lab::mica::{FIGURES, HASH_SEED, HASH_SEED_AS_STATED, System, setup};

#[track_caller]
fn check_near(what: &str, found: f64, want: f64, tolerance: f64) {
    assert!((found / want - 1.0).abs() < tolerance, "{what}: {found}, want {want}");
}

#[track_caller]
fn check_hottest(skew: Skew, hash_seed: u64, cores: usize, want: f64, tolerance: f64) {
    let loads = Population::new(skew).loads(cores, 1000, hash_seed);
    check_near("hottest over mean", loads.hottest_over_mean(), want, tolerance);
    let sum: f64 = loads.partitions.iter().map(|load| load.share).sum();
    assert!((sum - 1.0).abs() < 1e-7, "{sum}");
}

#[test]
fn the_hottest_of_24_partitions_has_the_papers_load() {
    check_hottest(Skew::Zipf, HASH_SEED, 24, 1.97, 0.01);
}

#[test]
fn zipf_itself_is_hotter_on_120_and_240_partitions_than_the_paper_states() {
    // The hottest key is 9.3 million times as popular as the average (§6.2), which alone is more
    // than the 10.6 times the mean that the same section gives the hottest of 240 partitions.
    check_near("times the average", KEYS / harmonic(KEYS), 9.3e6, 0.01);
    assert!(240.0 / harmonic(KEYS) > 11.0);
    // Stated 5.8 and 10.6; what else falls on the partition adds at least half a mean.
    check_hottest(Skew::Zipf, HASH_SEED, 120, 6.24, 0.01);
    check_hottest(Skew::Zipf, HASH_SEED, 240, 11.83, 0.01);
}

#[test]
fn the_stated_loads_come_out_of_a_hottest_key_of_four_per_cent() {
    for (cores, want) in [(24, 1.97), (120, 5.8), (240, 10.6)] {
        check_hottest(Skew::ZipfAsStated, HASH_SEED_AS_STATED, cores, want, 0.02);
    }
}

#[test]
fn other_hashes_spread_the_load_about_as_well() {
    let population = Population::new(Skew::Zipf);
    for (cores, low, high) in [(24, 1.8, 2.4), (120, 6.1, 7.0), (240, 11.6, 12.7)] {
        for hash_seed in 0..4 {
            let found = population.loads(cores, 1000, hash_seed).hottest_over_mean();
            assert!((low..high).contains(&found), "{cores}, seed {hash_seed}: {found}");
        }
    }
}

fn server(platform: Platform, system: System, skew: Skew, get_share: f64) -> Setup {
    setup(platform, system, get_share, &Population::new(skew), HASH_SEED)
}

fn saturate(setup: &Setup) -> Outcome {
    let outcome = setup.saturate(150_000, 1);
    assert!(outcome.is_carried && outcome.latency_p95_ns <= 100_000);
    outcome
}

/// The hottest partition's owner, and the mean of all other cores.
fn hot_and_cold_mrps(setup: &Setup, outcome: &Outcome) -> (f64, f64) {
    let hot_mrps = outcome.core_mrps[setup.loads.hottest_first()[0]];
    (hot_mrps, (outcome.mrps - hot_mrps) / (setup.platform.cores - 1) as f64)
}

#[test]
fn uniform_keys_scale_with_the_cores() {
    for (platform, want) in Platform::ALL.into_iter().zip([120.5, 602.5, 1205.0]) {
        let outcome = saturate(&server(platform, System::Erew, Skew::Uniform, 0.95));
        check_near("uniform", outcome.mrps, want, 0.05);
        // §5.3: 12.5 packets at a time on 24 cores.
        let batch = outcome.core_batch.iter().sum::<f64>() / platform.cores as f64;
        check_near("batch", batch, 12.5, 0.15);
    }
}

#[test]
fn under_erew_hot_cores_gain_and_cold_cores_starve() {
    // Rates of §5.3 and §6.2: ours are off by +5, +9 and +9 %. Gains of the hottest core: +43 % on
    // 24 cores, about +50 % on 120 and 240.
    let paper = [(84.0, 1.43), (130.0, 1.5), (140.0, 1.5)];
    for (platform, (want_mrps, hot_gain)) in Platform::ALL.into_iter().zip(paper) {
        let server = server(platform, System::Erew, Skew::Zipf, 0.95);
        let outcome = saturate(&server);
        check_near("skewed", outcome.mrps, want_mrps, 0.14);
        check_near("arithmetic", outcome.mrps, server.estimate_saturation_mrps(), 0.05);
        let (hot_mrps, cold_mrps) = hot_and_cold_mrps(&server, &outcome);
        check_near("hot core", hot_mrps, hot_gain * UNIFORM_CORE_MRPS, 0.06);
        // Starvation and not cost: a cold core could serve more than under the uniform load.
        let coldest = server.loads.hottest_first()[platform.cores - 1];
        let costs = Costs::at_clock(CLOCK_GHZ);
        let request_ns = costs.request_ns(server.loads.partitions[coldest].cached_share);
        assert!(costs.peak_mrps(request_ns) > 1.1 * UNIFORM_CORE_MRPS);
        assert!(cold_mrps < 0.75 * UNIFORM_CORE_MRPS, "{}: {cold_mrps}", platform.cores);
        if platform == Platform::MEASURED {
            check_near("cold core", cold_mrps, 0.72 * UNIFORM_CORE_MRPS, 0.1);
        }
    }
}

#[test]
fn crew_shares_reads() {
    // Fitted, see `CREW_READ_FACTOR`.
    let measured = saturate(&server(Platform::MEASURED, System::Crew, Skew::Zipf, 0.95));
    check_near("24 cores, 95 % GET", measured.mrps, 108.0, 0.04);
}

#[test]
fn faster_hot_cores_help_writes() {
    // The rates of CREW-T and its gains (§6.2); CREW's follow from both. Ours are off by +3 and
    // -16 % for CREW, +11 and -12 % for CREW-T.
    for (platform, want_mrps, want_gain) in
        [(Platform::DUAL, 280.0, 1.27), (Platform::QUAD, 420.0, 1.32)]
    {
        let server_of = |system| server(platform, system, Skew::Zipf, 0.5);
        let crew = saturate(&server_of(System::Crew));
        let arithmetic_mrps = server_of(System::Crew).estimate_saturation_mrps();
        check_near("arithmetic", crew.mrps, arithmetic_mrps, 0.05);
        check_near("CREW", crew.mrps, want_mrps / want_gain, 0.2);
        let crew_t = saturate(&server_of(System::CrewT));
        check_near("CREW-T", crew_t.mrps, want_mrps, 0.16);
        // The clock alone, 3.5 over 2.5 GHz, would be 1.4.
        let gain = crew_t.mrps / crew.mrps;
        assert!((1.25..1.42).contains(&gain), "{gain}");
    }
}

#[test]
fn an_overloaded_server_shows_as_overloaded() {
    let server = server(Platform::DUAL, System::Erew, Skew::Zipf, 0.95);
    let limit_mrps = server.estimate_saturation_mrps();
    let overloaded = server.offer(1.5 * limit_mrps, 150_000, 1);
    assert!(!overloaded.is_carried);
    let (hot_mrps, _) = hot_and_cold_mrps(&server, &overloaded);
    let (peak_mrps, _) = hot_and_cold_mrps(&server, &saturate(&server));
    check_near("the hot core serves no more", hot_mrps, peak_mrps, 0.03);
    assert!(server.offer(0.5 * limit_mrps, 150_000, 1).is_carried);
}

fn report(name: &str, requests: u64, threads: usize) -> Report {
    let figure = FIGURES.iter().find(|figure| figure.name == name).expect("a figure of MICA");
    let requests = Some(requests);
    let options = Options {
        requests,
        seed: 3,
        fidelity: Fidelity::Honest,
        threads,
        costs: None,
        objects: None,
    };
    (figure.run)(&options).expect("the figure takes these options")
}

#[test]
fn one_seed_gives_one_figure_on_any_number_of_threads() {
    for figure in FIGURES {
        let (one, two) = (report(figure.name, 5000, 1), report(figure.name, 5000, 2));
        assert_eq!(one.table.rows, two.table.rows, "{}", figure.name);
        assert_eq!(one.text, two.text);
        assert!(one.table.rows.iter().all(|row| row.len() == one.table.columns.len()));
    }
}

#[test]
fn few_cores_are_hot() {
    let report = report("mica-fig14", 400_000, 2);
    // Fig. 14: more than 90 % of the cores below 20 % of the hottest (ours: 90 and 97 %).
    for (cores, below_share_min) in [("120", 0.88), ("240", 0.95)] {
        let loads_pct: Vec<f64> = report
            .table
            .rows
            .iter()
            .filter(|row| row[0] == cores)
            .map(|row| row[2].parse().unwrap())
            .collect();
        assert_eq!(loads_pct.len().to_string(), cores);
        let below = loads_pct.iter().filter(|load_pct| **load_pct < 20.0).count();
        assert!(below as f64 >= below_share_min * loads_pct.len() as f64, "{cores}: {below}");
        let very_hot = loads_pct.iter().filter(|load_pct| **load_pct > 50.0).count();
        assert_eq!(very_hot, 2, "{cores}: only two very hot cores");
    }
}
