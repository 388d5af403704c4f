//! Replies that the command's bytes do not bound: made as the client reads, within the buffers.

use super::support::{Client, TestServer, bulk, command, config, pattern};
use server::{Config, Mode};

fn small_server() -> TestServer {
    TestServer::with(Config { memory_bytes: 64 << 20, ..config() })
}

/// Runs commands of another client, checks their replies, and that buffers stay within the budget
/// all the while.
#[track_caller]
fn check_beside(server: &TestServer, other: &mut Client) {
    let budget = server.server().shared().buffer_budget();
    for number in 0..300 {
        let value = format!("{number}");
        other.ask(command(&[b"SET", b"other", value.as_bytes()]), "+OK\r\n");
        other.ask("GET other\r\n", bulk(value.as_bytes()));
        let transaction = "MULTI\r\nSTRLEN other\r\nEXEC\r\n";
        other.ask(transaction, format!("+OK\r\n+QUEUED\r\n*1\r\n:{}\r\n", value.len()));
        let (granted_bytes, limit_bytes) = (budget.granted_bytes(), budget.limit_bytes());
        assert!(granted_bytes <= limit_bytes, "{granted_bytes} of {limit_bytes}");
    }
}

/// What one name is answered in COMMAND DOCS, in RESP2: its name and its map.
fn document_of(server: &TestServer, name: &str) -> Vec<u8> {
    let mut client = server.resp();
    client.send(format!("COMMAND DOCS {name}\r\nQUIT\r\n"));
    let reply = client.read_to_end();
    let reply = reply.strip_suffix(b"+OK\r\n").unwrap();
    reply.strip_prefix(b"*2\r\n").unwrap().to_vec()
}

#[test]
fn documents_of_many_names_leave_as_their_clients_read() {
    let server = small_server();
    let mut other = server.resp();
    let document = document_of(&server, "get");
    let count = 20_000;
    let mut words = vec![&b"COMMAND"[..], b"DOCS", b"nosuch"];
    words.resize(3 + count, b"get");
    let ask = command(&words);
    let mut slow: Vec<Client> = (0..8).map(|_| server.resp()).collect();
    for client in &mut slow {
        client.send(&ask);
    }
    check_beside(&server, &mut other);
    let mut reader = slow.pop().unwrap();
    reader.expect(format!("*{}\r\n", 2 * count));
    for _ in 0..count {
        reader.expect(&document);
    }
    reader.ask("PING\r\n", "+PONG\r\n");
}

#[test]
fn a_quoted_command_is_answered_in_slices_too() {
    let server = small_server();
    let mut client = server.resp();
    let document = document_of(&server, "get");
    client.send(format!("COMMAND DOCS \"\\x67et\"{}\r\nPING\r\n", " get".repeat(500)));
    client.expect("*1002\r\n");
    for _ in 0..501 {
        client.expect(&document);
    }
    client.expect("+PONG\r\n");
    client.ask("CLIENT REPLY SKIP\r\nCOMMAND DOCS\r\nPING\r\n", "+PONG\r\n");
}

/// Limits of arrays are none of inline commands, whose line has one: with escapes, too.
#[test]
fn an_escaped_command_is_answered_whatever_its_words() {
    let long = "v".repeat(20_000);
    let config = Config { max_item_size_bytes: 16 << 10, ..config() };
    let server = TestServer::with(Config { requirepass: Some("pw".to_owned()), ..config });
    let mut client = server.resp();
    for words in [" k".repeat(20), format!(" k {long}")] {
        let denied = "-NOAUTH Authentication required.\r\n";
        client.ask(format!("\"\\x4dGET\"{words}\r\nMGET{words}\r\n"), denied.repeat(2));
    }
    client.ask("AUTH pw\r\n", "+OK\r\n");
    for escaped in [format!("SET k \"\\x76{long}\""), format!("SET k v{long}")] {
        client.ask("MULTI\r\nSET a 1\r\n", "+OK\r\n+QUEUED\r\n");
        client.ask(format!("{escaped}\r\nSET b 1\r\n"), "+QUEUED\r\n+QUEUED\r\n");
        client.ask("EXEC\r\nSTRLEN k\r\n", "*3\r\n+OK\r\n+OK\r\n+OK\r\n:20001\r\n");
        client.ask("DEL k\r\n", ":1\r\n");
    }
}

