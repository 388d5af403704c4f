//! The RDMA transport: drives the device, its lanes, receives and sends.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use base::sync::Arc;
use landing::{Lane, Region, SendError, Sender, Transport, Zone};

use crate::control::{Control, Heard};
use crate::handshake::{Fence, GREETING_BYTES, Greeting, PACKET_MASK, Refusal, encode_refusal};
use crate::lanes::{Connection, Lanes, Stage};
use crate::port::Port;
use crate::receives::Receives;
use crate::sends::{Outbox, Rule, Sends, lane_of};
use crate::verbs::{
    Channel, CompletionQueue, Device, Domain, Event, Memory, OpenError, Peer, QueuePair,
    QueuePairSize, SharedQueue, Timing, abi,
};
use crate::{Acknowledge, RdmaConfig};

/// Bytes that travel within their request instead of being fetched: the minimum of all devices.
const INLINE_BYTES: u32 = 64;
/// Bytes of a zone that peers may read, to know that their messages are in memory.
const FENCE_BYTES: usize = 8;
/// One in so many receives looks at descriptors.
const ROUNDS_PER_LOOK: u64 = 64;
/// The maximum number of send completions taken in one look.
const ACKNOWLEDGEMENTS_MAX: usize = 32;
/// 0.64 ms: the time that a sender waits if no receive is posted.
const NOT_READY_TIMER: u8 = 12;
/// For ever: a full zone is back-pressure, not an error.
const NOT_READY_RETRIES: u8 = 7;
const RETRIES: u8 = 7;

/// The counts since a transport was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that were handed to the device.
    pub frames: u64,
    /// Lists of requests in which they were handed over.
    pub doorbells: u64,
    /// Frames that requested a completion.
    pub signalled: u64,
    /// READs after batches.
    pub reads: u64,
    /// Frames of broken connections that were given up, or whose arrival was never confirmed.
    pub refused: u64,
    /// Times that the device had few receives left.
    pub low_water: u64,
    /// Connections that broke or were closed.
    pub stopped: u64,
}

/// Connections of one device whose messages land in one zone.
pub struct Rdma {
    lanes: Lanes,
    control: Control,
    receives: Receives,
    sends: Sends,
    /// Completions of receives that were taken from the device and not yet handled.
    burst: Box<[abi::WorkCompletion]>,
    burst_at: usize,
    burst_len: usize,
    /// Lanes with queued frames.
    dirty: Vec<Lane>,
    queued: usize,
    given_up: usize,
    opened: Vec<Lane>,
    closed: Vec<Lane>,
    refusals: Vec<(Lane, Refusal)>,
    stopping_count: usize,
    /// An event other than a message has happened since a thread last wanted to sleep: a thread
    /// that waits for it looks again first.
    has_news: bool,
    rounds: u64,
    counters: Counters,
    shared: Arc<SharedQueue>,
    send_queue: Arc<CompletionQueue>,
    receive_queue: Arc<CompletionQueue>,
    channel: Arc<Channel>,
    device: Arc<Device>,
    /// The zone's memory, kept as long as the device may write there.
    region: Arc<Region>,
    fence: Memory,
    port: Port,
    config: RdmaConfig,
}

