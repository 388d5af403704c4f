//! memcached over UDP: a worker's socket, the requests that arrive on it, and the limits on their
//! replies.
//!
//! ```text
//!  kernel ──recvmmsg──▶ zone ──▶ frame, request ──▶ Exchange ──▶ the commands of a connection
//!                                                      │              │ output
//!  kernel ◀──sendmmsg── send queue ◀── parts of 1,400 bytes ◀─────────┘
//! ```
//!
//! An exchange is a connection of one request. It is kept among the worker's connections from the
//! requesting datagram until the replying ones, whichever worker executes the request in between.
//! Its descriptor is a duplicate of the worker's UDP socket; nothing is read from it or written to
//! it.
//!
//! # Invariants
//! I1: a reply has at most as many bytes per byte of its request as the setting allows, headers
//!     counted, or [`ANSWER_BYTES_MIN`]; a longer one is replaced by one short error. So forging
//!     the sender of a datagram gains nothing.
//! I2: nothing is kept for a sender between two datagrams, and one address has at most a quarter of
//!     the exchanges that wait for a reply.
//! I3: a datagram that is not a request, or for which there is no room, is dropped and counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::UnixMillis;
use budget::{BufferBudget, Kind};
use commands::output::Output;
use config::Config;
use config::StartError;
use counters::{UdpDrop, WorkerCounters};
use host::poller::Interest;
use landing::udp::{DATAGRAM_BYTES_MAX, Udp, UdpConfig};
use landing::{Completion, SendError, Sender, Transport, Zone, ZoneSize};
use runtime::connection::{Connection, Exchange, Memcached, ProtocolState};
use runtime::core::Core;
use sessions::clients::Client;
use sessions::end::is_loopback;
use wire::memcached::binary::{self, Head, Status};
use wire::memcached::datagram::{self, FrameError, HEADER_BYTES};
use wire::memcached::{Encoder, Reply};

/// The length of a reply to the shortest of requests: I1 always allows it.
pub const ANSWER_BYTES_MIN: usize = 64;

/// The maximum number of unanswered requests of one worker, and of one address among them.
const EXCHANGES_MAX: usize = 256;
const EXCHANGES_OF_ADDRESS_MAX: usize = EXCHANGES_MAX / 4;

/// Buffer sizes of the zone: room for two of the longest datagrams; on a small server for one, in
/// fewer buffers.
const ZONE_BUFFER_BYTES: [usize; 2] = [64 << 10, 128 << 10];
const ZONE_BUFFERS: [usize; 2] = [2, 4];

/// The minimum and maximum of the send buffer.
const SEND_BYTES: [usize; 2] = [64 << 10, 512 << 10];

/// The divisor of UDP's part for the buffers of all sockets: the rest is for exchanges.
const SOCKETS_PART: u64 = 2;

/// The buffers of one worker's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Buffers {
    zone: ZoneSize,
    send_bytes: usize,
}

impl Buffers {
    /// The buffers for one of `worker_count` sockets, which share a part of `udp_bytes`.
    fn of_worker(udp_bytes: u64, worker_count: usize) -> Buffers {
        let own_bytes = udp_bytes / SOCKETS_PART / worker_count.max(1) as u64;
        let half_bytes = usize::try_from(own_bytes / 2).unwrap_or(usize::MAX);
        let [small, large] = ZONE_BUFFER_BYTES;
        let buffer_bytes = if half_bytes >= 2 * large { large } else { small };
        let buffer_count = (half_bytes / buffer_bytes).clamp(ZONE_BUFFERS[0], ZONE_BUFFERS[1]);
        Buffers {
            zone: ZoneSize { buffer_bytes, buffer_count, completions_max: 1024 },
            send_bytes: half_bytes.clamp(SEND_BYTES[0], SEND_BYTES[1]),
        }
    }

    fn bytes(&self) -> u64 {
        (self.zone.buffer_bytes * self.zone.buffer_count + self.send_bytes) as u64
    }
}

