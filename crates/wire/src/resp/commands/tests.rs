//! Options, arity and error texts, command by command.

use super::next_command;
use crate::Parsed;
use crate::resp::{
    AuthRequest, ClientCommand, ClientFilter, ClusterCommand, Command, CommandId,
    ConnectionCommand, ExpireCondition, ExpireTime, ExpireTtl, Expiry, HelloRequest, InvalidTime,
    KeyCommand, KillSkipMe, Limits, Parser, RangeRequest, ScanRequest, ServerCommand, SetCommand,
    SetCondition, Spec, StringCommand,
};

/// The line, split at spaces, as a multibulk.
fn frame(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    out
}

/// Gives the command in the line to `look`.
#[track_caller]
fn with_command(line: &str, look: impl FnOnce(Command<'_>)) {
    let input = frame(line);
    match next_command(&mut Parser::default(), &input, &Limits::default()) {
        Parsed::Done { value: Ok(command), consumed_bytes } => {
            assert_eq!(consumed_bytes, input.len());
            look(command);
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn check(line: &str, want: Command<'_>) {
    with_command(line, |command| assert_eq!(command, want, "{line}"));
}

#[track_caller]
fn check_error(line: &str, want: &str) {
    let input = frame(line);
    match next_command(&mut Parser::default(), &input, &Limits::default()) {
        Parsed::Done { value: Err(error), .. } => {
            let mut out = Vec::new();
            error.encode(&mut out);
            assert_eq!(String::from_utf8_lossy(&out), format!("-{want}\r\n"), "{line}");
        }
        other => panic!("{line}: {other:?}"),
    }
}

fn set(expiry: Expiry, condition: SetCondition, returns_old: bool) -> Command<'static> {
    Command::String(StringCommand::Set(SetCommand {
        key: b"k",
        value: b"v",
        expiry,
        condition,
        returns_old,
    }))
}

fn at(ms: i64, relative: bool, id: CommandId) -> ExpireTime {
    ExpireTime { ms, relative, id }
}

#[test]
fn set_takes_its_options_in_any_order_and_case() {
    let always = SetCondition::Always;
    let id = CommandId::Set;
    check("SET k v", set(Expiry::Never, always, false));
    check("set k v NX", set(Expiry::Never, SetCondition::IfAbsent, false));
    check("set k v xx get", set(Expiry::Never, SetCondition::IfPresent, true));
    check("set k v KEEPTTL", set(Expiry::Keep, always, false));
    check("set k v ex 10", set(Expiry::At(at(10_000, true, id)), always, false));
    check("set k v PX 10 NX", set(Expiry::At(at(10, true, id)), SetCondition::IfAbsent, false));
    check("set k v exat 10", set(Expiry::At(at(10_000, false, id)), always, false));
    check("set k v get pxat 10", set(Expiry::At(at(10, false, id)), always, true));
    check("set k v ex 10 ex 20", set(Expiry::At(at(20_000, true, id)), always, false));
}

#[test]
fn set_refuses_options_that_contradict() {
    for options in ["nx xx", "xx nx", "ex 1 px 1", "keepttl ex 1", "ex 1 keepttl", "persist", "ex"]
    {
        check_error(&format!("set k v {options}"), "ERR syntax error");
    }
    for time in ["ex 0", "px -1", "exat 0", "ex 9223372036854775807"] {
        check_error(&format!("set k v {time}"), "ERR invalid expire time in 'set' command");
    }
    check_error("set k v ex 1.5", "ERR value is not an integer or out of range");
}

#[test]
fn getex_takes_a_time_or_persist() {
    check("getex k", Command::String(StringCommand::GetEx { key: b"k", ttl: None }));
    let invalid = |reason| {
        Command::String(StringCommand::GetEx { key: b"k", ttl: Some(ExpireTtl::Invalid(reason)) })
    };
    check("getex k ex x", invalid(InvalidTime::NotAnInteger));
    check("getex k px 0", invalid(InvalidTime::OutOfRange));
    check("getex k exat 9223372036854775807", invalid(InvalidTime::OutOfRange));
    check(
        "getex k persist",
        Command::String(StringCommand::GetEx { key: b"k", ttl: Some(ExpireTtl::Persist) }),
    );
    let ttl = Some(ExpireTtl::At(at(5, false, CommandId::GetEx)));
    check("getex k pxat 5", Command::String(StringCommand::GetEx { key: b"k", ttl }));
    check_error("getex k nx", "ERR syntax error");
    check_error("getex k persist ex 1", "ERR syntax error");
}

#[test]
fn increments_become_one_command() {
    let by = |delta, id| Command::String(StringCommand::IncrBy { key: b"k", delta, id });
    check("incr k", by(1, CommandId::Incr));
    check("decr k", by(-1, CommandId::Decr));
    check("incrby k -7", by(-7, CommandId::IncrBy));
    check("decrby k 7", by(-7, CommandId::DecrBy));
    check_error("decrby k -9223372036854775808", "ERR decrement would overflow");
    check_error("incrby k 1x", "ERR value is not an integer or out of range");
    check_error("incrbyfloat k 1x", "ERR value is not a valid float");
}

#[test]
fn expire_conditions_exclude_one_another() {
    let id = CommandId::PExpire;
    let condition = ExpireCondition { if_some: true, if_later: true, ..Default::default() };
    let expire = at(-5, true, id);
    check("pexpire k -5 xx GT", Command::Key(KeyCommand::Expire { key: b"k", expire, condition }));
    let nx = "ERR NX and XX, GT or LT options at the same time are not compatible";
    check_error("expire k x nx xx", nx);
    check_error("expire k 1 lt nx", nx);
    let gt_lt = "ERR GT and LT options at the same time are not compatible";
    check_error("expire k 1 gt lt", gt_lt);
    check_error("expire k 1 foo", "ERR Unsupported option foo");
    check_error("expire k 9223372036854775807", "ERR invalid expire time in 'expire' command");
}

#[test]
fn keys_and_pairs_can_be_walked_again() {
    with_command("mget a b c", |command| {
        let Command::String(StringCommand::MGet { keys }) = command else { panic!("{command:?}") };
        assert_eq!(keys.len(), 3);
        assert_eq!(keys.collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(keys.collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    });
    with_command("mset a 1 b 2", |command| {
        let Command::String(StringCommand::MSet { pairs }) = command else { panic!("{command:?}") };
        assert_eq!(pairs.len(), 2);
        let want: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
        assert_eq!(pairs.collect::<Vec<_>>(), want);
        assert_eq!(pairs.keys().len(), 2);
        assert_eq!(pairs.keys().collect::<Vec<_>>(), [b"a", b"b"]);
    });
    check_error("mset a 1 b", "ERR wrong number of arguments for 'mset' command");
}

#[test]
fn scan_reads_its_options() {
    let scan = |cursor, pattern, count, type_name| {
        Command::Key(KeyCommand::Scan(ScanRequest { cursor, pattern, count, type_name }))
    };
    check("scan 0", scan(0, None, 10, None));
    check("scan 18446744073709551615 match * count 5", scan(u64::MAX, None, 5, None));
    check("scan 7 TYPE string MATCH a*", scan(7, Some(b"a*"), 10, Some(b"string")));
    check_error("scan x", "ERR invalid cursor");
    check_error("scan 18446744073709551616", "ERR invalid cursor");
    check_error("scan 0 count 0", "ERR syntax error");
    check_error("scan 0 count x", "ERR value is not an integer or out of range");
    check_error("scan 0 match", "ERR syntax error");
}

#[test]
fn ranges_read_their_bounds_and_options() {
    let range = |start, end, limit, is_reverse, is_keys_only| {
        let mut range = RangeRequest::new(start, end).unwrap();
        (range.limit, range.is_reverse, range.is_keys_only) = (limit, is_reverse, is_keys_only);
        Command::Key(KeyCommand::KvRange(range))
    };
    check("kv.range - +", range(b"-", b"+", u64::MAX, false, false));
    check("KV.RANGE [a (b", range(b"[a", b"(b", u64::MAX, false, false));
    check("kv.range - [b LIMIT 7", range(b"-", b"[b", 7, false, false));
    let all = range(b"-", b"[b", 7, true, true);
    check("kv.range - [b keysonly Limit 9 limit 7 rev REV", all);
    check("kv.range [ ( limit 0", range(b"[", b"(", 0, false, false));
}

#[test]
fn ranges_refuse_what_is_no_bound_or_no_option() {
    for line in ["kv.range a +", "kv.range - b", "kv.range  +", "kv.range -a +", "kv.range - ++"] {
        check_error(line, "ERR min or max not valid string range item");
    }
    check_error("kv.range -", "ERR wrong number of arguments for 'kv.range' command");
    check_error("kv.range - + limit", "ERR syntax error");
    check_error("kv.range - + count 3", "ERR syntax error");
    check_error("kv.range - + limit x", "ERR value is not an integer or out of range");
    check_error("kv.range - + limit -1", "ERR value is out of range, must be positive");
    check_error("command getkeys kv.range - +", "ERR The command has no key arguments");
}

#[test]
fn waits_are_refused_as_in_redis() {
    let wanted =
        Command::Key(KeyCommand::WaitAof { is_local: true, replica_count: 2, timeout_ms: 30 });
    check("waitaof 1 2 30", wanted);
    check_error("waitaof 2 0 0", "ERR value is out of range, value must between 0 and 1");
    check_error("waitaof x 0 0", "ERR value is not an integer or out of range");
    check_error("waitaof 0 -1 0", "ERR value is out of range, must be positive");
    check_error("waitaof 0 x 0", "ERR value is out of range, must be positive");
    check_error("waitaof 0 0 x", "ERR timeout is not an integer or out of range");
    check_error("wait 0 -1", "ERR timeout is negative");
}

#[test]
fn hello_authenticates_and_names() {
    check("hello", Command::Connection(ConnectionCommand::Hello(HelloRequest::default())));
    let auth = Some(AuthRequest { user: Some(b"u"), password: b"p" });
    let request = HelloRequest { version: Some(3), auth, name: Some(b"n") };
    check("HELLO 3 AUTH u p SETNAME n", Command::Connection(ConnectionCommand::Hello(request)));
    check_error("hello 4", "NOPROTO unsupported protocol version");
    check_error("hello x", "ERR Protocol version is not an integer or out of range");
    check_error("hello 3 auth u", "ERR Syntax error in HELLO option 'auth'");
    check(
        "auth p",
        Command::Connection(ConnectionCommand::Auth(AuthRequest { user: None, password: b"p" })),
    );
    check(
        "auth u p",
        Command::Connection(ConnectionCommand::Auth(AuthRequest {
            user: Some(b"u"),
            password: b"p",
        })),
    );
    check_error("auth a b c", "ERR syntax error");
}

#[test]
fn client_filters_can_be_read_again() {
    with_command("client kill addr 1.2.3.4:5 skipme no user u id 7 type SLAVE", |command| {
        let Command::Client(ClientCommand::Kill(query)) = command else { panic!("{command:?}") };
        let want = ClientFilter {
            id: Some(7),
            type_name: Some("replica"),
            address: Some(b"1.2.3.4:5"),
            user: Some(b"u"),
            skip_me: KillSkipMe::No,
            ..ClientFilter::default()
        };
        assert_eq!(query.filter(), want);
    });
    with_command("client kill 1.2.3.4:5", |command| {
        let Command::Client(ClientCommand::Kill(query)) = command else { panic!("{command:?}") };
        assert!(query.filter().old_form);
        assert_eq!(query.filter().skip_me, KillSkipMe::No);
    });
    with_command("client list id 3 4", |command| {
        let Command::Client(ClientCommand::List(query)) = command else { panic!("{command:?}") };
        let ids = query.filter().ids.expect("ids were given");
        assert_eq!(ids.collect::<Vec<_>>(), [b"3", b"4"]);
    });
    check_error("client kill id 0 x y", "ERR client-id should be greater than 0");
    check_error("client list type x", "ERR Unknown client type 'x'");
    check_error("client list id x", "ERR Invalid client ID");
}

#[test]
fn unknown_names_are_echoed_up_to_128_bytes() {
    check_error("foo", "ERR unknown command 'foo', with args beginning with: ");
    check_error("foo a b", "ERR unknown command 'foo', with args beginning with: 'a' 'b' ");
    let long = "x".repeat(200);
    let cut = "x".repeat(128);
    check_error(
        &format!("{long} {long} never"),
        &format!("ERR unknown command '{cut}', with args beginning with: '{cut}' "),
    );
    let first = "a".repeat(125);
    check_error(
        &format!("foo {first} b"),
        &format!("ERR unknown command 'foo', with args beginning with: '{first}' "),
    );
    check_error("foo a\r\nb", "ERR unknown command 'foo', with args beginning with: 'a  b' ");
    check_error("client foo", "ERR unknown subcommand 'foo'. Try CLIENT HELP.");
}

#[test]
fn arity_is_checked_for_every_row_of_the_table() {
    for spec in Spec::all() {
        let words: Vec<&str> = spec.name.split('|').collect();
        for extra in 0..4 {
            let line = [words.clone(), vec!["1"; extra]].concat().join(" ");
            let count = words.len() + extra;
            let input = frame(&line);
            let answer = next_command(&mut Parser::default(), &input, &Limits::default());
            let Parsed::Done { value, .. } = answer else { panic!("{line}") };
            let is_container_alone = spec.id.is_container() && extra > 0;
            if is_container_alone {
                assert!(value.is_err(), "{line}");
            } else if spec.accepts_count(count) {
                // Its arguments may still be wrong, but it is this command.
                let id = value.as_ref().map_or_else(|error| error.id(), |command| command.id());
                assert_eq!(id, Some(spec.id), "{line}");
            } else {
                let error = value.expect_err(&line);
                assert!(error.aborts_transaction(), "{line}");
                assert_eq!(error.id(), Some(spec.id), "{line}");
            }
        }
    }
}

#[test]
fn only_wrong_arguments_leave_a_transaction_alive() {
    let cases = [("foo", true), ("client foo", true), ("get", true), ("set k v foo", false)];
    for (line, want) in cases {
        let input = frame(line);
        let answer = next_command(&mut Parser::default(), &input, &Limits::default());
        let Parsed::Done { value: Err(error), .. } = answer else { panic!("{line}") };
        assert_eq!(error.aborts_transaction(), want, "{line}");
    }
    check_error(
        "exec now",
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
    );
}

#[test]
fn web_browsers_get_no_answer() {
    for line in ["POST /", "host: example.org"] {
        let input = frame(line);
        let answer = next_command(&mut Parser::default(), &input, &Limits::default());
        let Parsed::Done { value: Err(error), .. } = answer else { panic!("{line}") };
        let mut out = Vec::new();
        error.encode(&mut out);
        assert!(out.is_empty());
    }
}

#[test]
fn getkeys_finds_the_keys_of_other_commands() {
    let cases: [(&str, &[&[u8]]); 5] = [
        ("get a", &[b"a"]),
        ("mset a 1 b 2", &[b"a", b"b"]),
        ("del a b c", &[b"a", b"b", b"c"]),
        ("rename a b", &[b"a", b"b"]),
        ("object encoding k", &[b"k"]),
    ];
    for (line, want) in cases {
        with_command(&format!("command getkeys {line}"), |command| {
            let Command::Server(ServerCommand::CommandGetKeys { keys }) = command else {
                panic!("{command:?}")
            };
            assert_eq!(keys.len(), want.len(), "{line}");
            assert_eq!(keys.collect::<Vec<_>>(), want, "{line}");
        });
    }
    check_error("command getkeys foo bar", "ERR Invalid command specified");
    check_error("command getkeys ping x", "ERR The command has no key arguments");
    check_error("command getkeys get a b", "ERR Invalid number of arguments specified for command");
}

#[test]
fn cluster_subcommands_check_their_slots() {
    let cluster = Command::Cluster;
    check("cluster slots", cluster(ClusterCommand::Slots));
    check("CLUSTER KEYSLOT a", cluster(ClusterCommand::KeySlot { key: b"a" }));
    let keys = ClusterCommand::GetKeysInSlot { slot: 16383, count: 7 };
    check("cluster getkeysinslot 16383 7", cluster(keys));
    check("cluster countkeysinslot 0", cluster(ClusterCommand::CountKeysInSlot { slot: 0 }));
    let id = CommandId::ClusterSlaves;
    check("cluster slaves x", cluster(ClusterCommand::Replicas { node: b"x", id }));
    let id = CommandId::ClusterMeet;
    check("cluster meet a 1", cluster(ClusterCommand::Administer { id }));
    check("readonly", Command::Cluster(ClusterCommand::ReadOnly));
    check_error("cluster countkeysinslot x", "ERR value is not an integer or out of range");
    check_error("cluster countkeysinslot 16384", "ERR Invalid slot");
    check_error("cluster getkeysinslot 5 -1", "ERR Invalid slot or number of keys");
    check_error("cluster getkeysinslot 99999 x", "ERR value is not an integer or out of range");
    check_error("cluster foo", "ERR unknown subcommand 'foo'. Try CLUSTER HELP.");
    check_error("cluster", "ERR wrong number of arguments for 'cluster' command");
    check_error("cluster meet", "ERR wrong number of arguments for 'cluster|meet' command");
    check_error("readonly 1", "ERR wrong number of arguments for 'readonly' command");
}
