//! Arguments of commands, rejections and limits of the text protocol; the commands are in `verbs`.

use base::UnixMillis;

use super::reply::Reply;

/// Keys to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retrieve<'a> {
    /// At least one.
    pub keys: Keys<'a>,
    /// gets and gats: VALUE lines carry the CAS token.
    pub with_cas: bool,
}

/// A walk over the keys of a get; each is checked already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    pub(super) rest: &'a [u8],
}

/// The kind of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    /// Always.
    Set,
    /// Only if absent.
    Add,
    /// Only if present.
    Replace,
    /// After the old value; flags and exptime of the command are ignored.
    Append,
    /// Before the old value; flags and exptime of the command are ignored.
    Prepend,
    /// Only if the CAS token is still this.
    Cas(u64),
}

/// A storage command with its data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which one.
    pub verb: StoreVerb,
    /// The key.
    pub key: &'a [u8],
    /// Opaque.
    pub flags: u32,
    /// As given; see [`expiry_from_exptime`].
    pub exptime: i64,
    /// The data block.
    pub value: &'a [u8],
    /// Do not reply.
    pub noreply: bool,
}

/// delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Do not reply.
    pub noreply: bool,
}

/// incr and decr. incr wraps at 2^64, decr stops at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How much.
    pub delta: u64,
    /// decr.
    pub is_decrement: bool,
    /// Do not reply.
    pub noreply: bool,
}

/// touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// As given; see [`expiry_from_exptime`].
    pub exptime: i64,
    /// Do not reply.
    pub noreply: bool,
}

/// The kind of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsKind<'a> {
    /// `stats`.
    General,
    /// `stats settings`.
    Settings,
    /// `stats items`.
    Items,
    /// `stats slabs`.
    Slabs,
    /// `stats sizes`.
    Sizes,
    /// `stats conns`.
    Connections,
    /// `stats reset`: reply [`Reply::Reset`].
    Reset,
    /// `stats detail on` and `off`: requests are counted by the prefixes of their keys.
    Detail {
        /// From now on.
        is_on: bool,
    },
    /// `stats detail dump`: the counts by prefix.
    DetailDump,
    /// Another word.
    Other(&'a [u8]),
}

/// The sizes that the parser accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum of a data block, inclusive.
    pub value_max_bytes: usize,
    /// The maximum of a line of get, gets, gat or gats; other lines are limited to
    /// [`Limits::LINE_MAX_BYTES`].
    pub get_line_max_bytes: usize,
}

impl Limits {
    /// The maximum of a key, inclusive.
    pub const KEY_MAX_BYTES: usize = 250;

    /// The maximum of any other command line, without its end, inclusive.
    pub const LINE_MAX_BYTES: usize = 2048;

    /// Limits with this largest value, and gets of some 4,000 long keys.
    pub const fn new(value_max_bytes: usize) -> Limits {
        Limits { value_max_bytes, get_line_max_bytes: 1 << 20 }
    }
}

impl Default for Limits {
    /// 32 MiB.
    fn default() -> Limits {
        Limits::new(32 << 20)
    }
}

/// A command that was refused; the stream continues after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection<'a> {
    /// The reply; `None` if the client said noreply.
    pub reply: Option<Reply>,
    /// Bytes after `consumed_bytes` to be skipped without parsing: the body of a refused command.
    pub swallow_bytes: u64,
    /// memcached deletes the old value of a `set` that it refuses for its size.
    pub delete_key: Option<&'a [u8]>,
    /// That key is in base64.
    pub is_key_base64: bool,
}

impl Rejection<'_> {
    /// A rejection with only a reply.
    pub(super) fn of(reply: Reply) -> Rejection<'static> {
        Rejection { reply: Some(reply), swallow_bytes: 0, delete_key: None, is_key_base64: false }
    }
}

/// The stream cannot be parsed further: reply with [`ProtocolError::reply`] if there is one, and
/// close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A line longer than any command: memcached closes without a reply.
    LineTooLong,
    /// A get with more keys than this server buffers; memcached has no limit there.
    GetTooLong,
    /// A web browser: close without a reply.
    Http,
}

impl ProtocolError {
    /// The reply before closing.
    pub fn reply(&self) -> Option<Reply> {
        match self {
            ProtocolError::GetTooLong => Some(Reply::LineTooLong),
            ProtocolError::LineTooLong | ProtocolError::Http => None,
        }
    }
}

/// The largest exptime, in seconds, that is relative to now; greater ones are Unix times.
pub const RELATIVE_EXPTIME_MAX_S: i64 = 60 * 60 * 24 * 30;

/// The expiry for this exptime: 0 never, negative at once, up to 30 days relative to now, more a
/// Unix time.
pub fn expiry_from_exptime(exptime: i64, now: UnixMillis) -> Option<UnixMillis> {
    let seconds = match u64::try_from(exptime) {
        Ok(0) => return None,
        Err(_) => return Some(UnixMillis(0)),
        Ok(seconds) => seconds,
    };
    let ms = seconds.saturating_mul(1000);
    if exptime <= RELATIVE_EXPTIME_MAX_S {
        Some(UnixMillis(now.0.saturating_add(ms)))
    } else {
        Some(UnixMillis(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::{RELATIVE_EXPTIME_MAX_S, UnixMillis, expiry_from_exptime};

    #[test]
    fn an_exptime_is_relative_up_to_thirty_days() {
        let now = UnixMillis(1_700_000_000_500);
        let at = |exptime| expiry_from_exptime(exptime, now);
        assert_eq!(at(0), None);
        assert_eq!(at(1), Some(UnixMillis(1_700_000_001_500)));
        assert_eq!(at(RELATIVE_EXPTIME_MAX_S), Some(UnixMillis(1_702_592_000_500)));
        assert_eq!(at(RELATIVE_EXPTIME_MAX_S + 1), Some(UnixMillis(2_592_001_000)));
        assert_eq!(at(1_800_000_000), Some(UnixMillis(1_800_000_000_000)));
        assert_eq!(at(-1), Some(UnixMillis(0)), "already expired");
        assert_eq!(at(i64::MIN), Some(UnixMillis(0)));
        assert_eq!(at(i64::MAX), Some(UnixMillis(u64::MAX)), "saturates");
    }
}
