//! Meta lines and the commands they parse to, the answers to wrong ones, and the order of the
//! replies' flags.

use base::UnixMillis;
use proptest::prelude::*;

use super::{Meta, MetaEcho, MetaMode, MetaShown, MetaVerb};
use crate::Parsed;
use crate::memcached::{Command, Encoder, Limits, Parser, Rejection, Reply, next_command};

const NOW: UnixMillis = UnixMillis(1_700_000_000_500);

fn read(input: &[u8]) -> (Result<Command<'_>, Rejection<'_>>, usize) {
    match next_command(&mut Parser::default(), input, &Limits::new(1000)) {
        Parsed::Done { value, consumed_bytes } => (value, consumed_bytes),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn meta(input: &str) -> Meta<'_> {
    let (command, consumed_bytes) = read(input.as_bytes());
    assert_eq!(consumed_bytes, input.len());
    let Ok(Command::Meta(meta)) = command else { panic!("{command:?}") };
    meta
}

#[track_caller]
fn check_refused(input: &str, reply: Reply, swallow_bytes: u64) {
    let (command, consumed_bytes) = read(input.as_bytes());
    let rejection = command.expect_err(input);
    assert_eq!((rejection.reply, rejection.swallow_bytes), (Some(reply), swallow_bytes), "{input}");
    assert_eq!(consumed_bytes, input.find('\n').unwrap() + 1, "{input}");
}

#[test]
fn flags_are_read_in_any_order() {
    let get = meta("mg key s v R30 T60 N10 q b\r\n".replace("key", "a2V5").leak());
    let flags = get.flags();
    assert_eq!((get.verb, get.decoded_key().unwrap()), (MetaVerb::Get, b"key".to_vec()));
    assert_eq!((flags.recache, flags.exptime, flags.vivify), (Some(30), Some(60), Some(10)));
    assert!(flags.with_value && flags.is_quiet && flags.is_base64 && !flags.is_touched_first);
    assert!(meta("mg k T1 R2\r\n").flags().is_touched_first);
    let set = meta("ms k 3 F4294967297 C9 I MA T-1\r\nabc\r\n");
    let flags = set.flags();
    assert_eq!((set.value, flags.client_flags, flags.version), (&b"abc"[..], 1, Some(9)));
    assert_eq!((flags.mode, flags.exptime), (MetaMode::Append, Some(-1)));
    let count = meta("ma k M- D7 J3 N0\r\n").flags();
    assert_eq!((count.mode, count.delta, count.initial), (MetaMode::Decrease, 7, 3));
    assert_eq!(meta("ma k\r\n").flags().delta, 1);
    assert!(meta("md k x I\r\n").flags().removes_value);
    assert_eq!(meta("me k\r\n").verb, MetaVerb::Debug);
}

#[test]
fn wrong_lines_are_refused_as_memcached_refuses_them() {
    for verb in ["mg", "ms", "md", "ma"] {
        check_refused(&format!("{verb}\r\n"), Reply::Error, 0);
    }
    check_refused("me\r\n", Reply::BadFormat, 0);
    check_refused("mx k\r\n", Reply::Error, 0);
    check_refused(&format!("mg {} v\r\n", "k".repeat(251)), Reply::BadFormat, 0);
    check_refused("mg k v v\r\n", Reply::DuplicateFlag, 0);
    check_refused("mg k y\r\n", Reply::InvalidFlag, 0);
    check_refused("mg k x\r\n", Reply::InvalidFlag, 0);
    check_refused("mg k \u{ff}\r\n", Reply::DuplicateFlag, 0);
    check_refused("mg k Tx\r\n", Reply::BadToken, 0);
    check_refused("mg ! b\r\n", Reply::BadKey, 0);
    check_refused(&format!("mg k O{}\r\n", "x".repeat(32)), Reply::OpaqueTooLong, 0);
    check_refused(&format!("mg k{}\r\n", " s".repeat(18)), Reply::TooManyFlags, 0);
    check_refused(&format!("md k{}\r\n", " s".repeat(18)), Reply::TooManyFlagsToWrite, 0);
    check_refused("md k v v\r\n", Reply::InvalidOrDuplicateFlag, 0);
    check_refused("ma k Dx\r\n", Reply::InvalidOrDuplicateFlag, 0);
    check_refused("ma k MX\r\n", Reply::InvalidArithmeticMode, 0);
    check_refused("ms k\r\n", Reply::BadFormat, 0);
    check_refused("ms k x\r\n", Reply::BadFormat, 0);
    check_refused("ms k -1\r\n", Reply::BadFormat, 0);
    check_refused("ms k 3 Fx\r\n", Reply::BadFormat, 5);
    check_refused("ms k 3 Cx\r\n", Reply::BadToken, 5);
    check_refused("ms k 3 E\r\n", Reply::BadToken, 5);
    check_refused("mg k E18446744073709551616\r\n", Reply::BadToken, 0);
    check_refused("ms k 3 MX\r\n", Reply::InvalidSetMode, 5);
    check_refused("ms k 3 MXX\r\n", Reply::BadModeLength, 5);
    check_refused("ms k 1001 v\r\n", Reply::TooLarge, 1003);
}

#[test]
fn a_bad_block_is_read_to_its_length() {
    let (command, consumed_bytes) = read(b"ms k 3 q\r\nabcde\r\n");
    assert_eq!(command.unwrap_err().reply, Some(Reply::BadDataChunk));
    assert_eq!(consumed_bytes, "ms k 3 q\r\nabcde".len());
}

fn shown() -> MetaShown {
    MetaShown {
        len_bytes: 5,
        client_flags: 7,
        version: 99,
        expires_at: Some(UnixMillis(NOW.0 + 29_500)),
        is_read: false,
        idle_seconds: 3,
        is_created: false,
        is_won: false,
        is_stale: false,
        has_winner: false,
    }
}

#[track_caller]
fn check_hit(words: &str, shown: MetaShown, want: &str) {
    let mut note = Vec::new();
    let words = words.as_bytes();
    MetaEcho::note((MetaVerb::Get, words), (b"key", words.contains(&b'b')), 0, &mut note);
    let echo = MetaEcho::read(&note).unwrap();
    let mut out = Vec::new();
    Encoder::new(&mut out).meta_hit(&echo, &shown, NOW);
    assert_eq!(String::from_utf8(out).unwrap(), format!("{want}\r\n"));
}

#[test]
fn replies_answer_in_the_order_of_the_request() {
    check_hit("", shown(), "HD");
    check_hit("c v s f t k O9", shown(), "VA 5 c99 s5 f7 t30 kkey O9");
    check_hit("h l", shown(), "HD h0 l3");
    check_hit("l h v", MetaShown { is_read: true, ..shown() }, "VA 5 l3 h1");
    check_hit("k b s", shown(), "HD ka2V5 b s5");
    check_hit("t T60 q", shown(), "HD t30");
    check_hit("T60 t", shown(), "HD t60");
    check_hit("N60 t", MetaShown { expires_at: None, ..shown() }, "HD t-1");
    let made = MetaShown { is_created: true, is_won: true, expires_at: None, ..shown() };
    check_hit("N60 t", made, "HD t60 W");
    check_hit("", MetaShown { is_stale: true, is_won: true, ..shown() }, "HD X W");
    check_hit("", MetaShown { is_stale: true, has_winner: true, ..shown() }, "HD Z X");
}

proptest! {
    #[test]
    fn no_words_break_a_reply(
        words in "[ -~]{0,60}",
        key in prop::collection::vec(any::<u8>(), 1..99),
    ) {
        let mut note = Vec::new();
        MetaEcho::note((MetaVerb::Get, words.as_bytes()), (&key, true), 0, &mut note);
        let echo = MetaEcho::read(&note).unwrap();
        let mut out = Vec::new();
        Encoder::new(&mut out).meta_hit(&echo, &shown(), NOW);
        prop_assert!(out.ends_with(b"\r\n"));
        for cut in 0..note.len() {
            let _ = MetaEcho::read(&note[..cut]);
        }
    }

    #[test]
    fn a_line_that_is_taken_has_readable_flags(words in "( [A-Za-z][0-9A-Za-z]{0,3}){0,6}") {
        let line = format!("mg a2V5{words}\r\n");
        if let (Ok(Command::Meta(meta)), _) = read(line.as_bytes()) {
            let flags = meta.flags();
            prop_assert_eq!(flags.is_base64, meta.decoded_key().is_some());
        }
    }
}
