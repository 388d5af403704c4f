//! Seeded inputs: valid commands, then structured damage. Plain noise would never get past the
//! first header.

mod acl_files;
mod cluster_texts;
mod memcached_binary;
mod memcached_datagrams;
mod peers;

use store::record::{Change, Record, Seal, VERSION_MASK};

use crate::rng::Rng;

pub use acl_files::acl_files;
pub use cluster_texts::{cluster_texts, quorum_settings};
pub use memcached_binary::memcached_binary;
pub use memcached_datagrams::memcached_datagrams;
pub use peers::{peer_datagrams, peer_messages};

/// A stream of RESP commands, most of them damaged a little.
pub fn resp_commands(rng: &mut Rng) -> Vec<u8> {
    let mut out = vec![rng.next_u64() as u8];
    for _ in 0..1 + rng.below(4) {
        if rng.one_in(4) {
            resp_inline(rng, &mut out);
        } else {
            resp_multibulk(rng, &mut out);
        }
    }
    damage(rng, &mut out);
    out
}

const NAMES: [&str; 56] = [
    "GET",
    "get",
    "SET",
    "set",
    "SETEX",
    "GETEX",
    "MGET",
    "MSET",
    "MSETNX",
    "DEL",
    "INCR",
    "INCRBY",
    "DECRBY",
    "INCRBYFLOAT",
    "APPEND",
    "GETRANGE",
    "SETRANGE",
    "SETBIT",
    "GETBIT",
    "BITCOUNT",
    "BITPOS",
    "BITOP",
    "BITFIELD",
    "BITFIELD_RO",
    "LCS",
    "DELEX",
    "DELIFEQ",
    "DIGEST",
    "MSETEX",
    "RESTORE",
    "MOVE",
    "SWAPDB",
    "EXPIRE",
    "PEXPIREAT",
    "TTL",
    "SCAN",
    "KV.RANGE",
    "COPY",
    "CLIENT",
    "CONFIG",
    "COMMAND",
    "OBJECT",
    "MEMORY",
    "HELLO",
    "AUTH",
    "PING",
    "INFO",
    "MULTI",
    "EXEC",
    "WATCH",
    "SHUTDOWN",
    "FLUSHALL",
    "WAIT",
    "SELECT",
    "POST",
    "NOSUCH",
];

const WORDS: [&str; 63] = [
    "k",
    "key",
    "another-key",
    "",
    "0",
    "1",
    "-1",
    "10",
    "100",
    "9223372036854775807",
    "9223372036854775808",
    "1.5",
    "NX",
    "xx",
    "GT",
    "lt",
    "GET",
    "KEEPTTL",
    "EX",
    "px",
    "EXAT",
    "PXAT",
    "PERSIST",
    "MATCH",
    "COUNT",
    "TYPE",
    "string",
    "*",
    "LIST",
    "KILL",
    "ID",
    "SETNAME",
    "SETINFO",
    "lib-name",
    "REPLY",
    "on",
    "HELP",
    "DOCS",
    "GETKEYS",
    "ENCODING",
    "AUTH",
    "2",
    "3",
    "a value\r\nwith\0bytes",
    "-",
    "+",
    "[k",
    "(\0\r\n",
    "LIMIT",
    "rev",
    "KEYSONLY",
    "IFEQ",
    "ifdne",
    "0123456789abcdef",
    "u8",
    "i5",
    "#1",
    "INCRBY",
    "OVERFLOW",
    "SAT",
    "DIFF",
    "REPLACE",
    "IDX",
];

fn words(rng: &mut Rng) -> Vec<&'static str> {
    if rng.one_in(4) {
        return match rng.below(2) {
            0 => vec![rng.pick(&["GET", "get"]), rng.pick(&WORDS)],
            _ => vec![rng.pick(&["SET", "set"]), rng.pick(&WORDS), rng.pick(&WORDS)],
        };
    }
    let mut words = vec![rng.pick(&NAMES)];
    let count = if rng.one_in(20) { 25 } else { rng.below(6) };
    words.extend((0..count).map(|_| rng.pick(&WORDS)));
    words
}

