//! memcached text: any bytes, in one piece and in many.

use wire::Parsed;
use wire::memcached::{
    Command, Encoder, Limits, Meta, MetaEcho, MetaShown, MetaVerb, Parser, ProtocolError,
    Rejection, next_command,
};

use crate::cuts::check_cuts;

/// What came out of the stream, in order.
#[derive(Debug, PartialEq)]
enum Event<'a> {
    Command(Command<'a>),
    Refused(Rejection<'a>),
    Bad(ProtocolError),
}

/// Reads commands until the stream ends or breaks. Properties: progress within bounds, the same
/// commands however the stream is cut, keys and data blocks within the limits.
pub fn memcached_text(data: &[u8]) {
    let Some((seed, stream)) = data.split_first() else { return };
    // Small limits, so that small inputs reach them.
    let limits = Limits { value_max_bytes: 100, get_line_max_bytes: 2500 };
    check_cuts(stream.len(), (*seed, 9), |grow| read(stream, &limits, grow));
}

fn read<'a>(
    stream: &'a [u8],
    limits: &Limits,
    grow: &mut dyn FnMut(usize) -> usize,
) -> Vec<Event<'a>> {
    let mut events = Vec::new();
    let mut parser = Parser::default();
    let mut start = 0_usize;
    let mut end = grow(0).min(stream.len());
    loop {
        // Bytes that are to be skipped may not have arrived yet.
        let input = stream.get(start..end).unwrap_or_default();
        match next_command(&mut parser, input, limits) {
            Parsed::Done { value, consumed_bytes } => {
                assert!(0 < consumed_bytes && consumed_bytes <= input.len(), "I2");
                assert!(!parser.is_midway(), "a command leaves nothing behind");
                start += consumed_bytes;
                events.push(match value {
                    Ok(command) => {
                        check_command(&command, limits);
                        Event::Command(command)
                    }
                    Err(rejection) => {
                        start = start.saturating_add(rejection.swallow_bytes as usize);
                        Event::Refused(rejection)
                    }
                });
            }
            Parsed::NeedMore { at_least_bytes } => {
                assert!(at_least_bytes > input.len(), "I3");
                if end == stream.len() {
                    return events;
                }
                end = grow(end).min(stream.len());
            }
            Parsed::Bad(error) => {
                events.push(Event::Bad(error));
                return events;
            }
        }
    }
}

fn check_command(command: &Command<'_>, limits: &Limits) {
    match command {
        Command::Get(retrieve) => {
            assert!(retrieve.keys.count() > 0);
            retrieve.keys.for_each(check_key);
        }
        Command::GetAndTouch { retrieve, .. } => retrieve.keys.for_each(check_key),
        Command::Store(store) => {
            check_key(store.key);
            assert!(store.value.len() <= limits.value_max_bytes);
        }
        Command::Delete(delete) => check_key(delete.key),
        Command::Arithmetic(arithmetic) => check_key(arithmetic.key),
        Command::Touch(touch) => check_key(touch.key),
        Command::Meta(meta) => check_meta(meta, limits),
        _ => {}
    }
}

/// What the parser has taken can be answered, from any note.
fn check_meta(meta: &Meta<'_>, limits: &Limits) {
    check_key(meta.key);
    assert!(meta.value.len() <= limits.value_max_bytes);
    let flags = meta.flags();
    let decoded = meta.decoded_key();
    assert_eq!(flags.is_base64 && meta.verb != MetaVerb::Debug, {
        decoded.is_some() && meta.verb != MetaVerb::Debug
    });
    let key = decoded.as_deref().unwrap_or(meta.key);
    assert!(!key.is_empty());
    let mut note = Vec::new();
    MetaEcho::note((meta.verb, meta.words), (key, flags.is_base64), 0, &mut note);
    let echo = MetaEcho::read(&note).expect("what was noted can be read");
    let mut out = Vec::new();
    let shown = MetaShown {
        len_bytes: meta.value.len(),
        client_flags: flags.client_flags,
        version: 1,
        expires_at: None,
        is_read: true,
        idle_seconds: u64::MAX,
        is_created: true,
        is_won: true,
        is_stale: true,
        has_winner: true,
    };
    Encoder::new(&mut out).meta_hit(&echo, &shown, base::UnixMillis(1));
    Encoder::new(&mut out).meta_number(&echo, b"1", &shown, base::UnixMillis(1));
    assert!(out.ends_with(b"\r\n"));
    MetaEcho::read(meta.words);
}

fn check_key(key: &[u8]) {
    assert!(!key.is_empty() && key.len() <= Limits::KEY_MAX_BYTES);
    assert!(!key.iter().any(|byte| matches!(byte, b' ' | b'\n' | 0)));
}
