//! `point` and `minos-point`: run one point and print one JSON object.

use clap::Args;
use lab::c4::{self, Policy};
use lab::figure::Fidelity;
use lab::minos::{self, Strategy};
use serde::Serialize;

use crate::{FIDELITIES, choice, parse_keys, parse_requests, parse_threads};

const POLICIES: &[(&str, Policy)] = &[
    ("ideal", Policy::Ideal),
    ("erew", Policy::Erew),
    ("crew", Policy::Crew),
    ("d-crew", Policy::DCrew),
];
const STRATEGIES: &[(&str, Strategy)] = &[
    ("hash", Strategy::Hash),
    ("late", Strategy::Late),
    ("steal", Strategy::Steal),
    ("size-aware", Strategy::SizeAware),
];

/// A flag's value, because clap takes a bare `bool` for one without.
#[derive(Clone, Copy, Debug)]
enum Switch {
    On,
    Off,
}

const SWITCH: &[(&str, Switch)] = &[("on", Switch::On), ("off", Switch::Off)];

/// C-4's model. Its parameters are the defaults.
#[derive(Debug, Args)]
pub struct C4Args {
    /// Assignment of requests to cores
    #[arg(long, value_name = "NAME", default_value = "d-crew", value_parser = choice(POLICIES))]
    policy: Policy,

    /// Cores
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    workers: usize,

    /// Load as a share of the cores' capacity; 1 is 91.43 million requests a second on 64 cores
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, allow_negative_numbers = true)]
    load: f64,

    /// Share of writes among the requests
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0, allow_negative_numbers = true)]
    write_percent: f64,

    /// Exponent of the keys' popularity; 0 is uniform
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.0, allow_negative_numbers = true)]
    zipf: f64,

    /// Combine waiting writes of the same key
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = choice(SWITCH))]
    compaction: Switch,

    /// Distinct keys
    #[arg(long, value_name = "N", default_value = "1.6M", value_parser = parse_keys)]
    keys: u64,

    #[command(flatten)]
    run: RunArgs,

    /// Model: the published artifact's, with its streams, or that of a real server
    #[arg(long, value_name = "MODEL", default_value = "honest", value_parser = choice(FIDELITIES))]
    fidelity: Fidelity,
}

/// Minos's model of Fig. 2. Its parameters are the defaults.
#[derive(Debug, Args)]
pub struct MinosArgs {
    /// Dispatch of requests to cores
    #[arg(long, value_name = "NAME", default_value = "size-aware")]
    #[arg(value_parser = choice(STRATEGIES))]
    strategy: Strategy,

    /// Cores
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true)]
    cores: usize,

    /// Service time of a large request, as a multiple of a small one's; 0.125 % of requests are
    /// large
    #[arg(long, value_name = "SERVICES", default_value_t = 100.0, allow_negative_numbers = true)]
    k: f64,

    /// Load of each core, including large requests; must stay below 1 to be stable
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, allow_negative_numbers = true)]
    rho: f64,

    #[command(flatten)]
    run: RunArgs,
}

/// What every point takes.
#[derive(Debug, Args)]
struct RunArgs {
    /// Number of requests, e.g. 200k, 5M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_requests)]
    requests: u64,

    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Accepted for uniformity: a point is one run on one thread
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_threads)]
    #[allow(dead_code, reason = "scripts pass it to every command of the simulator")]
    threads: usize,
}

impl C4Args {
    /// Runs the point and prints it.
    pub fn run(&self) -> anyhow::Result<()> {
        print_json(&c4::point(&c4::PointOptions {
            policy: self.policy,
            workers: self.workers,
            load: self.load,
            write_percent: self.write_percent,
            zipf: self.zipf,
            compaction: matches!(self.compaction, Switch::On),
            keys: self.keys,
            requests: self.run.requests,
            seed: self.run.seed,
            fidelity: self.fidelity,
            ..c4::PointOptions::default()
        })?)
    }
}

impl MinosArgs {
    /// Runs the point and prints it.
    pub fn run(&self) -> anyhow::Result<()> {
        print_json(&minos::point(&minos::PointOptions {
            strategy: self.strategy,
            cores: self.cores,
            k: self.k,
            rho: self.rho,
            requests: self.run.requests,
            seed: self.run.seed,
            ..minos::PointOptions::default()
        })?)
    }
}

fn print_json(result: &impl Serialize) -> anyhow::Result<()> {
    crate::print(&format!("{}\n", serde_json::to_string(result)?))
}
