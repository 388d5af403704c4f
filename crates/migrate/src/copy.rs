//! The copy loop between a source and a target: batches, retries, throttle, tally.
//!
//! ```text
//!  source.next ─▶ batch ─▶ throttle ─▶ target.write ─▶ tally, place to resume at
//!      ▲  broken: reconnect, same batch      │  broken: reconnect, same items
//!      └─────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! I1: the place to resume at is never past the items that the target has acknowledged.
//! I2: a source counts a batch only when it returns it: a batch that is read again counts once.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Error;
use crate::item::Item;
use crate::throttle::{Throttle, pause, wait};

/// Most connections in a row without a successful batch.
const TRIES_MAX: u32 = 8;
/// The wait before the first of them; doubled up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The counts of keys by result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Keys that the source returned, whatever their result.
    pub seen: u64,
    /// Written keys, or with `--dry-run` those to be written.
    pub copied: u64,
    /// Bytes of keys and values of these.
    pub bytes: u64,
    /// Keys left as they are on the target.
    pub existed: u64,
    /// Keys that expired between listing and writing.
    pub expired: u64,
    /// Listed keys that were gone or changed when they were read.
    pub gone: u64,
    /// Keys in other databases of a file.
    pub elsewhere: u64,
    /// Keys that do not match `--match`.
    pub unmatched: u64,
    /// Keys of unsupported types, by type.
    pub other_types: BTreeMap<String, u64>,
    /// Refused keys, by the target's reason.
    pub refused: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds the counts of one batch.
    pub fn add(&mut self, other: &Tally) {
        for (sum, more) in [
            (&mut self.seen, other.seen),
            (&mut self.copied, other.copied),
            (&mut self.bytes, other.bytes),
            (&mut self.existed, other.existed),
            (&mut self.expired, other.expired),
            (&mut self.gone, other.gone),
            (&mut self.elsewhere, other.elsewhere),
            (&mut self.unmatched, other.unmatched),
        ] {
            *sum += more;
        }
        for (name, count) in &other.other_types {
            *self.other_types.entry(name.clone()).or_default() += count;
        }
        for (reason, count) in &other.refused {
            *self.refused.entry(reason.clone()).or_default() += count;
        }
    }

    /// The number of keys of unsupported types.
    pub fn other_types_count(&self) -> u64 {
        self.other_types.values().sum()
    }

    /// The number of keys that the target refused.
    pub fn refused_count(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// One batch of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The items to write.
    pub items: Vec<Item>,
    /// The keys read for it that are not among the items.
    pub tally: Tally,
}

/// A source of items.
pub trait Source {
    /// The next batch, or `None` at the end. After a failure it returns the same batch again.
    fn next(&mut self) -> Result<Option<Batch>, Error>;
    /// Makes a new connection, or returns to the same place of the file.
    fn reconnect(&mut self) -> Result<(), Error>;
    /// The value of `--resume` for continuing after everything returned so far; `None` if the
    /// source has no such place.
    fn place(&self) -> Option<String>;
    /// The number of all keys, if it is known.
    fn total(&self) -> Option<u64>;
}

/// A target of items.
pub trait Target {
    /// Writes all items and counts the results. After a failure they are written again.
    fn write(&mut self, items: &[Item], tally: &mut Tally) -> Result<(), Error>;
    /// Makes a new connection.
    fn reconnect(&mut self) -> Result<(), Error>;
}

/// An observer of a copy.
pub trait Watch {
    /// Whether to end after the current batch.
    fn is_stopped(&self) -> bool;
    /// Called after each batch.
    fn progress(&mut self, tally: &Tally, total: Option<u64>);
    /// Called when a connection broke and is made again.
    fn retrying(&mut self, error: &Error);
}

/// The options of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The limit of keys a second.
    pub keys_per_second: Option<u64>,
    /// The limit of bytes of keys and values a second.
    pub bytes_per_second: Option<u64>,
    /// Whether to read everything and write nothing.
    pub is_dry: bool,
}

/// The end of a copy.
#[derive(Debug)]
pub enum Ending {
    /// Every key was read.
    Complete,
    /// The user stopped it.
    Interrupted,
    /// It failed.
    Failed(Error),
}

/// The outcome of a copy.
#[derive(Debug)]
pub struct Outcome {
    /// The counts of keys by result.
    pub tally: Tally,
    /// The reason for its end.
    pub ending: Ending,
    /// The value of `--resume`, if the copy is not complete and the source has places.
    pub resume: Option<String>,
}

/// Copies until the source ends.
pub fn copy(
    source: &mut dyn Source,
    target: &mut dyn Target,
    options: Options,
    watch: &mut dyn Watch,
) -> Outcome {
    let mut tally = Tally::default();
    let mut resume = source.place();
    let ending = match pump(source, target, options, watch, (&mut tally, &mut resume)) {
        Ok(ending) => ending,
        Err(error) => Ending::Failed(error),
    };
    let resume = resume.filter(|_| !matches!(ending, Ending::Complete));
    Outcome { tally, ending, resume }
}

fn pump(
    source: &mut dyn Source,
    target: &mut dyn Target,
    options: Options,
    watch: &mut dyn Watch,
    (tally, resume): (&mut Tally, &mut Option<String>),
) -> Result<Ending, Error> {
    let mut keys_rate = Throttle::new(options.keys_per_second);
    let mut bytes_rate = Throttle::new(options.bytes_per_second);
    loop {
        if watch.is_stopped() {
            return Ok(Ending::Interrupted);
        }
        let got = persist(watch, source, |source| source.reconnect(), |source| source.next())?;
        let Some(batch) = got else { return Ok(Ending::Interrupted) };
        let Some(Batch { items, tally: seen }) = batch else { return Ok(Ending::Complete) };
        let bytes = items.iter().map(Item::bytes).sum();
        let charges = ((&mut keys_rate, seen.seen), (&mut bytes_rate, bytes));
        if !wait(charges.0, charges.1, || watch.is_stopped()) {
            return Ok(Ending::Interrupted);
        }
        let mut written = Tally::default();
        if options.is_dry {
            written.copied = items.len() as u64;
            written.bytes = bytes;
        } else {
            let done = persist(
                watch,
                target,
                |target| target.reconnect(),
                |target| {
                    written = Tally::default();
                    target.write(&items, &mut written)
                },
            );
            if done?.is_none() {
                return Ok(Ending::Interrupted);
            }
        }
        tally.add(&seen);
        tally.add(&written);
        *resume = source.place();
        watch.progress(tally, source.total());
    }
}

/// Retries until it succeeds, with a new connection before each further try. `None`: interrupted.
fn persist<L: ?Sized, T>(
    watch: &mut dyn Watch,
    link: &mut L,
    mut reconnect: impl FnMut(&mut L) -> Result<(), Error>,
    mut attempt: impl FnMut(&mut L) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let mut result = attempt(link);
    let mut time = PAUSE_MIN;
    for _ in 0..TRIES_MAX {
        match result {
            Err(error) if error.is_temporary() => watch.retrying(&error),
            other => return other.map(Some),
        }
        if !pause(time, || watch.is_stopped()) {
            return Ok(None);
        }
        time = (time * 2).min(PAUSE_MAX);
        result = reconnect(link).and_then(|()| attempt(link));
    }
    result.map(Some)
}

#[cfg(test)]
mod tests;
