//! The reasons for which a simulation cannot run.

/// Why a simulation could not be run, or its result not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A parameter out of its range.
    #[error("{what}")]
    BadParameter {
        /// What was wrong and what would be right.
        what: String,
    },
    /// A file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The picture could not be drawn.
    #[error("the chart could not be drawn: {reason}")]
    Draw {
        /// Why.
        reason: String,
    },
}

impl SimError {
    /// 2 for what the user wrote, 1 for what went wrong while it ran.
    pub fn exit_code(&self) -> u8 {
        match self {
            SimError::BadParameter { .. } => 2,
            SimError::Write { .. } | SimError::Draw { .. } => 1,
        }
    }
}
