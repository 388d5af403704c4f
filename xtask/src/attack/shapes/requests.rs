//! Attacks by RESP requests that are long, incomplete, malformed, or expensive.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{KNOWN, Shape};
use crate::attack::door::Door;
use crate::attack::pump::{Flood, Reading};
use crate::attack::script::{Script, command, commands};
use crate::attack::target::Target;
use crate::conformance::reply::multibulk;
use crate::conformance::rng::Rng;

/// Connections that hold something half.
const MANY: usize = 2_000;
/// The time in which the clients of one length send.
const FILLING: Duration = Duration::from_millis(250);

pub const SHAPES: &[Shape] = &[
    Shape::new("half-bulk", Door::Resp, "2,000 clients announce 32 MiB and send 16 KB", |it| {
        let half = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$33554432\r\n"[..], &[b'h'; 16_000]].concat();
        held(it, Door::Resp, MANY, Script::once(half))
    }),
    Shape::new("half-bulk-unix", Door::RespUnix, "the same through the Unix socket", |it| {
        let half = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$33554432\r\n"[..], &[b'h'; 16_000]].concat();
        held(it, Door::RespUnix, MANY, Script::once(half))
    }),
    Shape::new("half-large", Door::Resp, "200 clients send all but the end of a large SET", |it| {
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", it.large_bytes());
        let script = Script::repeat([b'h'; 1_000], it.large_bytes() as u64 / 1_000 - 1);
        held(it, Door::Resp, 200, script.behind(head.as_bytes()))
    }),
    Shape::new(
        "half-lengths",
        Door::Resp,
        "half-sent SETs of one length fill their share and close, then SETs of another",
        lengths_in_turn,
    ),
    Shape::new("half-array", Door::Resp, "2,000 clients announce a million arguments", |it| {
        held(it, Door::Resp, MANY, Script::once("*1000000\r\n$3\r\nDEL\r\n$1\r\nk\r\n"))
    }),
    Shape::new(
        "half-array-filled",
        Door::Resp,
        "50 clients send 500,000 of a million arguments",
        |it| {
            let script = Script::repeat("$0\r\n\r\n", 500_000).behind(b"*1000000\r\n$3\r\nDEL\r\n");
            held(it, Door::Resp, 50, script)
        },
    ),
    Shape::new(
        "half-multi",
        Door::Resp,
        "200 clients queue 100,000 commands and never EXEC",
        |it| {
            let script = Script::repeat(command("SET queued 12345678"), 24_000);
            held(it, Door::Resp, 200, script.behind(b"MULTI\r\n"))
        },
    ),
    Shape::new(
        "half-multi-large",
        Door::Resp,
        "50 clients queue SETs of 100 KB and never EXEC",
        |it| {
            let script = Script::repeat(command(&format!("SET q {}", "q".repeat(100_000))), 1_000);
            held(it, Door::Resp, 50, script.behind(b"MULTI\r\n"))
        },
    ),
    Shape::new("multi-24k", Door::Resp, "EXECs of 24,000 SETs, read", |it| {
        let script = Script::repeat(command("SET queued 12345678"), 24_000);
        let script = script.behind(b"MULTI\r\n").before(b"EXEC\r\n");
        it.flood(Door::Resp, 2, &script, Reading::All)
    }),
    Shape::new("byte-by-byte", Door::Resp, "500 clients send a SET one byte at a time", |it| {
        let (streams, refused) = it.crowd(Door::Resp, 500);
        let script = Script::repeat(command("SET slow 1234567890"), 100);
        Ok(refused + it.trickle(streams, &script, Reading::All, 1))
    }),
    Shape::new(
        "inline-endless",
        Door::Resp,
        "500 clients send 64 KB of a line that never ends",
        |it| held(it, Door::Resp, 500, Script::once(vec![b'i'; 65_000])),
    ),
    Shape::new("inline-words", Door::Resp, "inline commands of 30,000 words", |it| {
        let line = format!("DEL{}\r\n", " k".repeat(30_000));
        it.flood(Door::Resp, 8, &Script::repeat(line, 200), Reading::All)
    }),
    Shape::new("inline-quotes", Door::Resp, "inline commands of escapes and open quotes", |it| {
        let line = format!("GET \"{}\r\nGET '{}\r\n", "\\x41".repeat(15_000), "\\'".repeat(30_000));
        it.flood(Door::Resp, 8, &Script::repeat(line, 200), Reading::All)
    }),
    Shape::new("nested-arrays", Door::Resp, "arrays in arrays, 100,000 deep", |it| {
        it.flood(Door::Resp, 8, &Script::repeat("*1\r\n", 100_000), Reading::All)
    }),
    Shape::new("wrong-lengths", Door::Resp, "negative, endless and contradicting lengths", |it| {
        knocks(
            it,
            Door::Resp,
            &[
                b"*-1\r\n*-2147483648\r\n*0\r\n*9223372036854775807\r\n",
                b"*2\r\n$-1\r\n$-2\r\n",
                b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$18446744073709551615\r\n",
                b"*3\r\n$3\r\nSET\r\n$65536\r\n",
                b"*1\r\n$1\r\nPING\r\n",
                b"*99999999999999999999999999\r\n",
                b"%2\r\n~3\r\n>4\r\n=5\r\n(6\r\n",
            ],
        )
    }),
    Shape::new("garbage", Door::Resp, "random bytes", |it| random(it, Door::Resp)),
    Shape::new("garbage-tls", Door::RespTls, "random bytes inside TLS", |it| {
        random(it, Door::RespTls)
    }),
    Shape::new("connect-churn", Door::Resp, "connections that come and go", |it| {
        let mut refused = 0;
        while !it.is_over() {
            refused += it.crowd(Door::Resp, 20).1;
        }
        Ok(refused)
    }),
    Shape::new("connect-hoard", Door::Resp, "as many silent connections as there may be", |it| {
        let (crowd, refused) = it.silent_crowd(Door::Resp, usize::MAX);
        it.linger();
        drop(crowd);
        Ok(refused)
    }),
    Shape::new("mset-100k", Door::Resp, "MSETs of 100,000 keys", |it| {
        let mut words = vec![b"MSET".to_vec()];
        words.extend((0..100_000).flat_map(|at| [format!("m:{at}").into(), b"value".to_vec()]));
        let script = Script::repeat(multibulk(words.iter().map(Vec::as_slice)), 20);
        it.flood(Door::Resp, 2, &script, Reading::All)
    }),
    Shape::new(
        "exists-million",
        Door::Resp,
        "EXISTS, TOUCH and DEL of one key 1,000,000 times",
        |it| {
            let script = Script::wide("EXISTS", "k", 1_000_000);
            it.flood(Door::Resp, 2, &script, Reading::All)
        },
    ),
    Shape::new("watch-100k", Door::Resp, "50 clients WATCH 100,000 keys each", |it| {
        let lines = (0..100_000).map(|at| format!("WATCH watched:{at}"));
        held(it, Door::Resp, 50, Script::once(commands(lines)))
    }),
    Shape::new("watch-long-keys", Door::Resp, "200 clients WATCH keys of 60,000 bytes", |it| {
        let lines = (0..50).map(|at| format!("WATCH {at:0>60000}"));
        held(it, Door::Resp, 200, Script::once(commands(lines)))
    }),
    Shape::new("setrange-growth", Door::Resp, "SETRANGEs that make large values of zeros", |it| {
        let most = it.large_bytes();
        let lines = (0..64).map(|at| format!("SETRANGE grown:{at} {most} x"));
        it.flood(Door::Resp, 8, &Script::repeat(commands(lines), 10), Reading::All)
    }),
    Shape::new("setbit-growth", Door::Resp, "SETBITs and BITFIELDs far behind the end", |it| {
        let most = it.large_bytes() * 8;
        let lines = (0..64).map(|at| match at % 3 {
            0 => format!("SETBIT grown:{at} {most} 1"),
            1 => format!("BITFIELD grown:{at} SET u8 {most} 1"),
            _ => format!("SETBIT grown:{at} 4294967295 1"),
        });
        it.flood(Door::Resp, 8, &Script::repeat(commands(lines), 10), Reading::All)
    }),
    Shape::new("append-growth", Door::Resp, "APPENDs of 100 KB to one key", |it| {
        let script =
            Script::repeat(command(&format!("APPEND grown {}", "a".repeat(100_000))), 2_000);
        it.flood(Door::Resp, 4, &script, Reading::All)
    }),
    Shape::new("bitop-large", Door::Resp, "BITOPs of 16 large values", |it| {
        let sources = " large:0 large:1 large:2 large:3".repeat(4);
        worked(it, &[&format!("BITOP XOR made{sources}"), &format!("BITOP AND made{sources}")])
    }),
    Shape::new(
        "bitcount-large",
        Door::Resp,
        "BITCOUNT, BITPOS and BITFIELD of large values",
        |it| worked(it, &["BITCOUNT large:0", "BITPOS large:0 0", "BITCOUNT large:1 1 -1 BIT"]),
    ),
    Shape::new("lcs-large", Door::Resp, "LCS of large values", |it| {
        worked(it, &["LCS large:0 large:1", "LCS large:0 large:1 LEN", "LCS large:2 large:3 IDX"])
    }),
    Shape::new("lcs-medium", Door::Resp, "LCS of values of 4,000 bytes, by 8 clients", |it| {
        let mut wire = it.operator()?;
        for name in ["left", "right"] {
            wire.ask(&[b"SET", name.as_bytes(), &name.repeat(1_000).into_bytes()[..4_000]])?;
        }
        it.flood(Door::Resp, 8, &Script::repeat(command("LCS left right"), 200), Reading::All)
    }),
    Shape::new("copies-large", Door::Resp, "COPY, RENAME and SET GET of large values", |it| {
        worked(it, &["COPY large:0 copied REPLACE", "RENAME copied moved", "GETDEL moved"])
    }),
    Shape::new(
        "dump-restore",
        Door::Resp,
        "RESTOREs of lying payloads, DIGESTs of large values",
        |it| {
            let lie =
                [&b"\x00\x80\xff\xff\xff\xff"[..], &[b'z'; 3_000], b"\x0b\0checksum"].concat();
            let restore = multibulk([&b"RESTORE"[..], b"k", b"0", &lie, b"REPLACE"].into_iter());
            it.load_large(1)?;
            let script = Script::repeat([restore, command("DIGEST large:0")].concat(), 500);
            it.flood(Door::Resp, 8, &script, Reading::All)
        },
    ),
    Shape::new("keys-pattern", Door::Resp, "KEYS and SCAN with patterns that backtrack", |it| {
        it.operator()?.ask(&[b"SET", "a".repeat(30_000).as_bytes(), b"v"])?;
        let pattern = "a*".repeat(10_000);
        let run = format!("KEYS *{}b", "a".repeat(15_000));
        let scan = format!("SCAN 0 MATCH {pattern}b COUNT 100000");
        let lines = [run, format!("KEYS {pattern}b"), scan];
        it.flood(Door::Resp, 4, &Script::repeat(commands(lines), 20), Reading::All)
    }),
    Shape::new("keys-classes", Door::Resp, "KEYS with endless classes and escapes", |it| {
        it.load_small(10_000)?;
        let lines = [
            format!("KEYS *[{}]*", "a-z".repeat(10_000)),
            format!("KEYS *{}", "\\?".repeat(10_000)),
        ];
        it.flood(Door::Resp, 4, &Script::repeat(commands(lines), 20), Reading::All)
    })
    .by(KNOWN),
    Shape::new(
        "unknown-names",
        Door::Resp,
        "EVALs and unknown commands with names of 1 MB",
        |it| {
            let name = "N".repeat(1_000_000);
            let lines = [format!("EVAL {name} 0"), name.clone(), format!("CLIENT {name}")];
            it.flood(Door::Resp, 8, &Script::repeat(commands(lines), 30), Reading::All)
        },
    ),
    Shape::new("debug-commands", Door::Resp, "DEBUG and OBJECT commands of all kinds", |it| {
        it.load_small(10)?;
        let lines = [
            "DEBUG OBJECT small:0",
            "DEBUG STRINGMATCH-LEN 10000000 *a",
            "DEBUG JMAP",
            "DEBUG RELOAD",
            "DEBUG HTSTATS 0",
            "DEBUG SLEEP 0.001",
            "OBJECT FREQ small:0",
            "MEMORY USAGE small:0",
        ];
        it.flood(
            Door::Resp,
            8,
            &Script::repeat(commands(lines.map(str::to_owned)), 500),
            Reading::All,
        )
    }),
    Shape::new(
        "slow-log",
        Door::Resp,
        "a slow log of 1,000,000 entries, filled and unread",
        |it| {
            let setup =
                ["CONFIG SET slowlog-log-slower-than 0", "CONFIG SET slowlog-max-len 1000000"];
            let script = Script::repeat(command(&format!("SET k {}", "s".repeat(3_000))), 50_000);
            let script = script.behind(&commands(setup.map(str::to_owned)));
            it.flood(
                Door::Resp,
                4,
                &script.before(&command("SLOWLOG GET -1").repeat(50)),
                Reading::Never,
            )
        },
    )
    .spoiling(),
    Shape::new("hot-keys", Door::Resp, "HOTKEYS over keys that are all hot, unread", |it| {
        let start = command("HOTKEYS START METRICS 2 CPU NET COUNT 64");
        let lines = (0..1_000).map(|at| format!("GET {at:0>2000}"));
        let script = Script::repeat(commands(lines), 20).behind(&start);
        it.flood(
            Door::Resp,
            4,
            &script.before(&command("HOTKEYS GET").repeat(1_000)),
            Reading::Never,
        )
    })
    .spoiling(),
    Shape::new("client-names", Door::Resp, "2,000 clients with names of 16 KB", |it| {
        let name = "n".repeat(16_000);
        let lines = [format!("CLIENT SETNAME {name}"), format!("CLIENT SETINFO lib-name {name}")];
        held(it, Door::Resp, MANY, Script::once(commands(lines)))
    }),
    Shape::new(
        "reply-off",
        Door::Resp,
        "clients without replies that write as fast as they can",
        |it| {
            let script =
                Script::repeat(command(&format!("SET off {}", "o".repeat(10_000))), 100_000);
            it.flood(Door::Resp, 16, &script.behind(b"CLIENT REPLY OFF\r\n"), Reading::Never)
        },
    ),
];

