//! TLS: the server's certificates, the client certificates it requests, and the TLS state of a
//! connection.
//!
//! ```text
//!  socket ──recv──▶ ciphertext ─▶ Stream ─▶ plaintext ─▶ the arena, or the connection's own buffer
//!  socket ◀─send─── ciphertext ◀─ Stream ◀─ Output, a piece at a time
//!  files ─▶ Certificates ─▶ an Arc that new connections take; SIGHUP reads the files again
//! ```
//!
//! # Invariants
//! T1: between two reads a stream holds no plaintext: decrypted bytes go where a plain connection
//!     would have read them. So no input waits that the poller does not report.
//! T2: at most `SEALED_BYTES_MAX` of sealed bytes wait for the socket, beside the bytes that
//!     `Output` counts.
//! T3: either all files are loaded, or none.
//!
//! # Trade-offs
//! TLS runs in user space: each byte is copied once more than on a plain connection, and values are
//! not sent from the log, because they have to be sealed.

mod certificates;
mod records;
mod stream;

pub use certificates::Certificates;
pub use stream::{HANDSHAKE_BYTES, Received, Stream, append, fill};