impl fmt::Debug for Rdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rdma")
            .field("device", &self.device.name())
            .field("connections", &self.lanes.live_count())
            .field("stopping", &self.stopping_count)
            .field("receives_waiting", &self.receives.waiting_count())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl Rdma {
    /// A transport that fills this zone, without connections yet.
    pub fn new(zone: &mut Zone, config: RdmaConfig) -> Result<Rdma, OpenError> {
        let device = Arc::new(Device::open(config.device.as_deref())?);
        Rdma::on(device, zone, config).map_err(OpenError::Refused)
    }

    fn on(device: Arc<Device>, zone: &mut Zone, mut config: RdmaConfig) -> io::Result<Rdma> {
        let slot_bytes = config.slot_bytes();
        if slot_bytes > zone.size().buffer_bytes {
            let message = "a buffer of the zone is shorter than the longest frame";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let limits = device.attributes()?;
        // A batch's READ takes a place too.
        let lane_frames_limit = (limits.send_requests_max.max(2) / 2) as usize;
        config.lane_frames_max = config.lane_frames_max.clamp(1, lane_frames_limit);
        config.send_frames_max = config.send_frames_max.max(1);
        let port = Port::choose(&device, &limits, &config)?;
        let domain = Arc::new(Domain::new(device.clone())?);
        let channel = Arc::new(Channel::new(device.clone())?);
        let slot_count = zone.size().buffer_bytes / slot_bytes * zone.size().buffer_count;
        let depth = config.receives_max.min(slot_count).max(1);
        let depth = depth.min(limits.shared_requests_max.max(1) as usize) as u32;
        let request_count = 2 * (config.send_frames_max as u32) + 1;
        let receive_queue = Arc::new(CompletionQueue::new(&channel, depth + 1)?);
        let send_queue = Arc::new(CompletionQueue::new(&channel, request_count)?);
        let shared = Arc::new(SharedQueue::new(&domain, depth)?);
        let rule =
            Rule { acknowledge: config.acknowledge, unsignalled_max: config.unsignalled_max() };
        let sends = Sends::new(&domain, config.send_frames_max, slot_bytes, rule)?;
        let control = Control::new(channel.fd(), device.event_fd())?;
        let region = zone.lend();
        let fence = Memory::readable(&domain, &region, FENCE_BYTES.min(region.len_bytes()))?;
        let memory = Memory::landing(&domain, &region)?;
        let receives = Receives::new(shared.clone(), memory, zone, slot_bytes, depth.into());
        Ok(Rdma {
            lanes: Lanes::default(),
            control,
            receives,
            sends,
            burst: vec![NO_COMPLETION; config.burst_max.max(1)].into_boxed_slice(),
            burst_at: 0,
            burst_len: 0,
            dirty: Vec::with_capacity(config.lanes_max),
            queued: 0,
            given_up: 0,
            opened: Vec::new(),
            closed: Vec::new(),
            refusals: Vec::new(),
            stopping_count: 0,
            has_news: false,
            rounds: 0,
            counters: Counters::default(),
            shared,
            send_queue,
            receive_queue,
            channel,
            device,
            region,
            fence,
            port,
            config,
        })
    }

    /// Accepts connections from now on. They are set up within `receive` and `may_sleep`.
    pub fn listen(&mut self, listener: TcpListener) -> io::Result<()> {
        self.control.listen(listener)
    }

    /// Connects to a listener. The lane can be sent to once `take_opened` has named it.
    pub fn connect(&mut self, to: SocketAddr, patience: Duration) -> io::Result<Lane> {
        let mut stream = TcpStream::connect_timeout(&to, patience)?;
        stream.set_nodelay(true)?;
        let (pair, packet) = self.make_pair()?;
        stream.write_all(&self.greeting(&pair, packet).encode())?;
        self.add(pair, packet, stream, Stage::Opening)
    }

    /// A newly opened lane.
    pub fn take_opened(&mut self) -> Option<Lane> {
        self.opened.pop()
    }

    /// A lane whose peer has disconnected, or that [`close`](Rdma::close) closed: everything that
    /// had arrived from it has landed (K22). Its position is not given to another.
    pub fn take_closed(&mut self) -> Option<Lane> {
        self.closed.pop()
    }

    /// A lane that a listener refused, and why. It is closed too.
    pub fn take_refusal(&mut self) -> Option<(Lane, Refusal)> {
        self.refusals.pop()
    }

    /// Stops receiving from a lane. Everything that has arrived lands before `take_closed` names
    /// it.
    pub fn close(&mut self, lane: Lane) {
        self.stop(lane);
    }

    /// Frames to a lane that are queued, or that its device has not acknowledged.
    pub fn outstanding(&self, lane: Lane) -> usize {
        self.lanes.get(lane).map_or(0, |connection| connection.outbox.len())
    }

    /// Frames to a lane that have been acknowledged: with `Acknowledge::Persistent`, that are
    /// persistent in the peer's memory.
    pub fn acknowledged(&self, lane: Lane) -> u64 {
        self.lanes.get(lane).map_or(0, |connection| connection.outbox.acknowledged)
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        let sent = self.sends.sent();
        Counters {
            frames: sent.frames,
            doorbells: sent.doorbells,
            signalled: sent.signalled,
            reads: sent.reads,
            ..self.counters
        }
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    fn greeting(&self, pair: &QueuePair, packet: u32) -> Greeting {
        let peer = Peer {
            number: pair.number(),
            packet,
            gid: self.port.gid,
            lid: self.port.lid,
            mtu: self.port.exit.mtu,
            reads_max: self.port.exit.reads_max,
        };
        let fence = Fence { address: self.fence.address(0), key: self.fence.remote_key() };
        Greeting { peer, frame_bytes_max: self.config.frame_bytes_max as u32, fence }
    }

    fn make_pair(&self) -> io::Result<(QueuePair, u32)> {
        let size = QueuePairSize {
            requests_max: 2 * self.config.lane_frames_max as u32,
            inline_bytes_max: INLINE_BYTES,
        };
        let (sends, receives) = (&self.send_queue, &self.receive_queue);
        let pair = QueuePair::new(&self.shared, sends, receives, size, self.port.exit.port)?;
        // Unguessable, so that packets of an earlier connection are not mistaken for this one's.
        let packet = RandomState::new().build_hasher().finish() as u32 & PACKET_MASK;
        Ok((pair, packet))
    }

    fn add(
        &mut self,
        pair: QueuePair,
        packet: u32,
        stream: TcpStream,
        stage: Stage,
    ) -> io::Result<Lane> {
        let lane = self.lanes.add(Connection {
            stage,
            pair: Some(pair),
            control: None,
            packet,
            frame_bytes_max: 0,
            fence: Fence::default(),
            outbox: Outbox::EMPTY,
            stopped_at: None,
            is_drained: false,
        });
        let added = self.control.add_lane(lane, &stream);
        if let Some(connection) = self.lanes.get_mut(lane) {
            connection.control = Some(stream);
        }
        if added.is_err() {
            self.stop(lane);
        }
        added.map(|()| lane)
    }

    /// Connects a lane's queue pair to the peer that has greeted.
    fn open(&mut self, lane: Lane, greeting: &Greeting) -> io::Result<()> {
        let timing = Timing {
            timeout: self.config.timeout_code(),
            retry_count: RETRIES,
            not_ready_timer: NOT_READY_TIMER,
            not_ready_retry_count: NOT_READY_RETRIES,
        };
        let Some(connection) = self.lanes.get_mut(lane) else { return Ok(()) };
        let Some(pair) = &connection.pair else { return Ok(()) };
        if self.config.acknowledge == Acknowledge::Persistent && greeting.peer.reads_max == 0 {
            return Err(io::Error::other("the peer's device answers no READ"));
        }
        pair.connect(self.port.exit, connection.packet, &greeting.peer, timing)?;
        let theirs = greeting.frame_bytes_max as usize;
        connection.frame_bytes_max = theirs.min(self.config.frame_bytes_max);
        connection.fence = greeting.fence;
        connection.stage = Stage::Open;
        self.opened.push(lane);
        Ok(())
    }

    /// Looks at all descriptors once.
    fn look(&mut self) -> io::Result<()> {
        for heard in self.control.poll()? {
            self.has_news |= heard != Heard::Channel;
            match heard {
                Heard::Channel => self.channel.hear(),
                Heard::Device => self.hear_device()?,
                Heard::Listener => self.control.accept()?,
                Heard::Arrival(place) => {
                    if let Some((stream, bytes)) = self.control.greeting(place) {
                        self.welcome(stream, &bytes);
                    }
                }
                Heard::Lane(lane) => self.hear_lane(lane),
            }
        }
        Ok(())
    }

    fn hear_device(&mut self) -> io::Result<()> {
        while let Some(event) = self.device.next_event() {
            match event {
                Event::Broken(number) => {
                    if let Some(lane) = self.lanes.by_number(number) {
                        self.stop(lane);
                    }
                }
                Event::LastReceive(number) => {
                    let lane = self.lanes.by_number(number);
                    if let Some(connection) = lane.and_then(|lane| self.lanes.get_mut(lane)) {
                        connection.is_drained = true;
                    }
                }
                Event::LowWater => {
                    self.counters.low_water += 1;
                    self.receives.limit_was_reached();
                }
                Event::DeviceLost => return Err(io::Error::other("the RDMA device is lost")),
                Event::Other => {}
            }
        }
        Ok(())
    }

    /// Answers a client's greeting: with a lane and our greeting, or with a refusal.
    fn welcome(&mut self, mut stream: TcpStream, bytes: &[u8; GREETING_BYTES]) {
        let answer = match Greeting::decode(bytes) {
            // It does not speak this protocol: no answer is sent.
            Err(Refusal::NotDovetail) => return,
            Err(refusal) => Err(refusal),
            Ok(_) if self.lanes.live_count() >= self.config.lanes_max => Err(Refusal::TooMany),
            Ok(greeting) => self.take_client(&stream, &greeting).map_err(|_| Refusal::NoConnection),
        };
        let (lane, bytes) = match answer {
            Ok((lane, bytes)) => (Some(lane), bytes),
            Err(refusal) => (None, encode_refusal(refusal)),
        };
        // A fresh socket has room for these bytes; a client that has disconnected is found by its
        // hang-up.
        let is_told = stream.write_all(&bytes).is_ok();
        if let Some(lane) = lane.filter(|_| !is_told) {
            self.stop(lane);
        }
    }

    fn take_client(
        &mut self,
        stream: &TcpStream,
        greeting: &Greeting,
    ) -> io::Result<(Lane, [u8; GREETING_BYTES])> {
        let (pair, packet) = self.make_pair()?;
        let bytes = self.greeting(&pair, packet).encode();
        let lane = self.add(pair, packet, stream.try_clone()?, Stage::Opening)?;
        if let Err(error) = self.open(lane, greeting) {
            self.stop(lane);
            return Err(error);
        }
        Ok((lane, bytes))
    }

    fn hear_lane(&mut self, lane: Lane) {
        let Some(connection) = self.lanes.get_mut(lane) else { return };
        let is_opening = connection.stage == Stage::Opening;
        let Some(stream) = &mut connection.control else { return };
        match self.control.answer(lane, stream, is_opening) {
            Ok(None) => {}
            Err(_) => self.stop(lane),
            Ok(Some(bytes)) => match Greeting::decode(&bytes) {
                Ok(greeting) => {
                    if self.open(lane, &greeting).is_err() {
                        self.stop(lane);
                    }
                }
                Err(refusal) => {
                    self.refusals.push((lane, refusal));
                    self.stop(lane);
                }
            },
        }
    }

    /// Breaks a connection: its peer notices by its socket.
    fn stop(&mut self, lane: Lane) {
        let Some(connection) = self.lanes.get_mut(lane) else { return };
        if matches!(connection.stage, Stage::Stopping | Stage::Closed) {
            return;
        }
        self.counters.stopped += 1;
        self.given_up += connection.outbox.queued();
        self.queued -= connection.outbox.queued();
        let was_open = connection.stage == Stage::Open;
        connection.control = None;
        connection.stage = Stage::Stopping;
        connection.stopped_at = Some(Instant::now());
        self.stopping_count += 1;
        let is_stopping = connection.pair.as_ref().is_some_and(|pair| pair.stop().is_ok());
        // A connection that never received has taken no receive.
        connection.is_drained |= !was_open || !is_stopping;
    }

    /// Closes connections whose receives have all been returned.
    fn close_drained(&mut self) {
        while let Some(lane) = self.lanes.next_to_close() {
            self.lanes.close(lane);
            if let Some(connection) = self.lanes.get_mut(lane) {
                self.counters.refused += self.sends.forget(&mut connection.outbox) as u64;
            }
            self.stopping_count -= 1;
            self.closed.push(lane);
            self.has_news = true;
        }
    }

    /// Takes the device's completions of requests to send.
    fn take_acknowledgements(&mut self) -> io::Result<()> {
        let mut batch = [NO_COMPLETION; ACKNOWLEDGEMENTS_MAX];
        let count = self.send_queue.poll(&mut batch)?;
        self.has_news |= count > 0;
        for completion in &batch[..count] {
            let lane = lane_of(completion.id);
            let Some(connection) = self.lanes.get_mut(lane) else { continue };
            if completion.status != abi::STATUS_SUCCESS {
                self.stop(lane);
            } else if connection.stage != Stage::Closed {
                self.sends.acknowledge(&mut connection.outbox, completion.id);
            }
        }
        Ok(())
    }

    /// The next completion of a receive.
    fn next_completion(&mut self) -> io::Result<Option<abi::WorkCompletion>> {
        if self.burst_at == self.burst_len {
            self.burst_at = 0;
            self.burst_len = 0;
            self.burst_len = self.receive_queue.poll(&mut self.burst)?;
        }
        if self.burst_at == self.burst_len {
            return Ok(None);
        }
        self.burst_at += 1;
        Ok(Some(self.burst[self.burst_at - 1]))
    }

    /// Handles one completion of a receive. Returns whether a message landed.
    fn complete(&mut self, zone: &mut Zone, it: &abi::WorkCompletion) -> io::Result<bool> {
        let lane = self.lanes.by_number(it.queue_pair);
        let len_bytes = it.len_bytes as usize;
        let is_fine = it.status == abi::STATUS_SUCCESS;
        let message = lane.map(|lane| (lane, len_bytes)).filter(|_| is_fine && len_bytes > 0);
        if matches!(it.status, abi::STATUS_LENGTH | abi::STATUS_INVALID_REQUEST) {
            zone.count_truncated();
        }
        self.receives.settle(zone, it.id, message)?;
        if let Some(lane) = lane.filter(|_| !is_fine) {
            self.stop(lane);
        }
        Ok(message.is_some())
    }
}

impl Transport for Rdma {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        let is_ours = zone.is_over(&self.region);
        assert!(is_ours, "a transport fills the zone it was made for");
        self.rounds += 1;
        if self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            self.look()?;
        }
        self.take_acknowledgements()?;
        self.receives.post(zone)?;
        let mut landed = 0;
        for _ in 0..self.burst.len() {
            if zone.completions_free() == 0 {
                zone.count_starved();
                break;
            }
            let Some(completion) = self.next_completion()? else { break };
            landed += usize::from(self.complete(zone, &completion)?);
        }
        if self.receives.is_out() && self.burst_at == self.burst_len {
            self.receives.post(zone)?;
            if self.receives.is_out() {
                zone.count_starved();
            }
        }
        if self.stopping_count > 0 && landed == 0 {
            self.close_drained();
        }
        Ok(landed)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        let lane = to.as_lane().ok_or(SendError::NoPeer)?;
        let open = |lanes: &Lanes| {
            let connection = lanes.get(lane).filter(|it| it.stage == Stage::Open)?;
            Some((connection.frame_bytes_max, connection.outbox.len()))
        };
        let (frame_bytes_max, mut len) = open(&self.lanes).ok_or(SendError::NoPeer)?;
        SendError::check_len(bytes_max, frame_bytes_max)?;
        if len >= self.config.lane_frames_max || self.sends.is_full() {
            // The next receive or flush reports an error of the device.
            let _ = self.take_acknowledgements();
            (_, len) = open(&self.lanes).ok_or(SendError::NoPeer)?;
        }
        if len >= self.config.lane_frames_max {
            return Err(SendError::Full);
        }
        self.sends.reserve(lane, bytes_max)
    }

    fn commit(&mut self, len_bytes: usize) {
        let lane = self.sends.reserved_lane().expect("room is reserved before it is committed");
        let connection = self.lanes.get_mut(lane).expect("reserved for a lane that there is");
        if connection.stage != Stage::Open {
            // The connection broke since: no completion would free the buffer.
            self.sends.cancel();
            self.given_up += 1;
            return;
        }
        if connection.outbox.queued() == 0 {
            self.dirty.push(lane);
        }
        self.sends.commit(&mut connection.outbox, len_bytes);
        self.queued += 1;
    }

    fn flush(&mut self) -> io::Result<usize> {
        self.take_acknowledgements()?;
        let mut left = std::mem::take(&mut self.given_up);
        while let Some(lane) = self.dirty.pop() {
            let Some(connection) = self.lanes.get_mut(lane) else { continue };
            let Connection { pair: Some(pair), outbox, fence, stage: Stage::Open, .. } = connection
            else {
                continue;
            };
            let queued = outbox.queued();
            let posted = self.sends.post(lane, outbox, pair, *fence);
            self.queued -= queued;
            left += queued;
            if posted.is_err() {
                self.stop(lane);
            }
        }
        Ok(left)
    }

    fn queued(&self) -> usize {
        self.queued
    }

    fn frame_bytes_max(&self) -> usize {
        self.config.frame_bytes_max
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn may_sleep(&mut self) -> bool {
        // An error here occurs again in the next receive, which reports it.
        let is_armed = self.look().is_ok()
            && self.receive_queue.arm().is_ok()
            && self.send_queue.arm().is_ok()
            && self.take_acknowledgements().is_ok();
        let is_quiet = is_armed && !std::mem::take(&mut self.has_news);
        if self.burst_at == self.burst_len {
            self.burst_at = 0;
            self.burst_len = self.receive_queue.poll(&mut self.burst).unwrap_or(0);
        }
        // Without receives nothing arrives that could wake the thread: the next receive posts some.
        let can_be_woken = !self.receives.is_out() && self.stopping_count == 0;
        is_quiet && can_be_woken && self.burst_len == self.burst_at
    }
}

const NO_COMPLETION: abi::WorkCompletion = abi::WorkCompletion {
    id: 0,
    status: 0,
    operation: 0,
    vendor_error: 0,
    len_bytes: 0,
    immediate: 0,
    queue_pair: 0,
    source: 0,
    flags: 0,
    key_index: 0,
    source_lid: 0,
    service_level: 0,
    path_bits: 0,
};
