//! Files of users, some damaged.

use super::damage;
use crate::rng::Rng;

const RULES: [&str; 44] = [
    "on",
    "off",
    "nopass",
    "resetpass",
    "reset",
    "clearselectors",
    ">secret",
    "<secret",
    "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    "!2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    "sanitize-payload",
    "skip-sanitize-payload",
    "~*",
    "~a*",
    "~",
    "%R~r?",
    "%w~[ab]",
    "%RW~x",
    "allkeys",
    "resetkeys",
    "&ch*",
    "&*",
    "allchannels",
    "resetchannels",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+@read",
    "-@dangerous",
    "+@hash",
    "+get",
    "-set",
    "+CONFIG|get",
    "-config|set",
    "+client",
    "+select|0",
    "+hset",
    "+pubsub|channels",
    "(+get",
    "~b*)",
    "(%R~c",
    "-@write)",
    "(+set ~d)",
];

/// Lines of users.
pub fn acl_files(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for user in ["default", "alice", "bob"] {
        if rng.one_in(4) {
            continue;
        }
        out.extend_from_slice(b"user ");
        out.extend_from_slice(user.as_bytes());
        for _ in 0..rng.below(8) {
            out.push(b' ');
            out.extend_from_slice(RULES[rng.below(RULES.len())].as_bytes());
        }
        out.push(b'\n');
    }
    if rng.one_in(2) && !out.is_empty() {
        damage(rng, &mut out);
    }
    out
}
