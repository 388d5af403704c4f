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

/// Connections that are made in a row without a batch that comes through.
const TRIES_MAX: u32 = 8;
/// Before the first of them; doubled up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What became of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Keys that the source showed, whatever became of them.
    pub seen: u64,
    /// Written, or with `--dry-run` to be written.
    pub copied: u64,
    /// Keys and values of these.
    pub bytes: u64,
    /// Left as the target has them.
    pub existed: u64,
    /// Ended between listing and writing.
    pub expired: u64,
    /// Listed, and gone or changed by the time they were asked for.
    pub gone: u64,
    /// In other databases of a file.
    pub elsewhere: u64,
    /// Not what `--match` names.
    pub unmatched: u64,
    /// By the type that is not kept here.
    pub other_types: BTreeMap<String, u64>,
    /// By the target's reason.
    pub refused: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds what one batch brought.
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

    /// Keys of types that are not kept here.
    pub fn other_types_count(&self) -> u64 {
        self.other_types.values().sum()
    }

    /// Keys that the target did not take.
    pub fn refused_count(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// What a source gives at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// To be written.
    pub items: Vec<Item>,
    /// What was seen for it and is not among them.
    pub tally: Tally,
}

/// Where items come from.
pub trait Source {
    /// The next ones, or `None` at the end. After a failure the same ones are given again.
    fn next(&mut self) -> Result<Option<Batch>, Error>;
    /// A new connection, or the file's same place.
    fn reconnect(&mut self) -> Result<(), Error>;
    /// What `--resume` takes to go on behind all that was given; `None` if there is no such thing.
    fn place(&self) -> Option<String>;
    /// Keys in all, if that is known.
    fn total(&self) -> Option<u64>;
}

/// Where items go.
pub trait Target {
    /// Writes all; counts what became of each. After a failure they are written again.
    fn write(&mut self, items: &[Item], tally: &mut Tally) -> Result<(), Error>;
    /// A new connection.
    fn reconnect(&mut self) -> Result<(), Error>;
}

/// An observer of a copy.
pub trait Watch {
    /// Whether to end after the batch at hand.
    fn is_stopped(&self) -> bool;
    /// A batch is through.
    fn progress(&mut self, tally: &Tally, total: Option<u64>);
    /// A connection broke and is made again.
    fn retrying(&mut self, error: &Error);
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keys a second.
    pub keys_per_second: Option<u64>,
    /// Of keys and values.
    pub bytes_per_second: Option<u64>,
    /// Look, and write nothing.
    pub is_dry: bool,
}

/// How it ended.
#[derive(Debug)]
pub enum Ending {
    /// Everything was seen.
    Complete,
    /// Somebody said stop.
    Interrupted,
    /// It could not go on.
    Failed(Error),
}

/// What was done.
#[derive(Debug)]
pub struct Outcome {
    /// What became of the keys.
    pub tally: Tally,
    /// Why it is over.
    pub ending: Ending,
    /// What `--resume` takes, if it is not over and the source has places.
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

/// Tries until it works, with a new connection before each further try. `None`: interrupted.
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
