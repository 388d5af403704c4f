//! The settings `--write-policy` and `--dispatch`, as users spell them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Which workers may write a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WritePolicy {
    /// Only the owner reads or writes it.
    Erew,
    /// Only the owner writes it.
    Crew,
    /// The worker with outstanding writes of it.
    DCrew,
    /// Any worker.
    Crcw,
}

/// Where a request goes if the write policy leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// To its key's owner.
    KeyHash,
    /// It stays where it was received.
    Any,
    /// To the shortest queue below this bound.
    Jbsq(u32),
    /// To each worker in turn.
    RoundRobin,
    /// From this many receiving workers to an idle one of the others.
    HandOff(u16),
    /// It stays until an idle worker takes it.
    Steal,
    /// By the size of its item.
    SizeAware,
}

/// A write policy and a dispatch, which make a router together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policies {
    /// Which workers may write a partition.
    pub write_policy: WritePolicy,
    /// Where all other requests go.
    pub dispatch: Dispatch,
}

impl Policies {
    /// Each request is executed by the worker that received it.
    pub const STAY: Policies = Policies::new(WritePolicy::Crcw, Dispatch::Any);

    /// The policies that a tuner tries where the settings leave both open, the first without need
    /// of evidence (C-4 §4.2, Minos §3).
    pub const TRIED: [Policies; 4] = [
        Policies::STAY,
        Policies::new(WritePolicy::DCrew, Dispatch::Any),
        Policies::new(WritePolicy::Crcw, Dispatch::SizeAware),
        Policies::new(WritePolicy::DCrew, Dispatch::SizeAware),
    ];

    /// A write policy with a dispatch.
    pub const fn new(write_policy: WritePolicy, dispatch: Dispatch) -> Policies {
        Policies { write_policy, dispatch }
    }

    /// Whether no request leaves the worker that received it.
    pub fn stay(self) -> bool {
        self == Policies::STAY
    }

    /// Whether small and large items have different workers.
    pub fn tell_sizes(self) -> bool {
        self.dispatch == Dispatch::SizeAware
    }
}

impl Default for Policies {
    fn default() -> Policies {
        Policies::STAY
    }
}

impl fmt::Display for Policies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.write_policy, self.dispatch)
    }
}

/// The error of an invalid setting.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadSetting {
    /// An unknown write policy.
    #[error("unknown write policy {0:?}; it can be erew, crew, d-crew or crcw")]
    WritePolicy(String),
    /// An unknown dispatch.
    #[error(
        "unknown dispatch {0:?}; it can be key-hash, any, jbsq:N, round-robin, hand-off:N, steal \
         or size-aware"
    )]
    Dispatch(String),
    /// An invalid number behind a name.
    #[error("the N of {name}:N can be 1 to {max}, not {found:?}")]
    Count {
        /// The name before the number.
        name: &'static str,
        /// The maximum, inclusive.
        max: u32,
        /// The text found.
        found: String,
    },
}

impl WritePolicy {
    /// All policies, the strictest first.
    pub const ALL: [WritePolicy; 4] =
        [WritePolicy::Erew, WritePolicy::Crew, WritePolicy::DCrew, WritePolicy::Crcw];

    /// The spelling in settings.
    pub fn name(self) -> &'static str {
        match self {
            WritePolicy::Erew => "erew",
            WritePolicy::Crew => "crew",
            WritePolicy::DCrew => "d-crew",
            WritePolicy::Crcw => "crcw",
        }
    }
}

impl fmt::Display for WritePolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for WritePolicy {
    type Err = BadSetting;

    fn from_str(text: &str) -> Result<WritePolicy, BadSetting> {
        let named = WritePolicy::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| BadSetting::WritePolicy(text.to_owned()))
    }
}

impl fmt::Display for Dispatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dispatch::KeyHash => formatter.pad("key-hash"),
            Dispatch::Any => formatter.pad("any"),
            Dispatch::Jbsq(bound) => formatter.pad(&format!("jbsq:{bound}")),
            Dispatch::RoundRobin => formatter.pad("round-robin"),
            Dispatch::HandOff(workers) => formatter.pad(&format!("hand-off:{workers}")),
            Dispatch::Steal => formatter.pad("steal"),
            Dispatch::SizeAware => formatter.pad("size-aware"),
        }
    }
}

impl FromStr for Dispatch {
    type Err = BadSetting;

    fn from_str(text: &str) -> Result<Dispatch, BadSetting> {
        if let Some(count) = text.strip_prefix("jbsq:") {
            return Ok(Dispatch::Jbsq(count_of("jbsq", u32::MAX, count)?));
        }
        if let Some(count) = text.strip_prefix("hand-off:") {
            let max = u16::MAX;
            return Ok(Dispatch::HandOff(count_of("hand-off", u32::from(max), count)? as u16));
        }
        match text {
            "key-hash" => Ok(Dispatch::KeyHash),
            "any" => Ok(Dispatch::Any),
            "round-robin" => Ok(Dispatch::RoundRobin),
            "steal" => Ok(Dispatch::Steal),
            "size-aware" => Ok(Dispatch::SizeAware),
            _ => Err(BadSetting::Dispatch(text.to_owned())),
        }
    }
}

fn count_of(name: &'static str, max: u32, text: &str) -> Result<u32, BadSetting> {
    let count = text.parse().ok().filter(|count| (1..=max).contains(count));
    count.ok_or_else(|| BadSetting::Count { name, max, found: text.to_owned() })
}
