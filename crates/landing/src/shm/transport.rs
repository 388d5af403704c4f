//! Shared-memory clients as a transport: one lane for each client, one zone for all.
//!
//! ```text
//!   ring of client 0 ─┐
//!   ring of client 1 ─┼─ one copy ─▶ zone ─▶ completions (lane)
//!   ring of client 2 ─┘
//!   reserve, commit ─▶ ring of the lane's client ─ flush: published, a sleeper is rung
//! ```
//!
//! A frame is copied to the window of the zone. One that does not fit in the rest of a buffer stays
//! in its ring, and lands in the next buffer: no frame is ever cut, none has to be sent again.
//!
//! # Invariants
//! T1: all frames that a client published before it hung up land before `take_closed` names its
//!     lane.
//! T2: nothing is taken from a client while the longest reply might not fit in its ring (K18). A
//!     client that has hung up gets no reply, so its remaining frames are taken all the same.
//! T3: once `may_sleep` has returned true, every client rings after it publishes.
//! T4: a closed lane is not given to another client before 2^20 more have come.
//!
//! # Concurrency
//! One thread drives a transport and its zone, as with any other.
//!
//! # Limits
//! 4096 clients at a time. The hang-up of a client while the server is awake is noticed within
//! `LOOK_EVERY` receives, since the check costs a system call.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use crate::shm::channel::Armed;
use crate::shm::layout::RingSize;
use crate::shm::link::Gone;
use crate::shm::ring::Taken;
use crate::shm::server_end::{Peer, ServerEnd};
use crate::{Landed, Lane, SendError, Sender, Transport, Zone};

/// The number of receives between two looks at the doorbells, while the server is awake.
const LOOK_EVERY: u32 = 256;

/// The low bits of a lane are its client's place, the high ones a serial number.
const PLACE_BITS: u32 = 12;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// The maximum number of doorbells handled in one look; further ones are handled in the next.
const BELLS_MAX: usize = 64;

/// The configuration of a shared-memory transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// The size of each client's rings, the same as its acceptor's.
    pub ring: RingSize,
    /// The maximum number of frames in one receive.
    pub burst_max: usize,
    /// The maximum of those for one client.
    pub turn_max: usize,
}

impl Default for ShmConfig {
    fn default() -> ShmConfig {
        ShmConfig { ring: RingSize::DEFAULT, burst_max: 256, turn_max: 32 }
    }
}

struct Client {
    end: ServerEnd,
    lane: Lane,
    /// Why its connection is to be closed.
    gone: Option<Gone>,
}

#[derive(Clone, Copy)]
struct Reserved {
    place: usize,
    bytes_max: usize,
}

/// Clients in shared memory that share a zone.
pub struct Shm {
    clients: Vec<Option<Client>>,
    serial: u32,
    /// All doorbells.
    bells: OwnedFd,
    /// The client that is first in the next receive.
    first: usize,
    /// Receives since the last look at the doorbells.
    unlooked: u32,
    /// Whether clients were told to ring.
    is_asleep: bool,
    closed: VecDeque<(Lane, Gone)>,
    /// A reserved frame is written here, and copied to the ring when it is committed.
    scratch: Box<[u8]>,
    reserved: Option<Reserved>,
    queued: usize,
    config: ShmConfig,
}

/// The result of a client's turn.
#[derive(Clone, Copy, Default)]
struct Turn {
    taken: usize,
    landed: usize,
    /// The zone has no room for more.
    is_starved: bool,
}

impl Shm {
    /// A transport without clients.
    pub fn new(config: ShmConfig) -> io::Result<Shm> {
        Ok(Shm {
            clients: Vec::new(),
            serial: 0,
            bells: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            first: 0,
            unlooked: 0,
            is_asleep: false,
            closed: VecDeque::new(),
            scratch: vec![0; config.ring.frame_len_max()].into_boxed_slice(),
            reserved: None,
            queued: 0,
            config,
        })
    }