fn resp_multibulk(rng: &mut Rng, out: &mut Vec<u8>) {
    let words = words(rng);
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        // Now and then at the target's limit of 300 bytes, or one beside it.
        let wanted_bytes = if rng.one_in(15) { 299 + rng.below(3) } else { 0 };
        let filler = "x".repeat(wanted_bytes.saturating_sub(word.len()));
        let len_bytes = word.len() + filler.len();
        out.extend_from_slice(format!("${len_bytes}\r\n{word}{filler}\r\n").as_bytes());
    }
}

fn resp_inline(rng: &mut Rng, out: &mut Vec<u8>) {
    const PIECES: [&str; 12] = [
        "\"quoted\"",
        "'quoted'",
        "\"a\\nb\"",
        "\"\\x41\"",
        "'it\\'s'",
        "pre\"post\"",
        "\"\"",
        "\\",
        "\t",
        "  ",
        "\"",
        "\x0b",
    ];
    for word in words(rng) {
        out.extend_from_slice(word.as_bytes());
        out.push(b' ');
        if rng.one_in(3) {
            out.extend_from_slice(rng.pick(&PIECES).as_bytes());
            out.push(b' ');
        }
    }
    out.extend_from_slice(rng.pick(&["\r\n", "\n"]).as_bytes());
}

/// A stream of memcached commands, most of them damaged a little.
pub fn memcached_text(rng: &mut Rng) -> Vec<u8> {
    const LINES: [&str; 13] = [
        "version",
        "config get cluster",
        "stats settings",
        "flush_all",
        "flush_all 10 noreply",
        "verbosity 1",
        "mn",
        "delete k 0 noreply",
        "touch k 10",
        "incr k 5",
        "decr k 5 noreply",
        "quit",
        "GET / HTTP/1.1",
    ];
    let mut out = vec![rng.next_u64() as u8];
    for _ in 0..1 + rng.below(4) {
        match rng.below(4) {
            0 => out.extend_from_slice(rng.pick(&LINES).as_bytes()),
            1 => memcached_get(rng, &mut out),
            _ => memcached_store(rng, &mut out),
        }
        out.extend_from_slice(b"\r\n");
    }
    damage(rng, &mut out);
    out
}

fn memcached_get(rng: &mut Rng, out: &mut Vec<u8>) {
    out.extend_from_slice(rng.pick(&["get", "gets", "gat 10", "gats -1", "bget"]).as_bytes());
    let count = if rng.one_in(10) { 40 } else { rng.below(4) };
    for _ in 0..count {
        let key_bytes = if rng.one_in(20) { 200 + rng.below(60) } else { rng.below(8) };
        out.push(b' ');
        out.extend(std::iter::repeat_n(b'k', key_bytes));
    }
}

fn memcached_store(rng: &mut Rng, out: &mut Vec<u8>) {
    let verb = rng.pick(&["set", "add", "replace", "append", "prepend", "cas"]);
    let exptime = rng.pick(&["0", "-1", "100", "99999999999"]);
    let value_bytes = if rng.one_in(10) { 90 + rng.below(20) } else { rng.below(12) };
    out.extend_from_slice(format!("{verb} key 5 {exptime} {value_bytes}").as_bytes());
    if verb == "cas" {
        out.extend_from_slice(b" 7");
    }
    if rng.one_in(4) {
        out.extend_from_slice(b" noreply");
    }
    out.extend_from_slice(b"\r\n");
    out.extend((0..value_bytes).map(|_| rng.pick(&["v", "\r", "\n", " "]).as_bytes()[0]));
}

/// An RDB file with keys of several types, damaged a little; its checksum says that there is none.
pub fn foreign_data(rng: &mut Rng) -> Vec<u8> {
    const PARTS: [&[u8]; 14] = [
        b"\xfa\x09redis-ver\x057.0.0",
        b"\xfe\x01\xfb\x40\x80\x02",
        b"\xfc\x00\xd8\xc3\x2c\xbb\x03\x00\x00\xf8\x05\xf9\x07\x00\x03key\xc1\xd4\xfe",
        b"\xfd\x01\x00\x00\x00\x00\x01k\x80\x00\x00\x00\x02ab",
        b"\x00\xc0\x05\xc3\x0c\x40\xa0\x04abcda\xe0\x90\x03\x01cd",
        b"\x01\x01l\x02\x01a\xc0\x02",
        b"\x05\x01z\x01\x01m\x00\x00\x00\x00\x00\x00\xf0\x3f",
        b"\x03\x01z\x02\x01m\x032.5\x01n\xfe",
        b"\x07\x01m\x81\x00\x00\x00\x00\x00\x00\x00\x01\x02\x05\x05\x01x\
          \x04\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x12\x01q\x02\x02\x01a\x01\x01b",
        b"\x18\x01h\x00\x00\x00\x00\x00\x00\x00\x00\x01\x05\x01f\x01v",
        b"\x13\x01s\x00\x00\x01\x01\x01\x01\x01\x01\x00\x00",
        b"\x00\x01e\x00",
        b"\xf5\x04code",
    ];
    let mut out = b"REDIS0011".to_vec();
    for _ in 0..rng.below(6) {
        out.extend_from_slice(rng.pick(&PARTS));
    }
    out.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    if rng.one_in(2) {
        damage(rng, &mut out);
    }
    out
}

