//! Arguments of commands, ordinary and hostile.

use super::rng::Rng;

/// Few keys, so that commands meet each other's results.
pub const KEYS: [&[u8]; 8] =
    [b"a", b"b", b"c", b"d", b"e{t}", b"", b"\0\r\n\xff", b"key:with:colons"];

const INTEGERS: [&str; 26] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "10",
    "100",
    "-5",
    "-100",
    "255",
    "65536",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "4294967296",
    "99999999999999999999",
    "",
    "x",
    "1.5",
    " 1",
    "1 ",
    "+3",
    "007",
    "-0",
    "0x10",
];
const FLOATS: [&str; 27] = [
    "0.1",
    "0.5",
    "-2.25",
    "1e3",
    "5.0e-1",
    "3.0e3",
    "1.1",
    "123456789.123456789",
    "0.000001",
    "1e20",
    "1e-20",
    "-7",
    "x",
    "",
    "nan",
    "inf",
    "-inf",
    " 1",
    "5.",
    ".5",
    ".",
    "1e",
    "0x1p3",
    "1e5000",
    "1e-5000",
    "1e4931",
    "123456789012345678901234567890",
];
const SECONDS: [&str; 13] = [
    "1000",
    "1000",
    "100000",
    "5000",
    "0",
    "-1",
    "x",
    "",
    "1.5",
    "9223372036854775807",
    "9223372036854775",
    "-9223372036854775808",
    "9223372036854776",
];
const MILLISECONDS: [&str; 9] = [
    "1000000",
    "1000000",
    "5000000",
    "0",
    "-1",
    "x",
    "9223372036854775807",
    "-9223372036854775808",
    "9223370000000000000",
];
/// Times, none of which passes during a session.
const AT_SECONDS: [&str; 8] =
    ["4000000000", "4000000000", "4000000007", "1", "0", "-1", "x", "9223372036854775807"];
const AT_MILLISECONDS: [&str; 7] =
    ["4000000000000", "4000000000000", "4000000007000", "1", "0", "-1", "x"];
const PATTERNS: [&str; 12] =
    ["*", "a", "?", "[a-c]", "[^a]", "e*", "*:*", "\\*", "nosuch*", "[", "key:*:c?lons", "**b**"];
const BITS: [&str; 9] = ["0", "1", "1", "0", "2", "-1", "x", "", "01"];
const OFFSETS: [&str; 16] = [
    "0",
    "1",
    "7",
    "8",
    "9",
    "31",
    "100",
    "1000",
    "65537",
    "-1",
    "x",
    "",
    "268435456",
    "9223372036854775807",
    "#1",
    "4294967296",
];
const KINDS: [&str; 17] = [
    "u8", "i8", "u1", "i1", "u63", "i64", "i5", "u16", "i32", "u3", "u64", "i65", "u0", "x8", "i",
    "U8", "i-1",
];
const FIELD_OFFSETS: [&str; 12] =
    ["0", "1", "5", "8", "63", "100", "#0", "#1", "#7", "-1", "x", "268435455"];
const UNITS: [&str; 6] = ["BIT", "BYTE", "bit", "Byte", "BITS", ""];
const OVERFLOWS: [&str; 5] = ["WRAP", "SAT", "FAIL", "sat", "NO"];
const OPERATIONS: [&str; 8] = ["AND", "OR", "XOR", "NOT", "and", "Not", "NAND", ""];
const TYPES: [&str; 5] = ["string", "STRING", "list", "nosuch", "hash"];
const NAMES: [&str; 6] = ["me", "", "a b", "n\u{e4}me", "x-y_z", "line\nend"];
const DATABASES: [&str; 9] =
    ["0", "0", "1", "-1", "15", "x", "", "2147483648", "9223372036854775807"];
/// Names of commands whose rows both servers share.
const COMMANDS: [&str; 34] = [
    "get",
    "SET",
    "getex",
    "mget",
    "mset",
    "msetnx",
    "incr",
    "incrbyfloat",
    "append",
    "strlen",
    "getrange",
    "setrange",
    "del",
    "exists",
    "expire",
    "ttl",
    "persist",
    "rename",
    "renamenx",
    "copy",
    "setbit",
    "getbit",
    "bitcount",
    "bitop",
    "bitpos",
    "bitfield",
    "bitfield_ro",
    "lcs",
    "dump",
    "restore",
    "move",
    "swapdb",
    "getdel",
    "nosuch",
];
/// Arguments in the place of a different kind.
const JUNK: [&[u8]; 12] = [
    b"",
    b"x",
    b"-1",
    b"0",
    b"NX",
    b"EX",
    b"9223372036854775807",
    b"\0",
    b"*",
    b"\r\n",
    b"99999999999999999999999",
    b"\xff\xfe",
];
const VALUES: [&[u8]; 16] = [
    b"",
    b"v",
    b"10",
    b"-3",
    b"1.5",
    b"0.1",
    b"hello world",
    b"9223372036854775807",
    b"007",
    b"\0\x01\xfe\xff",
    b"ohmytext",
    b"mynewtext",
    b"\xff\xff\xff",
    b"\0\0\0\0",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    b"a value of forty-five bytes, which is one more",
];

