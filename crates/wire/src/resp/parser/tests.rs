//! The end of a command, at every cut and with every malformed frame.

use super::{Args, Limits, Parser, ProtocolError, parse_hot};
use crate::Parsed;
use crate::resp::{Command, ConnectionCommand, StringCommand, next_command};

/// A multibulk of these arguments.
fn frame(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn parse<'a>(parser: &mut Parser, input: &'a [u8]) -> Parsed<Args<'a>, ProtocolError> {
    parser.parse(input, &Limits::default())
}

/// The arguments of the single command in `input`; every shorter input needs more, and names a
/// length that is not too large; stopping at any byte does not change the outcome.
#[track_caller]
fn check(input: &[u8], want: &[&[u8]]) {
    for cut in 0..input.len() {
        let mut parser = Parser::default();
        match parse(&mut parser, &input[..cut]) {
            Parsed::NeedMore { at_least_bytes } => {
                assert!(at_least_bytes > cut && at_least_bytes <= input.len(), "cut {cut}");
            }
            other => panic!("cut {cut}: {other:?}"),
        }
        check_done(&mut parser, input, want);
    }
    let mut parser = Parser::default();
    for cut in 0..input.len() {
        assert!(matches!(parse(&mut parser, &input[..cut]), Parsed::NeedMore { .. }));
    }
    check_done(&mut parser, input, want);
}

