//! Errors of a benchmark that did not run or finish: one line each, with a way to fix it.

use std::io;
use std::path::PathBuf;

/// Why `bench::run` gave up. [`BenchError::exit_code`] is the process's exit status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The settings contradict each other or ask for what does not exist.
    #[error("{message}")]
    Usage {
        /// What is wrong and what would be right.
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
        /// What the system said.
        source: io::Error,
    },
    /// The native client has no connection.
    #[error("{reason}: is the server running, with --native or --shm?")]
    ConnectNative {
        /// What the client said.
        reason: String,
    },
    /// A connection broke while requests were outstanding.
    #[error("lost the connection to {address}: {reason}")]
    ConnectionLost {
        /// HOST:PORT.
        address: String,
        /// What the system said, or "closed by the server".
        reason: String,
    },
    /// The server refused what the run cannot do without (logging in, storing the key set).
    #[error("the server refused {request}: {reply}")]
    Refused {
        /// The request, e.g. "AUTH".
        request: &'static str,
        /// The server's own words.
        reply: String,
    },
    /// The bytes that came back are not the protocol's.
    #[error("{address} does not speak {protocol}: {reason}")]
    Protocol {
        /// HOST:PORT.
        address: String,
        /// "RESP" or "memcached text".
        protocol: &'static str,
        /// What was seen.
        reason: String,
    },
    /// The embedded store could not be opened or used.
    #[error("embedded store: {reason}")]
    Store {
        /// The store's own words.
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
        /// What the system said.
        source: io::Error,
    },
    /// The operating system refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
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
