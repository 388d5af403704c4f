//! The rows: name, arity, flags, keys (first, last, step), group, since, summary.

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
    ($($id:ident = $name:literal, $arity:literal, [$($flag:ident)*], ($first:literal, $last:literal,
        $step:literal), $group:ident, $since:literal, $summary:literal;)*) => {
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
            keys: KeySpec { first: $first, last: $last, step: $step },
            group: Group::$group,
            since: $since,
            summary: $summary,
            is_subcommand: is_subcommand($name),
        }),*];
    };
}

command_rows! {
    Hello = "hello", -1, [S L T F N B], (0, 0, 0), Connection, "6.0.0",
        "Chooses the protocol version; may authenticate and name the connection";
    Auth = "auth", -2, [S L T F N B], (0, 0, 0), Connection, "1.0.0",
        "Authenticates the connection";
    Ping = "ping", -1, [F], (0, 0, 0), Connection, "1.0.0",
        "Answers PONG or the message";
    Echo = "echo", 2, [L T F], (0, 0, 0), Connection, "1.0.0",
        "Answers the message";
    Select = "select", 2, [L T F], (0, 0, 0), Connection, "1.0.0",
        "Chooses a database";
    Quit = "quit", -1, [S L T F N B], (0, 0, 0), Connection, "1.0.0",
        "Closes the connection";
    Reset = "reset", 1, [S L T F N B], (0, 0, 0), Connection, "6.2.0",
        "Puts the connection back to its initial state";
    Client = "client", -2, [], (0, 0, 0), Connection, "2.4.0",
        "Commands about connections";
    ClientSetInfo = "client|setinfo", 4, [S L T], (0, 0, 0), Connection, "7.2.0",
        "Sets the name or version of the client library";
    ClientNoTouch = "client|no-touch", 3, [S L T], (0, 0, 0), Connection, "7.2.0",
        "Keeps reads of this connection from counting as use";
    ClientList = "client|list", -2, [A S L T], (0, 0, 0), Connection, "2.4.0",
        "Lists the connections";
    ClientId = "client|id", 2, [S L T], (0, 0, 0), Connection, "5.0.0",
        "Tells the id of this connection";
    ClientInfo = "client|info", 2, [S L T], (0, 0, 0), Connection, "6.2.0",
        "Describes this connection";
    ClientUnpause = "client|unpause", 2, [A S L T], (0, 0, 0), Connection, "6.2.0",
        "Ends a pause";
    ClientKill = "client|kill", -3, [A S L T], (0, 0, 0), Connection, "2.4.0",
        "Closes connections";
    ClientSetName = "client|setname", 3, [S L T], (0, 0, 0), Connection, "2.6.9",
        "Names this connection";
    ClientReply = "client|reply", 3, [S L T], (0, 0, 0), Connection, "3.2.0",
        "Turns replies on or off";
    ClientHelp = "client|help", 2, [L T], (0, 0, 0), Connection, "5.0.0",
        "Explains the subcommands";
    ClientGetName = "client|getname", 2, [S L T], (0, 0, 0), Connection, "2.6.9",
        "Tells the name of this connection";
    ClientNoEvict = "client|no-evict", 3, [A S L T], (0, 0, 0), Connection, "7.0.0",
        "Protects this connection from eviction";
    ClientPause = "client|pause", -3, [A S L T], (0, 0, 0), Connection, "2.9.50",
        "Holds back commands for a while";
    ClientGetRedir = "client|getredir", 2, [S L T], (0, 0, 0), Connection, "6.0.0",
        "Tells the client that gets this connection's invalidations";
    ClientTracking = "client|tracking", -3, [S L T], (0, 0, 0), Connection, "6.0.0",
        "Turns client-side caching on or off";
    ClientTrackingInfo = "client|trackinginfo", 2, [S L T], (0, 0, 0), Connection, "6.2.0",
        "Tells what is tracked for this connection";
    ClientCaching = "client|caching", 3, [S L T], (0, 0, 0), Connection, "6.0.0",
        "Chooses what the next command's keys are to client-side caching";
    ClientUnblock = "client|unblock", -3, [A S L T], (0, 0, 0), Connection, "5.0.0",
        "Ends a client's wait";
    Subscribe = "subscribe", -2, [P S L T], (0, 0, 0), PubSub, "2.0.0",
        "Listens to the channel of invalidations";
    Unsubscribe = "unsubscribe", -1, [P S L T], (0, 0, 0), PubSub, "2.0.0",
        "Listens no more";
    Command = "command", -1, [L T], (0, 0, 0), Server, "2.8.13",
        "Describes all commands";
    CommandGetKeys = "command|getkeys", -4, [L T], (0, 0, 0), Server, "2.8.13",
        "Extracts the keys of a command";
    CommandGetKeysAndFlags = "command|getkeysandflags", -4, [L T], (0, 0, 0), Server, "7.0.0",
        "Extracts the keys of a command, and what becomes of each";
    CommandList = "command|list", -2, [L T], (0, 0, 0), Server, "7.0.0",
        "Lists command names";
    CommandInfo = "command|info", -2, [L T], (0, 0, 0), Server, "2.8.13",
        "Describes commands";
    CommandHelp = "command|help", 2, [L T], (0, 0, 0), Server, "5.0.0",
        "Explains the subcommands";
    CommandDocs = "command|docs", -2, [L T], (0, 0, 0), Server, "7.0.0",
        "Documents commands";
    CommandCount = "command|count", 2, [L T], (0, 0, 0), Server, "2.8.13",
        "Counts the commands";
    Get = "get", 2, [R F], (1, 1, 1), String, "1.0.0",
        "Reads a value";
    Set = "set", -3, [W M], (1, 1, 1), String, "1.0.0",
        "Writes a value";
    GetEx = "getex", -2, [W F], (1, 1, 1), String, "6.2.0",
        "Reads a value and changes its expiry";
    GetDel = "getdel", 2, [W F], (1, 1, 1), String, "6.2.0",
        "Reads a value and deletes it";
    GetSet = "getset", 3, [W M F], (1, 1, 1), String, "1.0.0",
        "Writes a value and answers the old one";
    SetNx = "setnx", 3, [W M F], (1, 1, 1), String, "1.0.0",
        "Writes a value if the key is absent";
    SetEx = "setex", 4, [W M], (1, 1, 1), String, "2.0.0",
        "Writes a value that expires after seconds";
    PSetEx = "psetex", 4, [W M], (1, 1, 1), String, "2.6.0",
        "Writes a value that expires after milliseconds";
    MGet = "mget", -2, [R F], (1, -1, 1), String, "1.0.0",
        "Reads several values as of one moment";
    MSet = "mset", -3, [W M], (1, -1, 2), String, "1.0.1",
        "Writes several values at once";
    MSetNx = "msetnx", -3, [W M], (1, -1, 2), String, "1.0.1",
        "Writes several values if all keys are absent";
    MSetEx = "msetex", -4, [W M K], (2, 0, 2), String, "8.4.0",
        "Writes several values with one expiry at once";
    Incr = "incr", 2, [W M F], (1, 1, 1), String, "1.0.0",
        "Adds one to an integer";
    Decr = "decr", 2, [W M F], (1, 1, 1), String, "1.0.0",
        "Subtracts one from an integer";
    IncrBy = "incrby", 3, [W M F], (1, 1, 1), String, "1.0.0",
        "Adds to an integer";
    DecrBy = "decrby", 3, [W M F], (1, 1, 1), String, "1.0.0",
        "Subtracts from an integer";
    IncrByFloat = "incrbyfloat", 3, [W M F], (1, 1, 1), String, "2.6.0",
        "Adds to a decimal number";
    Append = "append", 3, [W M F], (1, 1, 1), String, "2.0.0",
        "Appends to a value";
    StrLen = "strlen", 2, [R F], (1, 1, 1), String, "2.2.0",
        "Tells the length of a value";
    GetRange = "getrange", 4, [R], (1, 1, 1), String, "2.4.0",
        "Reads a part of a value";
    Substr = "substr", 4, [R], (1, 1, 1), String, "1.0.0",
        "Reads a part of a value; an old name of GETRANGE";
    SetRange = "setrange", 4, [W M], (1, 1, 1), String, "2.2.0",
        "Overwrites a part of a value";
    Digest = "digest", 2, [R F], (1, 1, 1), String, "8.4.0",
        "Tells the digest of a value";
    Lcs = "lcs", -3, [R], (1, 2, 1), String, "7.0.0",
        "Finds the longest common subsequence of two values";
    SetBit = "setbit", 4, [W M], (1, 1, 1), Bitmap, "2.2.0",
        "Writes a bit of a value";
    GetBit = "getbit", 3, [R F], (1, 1, 1), Bitmap, "2.2.0",
        "Reads a bit of a value";
    BitCount = "bitcount", -2, [R], (1, 1, 1), Bitmap, "2.6.0",
        "Counts the bits that are set";
    BitPos = "bitpos", -3, [R], (1, 1, 1), Bitmap, "2.8.7",
        "Finds the first bit that is set or clear";
    BitOp = "bitop", -4, [W M], (2, -1, 1), Bitmap, "2.6.0",
        "Combines the bits of several values into another";
    BitField = "bitfield", -2, [W M], (1, 1, 1), Bitmap, "3.2.0",
        "Reads and writes integers of any width in a value";
    BitFieldRo = "bitfield_ro", -2, [R F], (1, 1, 1), Bitmap, "6.0.0",
        "Reads integers of any width in a value";
    DelEx = "delex", -2, [W F], (1, 1, 1), String, "8.4.0",
        "Deletes a key if its value is as expected";
    DelIfEq = "delifeq", 3, [W F], (1, 1, 1), String, "9.0.0",
        "Deletes a key if it has this value";
    Move = "move", 3, [W F], (1, 1, 1), Generic, "1.0.0",
        "Moves a key to another database: there is only one";
    SwapDb = "swapdb", 3, [W F], (0, 0, 0), Server, "4.0.0",
        "Swaps two databases: there is only one";
    Dump = "dump", 2, [R], (1, 1, 1), Generic, "2.6.0",
        "Serializes a value";
    Restore = "restore", -4, [W M], (1, 1, 1), Generic, "2.6.0",
        "Writes a value that DUMP has serialized";
    Del = "del", -2, [W], (1, -1, 1), Generic, "1.0.0",
        "Deletes keys";
    Unlink = "unlink", -2, [W F], (1, -1, 1), Generic, "4.0.0",
        "Deletes keys; memory returns in the background";
    Exists = "exists", -2, [R F], (1, -1, 1), Generic, "1.0.0",
        "Counts the keys that exist";
    Type = "type", 2, [R F], (1, 1, 1), Generic, "1.0.0",
        "Tells the type of a value";
    Touch = "touch", -2, [R F], (1, -1, 1), Generic, "3.2.1",
        "Marks keys as used";
    Expire = "expire", -3, [W F], (1, 1, 1), Generic, "1.0.0",
        "Sets an expiry in seconds from now";
    PExpire = "pexpire", -3, [W F], (1, 1, 1), Generic, "2.6.0",
        "Sets an expiry in milliseconds from now";
    ExpireAt = "expireat", -3, [W F], (1, 1, 1), Generic, "1.2.0",
        "Sets an expiry as a Unix time in seconds";
    PExpireAt = "pexpireat", -3, [W F], (1, 1, 1), Generic, "2.6.0",
        "Sets an expiry as a Unix time in milliseconds";
    ExpireTime = "expiretime", 2, [R F], (1, 1, 1), Generic, "7.0.0",
        "Tells the expiry as a Unix time in seconds";
    PExpireTime = "pexpiretime", 2, [R F], (1, 1, 1), Generic, "7.0.0",
        "Tells the expiry as a Unix time in milliseconds";
    Ttl = "ttl", 2, [R F], (1, 1, 1), Generic, "1.0.0",
        "Tells the seconds until expiry";
    PTtl = "pttl", 2, [R F], (1, 1, 1), Generic, "2.6.0",
        "Tells the milliseconds until expiry";
    Persist = "persist", 2, [W F], (1, 1, 1), Generic, "2.2.0",
        "Removes the expiry";
    Rename = "rename", 3, [W], (1, 2, 1), Generic, "1.0.0",
        "Renames a key";
    RenameNx = "renamenx", 3, [W F], (1, 2, 1), Generic, "1.0.0",
        "Renames a key if the new name is free";
    RandomKey = "randomkey", 1, [R], (0, 0, 0), Generic, "1.0.0",
        "Answers some key";
    Keys = "keys", 2, [R], (0, 0, 0), Generic, "1.0.0",
        "Lists the keys that match a pattern";
    Scan = "scan", -2, [R], (0, 0, 0), Generic, "2.8.0",
        "Walks the keys in steps";
    KvRange = "kv.range", -3, [R], (0, 0, 0), Generic, "0.1.0",
        "Reads a part of the key order";
    DbSize = "dbsize", 1, [R F], (0, 0, 0), Server, "1.0.0",
        "Counts the keys";
    FlushDb = "flushdb", -1, [W], (0, 0, 0), Server, "1.0.0",
        "Deletes all keys of the database";
    FlushAll = "flushall", -1, [W], (0, 0, 0), Server, "1.0.0",
        "Deletes all keys";
    Info = "info", -1, [L T], (0, 0, 0), Server, "1.0.0",
        "Describes the server";
    Config = "config", -2, [], (0, 0, 0), Server, "2.0.0",
        "Commands about settings";
    ConfigGet = "config|get", -3, [A S L T], (0, 0, 0), Server, "2.0.0",
        "Reads settings";
    ConfigRewrite = "config|rewrite", 2, [A S L T], (0, 0, 0), Server, "2.8.0",
        "Writes settings to the configuration file";
    ConfigResetStat = "config|resetstat", 2, [A S L T], (0, 0, 0), Server, "2.0.0",
        "Resets counters";
    ConfigHelp = "config|help", 2, [L T], (0, 0, 0), Server, "5.0.0",
        "Explains the subcommands";
    ConfigSet = "config|set", -4, [A S L T], (0, 0, 0), Server, "2.0.0",
        "Changes settings";
    Time = "time", 1, [L T F], (0, 0, 0), Server, "2.6.0",
        "Tells the time of the server";
    Multi = "multi", 1, [S L T F B], (0, 0, 0), Transactions, "1.2.0",
        "Starts a transaction";
    Exec = "exec", 1, [S L T Q], (0, 0, 0), Transactions, "1.2.0",
        "Runs the transaction";
    Discard = "discard", 1, [S L T F B], (0, 0, 0), Transactions, "2.0.0",
        "Drops the transaction";
    Watch = "watch", -2, [S L T F B], (1, -1, 1), Transactions, "2.2.0",
        "Makes EXEC depend on keys staying as they are";
    Unwatch = "unwatch", 1, [S L T F B], (0, 0, 0), Transactions, "2.2.0",
        "Forgets the watched keys";
    Object = "object", -2, [], (0, 0, 0), Generic, "2.2.3",
        "Commands about how a value is kept";
    ObjectIdleTime = "object|idletime", 3, [R], (2, 2, 1), Generic, "2.2.3",
        "Tells the seconds since last use";
    ObjectHelp = "object|help", 2, [L T], (0, 0, 0), Generic, "6.2.0",
        "Explains the subcommands";
    ObjectFreq = "object|freq", 3, [R], (2, 2, 1), Generic, "4.0.0",
        "Tells how often a key is used";
    ObjectEncoding = "object|encoding", 3, [R], (2, 2, 1), Generic, "2.2.3",
        "Tells how a value is encoded";
    ObjectRefCount = "object|refcount", 3, [R], (2, 2, 1), Generic, "2.2.3",
        "Tells the reference count of a value";
    Shutdown = "shutdown", -1, [A S L T X B], (0, 0, 0), Server, "1.0.0",
        "Stops the server";
    Role = "role", 1, [S L T F], (0, 0, 0), Server, "2.8.12",
        "Tells the replication role";
    Memory = "memory", -2, [], (0, 0, 0), Server, "4.0.0",
        "Commands about memory";
    MemoryHelp = "memory|help", 2, [L T], (0, 0, 0), Server, "4.0.0",
        "Explains the subcommands";
    MemoryUsage = "memory|usage", -3, [R], (2, 2, 1), Server, "4.0.0",
        "Tells the bytes that a key takes";
    LastSave = "lastsave", 1, [L T F], (0, 0, 0), Server, "1.0.0",
        "Tells the Unix time of the last save";
    MemoryStats = "memory|stats", 2, [], (0, 0, 0), Server, "4.0.0",
        "Tells what takes the memory";
    MemoryDoctor = "memory|doctor", 2, [], (0, 0, 0), Server, "4.0.0",
        "Reports in words what is wrong with the memory";
    MemoryMallocStats = "memory|malloc-stats", 2, [], (0, 0, 0), Server, "4.0.0",
        "Tells what the allocator counts";
    MemoryPurge = "memory|purge", 2, [], (0, 0, 0), Server, "4.0.0",
        "Returns unused memory";
    Save = "save", 1, [A S X Y], (0, 0, 0), Server, "1.0.0",
        "Waits until everything is on the disk";
    BgSave = "bgsave", -1, [A S Y], (0, 0, 0), Server, "1.0.0",
        "Asks for a commit of the log";
    BgRewriteAof = "bgrewriteaof", 1, [A S Y], (0, 0, 0), Server, "1.0.0",
        "Asks for a commit of the log, which cleans itself";
    Debug = "debug", -2, [A S L T], (0, 0, 0), Server, "1.0.0",
        "What tests of clients need";
    Monitor = "monitor", 1, [A S L T], (0, 0, 0), Server, "1.0.0",
        "Shows every command as it arrives";
    HotKeys = "hotkeys", -2, [], (0, 0, 0), Server, "8.6.0",
        "Commands about the keys that are asked for most";
    HotKeysGet = "hotkeys|get", 2, [A S], (0, 0, 0), Server, "8.6.0",
        "Lists the keys that are asked for most, or what the session has counted";
    HotKeysStart = "hotkeys|start", -2, [A S], (0, 0, 0), Server, "8.6.0",
        "Starts a session that counts time and bytes by key";
    HotKeysStop = "hotkeys|stop", 2, [A S], (0, 0, 0), Server, "8.6.0",
        "Ends the session and keeps what it has counted";
    HotKeysReset = "hotkeys|reset", 2, [A S], (0, 0, 0), Server, "8.6.0",
        "Forgets what the session has counted";
    HotKeysList = "hotkeys|list", 3, [A S], (0, 0, 0), Server, "0.1.0",
        "Shows all that is known of hot keys, as JSON";
    HotKeysHelp = "hotkeys|help", 2, [L T], (0, 0, 0), Server, "8.6.0",
        "Explains the subcommands";
    Lolwut = "lolwut", -1, [R F], (0, 0, 0), Server, "5.0.0",
        "Shows a joint, and the version";
    ReplicaOf = "replicaof", 3, [A S T Y], (0, 0, 0), Server, "5.0.0",
        "Not for this server";
    SlaveOf = "slaveof", 3, [A S T Y], (0, 0, 0), Server, "1.0.0",
        "Not for this server; an old name of REPLICAOF";
    Sync = "sync", 1, [A S X Y], (0, 0, 0), Server, "1.0.0",
        "Not for this server";
    PSync = "psync", -3, [A S X Y], (0, 0, 0), Server, "2.8.0",
        "Not for this server";
    ReplConf = "replconf", -1, [A S L T B], (0, 0, 0), Server, "3.0.0",
        "Not for this server";
    Failover = "failover", -1, [A S T], (0, 0, 0), Server, "6.2.0",
        "Not for this server";
    Module = "module", -2, [], (0, 0, 0), Server, "4.0.0",
        "Commands about modules";
    ModuleList = "module|list", 2, [A S], (0, 0, 0), Server, "4.0.0",
        "Lists the modules: there are none";
    ModuleLoad = "module|load", -3, [A S Y], (0, 0, 0), Server, "4.0.0",
        "Not for this server";
    ModuleLoadEx = "module|loadex", -3, [A S Y], (0, 0, 0), Server, "7.0.0",
        "Not for this server";
    ModuleUnload = "module|unload", 3, [A S Y], (0, 0, 0), Server, "4.0.0",
        "Not for this server";
    ModuleHelp = "module|help", 2, [L T], (0, 0, 0), Server, "5.0.0",
        "Explains the subcommands";
    Acl = "acl", -2, [], (0, 0, 0), Server, "6.0.0",
        "Commands about users";
    AclCat = "acl|cat", -2, [S L T], (0, 0, 0), Server, "6.0.0",
        "Lists the categories, or the commands of one";
    AclDelUser = "acl|deluser", -3, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Deletes users and closes their connections";
    AclDryRun = "acl|dryrun", -4, [A S L T], (0, 0, 0), Server, "7.0.0",
        "Tells whether a user may run a command";
    AclGenPass = "acl|genpass", -2, [S L T], (0, 0, 0), Server, "6.0.0",
        "Draws a password";
    AclGetUser = "acl|getuser", 3, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Describes a user";
    AclHelp = "acl|help", 2, [L T], (0, 0, 0), Server, "6.0.0",
        "Explains the subcommands";
    AclList = "acl|list", 2, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Describes all users";
    AclLoad = "acl|load", 2, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Reads the users from the ACL file";
    AclLog = "acl|log", -2, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Shows refused commands and logins";
    AclSave = "acl|save", 2, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Writes the users to the ACL file";
    AclSetUser = "acl|setuser", -3, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Creates or changes a user";
    AclUsers = "acl|users", 2, [A S L T], (0, 0, 0), Server, "6.0.0",
        "Lists the users";
    AclWhoAmI = "acl|whoami", 2, [S L T], (0, 0, 0), Server, "6.0.0",
        "Tells the user of this connection";
    Slowlog = "slowlog", -2, [], (0, 0, 0), Server, "2.2.12",
        "Commands about the slow log";
    SlowlogGet = "slowlog|get", -2, [A L T], (0, 0, 0), Server, "2.2.12",
        "Shows what took long";
    SlowlogLen = "slowlog|len", 2, [A L T], (0, 0, 0), Server, "2.2.12",
        "Counts what took long";
    SlowlogReset = "slowlog|reset", 2, [A L T], (0, 0, 0), Server, "2.2.12",
        "Empties the slow log";
    SlowlogHelp = "slowlog|help", 2, [L T], (0, 0, 0), Server, "6.2.0",
        "Explains the subcommands";
    Latency = "latency", -2, [], (0, 0, 0), Server, "2.8.13",
        "Commands about latency";
    LatencyDoctor = "latency|doctor", 2, [A S L T], (0, 0, 0), Server, "2.8.13",
        "Reports in words what was slow";
    LatencyGraph = "latency|graph", 3, [A S L T], (0, 0, 0), Server, "2.8.13",
        "Draws the samples of an event";
    LatencyHistogram = "latency|histogram", -2, [A S L T], (0, 0, 0), Server, "7.0.0",
        "Tells how long commands took";
    LatencyHistory = "latency|history", 3, [A S L T], (0, 0, 0), Server, "2.8.13",
        "Lists the samples of an event";
    LatencyLatest = "latency|latest", 2, [A S L T], (0, 0, 0), Server, "2.8.13",
        "Tells the latest sample of each event";
    LatencyReset = "latency|reset", -2, [A S L T], (0, 0, 0), Server, "2.8.13",
        "Forgets samples";
    LatencyHelp = "latency|help", 2, [L T], (0, 0, 0), Server, "2.8.13",
        "Explains the subcommands";
    Wait = "wait", 3, [S], (0, 0, 0), Generic, "3.0.0",
        "Waits for replicas";
    WaitAof = "waitaof", 4, [S], (0, 0, 0), Generic, "7.2.0",
        "Waits for disks";
    Copy = "copy", -3, [W M], (1, 2, 1), Generic, "6.2.0",
        "Copies a value to another key";
    Cluster = "cluster", -2, [], (0, 0, 0), Cluster, "3.0.0",
        "Commands about the cluster";
    ClusterKeySlot = "cluster|keyslot", 3, [T], (0, 0, 0), Cluster, "3.0.0",
        "Tells the slot of a key";
    ClusterBumpEpoch = "cluster|bumpepoch", 2, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterDelSlots = "cluster|delslots", -3, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterForget = "cluster|forget", 3, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterHelp = "cluster|help", 2, [L T], (0, 0, 0), Cluster, "5.0.0",
        "Explains the subcommands";
    ClusterSlaves = "cluster|slaves", 3, [A T], (0, 0, 0), Cluster, "3.0.0",
        "Lists the replicas of a node; an old name of REPLICAS";
    ClusterAddSlotsRange = "cluster|addslotsrange", -4, [A T Y], (0, 0, 0), Cluster, "7.0.0",
        "Not for this server";
    ClusterMyId = "cluster|myid", 2, [T], (0, 0, 0), Cluster, "3.0.0",
        "Tells the id of this node";
    ClusterMyShardId = "cluster|myshardid", 2, [T], (0, 0, 0), Cluster, "7.2.0",
        "Tells the id of this node's shard";
    ClusterSetConfigEpoch = "cluster|set-config-epoch", 3, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterFlushSlots = "cluster|flushslots", 2, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterAddSlots = "cluster|addslots", -3, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterSetSlot = "cluster|setslot", -4, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterReset = "cluster|reset", -2, [A S T], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterInfo = "cluster|info", 2, [T], (0, 0, 0), Cluster, "3.0.0",
        "Describes the cluster";
    ClusterSlots = "cluster|slots", 2, [T], (0, 0, 0), Cluster, "3.0.0",
        "Tells which nodes have which slots";
    ClusterDelSlotsRange = "cluster|delslotsrange", -4, [A T Y], (0, 0, 0), Cluster, "7.0.0",
        "Not for this server";
    ClusterLinks = "cluster|links", 2, [T], (0, 0, 0), Cluster, "7.0.0",
        "Lists the links between nodes";
    ClusterFailover = "cluster|failover", -2, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterShards = "cluster|shards", 2, [T], (0, 0, 0), Cluster, "7.0.0",
        "Tells which nodes have which slots, with their state";
    ClusterSaveConfig = "cluster|saveconfig", 2, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterReplicate = "cluster|replicate", 3, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterCountKeysInSlot = "cluster|countkeysinslot", 3, [T], (0, 0, 0), Cluster, "3.0.0",
        "Counts the keys of a slot on this node";
    ClusterGetKeysInSlot = "cluster|getkeysinslot", 4, [T], (0, 0, 0), Cluster, "3.0.0",
        "Lists keys of a slot on this node";
    ClusterNodes = "cluster|nodes", 2, [T], (0, 0, 0), Cluster, "3.0.0",
        "Describes the nodes";
    ClusterMeet = "cluster|meet", -4, [A T Y], (0, 0, 0), Cluster, "3.0.0",
        "Not for this server";
    ClusterReplicas = "cluster|replicas", 3, [A T], (0, 0, 0), Cluster, "5.0.0",
        "Lists the replicas of a node";
    ClusterCountFailureReports = "cluster|count-failure-reports", 3, [A T], (0, 0, 0),
        Cluster, "3.0.0",
        "Counts failure reports: always 0";
    ReadOnly = "readonly", 1, [L T F], (0, 0, 0), Cluster, "3.0.0",
        "Lets this connection read from copies of other nodes' slots";
    ReadWrite = "readwrite", 1, [L T F], (0, 0, 0), Cluster, "3.0.0",
        "Ends READONLY";
    Asking = "asking", 1, [F], (0, 0, 0), Cluster, "3.0.0",
        "Sent by clients behind an ASK redirect";
}
