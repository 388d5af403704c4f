//! The native port's UDP sockets, one of a group for each worker, and the receivers over them.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use config::StartError;
use config::{Config, NativeTransport};
use landing::udp::{Udp, UdpConfig};
use landing::uring::UringUdp;

use super::DATAGRAM_MAX_BYTES;
use super::port::{self, Port};
use super::ports::AnyPort;

/// Opens the group, one socket for each thread that may ever poll; datagrams go to the first
/// `dispatcher_count` of them.
pub fn open_group(
    address: SocketAddr,
    thread_count: usize,
    dispatcher_count: usize,
) -> Result<(SocketAddr, Vec<UdpSocket>), StartError> {
    let setting = "native";
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address, setting },
        _ => StartError::Listen { address, setting, source },
    };
    // A group would silently let a second server of the same user take part of our datagrams, so
    // the address is first bound alone, as for the other listeners.
    if address.port() != 0 {
        UdpSocket::bind(address).map_err(refused)?;
    }
    let sockets = landing::steer::group(address, count_of(thread_count)).map_err(refused)?;
    if let Some(first) = sockets.first() {
        landing::steer::steer(first, count_of(dispatcher_count)).map_err(refused)?;
    }
    let resolved = sockets.first().map_or(Ok(address), UdpSocket::local_addr).map_err(refused)?;
    Ok((resolved, sockets))
}

fn count_of(sockets: usize) -> u16 {
    u16::try_from(sockets).unwrap_or(u16::MAX)
}

/// A handle that changes the steering of one way of datagrams while it is open (U2).
pub enum Helm {
    /// One socket of a kernel socket group.
    Group(UdpSocket),
    /// The program on a device.
    #[cfg(feature = "xdp")]
    Xdp(landing::xdp::Helm),
}

impl Helm {
    /// The handle of a socket group.
    pub fn of(sockets: &[UdpSocket]) -> io::Result<Option<Helm>> {
        sockets.first().map(|first| first.try_clone().map(Helm::Group)).transpose()
    }

    /// Steers datagrams to the first `dispatcher_count` sockets from now on. Those that have
    /// arrived stay where they are, so a thread that receives no more still serves them.
    pub fn steer(&self, dispatcher_count: usize) -> io::Result<()> {
        match self {
            Helm::Group(socket) => landing::steer::steer(socket, count_of(dispatcher_count)),
            #[cfg(feature = "xdp")]
            Helm::Xdp(helm) => helm.steer(count_of(dispatcher_count)),
        }
    }
}

/// Opens a port for each socket of the group, with the transport that is configured and available;
/// logs which it is.
pub fn open_ports(sockets: Vec<UdpSocket>, config: &Config) -> io::Result<Vec<AnyPort>> {
    let wanted = config.native_transport;
    let open = |socket| open(socket, config);
    let ports: Vec<AnyPort> = sockets.into_iter().map(open).collect::<io::Result<_>>()?;
    if let Some(first) = ports.first() {
        let because = match (wanted, first) {
            (NativeTransport::Auto, _) => "auto",
            (NativeTransport::IoUring, AnyPort::Recvmmsg(_)) => "fallback",
            _ => "setting",
        };
        tracing::info!(transport = first.name(), because, sockets = ports.len(), "native port");
    }
    Ok(ports)
}

fn open(mut socket: UdpSocket, config: &Config) -> io::Result<AnyPort> {
    let udp_config = UdpConfig {
        frame_bytes_max: DATAGRAM_MAX_BYTES,
        kernel_bytes: config.native_queue_bytes,
        ..UdpConfig::default()
    };
    if config.native_transport == NativeTransport::IoUring {
        let mut zone = port::zone()?;
        match UringUdp::new(&mut zone, socket, udp_config) {
            Ok(transport) => return Ok(AnyPort::IoUring(Box::new(Port::new(transport, zone)))),
            Err((back, unavailable)) => {
                tracing::warn!("--native-transport io-uring: {unavailable}");
                socket = back;
            }
        }
    }
    let port = Port::new(Udp::from_socket(socket, udp_config)?, port::zone()?);
    Ok(AnyPort::Recvmmsg(Box::new(port)))
}
