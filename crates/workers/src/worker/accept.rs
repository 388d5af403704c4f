//! Accepting new connections.

use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use budget::Outgrown;
use counters::Dialect;
use dispatch::lanes::DEPTH_AT_FIRST;
use host::poller::{Interest, Poller, Ready};
use runtime::connection::{Connection, Memcached, ProtocolState, Resp};
use runtime::engine::Home;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use sessions::acl::Pass;
use sessions::clients::{Arrival, Client, TooMany};
use sessions::doors::{self, Access, Door};
use sessions::end::End;
use socket2::{SockRef, TcpKeepalive};

use super::{TOKEN_SHM_DOOR, Worker, events, evict, roles, sealed};

/// Connections that one round accepts per listener, at most.
const ACCEPT_MAX: usize = 64;

/// After this long, TCP checks whether an idle connection's client is still there, as in Redis.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// Accepts from the listeners among `ready`. Called last in a round: a slot freed in this round
/// must not receive an event of its earlier connection.
pub(super) fn accept_ready<E: Home, P: Poller>(worker: &mut Worker<E, P>, ready: &[Ready]) {
    for event in ready {
        if let Some(position) = worker.listeners.position(event.token) {
            accept_from(worker, position);
        }
    }
}

fn accept_from<E: Home, P: Poller>(worker: &mut Worker<E, P>, position: usize) {
    for _ in 0..ACCEPT_MAX {
        let listener = worker.listeners.at(position);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match accept_with(&listener.socket, flags) {
            Ok(socket) => {
                let (kind, end) = ((listener.protocol, listener.is_tls), listener.unix_end());
                // A byte stream is the same over any kind of socket.
                admit_from(worker, TcpStream::from(socket), end, kind);
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                return worker.listeners.pause(&mut worker.poller);
            }
            // The client left before it was accepted: the next one may be there.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Accepts again, if a pause has ended.
pub(super) fn end_pause<E: Home, P: Poller>(worker: &mut Worker<E, P>, now: Instant) {
    if !worker.listeners.take_end_of_pause(now) {
        return;
    }
    worker.listeners.poll_again(&mut worker.poller);
    if let Some(door) = &worker.shm_door {
        // It may still be polled.
        let _ = worker.poller.add(door.as_fd(), TOKEN_SHM_DOOR, Interest::READ);
    }
}

/// Admits a connection. `unix`: the names of both ends, if it is not a TCP connection.
pub(super) fn admit_from<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    socket: TcpStream,
    unix: Option<End>,
    (protocol, is_tls): (Dialect, bool),
) {
    let (peer, local) = match unix {
        Some(end) => (end.clone(), end),
        None => {
            let Some(ends) = prepare_tcp(&socket) else { return };
            ends
        }
    };
    let Some(access) = access_of(worker, &socket, &peer, (protocol, is_tls)) else { return };
    let Some(tls) = sealed::begin(worker, is_tls) else { return };
    let descriptor = socket.as_raw_fd();
    let client = match admit_client(worker, (protocol, peer, local), descriptor) {
        Ok(client) => client,
        Err(too_many) => {
            let counters = worker.core.counters();
            match too_many {
                TooMany::All | TooMany::NoRoom | TooMany::Full => counters.rejected.add(1),
                TooMany::OfAddress => counters.rejected_of_address.add(1),
            }
            // A TLS client would not understand the line.
            return if !is_tls {
                turn_away(&socket, too_many_line(protocol, too_many))
            };
        }
    };
    worker.core.counters().accepted.add(1);
    let client_id = client.id;
    let protocol_state = match protocol {
        Dialect::Resp => {
            ProtocolState::Resp(Resp { pass: Pass::new(&worker.core.acl), ..Resp::default() })
        }
        Dialect::Memcached => ProtocolState::Memcached(Memcached {
            needs_auth: access.asks_login(),
            ..Memcached::default()
        }),
    };
    let mut connection = Connection::new(socket, client, protocol_state);
    connection.tls = tls;
    if worker.core.cluster.is_some() && protocol == Dialect::Memcached {
        connection.awaiting.depth_max = DEPTH_AT_FIRST;
    }
    if protocol == Dialect::Memcached {
        events::show_connection(worker, &connection.client, None);
    }
    if !worker.roles.is_dispatcher() {
        return roles::pass_on(worker, connection);
    }
    let slot = worker.core.connections.insert(connection);
    worker.core.connections[slot].client.set_slot(slot);
    let socket = &worker.core.connections[slot].socket;
    if worker.poller.add(socket.as_fd(), slot as u64, Interest::READ).is_err() {
        worker.core.connections.remove(slot);
        worker.core.shared.clients().remove(client_id);
    } else if is_tls {
        worker.handshakes.add(slot, &worker.core.connections[slot]);
    }
}

/// Gives a client its record. Where other clients hold all room, some of them are closed first.
fn admit_client<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    (protocol, peer, local): (Dialect, End, End),
    descriptor: RawFd,
) -> Result<Arc<Client>, TooMany> {
    let (own, now) = (worker.core.worker, worker.core.now);
    let arrival = Arrival { protocol, worker: own, peer, local, descriptor, now };
    let max = worker.core.shared.live().clients_max();
    match worker.core.shared.clients().admit(arrival.clone(), max) {
        Err(TooMany::Full) => {
            evict::close_clients(worker, Outgrown::Arrivals);
            worker.core.shared.clients().admit(arrival, max)
        }
        admitted => admitted,
    }
}

/// The access that the door grants a new connection; `None`: the client is refused and was sent
/// the reason.
fn access_of<E: Home, P: Poller>(
    worker: &Worker<E, P>,
    socket: &TcpStream,
    peer: &End,
    (protocol, is_tls): (Dialect, bool),
) -> Option<Access> {
    let access = worker.core.doors.of(Door::of(protocol, is_tls, peer));
    if access.admits(peer.is_local()) {
        return Some(access);
    }
    worker.core.counters().doors.turn_away(access.is_closed());
    // A TLS client would not understand the line.
    if !is_tls {
        turn_away(socket, doors::denial(protocol, access));
    }
    None
}

/// Sets up a TCP connection and returns its ends; `None`: the client has left already.
fn prepare_tcp(socket: &TcpStream) -> Option<(End, End)> {
    let ends = (End::Ip(socket.peer_addr().ok()?), End::Ip(socket.local_addr().ok()?));
    // Replies must not wait for acknowledgements; a refusal only costs speed.
    let _ = socket.set_nodelay(true);
    // A client whose machine vanished is noticed after a while.
    let _ = SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
    Some(ends)
}

/// The reply to one client too many.
pub(super) fn too_many_line(protocol: Dialect, too_many: TooMany) -> &'static [u8] {
    match (protocol, too_many) {
        (Dialect::Resp, TooMany::All) => b"-ERR max number of clients reached\r\n",
        (Dialect::Resp, TooMany::OfAddress) => {
            b"-ERR max number of clients of this address reached\r\n"
        }
        (Dialect::Resp, TooMany::NoRoom) => {
            b"-ERR connections fill their part of the client buffers, below max-connections: \
              a larger --memory has more room\r\n"
        }
        (Dialect::Memcached, TooMany::NoRoom) => {
            b"SERVER_ERROR out of memory: connections fill their part of the client buffers; \
              a larger --memory has more room\r\n"
        }
        (Dialect::Resp, TooMany::Full) => {
            b"-ERR client buffers are full: try again, or give a larger --memory\r\n"
        }
        (Dialect::Memcached, TooMany::Full) => {
            b"SERVER_ERROR out of memory: client buffers are full; try again, or give a larger \
              --memory\r\n"
        }
        (Dialect::Memcached, _) => b"ERROR Too many open connections\r\n",
    }
}

/// Sends a client the reason for its refusal, and closes.
fn turn_away(socket: &TcpStream, reply: &[u8]) {
    // It fits an empty socket buffer; if the client has left, its loss does no harm.
    let _ = rustix::net::send(socket, reply, rustix::net::SendFlags::NOSIGNAL);
    let _ = rustix::net::recv(socket, &mut [0_u8; 1024], rustix::net::RecvFlags::empty());
    let _ = socket.shutdown(std::net::Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_which_limit_it_met() {
        for protocol in [Dialect::Resp, Dialect::Memcached] {
            let line = |too_many| String::from_utf8_lossy(too_many_line(protocol, too_many));
            assert!(!line(TooMany::All).contains("--memory"));
            for of_memory in [line(TooMany::NoRoom), line(TooMany::Full)] {
                assert!(of_memory.contains("client buffers") && of_memory.contains("--memory"));
                assert!(of_memory.ends_with("\r\n") && of_memory.matches('\n').count() == 1);
            }
        }
    }
}
