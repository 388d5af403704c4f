//! `Command`: every request that a RESP client can make, typed, borrowing the bytes it arrived in.

use base::UnixMillis;

use super::args::{ArgIter, Args, Keys, Pairs, QuotedLine};
use super::bits::{BitOperation, BitRange, BitSearch, LcsRequest};
use super::cluster::ClusterRequest;
use super::compare::{Comparison, SetIf};
use super::range::RangeRequest;
use super::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// One request. Arity and options are checked; the server checks key and value lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command<'a> {
    /// An empty line, `*0` or `*-1`: no reply.
    Empty,
    /// An inline command with escapes: rewrite it and parse the result in its place.
    Quoted(QuotedLine<'a>),

    /// `GET key`.
    Get { key: &'a [u8] },
    /// `SET key value [options]`, and SETNX, SETEX, PSETEX, GETSET by their own variants.
    Set(SetCommand<'a>),
    /// `SET key value IFEQ|IFNE|IFDEQ|IFDNE operand [options]`.
    SetIf(SetIf<'a>),
    /// `GETEX key [options]`; `None` leaves the expiry alone.
    GetEx { key: &'a [u8], ttl: Option<ExpireTtl> },
    /// `GETDEL key`.
    GetDel { key: &'a [u8] },
    /// `GETSET key value`.
    GetSet { key: &'a [u8], value: &'a [u8] },
    /// `SETNX key value`: answers 1 or 0.
    SetNx { key: &'a [u8], value: &'a [u8] },
    /// `SETEX` and `PSETEX`.
    SetEx { key: &'a [u8], value: &'a [u8], expire: ExpireTime },
    /// `MGET key [key ...]`.
    MGet { keys: Keys<'a> },
    /// `MSET key value [key value ...]`.
    MSet { pairs: Pairs<'a> },
    /// `MSETNX key value [key value ...]`.
    MSetNx { pairs: Pairs<'a> },
    /// `MSETEX numkeys key value [key value ...] [options]`.
    MSetEx(MSetEx<'a>),
    /// INCR, DECR, INCRBY and DECRBY; DECRBY's number is already negated.
    IncrBy { key: &'a [u8], delta: i64, id: CommandId },
    /// `INCRBYFLOAT key increment`; the increment is a valid float, see `number::add_float`.
    IncrByFloat { key: &'a [u8], increment: &'a [u8] },
    /// `APPEND key value`.
    Append { key: &'a [u8], value: &'a [u8] },
    /// `STRLEN key`.
    StrLen { key: &'a [u8] },
    /// GETRANGE and SUBSTR; both ends inclusive, negative from the end.
    GetRange { key: &'a [u8], start: i64, end: i64, id: CommandId },
    /// `SETRANGE key offset value`; the offset is not negative.
    SetRange { key: &'a [u8], offset_bytes: u64, value: &'a [u8] },
    /// `DIGEST key`.
    Digest { key: &'a [u8] },
    /// `LCS left right [options]`.
    Lcs(LcsRequest<'a>),

    /// `SETBIT key offset bit`; the offset is parsed once the longest value is known, and an
    /// invalid bit is reported only after it.
    SetBit { key: &'a [u8], offset: &'a [u8], bit: Option<bool> },
    /// `GETBIT key offset`.
    GetBit { key: &'a [u8], offset: &'a [u8] },
    /// `BITCOUNT key [start end [BYTE|BIT]]`.
    BitCount { key: &'a [u8], range: Option<BitRange> },
    /// `BITPOS key bit [start [end [BYTE|BIT]]]`.
    BitPos { key: &'a [u8], search: BitSearch },
    /// `BITOP operation target source [source ...]`.
    BitOp { operation: BitOperation, target: &'a [u8], sources: Keys<'a> },
    /// BITFIELD and BITFIELD_RO; the actions are parsed by `FieldActions`.
    BitField { key: &'a [u8], actions: ArgIter<'a>, id: CommandId },

    /// DEL and UNLINK.
    Del { keys: Keys<'a>, id: CommandId },
    /// DELEX with a condition, and DELIFEQ.
    DelIf { key: &'a [u8], comparison: Comparison<'a>, id: CommandId },
    /// `EXISTS key [key ...]`; a key named twice counts twice.
    Exists { keys: Keys<'a> },
    /// `TOUCH key [key ...]`.
    Touch { keys: Keys<'a> },
    /// `TYPE key`.
    Type { key: &'a [u8] },
    /// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
    Expire { key: &'a [u8], expire: ExpireTime, condition: ExpireCondition },
    /// TTL, PTTL, EXPIRETIME and PEXPIRETIME.
    Ttl { key: &'a [u8], unit: Unit, id: CommandId },
    /// `PERSIST key`.
    Persist { key: &'a [u8] },
    /// `RENAME source target`.
    Rename { source: &'a [u8], target: &'a [u8] },
    /// `RENAMENX source target`.
    RenameNx { source: &'a [u8], target: &'a [u8] },
    /// `COPY source target [DB n] [REPLACE]`.
    Copy(Copy<'a>),
    /// `MOVE key index`.
    Move { key: &'a [u8], database_index: i64 },
    /// `SWAPDB index index`.
    SwapDb { indexes: [i64; 2] },
    /// `DUMP key`.
    Dump { key: &'a [u8] },
    /// `RESTORE key ttl payload [options]`.
    Restore(Restore<'a>),
    /// `RANDOMKEY`.
    RandomKey,
    /// `KEYS pattern`.
    Keys { pattern: &'a [u8] },
    /// `SCAN cursor [MATCH p] [COUNT n] [TYPE t]`.
    Scan(ScanRequest<'a>),
    /// `KV.RANGE start end [LIMIT n] [REV] [KEYSONLY]`.
    KvRange(RangeRequest<'a>),
    /// OBJECT ENCODING, FREQ, IDLETIME and REFCOUNT.
    Object { key: &'a [u8], id: CommandId },
    /// `MEMORY USAGE key [SAMPLES n]`.
    MemoryUsage { key: &'a [u8] },
    /// `WAIT replicas timeout`.
    Wait { replica_count: i64, timeout_ms: i64 },
    /// `WAITAOF local replicas timeout`.
    WaitAof { is_local: bool, replica_count: i64, timeout_ms: i64 },

    /// `DBSIZE`.
    DbSize,
    /// FLUSHDB and FLUSHALL.
    Flush { mode: FlushMode, id: CommandId },
    /// `INFO [section ...]`.
    Info { sections: ArgIter<'a> },
    /// `CONFIG GET pattern [pattern ...]`.
    ConfigGet { patterns: ArgIter<'a> },
    /// `CONFIG SET name value [name value ...]`.
    ConfigSet { pairs: ConfigPairs<'a> },
    /// `CONFIG RESETSTAT`.
    ConfigResetStat,
    /// `CONFIG REWRITE`.
    ConfigRewrite,
    /// `TIME`.
    Time,
    /// `LASTSAVE`.
    LastSave,
    /// `ROLE`.
    Role,
    /// `SHUTDOWN [options]`.
    Shutdown(ShutdownRequest),

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    Hello(HelloRequest<'a>),
    /// `AUTH [user] password`.
    Auth(AuthRequest<'a>),
    /// `PING [message]`.
    Ping { message: Option<&'a [u8]> },
    /// `ECHO message`.
    Echo { message: &'a [u8] },
    /// `SELECT index`; the server knows the number of databases.
    Select { database_index: i64 },
    /// `QUIT`: reply OK and close.
    Quit,
    /// `RESET`: reply `+RESET`.
    Reset,

    /// `MULTI`.
    Multi,
    /// `EXEC`.
    Exec,
    /// `DISCARD`.
    Discard,
    /// `WATCH key [key ...]`.
    Watch { keys: Keys<'a> },
    /// `UNWATCH`.
    Unwatch,

    /// `CLIENT ID`.
    ClientId,
    /// `CLIENT INFO`.
    ClientInfo,
    /// `CLIENT LIST [TYPE t] [ID id ...]`.
    ClientList(ClientQuery<'a>),
    /// `CLIENT SETNAME name`; the name is valid, empty clears it.
    ClientSetName { name: &'a [u8] },
    /// `CLIENT GETNAME`.
    ClientGetName,
    /// `CLIENT SETINFO LIB-NAME name`.
    ClientSetLibName { name: &'a [u8] },
    /// `CLIENT SETINFO LIB-VER version`.
    ClientSetLibVersion { version: &'a [u8] },
    /// `CLIENT KILL` by address (old form: answers OK or an error) or by filters (answers a count).
    ClientKill(ClientQuery<'a>),
    /// `CLIENT NO-EVICT ON|OFF`.
    ClientNoEvict { on: bool },
    /// `CLIENT NO-TOUCH ON|OFF`.
    ClientNoTouch { on: bool },
    /// `CLIENT REPLY ON|OFF|SKIP`.
    ClientReply { mode: ReplyMode },
    /// `CLIENT PAUSE timeout [WRITE|ALL]`.
    ClientPause { timeout_ms: u64, mode: PauseMode },
    /// `CLIENT UNPAUSE`.
    ClientUnpause,

    /// `COMMAND`: all of [`super::Spec::all`].
    CommandTable,
    /// `COMMAND COUNT`.
    CommandCount,
    /// `COMMAND DOCS [name ...]`; no name means all.
    CommandDocs { names: ArgIter<'a> },
    /// `COMMAND INFO [name ...]`; no name means all.
    CommandInfo { names: ArgIter<'a> },
    /// `COMMAND GETKEYS command [argument ...]`: the keys, as indexes into `arguments`.
    CommandGetKeys { keys: Keys<'a> },
    /// `COMMAND LIST [FILTERBY kind value]`.
    CommandList(CommandList<'a>),

    /// `CLUSTER subcommand`.
    Cluster(ClusterRequest<'a>),
    /// `READONLY`.
    ReadOnly,
    /// `READWRITE`.
    ReadWrite,
    /// `ASKING`.
    Asking,

    /// A command of operators, with arguments that are parsed where it runs.
    Operator { id: CommandId, args: ArgIter<'a> },

    /// `CLIENT|CLUSTER|COMMAND|CONFIG|OBJECT|MEMORY|... HELP`: answer [`CommandId::help_lines`].
    Help { id: CommandId },
}

/// `SET` with its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetCommand<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// EX, PX, EXAT, PXAT, KEEPTTL or none of them.
    pub expiry: Expiry,
    /// NX, XX or neither.
    pub condition: SetCondition,
    /// GET: answer the old value (null if none) instead of OK.
    pub returns_old: bool,
}

/// The condition of a SET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCondition {
    /// Neither NX nor XX.
    #[default]
    Always,
    /// NX: only if the key does not exist.
    IfAbsent,
    /// XX: only if the key exists.
    IfPresent,
}

/// The effect of a SET on the expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Expiry {
    /// No expiry.
    #[default]
    Never,
    /// KEEPTTL.
    Keep,
    /// EX, PX, EXAT or PXAT.
    At(ExpireTime),
}

/// The effect of GETEX on the expiry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpireTtl {
    /// PERSIST.
    Persist,
    /// EX, PX, EXAT or PXAT.
    At(ExpireTime),
    /// One of these with an invalid time: null for an absent key, the error for an existing one.
    Invalid(InvalidTime),
}

/// The error in an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidTime {
    /// It is not a 64-bit integer.
    NotAnInteger,
    /// It is not positive, or too large for milliseconds.
    OutOfRange,
}

impl InvalidTime {
    /// The error reply of `id`.
    pub fn error_reply(self, id: CommandId) -> super::ErrorReply<'static> {
        match self {
            InvalidTime::NotAnInteger => super::ErrorReply::NotAnInteger,
            InvalidTime::OutOfRange => super::ErrorReply::InvalidExpireTime(id),
        }
    }
}

/// An expiry time as the client gave it, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpireTime {
    /// Milliseconds; negative only in the EXPIRE family.
    pub ms: i64,
    /// Whether `ms` counts from now instead of 1970.
    pub relative: bool,
    /// The command, which the error names if the sum with the clock overflows.
    pub id: CommandId,
}

impl ExpireTime {
    /// The absolute time; a time before 1970 is 0, which has always passed.
    /// `None`: answer [`super::ErrorReply::InvalidExpireTime`] with `self.id`.
    pub fn absolute(self, now: UnixMillis) -> Option<UnixMillis> {
        let now_ms = i64::try_from(now.0).unwrap_or(i64::MAX);
        let at_ms = if self.relative { self.ms.checked_add(now_ms)? } else { self.ms };
        Some(UnixMillis(u64::try_from(at_ms).unwrap_or(0)))
    }
}

/// NX, XX, GT and LT of the EXPIRE family. GT or LT may join XX; no other two may be set together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireCondition {
    /// Only if the key has no expiry.
    pub if_none: bool,
    /// Only if the key has an expiry.
    pub if_some: bool,
    /// Only if the new expiry is later; no expiry counts as infinitely late.
    pub if_later: bool,
    /// Only if the new expiry is earlier; no expiry counts as infinitely late.
    pub if_earlier: bool,
}

impl ExpireCondition {
    /// Whether a key with the expiry `old` may get the expiry `new`.
    pub fn allows(self, old: Option<UnixMillis>, new: UnixMillis) -> bool {
        !(self.if_none && old.is_some()
            || self.if_some && old.is_none()
            || self.if_later && old.is_none_or(|old| new <= old)
            || self.if_earlier && old.is_some_and(|old| new >= old))
    }
}

/// The unit and base of a returned time: TTL, PTTL, EXPIRETIME, PEXPIRETIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// TTL: seconds left, rounded to nearest.
    SecondsLeft,
    /// PTTL: milliseconds left.
    MillisecondsLeft,
    /// EXPIRETIME: seconds since 1970, rounded to nearest.
    SecondsAt,
    /// PEXPIRETIME: milliseconds since 1970.
    MillisecondsAt,
}

impl Unit {
    /// The number to return for a key that expires at `at` and has not expired yet.
    pub fn answer(self, now: UnixMillis, at: UnixMillis) -> i64 {
        let left_ms = at.0.saturating_sub(now.0);
        let answer = match self {
            Unit::SecondsLeft => left_ms.saturating_add(500) / 1000,
            Unit::MillisecondsLeft => left_ms,
            Unit::SecondsAt => at.0.saturating_add(500) / 1000,
            Unit::MillisecondsAt => at.0,
        };
        i64::try_from(answer).unwrap_or(i64::MAX)
    }
}

/// `COPY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy<'a> {
    /// The source key.
    pub source: &'a [u8],
    /// The target key.
    pub target: &'a [u8],
    /// `DB n`.
    pub database_index: Option<i64>,
    /// REPLACE.
    pub replaces: bool,
}

/// `MSETEX`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MSetEx<'a> {
    /// Keys and values.
    pub pairs: Pairs<'a>,
    /// The expiry of each key.
    pub expiry: Expiry,
    /// The condition on all keys together.
    pub condition: SetCondition,
}

/// `RESTORE`. IDLETIME and FREQ are checked and have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restore<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The payload from DUMP, not parsed yet.
    pub payload: &'a [u8],
    /// Milliseconds, 0 is never; `None`: it is not an integer. Redis checks the key first.
    pub ttl_ms: Option<i64>,
    /// ABSTTL: `ttl_ms` counts from 1970.
    pub is_absolute: bool,
    /// REPLACE.
    pub replaces: bool,
}

/// `SCAN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequest<'a> {
    /// The cursor that the last call returned.
    pub cursor: u64,
    /// MATCH, absent if none or `*`.
    pub pattern: Option<&'a [u8]>,
    /// COUNT, 10 by default, at least 1.
    pub count: u64,
    /// TYPE: only `string` (any case) can match.
    pub type_name: Option<&'a [u8]>,
}

/// `FLUSHALL [ASYNC|SYNC]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// Neither was given.
    Default,
    /// ASYNC.
    Async,
    /// SYNC.
    Sync,
}

/// `SHUTDOWN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// NOSAVE.
    pub nosave: bool,
    /// SAVE.
    pub save: bool,
    /// NOW.
    pub now: bool,
    /// FORCE.
    pub force: bool,
    /// ABORT: cancel a shutdown in progress.
    pub abort: bool,
}

/// `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelloRequest<'a> {
    /// 2 or 3; `None` keeps the current one.
    pub version: Option<u8>,
    /// AUTH.
    pub auth: Option<AuthRequest<'a>>,
    /// SETNAME; the name is valid.
    pub name: Option<&'a [u8]>,
}

/// User and password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthRequest<'a> {
    /// `None`: the one-argument AUTH, which means the default user.
    pub user: Option<&'a [u8]>,
    /// The password.
    pub password: &'a [u8],
}

/// The checked options of CLIENT LIST or CLIENT KILL; parsed again by [`ClientQuery::filter`], so
/// that this rare command does not make every `Command` twice as large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientQuery<'a> {
    pub(super) options: ArgIter<'a>,
    pub(super) is_kill: bool,
}

impl<'a> ClientQuery<'a> {
    /// The filter that the options describe.
    pub fn filter(&self) -> ClientFilter<'a> {
        super::parse_command::client_filter(self).unwrap_or_default()
    }
}

/// Which clients CLIENT LIST shows or CLIENT KILL closes; absent fields match every client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientFilter<'a> {
    /// ID (LIST takes several, KILL one).
    pub ids: Option<ArgIter<'a>>,
    /// KILL's ID.
    pub id: Option<u64>,
    /// TYPE: normal, master, replica or pubsub, lower case; only `normal` can match.
    pub type_name: Option<&'static str>,
    /// ADDR ip:port.
    pub address: Option<&'a [u8]>,
    /// LADDR ip:port.
    pub local_address: Option<&'a [u8]>,
    /// MAXAGE: connected for at least so many seconds.
    pub max_age_seconds: Option<u64>,
    /// USER.
    pub user: Option<&'a [u8]>,
    /// SKIPME.
    pub skip_me: KillSkipMe,
    /// The old form `CLIENT KILL ip:port`: answers OK or `ERR No such client`.
    pub old_form: bool,
}

/// Whether CLIENT KILL spares the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillSkipMe {
    /// The caller is spared (default of the filter form).
    #[default]
    Yes,
    /// The caller may be closed, after its reply.
    No,
}

/// `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Reply to everything, and answer OK.
    On,
    /// Reply to nothing, this command included.
    Off,
    /// Do not reply to this command and the next.
    Skip,
}

/// `CLIENT PAUSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseMode {
    /// Every command waits.
    All,
    /// Commands that write wait.
    Write,
}

/// The filter of `COMMAND LIST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandList<'a> {
    /// No filter.
    All,
    /// `FILTERBY MODULE name`: always an empty answer.
    Module(&'a [u8]),
    /// `FILTERBY ACLCAT category`.
    AclCategory(&'a [u8]),
    /// `FILTERBY PATTERN glob`.
    Pattern(&'a [u8]),
}

/// Name and value pairs of CONFIG SET.
pub type ConfigPairs<'a> = Pairs<'a>;

// Passed by value from the parser to the code that runs it: one cache line.
const _: () = assert!(size_of::<Command<'_>>() <= 64);

impl<'a> Command<'a> {
    /// Which command this is, for statistics, flags and `queues in MULTI` decisions.
    pub fn id(&self) -> Option<CommandId> {
        super::parse_command::id_of(self)
    }

    /// Parses the command in `args`.
    pub fn from_args(args: &Args<'a>) -> Result<Command<'a>, super::CommandError<'a>> {
        super::parse_command::from_args(args)
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandId, ExpireCondition, ExpireTime, Unit, UnixMillis};

    #[test]
    fn times_become_absolute_or_overflow() {
        let time = |ms, relative| ExpireTime { ms, relative, id: CommandId::Expire };
        let now = UnixMillis(1_000);
        assert_eq!(time(5, true).absolute(now), Some(UnixMillis(1_005)));
        assert_eq!(time(5, false).absolute(now), Some(UnixMillis(5)));
        assert_eq!(time(-5, true).absolute(now), Some(UnixMillis(995)));
        assert_eq!(time(-5_000, true).absolute(now), Some(UnixMillis(0)));
        assert_eq!(time(i64::MAX, true).absolute(now), None);
        assert_eq!(time(i64::MAX, false).absolute(now), Some(UnixMillis(i64::MAX as u64)));
    }

    #[test]
    fn no_expiry_counts_as_infinitely_late() {
        let nothing = ExpireCondition::default();
        let later = ExpireCondition { if_later: true, ..nothing };
        let earlier = ExpireCondition { if_earlier: true, ..nothing };
        let none = ExpireCondition { if_none: true, ..nothing };
        let some = ExpireCondition { if_some: true, ..nothing };
        let (old, new) = (Some(UnixMillis(10)), UnixMillis(20));
        // (condition, allowed without an expiry, with an earlier one, with the same one)
        let cases = [
            (nothing, true, true, true),
            (later, false, true, false),
            (earlier, true, false, false),
            (none, true, false, false),
            (some, false, true, true),
        ];
        for (condition, without, with_earlier, with_same) in cases {
            assert_eq!(condition.allows(None, new), without, "{condition:?}");
            assert_eq!(condition.allows(old, new), with_earlier, "{condition:?}");
            assert_eq!(condition.allows(Some(new), new), with_same, "{condition:?}");
        }
    }

    #[test]
    fn answered_times_are_rounded_to_seconds() {
        let (now, at) = (UnixMillis(10_000), UnixMillis(11_500));
        assert_eq!(Unit::SecondsLeft.answer(now, at), 2);
        assert_eq!(Unit::SecondsLeft.answer(now, UnixMillis(11_499)), 1);
        assert_eq!(Unit::MillisecondsLeft.answer(now, at), 1_500);
        assert_eq!(Unit::SecondsAt.answer(now, at), 12);
        assert_eq!(Unit::MillisecondsAt.answer(now, at), 11_500);
    }
}
