//! memcached text over loopback, and keys that both ports share.

use super::support::{PATIENCE, TestServer, config, pattern};

#[test]
fn storage_commands_answer_as_memcached_does() {
    let server = TestServer::start();
    let mut client = server.memcached();
    for (ask, want) in [
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("get a b a\r\n", "VALUE a 5 3\r\nabc\r\nVALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("get nil\r\n", "END\r\n"),
        ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("add b 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("append a 0 0 2\r\nde\r\n", "STORED\r\n"),
        ("prepend a 0 0 1\r\n_\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 6\r\n_abcde\r\nEND\r\n"),
        ("append nil 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("cas nil 0 0 1 7\r\nx\r\n", "NOT_FOUND\r\n"),
        ("cas a 0 0 1 281474976710655\r\nx\r\n", "EXISTS\r\n"),
        ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
        ("incr n 5\r\n", "15\r\n"),
        ("decr n 6\r\n", "9\r\n"),
        ("get n\r\n", "VALUE n 0 2\r\n9 \r\nEND\r\n"),
        ("decr n 100\r\n", "0\r\n"),
        ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("incr nil 1\r\n", "NOT_FOUND\r\n"),
        ("delete n\r\n", "DELETED\r\n"),
        ("delete n\r\n", "NOT_FOUND\r\n"),
        ("touch a 100\r\n", "TOUCHED\r\n"),
        ("touch nil 100\r\n", "NOT_FOUND\r\n"),
        ("gat 100 b nil\r\n", "VALUE b 0 1\r\nx\r\nEND\r\n"),
        ("set e 0 -1 1\r\nx\r\n", "STORED\r\n"),
        ("get e\r\n", "END\r\n"),
        ("set q 0 0 1 noreply\r\nx\r\nget q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n"),
        ("set q 0 0 2\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\n"),
        ("nope\r\n", "ERROR\r\n"),
        ("verbosity 1\r\n", "OK\r\n"),
        ("flush_all\r\nget a b\r\n", "OK\r\nEND\r\n"),
        ("version\r\n", "VERSION 1.6."),
    ] {
        // What is left of a bad data chunk's line is a command of its own.
        if ask.starts_with("set q 0 0 2") {
            client = server.memcached();
        }
        client.ask(ask, want);
        if want.starts_with("CLIENT_ERROR bad data") {
            client = server.memcached();
        }
    }
}

#[test]
fn meta_commands_answer_as_memcached_does() {
    let server = TestServer::start();
    let mut client = server.memcached();
    for (ask, want) in [
        ("ms a 3 F5 k O7\r\nabc\r\n", "HD ka O7\r\n"),
        ("mg a v s f k O9 t\r\n", "VA 3 s3 f5 ka O9 t-1\r\nabc\r\n"),
        ("mg YQ== b k\r\n", "HD kYQ== b\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("mg nil k O1\r\n", "EN knil O1\r\n"),
        ("mg nil q\r\nmd nil q\r\nms a 1 q\r\nx\r\nmn\r\n", "NF\r\nMN\r\n"),
        ("mg new N30 v\r\nmg new v\r\n", "VA 0 W\r\n\r\nVA 0 Z\r\n\r\n"),
        ("md a I\r\nmg a v\r\nmg a v\r\n", "HD\r\nVA 1 X W\r\nx\r\nVA 1 Z X\r\nx\r\n"),
        ("ms a 1\r\ny\r\nmg a v\r\n", "HD\r\nVA 1\r\ny\r\n"),
        ("ma n N0 J4 v\r\nma n MD v\r\n", "VA 1\r\n4\r\nVA 1\r\n3\r\n"),
        ("ms a 1 MX\r\nz\r\nmn\r\n", "CLIENT_ERROR invalid mode for ms M token\r\nMN\r\n"),
        ("me nil\r\n", "EN\r\n"),
        ("lru_crawler metadump all\r\n", "key="),
    ] {
        client.ask(ask, want);
    }
}

#[test]
fn a_cas_token_is_good_for_one_write() {
    let server = TestServer::start();
    let mut client = server.memcached();
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.send("gets a\r\n");
    client.expect("VALUE a 0 1 ");
    let mut line = Vec::new();
    while !line.ends_with(b"END\r\n") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut client.stream, &mut byte).unwrap();
        line.push(byte[0]);
    }
    let token = String::from_utf8(line).unwrap();
    let token = token.split("\r\n").next().unwrap();
    client.ask(format!("cas a 0 0 1 {token}\r\n2\r\n"), "STORED\r\n");
    client.ask(format!("cas a 0 0 1 {token}\r\n3\r\n"), "EXISTS\r\n");
    client.ask("get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n");
}

#[test]
fn both_ports_serve_the_same_keys() {
    let server = TestServer::start();
    let (mut redis, mut memcached) = (server.resp(), server.memcached());
    redis.ask("SET a 41\r\n", "+OK\r\n");
    memcached.ask("incr a 1\r\nget a\r\n", "42\r\nVALUE a 0 2\r\n42\r\nEND\r\n");
    memcached.ask("set b 9 100 1\r\nx\r\n", "STORED\r\n");
    redis.ask("GET b\r\nTTL b\r\nAPPEND b y\r\n", "$1\r\nx\r\n:100\r\n:2\r\n");
    memcached.ask("get b\r\n", "VALUE b 9 2\r\nxy\r\nEND\r\n");
}

#[test]
fn a_large_multi_get_keeps_its_order_and_ends_once() {
    let server = TestServer::start();
    let mut client = server.memcached();
    let (mut sets, mut get, mut want) = (String::new(), String::from("get"), String::new());
    for number in 0..500 {
        let value = format!("value-{number}");
        sets += &format!("set key{number} 0 0 {}\r\n{value}\r\n", value.len());
        get += &format!(" key{number} nil{number}");
        want += &format!("VALUE key{number} 0 {}\r\n{value}\r\n", value.len());
    }
    client.ask(sets, "STORED\r\n".repeat(500));
    client.ask(get + "\r\nget nil\r\n", want + "END\r\nEND\r\n");
}

#[test]
fn a_value_that_is_too_large_is_skipped_and_the_stream_goes_on() {
    let server = TestServer::with(server::Config {
        max_item_size_bytes: 1 << 20,
        ..super::support::config()
    });
    let mut client = server.memcached();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let mut ask = format!("set a 0 0 {}\r\n", 3 << 20).into_bytes();
    ask.extend(pattern(3 << 20));
    ask.extend_from_slice(b"\r\nget a\r\n");
    client.ask(ask, "SERVER_ERROR object too large for cache\r\nEND\r\n");
}

#[test]
fn stats_name_what_exporters_read() {
    let server = TestServer::start();
    let mut client = server.memcached();
    client.ask("set a 0 0 1\r\nx\r\nget a b\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    client.send("stats\r\nstats settings\r\nstats items\r\nstats slabs\r\nquit\r\n");
    let stats = String::from_utf8(client.read_to_end()).unwrap();
    for line in [
        "STAT curr_items 1",
        "STAT cmd_get 2",
        "STAT get_hits 1",
        "STAT get_misses 1",
        "STAT cmd_set 1",
        "STAT curr_connections 1",
        "STAT limit_maxbytes 134217728",
        &format!("STAT threads {}", config().threads),
        "STAT item_size_max ",
        "STAT items:1:number 1",
    ] {
        assert!(stats.contains(line), "{line} is missing in {stats}");
    }
}

#[test]
fn stats_count_values_that_were_too_large() {
    let server = TestServer::with(server::Config { max_item_size_bytes: 1000, ..config() });
    let mut client = server.memcached();
    let set = format!("set a 0 0 2000\r\n{}\r\n", "x".repeat(2000));
    client.ask(set, "SERVER_ERROR object too large for cache\r\n");
    client.send("stats\r\nstats settings\r\nquit\r\n");
    let stats = String::from_utf8(client.read_to_end()).unwrap();
    for line in ["store_too_large 1", "store_no_memory 0", "detail_enabled no", "idle_timeout 0"] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line} is missing in {stats}");
    }
}

#[test]
fn a_connection_that_sends_no_request_is_told_to_end_by_an_error() {
    let server = TestServer::start();
    let mut watcher = server.memcached();
    watcher.ask("watch connevents\r\n", "OK\r\n");
    for (sent, reason) in [("quit\r\n", "reason=normal"), ("GET / HTTP/1.1\r\n", "reason=error")] {
        let mut client = server.memcached();
        client.send(sent);
        client.read_to_end();
        // Another worker may tell that it came behind the one that tells that it went.
        let next = || watcher.expect_line_with("type=conn_");
        let went = std::iter::repeat_with(next).find(|line| line.contains("conn_close"));
        assert!(went.is_some_and(|line| line.contains(reason)));
    }
}

#[test]
fn a_delayed_flush_comes_when_it_is_due() {
    let server = TestServer::start();
    let mut client = server.memcached();
    let started = std::time::Instant::now();
    client.ask("set a 0 0 1\r\nx\r\nflush_all 1\r\nget a\r\n", {
        "STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    });
    // No request wakes the worker: it has to keep the deadline by itself.
    while server.server().shared().store().stats().items > 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(started.elapsed() >= std::time::Duration::from_millis(500));
    client.ask("get a\r\n", "END\r\n");
}

#[test]
fn details_count_keys_by_their_prefixes_while_they_are_on() {
    let server = TestServer::start();
    let mut client = server.memcached();
    client.ask("set foo:0 0 0 1\r\nx\r\nstats detail dump\r\n", "STORED\r\nEND\r\n");
    client.ask("stats detail on\r\nset foo:1 0 0 1\r\nx\r\nget foo:1 foo:2\r\n", {
        "OK\r\nSTORED\r\nVALUE foo:1 0 1\r\nx\r\nEND\r\n"
    });
    client.ask("mg foo:1 v\r\ndelete foo:3\r\nset plain 0 0 1\r\nx\r\n", {
        "VA 1\r\nx\r\nNOT_FOUND\r\nSTORED\r\n"
    });
    let counted = "PREFIX foo get 3 hit 2 set 1 del 1\r\nEND\r\n";
    client.ask("stats detail dump\r\n", counted);
    client.ask("stats detail off\r\nget foo:1\r\nstats detail dump\r\n", {
        "OK\r\nVALUE foo:1 0 1\r\nx\r\nEND\r\n".to_owned() + counted
    });
    client.ask("stats reset\r\nstats detail dump\r\n", "RESET\r\nEND\r\n");
    client.ask("stats detail\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\n");
}

#[test]
fn tokens_of_keys_that_were_set_one_after_the_other_differ() {
    let server = TestServer::start();
    let mut client = server.memcached();
    let mut tokens = std::collections::HashSet::new();
    for number in 0..200 {
        let key = format!("foo{number}");
        client.ask(format!("ms {key} 1 c\r\nx\r\n"), "HD c");
        let line = client.expect_line_with("");
        let told = line.trim_end().to_owned();
        client.ask(format!("gets {key}\r\n"), format!("VALUE {key} 0 1 {told}\r\nx\r\nEND\r\n"));
        client.ask(format!("cas {key} 0 0 1 {told}\r\ny\r\n"), "STORED\r\n");
        assert!(tokens.insert(told));
    }
}
