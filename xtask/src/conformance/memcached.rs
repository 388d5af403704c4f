//! Conformance of memcached's protocols: text, meta and binary, against the real memcached.
//!
//! ```text
//!  seed ─▶ steps ─┬─▶ dovetail  ─┐ replies up to a fence: a command behind each step whose
//!                 └─▶ memcached ─┴ answer nothing else gives
//! ```
//!
//! A step may be several commands, and is sent in one piece or in several. CAS tokens belong to
//! each server: a step marks the place of a token ([`TOKEN`]), and each server gets the last token
//! that it returned for the step's key. Tokens and the seconds until an expiry are not compared,
//! nor the fields of `me` that describe memcached's own memory.

mod binary;
mod meta;
mod text;
mod wire;

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use super::Protocol;
use super::rng::Rng;
use super::servers::Ports;
use super::shrink::shrink;
use wire::Wire;

/// Stands for a token: as long as one of the binary protocol.
const TOKEN: &[u8; 8] = b"<token!>";

/// A token that no item has.
const NO_TOKEN: u64 = 1 << 60;

/// The only key for incr and decr. Whether memcached pads a number that has become shorter depends
/// on whether its own threads hold the item just then: so no bytes are appended to that key, and
/// its replies are compared without the padding.
const NUMBER: &[u8] = b"n";

/// Steps of a session.
const STEPS: usize = 150;

/// The most attempts to shrink a session.
const SHRINK_MAX: usize = 300;

/// memcached counts in seconds: an item with a lifetime of one second is gone after this many
/// milliseconds.
const PAUSE_MS: u64 = 2_100;

/// A step: the bytes that are sent before the next replies are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Step {
    bytes: Vec<u8>,
    /// The key of [`TOKEN`], and of a token in the reply.
    key: Vec<u8>,
    /// Commands in it.
    count: u64,
    /// The number of pieces in which it is sent.
    pieces: usize,
    /// Whether the server closes the connection after it.
    closes: bool,
    /// Whether it sets a new time: that changes the token here, but not in memcached.
    touches: bool,
    /// Whether memcached, if this fails, drops the replies to earlier commands in the same piece.
    stands_alone: bool,
    /// Whether it has commands on several keys, whose tokens are not separated.
    is_many: bool,
    /// The pause after the replies.
    pause_ms: u64,
}

impl Step {
    fn of(key: &[u8], bytes: Vec<u8>) -> Step {
        Step { bytes, key: key.to_vec(), count: 1, pieces: 1, ..Step::default() }
    }

    fn may_be_one_of_many(&self) -> bool {
        let has_token = self.bytes.windows(TOKEN.len()).any(|it| it == TOKEN);
        !has_token && !self.closes && !self.stands_alone
    }

    fn with(&self, token: u64, protocol: Protocol) -> Vec<u8> {
        let decimal = token.to_string();
        let big_endian = token.to_be_bytes();
        let token = if protocol == Protocol::Binary { &big_endian[..] } else { decimal.as_bytes() };
        let mut bytes = Vec::new();
        let mut rest = &self.bytes[..];
        while let Some(at) = rest.windows(TOKEN.len()).position(|it| it == TOKEN) {
            bytes.extend_from_slice(&rest[..at]);
            bytes.extend_from_slice(token);
            rest = &rest[at + TOKEN.len()..];
        }
        bytes.extend_from_slice(rest);
        bytes
    }
}

/// The session of a seed.
fn make(seed: u64, protocol: Protocol) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let draw = match protocol {
        Protocol::Text => text::step,
        Protocol::Meta => meta::step,
        _ => binary::step,
    };
    let mut steps = Vec::new();
    // Only few sessions wait for seconds to pass.
    let pause_at = rng.one_in(40).then(|| rng.below(STEPS));
    while steps.len() < STEPS {
        let mut step = draw(&mut rng);
        if rng.one_in(10) {
            for _ in 0..rng.below(8) {
                let more = draw(&mut rng);
                if ![&step, &more].iter().all(|step| step.may_be_one_of_many()) {
                    break;
                }
                step.bytes.extend(more.bytes);
                step.count += more.count;
                step.is_many = true;
            }
        }
        if rng.one_in(8) {
            step.pieces = 1 + rng.below(6);
        }
        if pause_at == Some(steps.len()) {
            step = text::short_lived(protocol);
            step.pause_ms = PAUSE_MS;
        }
        steps.push(step);
    }
    steps
}