/// Lines that redis.conf could have, and words of memcached's command line.
pub fn foreign_configs(rng: &mut Rng) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "maxmemory",
        "port",
        "bind",
        "save",
        "appendonly",
        "dir",
        "maxmemory-policy",
        "requirepass",
        "yes",
        "no",
        "2gb",
        "0",
        "127.0.0.1",
        "-::1",
        "allkeys-lru",
        "-m",
        "-p",
        "-l",
        "-I",
        "4m",
        "\"a b\"",
        "'q\\''",
        "\"\\x41\"",
        "#",
    ];
    let mut out = Vec::new();
    for _ in 0..rng.below(12) {
        match rng.below(12) {
            0 => out.push(b'\n'),
            1 => out.push(rng.below(256) as u8),
            _ => out.extend_from_slice(rng.pick(&WORDS).as_bytes()),
        }
        out.push(if rng.one_in(3) { b'\n' } else { b' ' });
    }
    out
}

/// A pattern and a text over a small alphabet, so that they often match.
pub fn globs(rng: &mut Rng) -> Vec<u8> {
    let pattern_len = rng.below(12);
    let mut out = vec![pattern_len as u8];
    out.extend((0..pattern_len).map(|_| b"ab*?[]^-\\aab"[rng.below(12)]));
    out.extend((0..rng.below(12)).map(|_| b"ab-]"[rng.below(4)]));
    out
}

/// The body of a dumped string, most often well-formed and compressed.
pub fn dumps(rng: &mut Rng) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut len = 0;
    for _ in 0..rng.below(8) {
        if len == 0 || rng.one_in(2) {
            let count = 1 + rng.below(32);
            packed.push(count as u8 - 1);
            packed.extend((0..count).map(|_| rng.next_u64() as u8));
            len += count;
        } else {
            let (count, distance) = (3 + rng.below(250), rng.below(len + 2));
            let short = count < 9;
            let control = if short { (count - 2) << 5 } else { 7 << 5 };
            packed.push((control | (distance >> 8 & 0x1f)) as u8);
            packed.extend((!short).then(|| (count - 9) as u8));
            packed.push(distance as u8);
            len += count;
        }
    }
    let length = |len: usize| [0x40 | (len >> 8) as u8 & 0x3f, len as u8];
    let mut out = vec![0, 0xc3];
    out.extend(length(packed.len()));
    out.extend(length(len));
    out.extend(packed);
    if rng.one_in(3) {
        out = vec![0, rng.next_u64() as u8];
        out.extend((0..rng.below(12)).map(|_| rng.next_u64() as u8));
    }
    damage(rng, &mut out);
    out
}

/// Two texts that are numbers or nearly so.
pub fn numbers(rng: &mut Rng) -> Vec<u8> {
    const WHOLE: [&str; 10] = [
        "5",
        "10",
        "-3",
        "0.1",
        "-0.25",
        "1e5",
        "-2.5E-3",
        "9223372036854775807",
        "-9223372036854775808",
        "0.00000000000000000499",
    ];
    let mut out = Vec::new();
    for place in 0..2 {
        if place == 1 {
            out.push(b' ');
        }
        if rng.one_in(3) {
            out.extend_from_slice(rng.pick(&WHOLE).as_bytes());
        } else {
            out.extend(
                (0..1 + rng.below(30)).map(|_| b"0123456789012345678905-+.e"[rng.below(26)]),
            );
        }
    }
    if rng.one_in(4) {
        damage(rng, &mut out);
    }
    out
}

