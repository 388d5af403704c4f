//! Developer commands of Dovetail: `cargo xtask ci`, `test`, `blackbox`, `conformance`, `attack`,
//! `test-xdp`, `test-rdma`, `test-dax`, `test-zookeeper`, `demo-cluster`, `nightly`, `tidy`,
//! `count-instructions`. Comparisons are `lab`'s.
#![forbid(unsafe_code)]

mod attack;
mod blackbox;
mod ci;
mod conformance;
mod dax;
mod demo_cluster;
mod emulated;
mod instructions;
mod nightly;
mod rdma;
mod tidy;
mod zookeeper;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Dovetail")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, tidy, tests, smokes, clippy, loom and documentation; stops at the first failure
    Ci,
    /// `ci`, then real clients against the real binary; installs what they need
    Test,
    /// Only the real clients, against servers with flags of your choice
    Blackbox(blackbox::Args),
    /// Random commands to this server and to redis-server; every reply byte for byte
    Conformance(conformance::Args),
    /// Hostile clients at every door; exits 1 if memory exceeds its cap or a reply is wrong
    Attack(attack::Args),
    /// AF_XDP between network namespaces; needs root and iproute2, says so where they are missing
    TestXdp,
    /// RDMA over soft-RoCE in an emulated machine; says what is missing where something is
    TestRdma(emulated::Args),
    /// The log on persistent memory, in an emulated machine; says what is missing
    TestDax(emulated::Args),
    /// Long property tests, torture of the store, recorded histories, an hour of a broken cluster,
    /// Miri, sanitizers, coverage-guided fuzzing, and real clients of servers that route
    Nightly(nightly::Args),
    /// Only the rules of style that the compiler does not know
    Tidy,
    /// The config store's tests against a real ZooKeeper, which Maven provides
    TestZookeeper,
    /// A real cluster that is broken under load; exits 1 if an answer cannot be explained
    DemoCluster(demo_cluster::Args),
    /// Instructions of GET, SET, SET of hot keys, MGET and memcached get, by callgrind; compares
    /// several binaries
    CountInstructions(instructions::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<bool> {
    let root = root()?;
    match cli.command {
        Command::Ci => Ok(ci::run(&root, ci::Scope::Workspace)),
        Command::Test => Ok(ci::run(&root, ci::Scope::WithClients)),
        Command::Blackbox(args) => Ok(blackbox::run(&root, &args)),
        Command::Conformance(args) => conformance::run(&root, &args),
        Command::Attack(args) => attack::run(&root, &args),
        Command::TestXdp => Ok(ci::run_xdp(&root)),
        Command::TestRdma(args) => rdma::run(&root, args),
        Command::TestDax(args) => dax::run(&root, args),
        Command::Nightly(args) => Ok(nightly::run(&root, args)),
        Command::Tidy => tidy::run(&root),
        Command::TestZookeeper => Ok(zookeeper::run(&root)),
        Command::DemoCluster(args) => demo_cluster::run(&root, &args),
        Command::CountInstructions(args) => instructions::run(&root, &args).map(|()| true),
    }
}

/// The workspace's root, from any directory in it.
fn root() -> Result<PathBuf> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).context("xtask has no parent directory")
}
