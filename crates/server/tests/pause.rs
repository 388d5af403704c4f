//! CLIENT PAUSE over loopback: what it holds, and until when.

use std::time::Duration;

use super::support::{PATIENCE, TestServer};

#[test]
fn a_paused_server_answers_after_the_pause() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.resp(), server.resp());
    let started = std::time::Instant::now();
    first.ask("CLIENT PAUSE 50 ALL\r\n", "+OK\r\n");
    second.ask("SET a 1\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
    assert!(started.elapsed() >= Duration::from_millis(20));
}

/// Replies are missing only for writes: other commands of a long pipeline go on in later turns.
#[test]
fn a_pause_of_writes_holds_up_no_reads() {
    let server = TestServer::start();
    let (mut first, mut writer, mut reader) = (server.resp(), server.resp(), server.resp());
    first.ask("SET a 1\r\nCLIENT PAUSE 3600000 WRITE\r\n", "+OK\r\n+OK\r\n");
    writer.send("SET a 2\r\n");
    reader.send("GET a\r\n".repeat(20_000));
    reader.expect("$1\r\n1\r\n".repeat(20_000));
    reader.ask("MULTI\r\nGET a\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n$1\r\n1\r\n");
    first.ask("CLIENT UNPAUSE\r\n", "+OK\r\n");
    writer.expect("+OK\r\n");
    reader.ask("GET a\r\n", "$1\r\n2\r\n");
}

#[test]
fn what_one_pause_holds_goes_on_when_another_takes_its_place() {
    let server = TestServer::start();
    let (mut first, mut reader) = (server.resp(), server.resp());
    for begin in
        ["CLIENT PAUSE 3600000 WRITE\r\n", "CLIENT UNPAUSE\r\nCLIENT PAUSE 3600001 WRITE\r\n"]
    {
        first.ask("CLIENT PAUSE 3600000 ALL\r\n", "+OK\r\n");
        reader.send("GET a\r\n");
        let count = begin.matches("\r\n").count();
        first.ask(begin, "+OK\r\n".repeat(count));
        reader.expect("$-1\r\n");
    }
}

#[test]
fn a_server_that_ends_waits_for_no_pause() {
    let server = TestServer::start();
    let (mut first, mut writer, mut idle) = (server.resp(), server.resp(), server.resp());
    idle.ask("GET a\r\n", "$-1\r\n");
    first.ask("CLIENT PAUSE 3600000 WRITE\r\n", "+OK\r\n");
    writer.send("GET a\r\nSET a 2\r\n");
    writer.expect("$-1\r\n");
    assert!(server.stop(PATIENCE));
    // A write that was held is not run: its client may have to ask another server for it.
    assert_eq!((writer.read_to_end(), idle.read_to_end()), (Vec::new(), Vec::new()));
}

#[test]
fn a_pause_that_is_lifted_in_its_own_round_holds_nothing() {
    let server = TestServer::start();
    let mut client = server.resp();
    for mode in ["ALL", "WRITE"] {
        client.ask(
            format!("CLIENT PAUSE 3600000 {mode}\r\nCLIENT UNPAUSE\r\nGET a\r\nSET b 1\r\n"),
            "+OK\r\n+OK\r\n$-1\r\n+OK\r\n",
        );
    }
}

/// The round takes longer than the pause that begins in it.
#[test]
fn a_pause_that_ends_before_its_round_does_lets_commands_go_on() {
    let server = TestServer::start();
    let (mut first, mut other) = (server.resp(), server.resp());
    let keys = " k".repeat(5_000);
    for _ in 0..20 {
        first.send(format!("MGET{keys}\r\nCLIENT PAUSE 1 WRITE\r\nSET a 1\r\n"));
        other.ask("SET b 1\r\n", "+OK\r\n");
        first.expect(format!("*5000\r\n{}+OK\r\n+OK\r\n", "$-1\r\n".repeat(5_000)));
    }
}
