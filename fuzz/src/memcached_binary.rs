//! memcached's binary protocol: any bytes, in one piece and in many.

use wire::Parsed;
use wire::memcached::Limits;
use wire::memcached::binary::{
    Access, Encoder, HEADER_BYTES, InvalidMagic, Refusal, Request, Rules, next_request,
};

use crate::cuts::check_cuts;

/// What came out of the stream, in order.
#[derive(Debug, PartialEq)]
enum Event<'a> {
    Request(Request<'a>),
    Refused(Refusal<'a>),
    Bad(InvalidMagic),
}

/// Reads requests until the stream ends or breaks. Properties: progress within bounds, the same
/// requests however the stream is cut, keys and values within the limits.
pub fn memcached_binary(data: &[u8]) {
    let Some((seed, stream)) = data.split_first() else { return };
    let access = [Access::Free, Access::Stranger, Access::Known][usize::from(seed % 3)];
    // A small limit, so that small inputs reach it.
    let rules = Rules { value_max_bytes: 100, access };
    check_cuts(stream.len(), (*seed, 30), |grow| read(stream, &rules, grow));
}

fn read<'a>(
    stream: &'a [u8],
    rules: &Rules,
    grow: &mut dyn FnMut(usize) -> usize,
) -> Vec<Event<'a>> {
    let mut events = Vec::new();
    let mut start = 0_usize;
    let mut end = grow(0).min(stream.len());
    loop {
        // Bytes that are to be skipped may not have arrived yet.
        let input = stream.get(start..end).unwrap_or_default();
        match next_request(input, rules) {
            Parsed::Done { value, consumed_bytes } => {
                assert!(HEADER_BYTES <= consumed_bytes && consumed_bytes <= input.len(), "I2");
                start += consumed_bytes;
                match value {
                    Ok(request) => {
                        check(&request, rules);
                        events.push(Event::Request(request));
                    }
                    Err(refusal) => {
                        start = start.saturating_add(refusal.swallow_bytes as usize);
                        let closes = refusal.closes;
                        events.push(Event::Refused(refusal));
                        if closes {
                            return events;
                        }
                    }
                }
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

/// What the parser has taken keeps to the limits and can be answered.
fn check(request: &Request<'_>, rules: &Rules) {
    assert!(request.key.len() <= Limits::KEY_MAX_BYTES);
    if request.verb.is_on_one_key() {
        assert!(!request.key.is_empty() && request.value.len() <= rules.value_max_bytes);
        assert_ne!(rules.access, Access::Stranger, "a client without a login gets at no key");
    }
    let exptime = request.exptime();
    assert!(exptime >= 0 && request.initial().is_none_or(|_| exptime < i64::from(u32::MAX)));
    let mut out = Vec::new();
    Encoder::new(&mut out, request.head).item_front(request.flags(), request.cas, request.key, 0);
    assert_eq!(out.len(), HEADER_BYTES + 4 + request.key.len());
}
