//! Steps of the meta protocol.

use super::text::VALUES;
use super::{NUMBER, Step, TOKEN};
use crate::conformance::rng::Rng;

/// The last one is in base64.
const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", BASE64];
const BASE64: &[u8] = b"ZCBl";

/// The arguments of flags.
fn flag(letter: u8, rng: &mut Rng) -> Vec<u8> {
    let tokens: &[&[u8]] = match letter {
        b'T' => &[b"T0", b"T0", b"T2000000000", b"T9000", b"T-1"],
        b'N' => &[b"N0", b"N9000"],
        b'R' => &[b"R0", b"R30", b"R9999"],
        b'O' => &[b"O1", b"Oopaque", b"Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"],
        b'F' => &[b"F0", b"F5", b"F4294967295"],
        b'C' => &[b"C<token!>", b"C<token!>", b"C99999999999"],
        b'M' => &[b"MS", b"ME", b"MA", b"MP", b"MR", b"MX"],
        b'm' => &[b"MI", b"MD", b"M+", b"M-", b"MZ"],
        b'J' => &[b"J13", b"Jx"],
        b'D' => &[b"D1", b"D100000", b"Dx"],
        // No time in the past, for which memcached recaches a missing item.
        b'Z' => &[b"T0", b"T9000"],
        letter => return vec![letter],
    };
    rng.pick(tokens).to_vec()
}

/// Some of the flags in any order; rarely one that does not belong there.
fn flags(letters: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    for letter in letters {
        if rng.one_in(4) {
            let at = rng.below(words.len() + 1);
            words.insert(at, flag(*letter, rng));
        }
    }
    if rng.one_in(30) {
        let odd: [&[u8]; 9] = [b"y", b"Z1", b"\x7f", b"b", b"F", b"Tx", b"MMM", b"v1", b"q"];
        words.push(rng.pick(&odd).to_vec());
    }
    if rng.one_in(60)
        && let Some(first) = words.first().cloned()
    {
        words.push(first);
    }
    words.iter().flat_map(|word| [b" ", &word[..]].concat()).collect()
}

/// A valid or damaged command.
pub fn step(rng: &mut Rng) -> Step {
    if rng.one_in(4) { counting(rng) } else { storing(rng) }
}

fn set(key: &[u8], value: &[u8], flags: &[u8]) -> Vec<u8> {
    [b"ms ", key, b" ", value.len().to_string().as_bytes(), flags, b"\r\n", value, b"\r\n"].concat()
}

/// A command on a key of its own: whether counting clears marks depends on which client has read
/// the number recently.
fn counting(rng: &mut Rng) -> Step {
    let bytes = match rng.below(5) {
        // T of a number that has become longer goes to the old item of memcached.
        0 => [b"ma n c", &flags(b"kOqvtCNJDm", rng)[..], b"\r\n"].concat(),
        1 => b"ma n c v N0 J5\r\n".to_vec(),
        2 => set(b"n", rng.pick(&VALUES), b" c"),
        3 => b"mg n c t\r\n".to_vec(),
        _ => b"md n q\r\n".to_vec(),
    };
    // A number that memcached still has to send is counted in a copy, which has no marks.
    Step { stands_alone: true, ..Step::of(NUMBER, bytes) }
}

fn storing(rng: &mut Rng) -> Step {
    let key = rng.pick(&KEYS);
    let is_binary = key == BASE64;
    let b: &[u8] = if is_binary { b" b" } else { b"" };
    let value = rng.pick(&VALUES);
    let line = |parts: &[&[u8]]| [&parts.concat()[..], b"\r\n"].concat();
    let bytes = match rng.below(12) {
        0 | 1 => {
            // An item that memcached made by N does not know that its key is binary.
            let letters: &[u8] = if is_binary { b"svfthlOqNRZu" } else { b"svfthlOqNRZuk" };
            line(&[b"mg ", key, b, b" c", &flags(letters, rng)])
        }
        2 => line(&[b"mg ", key, b, b" c v h"]),
        3 | 4 => set(key, value, &[b, b" c", &flags(b"kOqFTM", rng)].concat()),
        5 => {
            let more = flags(b"kOqFZIIM", rng);
            set(key, value, &[b, b" c C", &TOKEN[..], &more].concat())
        }
        6 => set(key, value, &[b, b" c"].concat()),
        7 | 8 => line(&[b"md ", key, b, &flags(b"kOqCIT", rng)]),
        9 => line(&[b"md ", key, b, b" I q"]),
        10 => line(&[b"me ", key]),
        _ => odd(rng),
    };
    Step::of(key, bytes)
}

/// Wrong commands, and commands of the text protocol.
fn odd(rng: &mut Rng) -> Vec<u8> {
    let lines: [&[u8]; 22] = [
        b"mg\r\n",
        b"ms\r\n",
        b"md\r\n",
        b"ma\r\n",
        b"me\r\n",
        b"mn\r\n",
        b"mx\r\n",
        b"ms a\r\n",
        b"ms a x\r\n",
        b"ms a -1\r\n",
        b"ms a 3\r\nabcde\r\n",
        b"ms a 3\r\na\r\n",
        b"mg a v v\r\n",
        b"mg a s s s s s s s s s s s s s s s s s s s\r\n",
        b"ms a 1 s s s s s s s s s s s s s s s s s s s\r\n1\r\n",
        b"md a G1\r\n",
        b"mg a G1\r\n",
        b"mg !!! b v\r\n",
        b"ms =a= 1 b\r\n1\r\n",
        b"set a 0 0 1\r\n1\r\n",
        b"get a b c\r\n",
        b"delete a\r\n",
    ];
    rng.pick(&lines).to_vec()
}
