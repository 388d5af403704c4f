//! Attacks by short RESP requests with long replies, and by clients that leave them unread.

use anyhow::Result;

use super::{KNOWN, Shape};
use crate::attack::door::Door;
use crate::attack::pump::Reading;
use crate::attack::script::{Script, command, commands};
use crate::attack::target::Target;

/// Clients that do not read, of one shape.
const CLIENTS: usize = 64;
/// Large values that are there to be read.
const LARGE: usize = 4;

pub const SHAPES: &[Shape] = &[
    Shape::new(
        "get-large",
        Door::Resp,
        "64 clients pipeline GETs of large values, none reads",
        |it| {
            unread_large(
                it,
                Door::Resp,
                CLIENTS,
                "GET large:0\nGET large:1\nGET large:2\nGET large:3",
            )
        },
    ),
    Shape::new(
        "scan-long-keys",
        Door::Resp,
        "16 clients SCAN hundreds of keys of 60,000 bytes by one command, and read",
        |it| {
            let keys = (0..200).map(|at| format!("SET {at}:{} v", "k".repeat(60_000)));
            it.flood(Door::Resp, 2, &Script::repeat(commands(keys), 1), Reading::All)?;
            let scans = Script::repeat(command("SCAN 0 COUNT 10000"), 1_000);
            it.flood(Door::Resp, 16, &scans, Reading::All)
        },
    ),
    Shape::new("get-large-unix", Door::RespUnix, "the same through the Unix socket", |it| {
        unread_large(it, Door::RespUnix, CLIENTS, "GET large:0\nGET large:1")
    }),
    Shape::new("get-large-tls", Door::RespTls, "the same through TLS", |it| {
        unread_large(it, Door::RespTls, CLIENTS, "GET large:0\nGET large:1")
    }),
    Shape::new(
        "get-large-sipped",
        Door::Resp,
        "the same, read by a few bytes now and then",
        |it| {
            it.load_large(LARGE)?;
            let script = Script::repeat(command("GET large:0"), 2_000);
            it.flood(Door::Resp, CLIENTS, &script, Reading::Sip)
        },
    ),
    Shape::new(
        "get-large-overwritten",
        Door::Resp,
        "unread GETs of a value that others replace",
        overwritten,
    ),
    Shape::new("mget-large", Door::Resp, "MGETs of 32 large values each, unread", |it| {
        let names = " large:0 large:1 large:2 large:3".repeat(8);
        unread_large(it, Door::Resp, CLIENTS, &format!("MGET{names}"))
    }),
    Shape::new("mget-same-small", Door::Resp, "MGETs of one key 100,000 times, unread", |it| {
        it.load_small(1)?;
        let script = Script::wide("MGET", "small:0", 100_000);
        it.flood(Door::Resp, 8, &script, Reading::Never)
    }),
    Shape::new("getrange-large", Door::Resp, "GETRANGEs of whole large values, unread", |it| {
        unread_large(it, Door::Resp, CLIENTS, "GETRANGE large:0 0 -1\nGETRANGE large:1 1 -2")
    }),
    Shape::new("dump-large", Door::Resp, "DUMPs of large values, unread", |it| {
        unread_large(it, Door::Resp, 16, "DUMP large:0\nDUMP large:1")
    }),
    Shape::new("echo-large", Door::Resp, "ECHOs of 1 MB, unread", |it| {
        let script = Script::repeat(command(&format!("ECHO {}", "e".repeat(1_000_000))), 1_000);
        it.flood(Door::Resp, 32, &script, Reading::Never)
    }),
    Shape::new("ping-unread", Door::Resp, "PINGs by 1,000 clients that do not read", |it| {
        it.flood(Door::Resp, 1_000, &Script::repeat("PING\r\n", 1_000_000), Reading::Never)
    }),
    Shape::new("command-docs-100k", Door::Resp, "COMMAND DOCS of one name 100,000 times", |it| {
        it.flood(Door::Resp, 1, &Script::wide("COMMAND DOCS", "set", 100_000), Reading::Never)
    }),
    Shape::new("command-docs-500k", Door::Resp, "COMMAND DOCS of one name 500,000 times", |it| {
        it.flood(Door::Resp, 1, &Script::wide("COMMAND DOCS", "set", 500_000), Reading::Never)
    }),
    Shape::new(
        "command-docs-read",
        Door::Resp,
        "the same 100,000 times by 4 clients that read",
        |it| it.flood(Door::Resp, 4, &Script::wide("COMMAND DOCS", "set", 100_000), Reading::All),
    ),
    Shape::new(
        "command-pipelined",
        Door::Resp,
        "COMMAND and COMMAND DOCS, pipelined and unread",
        |it| {
            let script = Script::repeat("COMMAND\r\nCOMMAND DOCS\r\nCOMMAND LIST\r\n", 5_000);
            it.flood(Door::Resp, 8, &script, Reading::Never)
        },
    ),
    Shape::new("command-info-200k", Door::Resp, "COMMAND INFO of one name 200,000 times", |it| {
        it.flood(Door::Resp, 2, &Script::wide("COMMAND INFO", "set", 200_000), Reading::Never)
    }),
    Shape::new(
        "command-getkeys-400k",
        Door::Resp,
        "COMMAND GETKEYSANDFLAGS of an MGET of 400,000",
        |it| {
            let script = Script::wide("COMMAND GETKEYSANDFLAGS MGET", "key", 400_000);
            it.flood(Door::Resp, 2, &script, Reading::Never)
        },
    ),
    Shape::new("config-get-all", Door::Resp, "CONFIG GET * 10,000 times, unread", |it| {
        it.flood(Door::Resp, 4, &Script::repeat(command("CONFIG GET *"), 10_000), Reading::Never)
    }),
    Shape::new("config-get-wide", Door::Resp, "one CONFIG GET with 100,000 patterns", |it| {
        it.flood(Door::Resp, 1, &Script::wide("CONFIG GET", "*", 100_000), Reading::Never)
    }),
    Shape::new("info-pipelined", Door::Resp, "INFO everything 20,000 times, unread", |it| {
        it.flood(Door::Resp, 8, &Script::repeat("INFO everything\r\n", 20_000), Reading::Never)
    }),
    Shape::new(
        "server-once",
        Door::Resp,
        "commands on the whole server, once each by 3,000 connections",
        |it| {
            let lines =
                "INFO everything\r\nCONFIG GET *\r\nMEMORY STATS\r\nACL LIST\r\nCOMMAND\r\n";
            it.flood(Door::Resp, 3_000, &Script::repeat(lines, 1), Reading::Sip)
        },
    ),
    Shape::new(
        "exec-once",
        Door::Resp,
        "an EXEC with KEYS beside 40,000 keys and an EXEC with CLIENT LIST, once each by 1,000 \
         connections",
        |it| {
            it.load_small(40_000)?;
            let lines = "MULTI\r\nKEYS nothing*\r\nEXEC\r\nMULTI\r\nCLIENT LIST\r\nEXEC\r\n";
            it.flood(Door::Resp, 1_000, &Script::repeat(lines, 1), Reading::Sip)
        },
    ),
    Shape::new(
        "client-list",
        Door::Resp,
        "CLIENT LIST 500 times beside 5,000 connections, unread",
        |it| {
            let (crowd, refused) = it.crowd(Door::Resp, it.connections_max.min(5_000));
            let script = Script::repeat("CLIENT LIST\r\n", 500);
            let refused = refused + it.flood(Door::Resp, 4, &script, Reading::Never)?;
            drop(crowd);
            Ok(refused)
        },
    ),
    Shape::new("keys-all", Door::Resp, "KEYS * of 100,000 keys, pipelined and unread", |it| {
        it.load_small(100_000)?;
        it.flood(Door::Resp, 8, &Script::repeat("KEYS *\r\n", 1_000), Reading::Never)
    })
    .by(KNOWN),
    Shape::new("scan-count", Door::Resp, "SCANs of the whole store at once, unread", |it| {
        it.load_small(100_000)?;
        let script = Script::repeat(command("SCAN 0 COUNT 2000000000"), 1_000);
        it.flood(Door::Resp, 8, &script, Reading::Never)
    })
    .by(KNOWN),
    Shape::new("multi-command-docs", Door::Resp, "an EXEC of 2,000 COMMAND DOCS, unread", |it| {
        let script = Script::repeat("COMMAND DOCS\r\n", 2_000).behind(b"MULTI\r\n");
        it.flood(Door::Resp, 2, &script.before(b"EXEC\r\n"), Reading::Never)
    }),
    Shape::new("multi-get-large", Door::Resp, "EXECs of 64 GETs of large values, unread", |it| {
        it.load_large(LARGE)?;
        let script = Script::repeat(command("GET large:0"), 64).behind(b"MULTI\r\n");
        it.flood(Door::Resp, 16, &script.before(b"EXEC\r\n"), Reading::Never)
    }),
    Shape::new("multi-get-large-read", Door::Resp, "the same by 2 clients that read", |it| {
        it.load_large(LARGE)?;
        let script = Script::repeat(command("GET large:0"), 64).behind(b"MULTI\r\n");
        it.flood(Door::Resp, 2, &script.before(b"EXEC\r\n"), Reading::All)
    }),
    Shape::new(
        "help-and-errors",
        Door::Resp,
        "HELPs and unknown commands, pipelined and unread",
        |it| {
            let lines =
                ["ACL HELP", "CLIENT HELP", "CONFIG HELP", "ACL CAT", "NOSUCH a b c", "GET"];
            let script = Script::repeat(commands(lines.map(str::to_owned)), 20_000);
            it.flood(Door::Resp, 16, &script, Reading::Never)
        },
    ),
    Shape::new(
        "cluster-and-lolwut",
        Door::Resp,
        "CLUSTER, MODULE and LATENCY replies, unread",
        |it| {
            let lines = [
                "LOLWUT",
                "CLUSTER NODES",
                "CLUSTER SLOTS",
                "CLUSTER SHARDS",
                "MODULE LIST",
                "ROLE",
                "MEMORY STATS",
                "MEMORY DOCTOR",
                "LATENCY HISTOGRAM",
                "LATENCY DOCTOR",
                "TIME",
            ];
            let script = Script::repeat(commands(lines.map(str::to_owned)), 20_000);
            it.flood(Door::Resp, 16, &script, Reading::Never)
        },
    ),
];

fn unread_large(target: &Target, door: Door, clients: usize, lines: &str) -> Result<u64> {
    target.load_large(LARGE)?;
    let script = Script::repeat(commands(lines.lines().map(str::to_owned)), 2_000);
    target.flood(door, clients, &script, Reading::Never)
}

/// Checks that unread replies do not keep every older value alive.
fn overwritten(target: &Target) -> Result<u64> {
    target.load_large(1)?;
    let (readers, mut refused) = target.crowd(Door::Resp, CLIENTS);
    let value = vec![b'w'; target.large_bytes()];
    let mut writer = target.operator()?;
    let get = Script::once(command("GET large:0"));
    let mut readers: Vec<_> = readers.into_iter().map(Some).collect();
    for reader in &mut readers {
        if target.is_over() {
            break;
        }
        // One unread reply for each value that there ever was.
        let mut stream = reader.take();
        if let Some(stream) = &mut stream {
            let mut request = Vec::new();
            get.read(0, usize::MAX, &mut request);
            refused += u64::from(stream.write_all(&request).is_err());
        }
        *reader = stream;
        let reply = writer.ask(&[b"SET", b"large:0", &value])?;
        refused += u64::from(reply.shown().starts_with('-'));
    }
    target.linger();
    Ok(refused)
}