/// Changes, removes, doubles or inserts a few bytes; now and then cuts the end off.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    const TELLING: &[u8] = b"\r\n$*:0129-+ \"'\\x\0\xffgk";
    let change_count = rng.below(4);
    for _ in 0..change_count {
        if bytes.len() < 2 {
            return;
        }
        let at = 1 + rng.below(bytes.len() - 1);
        let byte = TELLING[rng.below(TELLING.len())];
        match rng.below(5) {
            0 => bytes[at] = byte,
            1 => bytes[at] = rng.next_u64() as u8,
            2 => bytes.insert(at, byte),
            3 => drop(bytes.remove(at)),
            _ => {
                let end = (at + rng.below(20)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    if rng.one_in(8) {
        bytes.truncate(1 + rng.below(bytes.len()));
    }
}

/// A native frame of requests or replies, or a hello, most of them damaged a little.
pub fn native_frames(rng: &mut Rng) -> Vec<u8> {
    let mut out = vec![0; 32];
    out[..3].copy_from_slice(b"DV\x01");
    out[3] = 1 + rng.below(8) as u8;
    match rng.below(5) {
        0 => out.extend((0..96).map(|_| rng.next_u64() as u8)),
        // Replies have more statuses than requests have ops.
        1 => (0..rng.below(6)).for_each(|_| native_message(rng, &mut out, 16)),
        _ => (0..rng.below(6)).for_each(|_| native_message(rng, &mut out, 12)),
    }
    out[6] = (out.len() / 8) as u8;
    out[7] = (out.len() / 2048) as u8;
    damage(rng, &mut out);
    out
}

/// A message whose lengths are true; its fields go together now and then.
fn native_message(rng: &mut Rng, out: &mut Vec<u8>, codes: usize) {
    let (key_len_bytes, value_len_bytes) = (rng.below(20), rng.below(3) * rng.below(40));
    let mask = if rng.one_in(3) { rng.next_u64() as u8 & rng.next_u64() as u8 } else { 0 };
    let flags = if rng.one_in(3) { rng.next_u64() as u8 & 0x3f } else { rng.below(2) as u8 };
    let mode = if rng.one_in(3) { rng.below(32) as u8 } else { rng.below(2) as u8 };
    out.extend([rng.below(codes) as u8, flags, mask, 0, key_len_bytes as u8, 0, mode, 0]);
    out.extend((rng.next_u64() as u32).to_le_bytes());
    out.extend((value_len_bytes as u32).to_le_bytes());
    for _ in 0..mask.count_ones() {
        let word = rng.next_u64() >> rng.below(64);
        out.extend(word.to_le_bytes());
    }
    out.extend((0..key_len_bytes + value_len_bytes).map(|_| rng.next_u64() as u8));
    out.resize(out.len().next_multiple_of(8), 0);
}

/// A window and steps; few names, so that copies and parts meet.
pub fn native_memory(rng: &mut Rng) -> Vec<u8> {
    let names = 1 + rng.below(60);
    let step = |rng: &mut Rng| {
        let bits = rng.next_u64().to_le_bytes();
        [bits[0], rng.below(names) as u8, bits[1] % 48, bits[2]]
    };
    let steps: Vec<u8> = (0..rng.below(80)).flat_map(|_| step(rng)).collect();
    [rng.next_u64() as u8].into_iter().chain(steps).collect()
}

/// Policy events; more is routed than finishes, so that queues and sets fill up.
pub fn policy_events(rng: &mut Rng) -> Vec<u8> {
    let partitions = 1 + rng.below(64);
    let event = |rng: &mut Rng| [rng.next_u64() as u8, rng.below(partitions) as u8];
    (0..rng.below(60)).flat_map(|_| event(rng)).collect()
}

/// Rules of compaction's windows and what happens to them; more is received than served, on few
/// keys, so that windows open.
pub fn windows(rng: &mut Rng) -> Vec<u8> {
    let keys = 1 + rng.below(5);
    let step = |rng: &mut Rng| {
        let actor = rng.below(keys) + 5 * rng.below(3);
        [rng.next_u64() as u8, actor as u8, rng.next_u64() as u8]
    };
    let steps: Vec<u8> = (0..rng.below(120)).flat_map(|_| step(rng)).collect();
    let rules = [rng.below(200) as u8, rng.next_u64() as u8, rng.below(100) as u8];
    rules.into_iter().chain(steps).collect()
}

/// Settings of a server that routes, and what its clients and workers do; any bytes are some.
pub fn routed_commands(rng: &mut Rng) -> Vec<u8> {
    (0..4 + rng.below(900)).map(|_| rng.next_u64() as u8).collect()
}

/// Settings and steps of a store; any bytes are some.
pub fn store_requests(rng: &mut Rng) -> Vec<u8> {
    (0..2 + rng.below(600)).map(|_| rng.next_u64() as u8).collect()
}

/// A client's requests, a server that has mostly greeted it, and what that server does to it.
pub fn native_client(rng: &mut Rng) -> Vec<u8> {
    let mut out = vec![rng.next_u64() as u8];
    if !rng.one_in(8) {
        // A challenge now and then, and a welcome with usual limits.
        if rng.one_in(2) {
            out.extend_from_slice(&[2, 0, 0, 3]);
        }
        out.extend_from_slice(&[2, 7, 7, 7]);
    }
    for _ in 0..rng.below(60) {
        let bits = rng.next_u64().to_le_bytes();
        out.extend_from_slice(&bits[..4]);
        if bits[0] % 10 == 6 {
            // Raw bytes follow: of a frame's first looks, or none.
            let mut raw = vec![bits[5]; usize::from(bits[1])];
            let head = b"DV\x01\x04";
            let head_len = raw.len().min(head.len());
            raw[..head_len].copy_from_slice(&head[..head_len]);
            out.append(&mut raw);
        }
    }
    out
}

/// A seal and entries of a segment, most of them damaged a little.
pub fn records(rng: &mut Rng) -> Vec<u8> {
    let seal = rng.next_u64() as u8;
    let mut bytes = Vec::new();
    for _ in 0..1 + rng.below(6) {
        let text = vec![b'v'; rng.below(300)];
        let (key, value) = text.split_at(rng.below(text.len().min(20) + 1));
        let change = match rng.below(4) {
            0 => Change::Delete { note: rng.next_u64() >> rng.below(64) },
            _ => Change::Put {
                value,
                client_flags: (rng.below(2) as u64) << (32 * rng.below(2)),
                expires_at: rng.one_in(3).then(|| base::UnixMillis(rng.next_u64() >> 20)),
            },
        };
        let version = 1 + rng.next_u64() % VERSION_MASK;
        let record = Record { key, change, version, shard: rng.below(3) as u16 };
        record.encode(Seal(seal.into()), &mut bytes).expect("within the layout's limits");
    }
    if rng.one_in(4) {
        bytes.resize(bytes.len() + rng.below(64), 0);
    }
    if rng.one_in(2) {
        damage(rng, &mut bytes);
    }
    let mut out = vec![seal];
    out.append(&mut bytes);
    out
}

/// Damage to a checkpoint: a few words, mostly by one bit; or some bytes.
pub fn checkpoints(rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(6) {
        let bytes = (0..rng.below(200)).map(|_| rng.next_u64() as u8);
        return [1].into_iter().chain(*b"DOVEINDX").chain(bytes).collect();
    }
    let mut out = vec![0];
    for _ in 0..rng.below(4) {
        out.push(rng.next_u64() as u8);
        let flip = if rng.one_in(4) { rng.next_u64() } else { 1 << rng.below(64) };
        out.extend_from_slice(&flip.to_le_bytes());
    }
    out
}

/// Damage to a data file: mostly in the places that say what the rest is.
pub fn data_files(rng: &mut Rng) -> Vec<u8> {
    let mut out = vec![rng.next_u64() as u8 & if rng.one_in(8) { 3 } else { 2 }];
    for _ in 0..rng.below(6) {
        // Superblocks, the page of a segment, or anywhere in the first segments.
        let at = match rng.below(4) {
            0 => rng.below(2) * 4096 + rng.below(128),
            1 => (64 << 10) + rng.below(8) * (68 << 10) + rng.below(2) * 2048 + rng.below(64),
            _ => (64 << 10) + rng.below(400 << 10),
        };
        out.extend_from_slice(&(at as u32).to_le_bytes()[..3]);
        out.push(1 << rng.below(8));
    }
    out
}
