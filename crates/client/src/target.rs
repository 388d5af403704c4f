//! The location of a server: an address or a path.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::ConnectError;

/// The default port of servers.
const PORT_DEFAULT: u16 = 7379;
/// The longest datagram between hosts of one network: 1500 bytes of an Ethernet frame without
/// IPv6's and UDP's headers, rounded down.
const FRAME_BYTES_ETHERNET: usize = 1448;
/// The longest datagram within a host, where only copying counts.
const FRAME_BYTES_LOOPBACK: usize = 8192;

/// A server's location: `native://HOST:PORT` or `shm:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// HOST:PORT, to be resolved.
    Udp(String),
    /// The path of the server's Unix socket.
    Shm(PathBuf),
}

/// The error of a text that names no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no native target: write native://HOST:PORT or shm:PATH")]
pub struct BadTarget(String);

impl BadTarget {
    pub(crate) fn of(text: &str) -> BadTarget {
        BadTarget(text.to_owned())
    }
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Target, BadTarget> {
        let bad = || BadTarget(text.to_owned());
        if let Some(path) = text.strip_prefix("shm:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let path = PathBuf::from(path);
            return if path.as_os_str().is_empty() { Err(bad()) } else { Ok(Target::Shm(path)) };
        }
        let rest = text.strip_prefix("native://").ok_or_else(bad)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        with_port(rest).map(Target::Udp).ok_or_else(bad)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Udp(address) => write!(formatter, "native://{address}"),
            Target::Shm(path) => write!(formatter, "shm:{}", path.display()),
        }
    }
}

/// Adds the default port if the text has none.
fn with_port(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0).then(|| address.to_string());
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT_DEFAULT).to_string());
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|port| *port != 0)?),
        None => (text, PORT_DEFAULT),
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    (!host.is_empty() && host.chars().all(is_plain)).then(|| format!("{host}:{port}"))
}

/// The first address of a name.
pub(crate) fn resolve(address: &str) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |source| ConnectError::System { target: format!("native://{address}"), source };
    let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
    if found.is_empty() {
        return Err(failed(std::io::Error::other("the name has no address")));
    }
    Ok(found)
}

/// The longest frame that certainly fits the path in one piece.
pub(crate) fn frame_bytes_to(address: SocketAddr) -> usize {
    if address.ip().is_loopback() { FRAME_BYTES_LOOPBACK } else { FRAME_BYTES_ETHERNET }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<&str>) {
        let found = text.parse::<Target>().ok().map(|target| target.to_string());
        assert_eq!(found.as_deref(), want, "{text}");
    }

    #[test]
    fn targets_name_an_address_or_a_path() {
        check("native://127.0.0.1:7000", Some("native://127.0.0.1:7000"));
        check("native://localhost/", Some("native://localhost:7379"));
        check("native://[::1]", Some("native://[::1]:7379"));
        check("native://::1", Some("native://[::1]:7379"));
        check("native://[::1]:9", Some("native://[::1]:9"));
        check("shm:/run/dovetail.sock", Some("shm:/run/dovetail.sock"));
        check("shm:///run/d", Some("shm:/run/d"));
        for text in ["", "native://", "native://h:0", "native://h:x", "shm:", "resp://h", "h:1"] {
            check(text, None);
        }
    }
}
