//! RESP over loopback: every command family, order, transactions, handshakes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use counters::Protocol;

use super::support::{PATIENCE, TestServer, bulk, command, config, pattern};
use server::{Config, Hooks, IndexKind, Server};

const GETEX_TIME: &str = "-ERR invalid expire time in 'getex' command\r\n";

#[test]
fn strings_answer_as_redis_does() {
    let server = TestServer::start();
    let mut client = server.resp();
    for (ask, want) in [
        ("SET a 1\r\n", "+OK\r\n"),
        ("GET a\r\n", "$1\r\n1\r\n"),
        ("GET nil\r\n", "$-1\r\n"),
        ("SET a 2 NX\r\n", "$-1\r\n"),
        ("SET b 2 XX\r\n", "$-1\r\n"),
        ("SET a 5 GET\r\n", "$1\r\n1\r\n"),
        ("SET a 6 NX GET\r\n", "$1\r\n5\r\n"),
        ("SETNX a 1\r\n", ":0\r\n"),
        ("SETNX c 1\r\n", ":1\r\n"),
        ("GETSET c 2\r\n", "$1\r\n1\r\n"),
        ("GETDEL c\r\n", "$1\r\n2\r\n"),
        ("GETDEL c\r\n", "$-1\r\n"),
        ("INCR n\r\n", ":1\r\n"),
        ("INCRBY n 10\r\n", ":11\r\n"),
        ("DECRBY n 20\r\n", ":-9\r\n"),
        ("INCRBYFLOAT n 0.5\r\n", "$4\r\n-8.5\r\n"),
        ("INCR n\r\n", "-ERR value is not an integer or out of range\r\n"),
        ("APPEND s hello\r\n", ":5\r\n"),
        ("APPEND s world\r\n", ":10\r\n"),
        ("STRLEN s\r\n", ":10\r\n"),
        ("STRLEN nil\r\n", ":0\r\n"),
        ("GETRANGE s 0 4\r\n", "$5\r\nhello\r\n"),
        ("SUBSTR s -5 -1\r\n", "$5\r\nworld\r\n"),
        ("SETRANGE s 5 WORLD\r\n", ":10\r\n"),
        ("GET s\r\n", "$10\r\nhelloWORLD\r\n"),
        ("SETRANGE nil 0 \"\"\r\n", ":0\r\n"),
        ("SETRANGE z 2 x\r\n", ":3\r\n"),
        ("GET z\r\n", "$3\r\n\0\0x\r\n"),
        ("MSET x 1 y 2\r\n", "+OK\r\n"),
        ("MGET x nil y\r\n", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
        ("MSETNX y 3 w 4\r\n", ":0\r\n"),
        ("EXISTS w\r\n", ":0\r\n"),
        ("MSETNX v 3 w 4\r\n", ":1\r\n"),
        ("OBJECT FREQ nil\r\n", "$-1\r\n"),
        ("GETEX nil EX 0\r\n", "$-1\r\n"),
        ("GETEX nil PX 9223372036854775807\r\n", "$-1\r\n"),
        ("GETEX w EX x\r\n", "-ERR value is not an integer or out of range\r\n"),
        ("GETEX w PX 9223372036854775807\r\n", GETEX_TIME),
        ("GET w\r\n", "$1\r\n4\r\n"),
    ] {
        client.ask(ask, want);
    }
}

const NO_ORDER: &str =
    "-ERR KV.RANGE needs the ordered index: start the server with --index tree\r\n";

#[test]
fn ranges_say_what_they_need_when_keys_have_no_order() {
    let server = TestServer::start();
    let mut client = server.resp();
    for (ask, want) in [
        ("KV.RANGE - +\r\n", NO_ORDER),
        ("KV.RANGE + - LIMIT 0\r\n", NO_ORDER),
        ("KV.RANGE a b\r\n", "-ERR min or max not valid string range item\r\n"),
        ("MULTI\r\n", "+OK\r\n"),
        ("SET a 1\r\n", "+QUEUED\r\n"),
        ("KV.RANGE - +\r\n", "+QUEUED\r\n"),
        ("GET a\r\n", "+QUEUED\r\n"),
    ] {
        client.ask(ask, want);
    }
    client.ask("EXEC\r\n", format!("*3\r\n+OK\r\n{NO_ORDER}$1\r\n1\r\n"));
    let totals = server.server().shared().totals();
    let range = totals.command(Protocol::Resp, "kv.range").unwrap();
    // Queueing counts as a call too, as it does for every command.
    assert_eq!((range.calls, range.errors), (4, 4));
}

#[test]
fn ranges_follow_the_order_of_keys() {
    let server = TestServer::with(Config { index: IndexKind::Tree, ..config() });
    let mut client = server.resp();
    for (ask, want) in [
        ("KV.RANGE - +\r\n", "*0\r\n"),
        ("MSET b 2 a 1 c 3\r\n", "+OK\r\n"),
        ("KV.RANGE - + LIMIT 2\r\n", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n"),
        ("KV.RANGE (a [c KEYSONLY\r\n", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"),
        ("KV.RANGE [a (c REV KEYSONLY\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n"),
        ("KV.RANGE + -\r\n", "*0\r\n"),
        ("KV.RANGE \"\\x28a\" + LIMIT 1 KEYSONLY\r\n", "*1\r\n$1\r\nb\r\n"),
        ("SCAN 0 MATCH b*\r\n", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nb\r\n"),
        ("SCAN 77\r\n", "-ERR invalid cursor\r\n"),
    ] {
        client.ask(ask, want);
    }
}

#[test]
fn a_long_range_comes_whole_and_before_what_was_asked_behind_it() {
    let server = TestServer::with(Config { index: IndexKind::Tree, ..config() });
    let mut client = server.resp();
    let keys: Vec<String> = (0..5_000).map(|number| format!("k{number:05}")).collect();
    for key in &keys {
        client.send(format!("SET {key} v\r\n"));
    }
    client.expect("+OK\r\n".repeat(keys.len()));
    let quiet = "CLIENT REPLY SKIP\r\nKV.RANGE - +\r\n";
    client.send(format!("KV.RANGE - + KEYSONLY\r\nPING\r\n{quiet}GET k00000\r\n"));
    let bulks: String = keys.iter().map(|key| format!("$6\r\n{key}\r\n")).collect();
    client.expect(format!("*5000\r\n{bulks}+PONG\r\n$1\r\nv\r\n"));
    let totals = server.server().shared().totals();
    assert_eq!(totals.command(Protocol::Resp, "kv.range").unwrap().calls, 2);
}

#[test]
fn a_tree_is_not_lossy() {
    let lossy = Config { index: IndexKind::Tree, lossy_index: true, ..config() };
    let error = Server::start(lossy).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("needs --index hash"), "{error}");
}

#[test]
fn the_memory_policy_is_set_to_what_it_is_or_not_at_all() {
    let server = TestServer::start();
    let mut client = server.resp();
    let failed = |reason: &str| {
        let argument = "(possibly related to argument 'maxmemory-policy')";
        format!("-ERR CONFIG SET failed {argument} - {reason}\r\n")
    };
    let unknown =
        failed("argument must be one of the following: noeviction, allkeys-lru, allkeys-lfu");
    let fixed =
        failed("a cache evicts when its memory is full: start the server with --mode store");
    for (policy, want) in [
        ("allkeys-lru", "+OK\r\n"),
        ("allkeys-lfu", "+OK\r\n"),
        ("noeviction", &fixed),
        ("volatile-lru", &unknown),
        ("volatile-ttl", &unknown),
        ("allkeys-random", &unknown),
    ] {
        client.ask(format!("CONFIG SET maxmemory-policy {policy}\r\n"), want);
    }
}

fn set_failed(name: &str, reason: &str) -> String {
    format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}\r\n")
}

fn shown(name: &str, value: &str) -> String {
    format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len())
}

/// Each of the live settings, with values that can be had and what is read back.
#[test]
fn every_live_setting_is_set_and_read_back() {
    let server = TestServer::with(Config { threads: 4, memory_bytes: 128 << 20, ..config() });
    let mut client = server.resp();
    let of_threads = "argument must be auto or a number of threads";
    let of_time = "argument must be off or a time from 1us to 60s, e.g. 1ms";
    let of_integer = "argument couldn't be parsed into an integer";
    let of_levels =
        "argument(s) must be one of the following: off, error, warn, info, debug, trace";
    let rows = [
        ("threads", [("3", "3"), ("AUTO", "4")], of_threads),
        ("cr-threads", [("1", "1"), ("auto", "auto")], of_threads),
        ("memory", [("200m", "200MiB"), ("128MiB", "128MiB")], "argument must be a memory value"),
        ("slo", [("1500us", "1500us"), ("OFF", "off")], of_time),
        ("hot-set", [("500", "500"), ("Auto", "auto")], "argument must be auto, off or 1 to 10000"),
        ("max-connections", [("77", "77"), ("10000", "10000")], of_integer),
        ("max-connections-per-address", [("50", "50"), ("0", "0")], of_integer),
        ("idle-timeout", [("100s", "100s"), ("Off", "off")], of_integer),
        ("slowlog-log-slower-than", [("-1", "-1"), ("5000", "5000")], of_integer),
        ("slowlog-max-len", [("0", "0"), ("64", "64")], of_integer),
        ("tracking-table-max-keys", [("7", "7"), ("0", "0")], of_integer),
        ("latency-monitor-threshold", [("100", "100"), ("0", "0")], of_integer),
        ("log", [("debug", "debug"), ("INFO", "info")], of_levels),
    ];
    // A password is not read back.
    let shown_settings = server::live_keys().filter(|name| *name != "requirepass");
    assert!(shown_settings.eq(rows.map(|(name, ..)| name)));
    for (name, values, reason) in rows {
        for (given, read_back) in values {
            client.ask(format!("CONFIG SET {name} {given}\r\n"), "+OK\r\n");
            client.ask(format!("CONFIG GET {name}\r\n"), shown(name, read_back));
        }
        client.ask(format!("CONFIG SET {name} soon\r\n"), set_failed(name, reason));
        client.ask(format!("CONFIG GET {name}\r\n"), shown(name, values[1].1));
    }
    client.ask("CONFIG SET idle-timeout 90\r\nCONFIG GET idle-timeout\r\n", {
        format!("+OK\r\n{}", shown("idle-timeout", "90s"))
    });
    let reason = "argument must be 0, off, or 1s to 31536000s";
    client.ask("CONFIG SET idle-timeout 500ms\r\n", set_failed("idle-timeout", reason));
    client.ask("CONFIG SET hot-set off\r\nCONFIG GET hot-set\r\n", {
        format!("+OK\r\n{}", shown("hot-set", "off"))
    });
}

#[test]
fn the_limit_of_connections_holds_for_the_next_one() {
    let server = TestServer::start();
    let mut first = server.resp();
    first.ask("CONFIG SET maxclients 1\r\n", "+OK\r\n");
    first.ask("CONFIG GET max-connections\r\n", shown("max-connections", "1"));
    let mut second = server.resp();
    second.expect("-ERR max number of clients reached\r\n");
    first.ask("CONFIG SET max-connections 2\r\n", "+OK\r\n");
    server.resp().ask("PING\r\n", "+PONG\r\n");
    let reason = "argument must be between 1 and 1000000 inclusive";
    first.ask("CONFIG SET maxclients 0\r\n", set_failed("maxclients", reason));
    let reason = "argument couldn't be parsed into an integer";
    first.ask("CONFIG SET maxclients few\r\n", set_failed("maxclients", reason));
    let reason = "argument must have at most 512 bytes";
    let long = format!("CONFIG SET requirepass {}\r\n", "x".repeat(513));
    first.ask(long, set_failed("requirepass", reason));
}

/// Says what was changed in place of the file; a path that ends in `denied` cannot be written.
fn write_down(path: &Path, changes: &BTreeMap<&'static str, String>) -> std::io::Result<()> {
    if path.ends_with("denied") {
        return Err(std::io::Error::from_raw_os_error(13));
    }
    std::fs::write(path, format!("{changes:?}"))
}

#[test]
fn config_rewrite_hands_on_what_was_set_since_the_start() {
    let without = "-ERR The server is running without a config file\r\n";
    TestServer::start().resp().ask("CONFIG REWRITE\r\n", without);

    let folder = tempfile::tempdir().unwrap();
    let with_file = |name: &str| {
        let file = Some(folder.path().join(name));
        let origin = server::SettingsOrigin { file, ..Default::default() };
        let base = Config { threads: 4, memory_bytes: 128 << 20, ..config() };
        let hooks = Hooks { rewrite_file: Some(write_down), ..Hooks::default() };
        TestServer::with(Config { origin, hooks, ..base })
    };
    let server = with_file("dovetail.toml");
    let written = || std::fs::read_to_string(folder.path().join("dovetail.toml")).unwrap();
    let mut client = server.resp();
    client.ask("CONFIG REWRITE\r\n", "+OK\r\n");
    assert_eq!(written(), "{}");
    client.ask("CONFIG SET threads 3 slo 2ms maxclients 9\r\n", "+OK\r\n");
    client.ask("CONFIG SET slo 0.5ms\r\nCONFIG REWRITE\r\n", "+OK\r\n+OK\r\n");
    let want = r#"{"max-connections": "9", "slo": "500us", "threads": "3"}"#;
    assert_eq!(written(), want);
    let refused = set_failed("threads", "argument must be auto or a number of threads");
    client.ask("CONFIG SET slo 1s threads x\r\nCONFIG REWRITE\r\n", refused + "+OK\r\n");
    assert_eq!(written(), want, "of what was refused nothing is written");

    let denied = "-ERR Rewriting config file: Permission denied\r\n";
    with_file("denied").resp().ask("CONFIG REWRITE\r\n", denied);
}

/// Says that it has begun, and waits for a file beside it.
fn write_down_slowly(path: &Path, _: &BTreeMap<&'static str, String>) -> std::io::Result<()> {
    std::fs::write(path, "begun")?;
    while !path.with_file_name("go").exists() {
        std::thread::yield_now();
    }
    Ok(())
}

/// K28.
#[test]
fn a_disk_that_is_slow_holds_up_one_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dovetail.toml");
    let origin = server::SettingsOrigin { file: Some(path.clone()), ..Default::default() };
    let hooks = Hooks { rewrite_file: Some(write_down_slowly), ..Hooks::default() };
    let server = TestServer::with(Config { origin, hooks, threads: 1, ..config() });
    let [mut client, mut other] = [server.resp(), server.resp()];
    client.send("CONFIG REWRITE\r\nPING\r\n");
    while !path.exists() {
        std::thread::yield_now();
    }
    other.ask("PING\r\n", "+PONG\r\n");
    // One that has gone waits for nothing.
    let mut leaving = server.resp();
    leaving.send("CONFIG REWRITE\r\n");
    drop(leaving);
    other.ask("PING\r\n", "+PONG\r\n");
    std::fs::write(path.with_file_name("go"), "").unwrap();
    client.expect("+OK\r\n+PONG\r\n");
    let group = "MULTI\r\nCONFIG REWRITE\r\nPING\r\nEXEC\r\n";
    client.ask(group, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+PONG\r\n");
}

#[test]
fn keys_answer_as_redis_does() {
    let server = TestServer::start();
    let mut client = server.resp();
    for (ask, want) in [
        ("SET a 1\r\n", "+OK\r\n"),
        ("SET b 2\r\n", "+OK\r\n"),
        ("EXISTS a a b nil\r\n", ":3\r\n"),
        ("TOUCH a nil\r\n", ":1\r\n"),
        ("TYPE a\r\n", "+string\r\n"),
        ("TYPE nil\r\n", "+none\r\n"),
        ("OBJECT ENCODING a\r\n", "$3\r\nint\r\n"),
        ("RENAME a c\r\n", "+OK\r\n"),
        ("RENAME a c\r\n", "-ERR no such key\r\n"),
        ("GET c\r\n", "$1\r\n1\r\n"),
        ("RENAMENX c b\r\n", ":0\r\n"),
        ("RENAMENX c d\r\n", ":1\r\n"),
        ("COPY d e\r\n", ":1\r\n"),
        ("COPY d e\r\n", ":0\r\n"),
        ("DBSIZE\r\n", ":3\r\n"),
        ("DEL d e nil\r\n", ":2\r\n"),
        ("KEYS *\r\n", "*1\r\n$1\r\nb\r\n"),
        ("SCAN 0 MATCH b* COUNT 100000\r\n", "*2\r\n$"),
    ] {
        client.ask(ask, want);
    }
    let mut client = server.resp();
    client.ask("RANDOMKEY\r\n", "$1\r\nb\r\n");
    client.ask("FLUSHALL\r\nDBSIZE\r\nRANDOMKEY\r\n", "+OK\r\n:0\r\n$-1\r\n");
}

#[test]
fn expiry_answers_as_redis_does() {
    let server = TestServer::start();
    let mut client = server.resp();
    for (ask, want) in [
        ("SET a 1 EX 100\r\n", "+OK\r\n"),
        ("TTL a\r\n", ":100\r\n"),
        ("PERSIST a\r\n", ":1\r\n"),
        ("PERSIST a\r\n", ":0\r\n"),
        ("TTL a\r\n", ":-1\r\n"),
        ("TTL nil\r\n", ":-2\r\n"),
        ("EXPIREAT a 4102444800\r\n", ":1\r\n"),
        ("EXPIRETIME a\r\n", ":4102444800\r\n"),
        ("PEXPIRETIME a\r\n", ":4102444800000\r\n"),
        ("SET a 2 KEEPTTL\r\n", "+OK\r\n"),
        ("EXPIRETIME a\r\n", ":4102444800\r\n"),
        ("EXPIRE a 10 NX\r\n", ":0\r\n"),
        ("EXPIRE a 10 LT\r\n", ":1\r\n"),
        ("EXPIRE nil 10\r\n", ":0\r\n"),
        ("GETEX a PERSIST\r\n", "$1\r\n2\r\n"),
        ("TTL a\r\n", ":-1\r\n"),
        ("EXPIRE a -1\r\n", ":1\r\n"),
        ("EXISTS a\r\n", ":0\r\n"),
        ("SET a 1 EX 0\r\n", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET a 1 PXAT 1\r\n", "+OK\r\n"),
        ("EXISTS a\r\n", ":0\r\n"),
        ("SETEX a 100 v\r\n", "+OK\r\n"),
        ("TTL a\r\n", ":100\r\n"),
        ("PSETEX a 100000 v\r\n", "+OK\r\n"),
        ("TTL a\r\n", ":100\r\n"),
    ] {
        client.ask(ask, want);
    }
}

#[test]
fn an_expired_key_is_gone() {
    let server = TestServer::start();
    let mut client = server.resp();
    let started = std::time::Instant::now();
    client.ask("SET a 1 PX 30\r\n", "+OK\r\n");
    let gone = std::iter::repeat_with(|| {
        let mut reply = [0; 7];
        client.send("GET a\r\n");
        std::io::Read::read_exact(&mut client.stream, &mut reply[..5]).unwrap();
        if &reply[..5] != b"$-1\r\n" {
            std::io::Read::read_exact(&mut client.stream, &mut reply[5..]).unwrap();
        }
        &reply[..5] == b"$-1\r\n"
    });
    assert!(gone.take_while(|_| started.elapsed() < PATIENCE).any(|gone| gone));
    assert!(started.elapsed() >= Duration::from_millis(25), "it lived as long as it should");
}

#[test]
fn one_pipeline_sees_its_own_writes_in_order() {
    let server = TestServer::start();
    let mut client = server.resp();
    let (mut ask, mut want) = (Vec::new(), Vec::new());
    for round in 0..300 {
        ask.extend_from_slice(
            format!(
                "SET k {round}\r\nGET k\r\nPING\r\nINCR k\r\nMGET k k\r\nDEL k\r\nGET k\r\nNOPE\r\n"
            )
            .as_bytes(),
        );
        let (value, next) = (round.to_string(), (round + 1).to_string());
        want.extend_from_slice(b"+OK\r\n");
        want.extend(bulk(value.as_bytes()));
        want.extend_from_slice(format!("+PONG\r\n:{next}\r\n*2\r\n").as_bytes());
        want.extend(bulk(next.as_bytes()));
        want.extend(bulk(next.as_bytes()));
        want.extend_from_slice(
            b":1\r\n$-1\r\n-ERR unknown command 'NOPE', with args beginning with: \r\n",
        );
    }
    client.ask(ask, want);
}

#[test]
fn a_pipeline_cut_at_every_byte_answers_the_same() {
    let server = TestServer::start();
    let mut ask = command(&[b"SET", b"key", b"a\r\nb"]);
    ask.extend_from_slice(b"GET key\r\n");
    ask.extend(command(&[b"GET", b"key"]));
    ask.extend(command(&[b"MGET", b"key", b"nil"]));
    let want = "+OK\r\n$4\r\na\r\nb\r\n$4\r\na\r\nb\r\n*2\r\n$4\r\na\r\nb\r\n$-1\r\n";
    for cut in 1..ask.len() {
        let mut client = server.resp();
        client.send(&ask[..cut]);
        std::thread::yield_now();
        client.send(&ask[cut..]);
        client.expect(want);
    }
}

#[test]
fn a_command_that_arrives_byte_by_byte_is_answered() {
    let server = TestServer::start();
    let mut client = server.resp();
    for byte in command(&[b"SET", b"key", b"value"]) {
        client.send([byte]);
    }
    client.expect("+OK\r\n");
}

#[test]
fn values_of_every_size_come_back_unchanged() {
    let server = TestServer::with(server::Config { memory_bytes: 512 << 20, ..config() });
    let mut client = server.resp();
    for len_bytes in [0, 1, 100, 4095, 4096, 16 << 10, 65_535, 65_536, 1 << 20, 5 << 20, 32 << 20] {
        let value = pattern(len_bytes);
        client.ask(command(&[b"SET", b"big", &value]), "+OK\r\n");
        client.ask("GET big\r\nSTRLEN big\r\n", {
            let mut want = bulk(&value);
            want.extend_from_slice(format!(":{len_bytes}\r\n").as_bytes());
            want
        });
    }
}

fn too_large(len_bytes: usize) -> String {
    format!(
        "-ERR an argument of {len_bytes} bytes is above the limit of 1048576 \
         (proto-max-bulk-len, --max-item-size)\r\n"
    )
}

fn with_values_of_a_mebibyte() -> TestServer {
    TestServer::with(server::Config { max_item_size_bytes: 1 << 20, ..config() })
}

#[test]
fn a_value_above_the_limit_is_refused_and_the_connection_goes_on() {
    let server = with_values_of_a_mebibyte();
    let mut client = server.resp();
    for len_bytes in [(1 << 20) + 1, 3 << 20, 40 << 20] {
        let set = command(&[b"SET", b"k", &pattern(len_bytes)]);
        client.ask(
            [b"SET a 1\r\n", &set[..], b"GET a\r\n", &set, b"GET k\r\nPING\r\n"].concat(),
            {
                let error = too_large(len_bytes);
                format!("+OK\r\n{error}$1\r\n1\r\n{error}$-1\r\n+PONG\r\n")
            },
        );
    }
    client.ask("SETRANGE k 1048576 x\r\n", {
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
    });
    assert_eq!(server.server().shared().totals().oversized_commands, 6);
}

#[test]
fn commands_in_a_refused_value_are_not_run_and_not_shown() {
    let server = with_values_of_a_mebibyte();
    let mut monitor = server.resp();
    monitor.ask("MONITOR\r\n", "+OK\r\n");
    let mut client = server.resp();
    let value = b"\r\nSET hidden 1\r\n".repeat(100_000);
    let set = command(&[b"MSET", b"k", &value, b"l", &value]);
    client.ask([&set[..], b"EXISTS hidden k l\r\n"].concat(), too_large(value.len()) + ":0\r\n");
    monitor.expect_line_with("\"EXISTS\" \"hidden\"");
}

#[test]
fn a_refused_value_spoils_its_transaction() {
    let server = with_values_of_a_mebibyte();
    let mut client = server.resp();
    let set = command(&[b"SET", b"k", &pattern(2 << 20)]);
    client.ask([b"MULTI\r\nSET a 1\r\n", &set[..], b"SET b 1\r\nEXEC\r\n"].concat(), {
        "+OK\r\n+QUEUED\r\n".to_owned()
            + &too_large(2 << 20)
            + "+QUEUED\r\n-EXECABORT Transaction discarded because of previous errors.\r\n"
    });
    client.ask([&b"WATCH a\r\n"[..], &set, b"MULTI\r\nSET a 2\r\nEXEC\r\n"].concat(), {
        "+OK\r\n".to_owned() + &too_large(2 << 20) + "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n"
    });
}

#[test]
fn a_refused_value_is_not_answered_where_replies_are_off() {
    let server = with_values_of_a_mebibyte();
    let mut client = server.resp();
    let set = command(&[b"SET", b"k", &pattern(2 << 20)]);
    client.ask([b"CLIENT REPLY SKIP\r\n", &set[..], b"PING\r\n"].concat(), "+PONG\r\n");
}

#[test]
fn what_is_announced_beyond_4_gib_or_behind_a_broken_header_closes_the_connection() {
    let server = with_values_of_a_mebibyte();
    for rest in ["$4294967297\r\n", "$x\r\n", "$-2\r\n"] {
        let mut client = server.resp();
        let broken = "-ERR Protocol error: invalid bulk length\r\n";
        client.ask(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n{rest}"), broken);
        client.expect_closed();
        let mut client = server.resp();
        let begun = [b"*3\r\n$3\r\nSET\r\n$1048577\r\n", &pattern((1 << 20) + 1)[..]].concat();
        let end = format!("\r\n{rest}");
        client.ask([&begun[..], end.as_bytes()].concat(), too_large((1 << 20) + 1) + broken);
        client.expect_closed();
    }
}

#[test]
fn a_command_larger_than_the_client_buffers_is_refused_and_the_connection_goes_on() {
    let server = TestServer::with(server::Config { memory_bytes: 64 << 20, ..config() });
    let mut client = server.resp();
    let value = pattern(3 << 20);
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    words.extend([&b"k"[..], &value].repeat(8));
    client.send([&command(&words)[..], b"PING\r\n"].concat());
    client.expect_line_with("-ERR a command is larger than the client buffers of ");
    client.expect("+PONG\r\n");
}

#[test]
fn a_key_that_is_too_long_is_refused() {
    let server = TestServer::start();
    let mut client = server.resp();
    let key = pattern(65_535);
    client.ask(command(&[b"SET", &key, b"v"]), "+OK\r\n");
    client.ask(command(&[b"GET", &key]), "$1\r\nv\r\n");
    let key = pattern(65_536);
    client.ask(command(&[b"SET", &key, b"v"]), "-ERR key is longer than 65535 bytes\r\n");
    client.ask(command(&[b"DEL", b"a", &key]), "-ERR key is longer than 65535 bytes\r\n");
}

#[test]
fn transactions_run_at_once_and_answer_in_order() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask(
        "MULTI\r\nSET a 1\r\nINCR a\r\nGET a\r\nMGET a nil\r\nMSET b 1 c 2\r\nRENAME b d\r\n\
         GET d\r\nDBSIZE\r\nINCR d\r\nPING\r\nEXEC\r\n",
        format!(
            "+OK\r\n{}*10\r\n+OK\r\n:2\r\n$1\r\n2\r\n*2\r\n$1\r\n2\r\n$-1\r\n+OK\r\n+OK\r\n\
             $1\r\n1\r\n:3\r\n:2\r\n+PONG\r\n",
            "+QUEUED\r\n".repeat(10)
        ),
    );
    client.ask("MULTI\r\nEXEC\r\n", "+OK\r\n*0\r\n");
    client.ask("MULTI\r\nSET a 9\r\nDISCARD\r\nGET a\r\n", {
        "+OK\r\n+QUEUED\r\n+OK\r\n$1\r\n2\r\n"
    });
    client.ask("MULTI\r\nNOPE\r\nSET a 9\r\nEXEC\r\nGET a\r\n", {
        "+OK\r\n-ERR unknown command 'NOPE', with args beginning with: \r\n+QUEUED\r\n\
         -EXECABORT Transaction discarded because of previous errors.\r\n$1\r\n2\r\n"
    });
    client.ask("MULTI\r\nMULTI\r\nWATCH a\r\nEXEC\r\nEXEC\r\n", {
        "+OK\r\n-ERR MULTI calls can not be nested\r\n-ERR WATCH inside MULTI is not allowed\r\n\
         *0\r\n-ERR EXEC without MULTI\r\n"
    });
    client.ask("MULTI\r\nSET a x\r\nINCR a\r\nGET a\r\nEXEC\r\n", {
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n\
         *3\r\n+OK\r\n-ERR value is not an integer or out of range\r\n$1\r\nx\r\n"
    });
}

#[test]
fn a_watched_key_that_changed_stops_the_transaction() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.resp(), server.resp());
    first.ask("SET a 1\r\nWATCH a b\r\nMULTI\r\nSET a 2\r\n", "+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n");
    second.ask("SET b 1\r\n", "+OK\r\n");
    first.ask("EXEC\r\nGET a\r\n", "*-1\r\n$1\r\n1\r\n");
    first.ask("WATCH a\r\nMULTI\r\nSET a 2\r\nEXEC\r\n", "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    // What takes no expiry away changes nothing.
    first.ask("WATCH a\r\n", "+OK\r\n");
    second.ask("PERSIST a\r\nGETEX a PERSIST\r\n", ":0\r\n$1\r\n2\r\n");
    first.ask("MULTI\r\nSET a 2\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    first.ask("WATCH a\r\nUNWATCH\r\n", "+OK\r\n+OK\r\n");
    second.ask("SET a 3\r\n", "+OK\r\n");
    first.ask("MULTI\r\nGET a\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n$1\r\n3\r\n");
}

#[test]
fn increments_of_many_clients_are_never_lost() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 500;
    let server = TestServer::start();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.resp();
            scope.spawn(move || {
                for _ in 0..EACH {
                    client.send("MULTI\r\nINCR n\r\nEXEC\r\nINCR n\r\n");
                }
                let mut found = Vec::new();
                while found.iter().filter(|byte| **byte == b':').count() < 2 * EACH as usize {
                    let mut chunk = [0; 4096];
                    let count = std::io::Read::read(&mut client.stream, &mut chunk).unwrap();
                    found.extend_from_slice(&chunk[..count]);
                }
            });
        }
    });
    server.resp().ask("GET n\r\n", bulk((2 * CLIENTS * EACH).to_string().as_bytes()));
}

