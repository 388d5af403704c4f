//! Steps of the text protocol: templates with short placeholders for arguments.

use super::{NUMBER, Step, TOKEN, binary};
use crate::conformance::Protocol;
use crate::conformance::rng::Rng;

/// `k` a key, `k*` up to four, `#` the key that is counted, `f` flags, `t` a time, `p` one that has
/// passed, `d` a delta, `n` a data block's length, `c` a token; `?` noreply perhaps.
const TEMPLATES: [&str; 43] = [
    "get k",
    "get k",
    "get k*",
    "gets k",
    "gets k",
    "gets k*",
    "gat t k",
    "gat t k*",
    "gats t k",
    "bget k",
    "set k f t n ?",
    "set k f t n ?",
    "set k f t n ?",
    "set k f t n ?",
    "add k f t n ?",
    "add k f t n ?",
    "replace k f t n ?",
    "append k f t n ?",
    "append k f t n ?",
    "prepend k f t n ?",
    "cas k f t n c ?",
    "cas k f t n c ?",
    "cas k f t n c ?",
    "delete k ?",
    "delete k ?",
    "delete k 0 ?",
    "delete k t ?",
    "incr # d ?",
    "incr # d ?",
    "incr # d ?",
    "decr # d ?",
    "decr # d ?",
    "set # f t n ?",
    "touch k t ?",
    "touch k t ?",
    "flush_all ?",
    "flush_all p ?",
    "verbosity d ?",
    "stats reset",
    "stats detail off",
    "mn",
    "GET k",
    "bogus k t d",
];

const KEYS: [&[u8]; 10] =
    [b"a", b"a", b"b", b"b", b"c", b"n", b"\x01\t\x7f\xff", LONGEST, TOO_LONG, b"noreply"];
const LONGEST: &[u8] = &[b'k'; 250];
const TOO_LONG: &[u8] = &[b'k'; 251];

/// memcached truncates flags of more than 32 bits (docs/compatibility.md).
const FLAGS: [&[u8]; 12] = [
    b"0",
    b"0",
    b"5",
    b"5",
    b"4294967295",
    b"007",
    b"+3",
    b"-1",
    b"x",
    b"1x",
    b"1.5",
    b"99999999999999999999",
];

/// Times in the past, or far in the future.
const TIMES: [&[u8]; 16] = [
    b"0",
    b"0",
    b"0",
    b"0",
    b"100000",
    b"2592000",
    b"2000000000",
    b"-1",
    b"-100",
    b"2592001",
    b"+90000",
    b"x",
    b"1x",
    b"0x10",
    b"1.5",
    b"99999999999999999999",
];

const DELTAS: [&[u8]; 16] = [
    b"0",
    b"1",
    b"1",
    b"7",
    b"10",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-1",
    b"-0",
    b"+3",
    b"007",
    b"x",
    b"1x",
    b"1.5",
];

/// Data blocks. A block whose line was refused is read as commands. None has a minus: memcached
/// finds it after a number above 2^63 of another item, in reused memory, and then does not take the
/// number for one.
pub const VALUES: [&[u8]; 14] = [
    b"",
    b"1",
    b"10",
    b"99",
    b"text",
    b"18446744073709551615",
    b"18446744073709551616",
    b" 7",
    b"7 ",
    b"+5",
    b"1 2",
    b"0x1f",
    b"a\0b\xff",
    &[b'v'; 300],
];

/// A valid or damaged command.
pub fn step(rng: &mut Rng) -> Step {
    let template = rng.pick(&TEMPLATES);
    let mut line = Line { words: Vec::new(), key: Vec::new(), block: None };
    for word in template.split(' ') {
        line.push(word, rng);
    }
    let joins = template.contains("pend ");
    if joins && line.key == NUMBER {
        line.words[1] = b"b".to_vec();
    }
    // The output of plain `stats` differs by server.
    if rng.one_in(25) && !template.starts_with("stats") {
        line.damage(rng);
    }
    let mut bytes = line.words.join(&b' ');
    bytes.extend_from_slice(match rng.below(12) {
        0 => b"\n",
        1 => b" \r\n",
        _ => b"\r\n",
    });
    if let Some(block) = line.block {
        bytes.extend_from_slice(block);
        bytes.extend_from_slice(b"\r\n");
    }
    let touches = ["gat", "touch"].iter().any(|it| template.starts_with(it));
    // With several keys each may be touched.
    let is_many = touches && template.contains("k*");
    if template.starts_with("gat") && has_too_long(&bytes) {
        // memcached touches the keys before the one that it refuses.
        return Step::of(b"", b"gat 0\r\n".to_vec());
    }
    let retrieves = ["get", "gat", "bget"].iter().any(|it| template.starts_with(it));
    let stands_alone = retrieves && has_too_long(&bytes);
    Step { touches, is_many, stands_alone, ..Step::of(&line.key, bytes) }
}

