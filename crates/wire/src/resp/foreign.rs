//! Redis commands on value types that this server does not have, and their replies.

/// Each missing feature, and the commands that need it: names in lower case, in order.
const FOREIGN: [(&str, &[&str]); 9] = [
    (
        "no geo",
        &[
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadius_ro",
            "georadiusbymember",
            "georadiusbymember_ro",
            "geosearch",
            "geosearchstore",
        ],
    ),
    (
        "no hashes",
        &[
            "hdel",
            "hexists",
            "hexpire",
            "hexpireat",
            "hexpiretime",
            "hget",
            "hgetall",
            "hgetdel",
            "hgetex",
            "hincrby",
            "hincrbyfloat",
            "hkeys",
            "hlen",
            "hmget",
            "hmset",
            "hpersist",
            "hpexpire",
            "hpexpireat",
            "hpexpiretime",
            "hpttl",
            "hrandfield",
            "hscan",
            "hset",
            "hsetex",
            "hsetnx",
            "hstrlen",
            "httl",
            "hvals",
        ],
    ),
    ("no hyperloglogs", &["pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest"]),
    (
        "no lists",
        &[
            "blmove",
            "blmpop",
            "blpop",
            "brpop",
            "brpoplpush",
            "lindex",
            "linsert",
            "llen",
            "lmove",
            "lmpop",
            "lpop",
            "lpos",
            "lpush",
            "lpushx",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "rpop",
            "rpoplpush",
            "rpush",
            "rpushx",
            "sort",
            "sort_ro",
        ],
    ),
    (
        "no pub/sub",
        &[
            "psubscribe",
            "publish",
            "pubsub",
            "punsubscribe",
            "spublish",
            "ssubscribe",
            "sunsubscribe",
        ],
    ),
    (
        "no scripts",
        &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "function", "script"],
    ),
    (
        "no sets",
        &[
            "sadd",
            "scard",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sintercard",
            "sinterstore",
            "sismember",
            "smembers",
            "smismember",
            "smove",
            "spop",
            "srandmember",
            "srem",
            "sscan",
            "sunion",
            "sunionstore",
        ],
    ),
    (
        "no sorted sets",
        &[
            "bzmpop",
            "bzpopmax",
            "bzpopmin",
            "zadd",
            "zcard",
            "zcount",
            "zdiff",
            "zdiffstore",
            "zincrby",
            "zinter",
            "zintercard",
            "zinterstore",
            "zlexcount",
            "zmpop",
            "zmscore",
            "zpopmax",
            "zpopmin",
            "zrandmember",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrangestore",
            "zrank",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
            "zrevrange",
            "zrevrangebylex",
            "zrevrangebyscore",
            "zrevrank",
            "zscan",
            "zscore",
            "zunion",
            "zunionstore",
        ],
    ),
    (
        "no streams",
        &[
            "xack",
            "xackdel",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xdelex",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
        ],
    ),
];

/// Whether Redis has a command of that name, in any case, and this server does not.
pub fn is_foreign_command(name: &[u8]) -> bool {
    lacks(name).is_some()
}

/// The missing feature of a command of that name, as an error names it.
#[cold]
pub(super) fn lacks(name: &[u8]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let has = |names: &[&str]| names.binary_search_by(|it| it.as_bytes().cmp(&name)).is_ok();
    FOREIGN.iter().find(|(_, names)| has(names)).map(|(lacks, _)| *lacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Spec;

    #[test]
    fn names_are_in_order_and_not_of_our_own_commands() {
        for (lacks, names) in FOREIGN {
            assert!(names.is_sorted(), "{lacks}");
            for name in names {
                assert!(Spec::by_name(name.as_bytes()).is_none(), "{name}");
            }
        }
    }

    #[test]
    fn what_is_lacking_is_named() {
        assert_eq!(lacks(b"LPUSH"), Some("no lists"));
        assert_eq!(lacks(b"zRange"), Some("no sorted sets"));
        assert_eq!(lacks(b"EVAL"), Some("no scripts"));
        assert_eq!(lacks(b"get"), None);
        assert_eq!(lacks(b"nosuch"), None);
    }
}
