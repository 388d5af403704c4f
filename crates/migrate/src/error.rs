//! The reasons for which copying stops, one line each.

use std::io;

use crate::rdb::RdbError;

/// The reasons for which a copy stops.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection could not be made, or broke.
    #[error("{place}: {error}")]
    Connection {
        /// The address as the user wrote it, without secrets.
        place: String,
        /// The system's message.
        error: io::Error,
    },
    /// A server refused.
    #[error("{place} answered: {answer}{hint}")]
    Refused {
        /// The address as the user wrote it, without secrets.
        place: String,
        /// Its own words.
        answer: String,
        /// What would be right, with what separates it; or nothing.
        hint: &'static str,
    },
    /// A server that speaks otherwise than the protocol says.
    #[error("{place} does not speak {protocol}: {found}")]
    Protocol {
        /// The address as the user wrote it, without secrets.
        place: String,
        /// What was expected.
        protocol: &'static str,
        /// What came, cut and escaped.
        found: String,
    },
    /// A pattern beyond the limits of patterns.
    #[error("{0}")]
    Pattern(#[from] wire::resp::PatternError),
    /// A file that cannot be read to its end.
    #[error("{path}: {error}")]
    File {
        /// Of the file.
        path: String,
        /// What is wrong with it.
        error: RdbError,
    },
    /// What `--resume` says is no place in this source.
    #[error("--resume {given}: {wanted}")]
    Resume {
        /// By the user.
        given: String,
        /// What would be right.
        wanted: &'static str,
    },
}

impl Error {
    /// Whether a new connection may help.
    pub fn is_temporary(&self) -> bool {
        match self {
            Error::Connection { error, .. } => error.kind() != io::ErrorKind::InvalidInput,
            Error::Refused { answer, .. } => {
                ["LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ", "NOREPLICAS ", "UNCERTAIN "]
                    .iter()
                    .any(|word| answer.starts_with(word))
            }
            Error::Protocol { .. }
            | Error::File { .. }
            | Error::Pattern(_)
            | Error::Resume { .. } => false,
        }
    }
}

/// What a server sent, as one line for people: escaped and cut.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX_BYTES: usize = 100;
    let cut = bytes.get(..SHOWN_MAX_BYTES);
    let text = cut.unwrap_or(bytes).escape_ascii().to_string();
    if cut.is_some() { format!("{text}...") } else { text }
}
