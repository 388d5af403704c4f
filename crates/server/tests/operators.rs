//! Commands of operators over loopback: SLOWLOG, LATENCY and what INFO says of commands.

use std::io::Read;

use crate::support::{Client, TestServer, bulk, command, config};
use server::{Config, DebugCommand, SlowLogConfig};

/// The next whole reply, as it came.
fn reply(client: &mut Client, ask: &str) -> String {
    client.send(ask);
    let mut text = String::new();
    read_reply(client, &mut text);
    text
}

fn read_reply(client: &mut Client, text: &mut String) {
    let line = client.line();
    let count = line[1..].parse::<i64>().unwrap_or(0);
    text.push_str(&line);
    text.push_str("\r\n");
    match line.as_bytes()[0] {
        b'*' | b'~' => (0..count).for_each(|_| read_reply(client, text)),
        b'%' => (0..count * 2).for_each(|_| read_reply(client, text)),
        b'$' | b'=' if count >= 0 => {
            let mut body = vec![0; count as usize + 2];
            client.stream.read_exact(&mut body).unwrap();
            text.push_str(&String::from_utf8_lossy(&body));
        }
        _ => {}
    }
}

/// The bulk strings and numbers of a reply, one to a line, without what frames them.
fn words(reply: &str) -> Vec<&str> {
    let is_word = |line: &&str| !line.starts_with(['*', '$', '%']) && !line.is_empty();
    reply.split("\r\n").filter(is_word).collect()
}

#[test]
fn the_slow_log_has_what_ran_by_itself_and_what_ran_together() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask("CLIENT SETNAME me\r\nCONFIG SET slowlog-log-slower-than 0\r\n", "+OK\r\n+OK\r\n");
    client.ask("SLOWLOG RESET\r\n", "+OK\r\n");
    client.ask("KEYS nothing*\r\n", "*0\r\n");
    client.ask(format!("SET a {}\r\n", "x".repeat(200)), "+OK\r\n");
    let told = reply(&mut client, "SLOWLOG GET 2\r\n");
    let words = words(&told);
    // Newest first: the batch of SET, then KEYS; SLOWLOG GET itself is not over yet.
    assert_eq!(&words[3..5], ["SET", "a"], "{told}");
    assert!(words[5].starts_with("xxxx") && words[5].ends_with("x... (72 more bytes)"), "{told}");
    assert!(words[6].starts_with("127.0.0.1:") && words[7] == "me", "{told}");
    assert_eq!(&words[11..13], ["KEYS", "nothing*"], "{told}");
    client.ask("CONFIG SET slowlog-log-slower-than -1\r\nSLOWLOG RESET\r\n", "+OK\r\n+OK\r\n");
    client.ask("GET a\r\nSLOWLOG LEN\r\n", [bulk(&[b'x'; 200]), b":0\r\n".to_vec()].concat());
}

#[test]
fn the_slow_log_is_as_long_as_it_may_be_and_its_arguments_are_checked() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2\r\n", "+OK\r\n");
    for _ in 0..5 {
        client.ask("DBSIZE\r\n", ":0\r\n");
    }
    client.ask("CONFIG SET slowlog-log-slower-than -1\r\nSLOWLOG LEN\r\n", "+OK\r\n:2\r\n");
    client.ask("CONFIG SET slowlog-max-len 0\r\nSLOWLOG GET -1\r\n", "+OK\r\n*0\r\n");
    let count = "-ERR count should be greater than or equal to -1\r\n";
    client.ask("SLOWLOG GET -2\r\n", count);
    client.ask("SLOWLOG GET x\r\n", count);
    client.ask("SLOWLOG foo\r\n", "-ERR unknown subcommand 'foo'. Try SLOWLOG HELP.\r\n");
    client.ask("SLOWLOG\r\n", "-ERR wrong number of arguments for 'slowlog' command\r\n");
    client.ask("SLOWLOG LEN x\r\n", "-ERR wrong number of arguments for 'slowlog|len' command\r\n");
}

