//! Lines of the memcached port and the commands they parse to, with every way to cut them.

use super::{Limits, Parser, next_command};
use crate::Parsed;
use crate::memcached::EventTopics;
use crate::memcached::{
    Arithmetic, Command, Delete, DumpKind, ProtocolError, Reply, StatsKind, Store, StoreVerb, Touch,
};

fn limits() -> Limits {
    Limits::new(1000)
}

/// `input` is one command; cut anywhere it needs more, and with its rest it is the same command.
#[track_caller]
fn check(input: &str, want: Command<'_>) {
    check_with(input.as_bytes(), |command| assert_eq!(command, want, "{input}"));
}

#[track_caller]
fn check_with(input: &[u8], look: impl Fn(Command<'_>)) {
    for cut in 0..input.len() {
        let mut parser = Parser::default();
        match next_command(&mut parser, &input[..cut], &limits()) {
            Parsed::NeedMore { at_least_bytes } => {
                assert!(at_least_bytes > cut && at_least_bytes <= input.len(), "cut {cut}");
            }
            other => panic!("cut {cut}: {other:?}"),
        }
        match next_command(&mut parser, input, &limits()) {
            Parsed::Done { value: Ok(command), consumed_bytes } => {
                assert_eq!(consumed_bytes, input.len());
                assert!(!parser.is_midway());
                look(command);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The reply to a refused command, the length it consumes, and the length to be skipped.
#[track_caller]
fn check_refused(input: &str, reply: Option<Reply>, consumed_bytes: usize, swallow_bytes: u64) {
    match next_command(&mut Parser::default(), input.as_bytes(), &limits()) {
        Parsed::Done { value: Err(rejection), consumed_bytes: consumed } => {
            assert_eq!(rejection.reply, reply, "{input}");
            assert_eq!(consumed, consumed_bytes, "{input}");
            assert_eq!(rejection.swallow_bytes, swallow_bytes, "{input}");
        }
        other => panic!("{input}: {other:?}"),
    }
}

#[track_caller]
fn check_line(input: &str, reply: Reply) {
    let line_bytes = input.find('\n').expect("a line") + 1;
    check_refused(input, Some(reply), line_bytes, 0);
}

#[track_caller]
fn check_keys(input: &str, want: &[&str], with_cas: bool) {
    check_with(input.as_bytes(), |command| {
        let (Command::Get(retrieve) | Command::GetAndTouch { retrieve, .. }) = command else {
            panic!("{command:?}");
        };
        let want: Vec<&[u8]> = want.iter().map(|key| key.as_bytes()).collect();
        assert_eq!(retrieve.keys.collect::<Vec<_>>(), want, "{input}");
        assert_eq!(retrieve.with_cas, with_cas);
    });
}

#[test]
fn gets_name_their_keys() {
    check_keys("get k\r\n", &["k"], false);
    check_keys("get k\n", &["k"], false);
    check_keys("gets a  b c \r\n", &["a", "b", "c"], true);
    check_keys("gat 10 a b\r\n", &["a", "b"], false);
    check_keys("gats -1 a\r\n", &["a"], true);
    check_keys("gat 10\r\n", &[], false);
    check_keys("get k\0rest\r\n", &["k"], false);
    let key = "k".repeat(250);
    check_keys(&format!("get {key} {key}\r\n"), &[&key, &key], false);
}

#[test]
fn a_get_of_many_keys_may_be_longer_than_other_lines() {
    let keys: Vec<String> = (0..100).map(|i| format!("{i:0200}")).collect();
    let line = format!("get {}\r\n", keys.join(" "));
    let answer = next_command(&mut Parser::default(), line.as_bytes(), &limits());
    let Parsed::Done { value: Ok(Command::Get(retrieve)), .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(retrieve.keys.count(), 100);
    let long = vec![b'x'; Limits::LINE_MAX_BYTES + 1];
    let answer = next_command(&mut Parser::default(), &long, &limits());
    assert_eq!(answer, Parsed::Bad(ProtocolError::LineTooLong));
    let mut endless = b"get ".to_vec();
    endless.resize(limits().get_line_max_bytes + 1, b'k');
    let answer = next_command(&mut Parser::default(), &endless, &limits());
    assert_eq!(answer, Parsed::Bad(ProtocolError::GetTooLong));
}

#[test]
fn storage_commands_carry_their_block() {
    let store = Store {
        verb: StoreVerb::Set,
        key: b"k",
        flags: 0,
        exptime: 0,
        value: b"abc",
        noreply: false,
    };
    check("set k 0 0 3\r\nabc\r\n", Command::Store(store));
    check("set k 0 0 3 noreply\r\nabc\r\n", Command::Store(Store { noreply: true, ..store }));
    check(
        "set k 7 -1 0\r\n\r\n",
        Command::Store(Store { flags: 7, exptime: -1, value: b"", ..store }),
    );
    for (flags, kept) in
        [("4294967295", u32::MAX), ("4294967297", 1), ("18446744073709551615", u32::MAX)]
    {
        let want = Store { flags: kept, ..store };
        check(&format!("set k {flags} 0 3\r\nabc\r\n"), Command::Store(want));
    }
    check("set k 0 0 3\r\n\r\n\n\r\n", Command::Store(Store { value: b"\r\n\n", ..store }));
    let verbs = [
        ("add", StoreVerb::Add),
        ("replace", StoreVerb::Replace),
        ("append", StoreVerb::Append),
        ("prepend", StoreVerb::Prepend),
    ];
    for (name, verb) in verbs {
        check(&format!("{name} k 0 0 3\r\nabc\r\n"), Command::Store(Store { verb, ..store }));
    }
    let verb = StoreVerb::Cas(u64::MAX);
    let cas = "cas k 0 0 3 18446744073709551615\r\nabc\r\n";
    check(cas, Command::Store(Store { verb, ..store }));
    let cas = "cas k 0 0 3 18446744073709551615 noreply\r\nabc\r\n";
    check(cas, Command::Store(Store { verb, noreply: true, ..store }));
}

#[test]
fn a_storage_command_is_refused_by_its_line_alone() {
    for line in ["set", "set k", "set k 0 0", "set k 0 0 1 noreply x", "cas k 0 0 1", "get", "get "]
    {
        check_line(&format!("{line}\r\n"), Reply::Error);
    }
    let long_key = format!("set {} 0 0 1\r\na\r\n", "k".repeat(251));
    check_line(&long_key, Reply::BadFormat);
    let bad = ["x 0 1", "-1 0 1", "0 x 1", "0 0 x", "0 0 -1", "0 0 2147483646", "1.5 0 1"];
    for numbers in bad {
        check_line(&format!("set k {numbers}\r\na\r\n"), Reply::BadFormat);
        let quiet = format!("set k {numbers} noreply\r\n");
        check_refused(&quiet, None, quiet.len(), 0);
    }
    check_line("cas k 0 0 1 x\r\na\r\n", Reply::BadFormat);
}

#[test]
fn a_block_with_a_wrong_end_is_consumed_and_refused() {
    let reply = Some(Reply::BadDataChunk);
    check_refused("set k 0 0 1\r\nabc\r\n", reply, 16, 0);
    check_refused("set k 0 0 3\r\nabcXXget k\r\n", reply, 18, 0);
    check_refused("set k 0 0 1 noreply\r\nabc\r\n", None, 24, 0);
}

#[test]
fn a_block_that_is_too_large_is_skipped_unread() {
    let line = "set k 0 0 1001\r\n";
    check_refused(line, Some(Reply::TooLarge), line.len(), 1003);
    let answer = next_command(&mut Parser::default(), line.as_bytes(), &limits());
    let Parsed::Done { value: Err(rejection), .. } = answer else { panic!("{answer:?}") };
    assert_eq!(rejection.delete_key, Some(&b"k"[..]));
    let quiet = "add k 0 0 5000 noreply\r\n";
    check_refused(quiet, None, quiet.len(), 5002);
    let answer = next_command(&mut Parser::default(), quiet.as_bytes(), &limits());
    let Parsed::Done { value: Err(rejection), .. } = answer else { panic!("{answer:?}") };
    assert_eq!(rejection.delete_key, None);
}

#[test]
fn a_large_block_is_asked_for_at_once_and_its_line_not_searched_again() {
    let head = b"set k 0 0 900\r\nab";
    let mut parser = Parser::default();
    let want = Parsed::NeedMore { at_least_bytes: 15 + 900 + 2 };
    assert_eq!(next_command(&mut parser, head, &limits()), want);
    assert_eq!(parser.scanned_bytes, 14, "the line's end is remembered");
}

#[test]
fn delete_takes_an_old_form_too() {
    let delete = |noreply| Command::Delete(Delete { key: b"k", noreply });
    check("delete k\r\n", delete(false));
    check("delete k 0\r\n", delete(false));
    check("delete k noreply\r\n", delete(true));
    check("delete k 0 noreply\r\n", delete(true));
    check_line("delete k 1\r\n", Reply::BadDelete);
    check_line("delete k 0 x\r\n", Reply::BadDelete);
    check_refused("delete k 1 noreply\r\n", None, 20, 0);
    check_line("delete\r\n", Reply::Error);
    check_line("delete k 0 noreply x\r\n", Reply::Error);
}

#[test]
fn arithmetic_and_touch_take_a_number() {
    let incr = Arithmetic { key: b"k", delta: 5, is_decrement: false, noreply: false };
    check("incr k 5\r\n", Command::Arithmetic(incr));
    let decr = Arithmetic { is_decrement: true, noreply: true, delta: u64::MAX, ..incr };
    check("decr k 18446744073709551615 noreply\r\n", Command::Arithmetic(decr));
    for delta in ["x", "-1", "1.5", "18446744073709551616"] {
        check_line(&format!("incr k {delta}\r\n"), Reply::InvalidDelta);
    }
    check("touch k -1\r\n", Command::Touch(Touch { key: b"k", exptime: -1, noreply: false }));
    check_line("touch k x\r\n", Reply::InvalidExptime);
    check_line("gat x k\r\n", Reply::InvalidExptime);
    check_refused("touch k x noreply\r\n", None, 19, 0);
}

#[test]
fn the_rest_is_read_as_memcached_reads_it() {
    check("version\r\n", Command::Version);
    check("mn\r\n", Command::MetaNoop);
    check("quit\r\n", Command::Quit);
    check("shutdown\r\n", Command::Shutdown { is_valid: true });
    check("shutdown graceful\r\n", Command::Shutdown { is_valid: true });
    check("shutdown now\r\n", Command::Shutdown { is_valid: false });
    check("cache_memlimit 50\r\n", Command::MemoryLimit { mib: 50, noreply: false });
    check("cache_memlimit 64 noreply\r\n", Command::MemoryLimit { mib: 64, noreply: true });
    check("refresh_certs noreply\r\n", Command::RefreshCertificates { noreply: true });
    let watch = |topics, noreply| Command::Watch { topics, noreply };
    check("watch\r\n", watch(EventTopics::FETCHERS, false));
    let both = EventTopics::MUTATIONS.with(EventTopics::EVICTIONS);
    check("watch mutations evictions noreply\r\n", watch(both, true));
    check("watch rawcmds\r\n", watch(EventTopics::OTHERS, false));
    check("verbosity 1\r\n", Command::Verbosity { noreply: false });
    check("verbosity 1 noreply\r\n", Command::Verbosity { noreply: true });
    check("flush_all\r\n", Command::FlushAll { delay: 0, noreply: false });
    check("flush_all noreply\r\n", Command::FlushAll { delay: 0, noreply: true });
    check("flush_all 10 noreply\r\n", Command::FlushAll { delay: 10, noreply: true });
    check("stats\r\n", Command::Stats(StatsKind::General));
    check("stats settings\r\n", Command::Stats(StatsKind::Settings));
    check("config get cluster\r\n", Command::ConfigGetCluster);
    let items = |class, count_max| Command::Dump(DumpKind::Items { class, count_max });
    check("stats cachedump 1 100\r\n", items(1, 100));
    check("stats cachedump 63 0 more\r\n", items(63, 0));
    check("stats foo\r\n", Command::Stats(StatsKind::Other(b"foo")));
    for line in [
        "",
        "\r",
        "a",
        "GET k",
        "get",
        "foo bar",
        "mx",
        "flush_all 1 2 3",
        "verbosity",
        "config get x",
    ] {
        check_line(&format!("{line}\r\n"), Reply::Error);
    }
    check_line("\n", Reply::Error);
    check_line("flush_all x\r\n", Reply::InvalidExptime);
    check_line("verbosity x\r\n", Reply::BadFormat);
}

#[test]
fn web_browsers_are_cut_off() {
    let answer = next_command(&mut Parser::default(), b"GET / HTTP/1.1\r\n", &limits());
    assert_eq!(answer, Parsed::Bad(ProtocolError::Http));
}
