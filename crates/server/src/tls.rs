//! TLS: what a server shows and asks for, and what a connection has of it.
//!
//! ```text
//!  socket ──recv──▶ ciphertext ─▶ Stream ─▶ plaintext ─▶ the arena, or the connection's own buffer
//!  socket ◀─send─── ciphertext ◀─ Stream ◀─ Output, a piece at a time
//!  files ─▶ Certificates ─▶ an Arc that new connections take; SIGHUP reads the files again
//! ```
//!
//! # Invariants
//! T1: between two reads a stream holds no plaintext: what was opened went where a plain connection
//! would have read it, so that nothing waits which the poller does not tell of. T2: at most
//! `SEALED_BYTES_MAX` wait sealed for the socket, beside what `Output` counts. T3: files are
//! taken all together or not at all.
//!
//! # Trade-offs
//! In user space, each byte is copied once more than on a plain connection, and values are not
//! sent from the log: they have to be sealed.

mod certificates;
mod stream;

pub use certificates::{Certificates, ClientCertificates, TlsConfig};
pub(crate) use stream::{HANDSHAKE_BYTES, Received, Stream, append, fill};