#[test]
fn how_long_commands_took_is_shown_by_latency_and_info() {
    let server = TestServer::start();
    let mut client = server.resp();
    for _ in 0..3 {
        client.ask("SET a 1\r\n", "+OK\r\n");
    }
    client.ask("GET a\r\n", bulk(b"1"));
    let told = reply(&mut client, "LATENCY HISTOGRAM set nosuch get\r\n");
    let found = words(&told);
    assert_eq!(&found[..3], ["set", "calls", ":3"], "{told}");
    let get = found.iter().position(|word| *word == "get").unwrap();
    assert_eq!(&found[get..get + 4], ["get", "calls", ":1", "histogram_usec"], "{told}");
    assert_eq!(found.last(), Some(&":1"), "the last bound counts all: {told}");
    let info = reply(&mut client, "INFO commandstats\r\n");
    let line = info.lines().find(|line| line.starts_with("cmdstat_set:")).unwrap();
    assert!(line.contains("calls=3,usec=") && !line.contains("usec_per_call=0.00"), "{line}");
    let info = reply(&mut client, "INFO latencystats\r\n");
    assert!(info.contains("latency_percentiles_usec_set:p50="), "{info}");
    client.ask("CONFIG RESETSTAT\r\nLATENCY HISTOGRAM set\r\n", "+OK\r\n*0\r\n");
}

#[test]
fn what_is_below_the_threshold_is_no_event_of_latency() {
    // An hour: nothing here takes as long, however busy the machine is.
    let server = TestServer::with(Config { latency_monitor_ms: 3_600_000, ..config() });
    let mut client = server.resp();
    client.ask("LATENCY LATEST\r\nLATENCY HISTORY command\r\n", "*0\r\n*0\r\n");
    client.ask("LATENCY RESET\r\nLATENCY RESET command x\r\n", ":0\r\n:0\r\n");
    let none = "-ERR No samples available for event 'command'\r\n";
    client.ask("LATENCY GRAPH command\r\n", none);
}

#[test]
fn what_runs_by_itself_is_an_event_of_latency() {
    let config = Config { debug_command: DebugCommand::Yes, latency_monitor_ms: 1, ..config() };
    let server = TestServer::with(config);
    let mut client = server.resp();
    client.ask("DEBUG SLEEP 0.002\r\n", "+OK\r\n");
    let latest = reply(&mut client, "LATENCY LATEST\r\n");
    assert!(words(&latest).contains(&"command"), "{latest}");
    assert!(reply(&mut client, "LATENCY GRAPH command\r\n").contains("command - high "));
    assert!(reply(&mut client, "LATENCY DOCTOR\r\n").contains("command: "));
    // What comes behind may take long too on a busy machine, and is no event any more.
    client.ask("CONFIG SET latency-monitor-threshold 0\r\n", "+OK\r\n");
    client.ask("LATENCY RESET command\r\nLATENCY HISTORY command\r\n", ":1\r\n*0\r\n");
}

#[test]
fn debug_is_for_the_clients_that_the_settings_allow() {
    let server = TestServer::start();
    let refused = reply(&mut server.resp(), "DEBUG SLEEP 0\r\n");
    assert!(refused.starts_with("-ERR DEBUG command not allowed."), "{refused}");
    let server = TestServer::with(Config { debug_command: DebugCommand::Local, ..config() });
    let mut client = server.resp();
    client.ask("DEBUG ERROR \"OWN words\"\r\n", "-OWN words\r\n");
    let unknown =
        "-ERR unknown subcommand or wrong number of arguments for 'foo'. Try DEBUG HELP.\r\n";
    client.ask("DEBUG foo\r\n", unknown);
    let push = "-ERR RESP2 is not supported by this command\r\n";
    client.ask("DEBUG PROTOCOL push\r\nDEBUG PROTOCOL true\r\n", format!("{push}:1\r\n"));
    client.ask("DEBUG PROTOCOL map\r\n", "*6\r\n:0\r\n:0\r\n:1\r\n:1\r\n:2\r\n:0\r\n");
    let before = reply(&mut client, "INFO replication\r\n");
    client.ask("DEBUG CHANGE-REPL-ID\r\n", "+OK\r\n");
    assert_ne!(reply(&mut client, "INFO replication\r\n"), before);
}

