//! AF_XDP: datagrams from the driver, past the kernel's stack (feature `xdp`).
//!
//! ```text
//!   device      program (ours)              sockets                 workers
//!   queue 0 ──▶ partition mod workers ──┬─▶ queue 0, worker 0 ────▶ 0: copies payloads into
//!   queue 1 ──▶ not ours? ──▶ stack     ├─▶ queue 0, worker 1 ──┐      its zone, gives the
//!                                       ├─▶ queue 1, worker 0 ──┼─▶    frames back
//!                                       └─▶ queue 1, worker 1 ──┴─▶ 1
//! ```
//!
//! A frame can only go to a socket of the queue it came on, so each worker has a socket on each
//! queue. So steering is exact however the device distributes its load; where the device already
//! brings a partition to its worker's queue, no worker waits for another.
//!
//! Frames that the program does not take go to the stack: ARP, TCP, other ports, fragments,
//! datagrams with IP options, VLANs, queues from `queue_count` on. A [`Udp`](crate::udp::Udp) at
//! the same address receives those addressed to this server; without one, their senders get "port
//! unreachable".
//!
//! # Invariants
//! X1: a payload is copied once, from its frame into the zone. Zones are dense, frames are 2 or 4
//!     KiB each, and a copy of 64 bytes costs less than the cache lines that a zone of frames would
//!     spread over. A full zone never holds frames: payloads without room wait in the ring.
//! X2: the program and its map live as long as any of the transports that were opened together, or
//!     their [`Helm`]; the kernel detaches the program when the last of them is dropped, or when
//!     the process ends.
//! X3: the targets of steering change by another program under the same link, of the same sockets.
//!     R1, R2 (xdp/ring.rs), Q1, Q2 (xdp/queue.rs).
//!
//! # Concurrency
//! Each transport belongs to one worker. Those on one queue share a lock, taken once for a burst.
//!
//! # Limits
//! One address, so one family. Datagrams fit in a packet: nothing is fragmented. 255 next hops.

mod bpf;
mod device;
mod headers;
mod hops;
mod program;
mod queue;
mod ring;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::sync::Arc;
use rustix::event::epoll;

use self::device::Device;
pub use self::headers::Mac;
use self::headers::{ETHERNET_BYTES, Layout, Local};
use self::hops::Hops;
use self::program::Steering;
use self::queue::{Plan, Port};
use self::socket::Place;
use crate::{Landed, Notice, SendError, Sender, Transport, Zone};

/// Whether the driver reads and writes frames itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// If it can; otherwise the kernel copies, and a [`Notice`] says so.
    #[default]
    Auto,
    /// The kernel copies.
    Copy,
    /// The driver does; otherwise opening fails.
    ZeroCopy,
}

/// The configuration of AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The device's name.
    pub device: String,
    /// The server's address: one of the device's addresses, and the port.
    pub address: SocketAddr,
    /// The number of workers: a partition's owner is `partition mod worker_count`, until a [`Helm`]
    /// sets fewer.
    pub worker_count: u16,
    /// The number of the device's queues to receive from, from 0 on: all of them, unless the device
    /// sends the port's traffic to some only.
    pub queue_count: u32,
    /// Whether the kernel copies frames.
    pub mode: Mode,
    /// The next hop for receivers that have not sent anything yet: the receiver's Ethernet address
    /// or the router's.
    pub next_hop: Option<Mac>,
    /// The longest frame, as far as the device's packets allow.
    pub frame_bytes_max: usize,
    /// The maximum number of messages in one receive.
    pub burst_max: usize,
    /// The entries of each worker's rings on each queue; a power of two.
    pub ring_len: u32,
}

impl XdpConfig {
    /// One worker on one queue.
    pub fn new(device: &str, address: SocketAddr) -> XdpConfig {
        XdpConfig {
            device: device.to_owned(),
            address,
            worker_count: 1,
            queue_count: 1,
            mode: Mode::Auto,
            next_hop: None,
            frame_bytes_max: 8192,
            burst_max: 64,
            ring_len: 1024,
        }
    }
}