#[test]
fn resp3_has_its_own_null_and_maps() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask("HELLO 3 SETNAME me\r\n", "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n");
    let mut client = server.resp();
    client.ask("HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n");
    client.send("HELLO 3\r\n");
    let mut reply = [0; 4];
    std::io::Read::read_exact(&mut client.stream, &mut reply).unwrap();
    assert_eq!(&reply, b"%7\r\n");
    client.send("CLIENT GETNAME\r\nGET nil\r\nQUIT\r\n");
    let rest = client.read_to_end();
    assert!(rest.ends_with(b"_\r\n_\r\n+OK\r\n"), "{}", super::support::text(&rest));
}

#[test]
fn nothing_works_before_the_password_is_given() {
    let server =
        TestServer::with(server::Config { requirepass: Some("secret".into()), ..config() });
    let mut client = server.resp();
    for (ask, want) in [
        ("GET a\r\n", "-NOAUTH Authentication required.\r\n"),
        ("AUTH wrong\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("AUTH default secret\r\n", "+OK\r\n"),
        ("SET a 1\r\n", "+OK\r\n"),
        ("RESET\r\n", "+RESET\r\n"),
        ("GET a\r\n", "-NOAUTH Authentication required.\r\n"),
    ] {
        client.ask(ask, want);
    }
    let mut client = server.memcached();
    client.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.ask("set x 0 0 11\r\nuser wrong!\r\n", "CLIENT_ERROR authentication failure\r\n");
    client.ask("set x 0 0 11\r\nuser secret\r\n", "STORED\r\n");
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn the_client_can_turn_replies_off() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask(
        "CLIENT REPLY OFF\r\nSET a 1\r\nPING\r\nDEL a b\r\nCLIENT REPLY ON\r\nEXISTS a\r\n\
         CLIENT REPLY SKIP\r\nPING\r\nECHO x\r\n",
        "+OK\r\n:0\r\n$1\r\nx\r\n",
    );
}

#[test]
fn info_tells_what_exporters_read() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask("SET a 1\r\nGET a\r\nGET nil\r\n", "+OK\r\n$1\r\n1\r\n$-1\r\n");
    client.send("INFO everything\r\nQUIT\r\n");
    let info = String::from_utf8(client.read_to_end()).unwrap();
    for line in [
        "redis_version:7.",
        "connected_clients:1",
        "maxmemory:134217728",
        "maxmemory_policy:allkeys-lru",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "cmdstat_get:calls=2",
        "role:master",
        "db0:keys=1,expires=0",
        "total_commands_processed:4",
    ] {
        assert!(info.contains(&format!("\r\n{line}")), "{line} is missing in {info}");
    }
}

