//! `Limits`: the sizes that the RESP parser accepts.

/// The largest accepted request. Arguments above `bulk_max_bytes` are refused and skipped;
/// exceeding another limit is a protocol error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum of one argument (`proto-max-bulk-len`), inclusive.
    pub bulk_max_bytes: usize,
    /// The maximum number of arguments of one command, inclusive.
    pub args_max: u32,
    /// The maximum of an inline command and of each header line, without its line end.
    pub inline_max_bytes: usize,
    /// A client that must authenticate and has not: 10 arguments of 16 KiB, and error texts of its
    /// own.
    pub before_auth: bool,
}

impl Limits {
    /// The maximum number of arguments of a client that has not authenticated.
    pub const ARGS_MAX_BEFORE_AUTH: u32 = 10;
    /// The maximum length of an argument of a client that has not authenticated.
    pub const BULK_MAX_BYTES_BEFORE_AUTH: usize = 16_384;

    /// A longer argument is a protocol error; the bytes of a shorter one above
    /// [`Limits::bulk_max_bytes`] are skipped, and the connection continues.
    pub const DISCARD_MAX_BYTES: u64 = 4 << 30;

    /// The limits of Redis with this `proto-max-bulk-len`.
    pub const fn new(bulk_max_bytes: usize) -> Limits {
        Limits {
            bulk_max_bytes,
            args_max: 1024 * 1024,
            inline_max_bytes: 64 * 1024,
            before_auth: false,
        }
    }

    /// The limits for a client that must authenticate first.
    pub const fn before_auth(self) -> Limits {
        Limits { before_auth: true, ..self }
    }

    /// The length that every argument may have, whichever client sends it.
    #[inline]
    pub(crate) fn hot_bulk_max_bytes(&self) -> usize {
        let before_auth_max_bytes =
            if self.before_auth { Limits::BULK_MAX_BYTES_BEFORE_AUTH } else { usize::MAX };
        self.bulk_max_bytes.min(before_auth_max_bytes)
    }
}

impl Default for Limits {
    /// 32 MiB per argument.
    fn default() -> Limits {
        Limits::new(32 << 20)
    }
}
