//! RESP: any bytes, in one piece and in many.

use wire::Parsed;
use wire::resp::{
    Command, CommandError, KeyCommand, LexBound, Limits, Parser, ProtocolError, RangeRequest,
    ServerCommand, StringCommand, next_command, parse_hot,
};

use crate::cuts::check_cuts;

/// What came out of the stream, in order.
#[derive(Debug, PartialEq)]
enum Event<'a> {
    Command(Command<'a>),
    Refused(Vec<u8>),
    Bad(ProtocolError),
}

/// Reads commands until the stream ends or breaks. Properties: progress within bounds, the same
/// commands however the stream is cut, the short way like the long way, one line per error.
pub fn resp_commands(data: &[u8]) {
    let Some((seed, stream)) = data.split_first() else { return };
    // Small limits, so that small inputs reach them.
    let limits = Limits { args_max: 20, inline_max_bytes: 200, ..Limits::new(300) };
    let limits = if seed % 4 == 3 { limits.before_auth() } else { limits };
    check_cuts(stream.len(), (*seed, 9), |grow| read(stream, &limits, grow));
}

fn read<'a>(
    stream: &'a [u8],
    limits: &Limits,
    grow: &mut dyn FnMut(usize) -> usize,
) -> Vec<Event<'a>> {
    let mut events = Vec::new();
    let mut parser = Parser::default();
    let mut start = 0;
    let mut end = grow(0).min(stream.len());
    loop {
        let input = &stream[start..end];
        let hot = parse_hot(input, limits);
        match next_command(&mut parser, input, limits) {
            Parsed::Done { value, consumed_bytes } => {
                assert!(0 < consumed_bytes && consumed_bytes <= input.len(), "I2");
                assert!(!parser.is_midway(), "a command leaves nothing behind");
                if let Some(hot) = hot {
                    check_hot(hot, &input[..consumed_bytes], limits);
                }
                start += consumed_bytes;
                events.push(match value {
                    Ok(command) => {
                        check_command(&command, limits);
                        Event::Command(command)
                    }
                    Err(error) => Event::Refused(check_refusal(&error)),
                });
            }
            Parsed::NeedMore { at_least_bytes } => {
                assert!(at_least_bytes > input.len(), "I3");
                assert!(hot.is_none());
                if end == stream.len() {
                    return events;
                }
                end = grow(end).min(stream.len());
            }
            Parsed::Bad(error @ ProtocolError::BulkTooLarge { .. }) => {
                events.push(Event::Bad(error));
                let mut discard = parser.give_up().expect("the command has a header");
                assert!(!parser.is_midway());
                while !discard.has_ended() {
                    match discard.skip(&stream[start..end], limits) {
                        Ok(skipped_bytes) => start += skipped_bytes,
                        Err(error) => {
                            events.push(Event::Bad(error));
                            return events;
                        }
                    }
                    if !discard.has_ended() && end == stream.len() {
                        return events;
                    }
                    end = grow(end).min(stream.len());
                }
            }
            Parsed::Bad(error) => {
                let mut out = Vec::new();
                error.encode(&mut out);
                check_line(&out);
                events.push(Event::Bad(error));
                return events;
            }
        }
    }
}

/// The long way must read the same.
fn check_hot((command, consumed_bytes): (Command<'_>, usize), input: &[u8], limits: &Limits) {
    let Parsed::Done { value, consumed_bytes: consumed } = Parser::default().parse(input, limits)
    else {
        panic!("the short way read what the long way does not");
    };
    assert_eq!(consumed, consumed_bytes);
    assert_eq!(Command::from_args(&value).expect("it is well formed"), command);
}

fn check_command(command: &Command<'_>, limits: &Limits) {
    match command {
        Command::Empty => assert_eq!(command.id(), None),
        Command::Quoted(line) => {
            let mut rewritten = Vec::new();
            line.rewrite(&mut rewritten);
            // A line holds more words than a small multibulk may; the rewriting is not input.
            let limits = Limits { before_auth: false, ..Limits::new(limits.inline_max_bytes) };
            match next_command(&mut Parser::default(), &rewritten, &limits) {
                Parsed::Done { value, consumed_bytes } => {
                    assert_eq!(consumed_bytes, rewritten.len());
                    assert!(!matches!(value, Ok(Command::Quoted(_) | Command::Empty)));
                }
                other => panic!("a rewritten line is a command: {other:?}"),
            }
        }
        _ => {
            assert!(command.id().is_some());
            check_lists(command);
        }
    }
}

/// Lists are as long as they say.
fn check_lists(command: &Command<'_>) {
    match command {
        Command::String(StringCommand::MGet { keys })
        | Command::Key(KeyCommand::Del { keys, .. })
        | Command::Server(ServerCommand::CommandGetKeys { keys }) => {
            assert!(!keys.is_empty());
            assert_eq!(keys.count(), keys.len());
        }
        Command::String(StringCommand::MSet { pairs })
        | Command::String(StringCommand::MSetNx { pairs }) => {
            assert_eq!(pairs.count(), pairs.len());
            assert!(pairs.keys().eq(pairs.map(|(key, _)| key)));
        }
        Command::Server(ServerCommand::Info { sections: list })
        | Command::Server(ServerCommand::CommandDocs { names: list }) => {
            assert_eq!(list.count(), list.len());
        }
        Command::Key(KeyCommand::KvRange(range)) => check_bounds(range),
        _ => {}
    }
}

/// An accepted range has two bounds, and a key of any bytes stands in them as it is.
fn check_bounds(range: &RangeRequest<'_>) {
    for bound in [range.start(), range.end()] {
        let written = match bound {
            LexBound::Lowest => b"-".to_vec(),
            LexBound::Highest => b"+".to_vec(),
            LexBound::Included(key) => [b"[", key].concat(),
            LexBound::Excluded(key) => [b"(", key].concat(),
        };
        assert_eq!(LexBound::parse(&written), Some(bound));
    }
}

fn check_refusal(error: &CommandError<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    error.encode(&mut out);
    if !matches!(error, CommandError::CrossProtocol) {
        check_line(&out);
    }
    out
}

/// An error is exactly one line, whatever bytes it quotes.
fn check_line(reply: &[u8]) {
    assert!(reply.starts_with(b"-") && reply.ends_with(b"\r\n"), "{reply:?}");
    let text = &reply[..reply.len() - 2];
    assert!(!text.contains(&b'\r') && !text.contains(&b'\n'), "{reply:?}");
}