#[track_caller]
fn check_done(parser: &mut Parser, input: &[u8], want: &[&[u8]]) {
    match parse(parser, input) {
        Parsed::Done { value, consumed_bytes } => {
            assert_eq!(consumed_bytes, input.len());
            assert_eq!(value.len(), want.len());
            assert_eq!(value.iter().collect::<Vec<_>>(), want);
            assert_eq!(value.get(want.len()), None);
            assert!(!parser.is_midway());
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check_bad(input: &[u8], limits: &Limits, want: ProtocolError) {
    let mut parser = Parser::default();
    match parser.parse(input, limits) {
        Parsed::Bad(error) => assert_eq!(error, want),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_multibulk_is_framed_wherever_it_is_cut() {
    check(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &[b"GET", b"k"]);
    check(b"*1\r\n$4\r\nPING\r\n", &[b"PING"]);
    check(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$5\r\na\r\nb\n\r\n", &[b"SET", b"", b"a\r\nb\n"]);
    let many: Vec<&[u8]> = std::iter::repeat_n(&b"argument"[..], 40).collect();
    check(&frame(&many), &many);
}

#[test]
fn empty_commands_are_done_and_empty() {
    for input in [&b"*0\r\n"[..], b"*-1\r\n", b"*-9\r\n", b"\r\n", b"\n", b"  \t \r\n"] {
        check(input, &[]);
    }
}

#[test]
fn an_inline_command_is_framed_wherever_it_is_cut() {
    check(b"PING\r\n", &[b"PING"]);
    check(b"PING\n", &[b"PING"]);
    check(b"  SET  key\tvalue \r\n", &[b"SET", b"key", b"value"]);
    check(b"SET \"two words\" 'it\\is' \"\" ''\r\n", &[b"SET", b"two words", b"it\\is", b"", b""]);
}

#[test]
fn quoted_words_are_rewritten_as_a_multibulk() {
    let cases: [(&[u8], &[&[u8]]); 6] = [
        (b"SET k \"a\\nb\\r\\t\\b\\a\\\"\\q\"", &[b"SET", b"k", b"a\nb\r\t\x08\x07\"q"]),
        (b"SET k \"\\x41\\xfFz\\xg1\"", &[b"SET", b"k", b"A\xffzxg1"]),
        (b"SET k 'a\\'b\\n'", &[b"SET", b"k", b"a'b\\n"]),
        (b"SET k pre\"quoted part\"", &[b"SET", b"k", b"prequoted part"]),
        (b"SET k pre'quoted part' last", &[b"SET", b"k", b"prequoted part", b"last"]),
        (b"SET \"a b\" \"\\\\\"", &[b"SET", b"a b", b"\\"]),
    ];
    for (line, want) in cases {
        let input = [line, b"\r\n"].concat();
        let mut parser = Parser::default();
        let Parsed::Done { value, consumed_bytes } = parse(&mut parser, &input) else {
            panic!("{line:?}");
        };
        assert_eq!(consumed_bytes, input.len());
        let mut rewritten = Vec::new();
        value.quoted_line().expect("it has escapes").rewrite(&mut rewritten);
        check_done(&mut parser, &rewritten, want);
    }
}

#[test]
fn unbalanced_quotes_are_bad() {
    let lines: [&[u8]; 6] =
        [b"a \"b\n", b"a 'b\n", b"a \"b\"c\n", b"a 'b'c\n", b"a \"b\\\"\n", b"a \"\"\"\"\n"];
    for line in lines {
        check_bad(line, &Limits::default(), ProtocolError::UnbalancedQuotes);
    }
}

#[test]
fn bad_lengths_are_bad() {
    let limits = Limits::new(1000);
    for count in ["", "x", "1x", "+1", "01", " 1", "1048577", "99999999999999999999"] {
        let input = format!("*{count}\r\n");
        check_bad(input.as_bytes(), &limits, ProtocolError::InvalidMultibulkLength);
    }
    for len in ["", "x", "-1", "1 ", "01", "4294967297", "99999999999999999999"] {
        let input = format!("*1\r\n${len}\r\n");
        check_bad(input.as_bytes(), &limits, ProtocolError::InvalidBulkLength);
    }
    for len_bytes in [1001, Limits::DISCARD_MAX_BYTES] {
        let too_large = ProtocolError::BulkTooLarge { len_bytes, max_bytes: 1000 };
        check_bad(format!("*1\r\n${len_bytes}\r\n").as_bytes(), &limits, too_large);
        let before_auth = limits.before_auth();
        let input = format!("*1\r\n${len_bytes}\r\n");
        check_bad(input.as_bytes(), &before_auth, ProtocolError::InvalidBulkLength);
    }
    check_bad(b"*1\r\n:1\r\n", &limits, ProtocolError::ExpectedDollar { got: b':' });
    check_bad(b"*1\r\n\r\n", &limits, ProtocolError::ExpectedDollar { got: b'\r' });
}

#[test]
fn a_client_that_has_not_authenticated_gets_less() {
    let limits = Limits::new(1 << 20).before_auth();
    check_bad(b"*11\r\n", &limits, ProtocolError::UnauthenticatedMultibulkLength);
    check_bad(b"*1\r\n$16385\r\n", &limits, ProtocolError::UnauthenticatedBulkLength);
    let value = vec![b'v'; 16_385];
    let set = frame(&[b"SET", b"k", &value]);
    let answer = next_command(&mut Parser::default(), &set, &limits);
    assert!(matches!(answer, Parsed::Bad(ProtocolError::UnauthenticatedBulkLength)), "{answer:?}");
    let set = frame(&[b"SET", b"k", &value[1..]]);
    let answer = next_command(&mut Parser::default(), &set, &limits);
    assert!(matches!(answer, Parsed::Done { .. }));
}

#[test]
fn lines_without_an_end_are_bad_at_the_same_byte_however_they_arrive() {
    let cases: [(&[u8], ProtocolError); 3] = [
        (b"", ProtocolError::TooBigInlineRequest),
        (b"*", ProtocolError::TooBigMbulkCount),
        (b"*1\r\n", ProtocolError::TooBigBulkCount),
    ];
    for (start, want) in cases {
        let line_start = if start.ends_with(b"\n") { start.len() } else { 0 };
        let mut input = start.to_vec();
        input.resize(line_start + 64 * 1024, b'1');
        let mut parser = Parser::default();
        for cut in (0..input.len()).step_by(1000) {
            assert!(matches!(parse(&mut parser, &input[..cut]), Parsed::NeedMore { .. }));
        }
        assert!(matches!(parse(&mut parser, &input), Parsed::NeedMore { .. }));
        input.extend_from_slice(b"1\r\n");
        check_bad(&input, &Limits::default(), want);
        match parse(&mut parser, &input) {
            Parsed::Bad(error) => assert_eq!(error, want),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_large_body_is_asked_for_at_once() {
    let mut parser = Parser::default();
    let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$33554432\r\n";
    let want = Parsed::NeedMore { at_least_bytes: head.len() + (32 << 20) + 2 };
    let answer = next_command(&mut parser, head, &Limits::default());
    match (answer, want) {
        (
            Parsed::NeedMore { at_least_bytes },
            Parsed::<(), ()>::NeedMore { at_least_bytes: want },
        ) => assert_eq!(at_least_bytes, want),
        (other, _) => panic!("{other:?}"),
    }
}

/// Counts work instead of time: validated bytes are never validated again.
#[test]
fn a_command_of_100_000_arguments_in_1_kib_reads_takes_linear_work() {
    const ARG_COUNT: u32 = 100_000;
    let args: Vec<&[u8]> = std::iter::repeat_n(&b"0123456789"[..], ARG_COUNT as usize).collect();
    let input = frame(&args);
    let mut parser = Parser::default();
    let mut resumed_bytes = 0;
    let mut end = 1024;
    while end < input.len() {
        let before = parser.validated_bytes;
        assert!(matches!(parse(&mut parser, &input[..end]), Parsed::NeedMore { .. }));
        // The parser is past everything but the argument that the read cut off.
        assert!(end - parser.validated_bytes < 17, "stopped at {}", parser.validated_bytes);
        assert!(parser.scanned_bytes >= parser.validated_bytes);
        resumed_bytes += end - before;
        end += 1024;
    }
    assert!(resumed_bytes < input.len() + input.len() / 50, "{resumed_bytes} of {}", input.len());
    let Parsed::Done { value, consumed_bytes } = parse(&mut parser, &input) else {
        panic!("the command is complete");
    };
    assert_eq!(consumed_bytes, input.len());
    assert_eq!(value.iter().filter(|arg| *arg == b"0123456789").count(), ARG_COUNT as usize);
}

#[test]
fn the_short_way_reads_what_the_long_way_reads() {
    let limits = Limits::default();
    let value = vec![b'v'; 70_000];
    let commands: [&[&[u8]]; 6] = [
        &[b"GET", b"key"],
        &[b"get", b"key"],
        &[b"gEt", b"a key of more than nine bytes"],
        &[b"SET", b"key", b"value"],
        &[b"set", b"key", b"a value of more than nine bytes"],
        &[b"Set", b"key", &value],
    ];
    for args in commands {
        let input = frame(args);
        let (hot, hot_bytes) = parse_hot(&input, &limits).expect("it is a hot one");
        let Parsed::Done { value, consumed_bytes } = parse(&mut Parser::default(), &input) else {
            panic!("it is complete");
        };
        assert_eq!(hot, Command::from_args(&value).expect("it is well formed"));
        assert_eq!(hot_bytes, consumed_bytes);
        for cut in 0..input.len().min(100) {
            assert_eq!(parse_hot(&input[..cut], &limits), None);
        }
    }
}

#[test]
fn the_short_way_leaves_the_unusual_to_the_long_way() {
    let limits = Limits::new(100);
    let long_key = frame(&[b"GET", &[b'k'; 101]]);
    let cases: [&[u8]; 9] = [
        b"",
        b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
        b"*2\r\n$3\r\nGET\r\n$01\r\nk\r\n",
        b"*2\r\n$3\r\nGET\r\n$-1\r\nk\r\n",
        b"*2\r\n$3\r\nGET\r\n$1x\r\nk\r\n",
        b"*2\r\n$3\r\nGETX$1\r\nk\r\n",
        b"*3\r\n$3\r\nGET\r\n$1\r\nk\r\n$1\r\nk\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n:1\r\nk\r\n",
        &long_key,
    ];
    for input in cases {
        assert_eq!(parse_hot(input, &limits), None, "{input:?}");
    }
}

#[test]
fn a_command_that_was_cut_ends_on_the_short_way_and_leaves_no_state() {
    let limits = Limits::default();
    let input = [frame(&[b"GET", b"key"]), frame(&[b"PING"])].concat();
    let mut parser = Parser::default();
    let answer = next_command(&mut parser, &input[..18], &limits);
    assert!(matches!(answer, Parsed::NeedMore { .. }));
    assert!(parser.is_midway());
    let Parsed::Done { value: Ok(get), consumed_bytes } =
        next_command(&mut parser, &input, &limits)
    else {
        panic!("GET is complete");
    };
    assert_eq!(get, Command::String(StringCommand::Get { key: b"key" }));
    assert!(!parser.is_midway());
    let answer = next_command(&mut parser, &input[consumed_bytes..], &limits);
    assert!(matches!(
        answer,
        Parsed::Done {
            value: Ok(Command::Connection(ConnectionCommand::Ping { message: None })),
            ..
        }
    ));
}