#[test]
fn a_client_can_be_killed_by_another() {
    let server = TestServer::start();
    let mut first = server.resp();
    // Ids count in the order of arrival.
    first.ask("CLIENT ID\r\n", ":1\r\n");
    let mut second = server.resp();
    second.ask("CLIENT KILL ID 1\r\n", ":1\r\n");
    first.expect_closed();
    second.ask("PING\r\n", "+PONG\r\n");
}

#[test]
fn a_command_that_no_transaction_runs_is_refused_before_exec() {
    let server = TestServer::start();
    let mut client = server.resp();
    for (command, want) in [
        ("DEBUG SLEEP 0", "-ERR DEBUG command not allowed."),
        ("SHUTDOWN x", "-ERR Command not allowed inside a transaction"),
        ("SHUTDOWN NOSAVE", "-ERR Command not allowed inside a transaction"),
    ] {
        client.ask("MULTI\r\n", "+OK\r\n");
        client.send(format!("{command}\r\n"));
        client.expect_line_with(want);
        client.ask("EXEC\r\n", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    }
}

#[test]
fn every_command_that_can_be_queued_runs_in_a_transaction() {
    let server = TestServer::start();
    let mut client = server.resp();
    let commands = "SET a 1|GET a|SETNX b 1|SETEX c 100 1|PSETEX d 100000 1|GETSET a 2|\
        GETEX a EX 9|INCR a|DECR a|INCRBY a 2|DECRBY a 2|INCRBYFLOAT e 1.5|APPEND f x|\
        STRLEN f|GETRANGE f 0 1|SUBSTR f 0 1|SETRANGE f 1 y|MGET a b nil|\
        MSET g 1 h 2|MSETNX i 1 j 2|MSETNX i 1 k 2|\
        EXISTS a b|TOUCH a b|TYPE a|TTL a|PTTL a|EXPIRETIME a|PEXPIRETIME a|EXPIRE a 100|\
        PEXPIRE a 100000|EXPIREAT a 4102444800|PEXPIREAT a 4102444800000|PERSIST a|RENAME a l|\
        RENAME nil l|RENAMENX l m|COPY m n|COPY m n REPLACE|OBJECT ENCODING m|OBJECT REFCOUNT m|\
        OBJECT IDLETIME m|OBJECT FREQ m|MEMORY USAGE m|GETDEL m|DEL b c d|UNLINK e f|KEYS *|\
        SCAN 0|RANDOMKEY|DBSIZE|SET z 1|FLUSHDB|SET y 1|FLUSHALL ASYNC|GET y|PING|ECHO x|TIME|\
        INFO server|CLIENT ID|CLIENT GETNAME|COMMAND COUNT|CONFIG GET save|SELECT 0|WAIT 0 0|ROLE|\
        LASTSAVE|SET o \"quoted\\x20words\"|GET o";
    let queued: Vec<&str> = commands.split('|').collect();
    client.ask("MULTI\r\n", "+OK\r\n");
    for command in &queued {
        client.ask(format!("{command}\r\n"), "+QUEUED\r\n");
    }
    client.ask("EXEC\r\n", format!("*{}\r\n+OK\r\n$1\r\n1\r\n:1\r\n", queued.len()));
    client.send("QUIT\r\n");
    let rest = client.read_to_end();
    assert!(
        rest.ends_with(b"+OK\r\n$12\r\nquoted words\r\n+OK\r\n"),
        "{}",
        super::support::text(&rest)
    );
}
