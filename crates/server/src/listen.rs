//! Listeners: one set per worker on one address, shared among them by the kernel.
//!
//! SO_REUSEPORT would let a second server of the same user take half of our connections without
//! a word. So the address is first bound without it: that fails if anybody listens there, with or
//! without SO_REUSEPORT. Two servers that start within the same few microseconds can still meet.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::StartError;

/// Connections that wait in the kernel to be accepted, per listener; the kernel lowers it to its
/// own `somaxconn`.
const BACKLOG_MAX: i32 = 4096;

/// Opens `count` listeners on `address`; a port 0 is resolved once and shared by all of them.
pub fn listen(
    address: SocketAddr,
    count: usize,
    setting: &'static str,
) -> Result<(SocketAddr, Vec<TcpListener>), StartError> {
    listen_inner(address, count).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address, setting },
        _ => StartError::Listen { address, setting, source },
    })
}

fn listen_inner(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    if address.port() != 0 {
        bind(address, Sharing::Alone)?;
    }
    let first = bind(address, Sharing::WithOurs)?;
    first.listen(BACKLOG_MAX)?;
    let first: TcpListener = first.into();
    let resolved = first.local_addr()?;
    let mut listeners = vec![first];
    while listeners.len() < count {
        let next = bind(resolved, Sharing::WithOurs)?;
        next.listen(BACKLOG_MAX)?;
        listeners.push(next.into());
    }
    Ok((resolved, listeners))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    WithOurs,
}

fn bind(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart would have to wait for the last connections' TIME_WAIT.
    socket.set_reuse_address(true)?;
    if sharing == Sharing::WithOurs {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

    #[test]
    fn all_listeners_share_the_resolved_port() {
        let (resolved, listeners) = listen(ANY.into(), 3, "resp").unwrap();
        assert_ne!(resolved.port(), 0);
        for listener in &listeners {
            assert_eq!(listener.local_addr().unwrap(), resolved);
        }
    }

    #[test]
    fn a_port_of_another_server_is_refused_even_if_it_would_share() {
        let (resolved, _held) = listen(ANY.into(), 1, "resp").unwrap();
        let error = listen(resolved, 1, "resp").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{resolved} is in use: stop the other server or choose another address with --resp"
            )
        );
    }

    #[test]
    fn an_address_of_another_machine_says_so() {
        let error = listen(([192, 0, 2, 1], 7777).into(), 1, "memcached").unwrap_err();
        assert!(error.to_string().starts_with("cannot listen on 192.0.2.1:7777: "), "{error}");
    }
}