/// Why AF_XDP does not work here.
#[derive(Debug, thiserror::Error)]
#[error("AF_XDP on {device} cannot {step}: {source}")]
pub struct Unavailable {
    /// The device's name.
    pub device: String,
    /// The failed step.
    pub step: &'static str,
    /// Its error.
    pub source: io::Error,
}

/// The program on its device, until the last transport is dropped.
struct Attached {
    link: OwnedFd,
    _map: OwnedFd,
    steering: Steering,
}

/// Sets from any thread which of the workers get datagrams.
pub struct Helm(Arc<Attached>);

impl Helm {
    /// From now on a partition's owner is `partition mod owner_count`, among the first workers.
    /// Frames already in the rings of the others stay theirs; the device loses nothing.
    pub fn steer(&self, owner_count: u16) -> io::Result<()> {
        let owner_count = owner_count.clamp(1, self.0.steering.worker_count);
        let steering = Steering { owner_count, ..self.0.steering };
        bpf::replace(&self.0.link, &bpf::load(&program::program(&steering))?)
    }
}

/// Opens a transport for each worker, worker `i` at index `i`.
pub fn open(config: &XdpConfig) -> Result<Vec<Xdp>, Unavailable> {
    let failed = |step| {
        let device = config.device.clone();
        move |source| Unavailable { device, step, source }
    };
    check(config).map_err(failed("be opened like that"))?;
    let device = Device::find(&config.device).map_err(failed("be found"))?;
    let frame_bytes = queue::frame_bytes_for(device.packet_bytes_max + ETHERNET_BYTES);
    let worker_count = u32::from(config.worker_count);
    let plan = Plan { worker_count, ring_len: config.ring_len, frame_bytes, mode: config.mode };
    let map = bpf::socket_map(config.queue_count * worker_count);
    let map = map.map_err(failed("make a map of sockets (root or CAP_NET_ADMIN and CAP_BPF?)"))?;
    let (mut is_copied, mut ports) = (false, Vec::new());
    for index in 0..config.queue_count {
        let place = Place { device: device.index, queue: index };
        let opened = queue::open(place, &plan);
        let workers = opened.map_err(failed("bind a socket to each queue"))?;
        for (worker, port) in (0..).zip(&workers) {
            let socket = port.socket.as_raw_fd();
            let put = bpf::put_socket(&map, index * worker_count + worker, socket);
            put.map_err(failed("put a socket into the map"))?;
        }
        is_copied |= workers.iter().any(|port| port.is_copied);
        ports.push(workers);
    }
    let steering = Steering {
        address: config.address,
        worker_count: config.worker_count,
        owner_count: config.worker_count,
        queue_count: config.queue_count,
        map: map.as_raw_fd(),
    };
    let program = bpf::load(&program::program(&steering)).map_err(failed("load its program"))?;
    let link = bpf::attach(&program, device.index);
    let link = link.map_err(failed("attach its program (is another one there?)"))?;
    let attached = Arc::new(Attached { link, _map: map, steering });
    let is_notice_due = is_copied && config.mode == Mode::Auto;
    let mut queues: Vec<_> = ports.into_iter().map(Vec::into_iter).collect();
    (0..usize::from(config.worker_count))
        .map(|worker| {
            let ports = queues.iter_mut().filter_map(Iterator::next).collect();
            let notice = (is_notice_due && worker == 0).then_some(Notice::CopyMode);
            Xdp::new(config, &device, worker, ports, notice, &attached)
        })
        .collect::<io::Result<_>>()
        .map_err(failed("wait for its sockets"))
}

fn check(config: &XdpConfig) -> io::Result<()> {
    let is_sound = config.worker_count > 0
        && config.queue_count > 0
        && config.ring_len.is_power_of_two()
        && config.address.port() != 0
        && !config.address.ip().is_unspecified();
    let message = "it takes workers, queues, rings of a power of two, one address and a port";
    let sound = is_sound.then_some(());
    sound.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, message))
}