#[test]
fn keys_of_a_command_are_told_in_slices_with_their_flags() {
    let server = small_server();
    let mut client = server.resp();
    let mut words = vec![&b"COMMAND"[..], b"GETKEYSANDFLAGS", b"MGET"];
    words.resize(3 + 5000, b"k");
    client.send(command(&words));
    client.expect("*5000\r\n");
    client.expect("*2\r\n$1\r\nk\r\n*2\r\n+RO\r\n+access\r\n".repeat(5000));
    client.ask("COMMAND GETKEYS MSET a 1 b 2\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
}

#[test]
fn large_values_of_many_keys_are_never_copied_for_clients_that_do_not_read() {
    let server = small_server();
    let mut other = server.resp();
    let value = pattern(1 << 20);
    let mut writer = server.memcached();
    for key in 0..8 {
        writer.send(format!("set k{key} 0 0 {}\r\n", value.len()));
        writer.send(&value);
        writer.ask("\r\n", "STORED\r\n");
    }
    let mut slow: Vec<Client> = (0..32).map(|_| server.memcached()).collect();
    for client in &mut slow {
        client.send(format!("get{}\r\nversion\r\n", " k0 k1 k2 k3 k4 k5 k6 k7".repeat(4)));
    }
    check_beside(&server, &mut other);
    drop(slow.split_off(1));
    let mut reader = slow.pop().unwrap();
    for number in 0..32 {
        reader.expect(format!("VALUE k{} 0 {}\r\n", number % 8, value.len()));
        reader.expect(&value);
        reader.expect("\r\n");
    }
    reader.expect("END\r\nVERSION ");
}

#[test]
fn payloads_of_large_values_are_sent_from_the_log() {
    let server = small_server();
    let (mut other, mut reader) = (server.resp(), server.resp());
    let value = pattern(2 << 20);
    other.ask(command(&[b"SET", b"v", &value]), "+OK\r\n");
    reader.send("DUMP v\r\n".repeat(20));
    check_beside(&server, &mut other);
    let payload_bytes = 1 + 5 + value.len() + 10;
    let mut payload = Vec::new();
    for _ in 0..20 {
        reader.expect(format!("${payload_bytes}\r\n"));
        reader.expect(b"\0\x80\0 \0\0");
        reader.expect(&value);
        let mut footer = [0; 12];
        std::io::Read::read_exact(&mut reader.stream, &mut footer).unwrap();
        payload = [&b"\0\x80\0 \0\0"[..], &value, &footer[..10]].concat();
    }
    other.ask(command(&[b"RESTORE", b"w", b"0", &payload]), "+OK\r\n");
    other.ask("GET w\r\n", bulk(&value));
}

/// Pipelines of 64 clients that do not read at first: the buffers hold, and those that read get
/// every value.
#[track_caller]
fn check_pipelines(value_lens: [usize; 2]) {
    let server = small_server();
    let mut other = server.resp();
    let values = value_lens.map(pattern);
    other.ask(command(&[b"SET", b"v", &values[0]]), "+OK\r\n");
    other.ask(command(&[b"SET", b"w", &values[1]]), "+OK\r\n");
    let mut slow: Vec<Client> = (0..64).map(|_| server.resp()).collect();
    for client in &mut slow {
        client.send("GET v\r\nGET w\r\n".repeat(200));
    }
    check_beside(&server, &mut other);
    drop(slow.split_off(8));
    std::thread::scope(|scope| {
        for mut reader in slow {
            let replies = values.each_ref().map(|value| bulk(value));
            scope.spawn(move || {
                for number in 0..400 {
                    reader.expect(&replies[number % 2]);
                }
            });
        }
    });
}

#[test]
fn middle_sized_values_of_many_pipelines_stay_within_the_buffers() {
    check_pipelines([60_000; 2]);
}

/// Those from 64 KiB on leave in turn, the others before them.
#[test]
fn middle_sized_and_large_values_of_many_pipelines_stay_within_the_buffers() {
    check_pipelines([60_000, 70_000]);
}

#[test]
fn a_transaction_whose_replies_have_no_room_is_refused_before_it_runs() {
    let server = small_server();
    let mut client = server.resp();
    let refused = "-ERR nothing was executed: the replies may take more than a quarter of the \
                   client buffers, which are a part of maxmemory, or than is free of these\r\n";
    client.ask("MULTI\r\nSET touched 1\r\n", "+OK\r\n+QUEUED\r\n");
    for _ in 0..1000 {
        client.ask("COMMAND DOCS\r\n", "+QUEUED\r\n");
    }
    // To describe all commands so often is too much work for one group.
    let too_large = "-ERR the command or transaction is larger than max-atomic-size (each key \
                     counts 4096 bytes)\r\n";
    client.ask("EXEC\r\n", too_large);
    client.ask(command(&[b"SET", b"v", &pattern(4000)]), "+OK\r\n");
    client.ask("MULTI\r\nSET touched 1\r\n", "+OK\r\n+QUEUED\r\n");
    for _ in 0..5000 {
        client.ask("GET v\r\n", "+QUEUED\r\n");
    }
    client.ask("EXEC\r\n", refused);
    client.ask("EXISTS touched\r\n", ":0\r\n");
    assert_eq!(server.server().shared().totals().replies_refused, 1);
}

#[test]
fn a_transaction_is_answered_whole_where_its_replies_have_room() {
    let server = small_server();
    let mut client = server.resp();
    let document = document_of(&server, "get");
    let mut ask = "MULTI\r\n".to_owned();
    let mut want = "+OK\r\n".to_owned().into_bytes();
    for number in 0..300 {
        ask += &format!("SET k {number}\r\nGET k\r\n");
    }
    ask += "COMMAND DOCS get\r\nEXEC\r\n";
    want.extend(b"+QUEUED\r\n".repeat(601));
    want.extend(b"*601\r\n");
    for number in 0..300 {
        want.extend(b"+OK\r\n");
        want.extend(bulk(format!("{number}").as_bytes()));
    }
    want.extend(b"*2\r\n");
    want.extend(document);
    client.ask(ask, want);
}

/// Half of the log may be pinned by unread replies, and the buffers have room for one copy more.
#[test]
fn a_value_that_no_reply_has_room_for_is_not_taken_away() {
    let mode = Mode::Clean;
    let server = TestServer::with(Config { memory_bytes: 64 << 20, mode, ..config() });
    let mut other = server.resp();
    let value = pattern(5_000_000);
    let keys: Vec<String> = (0..8).map(|number| format!("long:{number}")).collect();
    for key in &keys {
        other.ask(command(&[b"SET", key.as_bytes(), &value]), "+OK\r\n");
    }
    other.send("MULTI\r\n");
    keys.iter().for_each(|key| other.send(format!("GETDEL {key}\r\n")));
    other.expect("+OK\r\n");
    keys.iter().for_each(|_| other.expect("+QUEUED\r\n"));
    other.send("EXEC\r\n");
    assert!(other.line().starts_with("-ERR nothing was executed: the replies"));
    for take in ["GETDEL", "GETSET", "SET"] {
        let mut takers: Vec<Client> = keys.iter().map(|key| ask_for(&server, take, key)).collect();
        // All of them are executed before a value is read.
        let heads: Vec<String> = takers.iter_mut().map(Client::line).collect();
        let mut kept_count = 0;
        for ((mut taker, head), key) in takers.into_iter().zip(heads).zip(&keys) {
            let is_kept = head.starts_with("-ERR no room for this reply");
            if !is_kept {
                assert_eq!(head, format!("${}", value.len()));
                taker.expect(&value);
                taker.expect("\r\n");
            }
            other.send(format!("STRLEN {key}\r\n"));
            let len = other.line();
            assert_eq!(len == format!(":{}", value.len()), is_kept, "{take} {key}: {len}");
            kept_count += u32::from(is_kept);
            other.ask(command(&[b"SET", key.as_bytes(), &value]), "+OK\r\n");
        }
        assert!((1..8).contains(&kept_count), "{take}: {kept_count}");
    }
}

fn ask_for(server: &TestServer, take: &str, key: &str) -> Client {
    let mut client = server.resp();
    client.send(match take {
        "GETDEL" => format!("GETDEL {key}\r\n"),
        "GETSET" => format!("GETSET {key} new\r\n"),
        _ => format!("SET {key} new GET\r\n"),
    });
    client
}

/// A number of six bytes that INCRBYFLOAT writes out has thousands of digits.
#[test]
fn replies_with_numbers_that_a_transaction_writes_are_booked_before_it_runs() {
    let server = small_server();
    let mut client = server.resp();
    client.ask("SET number 1e3000\r\n", "+OK\r\n");
    client.ask("MULTI\r\nINCR count\r\nINCRBYFLOAT number 1\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    let count = 2000;
    client.ask("GET number\r\n".repeat(count), "+QUEUED\r\n".repeat(count));
    client.send("EXEC\r\n");
    client.expect_line_with("-ERR nothing was executed: the replies");
    client.ask("EXISTS count\r\nGET number\r\n", ":0\r\n$6\r\n1e3000\r\n");
}
