//! memcached's commands and their replies.

use wire::memcached::meta::base64;

use super::Bytes;
use super::model::KEYS;
use super::peer::{LIFE_SECONDS, Peer, Reply};

/// The next command of a client.
pub(super) fn command(peer: &mut Peer, bytes: &mut Bytes<'_>) {
    let key = bytes.below(KEYS);
    match bytes.below(16) {
        0..7 => store(peer, bytes, key),
        7..9 => get(peer, key),
        9 | 10 => get_with_token(peer, key),
        11 | 12 => store_with_token(peer, bytes),
        13 => delete(peer, key),
        14 => increment(peer, bytes, key),
        _ => match bytes.below(4) {
            0 => touch(peer, key),
            1 => meta_get(peer, bytes, key),
            2 => meta_store(peer, bytes, key),
            _ => meta_delete(peer, bytes, key),
        },
    }
}

/// The reply to a get.
pub(super) fn block(name: &str, value: Option<&[u8]>) -> Vec<u8> {
    let Some(value) = value else { return b"END\r\n".to_vec() };
    [format!("VALUE {name} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
}

fn storing(verb: &str, name: &str, rest: &str, value: &[u8]) -> Vec<u8> {
    let line = format!("{verb} {name} 0 0 {}{rest}\r\n", value.len());
    [line.as_bytes(), value, b"\r\n"].concat()
}

/// set, add, replace, append and prepend.
fn store(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, value) = (peer.model.name(key), bytes.value());
    let old = peer.model.get(key).map(|value| value.bytes.clone());
    let (verb, new) = match (bytes.below(8), old) {
        (0, None) => ("add", Some(value.clone())),
        (0, Some(_)) => ("add", None),
        (1, old) => ("replace", old.map(|_| value.clone())),
        (2, old) => ("append", old.map(|old| [&old[..], &value].concat())),
        (3, old) => ("prepend", old.map(|old| [&value[..], &old].concat())),
        _ => ("set", Some(value.clone())),
    };
    let reply = if new.is_some() { "STORED\r\n" } else { "NOT_STORED\r\n" };
    peer.ask_for(storing(verb, &name, "", &value), reply);
    match new {
        None => {}
        Some(new) if matches!(verb, "append" | "prepend") => peer.model.change(key, new),
        Some(new) => peer.model.set(key, new, false),
    }
}

fn get(peer: &mut Peer, key: usize) {
    let name = peer.model.name(key);
    let reply = block(&name, peer.model.get(key).map(|value| &value.bytes[..]));
    peer.ask_for(format!("get {name}\r\n"), reply);
}

fn get_with_token(peer: &mut Peer, key: usize) {
    let text = format!("gets {}\r\n", peer.model.name(key));
    match peer.model.get(key).cloned() {
        None => peer.ask_for(text, "END\r\n"),
        Some(value) => {
            peer.ask(text, Reply::WithToken { key, version: value.version, block: value.bytes });
        }
    }
}

/// A cas with the last token that was answered: its key may have changed since.
fn store_with_token(peer: &mut Peer, bytes: &mut Bytes<'_>) {
    let Some(token) = peer.token else { return };
    let (name, value) = (peer.model.name(token.key), bytes.value());
    let version = peer.model.get(token.key).map(|value| value.version);
    let reply = match version {
        None => "NOT_FOUND\r\n",
        Some(version) if version == token.version => "STORED\r\n",
        Some(_) => "EXISTS\r\n",
    };
    peer.ask_for(storing("cas", &name, &format!(" {}", token.token), &value), reply);
    if version == Some(token.version) {
        peer.model.set(token.key, value, false);
    }
}

fn delete(peer: &mut Peer, key: usize) {
    let (name, was_there) = (peer.model.name(key), peer.model.remove(key).is_some());
    let reply = if was_there { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
    peer.ask_for(format!("delete {name}\r\n"), reply);
}

fn increment(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let by = u64::from(bytes.next());
    let text = format!("incr {} {by}\r\n", peer.model.name(key));
    let Some(value) = peer.model.get(key) else { return peer.ask_for(text, "NOT_FOUND\r\n") };
    let digits = std::str::from_utf8(&value.bytes).ok().filter(|text| text.len() < 19);
    if value.bytes.is_empty() || (value.bytes.len() >= 19 && value.bytes[0].is_ascii_digit()) {
        return; // Not worth a model.
    }
    match digits.and_then(|digits| digits.parse::<u64>().ok()) {
        None => {
            peer.ask_for(text, "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n")
        }
        Some(old) => {
            let new = (old + by).to_string();
            peer.ask_for(text, format!("{new}\r\n"));
            peer.model.change(key, new.into_bytes());
        }
    }
}

fn touch(peer: &mut Peer, key: usize) {
    let text = format!("touch {} {LIFE_SECONDS}\r\n", peer.model.name(key));
    let reply = if peer.model.touch(key, true) { "TOUCHED\r\n" } else { "NOT_FOUND\r\n" };
    peer.ask_for(text, reply);
}

/// A key as a meta command names it, and its flag.
fn meta_name(peer: &Peer, bytes: &mut Bytes<'_>, key: usize) -> (String, &'static str) {
    let name = peer.model.name(key);
    if bytes.below(2) == 0 {
        return (name, "");
    }
    let mut text = Vec::new();
    base64::encode(name.as_bytes(), &mut text);
    (String::from_utf8(text).expect("letters"), " b")
}

fn meta_get(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, flag) = meta_name(peer, bytes, key);
    let opaque = bytes.next();
    let reply = match peer.model.get(key) {
        None => format!("EN O{opaque} k{name}{flag}\r\n").into_bytes(),
        Some(value) => {
            let len = value.bytes.len();
            let line = format!("VA {len} O{opaque} s{len} k{name}{flag}\r\n");
            [line.as_bytes(), &value.bytes, b"\r\n"].concat()
        }
    };
    peer.ask_for(format!("mg {name}{flag} O{opaque} s v k\r\n"), reply);
}

fn meta_store(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let ((name, flag), opaque) = (meta_name(peer, bytes, key), bytes.next());
    let value = bytes.value();
    let line = format!("ms {name} {}{flag} k O{opaque}\r\n", value.len());
    let reply = format!("HD k{name}{flag} O{opaque}\r\n");
    peer.ask_for([line.as_bytes(), &value, b"\r\n"].concat(), reply);
    peer.model.set(key, value, false);
}

fn meta_delete(peer: &mut Peer, bytes: &mut Bytes<'_>, key: usize) {
    let (name, flag) = meta_name(peer, bytes, key);
    let status = if peer.model.remove(key).is_some() { "HD" } else { "NF" };
    peer.ask_for(format!("md {name}{flag} Ox\r\n"), format!("{status} Ox\r\n"));
}