/// The interval at which the kernel is asked for dropped datagrams.
const LOOK_EVERY_MS: u64 = 1000;

/// Opens a socket for each thread that may ever poll; datagrams go to the first `front_count`.
pub fn open_group(
    address: SocketAddr,
    thread_count: usize,
    front_count: usize,
) -> Result<Vec<UdpSocket>, StartError> {
    let setting = "udp-port";
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address, setting },
        _ => StartError::Listen { address, setting, source },
    };
    // A group would let a second server of the same user take part of our datagrams.
    UdpSocket::bind(address).map_err(refused)?;
    let sockets = landing::steer::unsteered(address, count_of(thread_count)).map_err(refused)?;
    // By default, datagrams of one sender go to one socket, and so stay in order.
    if let Some(first) = sockets.first().filter(|_| front_count < thread_count) {
        landing::steer::spread(first, count_of(front_count)).map_err(refused)?;
    }
    Ok(sockets)
}

fn count_of(sockets: usize) -> u16 {
    u16::try_from(sockets).unwrap_or(u16::MAX)
}

/// One worker's side of memcached over UDP.
pub struct UdpPort {
    transport: Udp,
    zone: Zone,
    completions: Vec<Completion>,
    /// Descriptors of finished exchanges, for reuse.
    parked: Vec<TcpStream>,
    /// The number of open exchanges.
    open_count: usize,
    /// The number of open exchanges by address.
    open_of: HashMap<IpAddr, usize>,
    buffers: Buffers,
    /// The client of the commands of all exchanges; in no list of clients.
    client: Arc<Client>,
    /// Maximum number of reply bytes for each byte of a request; 0: unlimited.
    reply_factor: usize,
    /// A reply while it is cut into datagrams.
    reply: Vec<u8>,
    looked_at: UnixMillis,
}

impl UdpPort {
    /// A worker's side on a socket of the group.
    pub fn new(socket: UdpSocket, config: &Config, budget: &BufferBudget) -> io::Result<UdpPort> {
        let local = socket.local_addr()?;
        let buffers = Buffers::of_worker(budget.kind_limit_bytes(Kind::Udp), config.threads);
        let udp_config = UdpConfig {
            frame_bytes_max: DATAGRAM_BYTES_MAX,
            send_bytes: buffers.send_bytes,
            ..UdpConfig::default()
        };
        Ok(UdpPort {
            transport: Udp::from_socket(socket, udp_config)?,
            // A frame does not contain its length; the kernel reports the ones it has cut.
            zone: Zone::ring(buffers.zone, Box::new(|_| true))?,
            completions: Vec::with_capacity(buffers.zone.completions_max),
            parked: Vec::new(),
            open_count: 0,
            open_of: HashMap::new(),
            buffers,
            client: Arc::new(Client::of_datagrams(local)),
            reply_factor: config.udp.reply_factor,
            reply: Vec::new(),
            looked_at: UnixMillis(0),
        })
    }

    /// For the worker's poller.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }

    /// The memory of its buffers; part of the client buffers.
    pub fn held_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    /// From now on datagrams go to the first `front_count` workers.
    pub fn steer(&self, front_count: usize) {
        let steered = self.transport.as_fd().try_clone_to_owned().and_then(|owned| {
            landing::steer::spread(&UdpSocket::from(owned), count_of(front_count))
        });
        if let Err(error) = steered {
            tracing::warn!("datagrams of memcached stay with their threads: {error}");
        }
    }

    /// Lands a burst; returns the number of datagrams.
    pub fn receive(&mut self, counters: &WorkerCounters) -> usize {
        self.completions.clear();
        if let Err(error) = self.transport.receive(&mut self.zone) {
            tracing::error!("the UDP socket of memcached failed: {error}");
            return 0;
        }
        while let Some(completion) = self.zone.take() {
            self.completions.push(completion);
        }
        counters.udp.datagrams_in.add(self.completions.len() as u64);
        self.completions.len()
    }

