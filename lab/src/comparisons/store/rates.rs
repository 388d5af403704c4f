//! The tables of throughput: our store and its peers under each load.

use anyhow::Result;

use super::run::Standing;
use super::table::{FORMS, HASH_LOADS, Items, Load, PEERS, Peer, SCAN_KEYS, TREE_LOADS};
use super::{Cell, Session, add_sample, words};
use crate::comparisons::bench_report::number;

/// The subject of the measure of random lines.
pub const LINES: &str = "lines";

/// A waiting peer, and its form of items.
struct Waiting {
    peer: Peer,
    form: &'static str,
    process: Standing,
}

impl Session {
    pub(super) fn measure_rates(&mut self) -> Result<()> {
        self.measure_harness()?;
        for items in [Items::Tiny, Items::Small] {
            let loads: Vec<Load> =
                HASH_LOADS.into_iter().filter(|load| load.items == items).collect();
            self.measure_loads(&loads, items, "hash")?;
        }
        self.measure_loads(&TREE_LOADS, Items::Decimal, "tree")
    }

    /// The harness without a store: part of every figure of ours.
    fn measure_harness(&mut self) -> Result<()> {
        for _ in 0..self.args.repetitions {
            for load in &HASH_LOADS {
                let options = self.options(load, "hash", "32");
                let what = format!("{}, no store", load.name);
                let window =
                    self.undisturbed(&what, |programs| programs.ours("null:", 1, &options))?;
                let cell = Cell {
                    row: load.name.to_owned(),
                    subject: "harness".to_owned(),
                    is_peer: false,
                    thread_count: 1,
                    mops: vec![window.mops],
                };
                add_sample(&mut self.found.harness, cell);
            }
        }
        Ok(())
    }

    pub(super) fn options(&self, load: &Load, index: &str, batch: &str) -> Vec<String> {
        let keys = self.args.keys.to_string();
        let mut options = words(&["--keys", &keys, "--index", index, "--batch", batch]);
        options.extend(words(&load.options()));
        if load.work == "ycsb-e" {
            options.extend(words(&["--scan-keys", SCAN_KEYS]));
        }
        options
    }

    /// Peers that can run these loads, each with its items.
    fn start_peers(&mut self, items: Items, is_ordered: bool) -> Result<Vec<Waiting>> {
        let mut waiting = Vec::new();
        for peer in PEERS.into_iter().filter(|peer| peer.is_ordered == is_ordered) {
            for (form, _) in FORMS {
                println!("populating {}, {form}, {}", peer.title, items.name());
                let process = self.programs.peer(&peer, form, items, self.args.keys)?;
                waiting.push(Waiting { peer, form, process });
            }
        }
        Ok(waiting)
    }

    fn measure_loads(&mut self, loads: &[Load], items: Items, index: &str) -> Result<()> {
        let mut peers = self.start_peers(items, index == "tree")?;
        let mut lines = self.programs.lines()?;
        for _ in 0..self.args.repetitions {
            for load in loads {
                for (batch, thread_count) in [(32, 1), (64, 1), (32, 2)] {
                    self.measure_ours(load, index, batch, thread_count)?;
                    if batch == 32 && index == "hash" {
                        self.measure_limit(load, &mut lines, thread_count)?;
                    }
                }
                for waiting in &mut peers {
                    let most = if waiting.peer.is_shared { 2 } else { 1 };
                    for thread_count in 1..=most {
                        self.measure_peer(load, waiting, thread_count)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn measure_ours(
        &mut self,
        load: &Load,
        index: &str,
        batch: u32,
        thread_count: usize,
    ) -> Result<()> {
        let what = format!("{}, batch {batch}, {thread_count} threads", load.name);
        let options = self.options(load, index, &batch.to_string());
        let Some(window) = self.ours(&what, thread_count, &options)? else { return Ok(()) };
        let is_known = self.found.row_sizes.iter().any(|(row, ..)| row == load.name);
        if !is_known {
            let entry_bytes = number(&window.report, "/store/entry_bytes")?;
            let items = number(&window.report, "/store/items")?.max(1.0);
            let index_bytes = number(&window.report, "/store/index_used_bytes")?;
            let size =
                (load.name.to_owned(), (entry_bytes + index_bytes) as u64, entry_bytes / items);
            self.found.row_sizes.push(size);
        }
        let cell = Cell {
            row: load.name.to_owned(),
            subject: format!("dovetail, batch {batch}"),
            is_peer: false,
            thread_count,
            mops: vec![window.mops],
        };
        add_sample(&mut self.found.cells, cell);
        Ok(())
    }

    fn measure_peer(
        &mut self,
        load: &Load,
        waiting: &mut Waiting,
        thread_count: usize,
    ) -> Result<()> {
        let subject = format!("{}, {}", waiting.peer.title, waiting.form);
        let what = format!("{}, {subject}, {thread_count} threads", load.name);
        let milliseconds = self.args.milliseconds;
        let scan = if load.work == "ycsb-e" { SCAN_KEYS } else { "" };
        let order =
            format!("{} {} {thread_count} {milliseconds} {scan}", load.work, load.distribution);
        let process = &mut waiting.process;
        let window = self.undisturbed(&what, |_| process.window(&order))?;
        let cell = Cell {
            row: load.name.to_owned(),
            subject,
            is_peer: true,
            thread_count,
            mops: vec![window.mops],
        };
        add_sample(&mut self.found.cells, cell);
        Ok(())
    }

    /// The machine's limit at the working set of a row, measured between our windows: it changes by
    /// half from one minute to the next with other load on the same memory.
    fn measure_limit(
        &mut self,
        load: &Load,
        lines: &mut Standing,
        thread_count: usize,
    ) -> Result<()> {
        let size = self.found.row_sizes.iter().find(|(row, ..)| row == load.name);
        let Some(bytes) = size.map(|(_, bytes, _)| *bytes) else { return Ok(()) };
        let what =
            format!("{}, random lines of {} MiB, {thread_count} threads", load.name, bytes >> 20);
        let milliseconds = self.args.milliseconds;
        // The first pass over a new array is not counted.
        lines.lines(bytes, 1, 100)?;
        let window = self.undisturbed(&what, |_| lines.lines(bytes, thread_count, milliseconds))?;
        let cell = Cell {
            row: load.name.to_owned(),
            subject: LINES.to_owned(),
            is_peer: false,
            thread_count,
            mops: vec![window.mops],
        };
        add_sample(&mut self.found.limits, cell);
        Ok(())
    }
}
