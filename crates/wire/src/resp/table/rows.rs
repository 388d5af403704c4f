//! The rows: all that a command is beside its types, its parser and its handler.
//!
//! ```text
//!  GetRange = "getrange", 4, [R] {One Tells}, (1, 1, 1) [READ], String, "2.4.0",
//!  │          │          │   │   │            │          │      │       └ the version it came with
//!  │          │          │   │   │            │          │      └ its group: which file has its
//!  │          │          │   │   │            │          │        parser
//!  │          │          │   │   │            │          └ what becomes of each key (key_uses.rs)
//!  │          │          │   │   │            └ the places of its keys: first, last, step
//!  │          │          │   │   └ how it runs, and how long its reply is (handling.rs)
//!  │          │          │   └ flags as in Redis, a letter each
//!  │          │          └ arity: arguments with the name; negative: at least
//!  │          └ name, lower case
//!  └ variant of `CommandId`
//!      "Reads a part of a value",           summary, for COMMAND DOCS and COMMAND HELP
//!      "key:k#0 start:i end:i";             arguments, in the notation of `commands::facts`
//! ```

use super::handling::Handling;
use super::key_uses::KeyUse;
use super::{Flags, Group, KeySpec, Spec, is_subcommand};

const W: Flags = Flags::WRITE;
const R: Flags = Flags::READONLY;
const M: Flags = Flags::DENYOOM;
const A: Flags = Flags::ADMIN;
const S: Flags = Flags::NOSCRIPT;
const L: Flags = Flags::LOADING;
const T: Flags = Flags::STALE;
const F: Flags = Flags::FAST;
const N: Flags = Flags::NO_AUTH;
const B: Flags = Flags::ALLOW_BUSY;
const Q: Flags = Flags::SKIP_SLOWLOG;
const X: Flags = Flags::NO_MULTI;
const Y: Flags = Flags::NO_ASYNC_LOADING;
const K: Flags = Flags::MOVABLE_KEYS;
const P: Flags = Flags::PUBSUB;

macro_rules! command_rows {
    ($($id:ident = $name:literal, $arity:literal, [$($flag:ident)*] $({$($handling:ident)*})?,
        ($first:literal, $last:literal, $step:literal) $([$($key_use:ident)*])?,
        $group:ident, $since:literal, $summary:literal $(, $arguments:literal)?;)*) => {
        /// Every command and subcommand; its number is its row in the table (T1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum CommandId {
            $(#[doc = $summary] $id,)*
        }

        impl CommandId {
            /// How many there are: the size of an array indexed by `id as usize`.
            pub const COUNT: usize = [$(CommandId::$id),*].len();
        }

        pub(super) const NAMES: [(&str, CommandId); CommandId::COUNT] =
            [$(($name, CommandId::$id)),*];

        pub(super) static ROWS: [Spec; CommandId::COUNT] = [$(Spec {
            id: CommandId::$id,
            name: $name,
            arity: $arity,
            flags: Flags::NONE$(.with($flag))*,
            handling: Handling::ALONE$($(.with(Handling::$handling))*)?,
            keys: KeySpec { first: $first, last: $last, step: $step },
            key_uses: &[$($(KeyUse::$key_use),*)?],
            group: Group::$group,
            since: $since,
            summary: $summary,
            arguments: concat!($($arguments)?),
            is_subcommand: is_subcommand($name),
        }),*];
    };
}

