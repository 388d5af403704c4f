//! Errors of a benchmark that did not run or finish: one line each, with a way to fix it.

use std::io;
use std::path::PathBuf;

/// The reasons for which `bench::run` fails. [`BenchError::exit_code`] is the process's exit
/// status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The settings contradict each other or ask for what does not exist.
    #[error("{message}")]
    Usage {
        /// The error and the correct form.
        message: String,
    },
    /// The server cannot be reached.
    #[error(
        "cannot connect to {address}: {source}: is the server running? \
         start one with `dovetail serve`"
    )]
    Connect {
        /// HOST:PORT.
        address: String,
        /// The system's message.
        source: io::Error,
    },
    /// The native client has no connection.
    #[error("{reason}: is the server running, with --native or --shm?")]
    ConnectNative {
        /// The client's message.
        reason: String,
    },
    /// A connection broke while requests were outstanding.
    #[error("lost the connection to {address}: {reason}")]
    ConnectionLost {
        /// HOST:PORT.
        address: String,
        /// The system's message, or "closed by the server".
        reason: String,
    },
    /// The server refused a request that the run needs (logging in, storing the key set).
    #[error("the server refused {request}: {reply}")]
    Refused {
        /// The request, e.g. "AUTH".
        request: &'static str,
        /// The server's message.
        reply: String,
    },
    /// The reply is not valid in the protocol.
    #[error("{address} does not speak {protocol}: {reason}")]
    Protocol {
        /// HOST:PORT.
        address: String,
        /// "RESP" or "memcached text".
        protocol: &'static str,
        /// The bytes received.
        reason: String,
    },
    /// The embedded store could not be opened or used.
    #[error("embedded store: {reason}")]
    Store {
        /// The store's message.
        reason: String,
    },
    /// ^C before anything was measured.
    #[error("interrupted before the measured window began")]
    Interrupted,
    /// A report could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's message.
        source: io::Error,
    },
    /// The operating system refused something else.
    #[error("{what}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The system's message.
        source: io::Error,
    },
}

impl BenchError {
    /// 2 for bad usage, 1 for a failure at run time.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::Usage { .. } => 2,
            _ => 1,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> BenchError {
        BenchError::Usage { message: message.into() }
    }
}