/// Connections that have sent their part and keep it there until the deadline.
fn held(target: &Target, door: Door, clients: usize, script: Script) -> Result<u64> {
    target.flood(door, clients, &script, Reading::Never)
}

/// Fills the share of request bodies with blocks of one length, closes all clients at once, and
/// goes on with another: pages that a heap keeps for the one do not fit the other.
fn lengths_in_turn(target: &Target) -> Result<u64> {
    let mut refused = 0;
    for length in [1_000_000, 20_000, 200_000, 60_000].into_iter().cycle().take(200) {
        let deadline = target.deadline().min(Instant::now() + FILLING);
        let clients = (target.cap_bytes as usize / 8 / length).clamp(4, MANY);
        let (streams, failed) = target.crowd(Door::Resp, clients);
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", length + 1);
        let script = Script::repeat([b'h'; 1_000], length as u64 / 1_000).behind(head.as_bytes());
        let flood = Flood { script: &script, reading: Reading::Never, piece: usize::MAX, deadline };
        refused += failed + flood.run(streams);
        if target.is_over() {
            break;
        }
    }
    Ok(refused)
}

/// Expensive commands on large values with short replies.
fn worked(target: &Target, lines: &[&str]) -> Result<u64> {
    target.load_large(4)?;
    let script = Script::repeat(commands(lines.iter().map(|line| (*line).to_owned())), 100);
    target.flood(Door::Resp, 4, &script, Reading::All)
}

/// A connection for each of these, again and again.
fn knocks(target: &Target, door: Door, texts: &[&[u8]]) -> Result<u64> {
    let (mut refused, mut round) = (0, 0);
    while !target.is_over() && round < 500 {
        let mut streams = target.crowd(door, texts.len()).0;
        for (stream, text) in streams.iter_mut().zip(texts) {
            refused += u64::from(stream.write_all(text).is_err());
        }
        round += 1;
    }
    target.linger();
    Ok(refused)
}

/// The same bytes in each run.
fn random(target: &Target, door: Door) -> Result<u64> {
    let mut rng = Rng::new(7);
    let (mut refused, mut round) = (0, 0);
    while !target.is_over() && round < 2_000 {
        let bytes: Vec<u8> = (0..200).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let (mut streams, failed) = target.crowd(door, 1);
        refused += failed;
        for stream in &mut streams {
            refused += u64::from(stream.write_all(&bytes).is_err());
        }
        round += 1;
    }
    Ok(refused)
}
