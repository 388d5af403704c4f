//! The native port past the kernel's stack: AF_XDP on a device (cargo feature `xdp`).
//!
//! ```text
//!  device ─▶ program ─▶ a worker's AF_XDP sockets ─▶ its port 1
//!               └─▶ stack ─▶ the socket of the group ─▶ its port 0    fragments, this host's own
//! ```
//!
//! A session belongs to one of the two ways: its frames arrive and its replies leave by it. A
//! client whose way changes gets the answer that its session is unknown, and sends a hello again.
//!
//! Each thread that may ever poll has sockets on the device; the program steers to those that poll
//! now, as in the socket group (decision 0044).

use std::net::SocketAddr;

use config::StartError;
use config::XdpDevice;

use super::ports::AnyPort;
use super::udp::Helm;

const NOT_BUILT: &str = "this binary was built without AF_XDP; build it with `--features xdp`";

/// Ports on a device, worker `i`'s at index `i`, and the handle that steers them.
type Opened = (Vec<AnyPort>, Option<Helm>);

/// Opens a port for each worker; datagrams go to the first `dispatcher_count` of them.
pub fn open_ports(
    device: &XdpDevice,
    native: Option<SocketAddr>,
    worker_count: usize,
    dispatcher_count: usize,
) -> Result<Opened, StartError> {
    let refused = |reason: String| StartError::Xdp { device: device.name.clone(), reason };
    if !cfg!(feature = "xdp") {
        return Err(refused(NOT_BUILT.to_owned()));
    }
    let Some(address) = native else {
        return Err(refused("the native port is off; give --native ADDRESS:PORT".to_owned()));
    };
    if address.ip().is_unspecified() || address.ip().is_loopback() {
        let ip = address.ip();
        let reason =
            format!("--native {ip} is no address of one device; give one of {}'s", device.name);
        return Err(refused(reason));
    }
    let (ports, helm) = open(device, address, worker_count).map_err(refused)?;
    let steered = helm.as_ref().map_or(Ok(()), |helm| helm.steer(dispatcher_count));
    steered.map_err(|error| refused(format!("cannot steer to the threads that poll: {error}")))?;
    Ok((ports, helm))
}

#[cfg(not(feature = "xdp"))]
fn open(_: &XdpDevice, _: SocketAddr, _: usize) -> Result<Opened, String> {
    Err(NOT_BUILT.to_owned())
}

#[cfg(feature = "xdp")]
fn open(device: &XdpDevice, address: SocketAddr, worker_count: usize) -> Result<Opened, String> {
    use landing::xdp::XdpConfig;

    let config = XdpConfig {
        worker_count: u16::try_from(worker_count).unwrap_or(u16::MAX),
        queue_count: device.queue_count.unwrap_or_else(|| queue_count_of(&device.name)),
        frame_bytes_max: super::DATAGRAM_MAX_BYTES,
        ..XdpConfig::new(&device.name, address)
    };
    let transports = landing::xdp::open(&config).map_err(|unavailable| advice(&unavailable))?;
    let queues = config.queue_count;
    tracing::info!(transport = "xdp", device = device.name, queues, "native port");
    let helm = transports.first().map(|first| Helm::Xdp(first.helm()));
    let port = |transport| {
        let zone = super::port::zone().map_err(|error| error.to_string())?;
        Ok(AnyPort::Xdp(Box::new(super::port::Port::new(transport, zone))))
    };
    let ports: Result<_, String> = transports.into_iter().map(port).collect();
    Ok((ports?, helm))
}

/// The number of receive queues of a device, as the kernel shows it; 1 if it does not.
#[cfg(feature = "xdp")]
fn queue_count_of(device: &str) -> u32 {
    let Ok(entries) = std::fs::read_dir(format!("/sys/class/net/{device}/queues")) else {
        return 1;
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let count = names.filter(|name| name.to_string_lossy().starts_with("rx-")).count();
    u32::try_from(count).unwrap_or(1).max(1)
}

/// One line: the refused step and its remedy.
#[cfg(feature = "xdp")]
fn advice(unavailable: &landing::xdp::Unavailable) -> String {
    use rustix::io::Errno;

    let error = Errno::from_io_error(&unavailable.source);
    let advice = match error {
        Some(Errno::NODEV) if unavailable.step == "be found" => {
            return "no such device; `ip link` lists them".to_owned();
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "; root may, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
        }
        Some(Errno::BUSY) => "; another program holds the device or one of its queues",
        Some(Errno::INVAL) => "; it may have fewer queues: give DEVICE:QUEUES",
        _ => "",
    };
    // The verifier's output has several lines.
    let words = format!("cannot {}: {}", unavailable.step, unavailable.source);
    let line: Vec<&str> = words.split_whitespace().collect();
    line.join(" ") + advice
}
