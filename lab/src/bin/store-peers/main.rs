//! `store-peers`: runs another crate's map under the load that `dovetail bench embedded:` puts on
//! the store, with the same keys, values, traces and checks.
//!
//! ```text
//!  store-peers --peer dashmap --keys 10M ...   populates once, prints "ready"
//!  stdin:  get uniform 1 1000          workload or ratio, distribution, threads, milliseconds
//!          ycsb-e uniform 1 1000 50    and keys per scan
//!  stdout: {"ops_per_cpu_second":...}  one line for each, until stdin ends
//! ```
//!
//! Waiting for a line costs nothing, so that `lab store` can keep all peers running and measure
//! them in turn. No shipped binary contains it.
#![forbid(unsafe_code)]

mod forms;
mod lines;
mod load;
mod maps;

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use workload::{Draw, KeyFormat, KeyStyle, Mix, Popularity, Profile, Trace};

use forms::{Binary, Decimal, Form, Inline, Items};
use load::Window;
use maps::{BTree, Dash, Hash, Map, Scc, Skip, Tree};

#[derive(Parser)]
#[command(name = "store-peers", about = "Other crates' maps under the load of dovetail bench")]
struct Args {
    /// Which map
    #[arg(long)]
    peer: Peer,
    /// Whether the compiler knows the lengths of keys and values
    #[arg(long, default_value = "owned")]
    form: Layout,
    /// Keys and values
    #[arg(long, default_value = "tiny")]
    items: ItemSet,
    /// How many
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// CPUs of the threads in turn, e.g. 0,1
    #[arg(long, value_delimiter = ',')]
    pin: Vec<usize>,
    /// Seed of keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    Hashmap,
    Dashmap,
    Scc,
    Btree,
    Treeindex,
    Skiplist,
    /// No map: how many random lines a second the machine reads, for the limit of every other
    Lines,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// `Box<[u8]>` for key and value, as the store takes them: any length
    Owned,
    /// Arrays of a fixed length in the map itself
    Inline,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ItemSet {
    /// Keys and values of 8 bytes
    Tiny,
    /// Keys of 16 and values of 64 bytes
    Small,
    /// Keys of 1 to 10 digits, values of 8 bytes
    Decimal,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.peer == Peer::Lines {
        return lines::serve(&args.pin);
    }
    match args.items {
        ItemSet::Tiny => with_layout::<8, 8, _>(&args, Binary::<8>),
        ItemSet::Small => with_layout::<16, 64, _>(&args, Binary::<16>),
        ItemSet::Decimal => {
            let format = KeyFormat::new(KeyStyle::Decimal, 0, args.keys)?;
            with_layout::<16, 8, _>(&args, Decimal(format))
        }
    }
}

fn with_layout<const KEY: usize, const VALUE: usize, I: Items>(
    args: &Args,
    items: I,
) -> Result<()> {
    match args.form {
        Layout::Owned => with_peer::<VALUE, Box<[u8]>, Box<[u8]>, I>(args, items),
        Layout::Inline => with_peer::<VALUE, Inline<KEY>, Inline<VALUE>, I>(args, items),
    }
}

fn with_peer<const VALUE: usize, K: Form, V: Form, I: Items>(args: &Args, items: I) -> Result<()> {
    let count = args.keys as usize;
    match args.peer {
        Peer::Hashmap => serve::<VALUE, K, V, _, _>(args, items, vec![Hash::new(count)]),
        Peer::Btree => serve::<VALUE, K, V, _, _>(args, items, vec![BTree::new()]),
        Peer::Dashmap => serve::<VALUE, K, V, _, _>(args, items, shared(args, Dash::new(count))),
        Peer::Scc => serve::<VALUE, K, V, _, _>(args, items, shared(args, Scc::new(count))),
        Peer::Treeindex => serve::<VALUE, K, V, _, _>(args, items, shared(args, Tree::new())),
        Peer::Skiplist => serve::<VALUE, K, V, _, _>(args, items, shared(args, Skip::new())),
        Peer::Lines => bail!("the measure of lines has no items"),
    }
}

/// A handle for each CPU.
fn shared<M: Clone>(args: &Args, map: M) -> Vec<M> {
    vec![map; args.pin.len().max(1)]
}

/// Stores the keys, and then runs a window for every line of stdin.
fn serve<const VALUE: usize, K: Form, V: Form, I: Items, M: Map<K, V>>(
    args: &Args,
    items: I,
    mut maps: Vec<M>,
) -> Result<()> {
    load::populate::<VALUE, K, V>(&mut maps[0], items, args.keys);
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "ready")?;
    stdout.flush()?;
    let mut drawn: Option<(String, Trace)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let order = Order::parse(&line)?;
        let draw = order.draw(args);
        if drawn.as_ref().is_none_or(|(name, _)| *name != order.name) {
            let trace = Trace::draw(&draw, Trace::len_for(args.keys));
            drawn = Some((order.name.clone(), trace));
        }
        let (_, trace) = drawn.as_ref().context("a trace was drawn")?;
        let Some(threads) = maps.get_mut(..order.thread_count) else {
            bail!("{} threads: this map has {}", order.thread_count, maps.len());
        };
        let window = Window { trace, key_count: args.keys, length: order.length, cpus: &args.pin };
        let report = load::run::<VALUE, K, V, M>(threads, items, window)?;
        writeln!(stdout, "{}", serde_json::to_string(&report)?)?;
        stdout.flush()?;
    }
    Ok(())
}

/// One line of stdin.
struct Order {
    /// What the trace depends on.
    name: String,
    mix: Mix,
    popularity: Popularity,
    thread_count: usize,
    length: Duration,
}

impl Order {
    fn parse(line: &str) -> Result<Order> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ([work, distribution, threads, milliseconds, rest @ ..], true) =
            (&words[..], words.len() <= 5)
        else {
            bail!(
                "`{line}` is no order: write WORKLOAD|READS:WRITES DISTRIBUTION THREADS MS [SCAN]"
            );
        };
        let mut mix = if work.contains(':') { work.parse()? } else { work.parse::<Profile>()?.mix };
        if let [scan_keys] = rest {
            mix.scan_keys = scan_keys.parse()?;
        }
        ensure!(
            mix.read_modify_write == 0 && mix.reads == workload::mix::Reads::Popular,
            "{work}: only reads, updates, inserts and scans"
        );
        Ok(Order {
            name: format!("{work} {distribution} {rest:?}"),
            mix,
            popularity: distribution.parse()?,
            thread_count: threads.parse()?,
            length: Duration::from_millis(milliseconds.parse()?),
        })
    }

    fn draw(&self, args: &Args) -> Draw {
        Draw { mix: self.mix, popularity: self.popularity, key_count: args.keys, seed: args.seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_name_a_mix_a_distribution_threads_and_a_length() {
        let order = Order::parse("95:5 zipf:0.99 2 500").unwrap();
        assert_eq!((order.mix.read, order.mix.update, order.thread_count), (95, 5, 2));
        assert_eq!(order.length, Duration::from_millis(500));
        assert!(Order::parse("ycsb-e uniform 1 1").unwrap().mix.scan > 0);
        for line in ["", "get uniform 1", "x uniform 1 1", "ycsb-d uniform 1 1", "get u 1 1"] {
            assert!(Order::parse(line).is_err(), "{line}");
        }
    }
}