#[test]
fn a_monitor_that_loses_the_right_sees_nothing_more() {
    let server = TestServer::with(Config { threads: 2, ..config() });
    let mut boss = server.resp();
    for change in ["ACL SETUSER eve -monitor\r\n", "ACL DELUSER eve\r\n"] {
        boss.ask("ACL SETUSER eve on >e ~* +@all\r\n", "+OK\r\n");
        let mut monitors: Vec<Client> = (0..4).map(|_| server.resp()).collect();
        for monitor in &mut monitors {
            monitor.ask("AUTH eve e\r\nMONITOR\r\n", "+OK\r\n+OK\r\n");
        }
        boss.ask("SET shown 1\r\n", "+OK\r\n");
        reply(&mut boss, change);
        boss.ask("SET hidden 1\r\n", "+OK\r\n");
        for monitor in &mut monitors {
            let seen = String::from_utf8(monitor.read_to_end()).unwrap();
            assert!(!seen.contains("hidden"), "{change}: {seen}");
        }
    }
}

#[test]
fn a_monitor_that_becomes_another_user_keeps_only_what_that_one_may() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask("ACL SETUSER eve on >e ~* +@all -monitor\r\n", "+OK\r\n");
    client.ask("ACL SETUSER bob on >b ~* +@all\r\n", "+OK\r\n");
    client.ask("MONITOR\r\n", "+OK\r\n");
    client.send("AUTH bob b\r\nPING\r\n");
    while !client.line().contains("\"PING\"") {}
    client.send("AUTH eve e\r\n");
    client.read_to_end();
}

#[test]
fn a_monitor_on_another_worker_sees_every_command_until_it_resets() {
    let server = TestServer::start();
    let mut watchers: Vec<Client> = (0..4).map(|_| server.resp()).collect();
    for watcher in &mut watchers {
        watcher.ask("MONITOR\r\n", "+OK\r\n");
    }
    let mut client = server.resp();
    client.ask("SET a \"x\\n\"\r\nGET a\r\n", "+OK\r\n$2\r\nx\n\r\n");
    client.ask(command(&[b"SET", b"b", b"1"]), "+OK\r\n");
    for watcher in &mut watchers {
        for shown in [r#""SET" "a" "x\n""#, r#""GET" "a""#, r#""SET" "b" "1""#] {
            let seen = watcher.line();
            assert!(seen.ends_with(shown), "{seen}");
        }
        watcher.send("RESET\r\n");
        while watcher.line() != "+RESET" {}
    }
    client.ask("GET b\r\n", bulk(b"1"));
    for watcher in &mut watchers {
        watcher.ask("PING\r\n", "+PONG\r\n");
    }
}

#[test]
fn what_is_not_for_this_server_is_refused_with_what_is_there_instead() {
    let server = TestServer::start();
    let mut client = server.resp();
    let kept =
        "-ERR nothing is kept on a disk: start the server with --mode store --data-dir PATH\r\n";
    client.ask("SAVE\r\nBGSAVE\r\nBGREWRITEAOF\r\n", kept.repeat(3));
    let replicated = "-ERR this server replicates by its cluster: start it with --cluster, see \
                      docs/cluster.md\r\n";
    client.ask("REPLICAOF 10.0.0.1 6379\r\nSYNC\r\nPSYNC ? -1\r\n", replicated.repeat(3));
    client.ask("REPLICAOF no one\r\nSWAPDB 0 0\r\nMODULE LIST\r\n", "+OK\r\n+OK\r\n*0\r\n");
    client.ask("SWAPDB 0 1\r\nMOVE a 1\r\n", "-ERR DB index is out of range\r\n".repeat(2));
    client.ask("CLIENT TRACKING on\r\nCLIENT GETREDIR\r\n", "+OK\r\n:0\r\n");
    client.ask("CLIENT TRACKING off\r\nCLIENT GETREDIR\r\n", "+OK\r\n:-1\r\n");
    client.ask("CLIENT KILL MAXAGE 1000\r\n", ":0\r\n");
    client.ask("CLIENT KILL MAXAGE 0\r\n", "-ERR maxage should be greater than 0\r\n");
}

#[test]
fn metrics_have_durations_and_the_count_of_slow_entries() {
    let server = TestServer::with(Config {
        slow_log: SlowLogConfig { threshold_us: 0, len_max: 128 },
        ..config()
    });
    let mut client = server.resp();
    client.ask("SET a 1\r\nDBSIZE\r\n", "+OK\r\n:1\r\n");
    client.ask(command(&[b"PING"]), "+PONG\r\n");
    let shared = server.server().shared();
    assert!(shared.observations().slow_log.total() >= 2);
    let set = wire::resp::CommandId::Set as usize;
    assert_eq!(shared.durations(set).map(|counts| counts.samples), Some(1));
}