    /// The bytes of the datagram at a position of the burst.
    pub fn landed(&self, at: usize) -> &[u8] {
        self.zone.bytes(&self.completions[at])
    }

    /// The request in that datagram.
    pub fn asked(&self, at: usize) -> &[u8] {
        self.landed(at).get(HEADER_BYTES..).unwrap_or_default()
    }

    /// Whether that datagram came from the loopback interface.
    pub fn is_from_loopback(&self, at: usize) -> bool {
        let sender = self.completions[at].sender().as_address();
        sender.is_some_and(|address| is_loopback(address.ip()))
    }

    /// Releases the burst once it is executed.
    pub fn release(&mut self) {
        self.zone.release_taken();
    }

    /// Opens the exchange of a datagram of the burst.
    pub fn open(&mut self, at: usize) -> Result<Connection, UdpDrop> {
        let landed = self.zone.bytes(&self.completions[at]);
        let (request_id, asked) = datagram::request(landed).map_err(|error| match error {
            FrameError::NotAlone { .. } => UdpDrop::Several,
            FrameError::Reply => UdpDrop::Reply,
            _ => UdpDrop::Short,
        })?;
        let to = self.completions[at].sender();
        let of_address = to.as_address().map_or(0, |from| self.open_of_address(from.ip()));
        if self.open_count == EXCHANGES_MAX || of_address >= EXCHANGES_OF_ADDRESS_MAX {
            return Err(UdpDrop::Busy);
        }
        let exchange = Exchange {
            to,
            request_id,
            answer_bytes_max: match self.reply_factor {
                0 => usize::MAX,
                factor => factor.saturating_mul(landed.len()).max(ANSWER_BYTES_MIN),
            },
            head: head_of(asked),
        };
        let descriptor = match self.parked.pop() {
            Some(parked) => parked,
            None => self
                .transport
                .as_fd()
                .try_clone_to_owned()
                .map(TcpStream::from)
                .map_err(|_| UdpDrop::Busy)?,
        };
        self.open_count += 1;
        if let Some(from) = to.as_address() {
            *self.open_of.entry(from.ip()).or_default() += 1;
        }
        let protocol_state = ProtocolState::Memcached(Memcached::default());
        let mut connection = Connection::new(descriptor, Arc::clone(&self.client), protocol_state);
        connection.interest = Interest { read: false, write: false };
        connection.input_ended = true;
        connection.exchange = Some(Box::new(exchange));
        Ok(connection)
    }

    fn open_of_address(&self, address: IpAddr) -> usize {
        self.open_of.get(&address).copied().unwrap_or(0)
    }

    /// Ends an exchange with `to`, answered or not; its descriptor is reused.
    pub fn close(&mut self, connection: Connection, to: Option<Sender>) {
        self.open_count -= 1;
        if let Some(from) = to.and_then(Sender::as_address)
            && let Entry::Occupied(mut count) = self.open_of.entry(from.ip())
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.parked.push(connection.socket);
    }

    /// Queues the reply of an exchange.
    pub fn answer(&mut self, exchange: &Exchange, output: &mut Output, counters: &WorkerCounters) {
        let UdpPort { reply, transport, .. } = self;
        reply.clear();
        if exchange.allows(output.unsent_bytes()) {
            // It only appends, so it takes all.
            let _ = output.send_by(|bytes| {
                reply.extend_from_slice(bytes);
                Ok(bytes.len())
            });
        } else {
            counters.udp.too_long.add(1);
            refuse(reply, exchange);
        }
        counters.output_bytes.add(reply.len() as u64);
        for (header, part) in datagram::parts(exchange.request_id, reply) {
            if send(transport, exchange.to, &header, part).is_err() {
                counters.udp.lost_replies.add(1);
                break; // Without one of its parts the others are of no use.
            }
            counters.udp.datagrams_out.add(1);
        }
        // A long reply is rare.
        reply.shrink_to(datagram::DATAGRAM_BYTES_MAX);
    }