    /// Serves a client that an acceptor with rings of this size has accepted.
    pub fn add(&mut self, end: ServerEnd) -> io::Result<Lane> {
        if end.frame_len_max() != self.config.ring.frame_len_max() {
            let message = "the acceptor's rings have another size than the transport's";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let free = self.clients.iter().position(Option::is_none);
        let place = free.unwrap_or(self.clients.len());
        if place > PLACE_MASK as usize {
            return Err(io::Error::other("a transport has no more than 4096 clients"));
        }
        let lane = Lane(self.serial << PLACE_BITS | place as u32);
        let data = epoll::EventData::new_u64(u64::from(lane.0));
        epoll::add(&self.bells, end.as_fd(), data, epoll::EventFlags::IN)?;
        if place == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[place] = Some(Client { end, lane, gone: None });
        self.serial = self.serial.wrapping_add(1);
        Ok(lane)
    }

    /// The number of clients.
    pub fn client_count(&self) -> usize {
        self.clients.iter().flatten().count()
    }

    /// The process at the other end of a lane.
    pub fn peer(&self, lane: Lane) -> Option<Peer> {
        let place = self.place_of(lane.into())?;
        self.clients[place].as_ref().map(|client| client.end.peer())
    }

    /// A lane whose client has disconnected or was closed, and why; all its frames have landed.
    pub fn take_closed(&mut self) -> Option<(Lane, Gone)> {
        self.closed.pop_front()
    }

    /// Closes a client's connection at once.
    pub fn close(&mut self, lane: Lane) {
        if let Some(place) = self.place_of(lane.into()) {
            self.part(place, Gone::HungUp);
        }
    }

    fn place_of(&self, sender: Sender) -> Option<usize> {
        let lane = sender.as_lane()?;
        let place = (lane.0 & PLACE_MASK) as usize;
        let client = self.clients.get(place)?.as_ref()?;
        (client.lane == lane).then_some(place)
    }

    fn part(&mut self, place: usize, gone: Gone) {
        // Closing its descriptor removes it from the set of doorbells.
        if let Some(client) = self.clients[place].take() {
            self.closed.push_back((client.lane, gone));
        }
    }

    /// Handles clients that have rung or hung up: after a sleep, and now and then.
    fn look(&mut self) -> io::Result<()> {
        self.unlooked += 1;
        if !self.is_asleep && self.unlooked < LOOK_EVERY {
            return Ok(());
        }
        self.unlooked = 0;
        self.stay_awake();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::uninit() }; BELLS_MAX];
        let (rung, _) = match epoll::wait(&self.bells, &mut room, Some(&now)) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            waited => waited?,
        };
        for event in rung {
            let lane = Lane(event.data.u64() as u32);
            let Some(place) = self.place_of(lane.into()) else { continue };
            if let Some(client) = &mut self.clients[place]
                && let Err(gone) = client.end.hear()
            {
                client.gone.get_or_insert(gone);
            }
        }
        Ok(())
    }

    fn stay_awake(&mut self) {
        if std::mem::take(&mut self.is_asleep) {
            self.clients.iter_mut().flatten().for_each(|client| client.end.disarm());
        }
    }
}

impl Client {
    /// Lands at most so many of its frames.
    fn land(&mut self, zone: &mut Zone, frames_max: usize) -> Result<Turn, Gone> {
        // Gives back the room of taken frames, unless a flush has done so.
        self.end.publish();
        let mut turn = Turn::default();
        if self.gone.is_none() && !self.end.may_take()? {
            return Ok(turn);
        }
        while turn.taken < frames_max && self.end.has_frames()? {
            let has_room = zone.completions_free() > 0;
            let Some(window) = zone.window_mut().filter(|_| has_room) else {
                zone.count_starved();
                turn.is_starved = true;
                break;
            };
            match self.end.take(window)? {
                Taken::Frame { len_bytes } => {
                    turn.taken += 1;
                    let landed = zone.land(self.lane.into(), 0, len_bytes);
                    turn.landed += usize::from(landed == Landed::Completed);
                }
                // The next buffer has room for any frame.
                Taken::TooShort => zone.close_buffer(),
                Taken::Empty => break,
            }
        }
        Ok(turn)
    }

    /// Whether no frame of it is left to land.
    fn is_over(&mut self) -> bool {
        match self.gone {
            None => false,
            Some(Gone::HungUp) => !self.end.has_frames().unwrap_or(false),
            Some(_) => true,
        }
    }
}

