//! Attacks on memcached's port: unread replies, incomplete requests, and its event stream
//! (`watch`).

use anyhow::Result;

use super::{KNOWN, LOCKED, OPEN, Shape};
use crate::attack::door::Door;
use crate::attack::pump::Reading;
use crate::attack::script::{Script, binary};
use crate::attack::target::Target;
use crate::conformance::rng::Rng;

/// Clients that do not read, of one shape.
const CLIENTS: usize = 64;
/// Connections that hold something half.
const MANY: usize = 2_000;
/// The longest line of a retrieval that is read.
const LINE_MAX: usize = 1 << 20;

pub const SHAPES: &[Shape] = &[
    Shape::new(
        "mc-get-large",
        Door::Memcached,
        "64 clients `get` 32 large values each, none reads",
        |it| unread_large(it, Door::Memcached, &format!("get{}\r\n", keys(32))),
    ),
    Shape::new(
        "mc-get-large-unix",
        Door::MemcachedUnix,
        "the same through the Unix socket",
        |it| unread_large(it, Door::MemcachedUnix, &format!("get{}\r\n", keys(32))),
    ),
    Shape::new("mc-get-large-tls", Door::MemcachedTls, "the same through TLS", |it| {
        unread_large(it, Door::MemcachedTls, &format!("get{}\r\n", keys(32)))
    }),
    Shape::new("mc-gat-large", Door::Memcached, "`gats` of large values, none read", |it| {
        unread_large(it, Door::Memcached, &format!("gats 1000{}\r\n", keys(32)))
    }),
    Shape::new(
        "mc-meta-large",
        Door::Memcached,
        "`mg` of large values with every flag, none read",
        |it| {
            unread_large(
                it,
                Door::Memcached,
                "mg large:0 v k s t c f h l Oopaque\r\nmg large:1 v\r\n",
            )
        },
    ),
    Shape::new(
        "mc-get-line",
        Door::Memcached,
        "`get` of one key on a line of 1 MiB, unread",
        |it| {
            it.load_small(1)?;
            let line = format!("get{}\r\n", " small:0".repeat((LINE_MAX - 8) / 8));
            it.flood(Door::Memcached, 8, &Script::repeat(line, 100), Reading::Never)
        },
    ),
    Shape::new(
        "mc-binary-large",
        Door::Memcached,
        "binary gets of large values, none read",
        |it| {
            it.load_large(2)?;
            let get = [
                binary(0x0c, 0, b"large:0", b"large:0", 0),
                binary(0, 0, b"large:1", b"large:1", 0),
            ];
            it.flood(Door::Memcached, CLIENTS, &Script::repeat(get.concat(), 2_000), Reading::Never)
        },
    )
    .by(OPEN),
    Shape::new("mc-binary-stat", Door::Memcached, "binary stats, unread", |it| {
        let stat = [binary(0x10, 0, b"", b"", 0), binary(0x10, 0, b"items", b"items", 0)].concat();
        it.flood(Door::Memcached, 16, &Script::repeat(stat, 20_000), Reading::Never)
    })
    .by(OPEN),
    Shape::new(
        "mc-half-set",
        Door::Memcached,
        "2,000 clients send half of a `set` of 1 MB",
        |it| {
            let half = [&b"set half 0 0 1048576\r\n"[..], &[b'h'; 16_000]].concat();
            it.flood(Door::Memcached, MANY, &Script::once(half), Reading::Never)
        },
    ),
    Shape::new(
        "mc-half-large",
        Door::Memcached,
        "200 clients send all but the end of a large `ms`",
        |it| {
            let head = format!("ms half {}\r\n", it.large_bytes());
            let script = Script::repeat([b'h'; 1_000], it.large_bytes() as u64 / 1_000 - 1);
            it.flood(Door::Memcached, 200, &script.behind(head.as_bytes()), Reading::Never)
        },
    ),
    Shape::new(
        "mc-half-line",
        Door::Memcached,
        "500 clients send a line of 1 MiB that never ends",
        |it| {
            let script = Script::repeat(" key", LINE_MAX as u64 / 4 - 10).behind(b"get");
            it.flood(Door::Memcached, 500, &script, Reading::Never)
        },
    ),
    Shape::new(
        "mc-half-binary",
        Door::Memcached,
        "binary headers that announce huge bodies",
        |it| {
            let half = binary(1, 8, b"k", &[0; 9], 32 << 20);
            let huge = binary(1, 8, b"k", &[0; 9], u32::MAX);
            let whole = it.flood(Door::Memcached, MANY / 2, &Script::once(half), Reading::Never)?;
            Ok(whole + it.pump(it.crowd(Door::Memcached, 100).0, &Script::once(huge), Reading::All))
        },
    )
    .by(OPEN),
    Shape::new(
        "mc-byte-by-byte",
        Door::Memcached,
        "500 clients send a `set` one byte at a time",
        |it| {
            let (streams, refused) = it.crowd(Door::Memcached, 500);
            let script = Script::repeat("set slow 0 0 10\r\n1234567890\r\n", 100);
            Ok(refused + it.trickle(streams, &script, Reading::All, 1))
        },
    ),
    Shape::new(
        "mc-watch-unread",
        Door::Memcached,
        "20 watchers that do not read, beside traffic",
        |it| {
            let topics = "watch fetchers mutations evictions connevents deletions\r\n";
            let (watchers, refused) = it.crowd(Door::Memcached, 20);
            let topics = Script::once(topics);
            std::thread::scope(|scope| {
                let watching = scope.spawn(|| it.pump(watchers, &topics, Reading::Never));
                let line = format!("set {:0>200} 0 0 10\r\n1234567890\r\nget {:0>200}\r\n", 1, 1);
                let traffic = Script::repeat(line, 1_000_000);
                let of_traffic = it.flood(Door::Memcached, 4, &traffic, Reading::All);
                Ok(refused + of_traffic? + watching.join().unwrap_or_default())
            })
        },
    )
    .by(KNOWN),
    Shape::new(
        "mc-metadump",
        Door::Memcached,
        "`lru_crawler metadump all` of 100,000 keys, unread",
        |it| {
            it.load_small(100_000)?;
            let script =
                Script::repeat("lru_crawler metadump all\r\nlru_crawler mgdump all\r\n", 100);
            it.flood(Door::Memcached, 16, &script, Reading::Never)
        },
    )
    .by(KNOWN),
    Shape::new(
        "mc-cachedump",
        Door::Memcached,
        "`stats cachedump` of 100,000 keys, unread",
        |it| {
            it.load_small(100_000)?;
            it.flood(
                Door::Memcached,
                16,
                &Script::repeat("stats cachedump 1 0\r\n", 2_000),
                Reading::Never,
            )
        },
    )
    .by(KNOWN),
    Shape::new("mc-stats", Door::Memcached, "all kinds of `stats`, pipelined and unread", |it| {
        let lines = "stats\r\nstats items\r\nstats slabs\r\nstats settings\r\nstats sizes\r\n";
        it.flood(Door::Memcached, 16, &Script::repeat(lines, 10_000), Reading::Never)
    }),
    Shape::new(
        "mc-stats-conns",
        Door::Memcached,
        "`stats conns` beside 5,000 connections, unread",
        |it| {
            let (crowd, refused) = it.crowd(Door::Memcached, it.connections_max.min(5_000));
            let script = Script::repeat("stats conns\r\n", 500);
            let refused = refused + it.flood(Door::Memcached, 4, &script, Reading::Never)?;
            drop(crowd);
            Ok(refused)
        },
    ),
    Shape::new(
        "mc-stats-once",
        Door::Memcached,
        "all kinds of `stats` and a dump of 40,000 keys, once each by 3,000 connections",
        |it| {
            it.load_small(40_000)?;
            let lines = "stats conns\r\nstats\r\nstats settings\r\nlru_crawler metadump all\r\n";
            it.flood(Door::Memcached, 3_000, &Script::repeat(lines, 1), Reading::Sip)
        },
    )
    .by(KNOWN),
    Shape::new(
        "mc-append-growth",
        Door::Memcached,
        "`append` and `ms` with mode A to one key",
        |it| {
            let value = "a".repeat(100_000);
            let heads = ["append g 0 0 100000", "prepend g 0 0 100000", "ms g 100000 MA"];
            let grown: String = heads.map(|head| format!("{head}\r\n{value}\r\n")).concat();
            let line = format!("set g 0 0 1\r\ng\r\n{}", grown.repeat(5));
            it.flood(Door::Memcached, 8, &Script::repeat(line, 1_000), Reading::All)
        },
    ),
    Shape::new("mc-noreply", Door::Memcached, "`set` with noreply as fast as it goes", |it| {
        let line = format!("set n 0 0 10000 noreply\r\n{}\r\n", "n".repeat(10_000));
        it.flood(Door::Memcached, 16, &Script::repeat(line, 100_000), Reading::Never)
    }),
    Shape::new(
        "mc-too-large",
        Door::Memcached,
        "`set` of 100 MB that is skipped, and its refusal unread",
        |it| {
            let line = format!("set t 0 0 100000000\r\n{}", "t".repeat(100_000));
            let script = Script::repeat(line, 1_000);
            it.flood(Door::Memcached, 16, &script, Reading::Never)
        },
    ),
    Shape::new("mc-login-loop", Door::Memcached, "failed logins in text", |it| {
        let (streams, refused) = it.crowd(Door::Memcached, CLIENTS);
        let script = Script::repeat("set login 0 0 11\r\nnobody wron\r\n", 10_000);
        Ok(refused + it.pump(streams, &script, Reading::All))
    })
    .by(LOCKED),
    Shape::new("mc-sasl-loop", Door::Memcached, "binary logins that fail or stop half way", |it| {
        let wrong = binary(0x21, 0, b"PLAIN", b"PLAIN\0default\0wrong", 0);
        let half = binary(0x21, 0, b"PLAIN", b"PLAIN\0default", 1 << 20);
        let script = Script::repeat(wrong, 10_000).before(&half);
        // Text would be another protocol on the same connection.
        let (streams, refused) = it.silent_crowd(Door::Memcached, CLIENTS);
        Ok(refused + it.pump(streams, &script, Reading::All))
    })
    .by(LOCKED),
    Shape::new("mc-garbage", Door::Memcached, "random bytes, in text and in binary", |it| {
        let mut rng = Rng::new(11);
        let mut refused = 0;
        for round in 0..2_000 {
            if it.is_over() {
                break;
            }
            let first = if round % 2 == 0 { 0x80 } else { b'g' };
            let rest = (0..200).flat_map(|_| rng.next_u64().to_le_bytes());
            let bytes: Vec<u8> = std::iter::once(first).chain(rest).collect();
            let (mut streams, failed) = it.silent_crowd(Door::Memcached, 1);
            refused += failed;
            streams.iter_mut().for_each(|it| refused += u64::from(it.write_all(&bytes).is_err()));
        }
        Ok(refused)
    }),
];

/// This many names of large values.
fn keys(count: usize) -> String {
    (0..count).map(|at| format!(" large:{}", at % 4)).collect()
}

fn unread_large(target: &Target, door: Door, line: &str) -> Result<u64> {
    target.load_large(4)?;
    target.flood(door, CLIENTS, &Script::repeat(line, 2_000), Reading::Never)
}
