//! `ProtocolError`: the stream has lost its frame.

use std::fmt;

/// Why a RESP stream cannot be read on. Reply with [`ProtocolError::encode`] and close.
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
    /// An argument does not start with `$`.
    ExpectedDollar {
        /// What stands there instead.
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
        out.extend_from_slice(b"-ERR Protocol error: ");
        match *self {
            // The byte goes out as it came in, unless it would break the line.
            ProtocolError::ExpectedDollar { got } => {
                let shown = if matches!(got, b'\r' | b'\n') { b' ' } else { got };
                out.extend_from_slice(b"expected '$', got '");
                out.push(shown);
                out.push(b'\'');
            }
            _ => out.extend_from_slice(self.text().as_bytes()),
        }
        out.extend_from_slice(b"\r\n");
    }

    fn text(&self) -> &'static str {
        match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::ExpectedDollar { .. } => "expected '$'",
            ProtocolError::TooBigInlineRequest => "too big inline request",
            ProtocolError::TooBigMbulkCount => "too big mbulk count string",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::error::Error for ProtocolError {}
