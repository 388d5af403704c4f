//! One client thread: stores its share of the keys, then loads its connections.
//!
//! Closed loop: a connection sends a batch of `pipeline` requests in one write, waits for all
//! replies, and sends the next batch. Open loop: requests become due at times that do not depend on
//! replies. A due request waits here while every connection is full, and its latency counts from
//! its due time, so that a stalled server shows in the percentiles (no coordinated omission).

use std::time::Duration;

use workload::ArrivalClock;

use crate::codec::Codec;
use crate::connection::{Broken, Connection, Shape, Source};
use crate::control::{Control, Phase};
use crate::error::BenchError;
use crate::lane::Lane;
use crate::plan::WhenFull;
use crate::poller::{Poller, Ready};
use crate::tally::Tally;

/// Requests outstanding per connection while the keys are stored.
const POPULATE_DEPTH: usize = 128;

/// The longest sleep of a thread between two checks of the phase.
const LOOK_UP: Duration = Duration::from_millis(10);

/// How long an open loop waits after its window for due answers.
const DRAIN: Duration = Duration::from_secs(1);

/// The rule by which requests are sent.
pub(crate) enum Pacing {
    Closed,
    Open(Offer),
}

/// The open loop's schedule on one thread.
pub(crate) struct Offer {
    clock: ArrivalClock,
    /// The clock's zero on the run's clock.
    zero_ns: u64,
    /// The start of the search for a connection with room.
    next_connection: usize,
    when_full: WhenFull,
}

impl Offer {
    pub(crate) fn new(clock: ArrivalClock, when_full: WhenFull) -> Offer {
        Offer { clock, zero_ns: 0, next_connection: 0, when_full }
    }

    /// Handles a due request without room; returns whether it is dropped.
    pub(crate) fn gives_up(&mut self, tally: &mut Tally) -> bool {
        let is_gone = self.when_full == WhenFull::Drop;
        if is_gone {
            tally.dropped_count += 1;
            self.advance();
        }
        is_gone
    }

    /// The due time of the next request.
    pub(crate) fn due_ns(&self) -> u64 {
        self.zero_ns + self.clock.next_ns()
    }

    /// Starts the clock.
    pub(crate) fn start(&mut self, now_ns: u64) {
        self.zero_ns = now_ns;
    }

    /// Records that the due request is sent, or dropped.
    pub(crate) fn advance(&mut self) {
        self.clock.advance();
    }
}

pub(crate) struct Worker<'a, C> {
    pub(crate) shape: Shape<'a, C>,
    pub(crate) control: &'a Control,
    pub(crate) address: &'a str,
    pub(crate) protocol: &'static str,
    pub(crate) connections: Vec<Connection<'a>>,
    /// Connections whose unsent bytes the poller watches.
    pub(crate) write_watched: Vec<bool>,
    pub(crate) poller: Poller,
    pub(crate) pipeline: usize,
    pub(crate) pacing: Pacing,
    pub(crate) tally: Tally,
}

impl<'a, C: Codec> Worker<'a, C> {
    /// Stores the keys of the connections' sources.
    pub(crate) fn populate(&mut self) -> Result<(), BenchError> {
        self.watch_all()?;
        let mut reported = 0;
        self.feed_all(POPULATE_DEPTH)?;
        while self.connections.iter().any(|connection| !connection.is_idle()) {
            if self.control.phase() == Phase::Stop {
                return Ok(());
            }
            self.round(LOOK_UP, Some(POPULATE_DEPTH))?;
            self.control.add_populated(self.tally.write_count - reported);
            reported = self.tally.write_count;
            if let Some(reply) = self.tally.error_first.take() {
                return Err(BenchError::Refused { request: "a write of the key set", reply });
            }
        }
        Ok(())
    }

    /// Loads until the run stops; `lanes` has one lane for each connection.
    pub(crate) fn load(&mut self, lanes: Vec<Lane<'a>>) -> Result<(), BenchError> {
        for (connection, lane) in self.connections.iter_mut().zip(lanes) {
            connection.set_source(Source::Load(lane));
        }
        let mut phase = Phase::WarmUp;
        let now_ns = self.control.now_ns();
        self.tally.open_window(now_ns);
        match &mut self.pacing {
            Pacing::Closed => self.feed_all(self.pipeline)?,
            Pacing::Open(offer) => offer.zero_ns = now_ns,
        }
        loop {
            let found = self.control.phase();
            if found == Phase::Stop {
                break;
            }
            if found != phase {
                phase = found;
                self.tally.open_window(self.control.now_ns());
            }
            self.step()?;
        }
        let end_ns = self.control.now_ns();
        self.tally.close_window(end_ns);
        self.drain(end_ns)
    }

    fn step(&mut self) -> Result<(), BenchError> {
        match &self.pacing {
            Pacing::Closed => self.round(LOOK_UP, Some(self.pipeline)),
            Pacing::Open(_) => {
                let timeout = self.offer(u64::MAX)?;
                self.round(timeout, None)
            }
        }
    }