impl Transport for Shm {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        let frame_bytes_max = self.frame_bytes_max();
        if zone.size().buffer_bytes < frame_bytes_max {
            let message = format!("the zone's buffers are shorter than {frame_bytes_max} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.look()?;
        let count = self.clients.len();
        let (mut landed, mut left) = (0, self.config.burst_max);
        for step in 0..count {
            let place = (self.first + step) % count;
            let Some(client) = &mut self.clients[place] else { continue };
            let turn = match client.land(zone, left.min(self.config.turn_max)) {
                Ok(turn) => turn,
                Err(gone) => {
                    client.gone = Some(gone);
                    Turn::default()
                }
            };
            landed += turn.landed;
            left -= turn.taken;
            if client.is_over() {
                let gone = client.gone.take().unwrap_or(Gone::HungUp);
                self.part(place, gone);
            }
            if left == 0 || turn.is_starved {
                // A client that has not had a turn is first next time.
                self.first = (place + 1) % count;
                break;
            }
        }
        Ok(landed)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        let place = self.room_for(to, bytes_max)?;
        self.reserved = Some(Reserved { place, bytes_max });
        Ok(&mut self.scratch[..bytes_max])
    }

    /// An empty frame is not sent: a ring cannot contain one.
    fn commit(&mut self, len_bytes: usize) {
        let reserved = self.reserved.take().expect("room is reserved before it is committed");
        assert!(len_bytes <= reserved.bytes_max, "a frame fits in what was reserved");
        let Some(client) = self.clients[reserved.place].as_mut().filter(|_| len_bytes > 0) else {
            return;
        };
        match client.end.write(&self.scratch[..len_bytes]) {
            Ok(is_written) => self.queued += usize::from(is_written),
            Err(gone) => client.gone = Some(gone),
        }
    }

    /// A committed frame is already in its ring; here it is published to the client.
    fn flush(&mut self) -> io::Result<usize> {
        self.clients.iter_mut().flatten().for_each(|client| client.end.publish());
        Ok(std::mem::take(&mut self.queued))
    }

    fn queued(&self) -> usize {
        self.queued
    }

    fn frame_bytes_max(&self) -> usize {
        self.config.ring.frame_len_max()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bells.as_fd()
    }

    fn may_sleep(&mut self) -> bool {
        self.is_asleep = true;
        let all_armed = self.clients.iter_mut().flatten().all(|client| {
            client.gone.is_none()
                && match client.end.arm(0) {
                    Ok(armed) => armed == Armed::Sleep,
                    Err(gone) => {
                        client.gone = Some(gone);
                        false
                    }
                }
        });
        self.queued = 0;
        if !all_armed {
            self.stay_awake();
        }
        all_armed
    }

    /// Copies the frame straight into the ring.
    fn queue(&mut self, to: Sender, frame: &[u8]) -> Result<(), SendError> {
        let place = self.room_for(to, frame.len())?;
        let Some(client) = self.clients[place].as_mut().filter(|_| !frame.is_empty()) else {
            return Ok(());
        };
        match client.end.write(frame) {
            Ok(true) => {
                self.queued += 1;
                Ok(())
            }
            Ok(false) => Err(SendError::Full),
            Err(gone) => {
                client.gone = Some(gone);
                Err(SendError::NoPeer)
            }
        }
    }
}

impl Shm {
    /// The place of the client, if its ring has room for so many bytes.
    fn room_for(&mut self, to: Sender, bytes_max: usize) -> Result<usize, SendError> {
        let max_bytes = self.frame_bytes_max();
        let place = self.place_of(to).ok_or(SendError::NoPeer)?;
        let Some(client) = &mut self.clients[place] else { return Err(SendError::NoPeer) };
        if client.gone.is_some() {
            return Err(SendError::NoPeer);
        }
        SendError::check_len(bytes_max, max_bytes)?;
        match client.end.has_room(bytes_max) {
            Ok(true) => Ok(place),
            Ok(false) => Err(SendError::Full),
            Err(gone) => {
                client.gone = Some(gone);
                Err(SendError::NoPeer)
            }
        }
    }
}
