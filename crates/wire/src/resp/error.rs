//! The error replies: every text that the RESP port can answer.

use std::borrow::Cow;
use std::fmt;

use super::args::Args;
use super::table::CommandId;

/// An error reply. [`ErrorReply::encode`] gives the bytes, [`fmt::Display`] the text without `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorReply {
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
    UnsupportedOption(Vec<u8>),
    /// `ERR invalid cursor`
    InvalidCursor,
    /// `ERR offset is out of range`
    OffsetOutOfRange,
    /// `ERR string exceeds maximum allowed size (proto-max-bulk-len)`
    StringTooLong,
    /// `ERR wrong number of arguments for 'mset' command`
    WrongArity(CommandId),
    /// `ERR no such key`
    NoSuchKey,
    /// `ERR key is longer than 65535 bytes`; Redis has no such limit.
    KeyTooLong,
    /// `ERR source and destination objects are the same`
    SameSourceAndTarget,
    /// `OOM command not allowed when used memory > 'maxmemory'.`
    OutOfMemory,
    /// `ERR max number of clients reached`
    MaxClients,
    /// `ERR DB index is out of range`
    DatabaseIndex,
    /// `ERR SELECT is not allowed ...`: kept for cluster mode; here only index 0 exists.
    InvalidDatabaseIndex,

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
    HelloOption(Vec<u8>),
    /// `ERR Client names cannot contain spaces, newlines or special characters.`
    ClientName,
    /// `ERR lib-name cannot contain spaces, newlines or special characters.`
    ClientInfoValue(&'static str),
    /// `ERR Unrecognized option 'x'`
    ClientInfoOption(Vec<u8>),
    /// `ERR No such client`
    NoSuchClient,
    /// `ERR No such user 'x'`
    NoSuchUser(Vec<u8>),
    /// `ERR client-id should be greater than 0`
    ClientId,
    /// `ERR Invalid client ID`
    InvalidClientId,
    /// `ERR Unknown client type 'x'`
    ClientType(Vec<u8>),
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
    ConfigUnknown(Vec<u8>),
    /// `ERR CONFIG SET failed (possibly related to argument 'x') - reason`
    ConfigSetFailed {
        /// The setting.
        name: Vec<u8>,
        /// Why, e.g. `can't set immutable config`.
        reason: Cow<'static, str>,
    },
    /// `ERR CONFIG SET failed (possibly related to argument 'x') - duplicate parameter`
    ConfigDuplicate(Vec<u8>),
    /// `ERR The server is running without a config file`
    NoConfigFile,
    /// `ERR Rewriting config file: reason`
    ConfigRewriteFailed(String),
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
    /// `ERR ...` with the server's own text.
    Other(Cow<'static, str>),
}

/// Why a command was not accepted.
#[derive(Clone, Debug)]
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
        /// What was asked for.
        subcommand: &'a [u8],
    },
    /// `ERR wrong number of arguments for 'client|setname' command`
    WrongArity(CommandId),
    /// `POST` or `Host:`: a web browser talks to us. Close without a reply.
    CrossProtocol,
    /// The command is known and its arity right, an argument is wrong.
    Argument {
        /// Which command it would have been.
        id: CommandId,
        /// The answer.
        reply: ErrorReply,
    },
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Vec::new();
        self.encode(&mut line);
        let text = &line[1..line.len() - 2];
        formatter.write_str(&String::from_utf8_lossy(text))
    }
}

impl std::error::Error for ErrorReply {}

impl CommandError<'_> {
    /// Whether Redis refuses this even to queue it in MULTI (and EXEC then answers EXECABORT).
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
