//! The commands: templates with short placeholders for arguments.
//!
//! ```text
//!  "SET k v ?set"   SET, a key, a value, and up to three of the options named `set`
//!  "MGET k*"        MGET and up to four keys;   kv*: up to three pairs
//! ```

use super::arguments::draw;
use super::rng::Rng;

/// Commands that Redis 7.0 does not have, so that there is nothing to compare.
pub const LATER: [&str; 13] = [
    "SET IFEQ|IFNE|IFDEQ|IFDNE",
    "DELEX",
    "DELIFEQ",
    "DIGEST",
    "MSETEX",
    "BITOP DIFF|DIFF1|ANDOR|ONE",
    "CLIENT SETINFO",
    "CLIENT NO-TOUCH",
    "WAITAOF",
    "CLUSTER MYSHARDID",
    "HOTKEYS",
    "KV.RANGE",
    "RESTORE of versions above 10",
];

/// The templates. A repeated template is drawn more often.
pub const TEMPLATES: &[&str] = &[
    "GET k",
    "GET k",
    "GET k",
    "SET k v",
    "SET k v",
    "SET k v ?set",
    "SET k v ?set",
    "SET k i",
    "GETEX k ?getex",
    "GETEX k ?getex",
    "GETDEL k",
    "GETSET k v",
    "SETNX k v",
    "SETEX k s v",
    "PSETEX k ms v",
    "MGET k*",
    "MSET kv*",
    "MSETNX kv*",
    "MSET k v k",
    "INCR k",
    "DECR k",
    "INCRBY k i",
    "DECRBY k i",
    "INCRBYFLOAT k f",
    "INCRBYFLOAT k f",
    "SET k f",
    "APPEND k v",
    "STRLEN k",
    "GETRANGE k i i",
    "SUBSTR k i i",
    "SETRANGE k o v",
    "DEL k*",
    "UNLINK k*",
    "EXISTS k*",
    "TOUCH k*",
    "TYPE k",
    "EXPIRE k s ?expire",
    "PEXPIRE k ms ?expire",
    "EXPIREAT k at ?expire",
    "PEXPIREAT k atms ?expire",
    "TTL k",
    "PTTL k",
    "EXPIRETIME k",
    "PEXPIRETIME k",
    "PERSIST k",
    "RENAME k k",
    "RENAMENX k k",
    "COPY k k ?copy",
    "RANDOMKEY",
    "KEYS p",
    "SCAN 0 COUNT 1000 ?scan",
    "SCAN i ?badscan",
    "DBSIZE",
    "FLUSHALL ?flush",
    "FLUSHDB ?flush",
    "SETBIT k o bit",
    "SETBIT k o bit",
    "GETBIT k o",
    "BITCOUNT k",
    "BITCOUNT k i i ?unit",
    "BITCOUNT k ?number",
    "BITPOS k bit",
    "BITPOS k bit i",
    "BITPOS k bit i i ?unit",
    "BITOP op k k k*",
    "BITOP op k k k*",
    "BITFIELD k ?field",
    "BITFIELD k ?field",
    "BITFIELD k ?field",
    "BITFIELD_RO k ?field",
    "LCS k k ?lcs",
    "LCS k k ?lcs",
    "DUMP k",
    "RESTORE k 0 dump ?restore",
    "RESTORE k ms dump ?restore",
    "RESTORE k atms dump ABSTTL ?restore",
    "MOVE k db",
    "SWAPDB db db",
    "SELECT db",
    "ECHO v",
    "PING",
    "PING v",
    "HELLO hello",
    "HELLO 2",
    "HELLO 3",
    "AUTH v",
    "AUTH default v",
    "AUTH name v",
    "OBJECT ENCODING k",
    "OBJECT FREQ k",
    "OBJECT IDLETIME k",
    "OBJECT REFCOUNT k",
    "OBJECT junk k",
    "MEMORY USAGE k ?samples",
    "MEMORY junk",
    "WAIT 0 0",
    "WAIT x 0",
    "WAIT 0 junk",
    "ROLE",
    "CLIENT SETNAME name",
    "CLIENT GETNAME",
    "CLIENT NO-EVICT onoff",
    "CLIENT KILL ?kill",
    "CLIENT KILL USER nosuch",
    "CLIENT LIST ?list",
    "CLIENT UNPAUSE",
    "CLIENT PAUSE pause",
    "CLIENT REPLY junk",
    "CLIENT junk",
    "COMMAND INFO command",
    "COMMAND GETKEYS command k k k",
    "COMMAND LIST FILTERBY MODULE k",
    "COMMAND junk",
    "CONFIG SET nosuch v",
    "CONFIG GET nosuch",
    "CONFIG RESETSTAT",
    "SLOWLOG RESET",
    "SLOWLOG GET x",
    "SLOWLOG GET -2",
    "SLOWLOG GET x junk",
    "ACL LOG nosuch x",
    "ACL WHOAMI",
    "CLIENT UNBLOCK i junk",
    "CLIENT UNBLOCK i ERROR v",
    "SLOWLOG NOSUCH",
    "LATENCY LATEST",
    "LATENCY HISTORY nosuch",
    "LATENCY HISTOGRAM nosuch",
    "LATENCY RESET nosuch",
    "LATENCY NOSUCH",
    "CLUSTER INFO",
    "NOSUCH v k",
    "junk k",
];

