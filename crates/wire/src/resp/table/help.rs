//! The answers to HELP subcommands.

use super::CommandId;

pub(super) fn lines(id: CommandId) -> &'static [&'static str] {
    match id {
        CommandId::Client | CommandId::ClientHelp => &CLIENT,
        CommandId::Cluster | CommandId::ClusterHelp => &CLUSTER,
        CommandId::Command | CommandId::CommandHelp => &COMMAND,
        CommandId::Config | CommandId::ConfigHelp => &CONFIG,
        CommandId::Memory | CommandId::MemoryHelp => &MEMORY,
        CommandId::Object | CommandId::ObjectHelp => &OBJECT,
        _ => &[],
    }
}

const CLIENT: [&str; 27] = [
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Tell the name of this connection.",
    "ID",
    "    Tell the id of this connection.",
    "INFO",
    "    Describe this connection.",
    "KILL <ip:port> | <option> <value> [<option> <value> ...]",
    "    Close connections. Options: ID, TYPE, ADDR, LADDR, USER, SKIPME (yes|no).",
    "LIST [TYPE <type>] [ID <id> ...]",
    "    Describe connections.",
    "NO-EVICT (ON|OFF)",
    "    Protect this connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Keep reads of this connection from counting as use.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Hold back commands for so many milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Turn replies to this connection on or off.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Set the name or version of the client library.",
    "SETNAME <name>",
    "    Name this connection.",
    "UNPAUSE",
    "    End a pause.",
    "HELP",
    "    Print this help.",
];

const CLUSTER: [&str; 31] = [
    "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    Always 0: the configuration manager decides who lives.",
    "COUNTKEYSINSLOT <slot>",
    "    Count the keys of a slot on this node.",
    "GETKEYSINSLOT <slot> <count>",
    "    List keys of a slot on this node.",
    "INFO",
    "    Describe the cluster.",
    "KEYSLOT <key>",
    "    Tell the slot of a key.",
    "LINKS",
    "    List the links between nodes: none of this protocol.",
    "MYID",
    "    Tell the id of this node.",
    "MYSHARDID",
    "    Tell the id of this node's shard.",
    "NODES",
    "    Describe the nodes. Output format:",
    "    <id> <host:port> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...",
    "REPLICAS <node-id>",
    "    List the replicas of a node.",
    "SHARDS",
    "    Tell which nodes have which slots, with their state.",
    "SLOTS",
    "    Tell which nodes have which slots. Each range is made of:",
    "    start, end, master and replicas: host, port and id",
    "(others)",
    "    Refused: the configuration manager decides who has which slots.",
    "HELP",
    "    Print this help.",
];

const COMMAND: [&str; 15] = [
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Describe all commands.",
    "COUNT",
    "    Count the commands.",
    "DOCS [<command-name> ...]",
    "    Document commands.",
    "GETKEYS <command> [<arg> ...]",
    "    Extract the keys of a command.",
    "INFO [<command-name> ...]",
    "    Describe commands.",
    "LIST [FILTERBY (MODULE|ACLCAT|PATTERN) <value>]",
    "    List command names.",
    "HELP",
    "    Print this help.",
];

const CONFIG: [&str; 11] = [
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...]",
    "    Read settings whose names match.",
    "SET <name> <value> [<name> <value> ...]",
    "    Change settings.",
    "RESETSTAT",
    "    Reset counters.",
    "REWRITE",
    "    Write settings to the configuration file.",
    "HELP",
    "    Print this help.",
];

const MEMORY: [&str; 5] = [
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "USAGE <key> [SAMPLES <count>]",
    "    Tell the bytes that a key takes.",
    "HELP",
    "    Print this help.",
];

const OBJECT: [&str; 11] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Tell how a value is encoded.",
    "FREQ <key>",
    "    Tell how often a key is used.",
    "IDLETIME <key>",
    "    Tell the seconds since last use.",
    "REFCOUNT <key>",
    "    Tell the reference count of a value.",
    "HELP",
    "    Print this help.",
];