fn has_too_long(bytes: &[u8]) -> bool {
    bytes.windows(TOO_LONG.len()).any(|it| it == TOO_LONG)
}

struct Line {
    words: Vec<Vec<u8>>,
    key: Vec<u8>,
    block: Option<&'static [u8]>,
}

impl Line {
    fn push(&mut self, word: &str, rng: &mut Rng) {
        let drawn = match word {
            "k" => {
                self.key = rng.pick(&KEYS).to_vec();
                self.key.clone()
            }
            "k*" => {
                let keys: Vec<&[u8]> = (0..rng.below(5)).map(|_| rng.pick(&KEYS)).collect();
                keys.join(&b' ')
            }
            "#" => {
                let keys = [NUMBER, NUMBER, NUMBER, NUMBER, b"none", TOO_LONG];
                self.key = rng.pick(&keys).to_vec();
                self.key.clone()
            }
            // In memcached a future flush cancels an earlier one.
            "p" => rng.pick(&[&b"0"[..], b"-1", b"x", b"1.5"]).to_vec(),
            "f" => rng.pick(&FLAGS).to_vec(),
            "t" => rng.pick(&TIMES).to_vec(),
            "d" => rng.pick(&DELTAS).to_vec(),
            "n" => {
                let block = rng.pick(&VALUES);
                self.block = Some(block);
                len_of(block, rng)
            }
            "c" => {
                let tokens: [&[u8]; 8] = [
                    TOKEN,
                    TOKEN,
                    TOKEN,
                    TOKEN,
                    TOKEN,
                    b"0",
                    b"99999999999",
                    b"18446744073709551616",
                ];
                rng.pick(&tokens).to_vec()
            }
            "?" if rng.one_in(6) => b"noreply".to_vec(),
            "?" => return,
            word => word.as_bytes().to_vec(),
        };
        self.words.push(drawn);
    }

    /// A word too few, one too many, or one twice.
    fn damage(&mut self, rng: &mut Rng) {
        if self.block.is_some() {
            // Another word in the place of the length would have both wait for that many bytes.
            return self.words.push(b"x".to_vec());
        }
        let at = rng.below(self.words.len());
        match rng.below(3) {
            0 => drop(self.words.remove(at)),
            1 => self.words.insert(at, b"x".to_vec()),
            _ => self.words.insert(at, self.words[at].clone()),
        }
    }
}

/// The length of a block; sometimes one that is a little wrong, or no number.
fn len_of(block: &[u8], rng: &mut Rng) -> Vec<u8> {
    let wrong: [&[u8]; 4] = [b"x", b"-1", b"2147483648", b"1x"];
    match rng.below(60) {
        0 => rng.pick(&wrong).to_vec(),
        1 => (block.len() + 1 + rng.below(3)).to_string().into_bytes(),
        2 => block.len().saturating_sub(1 + rng.below(3)).to_string().into_bytes(),
        _ => block.len().to_string().into_bytes(),
    }
}

/// Items that live for a second.
pub fn short_lived(protocol: Protocol) -> Step {
    let bytes = match protocol {
        Protocol::Text => b"set a 0 1 1\r\n1\r\ntouch b 1\r\ngat 1 c\r\n".to_vec(),
        Protocol::Meta => b"ms a 1 T1\r\n1\r\nmg b T1\r\nmg c N1\r\n".to_vec(),
        _ => binary::short_lived(),
    };
    Step { count: 3, is_many: true, ..Step::of(b"a", bytes) }
}