struct Reserved {
    to: SocketAddr,
    mac: Mac,
    bytes_max: usize,
}

/// The number of frames for sending that a worker keeps in reserve.
const SPARE_MAX: usize = 64;

/// One worker's sockets, on all queues.
pub struct Xdp {
    ports: Vec<Port>,
    /// The port that it sends from.
    home: usize,
    /// The port that it receives from first: the ports take turns.
    next: usize,
    /// Readable when any of the sockets is.
    poller: OwnedFd,
    local: Local,
    layout: Layout,
    hops: Hops,
    /// Frames for sending; the last one is the reserved one.
    spare: Vec<u64>,
    reserved: Option<Reserved>,
    /// Frames that were received and copied, to be given back.
    emptied: Vec<u64>,
    frame_bytes_max: usize,
    burst_max: usize,
    refused: u64,
    notice: Option<Notice>,
    attached: Arc<Attached>,
}

impl Xdp {
    fn new(
        config: &XdpConfig,
        device: &Device,
        worker: usize,
        ports: Vec<Port>,
        notice: Option<Notice>,
        attached: &Arc<Attached>,
    ) -> io::Result<Xdp> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for port in &ports {
            let (data, readable) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
            epoll::add(&poller, &port.socket, data, readable)?;
        }
        let layout = Layout::of(config.address);
        let packet_max = queue::packet_bytes_max(ports[0].queue.frame_bytes);
        let packet_max = packet_max.min(device.packet_bytes_max + ETHERNET_BYTES);
        let burst_max = config.burst_max.max(1);
        Ok(Xdp {
            home: worker % ports.len(),
            next: 0,
            poller,
            local: Local { mac: device.mac, address: config.address },
            layout,
            hops: Hops::new(config.next_hop),
            spare: Vec::with_capacity(SPARE_MAX),
            reserved: None,
            emptied: Vec::with_capacity(burst_max),
            frame_bytes_max: config.frame_bytes_max.clamp(1, packet_max - layout.payload_at()),
            burst_max,
            refused: 0,
            notice,
            attached: attached.clone(),
            ports,
        })
    }

    /// The helm that steers it, and all transports that were opened with it.
    pub fn helm(&self) -> Helm {
        Helm(self.attached.clone())
    }

    /// The address it receives at.
    pub fn local_address(&self) -> SocketAddr {
        self.local.address
    }

    /// Frames that the program accepted but that were no valid datagrams: wrong lengths or
    /// checksums.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Datagrams that the kernel dropped because this worker did not receive them in time.
    pub fn kernel_drops(&self) -> io::Result<u64> {
        let drops = |port: &Port| {
            let statistics = port.socket.statistics()?;
            Ok(statistics.rx_dropped + statistics.rx_ring_full)
        };
        self.ports.iter().map(drops).sum()
    }

    /// Lands the frames of one port; at most `burst_max`.
    fn receive_from(&mut self, index: usize, burst_max: usize, zone: &mut Zone) -> usize {
        let Xdp { ports, hops, emptied, refused, .. } = self;
        let Port { socket, received, queue, .. } = &mut ports[index];
        let mut landed = 0;
        while emptied.len() < burst_max
            && let Some(descriptor) = received.peek()
        {
            let (start, len) = (descriptor.addr as usize, descriptor.len as usize);
            // SAFETY: the kernel has handed over the frame (Q1), and it is not given back before
            // this burst has ended.
            let frame = unsafe { queue.region.bytes(start, len) };
            match headers::parse(frame, self.layout) {
                Some(arrived) if arrived.payload.len() > self.frame_bytes_max => {
                    zone.count_truncated();
                }
                Some(arrived) if !arrived.payload.is_empty() => {
                    let payload = &frame[arrived.payload];
                    if zone.window_for(payload.len(), 1).is_none() {
                        break; // X1: it stays in the ring.
                    }
                    let window = zone.window_mut().expect("there is one of that length");
                    window[..payload.len()].copy_from_slice(payload);
                    let hop = hops.number(arrived.mac);
                    let sender = Sender::through(arrived.from, hop);
                    let is_landed = zone.land(sender, 0, payload.len()) == Landed::Completed;
                    landed += usize::from(is_landed);
                }
                Some(_) => {}
                None => *refused += 1,
            }
            received.take();
            emptied.push(queue.frame_of(descriptor.addr));
        }
        if !emptied.is_empty() {
            received.give_back();
            if queue.fill(emptied) {
                socket.kick_fill();
            }
        }
        landed
    }

    /// The place of the payload in the frame at that address.
    fn frame_mut(&mut self, address: u64, len: usize) -> &mut [u8] {
        let region = &self.ports[self.home].queue.region;
        // SAFETY: the frame was taken out of the spare ones (Q1), so it is this worker's alone
        // until it is published, and `self` is borrowed exclusively.
        unsafe { region.bytes_mut(address as usize, len) }
    }
}

