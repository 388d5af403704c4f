//! A client's framed commands are parsed back, for random commands cut at random places.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Parsed, memcached, resp};

/// A multibulk of these arguments.
fn frame(args: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = resp::Encoder::new(&mut out, resp::Protocol::Resp2);
    encoder.array_header(args.len());
    for arg in args {
        encoder.bulk(arg);
    }
    out
}

/// An inline command with these arguments: every byte written as an escape.
fn frame_inline(args: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for arg in args {
        out.push(b'"');
        arg.iter().for_each(|byte| out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()));
        out.extend_from_slice(b"\" ");
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// All commands of `stream`, as lists of arguments, read in pieces of `piece_bytes`.
fn read_all(stream: &[u8], piece_bytes: usize) -> Vec<Vec<Vec<u8>>> {
    let limits = resp::Limits::default();
    let mut parser = resp::Parser::default();
    let mut commands = Vec::new();
    let (mut start, mut end) = (0, 0);
    while start < stream.len() {
        match parser.parse(&stream[start..end], &limits) {
            Parsed::Done { value, consumed_bytes } => {
                start += consumed_bytes;
                commands.push(value.iter().map(<[u8]>::to_vec).collect());
            }
            Parsed::NeedMore { .. } => end = (end + piece_bytes).min(stream.len()),
            Parsed::Bad(error) => panic!("{error}"),
        }
    }
    commands
}

fn arguments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 0..40), 1..12)
}

proptest! {
    #[test]
    fn pipelined_multibulks_come_out_as_they_went_in(
        commands in vec(arguments(), 1..5),
        piece_bytes in 1_usize..50,
    ) {
        let stream: Vec<u8> = commands.iter().flat_map(|args| frame(args)).collect();
        prop_assert_eq!(read_all(&stream, piece_bytes), commands);
    }

    #[test]
    fn escaped_inline_commands_mean_the_same_as_multibulks(args in arguments()) {
        let line = frame_inline(&args);
        let mut parser = resp::Parser::default();
        let answer = parser.parse(&line, &resp::Limits::default());
        let Parsed::Done { value, consumed_bytes } = answer else {
            return Err(TestCaseError::fail("the line is complete"));
        };
        prop_assert_eq!(consumed_bytes, line.len());
        prop_assert_eq!(value.len(), args.len());
        if let Some(quoted) = value.quoted_line() {
            let mut rewritten = Vec::new();
            quoted.rewrite(&mut rewritten);
            prop_assert_eq!(rewritten, frame(&args));
        } else {
            prop_assert!(args.iter().all(Vec::is_empty), "only empty words need no rewriting");
        }
    }

    #[test]
    fn noise_never_panics(noise in vec(any::<u8>(), 0..300)) {
        let limits = resp::Limits::default();
        let _ = resp::next_command(&mut resp::Parser::default(), &noise, &limits);
        let limits = memcached::Limits::default();
        let _ = memcached::next_command(&mut memcached::Parser::default(), &noise, &limits);
    }

    #[test]
    fn stored_values_come_out_as_they_went_in(
        key in "[!-~]{1,250}",
        value in vec(any::<u8>(), 0..300),
        flags in any::<u32>(),
        exptime in any::<i64>(),
        cas in any::<u64>(),
    ) {
        let line = format!("cas {key} {flags} {exptime} {} {cas}\r\n", value.len());
        let mut input = line.into_bytes();
        input.extend_from_slice(&value);
        input.extend_from_slice(b"\r\n");
        let limits = memcached::Limits::default();
        let answer = memcached::next_command(&mut memcached::Parser::default(), &input, &limits);
        let want = memcached::Store {
            verb: memcached::StoreVerb::Cas(cas),
            key: key.as_bytes(),
            flags,
            exptime,
            value: &value,
            noreply: false,
        };
        let command = Ok(memcached::Command::Store(want));
        let want = Parsed::Done { value: command, consumed_bytes: input.len() };
        prop_assert_eq!(answer, want);
    }
}
