//! Tests of the copy loop with sources and targets that break, refuse and end.

use std::cell::Cell;
use std::io;

use super::*;
use crate::item::Expiry;

fn item(key: u8) -> Item {
    let (key, value) = (vec![key], b"value".to_vec());
    Item { key, value, value_bytes: 5, expiry: Expiry::Never, flags: 0 }
}

fn broken() -> Error {
    let error = io::Error::from(io::ErrorKind::ConnectionReset);
    Error::Connection { place: "here".to_owned(), error }
}

fn refused() -> Error {
    Error::Refused { place: "here".to_owned(), answer: "OOM".to_owned(), hint: "" }
}

/// Gives batches of two; breaks before the ones that `breaks_at` names, once each.
struct Numbers {
    next: u8,
    end: u8,
    breaks_at: Vec<u8>,
    reconnects: u32,
}

impl Numbers {
    fn up_to(end: u8) -> Numbers {
        Numbers { next: 0, end, breaks_at: Vec::new(), reconnects: 0 }
    }
}

impl Source for Numbers {
    fn next(&mut self) -> Result<Option<Batch>, Error> {
        if let Some(at) = self.breaks_at.iter().position(|at| *at == self.next) {
            self.breaks_at.remove(at);
            return Err(broken());
        }
        if self.next >= self.end {
            return Ok(None);
        }
        let mut batch =
            Batch { items: vec![item(self.next), item(self.next + 1)], ..Batch::default() };
        batch.tally.seen = 2;
        self.next += 2;
        Ok(Some(batch))
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        self.reconnects += 1;
        Ok(())
    }

    fn place(&self) -> Option<String> {
        Some(self.next.to_string())
    }

    fn total(&self) -> Option<u64> {
        Some(u64::from(self.end))
    }
}

/// Records its input; fails at one key, for a while or for good.
#[derive(Default)]
struct Kept {
    keys: Vec<u8>,
    fails_at: Option<u8>,
    breaks: u32,
}

impl Target for Kept {
    fn write(&mut self, items: &[Item], tally: &mut Tally) -> Result<(), Error> {
        for item in items {
            tally.copied += 1;
            tally.bytes += item.bytes();
            if self.breaks > 0 {
                self.breaks -= 1;
                return Err(broken());
            }
            if self.fails_at == Some(item.key[0]) {
                return Err(refused());
            }
            self.keys.push(item.key[0]);
        }
        Ok(())
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Stops after this many batches, or by hand.
#[derive(Default)]
struct Onlooker {
    batches: u32,
    stops_after: Option<u32>,
    retries: Cell<u32>,
}

impl Watch for Onlooker {
    fn is_stopped(&self) -> bool {
        self.stops_after == Some(self.batches)
    }

    fn progress(&mut self, _tally: &Tally, total: Option<u64>) {
        assert!(total.is_some());
        self.batches += 1;
    }

    fn retrying(&mut self, _error: &Error) {
        self.retries.set(self.retries.get() + 1);
    }
}

#[test]
fn everything_is_copied_once() {
    let (mut source, mut target) = (Numbers::up_to(6), Kept::default());
    let done = copy(&mut source, &mut target, Options::default(), &mut Onlooker::default());
    assert!(matches!(done.ending, Ending::Complete));
    assert_eq!(target.keys, [0, 1, 2, 3, 4, 5]);
    assert_eq!((done.tally.seen, done.tally.copied, done.tally.bytes), (6, 6, 36));
    assert_eq!(done.resume, None);
}

#[test]
fn a_dry_run_writes_nothing() {
    let (mut source, mut target) = (Numbers::up_to(6), Kept::default());
    let options = Options { is_dry: true, ..Options::default() };
    let done = copy(&mut source, &mut target, options, &mut Onlooker::default());
    assert!(target.keys.is_empty());
    assert_eq!((done.tally.copied, done.tally.bytes), (6, 36));
}

#[test]
fn a_broken_source_is_asked_again_and_nothing_counts_twice() {
    let (mut source, mut target) = (Numbers::up_to(6), Kept::default());
    source.breaks_at = vec![2, 4];
    let mut onlooker = Onlooker::default();
    let done = copy(&mut source, &mut target, Options::default(), &mut onlooker);
    assert!(matches!(done.ending, Ending::Complete));
    assert_eq!(target.keys, [0, 1, 2, 3, 4, 5]);
    assert_eq!((done.tally.seen, source.reconnects, onlooker.retries.get()), (6, 2, 2));
}

#[test]
fn a_broken_target_is_given_the_same_items_again() {
    let (mut source, mut target) = (Numbers::up_to(4), Kept { breaks: 2, ..Kept::default() });
    let done = copy(&mut source, &mut target, Options::default(), &mut Onlooker::default());
    assert_eq!(target.keys, [0, 1, 2, 3]);
    assert_eq!((done.tally.copied, done.tally.bytes), (4, 24));
}

#[test]
fn a_refusal_ends_it_and_names_the_place_before() {
    let (mut source, mut target) =
        (Numbers::up_to(6), Kept { fails_at: Some(3), ..Kept::default() });
    let done = copy(&mut source, &mut target, Options::default(), &mut Onlooker::default());
    assert!(matches!(done.ending, Ending::Failed(Error::Refused { .. })));
    // Key 2 was written, and will be met again: nothing behind the place is missing.
    assert_eq!(done.resume.as_deref(), Some("2"));
    assert_eq!(done.tally.copied, 2);
}

#[test]
fn an_interruption_ends_between_batches() {
    let (mut source, mut target) = (Numbers::up_to(6), Kept::default());
    let mut onlooker = Onlooker { stops_after: Some(2), ..Onlooker::default() };
    let done = copy(&mut source, &mut target, Options::default(), &mut onlooker);
    assert!(matches!(done.ending, Ending::Interrupted));
    assert_eq!(target.keys, [0, 1, 2, 3]);
    assert_eq!(done.resume.as_deref(), Some("4"));
}