command_rows! {
    Hello = "hello", -1, [S L T F N B] {Short}, (0, 0, 0), Connection, "6.0.0",
        "Chooses the protocol version; may authenticate and name the connection",
        "arguments:b?(protover:i username_password:b=AUTH?(username:s password:s) \
         clientname:s=SETNAME?)";
    Auth = "auth", -2, [S L T F N B] {Short}, (0, 0, 0), Connection, "1.0.0",
        "Authenticates the connection",
        "username:s@6.0.0? password:s";
    Ping = "ping", -1, [F] {Short}, (0, 0, 0), Connection, "1.0.0",
        "Answers PONG or the message",
        "message:s?";
    Echo = "echo", 2, [L T F] {Short}, (0, 0, 0), Connection, "1.0.0",
        "Answers the message",
        "message:s";
    Select = "select", 2, [L T F] {Short}, (0, 0, 0), Connection, "1.0.0",
        "Chooses a database",
        "index:i";
    Quit = "quit", -1, [S L T F N B] {Short}, (0, 0, 0), Connection, "1.0.0",
        "Closes the connection";
    Reset = "reset", 1, [S L T F N B] {Short}, (0, 0, 0), Connection, "6.2.0",
        "Puts the connection back to its initial state";
    Client = "client", -2, [] {Short}, (0, 0, 0), Connection, "2.4.0",
        "Commands about connections";
    ClientSetInfo = "client|setinfo", 4, [S L T] {Short}, (0, 0, 0), Connection, "7.2.0",
        "Sets the name or version of the client library",
        "attr:o(libname:s=LIB-NAME libver:s=LIB-VER)";
    ClientNoTouch = "client|no-touch", 3, [S L T] {Short}, (0, 0, 0), Connection, "7.2.0",
        "Keeps reads of this connection from counting as use",
        "enabled:o(on:t=ON off:t=OFF)";
    ClientList = "client|list", -2, [A S L T] {Measured}, (0, 0, 0), Connection, "2.4.0",
        "Lists the connections",
        "normal_master_replica_pubsub:o=TYPE@5.0.0?(normal:t=NORMAL master:t=MASTER \
         replica:t=REPLICA pubsub:t=PUBSUB) id:b=ID@6.2.0?(client-id:i*)";
    ClientId = "client|id", 2, [S L T] {Short}, (0, 0, 0), Connection, "5.0.0",
        "Tells the id of this connection";
    ClientInfo = "client|info", 2, [S L T] {Measured}, (0, 0, 0), Connection, "6.2.0",
        "Describes this connection";
    ClientUnpause = "client|unpause", 2, [A S L T] {Short}, (0, 0, 0), Connection, "6.2.0",
        "Ends a pause";
    ClientKill = "client|kill", -3, [A S L T] {Short}, (0, 0, 0), Connection, "2.4.0",
        "Closes connections",
        "filter:o(ip:port:s!2.8.12 new-format:o*(client-id:i=ID@2.8.12? \
         normal_master_slave_pubsub:o=TYPE@2.8.12?(normal:t=NORMAL master:t=MASTER@3.2.0 \
         slave:t=SLAVE replica:t=REPLICA@5.0.0 pubsub:t=PUBSUB) username:s=USER? ip:port:s=ADDR? \
         ip:port:s=LADDR@6.2.0? yes/no:s=SKIPME?))";
    ClientSetName = "client|setname", 3, [S L T] {Short}, (0, 0, 0), Connection, "2.6.9",
        "Names this connection",
        "connection-name:s";
    ClientReply = "client|reply", 3, [S L T] {Short}, (0, 0, 0), Connection, "3.2.0",
        "Turns replies on or off",
        "on_off_skip:o(on:t=ON off:t=OFF skip:t=SKIP)";
    ClientHelp = "client|help", 2, [L T] {Measured}, (0, 0, 0), Connection, "5.0.0",
        "Explains the subcommands";
    ClientGetName = "client|getname", 2, [S L T] {Measured}, (0, 0, 0), Connection, "2.6.9",
        "Tells the name of this connection";
    ClientNoEvict = "client|no-evict", 3, [A S L T] {Short}, (0, 0, 0), Connection, "7.0.0",
        "Protects this connection from eviction",
        "enabled:o(on:t=ON off:t=OFF)";
    ClientPause = "client|pause", -3, [A S L T] {Short}, (0, 0, 0), Connection, "2.9.50",
        "Holds back commands for a while",
        "timeout:i mode:o@6.2.0?(write:t=WRITE all:t=ALL)";
    ClientGetRedir = "client|getredir", 2, [S L T] {Short}, (0, 0, 0), Connection, "6.0.0",
        "Tells the client that gets this connection's invalidations";
    ClientTracking = "client|tracking", -3, [S L T] {Short}, (0, 0, 0), Connection, "6.0.0",
        "Turns client-side caching on or off",
        "status:o(on:t=ON off:t=OFF) client-id:i=REDIRECT? prefix:s=PREFIX?*+ bcast:t=BCAST? \
         optin:t=OPTIN? optout:t=OPTOUT? noloop:t=NOLOOP?";
    ClientTrackingInfo = "client|trackinginfo", 2, [S L T] {Measured}, (0, 0, 0),
        Connection, "6.2.0",
        "Tells what is tracked for this connection";
    ClientCaching = "client|caching", 3, [S L T] {Short}, (0, 0, 0), Connection, "6.0.0",
        "Chooses what the next command's keys are to client-side caching",
        "mode:o(yes:t=YES no:t=NO)";
    ClientUnblock = "client|unblock", -3, [A S L T] {Short}, (0, 0, 0), Connection, "5.0.0",
        "Ends a client's wait",
        "client-id:i timeout_error:o?(timeout:t=TIMEOUT error:t=ERROR)";
    Subscribe = "subscribe", -2, [P S L T] {Short}, (0, 0, 0), PubSub, "2.0.0",
        "Listens to the channel of invalidations",
        "channel:s*";
    Unsubscribe = "unsubscribe", -1, [P S L T] {Short}, (0, 0, 0), PubSub, "2.0.0",
        "Listens no more",
        "channel:s?*";
    Command = "command", -1, [L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Describes all commands";
    CommandGetKeys = "command|getkeys", -4, [L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Extracts the keys of a command";
    CommandGetKeysAndFlags = "command|getkeysandflags", -4, [L T] {Measured}, (0, 0, 0),
        Server, "7.0.0",
        "Extracts the keys of a command, and what becomes of each";
    CommandList = "command|list", -2, [L T] {Measured}, (0, 0, 0), Server, "7.0.0",
        "Lists command names",
        "filterby:o=FILTERBY?(module-name:s=MODULE category:s=ACLCAT pattern:p=PATTERN)";
    CommandInfo = "command|info", -2, [L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Describes commands",
        "command-name:s?*";
    CommandHelp = "command|help", 2, [L T] {Measured}, (0, 0, 0), Server, "5.0.0",
        "Explains the subcommands";
    CommandDocs = "command|docs", -2, [L T] {Measured}, (0, 0, 0), Server, "7.0.0",
        "Documents commands",
        "command-name:s?*";
    CommandCount = "command|count", 2, [L T] {Short}, (0, 0, 0), Server, "2.8.13",
        "Counts the commands";
    Get = "get", 2, [R F] {One Tells}, (1, 1, 1) [READ], String, "1.0.0",
        "Reads a value",
        "key:k#0";
    Set = "set", -3, [W M] {One Tells}, (1, 1, 1) [SET], String, "1.0.0",
        "Writes a value",
        "key:k#0 value:s condition:o@2.6.12?(nx:t=NX xx:t=XX) get:t=GET@6.2.0? \
         expiration:o?(seconds:i=EX@2.6.12 milliseconds:i=PX@2.6.12 \
         unix-time-seconds:u=EXAT@6.2.0 unix-time-milliseconds:u=PXAT@6.2.0 \
         keepttl:t=KEEPTTL@6.0.0)";
    GetEx = "getex", -2, [W F] {One Value Tells}, (1, 1, 1) [GETEX], String, "6.2.0",
        "Reads a value and changes its expiry",
        "key:k#0 expiration:o?(seconds:i=EX milliseconds:i=PX unix-time-seconds:u=EXAT \
         unix-time-milliseconds:u=PXAT persist:t=PERSIST)";
    GetDel = "getdel", 2, [W F] {One Tells}, (1, 1, 1) [TAKE], String, "6.2.0",
        "Reads a value and deletes it",
        "key:k#0";
    GetSet = "getset", 3, [W M F] {One Tells}, (1, 1, 1) [CHANGE], String, "1.0.0",
        "Writes a value and answers the old one",
        "key:k#0 value:s";
    SetNx = "setnx", 3, [W M F] {One}, (1, 1, 1) [INSERT], String, "1.0.0",
        "Writes a value if the key is absent",
        "key:k#0 value:s";
    SetEx = "setex", 4, [W M] {One}, (1, 1, 1) [REPLACE], String, "2.0.0",
        "Writes a value that expires after seconds",
        "key:k#0 seconds:i value:s";
    PSetEx = "psetex", 4, [W M] {One}, (1, 1, 1) [REPLACE], String, "2.6.0",
        "Writes a value that expires after milliseconds",
        "key:k#0 milliseconds:i value:s";
    MGet = "mget", -2, [R F] {Tells}, (1, -1, 1) [READ], String, "1.0.0",
        "Reads several values as of one moment",
        "key:k#0*";
    MSet = "mset", -3, [W M] {Several}, (1, -1, 2) [REPLACE], String, "1.0.1",
        "Writes several values at once",
        "key_value:b*(key:k#0 value:s)";
    MSetNx = "msetnx", -3, [W M] {Several}, (1, -1, 2) [INSERT], String, "1.0.1",
        "Writes several values if all keys are absent",
        "key_value:b*(key:k#0 value:s)";
    MSetEx = "msetex", -4, [W M K] {Several}, (2, 0, 2) [REPLACE], String, "8.4.0",
        "Writes several values with one expiry at once",
        "numkeys:i data:b*(key:k#0 value:s) condition:o?(nx:t=NX xx:t=XX) \
         expiration:o?(seconds:i=EX milliseconds:i=PX unix-time-seconds:u=EXAT \
         unix-time-milliseconds:u=PXAT keepttl:t=KEEPTTL)";
    Incr = "incr", 2, [W M F] {One}, (1, 1, 1) [CHANGE], String, "1.0.0",
        "Adds one to an integer",
        "key:k#0";
    Decr = "decr", 2, [W M F] {One}, (1, 1, 1) [CHANGE], String, "1.0.0",
        "Subtracts one from an integer",
        "key:k#0";
    IncrBy = "incrby", 3, [W M F] {One}, (1, 1, 1) [CHANGE], String, "1.0.0",
        "Adds to an integer",
        "key:k#0 increment:i";
    DecrBy = "decrby", 3, [W M F] {One}, (1, 1, 1) [CHANGE], String, "1.0.0",
        "Subtracts from an integer",
        "key:k#0 decrement:i";
    IncrByFloat = "incrbyfloat", 3, [W M F] {One Tells}, (1, 1, 1) [CHANGE], String, "2.6.0",
        "Adds to a decimal number",
        "key:k#0 increment:d";
    Append = "append", 3, [W M F] {One Value}, (1, 1, 1) [EXTEND], String, "2.0.0",
        "Appends to a value",
        "key:k#0 value:s";
    StrLen = "strlen", 2, [R F] {One}, (1, 1, 1) [LOOK], String, "2.2.0",
        "Tells the length of a value",
        "key:k#0";
    GetRange = "getrange", 4, [R] {One Tells}, (1, 1, 1) [READ], String, "2.4.0",
        "Reads a part of a value",
        "key:k#0 start:i end:i";
    Substr = "substr", 4, [R] {One Tells}, (1, 1, 1) [READ], String, "1.0.0",
        "Reads a part of a value; an old name of GETRANGE",
        "key:k#0 start:i end:i";
    SetRange = "setrange", 4, [W M] {One Value}, (1, 1, 1) [ALTER], String, "2.2.0",
        "Overwrites a part of a value",
        "key:k#0 offset:i value:s";
    Digest = "digest", 2, [R F] {One Value}, (1, 1, 1) [READ], String, "8.4.0",
        "Tells the digest of a value",
        "key:k#0";
    Lcs = "lcs", -3, [R] {Tells}, (1, 2, 1) [READ], String, "7.0.0",
        "Finds the longest common subsequence of two values",
        "key1:k#0 key2:k#0 len:t=LEN? idx:t=IDX? len:i=MINMATCHLEN? withmatchlen:t=WITHMATCHLEN?";
    SetBit = "setbit", 4, [W M] {One Value}, (1, 1, 1) [CHANGE], Bitmap, "2.2.0",
        "Writes a bit of a value",
        "key:k#0 offset:i value:i";
    GetBit = "getbit", 3, [R F] {One}, (1, 1, 1) [READ], Bitmap, "2.2.0",
        "Reads a bit of a value",
        "key:k#0 offset:i";
    BitCount = "bitcount", -2, [R] {One Value}, (1, 1, 1) [READ], Bitmap, "2.6.0",
        "Counts the bits that are set",
        "key:k#0 index:b?(start:i end:i index_unit:o@7.0.0?(byte:t=BYTE bit:t=BIT))";
    BitPos = "bitpos", -3, [R] {One Value}, (1, 1, 1) [READ], Bitmap, "2.8.7",
        "Finds the first bit that is set or clear",
        "key:k#0 bit:i index:b?(start:i end_index:b?(end:i index_unit:o@7.0.0?(byte:t=BYTE \
         bit:t=BIT)))";
    BitOp = "bitop", -4, [W M] {Several}, (2, -1, 1) [REPLACE READ], Bitmap, "2.6.0",
        "Combines the bits of several values into another",
        "operation:s destkey:k#0 key:k#1*";
    BitField = "bitfield", -2, [W M] {Several Value}, (1, 1, 1) [FIELDS], Bitmap, "3.2.0",
        "Reads and writes integers of any width in a value",
        "key:k#0 operation:o?*(encoding_offset:b=GET(encoding:s offset:i) \
         write:b(wrap_sat_fail:o=OVERFLOW?(wrap:t=WRAP sat:t=SAT fail:t=FAIL) \
         write_operation:o(encoding_offset_value:b=SET(encoding:s offset:i value:i) \
         encoding_offset_increment:b=INCRBY(encoding:s offset:i increment:i))))";
    BitFieldRo = "bitfield_ro", -2, [R F] {Value}, (1, 1, 1) [READ], Bitmap, "6.0.0",
        "Reads integers of any width in a value",
        "key:k#0 encoding_offset:b=GET?*+(encoding:s offset:i)";
    DelEx = "delex", -2, [W F] {One}, (1, 1, 1) [DROP], String, "8.4.0",
        "Deletes a key if its value is as expected",
        "key:k#0 condition:o?(ifeq-value:s=IFEQ ifne-value:s=IFNE ifdeq-digest:s=IFDEQ \
         ifdne-digest:s=IFDNE)";
    DelIfEq = "delifeq", 3, [W F] {One}, (1, 1, 1) [TAKE], String, "9.0.0",
        "Deletes a key if it has this value",
        "key:k#0 value:s";
    Move = "move", 3, [W F], (1, 1, 1) [CHANGE], Generic, "1.0.0",
        "Moves a key to another database: there is only one",
        "key:k#0 db:i";
    SwapDb = "swapdb", 3, [W F] {Short}, (0, 0, 0), Server, "4.0.0",
        "Swaps two databases: there is only one",
        "index1:i index2:i";
    Dump = "dump", 2, [R] {Value Tells}, (1, 1, 1) [READ], Generic, "2.6.0",
        "Serializes a value",
        "key:k#0";
    Restore = "restore", -4, [W M] {Several}, (1, 1, 1) [REPLACE], Generic, "2.6.0",
        "Writes a value that DUMP has serialized",
        "key:k#0 ttl:i serialized-value:s replace:t=REPLACE@3.0.0? absttl:t=ABSTTL@5.0.0? \
         seconds:i=IDLETIME@5.0.0? frequency:i=FREQ@5.0.0?";
    Del = "del", -2, [W] {One Several}, (1, -1, 1) [REMOVE], Generic, "1.0.0",
        "Deletes keys",
        "key:k#0*";
    Unlink = "unlink", -2, [W F] {One Several}, (1, -1, 1) [REMOVE], Generic, "4.0.0",
        "Deletes keys; memory returns in the background",
        "key:k#0*";
    Exists = "exists", -2, [R F] {One}, (1, -1, 1) [LOOK], Generic, "1.0.0",
        "Counts the keys that exist",
        "key:k#0*";
    Type = "type", 2, [R F] {One}, (1, 1, 1) [LOOK], Generic, "1.0.0",
        "Tells the type of a value",
        "key:k#0";
    Touch = "touch", -2, [R F] {One}, (1, -1, 1) [LOOK], Generic, "3.2.1",
        "Marks keys as used",
        "key:k#0*";
    Expire = "expire", -3, [W F] {One Value}, (1, 1, 1) [ALTER], Generic, "1.0.0",
        "Sets an expiry in seconds from now",
        "key:k#0 seconds:i condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)";
    PExpire = "pexpire", -3, [W F] {One Value}, (1, 1, 1) [ALTER], Generic, "2.6.0",
        "Sets an expiry in milliseconds from now",
        "key:k#0 milliseconds:i condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)";
    ExpireAt = "expireat", -3, [W F] {One Value}, (1, 1, 1) [ALTER], Generic, "1.2.0",
        "Sets an expiry as a Unix time in seconds",
        "key:k#0 unix-time-seconds:u condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)";
    PExpireAt = "pexpireat", -3, [W F] {One Value}, (1, 1, 1) [ALTER], Generic, "2.6.0",
        "Sets an expiry as a Unix time in milliseconds",
        "key:k#0 unix-time-milliseconds:u condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)";
    ExpireTime = "expiretime", 2, [R F] {One}, (1, 1, 1) [READ], Generic, "7.0.0",
        "Tells the expiry as a Unix time in seconds",
        "key:k#0";
    PExpireTime = "pexpiretime", 2, [R F] {One}, (1, 1, 1) [READ], Generic, "7.0.0",
        "Tells the expiry as a Unix time in milliseconds",
        "key:k#0";
    Ttl = "ttl", 2, [R F] {One}, (1, 1, 1) [READ], Generic, "1.0.0",
        "Tells the seconds until expiry",
        "key:k#0";
    PTtl = "pttl", 2, [R F] {One}, (1, 1, 1) [READ], Generic, "2.6.0",
        "Tells the milliseconds until expiry",
        "key:k#0";
    Persist = "persist", 2, [W F] {One Value}, (1, 1, 1) [ALTER], Generic, "2.2.0",
        "Removes the expiry",
        "key:k#0";
    Rename = "rename", 3, [W] {Several Value}, (1, 2, 1) [TAKE REPLACE], Generic, "1.0.0",
        "Renames a key",
        "key:k#0 newkey:k#1";
    RenameNx = "renamenx", 3, [W F] {Several}, (1, 2, 1) [TAKE INSERT], Generic, "1.0.0",
        "Renames a key if the new name is free",
        "key:k#0 newkey:k#1";
    RandomKey = "randomkey", 1, [R] {Keyspace}, (0, 0, 0), Generic, "1.0.0",
        "Answers some key";
    Keys = "keys", 2, [R] {Measured Keyspace}, (0, 0, 0), Generic, "1.0.0",
        "Lists the keys that match a pattern",
        "pattern:p";
    Scan = "scan", -2, [R] {Measured Keyspace}, (0, 0, 0), Generic, "2.8.0",
        "Walks the keys in steps",
        "cursor:i pattern:p=MATCH? count:i=COUNT? type:s=TYPE@6.0.0?";
    KvRange = "kv.range", -3, [R] {Measured Keyspace}, (0, 0, 0), Generic, "0.1.0",
        "Reads a part of the key order",
        "start:s end:s limit:i=LIMIT? rev:t=REV? keysonly:t=KEYSONLY?";
    DbSize = "dbsize", 1, [R F] {Short Keyspace}, (0, 0, 0), Server, "1.0.0",
        "Counts the keys";
    FlushDb = "flushdb", -1, [W] {Short Keyspace}, (0, 0, 0), Server, "1.0.0",
        "Deletes all keys of the database",
        "async:o?(async:t=ASYNC@4.0.0 sync:t=SYNC@6.2.0)";
    FlushAll = "flushall", -1, [W] {Short Keyspace}, (0, 0, 0), Server, "1.0.0",
        "Deletes all keys",
        "async:o?(async:t=ASYNC@4.0.0 sync:t=SYNC@6.2.0)";
    Info = "info", -1, [L T] {Measured}, (0, 0, 0), Server, "1.0.0",
        "Describes the server",
        "section:s?*";
    Config = "config", -2, [] {Short}, (0, 0, 0), Server, "2.0.0",
        "Commands about settings";
    ConfigGet = "config|get", -3, [A S L T] {Measured}, (0, 0, 0), Server, "2.0.0",
        "Reads settings",
        "parameter:b*(parameter:s)";
    ConfigRewrite = "config|rewrite", 2, [A S L T] {Short}, (0, 0, 0), Server, "2.8.0",
        "Writes settings to the configuration file";
    ConfigResetStat = "config|resetstat", 2, [A S L T] {Short}, (0, 0, 0), Server, "2.0.0",
        "Resets counters";
    ConfigHelp = "config|help", 2, [L T] {Measured}, (0, 0, 0), Server, "5.0.0",
        "Explains the subcommands";
    ConfigSet = "config|set", -4, [A S L T] {Short}, (0, 0, 0), Server, "2.0.0",
        "Changes settings",
        "parameter_value:b*(parameter:s value:s)";
    Time = "time", 1, [L T F] {Short}, (0, 0, 0), Server, "2.6.0",
        "Tells the time of the server";
    Multi = "multi", 1, [S L T F B] {Short}, (0, 0, 0), Transactions, "1.2.0",
        "Starts a transaction";
    Exec = "exec", 1, [S L T Q] {Short}, (0, 0, 0), Transactions, "1.2.0",
        "Runs the transaction";
    Discard = "discard", 1, [S L T F B] {Short}, (0, 0, 0), Transactions, "2.0.0",
        "Drops the transaction";
    Watch = "watch", -2, [S L T F B], (1, -1, 1) [LOOK], Transactions, "2.2.0",
        "Makes EXEC depend on keys staying as they are",
        "key:k#0*";
    Unwatch = "unwatch", 1, [S L T F B] {Short}, (0, 0, 0), Transactions, "2.2.0",
        "Forgets the watched keys";
    Object = "object", -2, [] {Short}, (0, 0, 0), Generic, "2.2.3",
        "Commands about how a value is kept";
    ObjectIdleTime = "object|idletime", 3, [R] {One}, (2, 2, 1) [LOOK], Generic, "2.2.3",
        "Tells the seconds since last use",
        "key:k#0";
    ObjectHelp = "object|help", 2, [L T] {Measured}, (0, 0, 0), Generic, "6.2.0",
        "Explains the subcommands";
    ObjectFreq = "object|freq", 3, [R] {One}, (2, 2, 1) [LOOK], Generic, "4.0.0",
        "Tells how often a key is used",
        "key:k#0";
    ObjectEncoding = "object|encoding", 3, [R] {One}, (2, 2, 1) [LOOK], Generic, "2.2.3",
        "Tells how a value is encoded",
        "key:k#0";
    ObjectRefCount = "object|refcount", 3, [R] {One}, (2, 2, 1) [LOOK], Generic, "2.2.3",
        "Tells the reference count of a value",
        "key:k#0";
    Shutdown = "shutdown", -1, [A S L T X B] {Short}, (0, 0, 0), Server, "1.0.0",
        "Stops the server",
        "nosave_save:o?(nosave:t=NOSAVE save:t=SAVE) now:t=NOW@7.0.0? force:t=FORCE@7.0.0? \
         abort:t=ABORT@7.0.0?";
    Role = "role", 1, [S L T F] {Measured}, (0, 0, 0), Server, "2.8.12",
        "Tells the replication role";
    Memory = "memory", -2, [] {Short}, (0, 0, 0), Server, "4.0.0",
        "Commands about memory";
    MemoryHelp = "memory|help", 2, [L T] {Measured}, (0, 0, 0), Server, "4.0.0",
        "Explains the subcommands";
    MemoryUsage = "memory|usage", -3, [R] {One}, (2, 2, 1) [LOOK], Server, "4.0.0",
        "Tells the bytes that a key takes",
        "key:k#0 count:i=SAMPLES?";
    LastSave = "lastsave", 1, [L T F] {Short}, (0, 0, 0), Server, "1.0.0",
        "Tells the Unix time of the last save";
    MemoryStats = "memory|stats", 2, [] {Measured}, (0, 0, 0), Server, "4.0.0",
        "Tells what takes the memory";
    MemoryDoctor = "memory|doctor", 2, [] {Measured}, (0, 0, 0), Server, "4.0.0",
        "Reports in words what is wrong with the memory";
    MemoryMallocStats = "memory|malloc-stats", 2, [] {Measured}, (0, 0, 0), Server, "4.0.0",
        "Tells what the allocator counts";
    MemoryPurge = "memory|purge", 2, [] {Short}, (0, 0, 0), Server, "4.0.0",
        "Returns unused memory";
    Save = "save", 1, [A S X Y] {Short}, (0, 0, 0), Server, "1.0.0",
        "Waits until everything is on the disk";
    BgSave = "bgsave", -1, [A S Y] {Short}, (0, 0, 0), Server, "1.0.0",
        "Asks for a commit of the log",
        "schedule:t=SCHEDULE@3.2.2?";
    BgRewriteAof = "bgrewriteaof", 1, [A S Y] {Short}, (0, 0, 0), Server, "1.0.0",
        "Asks for a commit of the log, which cleans itself";
    Debug = "debug", -2, [A S L T] {Short}, (0, 0, 0), Server, "1.0.0",
        "What tests of clients need";
    Monitor = "monitor", 1, [A S L T] {Short}, (0, 0, 0), Server, "1.0.0",
        "Shows every command as it arrives";
    HotKeys = "hotkeys", -2, [] {Short}, (0, 0, 0), Server, "8.6.0",
        "Commands about the keys that are asked for most";
    HotKeysGet = "hotkeys|get", 2, [A S] {Measured}, (0, 0, 0), Server, "8.6.0",
        "Lists the keys that are asked for most, or what the session has counted";
    HotKeysStart = "hotkeys|start", -2, [A S] {Short}, (0, 0, 0), Server, "8.6.0",
        "Starts a session that counts time and bytes by key",
        "metrics:b=METRICS(count:i cpu:t=CPU? net:t=NET?) k:i=COUNT? seconds:i=DURATION? \
         ratio:i=SAMPLE? slots:b=SLOTS?(count:i slot:i*)";
    HotKeysStop = "hotkeys|stop", 2, [A S] {Short}, (0, 0, 0), Server, "8.6.0",
        "Ends the session and keeps what it has counted";
    HotKeysReset = "hotkeys|reset", 2, [A S] {Short}, (0, 0, 0), Server, "8.6.0",
        "Forgets what the session has counted";
    HotKeysList = "hotkeys|list", 3, [A S] {Measured}, (0, 0, 0), Server, "0.1.0",
        "Shows all that is known of hot keys, as JSON",
        "format:t=JSON";
    HotKeysHelp = "hotkeys|help", 2, [L T] {Measured}, (0, 0, 0), Server, "8.6.0",
        "Explains the subcommands";
    Lolwut = "lolwut", -1, [R F] {Measured}, (0, 0, 0), Server, "5.0.0",
        "Shows a joint, and the version",
        "version:i=VERSION?";
    ReplicaOf = "replicaof", 3, [A S T Y] {Short}, (0, 0, 0), Server, "5.0.0",
        "Not for this server",
        "args:o(host-port:b(host:s port:i) no-one:b(no:t=NO one:t=ONE))";
    SlaveOf = "slaveof", 3, [A S T Y] {Short}, (0, 0, 0), Server, "1.0.0",
        "Not for this server; an old name of REPLICAOF",
        "args:o(host-port:b(host:s port:i) no-one:b(no:t=NO one:t=ONE))";
    Sync = "sync", 1, [A S X Y] {Short}, (0, 0, 0), Server, "1.0.0",
        "Not for this server";
    PSync = "psync", -3, [A S X Y] {Short}, (0, 0, 0), Server, "2.8.0",
        "Not for this server",
        "replicationid:s offset:i";
    ReplConf = "replconf", -1, [A S L T B] {Short}, (0, 0, 0), Server, "3.0.0",
        "Not for this server";
    Failover = "failover", -1, [A S T] {Short}, (0, 0, 0), Server, "6.2.0",
        "Not for this server",
        "target:b=TO?(host:s port:i force:t=FORCE?) abort:t=ABORT? milliseconds:i=TIMEOUT?";
    Module = "module", -2, [] {Short}, (0, 0, 0), Server, "4.0.0",
        "Commands about modules";
    ModuleList = "module|list", 2, [A S] {Short}, (0, 0, 0), Server, "4.0.0",
        "Lists the modules: there are none";
    ModuleLoad = "module|load", -3, [A S Y] {Short}, (0, 0, 0), Server, "4.0.0",
        "Not for this server",
        "path:s arg:s?*";
    ModuleLoadEx = "module|loadex", -3, [A S Y] {Short}, (0, 0, 0), Server, "7.0.0",
        "Not for this server",
        "path:s configs:b=CONFIG?*+(name:s value:s) args:b=ARGS?*(arg:s)";
    ModuleUnload = "module|unload", 3, [A S Y] {Short}, (0, 0, 0), Server, "4.0.0",
        "Not for this server",
        "name:s";
    ModuleHelp = "module|help", 2, [L T] {Measured}, (0, 0, 0), Server, "5.0.0",
        "Explains the subcommands";
    Acl = "acl", -2, [] {Short}, (0, 0, 0), Server, "6.0.0",
        "Commands about users";
    AclCat = "acl|cat", -2, [S L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Lists the categories, or the commands of one",
        "categoryname:s?";
    AclDelUser = "acl|deluser", -3, [A S L T] {Short}, (0, 0, 0), Server, "6.0.0",
        "Deletes users and closes their connections",
        "username:s*";
    AclDryRun = "acl|dryrun", -4, [A S L T] {Measured}, (0, 0, 0), Server, "7.0.0",
        "Tells whether a user may run a command",
        "username:s command:s arg:s?*";
    AclGenPass = "acl|genpass", -2, [S L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Draws a password",
        "bits:i?";
    AclGetUser = "acl|getuser", 3, [A S L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Describes a user",
        "username:s";
    AclHelp = "acl|help", 2, [L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Explains the subcommands";
    AclList = "acl|list", 2, [A S L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Describes all users";
    AclLoad = "acl|load", 2, [A S L T] {Short}, (0, 0, 0), Server, "6.0.0",
        "Reads the users from the ACL file";
    AclLog = "acl|log", -2, [A S L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Shows refused commands and logins",
        "operation:o?(count:i reset:t=RESET)";
    AclSave = "acl|save", 2, [A S L T] {Short}, (0, 0, 0), Server, "6.0.0",
        "Writes the users to the ACL file";
    AclSetUser = "acl|setuser", -3, [A S L T] {Short}, (0, 0, 0), Server, "6.0.0",
        "Creates or changes a user",
        "username:s rule:s?*";
    AclUsers = "acl|users", 2, [A S L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Lists the users";
    AclWhoAmI = "acl|whoami", 2, [S L T] {Measured}, (0, 0, 0), Server, "6.0.0",
        "Tells the user of this connection";
    Slowlog = "slowlog", -2, [] {Short}, (0, 0, 0), Server, "2.2.12",
        "Commands about the slow log";
    SlowlogGet = "slowlog|get", -2, [A L T] {Measured}, (0, 0, 0), Server, "2.2.12",
        "Shows what took long",
        "count:i?";
    SlowlogLen = "slowlog|len", 2, [A L T] {Short}, (0, 0, 0), Server, "2.2.12",
        "Counts what took long";
    SlowlogReset = "slowlog|reset", 2, [A L T] {Short}, (0, 0, 0), Server, "2.2.12",
        "Empties the slow log";
    SlowlogHelp = "slowlog|help", 2, [L T] {Measured}, (0, 0, 0), Server, "6.2.0",
        "Explains the subcommands";
    Latency = "latency", -2, [] {Short}, (0, 0, 0), Server, "2.8.13",
        "Commands about latency";
    LatencyDoctor = "latency|doctor", 2, [A S L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Reports in words what was slow";
    LatencyGraph = "latency|graph", 3, [A S L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Draws the samples of an event",
        "event:s";
    LatencyHistogram = "latency|histogram", -2, [A S L T] {Measured}, (0, 0, 0), Server, "7.0.0",
        "Tells how long commands took",
        "command:s?*";
    LatencyHistory = "latency|history", 3, [A S L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Lists the samples of an event",
        "event:s";
    LatencyLatest = "latency|latest", 2, [A S L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Tells the latest sample of each event";
    LatencyReset = "latency|reset", -2, [A S L T] {Short}, (0, 0, 0), Server, "2.8.13",
        "Forgets samples",
        "event:s?*";
    LatencyHelp = "latency|help", 2, [L T] {Measured}, (0, 0, 0), Server, "2.8.13",
        "Explains the subcommands";
    Wait = "wait", 3, [S] {Short}, (0, 0, 0), Generic, "3.0.0",
        "Waits for replicas",
        "numreplicas:i timeout:i";
    WaitAof = "waitaof", 4, [S] {Short}, (0, 0, 0), Generic, "7.2.0",
        "Waits for disks",
        "numlocal:i numreplicas:i timeout:i";
    Copy = "copy", -3, [W M] {Several Value}, (1, 2, 1) [READ REPLACE], Generic, "6.2.0",
        "Copies a value to another key",
        "source:k#0 destination:k#1 destination-db:i=DB? replace:t=REPLACE?";
    Cluster = "cluster", -2, [] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Commands about the cluster";
    ClusterKeySlot = "cluster|keyslot", 3, [T] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Tells the slot of a key",
        "key:s";
    ClusterBumpEpoch = "cluster|bumpepoch", 2, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterDelSlots = "cluster|delslots", -3, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "slot:i*";
    ClusterForget = "cluster|forget", 3, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "node-id:s";
    ClusterHelp = "cluster|help", 2, [L T] {Measured}, (0, 0, 0), Cluster, "5.0.0",
        "Explains the subcommands";
    ClusterSlaves = "cluster|slaves", 3, [A T] {Measured}, (0, 0, 0), Cluster, "3.0.0",
        "Lists the replicas of a node; an old name of REPLICAS",
        "node-id:s";
    ClusterAddSlotsRange = "cluster|addslotsrange", -4, [A T Y] {Short}, (0, 0, 0),
        Cluster, "7.0.0",
        "Not for this server",
        "start-slot_end-slot:b*(start-slot:i end-slot:i)";
    ClusterMyId = "cluster|myid", 2, [T] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Tells the id of this node";
    ClusterMyShardId = "cluster|myshardid", 2, [T] {Short}, (0, 0, 0), Cluster, "7.2.0",
        "Tells the id of this node's shard";
    ClusterSetConfigEpoch = "cluster|set-config-epoch", 3, [A T Y] {Short}, (0, 0, 0),
        Cluster, "3.0.0",
        "Not for this server",
        "config-epoch:i";
    ClusterFlushSlots = "cluster|flushslots", 2, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterAddSlots = "cluster|addslots", -3, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "slot:i*";
    ClusterSetSlot = "cluster|setslot", -4, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "slot:i subcommand:o(node-id:s=IMPORTING node-id:s=MIGRATING node-id:s=NODE \
         stable:t=STABLE)";
    ClusterReset = "cluster|reset", -2, [A S T] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "hard_soft:o?(hard:t=HARD soft:t=SOFT)";
    ClusterInfo = "cluster|info", 2, [T] {Measured}, (0, 0, 0), Cluster, "3.0.0",
        "Describes the cluster";
    ClusterSlots = "cluster|slots", 2, [T] {Measured}, (0, 0, 0), Cluster, "3.0.0",
        "Tells which nodes have which slots";
    ClusterDelSlotsRange = "cluster|delslotsrange", -4, [A T Y] {Short}, (0, 0, 0),
        Cluster, "7.0.0",
        "Not for this server",
        "start-slot_end-slot:b*(start-slot:i end-slot:i)";
    ClusterLinks = "cluster|links", 2, [T] {Measured}, (0, 0, 0), Cluster, "7.0.0",
        "Lists the links between nodes";
    ClusterFailover = "cluster|failover", -2, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "options:o?(force:t=FORCE takeover:t=TAKEOVER)";
    ClusterShards = "cluster|shards", 2, [T] {Measured}, (0, 0, 0), Cluster, "7.0.0",
        "Tells which nodes have which slots, with their state";
    ClusterSaveConfig = "cluster|saveconfig", 2, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterReplicate = "cluster|replicate", 3, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "node-id:s";
    ClusterCountKeysInSlot = "cluster|countkeysinslot", 3, [T] {Short Keyspace}, (0, 0, 0),
        Cluster, "3.0.0",
        "Counts the keys of a slot on this node",
        "slot:i";
    ClusterGetKeysInSlot = "cluster|getkeysinslot", 4, [T] {Measured Keyspace}, (0, 0, 0),
        Cluster, "3.0.0",
        "Lists keys of a slot on this node",
        "slot:i count:i";
    ClusterNodes = "cluster|nodes", 2, [T] {Measured}, (0, 0, 0), Cluster, "3.0.0",
        "Describes the nodes";
    ClusterMeet = "cluster|meet", -4, [A T Y] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Not for this server",
        "ip:s port:i cluster_bus_port:i@4.0.0?";
    ClusterReplicas = "cluster|replicas", 3, [A T] {Measured}, (0, 0, 0), Cluster, "5.0.0",
        "Lists the replicas of a node",
        "node-id:s";
    ClusterCountFailureReports = "cluster|count-failure-reports", 3, [A T] {Short}, (0, 0, 0),
        Cluster, "3.0.0",
        "Counts failure reports: always 0",
        "node-id:s";
    ReadOnly = "readonly", 1, [L T F] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Lets this connection read from copies of other nodes' slots";
    ReadWrite = "readwrite", 1, [L T F] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Ends READONLY";
    Asking = "asking", 1, [F] {Short}, (0, 0, 0), Cluster, "3.0.0",
        "Sent by clients behind an ASK redirect";
}