    /// Sends the due requests, up to `until_ns`, to connections with room; returns the time until
    /// the next one.
    fn offer(&mut self, until_ns: u64) -> Result<Duration, BenchError> {
        let now_ns = self.control.now_ns().min(until_ns);
        let Pacing::Open(offer) = &mut self.pacing else { return Ok(LOOK_UP) };
        let count = self.connections.len();
        let mut timeout = LOOK_UP;
        let mut is_fed = false;
        loop {
            let due_ns = offer.due_ns();
            if due_ns > now_ns {
                timeout = LOOK_UP.min(Duration::from_nanos(due_ns - now_ns));
                break;
            }
            let start = offer.next_connection;
            let places = (start..start + count).map(|place| place % count);
            let has_room =
                |place: &usize| self.connections[*place].outstanding_count() < self.pipeline;
            let Some(place) = places.into_iter().find(has_room) else {
                if offer.gives_up(&mut self.tally) {
                    continue;
                }
                break;
            };
            self.connections[place].push(&self.shape, due_ns);
            offer.next_connection = (place + 1) % count;
            offer.clock.advance();
            is_fed = true;
        }
        if is_fed {
            for index in 0..count {
                self.flush(index)?;
            }
            if timeout < LOOK_UP {
                let passed_ns = self.control.now_ns() - now_ns;
                timeout = timeout.saturating_sub(Duration::from_nanos(passed_ns));
            }
        }
        Ok(timeout)
    }

    /// Whether an answer, or a send due in the window, is still missing.
    fn has_unfinished(&self, end_ns: u64) -> bool {
        let is_behind = matches!(&self.pacing, Pacing::Open(offer) if offer.due_ns() <= end_ns);
        is_behind || self.connections.iter().any(|connection| !connection.is_idle())
    }

    /// After the window, an open loop waits a little for answers; missing ones count as late.
    fn drain(&mut self, end_ns: u64) -> Result<(), BenchError> {
        if matches!(self.pacing, Pacing::Closed) {
            return Ok(());
        }
        let in_window = (self.tally.operation_count, self.tally.request_count);
        let deadline_ns = end_ns + DRAIN.as_nanos() as u64;
        while self.has_unfinished(end_ns)
            && self.control.now_ns() < deadline_ns
            && !self.control.is_interrupted()
        {
            let timeout = self.offer(end_ns)?;
            self.round(timeout, None)?;
        }
        (self.tally.operation_count, self.tally.request_count) = in_window;
        let now_ns = self.control.now_ns();
        let outstanding: Vec<u64> =
            self.connections.iter().flat_map(Connection::outstanding_start_ns).collect();
        for start_ns in outstanding {
            self.tally.give_up(now_ns.saturating_sub(start_ns));
        }
        if let Pacing::Open(offer) = &mut self.pacing {
            while offer.due_ns() <= end_ns {
                self.tally.give_up(now_ns - offer.due_ns());
                offer.clock.advance();
            }
        }
        Ok(())
    }

    /// One wait and one pass over the ready connections; `refill` keeps a closed loop going.
    fn round(&mut self, timeout: Duration, refill: Option<usize>) -> Result<(), BenchError> {
        let count = self.poller.wait(timeout).map_err(|source| system(POLLING, source))?;
        for place in 0..count {
            let ready = self.poller.ready(place);
            self.serve(ready, refill)?;
        }
        Ok(())
    }

    fn serve(&mut self, ready: Ready, refill: Option<usize>) -> Result<(), BenchError> {
        let Ready { index, can_read, can_write } = ready;
        let connection = &mut self.connections[index];
        let mut has_news = can_write;
        if can_read {
            let control = self.control;
            let received = connection.receive(&self.shape, &mut self.tally, || control.now_ns());
            received.map_err(|broken| broken_error(self.address, self.protocol, broken))?;
            match refill {
                Some(depth) if connection.has_answered_all() => {
                    connection.fill(&self.shape, depth, self.control.now_ns());
                    has_news = true;
                }
                Some(_) => {}
                None => {
                    connection.push_write_backs(&self.shape);
                    has_news |= connection.has_unsent_bytes();
                }
            }
        }
        if has_news { self.flush(index) } else { Ok(()) }
    }

    fn feed_all(&mut self, depth: usize) -> Result<(), BenchError> {
        for index in 0..self.connections.len() {
            self.connections[index].fill(&self.shape, depth, self.control.now_ns());
            self.flush(index)?;
        }
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Result<(), BenchError> {
        let connection = &mut self.connections[index];
        if connection.has_unsent_bytes() {
            let flushed = connection.flush();
            flushed.map_err(|broken| broken_error(self.address, self.protocol, broken))?;
        }
        let is_watched = connection.has_unsent_bytes();
        if is_watched != self.write_watched[index] {
            self.write_watched[index] = is_watched;
            let changed = self.poller.watch_writes(connection.socket(), index, is_watched);
            changed.map_err(|source| system(POLLING, source))?;
        }
        Ok(())
    }

    fn watch_all(&mut self) -> Result<(), BenchError> {
        for (index, connection) in self.connections.iter().enumerate() {
            let added = self.poller.add(connection.socket(), index);
            added.map_err(|source| system(POLLING, source))?;
        }
        Ok(())
    }
}

const POLLING: &str = "cannot wait for the connections";

fn system(what: &'static str, source: std::io::Error) -> BenchError {
    BenchError::System { what, source }
}

pub(crate) fn broken_error(address: &str, protocol: &'static str, broken: Broken) -> BenchError {
    let address = address.to_owned();
    match broken {
        Broken::Lost(reason) => BenchError::ConnectionLost { address, reason },
        Broken::Protocol(reason) => BenchError::Protocol { address, protocol, reason },
    }
}
