//! `--size`: bytes, a share of the working set, or a number of objects.

use std::fmt;
use std::str::FromStr;

use base::ByteSize;

use crate::SimError;
use crate::cache::{Trace, Weigh};

/// How large a cache is, as the user wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSize {
    text: String,
    amount: Amount,
    weigh: Weigh,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Count(u64),
    SharePct(f64),
}

impl CacheSize {
    /// Bytes or objects, as [`CacheSize::is_objects`] says; at least 1.
    pub fn capacity(&self, trace: &Trace) -> u64 {
        let whole = match self.weigh {
            Weigh::Objects => trace.object_count,
            Weigh::Bytes => trace.working_set_bytes,
        };
        match self.amount {
            Amount::Count(count) => count,
            Amount::SharePct(pct) => ((whole as f64 * pct / 100.0) as u64).max(1),
        }
    }

    /// Whether every item counts alike.
    pub fn is_objects(&self) -> bool {
        self.weigh == Weigh::Objects
    }

    pub(crate) fn weigh(&self) -> Weigh {
        self.weigh
    }
}

impl fmt::Display for CacheSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for CacheSize {
    type Err = SimError;

    fn from_str(text: &str) -> Result<CacheSize, SimError> {
        let (number, weigh) = match text.strip_suffix("obj") {
            Some(number) => (number, Weigh::Objects),
            None => (text, Weigh::Bytes),
        };
        let amount = match (number.strip_suffix('%'), weigh) {
            (Some(pct), _) => {
                let pct = pct.parse().ok().filter(|pct| *pct > 0.0 && *pct <= SHARE_PCT_MAX);
                pct.map(Amount::SharePct)
            }
            (None, Weigh::Objects) => number.parse().ok().map(Amount::Count),
            (None, Weigh::Bytes) => {
                number.parse().ok().map(|size: ByteSize| Amount::Count(size.bytes))
            }
        };
        match amount.filter(|amount| *amount != Amount::Count(0)) {
            Some(amount) => Ok(CacheSize { text: text.to_owned(), amount, weigh }),
            None => Err(SimError::BadParameter {
                what: format!(
                    "`{text}` is no cache size: write bytes (64MiB), a share of the working set \
                     (10%), objects (5000obj) or a share of them (10%obj)"
                ),
            }),
        }
    }
}

/// A store needs more memory than its items have bytes.
const SHARE_PCT_MAX: f64 = 1000.0;
