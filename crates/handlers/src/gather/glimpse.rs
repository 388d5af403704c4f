//! One look at a key, by a command that is about to work on it.

use commands::compaction::Answering;
use commands::rmw::{Refusal, Rmw};
use store::{Op, Outcome, Pins, Request, Sink};

use super::Gather;

/// Shows the value of a key in place.
pub struct Looking<F> {
    see: F,
    /// 0: the key is not there.
    pub version: u64,
}

impl<F: FnMut(&[u8])> Looking<F> {
    /// Calls `see` with the value, if there is one.
    pub fn new(see: F) -> Looking<F> {
        Looking { see, version: 0 }
    }
}

impl<F: FnMut(&[u8])> Answering for Looking<F> {}

impl<F: FnMut(&[u8])> Sink<Refusal> for Looking<F> {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.version = item.version;
            (self.see)(item.value);
        }
    }
}

/// The result of one look at a key; 0 and 0: it is absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glimpse {
    /// The version.
    pub version: u64,
    /// The value's length.
    pub value_len_bytes: usize,
}

impl Gather<'_, '_> {
    /// Looks at a key, after the requests that the batch has gathered.
    pub fn glimpse(&mut self, key: &[u8]) -> Glimpse {
        let (now, mut value_len_bytes) = (self.core.now, 0);
        let mut looking = Looking::new(|value| value_len_bytes = value.len());
        let request = Request { key, hash: self.core.hash(key), op: Op::<Rmw<'_>>::Get };
        match self.engine.session() {
            Some(session) => session.execute(now, &[request], &mut looking),
            None => {
                self.flush();
                self.engine.execute(now, &[request], &mut looking);
            }
        }
        Glimpse { version: looking.version, value_len_bytes }
    }
}