/// Dumps by Redis 7.0.15: a text, integers of three widths, a compressed one, an empty one.
const DUMPS: [&[u8]; 7] = [
    b"\x00\x05hello\n\x00cr\xdfve4 \n",
    b"\x00\xc0\x0c\n\x00<*\xf8Q\\\x04\xbc\xd5",
    b"\x00\xc1\xd4\xfe\n\x00\xc6\xc4\x86#\xfe\xbe\xde.",
    b"\x00\xc2\x87\xd6\x12\x00\n\x00\xe9>\x1e6+;|^",
    b"\x00\xc3\x10@{\x01aa\xe0Q\x00\x02bcd\xe0\x11\x03\x01cd\n\x00\x04W\\\x8cr\x8f\t\x08",
    b"\x00\x00\n\x00]\x9b\\@\x0f\x7f\xa2\xda",
    b"\x00\x0b99999999999\n\x00#\xb0H\xfb\x0e\xdb\xef\x7f",
];

/// A time from now on, seconds apart from others: which of two equal times is the later depends on
/// the milliseconds between the commands on each server.
fn apart(drawn: Vec<u8>, step: u64, rng: &mut Rng) -> Vec<u8> {
    let parsed = std::str::from_utf8(&drawn).ok().and_then(|it| it.parse::<u64>().ok());
    match parsed.filter(|time| (1000..=5_000_000).contains(time)) {
        Some(time) => (time + step * rng.below(3000) as u64).to_string().into_bytes(),
        None => drawn,
    }
}

/// The argument for a placeholder of a template; `None`: the word stands for itself.
pub fn draw(word: &str, rng: &mut Rng) -> Option<Vec<u8>> {
    let text = |rng: &mut Rng, from: &[&str]| from[rng.below(from.len())].as_bytes().to_vec();
    Some(match word {
        "k" => rng.pick(&KEYS).to_vec(),
        "v" => value(rng),
        "i" => text(rng, &INTEGERS),
        "f" => float(rng),
        "s" => apart(text(rng, &SECONDS), 3, rng),
        "ms" => apart(text(rng, &MILLISECONDS), 3000, rng),
        "at" => text(rng, &AT_SECONDS),
        "atms" => text(rng, &AT_MILLISECONDS),
        "p" => text(rng, &PATTERNS),
        "bit" => text(rng, &BITS),
        "o" => text(rng, &OFFSETS),
        "kind" => text(rng, &KINDS),
        "fo" => text(rng, &FIELD_OFFSETS),
        "unit" => text(rng, &UNITS),
        "ow" => text(rng, &OVERFLOWS),
        "op" => text(rng, &OPERATIONS),
        "type" => text(rng, &TYPES),
        "name" => text(rng, &NAMES),
        "db" => text(rng, &DATABASES),
        "command" => text(rng, &COMMANDS),
        "dump" => dump(rng),
        "junk" => rng.pick(&JUNK).to_vec(),
        _ => return None,
    })
}

fn value(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0 => vec![b'x'; rng.below(3000)],
        1 => (0..rng.below(300)).map(|_| rng.next_u64() as u8).collect(),
        2 => (rng.next_u64() as i64).to_string().into_bytes(),
        3 if rng.one_in(20) => b"large ".repeat(8000),
        _ => rng.pick(&VALUES).to_vec(),
    }
}

/// Half of them of many digits.
fn float(rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(2) {
        return FLOATS[rng.below(FLOATS.len())].as_bytes().to_vec();
    }
    let sign = if rng.one_in(2) { "-" } else { "" };
    let (whole, fraction) = (rng.next_u64() >> rng.below(64), rng.next_u64() >> rng.below(64));
    let exponent = match rng.below(4) {
        0 => format!("e{}", rng.below(60) as i64 - 30),
        _ => String::new(),
    };
    format!("{sign}{whole}.{fraction}{exponent}").into_bytes()
}

fn dump(rng: &mut Rng) -> Vec<u8> {
    let mut payload = rng.pick(&DUMPS).to_vec();
    if rng.one_in(4) {
        let at = rng.below(payload.len());
        payload[at] ^= 1 << rng.below(8);
    } else if rng.one_in(10) {
        payload.truncate(rng.below(payload.len()));
    }
    payload
}
