//! Replies of EXEC that are longer than anyone could foresee: the connection stays, and each reply
//! is there or an error in its place.

use super::support::{Client, TestServer, command, config};
use server::{Config, Mode};
use wire::resp::{Handling, Spec};

fn small() -> TestServer {
    TestServer::with(Config { mode: Mode::Clean, memory_bytes: 64 << 20, ..config() })
}

/// The length of the next reply, and the number of errors in it.
fn reply(client: &mut Client) -> (usize, usize) {
    let line = client.line();
    let count = || line[1..].parse::<i64>().unwrap();
    let more = match line.as_bytes()[0] {
        b'-' => (0, 1),
        b'$' | b'=' if count() >= 0 => (client.take(count() as usize + 2).len(), 0),
        b'*' | b'~' | b'>' => elements(client, count()),
        b'%' => elements(client, 2 * count()),
        _ => (0, 0),
    };
    (line.len() + 2 + more.0, more.1)
}

fn elements(client: &mut Client, count: i64) -> (usize, usize) {
    let replies = (0..count).map(|_| reply(client));
    replies.fold((0, 0), |sum, reply| (sum.0 + reply.0, sum.1 + reply.1))
}

fn multi(client: &mut Client, commands: &[Vec<u8>]) {
    client.send("MULTI\r\n");
    client.send(commands.concat());
    client.expect(format!("+OK\r\n{}", "+QUEUED\r\n".repeat(commands.len())));
    client.send("EXEC\r\n");
}

/// What its row calls short is short, however long names are.
#[test]
fn replies_that_their_rows_call_short_are_short() {
    let server = small();
    // They end the connection, or the server.
    let skips = ["quit", "shutdown", "monitor", "subscribe", "unsubscribe", "exec", "reset"];
    for spec in Spec::all().iter().filter(|spec| spec.handling.contains(Handling::Short)) {
        if skips.contains(&spec.name) {
            continue;
        }
        let mut client = server.resp();
        let name = "n".repeat(5_000);
        client.ask(format!("CLIENT SETNAME {name}\r\n"), "+OK\r\n");
        let mut words: Vec<&[u8]> = spec.name.split('|').map(str::as_bytes).collect();
        words.resize(words.len().max(spec.arity.unsigned_abs() as usize), b"1");
        let bytes = command(&words);
        client.send(&bytes);
        let (len_bytes, _) = reply(&mut client);
        assert!(len_bytes <= 256 + bytes.len(), "{}: {len_bytes}", spec.name);
    }
}

#[test]
fn long_replies_about_a_client_are_counted_before_anything_runs() {
    let server = small();
    let mut client = server.resp();
    client.ask(format!("CLIENT SETNAME {}\r\n", "n".repeat(50_000)), "+OK\r\n");
    for question in [&[&b"CLIENT"[..], b"GETNAME"][..], &[b"CLIENT", b"INFO"]] {
        let mut commands = vec![command(&[b"INCR", b"number"])];
        commands.resize(1_000, command(question));
        multi(&mut client, &commands);
        client.expect_line_with("nothing was executed");
        client.ask("GET number\r\n", "$-1\r\n");
        multi(&mut client, &commands[..4]);
        assert_eq!(client.line(), "*4");
        client.expect(":1\r\n");
        assert!(elements(&mut client, 3).0 > 150_000);
        client.ask("DEL number\r\n", ":1\r\n");
    }
}

#[test]
fn parts_of_a_long_value_are_counted_as_parts() {
    let server = small();
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"long", &[b'v'; 1_000_000]]), "+OK\r\n");
    for part in ["0 9", "-10 -1", "5 14"] {
        let mut commands = vec![command(&[b"APPEND", b"long", b"v"])];
        let words = format!("GETRANGE long {part}");
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        commands.resize(400, command(&words));
        multi(&mut client, &commands);
        assert_eq!(client.line(), "*400", "{part}");
        assert_eq!(elements(&mut client, 400).1, 0);
    }
}

/// KEYS is measured before the transaction's own keys are there.
#[test]
fn a_reply_beyond_the_estimate_is_an_error_in_its_place() {
    let server = small();
    let mut client = server.resp();
    let key = |at: usize| [&[b'k'; 50_000][..], at.to_string().as_bytes()].concat();
    let mut commands: Vec<_> = (0..20).map(|at| command(&[b"SET", &key(at), b"v"])).collect();
    commands.resize(40, command(&[b"KEYS", b"*"]));
    multi(&mut client, &commands);
    assert_eq!(client.line(), "*40");
    assert_eq!(elements(&mut client, 20), (100, 0));
    let (len_bytes, error_count) = elements(&mut client, 20);
    assert!(error_count < 20 && len_bytes > 1_000_000, "{error_count} errors, {len_bytes} bytes");
    let mut commands = vec![command(&[b"CLIENT", b"GETNAME"]), command(&[b"ROLE"])];
    commands.extend(vec![command(&[b"OBJECT", b"HELP"]); 98]);
    multi(&mut client, &commands);
    assert_eq!(client.line(), "*100", "short ones are no work");
    assert_eq!(elements(&mut client, 100).1, 0);
    client.ask("PING\r\n", "+PONG\r\n");
    client.ask("DBSIZE\r\n", ":20\r\n");
}
