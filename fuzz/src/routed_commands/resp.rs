//! Redis commands and their replies.

use super::Bytes;
use super::model::{KEYS, Model};
use super::peer::{LIFE_SECONDS, Peer, Reply};

const NOT_INTEGER: &str = "-ERR value is not an integer or out of range\r\n";

/// The next command of a client.
pub(super) fn command(peer: &mut Peer, bytes: &mut Bytes<'_>) {
    let key = bytes.below(KEYS);
    match bytes.below(24) {
        0..8 => set(peer, bytes, key),
        8..11 => get(peer, key),
        11..13 => append(peer, bytes, key),
        13..15 => increment(peer, bytes, key),
        15 => delete(peer, key),
        16 => expire(peer, key),
        17 => persist(peer, key),
        18 => time_to_live(peer, key),
        19 => several(peer, bytes, key),
        20 => together(peer, bytes, key),
        21 => peer.ask("INCR everybody\r\n", Reply::Counted),
        22 => peer.ask_for("PING\r\n", "+PONG\r\n"),
        _ => set_if_absent(peer, bytes, key),
    }
}

/// A bulk string, or none.
pub(super) fn bulk(value: Option<&[u8]>) -> Vec<u8> {
    let Some(value) = value else { return b"$-1\r\n".to_vec() };
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn words(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| out.extend(bulk(Some(word))));
    out
}

fn held(model: &Model, key: usize) -> Vec<u8> {
    bulk(model.get(key).map(|value| &value.bytes[..]))
}

/// With conditions, expiries and the old value asked for, as the input says.
fn set(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, value, how) = (peer.model.name(key), bytes.value(), bytes.next());
    let mut text: Vec<&[u8]> = vec![b"SET", name.as_bytes(), &value];
    let has_old = peer.model.get(key).is_some();
    let applies = match how & 7 {
        0 => {
            text.push(b"NX");
            !has_old
        }
        1 => {
            text.push(b"XX");
            has_old
        }
        _ => true,
    };
    let life = LIFE_SECONDS.to_string();
    let expires = match how >> 3 & 7 {
        0 => {
            text.extend([&b"EX"[..], life.as_bytes()]);
            true
        }
        1 => {
            text.push(b"KEEPTTL");
            peer.model.get(key).is_some_and(|value| value.expires)
        }
        _ => false,
    };
    let wants_old = how >> 6 == 0;
    let reply = match (wants_old, applies) {
        (true, _) => held(&peer.model, key),
        (false, true) => b"+OK\r\n".to_vec(),
        (false, false) => bulk(None),
    };
    if wants_old {
        text.push(b"GET");
    }
    peer.ask_for(words(&text), reply);
    if applies {
        peer.model.set(key, value, expires);
    }
}

fn set_if_absent(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, value) = (peer.model.name(key), bytes.value());
    let applies = peer.model.get(key).is_none();
    let text = words(&[b"SETNX", name.as_bytes(), &value]);
    peer.ask_for(text, format!(":{}\r\n", u8::from(applies)));
    if applies {
        peer.model.set(key, value, false);
    }
}

fn get(peer: &mut Peer, key: usize) {
    peer.ask_for(format!("GET {}\r\n", peer.model.name(key)), held(&peer.model, key));
}

fn append(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, tail) = (peer.model.name(key), bytes.value());
    let mut value = peer.model.get(key).map(|value| value.bytes.clone()).unwrap_or_default();
    value.extend_from_slice(&tail);
    peer.ask_for(words(&[b"APPEND", name.as_bytes(), &tail]), format!(":{}\r\n", value.len()));
    peer.model.change(key, value);
}

fn increment(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, by) = (peer.model.name(key), i64::from(bytes.next()) - 100);
    let text = format!("INCRBY {name} {by}\r\n");
    let old = peer.model.get(key).map_or(Some(0), |value| {
        let text = std::str::from_utf8(&value.bytes).ok()?;
        text.parse::<i64>().ok().filter(|number| number.to_string() == text)
    });
    match old {
        None => peer.ask_for(text, NOT_INTEGER),
        Some(old) => match old.checked_add(by) {
            None => peer.ask_for(text, "-ERR increment or decrement would overflow\r\n"),
            Some(new) => {
                peer.ask_for(text, format!(":{new}\r\n"));
                peer.model.change(key, new.to_string().into_bytes());
            }
        },
    }
}

fn delete(peer: &mut Peer, key: usize) {
    let (name, was_there) = (peer.model.name(key), peer.model.remove(key).is_some());
    peer.ask_for(format!("DEL {name}\r\n"), format!(":{}\r\n", u8::from(was_there)));
}

fn expire(peer: &mut Peer, key: usize) {
    let text = format!("EXPIRE {} {LIFE_SECONDS}\r\n", peer.model.name(key));
    let was_there = peer.model.touch(key, true);
    peer.ask_for(text, format!(":{}\r\n", u8::from(was_there)));
}

fn persist(peer: &mut Peer, key: usize) {
    let text = format!("PERSIST {}\r\n", peer.model.name(key));
    let did = peer.model.get(key).is_some_and(|value| value.expires);
    if did {
        peer.model.touch(key, false);
    }
    peer.ask_for(text, format!(":{}\r\n", u8::from(did)));
}

fn time_to_live(peer: &mut Peer, key: usize) {
    let text = format!("TTL {}\r\n", peer.model.name(key));
    match peer.model.get(key) {
        None => peer.ask_for(text, ":-2\r\n"),
        Some(value) if !value.expires => peer.ask_for(text, ":-1\r\n"),
        Some(_) => {
            let most = LIFE_SECONDS as i64;
            peer.ask(text, Reply::Number(most - 3600..=most));
        }
    }
}

/// Commands on two keys: barriers.
fn several(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let other = (key + 1) % KEYS;
    let (name, other_name) = (peer.model.name(key), peer.model.name(other));
    if bytes.below(2) == 0 {
        let reply = [b"*2\r\n".to_vec(), held(&peer.model, key), held(&peer.model, other)];
        return peer.ask_for(format!("MGET {name} {other_name}\r\n"), reply.concat());
    }
    let (value, other_value) = (bytes.value(), bytes.value());
    let text = [b"MSET", name.as_bytes(), &value, other_name.as_bytes(), &other_value];
    peer.ask_for(words(&text), "+OK\r\n");
    peer.model.set(key, value, false);
    peer.model.set(other, other_value, false);
}

/// A transaction.
fn together(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, value) = (peer.model.name(key), bytes.value());
    let set = words(&[b"SET", name.as_bytes(), &value]);
    let rest = format!("GET {name}\r\nEXEC\r\n");
    let text = [&b"MULTI\r\n"[..], &set, rest.as_bytes()];
    peer.model.set(key, value, false);
    let reply = [b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n".to_vec(), held(&peer.model, key)];
    peer.ask_for(text.concat(), reply.concat());
}
