//! An attack of many kinds at once: each keeps its promise alone, and what no ledger books adds up.

use anyhow::{Context, Result};

use super::{KNOWN, Shape, all};
use crate::attack::door::Door;
use crate::attack::target::Target;

/// The shapes that run side by side.
const PARTS: [&str; 10] = [
    "half-multi-large",
    "half-lengths",
    "hot-keys",
    "monitor-unread",
    "tracking-broadcast",
    "setrange-growth",
    "get-large-tls",
    "mc-watch-unread",
    "mc-meta-large",
    "native-gets",
];

pub const SHAPES: &[Shape] = &[Shape::new(
    "unlike-clients",
    Door::Resp,
    "ten of these shapes at once, through RESP, TLS, memcached and native",
    unlike_clients,
)
.by(KNOWN)];

fn unlike_clients(target: &Target) -> Result<u64> {
    target.load_large(4)?;
    // The parts share the deadline.
    target.deadline();
    let connections_max = target.connections_max / PARTS.len();
    let part = Target { connections_max, ..target.clone() };
    let refusals = std::thread::scope(|scope| {
        let parts = PARTS.map(|name| {
            let part = &part;
            scope.spawn(move || {
                let shape = all().into_iter().find(|shape| shape.name == name).context(name)?;
                // What a part loads first may be refused beside the others.
                Ok((shape.attack)(part).unwrap_or(1))
            })
        });
        parts.map(|part| part.join().unwrap_or_else(|_| anyhow::bail!("a part panicked")))
    });
    refusals.into_iter().sum()
}