/// The result of a session.
pub struct Checked {
    pub commands: u64,
    /// The shrunk difference, as readable text.
    pub difference: Option<String>,
}

/// Runs the session of a seed against both servers.
pub fn check(ports: Ports, seed: u64, protocol: Protocol) -> Result<Checked> {
    let session = make(seed, protocol);
    let commands = session.iter().map(|step| step.count).sum();
    let Some(first) = compare(ports, &session, protocol)? else {
        return Ok(Checked { commands, difference: None });
    };
    let (session, difference) = shrink(
        session,
        first,
        |found| found.step,
        SHRINK_MAX,
        |fewer, _| {
            let found = compare(ports, fewer, protocol)?;
            Ok(found.filter(|found| found.step + 1 == fewer.len()))
        },
    )?;
    let mut shown = String::from("difference:\n");
    for step in &session[..=difference.step] {
        let cut = step.bytes.len().min(600);
        writeln!(shown, "  {} x{}", step.bytes[..cut].escape_ascii(), step.pieces)?;
    }
    writeln!(shown, "  ours   {}", difference.ours.escape_ascii())?;
    write!(shown, "  theirs {}", difference.theirs.escape_ascii())?;
    Ok(Checked { commands, difference: Some(shown) })
}

/// The first difference between two servers.
struct Difference {
    step: usize,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

/// One server's side of a session.
struct Side {
    port: u16,
    wire: Wire,
    tokens: HashMap<Vec<u8>, u64>,
    protocol: Protocol,
}

impl Side {
    fn begin(port: u16, protocol: Protocol) -> Result<Side> {
        let wire = Wire::connect(port)?;
        let mut side = Side { port, wire, tokens: HashMap::new(), protocol };
        let flush = match protocol {
            Protocol::Binary => binary::flush(),
            _ => b"flush_all\r\n".to_vec(),
        };
        side.send(&Step::of(b"", flush));
        side.receive(&Step::default())?;
        Ok(side)
    }

    fn send(&mut self, step: &Step) {
        let token = self.tokens.get(&step.key).copied().unwrap_or(NO_TOKEN);
        let bytes = step.with(token, self.protocol);
        let piece_len = bytes.len().div_ceil(step.pieces.max(1)).max(1);
        bytes.chunks(piece_len).for_each(|piece| self.wire.send(piece));
        if !step.closes {
            self.wire.send(&wire::fence(self.protocol));
        }
    }

    /// The part of the replies to compare.
    fn receive(&mut self, step: &Step) -> Result<Vec<u8>> {
        if step.touches {
            self.tokens.remove(&step.key);
        }
        let tokens = &mut self.tokens;
        let mut told = |key: Option<&[u8]>, token: u64| {
            tokens.insert(key.unwrap_or(&step.key).to_vec(), token);
        };
        let (reply, is_open) = self.wire.receive(self.protocol, &mut told)?;
        if step.is_many {
            self.tokens.clear();
        }
        if !is_open {
            self.wire = Wire::connect(self.port)?;
        }
        Ok(reply)
    }
}

fn compare(ports: Ports, session: &[Step], protocol: Protocol) -> Result<Option<Difference>> {
    let mut left = Side::begin(ports.ours, protocol)?;
    let mut right = Side::begin(ports.theirs, protocol)?;
    for (index, step) in session.iter().enumerate() {
        left.send(step);
        right.send(step);
        let (ours, theirs) = (left.receive(step)?, right.receive(step)?);
        if ours != theirs {
            return Ok(Some(Difference { step: index, ours, theirs }));
        }
        if step.pause_ms > 0 {
            std::thread::sleep(Duration::from_millis(step.pause_ms));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_depends_on_its_seed_alone() {
        for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
            assert_eq!(make(7, protocol), make(7, protocol));
            assert_ne!(make(7, protocol), make(8, protocol));
        }
    }

    #[test]
    fn tokens_are_put_in_as_the_protocol_writes_them() {
        let step = Step::of(b"k", b"mg k C<token!> E<token!>".to_vec());
        assert_eq!(step.with(258, Protocol::Meta), b"mg k C258 E258");
        let step = Step::of(b"k", b"..<token!>".to_vec());
        assert_eq!(step.with(258, Protocol::Binary), b"..\0\0\0\0\0\0\x01\x02");
    }
}
