//! `ProtocolError`: the reason why a command cannot be parsed.

use std::fmt;

/// Why a command cannot be parsed. Reply with [`ProtocolError::encode`] and close; after
/// `BulkTooLarge` the frame is known, so skip the command by [`super::Parser::give_up`] instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count after `*` is not a number or too large.
    InvalidMultibulkLength,
    /// The same, for a client that has not authenticated.
    UnauthenticatedMultibulkLength,
    /// The length after `$` is not a number, negative or too large.
    InvalidBulkLength,
    /// The same, for a client that has not authenticated.
    UnauthenticatedBulkLength,
    /// An argument is above the limit, and small enough to be skipped.
    BulkTooLarge {
        /// Its length.
        len_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// An argument does not start with `$`.
    ExpectedDollar {
        /// The byte instead of it.
        got: u8,
    },
    /// An inline command without a line end.
    TooBigInlineRequest,
    /// A `*` line without a line end.
    TooBigMbulkCount,
    /// A `$` line without a line end.
    TooBigBulkCount,
    /// An inline command with an open quote, or text right after a closing one.
    UnbalancedQuotes,
}

impl ProtocolError {
    /// Appends the error reply, CRLF included.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            ProtocolError::BulkTooLarge { .. } => b"-ERR ",
            _ => b"-ERR Protocol error: ",
        });
        match *self {
            // The byte is sent unchanged, unless it would break the line.
            ProtocolError::ExpectedDollar { got } => {
                let shown = if matches!(got, b'\r' | b'\n') { b' ' } else { got };
                out.extend_from_slice(b"expected '$', got '");
                out.push(shown);
                out.push(b'\'');
            }
            _ => out.extend_from_slice(self.to_string().as_bytes()),
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::BulkTooLarge { len_bytes, max_bytes } => {
                return write!(
                    formatter,
                    "an argument of {len_bytes} bytes is above the limit of {max_bytes} \
                     (proto-max-bulk-len, --max-item-size)"
                );
            }
            ProtocolError::ExpectedDollar { .. } => "expected '$'",
            ProtocolError::TooBigInlineRequest => "too big inline request",
            ProtocolError::TooBigMbulkCount => "too big mbulk count string",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
        })
    }
}

impl std::error::Error for ProtocolError {}
