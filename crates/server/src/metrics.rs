//! What `/metrics` and `/stats` show: one snapshot of the server, as OpenMetrics text or as JSON.
//!
//! ```text
//!  workers' cells ─┐
//!  store           ├─▶ Snapshot ─┬─▶ openmetrics::text   (names of STABILITY.md)
//!  /proc/self      ┘             └─▶ Snapshot::json
//! ```
//!
//! # Invariants
//! I1: a snapshot reads what workers publish; it never makes a worker wait.
//! I2: no label carries a key or anything else that a client chose.

use serde_json::{Value, json};

use crate::Mode;
use crate::counters::Totals;
use crate::shared::Shared;

pub mod openmetrics;
mod process;

/// The server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Since the start.
    pub uptime_ms: u64,
    /// Worker threads.
    pub thread_count: usize,
    /// `cache` or `store`.
    pub mode: &'static str,
    /// The cap that the user set.
    pub memory_limit_bytes: u64,
    /// Connections that may be open at one time.
    pub connections_max: usize,
    /// What the workers counted.
    pub totals: Totals,
    /// What the kernel says about this process.
    pub process: process::Usage,
}

impl Snapshot {
    /// Folds all counters now.
    pub fn take(shared: &Shared) -> Snapshot {
        let config = shared.config();
        Snapshot {
            uptime_ms: u64::try_from(shared.uptime().as_millis()).unwrap_or(u64::MAX),
            thread_count: config.threads,
            mode: match config.mode {
                Mode::Evict => "cache",
                Mode::Clean => "store",
            },
            memory_limit_bytes: config.memory_bytes,
            connections_max: config.max_connections,
            totals: shared.totals(),
            process: process::Usage::now(),
        }
    }

    /// Everything, as one JSON object.
    pub fn json(&self) -> Value {
        let totals = &self.totals;
        let sum = |field: fn(&crate::counters::CommandTotals) -> u64| -> u64 {
            totals.commands.iter().map(field).sum()
        };
        let commands: Vec<Value> = totals
            .commands
            .iter()
            .filter(|command| command.calls > 0)
            .map(|command| {
                json!({
                    "proto": command.protocol.name(),
                    "cmd": command.name,
                    "calls": command.calls,
                    "hits": command.hits,
                    "misses": command.misses,
                    "errors": command.errors,
                })
            })
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.uptime_ms as f64 / 1000.0,
            "threads": self.thread_count,
            "mode": self.mode,
            "commands_total": sum(|command| command.calls),
            "hits_total": sum(|command| command.hits),
            "misses_total": sum(|command| command.misses),
            "errors_total": sum(|command| command.errors),
            "commands": commands,
            "connections": {
                "resp": totals.connections_resp,
                "memcached": totals.connections_memcached,
                "max": self.connections_max,
                "accepted_total": totals.connections_total,
                "rejected_total": totals.connections_rejected,
            },
            "net": {
                "in_bytes_total": totals.net_input_bytes,
                "out_bytes_total": totals.net_output_bytes,
            },
            "batches": {
                "count_total": totals.batches,
                "requests_total": totals.batch_requests,
            },
            "protocol_errors_total": totals.protocol_errors,
            "auth": { "attempts_total": totals.auth_attempts, "errors_total": totals.auth_errors },
            "memory": {
                "limit_bytes": self.memory_limit_bytes,
                "resident_bytes": self.process.resident_bytes,
            },
            "cpu_seconds_total": self.process.cpu_ms as f64 / 1000.0,
        })
    }
}

#[cfg(test)]
mod tests;