impl Transport for Xdp {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        if zone.size().buffer_bytes < self.frame_bytes_max {
            let max = self.frame_bytes_max;
            let message = format!("the zone's buffers are shorter than {max} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let (count, first) = (self.ports.len(), self.next);
        let mut landed = 0;
        for step in 0..count {
            if landed < self.burst_max {
                let index = (first + step) % count;
                landed += self.receive_from(index, self.burst_max - landed, zone);
            }
        }
        self.next = (first + 1) % count;
        Ok(landed)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        let address = to.as_address().filter(|to| to.is_ipv6() == self.local.address.is_ipv6());
        let (Some(address), Some(mac)) = (address, self.hops.get(to.hop())) else {
            return Err(SendError::NoPeer);
        };
        SendError::check_len(bytes_max, self.frame_bytes_max)?;
        let port = &mut self.ports[self.home];
        if self.spare.is_empty() {
            port.queue.take_spare(&mut self.spare);
        }
        let Some(&frame) = self.spare.last() else { return Err(SendError::Full) };
        if !port.sends.has_room() {
            return Err(SendError::Full);
        }
        self.reserved = Some(Reserved { to: address, mac, bytes_max });
        let payload_at = self.layout.payload_at();
        Ok(&mut self.frame_mut(frame, payload_at + bytes_max)[payload_at..])
    }

    fn commit(&mut self, len_bytes: usize) {
        let reserved = self.reserved.take().expect("room is reserved before it is committed");
        assert!(len_bytes <= reserved.bytes_max, "a frame fits in what was reserved");
        let address = self.spare.pop().expect("the last one was reserved");
        let (local, len) = (self.local, self.layout.payload_at() + len_bytes);
        headers::write(self.frame_mut(address, len), &local, reserved.mac, reserved.to);
        let descriptor = libc::xdp_desc { addr: address, len: len as u32, options: 0 };
        let is_put = self.ports[self.home].sends.put(descriptor);
        debug_assert!(is_put, "there was room when it was reserved");
    }

    fn flush(&mut self) -> io::Result<usize> {
        let Port { socket, sends, .. } = &mut self.ports[self.home];
        let first = sends.pending();
        sends.publish();
        let mut pending = first;
        // A kernel that copies always needs the call; a driver only if it sleeps.
        while pending > 0 && sends.needs_wakeup() {
            // One call takes a few dozen frames and returns EAGAIN if there are more.
            let kicked = socket.kick_send();
            let before = std::mem::replace(&mut pending, sends.pending());
            match kicked.map_err(|error| error.raw_os_error()) {
                Ok(()) | Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)) => {}
                Err(errno) => return Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EIO))),
            }
            if pending == before {
                break;
            }
        }
        Ok((first - pending) as usize)
    }

    fn queued(&self) -> usize {
        self.ports[self.home].sends.waiting() as usize
    }

    fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notice.take()
    }
}
