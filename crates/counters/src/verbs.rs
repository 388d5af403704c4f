//! The commands of memcached and the ops of the native protocol: one row for each.

use crate::Access;

const NONE: Option<Access> = None;
const READ: Option<Access> = Some(Access::Read);
const WRITE: Option<Access> = Some(Access::Write);

/// Makes an enum of verbs, with the name of each and what it does to keys.
macro_rules! verbs {
    (
        $(#[$doc:meta])*
        pub enum $verbs:ident { $($verb:ident: $name:literal, $access:ident;)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the verb of its name")]
        pub enum $verbs { $($verb),+ }

        impl $verbs {
            /// How many there are.
            pub const COUNT: usize = [$($name),+].len();

            const ROWS: [(&str, Option<Access>); $verbs::COUNT] = [$(($name, $access)),+];

            /// The name in lower case of the verb at a position.
            pub fn name_at(position: usize) -> &'static str {
                $verbs::ROWS[position].0
            }

            /// Whether the verb at a position reads keys, may write them, or neither.
            pub fn access_at(position: usize) -> Option<Access> {
                $verbs::ROWS[position].1
            }
        }
    };
}

verbs! {
    /// memcached's commands, in the order of their counters.
    pub enum MemcachedCommand {
        Get: "get", READ;
        Gets: "gets", READ;
        // These change only an expiry, and are answered with the values.
        Gat: "gat", READ;
        Gats: "gats", READ;
        Set: "set", WRITE;
        Add: "add", WRITE;
        Replace: "replace", WRITE;
        Append: "append", WRITE;
        Prepend: "prepend", WRITE;
        Cas: "cas", WRITE;
        Delete: "delete", WRITE;
        Incr: "incr", WRITE;
        Decr: "decr", WRITE;
        Touch: "touch", WRITE;
        FlushAll: "flush_all", WRITE;
        Version: "version", NONE;
        Verbosity: "verbosity", NONE;
        Quit: "quit", NONE;
        Stats: "stats", NONE;
        Config: "config", NONE;
        Shutdown: "shutdown", NONE;
        Mn: "mn", NONE;
        Mg: "mg", READ;
        Ms: "ms", WRITE;
        Md: "md", WRITE;
        Ma: "ma", WRITE;
        Me: "me", READ;
        LruCrawler: "lru_crawler", NONE;
        Watch: "watch", NONE;
        RefreshCerts: "refresh_certs", NONE;
        CacheMemlimit: "cache_memlimit", NONE;
        Noop: "noop", NONE;
        Auth: "auth", NONE;
        Unknown: "unknown", NONE;
    }
}

verbs! {
    /// The native protocol's ops, in the order of their counters.
    pub enum NativeCommand {
        Ping: "ping", NONE;
        Get: "get", READ;
        Pull: "pull", READ;
        Set: "set", WRITE;
        Delete: "delete", WRITE;
        Incr: "incr", WRITE;
        Append: "append", WRITE;
        Prepend: "prepend", WRITE;
        Touch: "touch", WRITE;
        Range: "range", READ;
        Unknown: "unknown", NONE;
    }
}