    /// Sends queued datagrams as far as the kernel takes them; returns whether some are left.
    pub fn flush(&mut self, counters: &WorkerCounters) -> bool {
        if self.transport.queued() == 0 {
            return false;
        }
        if let Err(error) = self.transport.flush() {
            counters.udp.lost_replies.add(1);
            tracing::debug!("replies by UDP were not sent: {error}");
        }
        self.transport.queued() > 0
    }

    /// Periodic checks.
    pub fn keep_house(&mut self, core: &Core) {
        if core.now.0.abs_diff(self.looked_at.0) >= LOOK_EVERY_MS {
            self.looked_at = core.now;
            core.counters().udp.kernel_drops.set(self.transport.kernel_drops().unwrap_or(0));
        }
    }
}

/// The head that an error of the binary protocol repeats.
fn head_of(asked: &[u8]) -> Option<Head> {
    let header = asked.first_chunk::<{ binary::HEADER_BYTES }>()?;
    let opaque = [header[12], header[13], header[14], header[15]];
    (header[0] == binary::REQUEST_MAGIC).then_some(Head { opcode: header[1], opaque })
}

/// The one short error of I1.
fn refuse(reply: &mut Vec<u8>, exchange: &Exchange) {
    match exchange.head {
        Some(head) => binary::Encoder::new(reply, head).refuse(Status::TooLarge),
        None => Encoder::new(reply).reply(Reply::TooLargeForUdp),
    }
    debug_assert!(reply.len() + HEADER_BYTES <= ANSWER_BYTES_MIN, "I1");
}

fn send(
    transport: &mut Udp,
    to: Sender,
    header: &[u8; HEADER_BYTES],
    part: &[u8],
) -> Result<(), SendError> {
    let len_bytes = HEADER_BYTES + part.len();
    if transport.reserve(to, len_bytes) == Err(SendError::Full) {
        // It fails permanently only without a socket, which the next receive reports.
        let _ = transport.flush();
    }
    let room = transport.reserve(to, len_bytes)?;
    room[..HEADER_BYTES].copy_from_slice(header);
    room[HEADER_BYTES..len_bytes].copy_from_slice(part);
    transport.commit(len_bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use runtime::connection::exchange::REPLY_BYTES_MAX;

    use super::*;

    fn exchange(answer_bytes_max: usize) -> Exchange {
        let to = Sender::address(SocketAddr::from(([127, 0, 0, 1], 9)));
        Exchange { to, request_id: 1, answer_bytes_max, head: None }
    }

    #[test]
    fn buffers_of_all_sockets_stay_within_half_of_their_part() {
        for (udp_bytes, worker_count) in [(2 << 20, 1), (2 << 20, 4), (10 << 20, 8), (32 << 20, 4)]
        {
            let buffers = Buffers::of_worker(udp_bytes, worker_count);
            assert!(buffers.zone.buffer_bytes >= DATAGRAM_BYTES_MAX);
            assert!(buffers.bytes() * worker_count as u64 <= udp_bytes / 2, "{buffers:?}");
        }
        let large = Buffers::of_worker(32 << 20, 2);
        assert_eq!((large.bytes(), large.zone.buffer_count), (1 << 20, 4));
    }

    #[test]
    fn what_is_answered_is_bounded_with_its_headers() {
        assert!(exchange(100).allows(92) && !exchange(100).allows(93));
        // Two headers.
        assert!(exchange(1416).allows(1400) && !exchange(1415).allows(1400));
        assert!(exchange(usize::MAX).allows(REPLY_BYTES_MAX));
        assert!(!exchange(usize::MAX).allows(REPLY_BYTES_MAX + 1));
    }

    #[test]
    fn the_error_is_never_longer_than_the_least_that_may_be_answered() {
        for head in [None, Some(Head { opcode: 0x0c, opaque: [1, 2, 3, 4] })] {
            let mut reply = Vec::new();
            refuse(&mut reply, &Exchange { head, ..exchange(0) });
            assert!(!reply.is_empty() && reply.len() + HEADER_BYTES <= ANSWER_BYTES_MIN);
        }
    }
}