/// Options by name; each is a template of its own.
const OPTIONS: [(&str, &[&str]); 20] = [
    ("set", &["NX", "XX", "GET", "KEEPTTL", "EX s", "PX ms", "EXAT at", "PXAT atms", "BAD", "EX"]),
    ("getex", &["PERSIST", "EX s", "PX ms", "EXAT at", "PXAT atms", "KEEPTTL", "BAD", "EX"]),
    ("expire", &["NX", "XX", "GT", "LT", "BAD"]),
    ("copy", &["REPLACE", "DB db", "BAD", "DB"]),
    ("scan", &["MATCH p", "TYPE type", "COUNT 500", "BAD", "MATCH", "COUNT i"]),
    ("badscan", &["COUNT 0", "COUNT x", "BAD x", "MATCH"]),
    ("flush", &["ASYNC", "SYNC", "BAD"]),
    ("unit", &["unit", "unit unit"]),
    ("number", &["i"]),
    (
        "field",
        &[
            "GET kind fo",
            "SET kind fo i",
            "INCRBY kind fo i",
            "OVERFLOW ow",
            "GET kind",
            "SET kind fo",
            "BAD",
            "GET u8 0",
            "INCRBY i8 #1 100",
            "INCRBY u4 2 7",
            "SET i64 3 i",
        ],
    ),
    ("lcs", &["LEN", "IDX", "MINMATCHLEN i", "WITHMATCHLEN", "BAD", "MINMATCHLEN"]),
    ("restore", &["REPLACE", "REPLACE", "ABSTTL", "IDLETIME i", "FREQ i", "BAD", "FREQ"]),
    ("samples", &["SAMPLES i", "SAMPLES", "BAD 1"]),
    (
        "kill",
        &[
            "ID 999999999",
            "ID x",
            "ID 0",
            "ADDR 127.0.0.1:1",
            "TYPE type",
            "SKIPME BAD",
            "junk",
            "LADDR junk",
        ],
    ),
    ("list", &["TYPE master", "TYPE nosuch", "ID 999999999", "ID x", "ID 0", "BAD", "TYPE"]),
    ("pause", &["0", "0 ALL", "0 ALL x", "0 WRITE", "0 BAD", "x", "-1", "1.5"]),
    (
        "hello",
        &[
            "1",
            "4",
            "x",
            "2 BAD",
            "3 SETNAME",
            "2 AUTH default",
            "3 AUTH nosuch x",
            "",
            "2 SETNAME",
        ],
    ),
    ("onoff", &["ON", "OFF", "yes", "no", "BAD", ""]),
    ("multi", &["MULTI", "EXEC", "DISCARD", "UNWATCH"]),
    ("watch", &["k k*"]),
];

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// A command from a random template, sometimes damaged.
pub fn draw_command(rng: &mut Rng) -> Words {
    let template = TEMPLATES[rng.below(TEMPLATES.len())];
    let mut words = Words::new();
    expand(template, rng, &mut words);
    if rng.one_in(8) {
        damage(&mut words, rng);
    }
    if rng.one_in(6) {
        for word in &mut words {
            change_case(word, rng);
        }
    }
    words
}

pub fn expand(template: &str, rng: &mut Rng, words: &mut Words) {
    for word in template.split(' ') {
        if let Some(name) = word.strip_prefix('?') {
            for _ in 0..[0, 1, 1, 2, 2, 3][rng.below(6)] {
                expand_option(name, rng, words);
            }
        } else if word == "k*" {
            for _ in 0..rng.below(5) {
                words.extend(draw("k", rng));
            }
        } else if word == "kv*" {
            for _ in 0..rng.below(4) {
                words.extend(draw("k", rng));
                words.extend(draw("v", rng));
            }
        } else if ["hello", "onoff", "pause"].contains(&word) {
            expand_option(word, rng, words);
        } else {
            words.push(draw(word, rng).unwrap_or_else(|| word.as_bytes().to_vec()));
        }
    }
}

fn expand_option(name: &str, rng: &mut Rng, words: &mut Words) {
    let (_, options) = OPTIONS.iter().find(|(own, _)| *own == name).expect("a named option");
    expand(options[rng.below(options.len())], rng, words);
}

/// A wrong count, a wrong place, something else.
fn damage(words: &mut Words, rng: &mut Rng) {
    // Commands with a time, a client, or replicas to wait for, and commands that print everything,
    // are not damaged.
    let is_delicate = ["WAIT", "CLIENT", "CONFIG", "COMMAND", "SLOWLOG", "LATENCY"]
        .iter()
        .any(|name| words[0] == name.as_bytes());
    let at = 1 + rng.below(words.len());
    match rng.below(if is_delicate { 1 } else { 4 }) {
        // The command alone, and its subcommand alone, print too much.
        0 if words.len() > if is_delicate { 3 } else { 1 } => {
            words.pop();
        }
        1 if at < words.len() => words[at] = draw("junk", rng).unwrap_or_default(),
        2 if at < words.len() => {
            let word = words[at].clone();
            words.insert(at, word);
        }
        _ if is_delicate => {}
        _ => words.extend(draw("junk", rng)),
    }
}

fn change_case(word: &mut [u8], rng: &mut Rng) {
    // Long words are values.
    if word.len() < 16 && word.iter().all(u8::is_ascii_alphabetic) && rng.one_in(2) {
        word.make_ascii_lowercase();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_expand_and_depend_on_the_seed_alone() {
        let draw = |seed| draw_command(&mut Rng::new(seed));
        for seed in 0..2000 {
            let words = draw(seed);
            assert!(!words.is_empty());
            assert_eq!(words, draw(seed));
        }
    }

    #[test]
    fn every_option_that_a_template_names_is_there() {
        let named =
            TEMPLATES.iter().flat_map(|it| it.split(' ')).filter_map(|it| it.strip_prefix('?'));
        for name in named {
            assert!(OPTIONS.iter().any(|(own, _)| *own == name), "{name}");
        }
    }
}
