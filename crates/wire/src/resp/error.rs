//! The error replies: every error text of the RESP port.

use std::fmt;

use super::args::Args;
use super::foreign;
use super::table::CommandId;

/// An error reply. [`ErrorReply::encode`] gives the bytes, [`fmt::Display`] the text without `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorReply<'a> {
    /// `ERR syntax error`
    Syntax,
    /// `ERR value is not an integer or out of range`
    NotAnInteger,
    /// `ERR value is not a valid float`
    NotAFloat,
    /// `ERR increment would produce NaN or Infinity`
    FloatOverflow,
    /// `ERR increment or decrement would overflow`
    IntegerOverflow,
    /// `ERR decrement would overflow`
    DecrementOverflow,
    /// `ERR value is out of range, must be positive`
    NotPositive,
    /// `ERR value is out of range`
    ValueOutOfRange,
    /// `ERR invalid expire time in 'set' command`
    InvalidExpireTime(CommandId),
    /// `ERR NX and XX, GT or LT options at the same time are not compatible`
    NxWithOthers,
    /// `ERR GT and LT options at the same time are not compatible`
    GtWithLt,
    /// `ERR Unsupported option x`
    UnsupportedOption(&'a [u8]),
    /// `ERR invalid cursor`
    InvalidCursor,
    /// `ERR min or max not valid string range item`
    LexBound,
    /// `ERR offset is out of range`
    OffsetOutOfRange,
    /// `ERR string exceeds maximum allowed size (proto-max-bulk-len)`
    StringTooLong,
    /// `ERR wrong number of arguments for 'mset' command`
    WrongArity(CommandId),
    /// `ERR unknown subcommand or wrong number of arguments for 'pause'. Try CLIENT HELP.`
    SubcommandSyntax(CommandId),
    /// The same error, with the name as the client typed it.
    SubcommandTyped {
        /// The command.
        id: CommandId,
        /// The typed name.
        typed: &'a [u8],
    },
    /// `ERR unknown subcommand or wrong number of arguments for 'x'. Try DEBUG HELP.`
    DebugSubcommand(&'a [u8]),
    /// `ERR no such key`
    NoSuchKey,
    /// `ERR key is longer than 65535 bytes`; Redis has no such limit.
    KeyTooLong,
    /// `ERR source and destination objects are the same`
    SameSourceAndTarget,
    /// `OOM command not allowed when used memory > 'maxmemory'.`
    OutOfMemory,
    /// `MISCONF Errors writing to the AOF file`, Redis's error for a log that it cannot write.
    LogFailed,
    /// `ERR max number of clients reached`
    MaxClients,
    /// `ERR DB index is out of range`
    DatabaseIndex,
    /// `ERR value is out of range, value must between -2147483648 and 2147483647`
    NotA32BitInteger,

    /// `ERR bit offset is not an integer or out of range`
    BitOffset,
    /// `ERR bit is not an integer or out of range`
    Bit,
    /// `ERR The bit argument must be 1 or 0.`
    BitArgument,
    /// `ERR BITOP NOT must be called with a single source key.`
    OneSource,
    /// `ERR BITOP DIFF must be called with at least two source keys.`
    TwoSources(&'a str),
    /// `ERR Invalid bitfield type. Use something like i16 u8. ...`
    FieldKind,
    /// `ERR Invalid OVERFLOW type specified`
    FieldOverflow,
    /// `ERR BITFIELD_RO only supports the GET subcommand`
    FieldReadOnly,
    /// `ERR If you want both the length and indexes, please just use IDX.`
    LcsLengthAndIndexes,
    /// `ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len`
    LcsMemory,
    /// `ERR must be exactly 16 hexadecimal characters`
    DigestText,
    /// `ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE`
    DeleteCondition,
    /// `ERR invalid numkeys value`
    KeyCount,
    /// `ERR wrong number of key-value pairs`
    PairCount,
    /// `BUSYKEY Target key name already exists.`
    BusyKey,
    /// `ERR Invalid TTL value, must be >= 0`
    RestoreTtl,
    /// `ERR Invalid IDLETIME value, must be >= 0`
    RestoreIdleTime,
    /// `ERR Invalid FREQ value, must be >= 0 and <= 255`
    RestoreFrequency,
    /// `ERR DUMP payload version or checksum are wrong`
    DumpChecksum,
    /// `ERR Bad data format`
    DumpFormat,
    /// `ERR invalid first DB index`
    FirstDatabase,
    /// `ERR invalid second DB index`
    SecondDatabase,
    /// `ERR MOVE is not allowed in cluster mode`
    MoveInCluster,
    /// `ERR SWAPDB is not allowed in cluster mode`
    SwapDbInCluster,

    /// `NOAUTH Authentication required.`
    NoAuth,
    /// `NOAUTH HELLO must be called with the client already authenticated ...`
    HelloNoAuth,
    /// `WRONGPASS invalid username-password pair or user is disabled.`
    WrongPassword,
    /// `ERR AUTH <password> called without any password configured for the default user. ...`
    AuthWithoutPassword,
    /// `NOPROTO unsupported protocol version`
    NoProtocol,
    /// `ERR Protocol version is not an integer or out of range`
    ProtocolVersionNotAnInteger,
    /// `ERR Syntax error in HELLO option 'x'`
    HelloOption(&'a [u8]),
    /// `ERR Client names cannot contain spaces, newlines or special characters.`
    ClientName,
    /// `ERR lib-name cannot contain spaces, newlines or special characters.`
    ClientInfoValue(&'a [u8]),
    /// `ERR Unrecognized option 'x'`
    ClientInfoOption(&'a [u8]),
    /// `ERR No such client`
    NoSuchClient,
    /// `ERR No such user 'x'`
    NoSuchUser(&'a [u8]),
    /// `ERR client-id should be greater than 0`
    ClientId,
    /// `ERR Invalid client ID`
    InvalidClientId,
    /// `ERR Unknown client type 'x'`
    ClientType(&'a [u8]),
    /// `ERR CLIENT PAUSE mode must be WRITE or ALL`
    PauseMode,
    /// `ERR timeout is not an integer or out of range`
    TimeoutNotAnInteger,
    /// `ERR timeout is negative`
    TimeoutNegative,

    /// `ERR MULTI calls can not be nested`
    NestedMulti,
    /// `ERR EXEC without MULTI`
    ExecWithoutMulti,
    /// `ERR DISCARD without MULTI`
    DiscardWithoutMulti,
    /// `ERR WATCH inside MULTI is not allowed`
    WatchInMulti,
    /// `ERR Command not allowed inside a transaction`
    NotInTransaction,
    /// `EXECABORT Transaction discarded because of previous errors.`
    ExecAbort,

    /// `ERR Unknown option or number of arguments for CONFIG SET - 'x'`
    ConfigUnknown(&'a [u8]),
    /// `ERR CONFIG SET failed (possibly related to argument 'x') - reason`
    ConfigSetFailed {
        /// The setting.
        name: &'a [u8],
        /// The reason, e.g. `can't set immutable config`.
        reason: &'a str,
    },
    /// `ERR CONFIG SET failed (possibly related to argument 'x') - duplicate parameter`
    ConfigDuplicate(&'a [u8]),
    /// `ERR The server is running without a config file`
    NoConfigFile,
    /// `ERR Rewriting config file: reason`
    ConfigRewriteFailed(&'a str),
    /// `ERR Invalid command specified`
    GetKeysUnknown,
    /// `ERR Invalid number of arguments specified for command`
    GetKeysArity,
    /// `ERR The command has no key arguments`
    GetKeysNone,
    /// `ERR An LFU maxmemory policy is not selected, ...`
    NoAccessFrequency,
    /// `ERR Errors trying to SHUTDOWN. Check logs.`
    ShutdownFailed,
    /// `ERR No shutdown in progress.`
    NoShutdown,
    /// `CROSSSLOT Keys in request don't hash to the same slot`
    CrossSlot,
    /// `MOVED 3999 host:port`: the node that serves the slot.
    Moved(Elsewhere<'a>),
    /// `ASK 3999 host:port`: the node to ask this once, after ASKING.
    Ask(Elsewhere<'a>),
    /// `TRYAGAIN Multiple keys request during rehashing of slot`
    TryAgain,
    /// `TRYAGAIN this node lost the slot or its lease while it read: send it again`
    SlotLost,
    /// `UNCERTAIN this node ceased to be the slot's primary while the write was under way: ...`
    Uncertain,
    /// `CLUSTERDOWN Hash slot not served`
    SlotNotServed,
    /// `NOREPLICAS Not enough good replicas to write.`
    NoReplicas,
    /// `CLUSTERDOWN The cluster is down`
    ClusterDown,
    /// `ERR This instance has cluster support disabled`
    ClusterDisabled,
    /// `ERR SELECT is not allowed in cluster mode`
    SelectInCluster,
    /// `ERR Copying to another database is not allowed in cluster mode`
    CopyInCluster,
    /// `ERR Unknown node x`
    UnknownNode(&'a [u8]),
    /// `ERR The specified node is not a master`
    NotAMaster,
    /// `ERR Invalid slot`
    InvalidSlot,
    /// `ERR Invalid slot or number of keys`
    InvalidSlotOrCount,
    /// `ERR CLUSTER MEET is not for this server: ...`
    Managed(CommandId),
    /// `NOPERM ...`: the user lacks the right.
    Denied(&'a str),
    /// `EXECABORT ...`: the user has no right to EXEC.
    DeniedExec,
    /// `EXECABORT ...`: EXEC of a client that has not logged in.
    NoAuthExec,
    /// CLIENT TRACKING with a prefix that overlaps another one.
    PrefixOverlap {
        /// The requested prefix.
        prefix: &'a [u8],
        /// The other prefix.
        other: &'a [u8],
        /// Whether the client had named the other one before, not in the same command.
        is_known: bool,
    },
    /// `ERR ...` with the server's own text.
    Other(&'a str),
}

/// The target of a redirection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere<'a> {
    /// The slot in question.
    pub slot: u16,
    /// The host of the node that serves it.
    pub host: &'a str,
    /// The RESP port of that node.
    pub port: u16,
}

/// Why a command was not accepted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CommandError<'a> {
    /// `ERR unknown command 'x', with args beginning with: ...`
    UnknownCommand {
        /// All arguments.
        args: Args<'a>,
    },
    /// `ERR unknown subcommand 'x'. Try CLIENT HELP.`
    UnknownSubcommand {
        /// The container.
        parent: CommandId,
        /// The unknown name.
        subcommand: &'a [u8],
    },
    /// `ERR wrong number of arguments for 'client|setname' command`
    WrongArity(CommandId),
    /// `POST` or `Host:`: the client is a web browser. Close without a reply.
    CrossProtocol,
    /// The command is known and its arity right, but an argument is wrong.
    Argument {
        /// The command.
        id: CommandId,
        /// The reply.
        reply: ErrorReply<'a>,
    },
}

impl ErrorReply<'_> {
    /// Appends the reply, `-` and CRLF included.
    #[cold]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(b'-');
        match *self {
            ErrorReply::InvalidExpireTime(id) => {
                push_parts(out, &["ERR invalid expire time in '", id.name(), "' command"]);
            }
            ErrorReply::WrongArity(id) => {
                out.extend_from_slice(b"ERR ");
                push_wrong_arity(out, id.name());
            }
            ErrorReply::SubcommandSyntax(id) => {
                push_subcommand(out, id, id.spec().own_name().as_bytes());
            }
            ErrorReply::SubcommandTyped { id, typed } => push_subcommand(out, id, typed),
            ErrorReply::DebugSubcommand(name) => {
                push_named(out, DEBUG_UNKNOWN, name, "'. Try DEBUG HELP.");
            }
            ErrorReply::UnsupportedOption(name) => push_named(out, "Unsupported option ", name, ""),
            ErrorReply::HelloOption(option) => {
                push_named(out, "Syntax error in HELLO option '", option, "'");
            }
            ErrorReply::ClientInfoOption(option) => {
                push_named(out, "Unrecognized option '", option, "'");
            }
            ErrorReply::ClientInfoValue(name) => {
                push_named(
                    out,
                    "",
                    name,
                    " cannot contain spaces, newlines or special characters.",
                );
            }
            ErrorReply::NoSuchUser(user) => push_named(out, "No such user '", user, "'"),
            ErrorReply::ClientType(name) => push_named(out, "Unknown client type '", name, "'"),
            ErrorReply::ConfigUnknown(name) => {
                let head = "Unknown option or number of arguments for CONFIG SET - '";
                push_named(out, head, name, "'");
            }
            ErrorReply::ConfigSetFailed { name, reason } => {
                push_named(out, CONFIG_SET_FAILED, name, "') - ");
                push_line(out, reason.as_bytes());
            }
            ErrorReply::ConfigDuplicate(name) => {
                push_named(out, CONFIG_SET_FAILED, name, "') - duplicate parameter");
            }
            ErrorReply::ConfigRewriteFailed(reason) => {
                push_named(out, "Rewriting config file: ", reason.as_bytes(), "");
            }
            ErrorReply::UnknownNode(name) => push_named(out, "Unknown node ", name, ""),
            ErrorReply::Moved(elsewhere) => push_redirect(out, "MOVED", elsewhere),
            ErrorReply::Ask(elsewhere) => push_redirect(out, "ASK", elsewhere),
            ErrorReply::Managed(id) => {
                let name = id.name().replace('|', " ").to_ascii_uppercase();
                push_parts(out, &["ERR ", &name, MANAGED]);
            }
            ErrorReply::TwoSources(name) => {
                let tail = " must be called with at least two source keys.";
                push_parts(out, &["ERR BITOP ", name, tail]);
            }
            ErrorReply::Denied(text) => push_parts(out, &["NOPERM ", text]),
            ErrorReply::PrefixOverlap { prefix, other, is_known } => {
                push_overlap(out, prefix, other, is_known);
            }
            ErrorReply::Other(text) => push_named(out, "", text.as_bytes(), ""),
            _ => out.extend_from_slice(self.fixed_text().as_bytes()),
        }
        end_line(out, start);
    }

    /// The texts that repeat nothing of the request.
    fn fixed_text(&self) -> &'static str {
        match self {
            ErrorReply::Syntax => "ERR syntax error",
            ErrorReply::NotAnInteger => "ERR value is not an integer or out of range",
            ErrorReply::NotAFloat => "ERR value is not a valid float",
            ErrorReply::FloatOverflow => "ERR increment would produce NaN or Infinity",
            ErrorReply::IntegerOverflow => "ERR increment or decrement would overflow",
            ErrorReply::DecrementOverflow => "ERR decrement would overflow",
            ErrorReply::NotPositive => "ERR value is out of range, must be positive",
            ErrorReply::ValueOutOfRange => "ERR value is out of range",
            ErrorReply::NxWithOthers => {
                "ERR NX and XX, GT or LT options at the same time are not compatible"
            }
            ErrorReply::GtWithLt => "ERR GT and LT options at the same time are not compatible",
            ErrorReply::InvalidCursor => "ERR invalid cursor",
            ErrorReply::LexBound => "ERR min or max not valid string range item",
            ErrorReply::OffsetOutOfRange => "ERR offset is out of range",
            ErrorReply::StringTooLong => {
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
            }
            ErrorReply::NoSuchKey => "ERR no such key",
            ErrorReply::KeyTooLong => "ERR key is longer than 65535 bytes",
            ErrorReply::SameSourceAndTarget => "ERR source and destination objects are the same",
            ErrorReply::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            ErrorReply::LogFailed => {
                "MISCONF Errors writing to the AOF file: writes are refused, see the server's log"
            }
            ErrorReply::MaxClients => "ERR max number of clients reached",
            ErrorReply::DatabaseIndex => "ERR DB index is out of range",
            ErrorReply::NestedMulti => "ERR MULTI calls can not be nested",
            ErrorReply::ExecWithoutMulti => "ERR EXEC without MULTI",
            ErrorReply::DiscardWithoutMulti => "ERR DISCARD without MULTI",
            ErrorReply::WatchInMulti => "ERR WATCH inside MULTI is not allowed",
            ErrorReply::NotInTransaction => "ERR Command not allowed inside a transaction",
            ErrorReply::DeniedExec => {
                "EXECABORT Transaction discarded because of: NOPERM this user has no permissions \
                 to run the 'exec' command"
            }
            ErrorReply::NoAuthExec => {
                "EXECABORT Transaction discarded because of: NOAUTH Authentication required."
            }
            ErrorReply::ExecAbort => "EXECABORT Transaction discarded because of previous errors.",
            _ => self.fixed_text_of_data(),
        }
    }

    /// The texts of commands on bits, dumps and comparisons.
    fn fixed_text_of_data(&self) -> &'static str {
        match self {
            ErrorReply::NotA32BitInteger => {
                "ERR value is out of range, value must between -2147483648 and 2147483647"
            }
            ErrorReply::BitOffset => "ERR bit offset is not an integer or out of range",
            ErrorReply::Bit => "ERR bit is not an integer or out of range",
            ErrorReply::BitArgument => "ERR The bit argument must be 1 or 0.",
            ErrorReply::OneSource => "ERR BITOP NOT must be called with a single source key.",
            ErrorReply::FieldKind => {
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
                 supported but i64 is."
            }
            ErrorReply::FieldOverflow => "ERR Invalid OVERFLOW type specified",
            ErrorReply::FieldReadOnly => "ERR BITFIELD_RO only supports the GET subcommand",
            ErrorReply::LcsLengthAndIndexes => {
                "ERR If you want both the length and indexes, please just use IDX."
            }
            ErrorReply::LcsMemory => {
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
            }
            ErrorReply::DigestText => "ERR must be exactly 16 hexadecimal characters",
            ErrorReply::DeleteCondition => "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
            ErrorReply::KeyCount => "ERR invalid numkeys value",
            ErrorReply::PairCount => "ERR wrong number of key-value pairs",
            ErrorReply::BusyKey => "BUSYKEY Target key name already exists.",
            ErrorReply::RestoreTtl => "ERR Invalid TTL value, must be >= 0",
            ErrorReply::RestoreIdleTime => "ERR Invalid IDLETIME value, must be >= 0",
            ErrorReply::RestoreFrequency => "ERR Invalid FREQ value, must be >= 0 and <= 255",
            ErrorReply::DumpChecksum => "ERR DUMP payload version or checksum are wrong",
            ErrorReply::DumpFormat => "ERR Bad data format",
            ErrorReply::FirstDatabase => "ERR invalid first DB index",
            ErrorReply::SecondDatabase => "ERR invalid second DB index",
            ErrorReply::MoveInCluster => "ERR MOVE is not allowed in cluster mode",
            ErrorReply::SwapDbInCluster => "ERR SWAPDB is not allowed in cluster mode",
            _ => self.fixed_text_of_connection(),
        }
    }

    /// The other texts: connections, settings, introspection.
    fn fixed_text_of_connection(&self) -> &'static str {
        match self {
            ErrorReply::NoAuth => "NOAUTH Authentication required.",
            ErrorReply::HelloNoAuth => {
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
                 and select the RESP protocol version at the same time"
            }
            ErrorReply::WrongPassword => {
                "WRONGPASS invalid username-password pair or user is disabled."
            }
            ErrorReply::AuthWithoutPassword => {
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?"
            }
            ErrorReply::NoProtocol => "NOPROTO unsupported protocol version",
            ErrorReply::ProtocolVersionNotAnInteger => {
                "ERR Protocol version is not an integer or out of range"
            }
            ErrorReply::ClientName => {
                "ERR Client names cannot contain spaces, newlines or special characters."
            }
            ErrorReply::NoSuchClient => "ERR No such client",
            ErrorReply::ClientId => "ERR client-id should be greater than 0",
            ErrorReply::InvalidClientId => "ERR Invalid client ID",
            ErrorReply::PauseMode => "ERR CLIENT PAUSE mode must be WRITE or ALL",
            ErrorReply::TimeoutNotAnInteger => "ERR timeout is not an integer or out of range",
            ErrorReply::TimeoutNegative => "ERR timeout is negative",
            ErrorReply::NoConfigFile => "ERR The server is running without a config file",
            ErrorReply::GetKeysUnknown => "ERR Invalid command specified",
            ErrorReply::GetKeysArity => "ERR Invalid number of arguments specified for command",
            ErrorReply::GetKeysNone => "ERR The command has no key arguments",
            ErrorReply::NoAccessFrequency => {
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
                 note that when switching between policies at runtime LRU and LFU data will take \
                 some time to adjust."
            }
            ErrorReply::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot",
            ErrorReply::TryAgain => "TRYAGAIN Multiple keys request during rehashing of slot",
            ErrorReply::SlotLost => {
                "TRYAGAIN this node lost the slot or its lease while it read: send it again"
            }
            ErrorReply::Uncertain => {
                "UNCERTAIN this node ceased to be the slot's primary while the write was under \
                 way: it may have happened or not"
            }
            ErrorReply::SlotNotServed => "CLUSTERDOWN Hash slot not served",
            ErrorReply::NoReplicas => "NOREPLICAS Not enough good replicas to write.",
            ErrorReply::ClusterDown => "CLUSTERDOWN The cluster is down",
            ErrorReply::ClusterDisabled => "ERR This instance has cluster support disabled",
            ErrorReply::SelectInCluster => "ERR SELECT is not allowed in cluster mode",
            ErrorReply::CopyInCluster => {
                "ERR Copying to another database is not allowed in cluster mode"
            }
            ErrorReply::NotAMaster => "ERR The specified node is not a master",
            ErrorReply::InvalidSlot => "ERR Invalid slot",
            ErrorReply::InvalidSlotOrCount => "ERR Invalid slot or number of keys",
            ErrorReply::ShutdownFailed => "ERR Errors trying to SHUTDOWN. Check logs.",
            ErrorReply::NoShutdown => "ERR No shutdown in progress.",
            _ => "ERR",
        }
    }
}

/// For commands that would change the slots of nodes.
const MANAGED: &str = " is not for this server: the configuration manager assigns the slots";

/// `MOVED slot host:port`.
fn push_redirect(out: &mut Vec<u8>, word: &str, elsewhere: Elsewhere<'_>) {
    let Elsewhere { slot, host, port } = elsewhere;
    push_parts(out, &[word, " ", itoa::Buffer::new().format(slot), " "]);
    push_line(out, host.as_bytes());
    push_parts(out, &[":", itoa::Buffer::new().format(port)]);
}

const DEBUG_UNKNOWN: &str = "unknown subcommand or wrong number of arguments for '";

const PREFIX_OVERLAP: &str = "'. Prefixes for a single client must not overlap.";
const CONFIG_SET_FAILED: &str = "CONFIG SET failed (possibly related to argument '";

/// `ERR head`, bytes of the request that cannot break the line, and a tail.
fn push_named(out: &mut Vec<u8>, head: &str, name: &[u8], tail: &str) {
    push_parts(out, &["ERR ", head]);
    push_line(out, name);
    out.extend_from_slice(tail.as_bytes());
}

fn push_overlap(out: &mut Vec<u8>, prefix: &[u8], other: &[u8], is_known: bool) {
    let whose = if is_known { "an existing" } else { "another provided" };
    push_named(out, "Prefix '", prefix, "' overlaps with ");
    push_parts(out, &[whose, " prefix '"]);
    push_line(out, other);
    push_parts(out, &[PREFIX_OVERLAP]);
}

fn push_subcommand(out: &mut Vec<u8>, id: CommandId, typed: &[u8]) {
    let head = "unknown subcommand or wrong number of arguments for '";
    push_named(out, head, cut(typed, ECHO_MAX_BYTES), "'. Try ");
    let parent = id.spec().parent_name().unwrap_or_default().to_ascii_uppercase();
    push_parts(out, &[&parent, " HELP."]);
}

fn push_wrong_arity(out: &mut Vec<u8>, name: &str) {
    push_parts(out, &["wrong number of arguments for '", name, "' command"]);
}

fn push_parts(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends request bytes up to a NUL, as Redis echoes them; [`end_line`] deals with line ends.
fn push_line(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes.split(|byte| *byte == 0).next().unwrap_or_default());
}

/// Ends the error that begins at `start`: it is one line, whatever it repeats. Trailing line ends
/// are dropped, and others become blanks.
fn end_line(out: &mut Vec<u8>, start: usize) {
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    while out.len() > start && out.last().is_some_and(is_line_end) {
        out.pop();
    }
    out[start..].iter_mut().filter(|byte| is_line_end(byte)).for_each(|byte| *byte = b' ');
    out.extend_from_slice(b"\r\n");
}

impl fmt::Display for ErrorReply<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Vec::new();
        self.encode(&mut line);
        let text = &line[1..line.len() - 2];
        formatter.write_str(&String::from_utf8_lossy(text))
    }
}

impl std::error::Error for ErrorReply<'_> {}

/// The maximum length of a client's words in the unknown-command error.
const ECHO_MAX_BYTES: usize = 128;

impl CommandError<'_> {
    /// Appends the reply; nothing for [`CommandError::CrossProtocol`].
    #[cold]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            CommandError::UnknownCommand { args } => encode_unknown_command(args, out),
            CommandError::UnknownSubcommand { parent, subcommand } => {
                let start = out.len();
                out.extend_from_slice(b"-ERR unknown subcommand '");
                push_line(out, cut(subcommand, ECHO_MAX_BYTES));
                let parent_name = parent.name().to_ascii_uppercase();
                push_parts(out, &["'. Try ", &parent_name, " HELP."]);
                end_line(out, start);
            }
            // A refused EXEC also ends its transaction, and says so.
            CommandError::WrongArity(id @ CommandId::Exec) => {
                out.extend_from_slice(b"-EXECABORT Transaction discarded because of: ");
                push_wrong_arity(out, id.name());
                out.extend_from_slice(b"\r\n");
            }
            CommandError::WrongArity(id) => ErrorReply::WrongArity(*id).encode(out),
            CommandError::CrossProtocol => {}
            CommandError::Argument { reply, .. } => reply.encode(out),
        }
    }
    /// Whether Redis refuses even to queue this command in MULTI (EXEC then answers EXECABORT).
    /// Otherwise it is queued, and the error is that command's answer in EXEC.
    pub fn aborts_transaction(&self) -> bool {
        !matches!(self, CommandError::Argument { .. })
    }

    /// The command, if the name was known.
    pub fn id(&self) -> Option<CommandId> {
        match self {
            CommandError::UnknownCommand { .. } | CommandError::CrossProtocol => None,
            CommandError::UnknownSubcommand { parent, .. } => Some(*parent),
            CommandError::WrongArity(id) | CommandError::Argument { id, .. } => Some(*id),
        }
    }
}

fn cut(bytes: &[u8], max_bytes: usize) -> &[u8] {
    bytes.get(..max_bytes).unwrap_or(bytes)
}

/// The name, cut, and as many arguments as fit, the last of them cut.
fn encode_unknown_command(args: &Args<'_>, out: &mut Vec<u8>) {
    let mut words = args.iter();
    let name = words.next().unwrap_or_default();
    let line_start = out.len();
    out.extend_from_slice(b"-ERR unknown command '");
    push_line(out, cut(name, ECHO_MAX_BYTES));
    if let Some(lacks) = foreign::lacks(name) {
        return push_parts(out, &["': this server has strings only, ", lacks, "\r\n"]);
    }
    out.extend_from_slice(b"', with args beginning with: ");
    let start = out.len();
    for word in words {
        let written_bytes = out.len() - start;
        if written_bytes >= ECHO_MAX_BYTES {
            break;
        }
        out.push(b'\'');
        push_line(out, cut(word, ECHO_MAX_BYTES - written_bytes));
        out.extend_from_slice(b"' ");
    }
    end_line(out, line_start);
}

#[cfg(test)]
mod tests {
    use super::{CommandId, Elsewhere, ErrorReply};

    #[track_caller]
    fn check(error: ErrorReply<'_>, want: &str) {
        assert_eq!(error.to_string(), want);
        let mut out = Vec::new();
        error.encode(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("-{want}\r\n"));
    }

    #[test]
    fn errors_name_what_was_wrong() {
        let set = CommandId::Set;
        check(ErrorReply::InvalidExpireTime(set), "ERR invalid expire time in 'set' command");
        check(ErrorReply::WrongArity(set), "ERR wrong number of arguments for 'set' command");
        check(ErrorReply::NoSuchUser(b"u"), "ERR No such user 'u'");
        check(ErrorReply::ClientType(b"t"), "ERR Unknown client type 't'");
        check(ErrorReply::UnsupportedOption(b"x"), "ERR Unsupported option x");
        check(ErrorReply::HelloOption(b"x"), "ERR Syntax error in HELLO option 'x'");
        let config = "ERR Unknown option or number of arguments for CONFIG SET - 'x'";
        check(ErrorReply::ConfigUnknown(b"x"), config);
        let failed =
            ErrorReply::ConfigSetFailed { name: b"x", reason: "can't set immutable config" };
        let head = "ERR CONFIG SET failed (possibly related to argument 'x') - ";
        check(failed, &format!("{head}can't set immutable config"));
        check(ErrorReply::ConfigDuplicate(b"x"), &format!("{head}duplicate parameter"));
        let (prefix, other) = (&b"a\0b"[..], &b"a"[..]);
        let overlap = ErrorReply::PrefixOverlap { prefix, other, is_known: true };
        let text = "ERR Prefix 'a' overlaps with an existing prefix 'a'. Prefixes for a single \
                    client must not overlap.";
        check(overlap, text);
        check(ErrorReply::Other("own text"), "ERR own text");
    }

    #[test]
    fn fixed_texts_carry_their_code() {
        check(ErrorReply::NoAuth, "NOAUTH Authentication required.");
        check(ErrorReply::NoProtocol, "NOPROTO unsupported protocol version");
        check(ErrorReply::ExecWithoutMulti, "ERR EXEC without MULTI");
        let memory = "OOM command not allowed when used memory > 'maxmemory'.";
        check(ErrorReply::OutOfMemory, memory);
        let user = "WRONGPASS invalid username-password pair or user is disabled.";
        check(ErrorReply::WrongPassword, user);
        let hello = "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                     the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                     client and select the RESP protocol version at the same time";
        check(ErrorReply::HelloNoAuth, hello);
    }

    #[test]
    fn redirects_name_slot_and_address() {
        let elsewhere = Elsewhere { slot: 12182, host: "10.0.0.7", port: 6379 };
        check(ErrorReply::Moved(elsewhere), "MOVED 12182 10.0.0.7:6379");
        check(ErrorReply::Ask(elsewhere), "ASK 12182 10.0.0.7:6379");
        check(ErrorReply::UnknownNode(b"x"), "ERR Unknown node x");
        let managed = "ERR CLUSTER SET-CONFIG-EPOCH is not for this server: the configuration \
                       manager assigns the slots";
        check(ErrorReply::Managed(CommandId::ClusterSetConfigEpoch), managed);
    }

    #[test]
    fn quoted_bytes_cannot_break_the_line() {
        check(ErrorReply::NoSuchUser(b"a\r\nb\0c"), "ERR No such user 'a  b'");
        check(ErrorReply::UnsupportedOption(b"\nx\r\n"), "ERR Unsupported option  x");
    }
}
