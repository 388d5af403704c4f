//! Tests `dovetail cli` from outside, against a server of the same binary: replies, formats, exit
//! statuses.
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Child, Output, Stdio};

use serde_json::Value;

use crate::support::{Watchdog, check_error, dovetail, text};

/// Runs to the end with `input` on standard input.
fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = dovetail(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::over(&child);
    // A command that reads nothing may be gone by now.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// A server with the ordered index, over RESP, UDP and shared memory.
struct Server {
    child: Child,
    target: String,
    /// `HOST:PORT` of RESP.
    resp: String,
    shm_target: String,
    _folder: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Server {
    fn start(extra: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let shm = folder.path().join("d.sock").display().to_string();
        let fixed = ["serve", "--memory", "64MiB", "--threads", "1", "--index", "tree"];
        let ports = ["--resp", "0", "--memcached", "off", "--admin", "off", "--native", "0"];
        let arguments = [&fixed[..], &ports, &["--shm", &shm], extra].concat();
        let mut child = dovetail(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::over(&child);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
            .find(|line| line["msg"] == "ready")
            .unwrap();
        let target = format!("native://{}", ready["native"].as_str().unwrap());
        let shm_target = format!("shm:{shm}");
        let resp = ready["resp"].as_str().unwrap().to_owned();
        Server { child, target, resp, shm_target, _folder: folder, _watchdog: watchdog }
    }

    /// One command, as a program sees it.
    #[track_caller]
    fn check(&self, words: &[&str], want: &str) {
        let output = run(&[&["cli", "--target", &self.target], words].concat(), "");
        assert_eq!(text(&output.stderr), "", "{words:?}");
        assert_eq!(text(&output.stdout), want, "{words:?}");
        assert_eq!(output.status.code(), Some(0), "{words:?}");
    }

    /// Lines, answered as at a terminal.
    fn lines(&self, input: &str) -> Output {
        run(&["cli", "--target", &self.target, "--no-raw"], input)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_command_prints_its_answer_as_it_is() {
    let server = Server::start(&[]);
    server.check(&["ping"], "PONG\n");
    server.check(&["get", "k"], "\n");
    server.check(&["set", "k", "a \"b\""], "OK\n");
    server.check(&["GET", "k"], "a \"b\"\n");
    server.check(&["set", "k", "v", "NX"], "\n");
    server.check(&["set", "new", "v", "XX"], "\n");
    server.check(&["append", "k", "cd"], "7\n");
    server.check(&["prepend", "k", "-"], "8\n");
    server.check(&["mget", "k", "none", "k"], "-a \"b\"cd\n\n-a \"b\"cd\n");
    server.check(&["incr", "n"], "1\n");
    server.check(&["incrby", "n", "-5"], "-4\n");
    server.check(&["decr", "n"], "-5\n");
    server.check(&["decrby", "n", "-15"], "10\n");
    server.check(&["set", "t", "v", "EX", "100"], "OK\n");
    server.check(&["expire", "t", "50"], "1\n");
    server.check(&["touch", "none", "50"], "0\n");
    server.check(&["persist", "t"], "1\n");
    server.check(&["set", "gone", "v", "PXAT", "1"], "OK\n");
    server.check(&["get", "gone"], "\n");
    server.check(&["del", "k", "n", "none"], "2\n");
}

#[test]
fn a_value_is_replaced_only_in_the_version_that_was_read() {
    let server = Server::start(&[]);
    server.check(&["cas", "k", "v", "1"], "NOT_FOUND\n");
    server.check(&["set", "k", "first"], "OK\n");
    let output = run(&["cli", "--target", &server.target, "gets", "k"], "");
    let printed = text(&output.stdout);
    let (value, version) = printed.trim_end().split_once('\n').unwrap();
    assert_eq!(value, "first");
    server.check(&["cas", "k", "second", version], "OK\n");
    server.check(&["cas", "k", "third", version], "EXISTS\n");
    server.check(&["get", "k"], "second\n");
}

#[test]
fn ranges_go_both_ways_and_over_many_pages() {
    let server = Server::start(&[]);
    let sets: String = (100..400).map(|i| format!("set k{i} {}{i}\n", "x".repeat(100))).collect();
    assert_eq!(text(&server.lines(&sets).stdout), "OK\n".repeat(300));
    let keys = |indexes: &mut dyn Iterator<Item = u32>| -> String {
        indexes.map(|i| format!("k{i}\n")).collect()
    };
    let up = keys(&mut (100..400));
    let down = keys(&mut (100..400).rev());
    server.check(&["range", "-", "+", "KEYSONLY"], &up);
    server.check(&["range", "-", "+", "KEYSONLY", "REV"], &down);
    let whole = run(&["cli", "--target", &server.target, "range", "-", "+", "REV"], "");
    let printed = text(&whole.stdout);
    let found: String = printed.lines().step_by(2).map(|key| format!("{key}\n")).collect();
    assert_eq!(found, down);
    assert!(printed.ends_with(&format!("k100\n{}100\n", "x".repeat(100))));
    server.check(&["range", "(k100", "[k102", "keysonly"], "k101\nk102\n");
    server.check(&["range", "[k100", "(k102", "LIMIT", "1", "REV", "KEYSONLY"], "k101\n");
    server.check(&["range", "-", "+", "LIMIT", "0"], "\n");
}

#[test]
fn lines_are_answered_in_turn_with_types_and_quotes() {
    let server = Server::start(&[]);
    let input = "set k \"a\\x00b\"\r\nget k\n\nget none\nincr n\nmget k none\n\
                 set q 'it\\'s'\nget q\nrange [x +\nquit\nget k\n";
    let output = server.lines(input);
    let want = "OK\n\"a\\x00b\"\n(nil)\n(integer) 1\n1) \"a\\x00b\"\n2) (nil)\nOK\n\
                \"it's\"\n(empty array)\n";
    assert_eq!((text(&output.stdout), text(&output.stderr)), (want.to_owned(), String::new()));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_wrong_line_is_named_and_the_next_is_answered() {
    let server = Server::start(&[]);
    let output = server.lines("gat k\nset k \"v\nset k v\nincr k\nget k");
    assert_eq!(text(&output.stdout), "OK\n\"v\"\n");
    let want = "dovetail: line 1: `gat` is no command; did you mean `get`?\n\
                dovetail: line 2: unbalanced quotes: close each before a blank or the line's end\n\
                dovetail: line 4: the value is not an integer or out of range\n";
    assert_eq!(text(&output.stderr), want);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn shared_memory_is_a_target() {
    let server = Server::start(&[]);
    let input = "set k v\nget k\nstats\n";
    let output = run(&["cli", "--target", &server.shm_target], input);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("OK\nv\nrequests:2\ncompletions:2\n"), "{printed}");
    assert_eq!(text(&output.stderr), "");
    server.check(&["get", "k"], "v\n");
}

#[test]
fn a_server_with_a_key_takes_clients_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, "000102030405060708090a0b0c0d0e0f\n").unwrap();
    let key_file = key_file.display().to_string();
    let server = Server::start(&["--native-key-file", &key_file]);
    let fixed = ["cli", "--target", &server.target];
    let with_key = run(&[&fixed[..], &["--native-key-file", &key_file, "ping"]].concat(), "");
    assert_eq!(text(&with_key.stdout), "PONG\n", "{}", text(&with_key.stderr));
    let without = run(&[&fixed[..], &["ping"]].concat(), "");
    check_error(&without, 1, "--native-key-file");
}

/// Asks by RESP, as a program sees it.
#[track_caller]
fn check_resp(server: &Server, words: &[&str], want: &str) {
    let output = run(&[&["cli", "--target", &server.resp], words].concat(), "");
    assert_eq!((text(&output.stdout), text(&output.stderr)), (want.to_owned(), String::new()));
    assert_eq!(output.status.code(), Some(0), "{words:?}");
}

#[test]
fn any_command_of_resp_is_asked_as_it_was_written() {
    let server = Server::start(&[]);
    check_resp(&server, &["ping"], "PONG\n");
    check_resp(&server, &["SET", "k", "a \"b\"", "EX", "100"], "OK\n");
    check_resp(&server, &["get", "k"], "a \"b\"\n");
    check_resp(&server, &["get", "none"], "\n");
    check_resp(&server, &["strlen", "k"], "5\n");
    check_resp(&server, &["mget", "k", "none"], "a \"b\"\n\n");
    let input =
        "get k\nttl none\nmset a 1 b \"2\\x00\"\nmget a b c\nincr k\nscan 0 match a\nquit\n";
    let output = run(&["cli", "--target", &server.resp, "--no-raw"], input);
    let want = "\"a \\\"b\\\"\"\n(integer) -2\nOK\n1) \"1\"\n2) \"2\\x00\"\n3) (nil)\n\
                1) \"0\"\n2) 1) \"a\"\n";
    assert_eq!(text(&output.stdout), want);
    let want = "dovetail: line 5: ERR value is not an integer or out of range\n";
    assert_eq!((text(&output.stderr), output.status.code()), (want.to_owned(), Some(1)));
    let refused = run(&["cli", "--target", &server.resp, "incr", "k"], "");
    check_error(&refused, 1, "dovetail: ERR value is not an integer");
    // Deeper than most replies.
    let docs = run(&["cli", "--target", &server.resp, "command", "docs", "set"], "");
    assert!(text(&docs.stdout).starts_with("set\nsummary\n"), "{}", text(&docs.stdout));
}

#[test]
fn the_settings_say_where_the_server_is_and_with_which_password() {
    let server = Server::start(&["--requirepass", "s:e@c", "--insecure"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dovetail.toml").display().to_string();
    let settings = format!("resp = \"{}\"\nrequirepass = \"s:e@c\"\n", server.resp);
    std::fs::write(&file, settings).unwrap();
    let asked = run(&["cli", "--config", &file, "ping"], "");
    assert_eq!(text(&asked.stdout), "PONG\n", "{}", text(&asked.stderr));
    let environment = dovetail(&["cli", "ping"])
        .env("DOVETAIL_RESP", &server.resp)
        .env("DOVETAIL_REQUIREPASS", "s:e@c")
        .output()
        .unwrap();
    assert_eq!(text(&environment.stdout), "PONG\n", "{}", text(&environment.stderr));
    let login = format!("redis://:s%3Ae%40c@{}", server.resp);
    assert_eq!(text(&run(&["cli", "--target", &login, "ping"], "").stdout), "PONG\n");
    let without = run(&["cli", "--target", &server.resp, "ping"], "");
    check_error(&without, 1, "NOAUTH");
    let wrong = run(&["cli", "--target", &format!("redis://:no@{}", server.resp), "ping"], "");
    check_error(&wrong, 1, "WRONGPASS");
}

#[test]
fn the_native_protocol_is_spoken_when_it_is_asked_for() {
    let server = Server::start(&[]);
    let address = server.target.strip_prefix("native://").unwrap();
    let asked =
        dovetail(&["cli", "--native", "stats"]).env("DOVETAIL_NATIVE", address).output().unwrap();
    assert!(text(&asked.stdout).starts_with("requests:0\n"), "{}", text(&asked.stderr));
}

#[test]
fn what_fails_at_run_time_is_one_line_and_status_1() {
    let server = Server::start(&[]);
    let asked = |words: &[&str]| run(&[&["cli", "--target", &server.target], words].concat(), "");
    assert_eq!(text(&asked(&["set", "k", "v"]).stdout), "OK\n");
    check_error(&asked(&["incr", "k"]), 1, "the value is not an integer or out of range");
    // Bound, and gone: no server listens at its port.
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = format!("native://{address}");
    for words in [&["ping"][..], &[]] {
        let refused = run(&[&["cli", "--target", &target], words].concat(), "");
        let want =
            format!("cannot connect to {target}: connection refused; is `dovetail serve` running?");
        check_error(&refused, 1, &want);
    }
    let target = format!("redis://{address}");
    check_error(&run(&["cli", "--target", &target, "ping"], ""), 1, "is `dovetail serve` running?");
    let absent = run(&["cli", "--target", "shm:/nonexistent/d.sock", "ping"], "");
    check_error(&absent, 1, "`dovetail serve --shm PATH` makes it");
}

#[test]
fn wrong_usage_is_one_line_and_status_2() {
    let native = ["--target", "native://127.0.0.1:1"];
    for (arguments, want) in [
        (&["gat", "k"][..], "cli: `gat` is no command; did you mean `get`?"),
        (&["get"], "cli: write get KEY"),
        (&["incrby", "k", "x"], "`x` is not a whole number of 64 bits"),
        (&["--tagret", "x"], "`--tagret` is no command; flags stand before it"),
    ] {
        check_error(&run(&[&["cli"], &native[..], arguments].concat(), ""), 2, want);
    }
    for (arguments, want) in [
        (&["--tagret", "x"][..], "`--tagret` is no command; flags stand before it"),
        (&["monitor"], "`monitor` is answered more than once; take redis-cli"),
        (&["--target", "h:x", "ping"], "write HOST:PORT, redis://HOST:PORT, native://HOST:PORT"),
        (&["--target", "http://u:secret@h", "ping"], "--target http://h: "),
        (&["--target", "memcached://h:1", "ping"], "it does not speak RESP"),
        (&["--native", "--target", "h:1", "ping"], "cannot be used with"),
        (&["--raw", "--no-raw", "ping"], "cannot be used with"),
        (&["--native", "--native-key-file", "/no", "ping"], "--native-key-file /no: "),
    ] {
        check_error(&run(&[&["cli"], arguments].concat(), ""), 2, want);
    }
}

#[test]
fn the_help_lists_the_commands() {
    let help = text(&run(&["cli", "--help"], "").stdout);
    for want in ["--target", "127.0.0.1:7379", "redis-cli", "cas KEY VALUE VERSION", "--config"] {
        assert!(help.contains(want), "{want} in {help}");
    }
    // Needs no server.
    assert!(text(&run(&["cli", "help"], "").stdout).contains("prepend KEY BYTES"));
}
