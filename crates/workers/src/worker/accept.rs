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

use super::{ListeningSocket, Worker};

/// Connections that one round accepts per listener, at most.
const ACCEPT_MAX: usize = 64;

/// After this long, TCP checks whether an idle connection's client is still there, as in Redis.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// How long accepting is suspended when no descriptor is left. Otherwise the listener would be
/// reported as ready at once, and the worker would spin.
pub(super) const ACCEPT_REST: Duration = Duration::from_millis(100);

impl<E: Home, P: Poller> Worker<E, P> {
    /// Accepts from the listeners among `ready`. Called last in a round: a slot freed in this round
    /// must not receive an event of its earlier connection.
    pub(super) fn accept_ready(&mut self, ready: &[Ready]) {
        for event in ready {
            let is_ours = |listener: &super::Listener| listener.token == event.token;
            if let Some(index) = self.listeners.iter().position(is_ours) {
                self.accept_from(index);
            }
        }
    }

    fn accept_from(&mut self, index: usize) {
        for _ in 0..ACCEPT_MAX {
            let listener = &self.listeners[index];
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept_with(&listener.socket, flags) {
                Ok(socket) => {
                    let (protocol, is_tls) = (listener.protocol, listener.is_tls);
                    let ends = match &listener.socket {
                        ListeningSocket::Tcp(_) => None,
                        ListeningSocket::Unix(listener) => {
                            Some(End::Unix(Arc::clone(&listener.path)))
                        }
                    };
                    // A byte stream is the same over any kind of socket.
                    self.admit_from(TcpStream::from(socket), ends, (protocol, is_tls));
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.rest_from_accepting();
                }
                // The client left before it was accepted: the next one may be there.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn rest_from_accepting(&mut self) {
        if self.accept_again_at.is_none() {
            tracing::warn!(
                "no file descriptor left for a new connection; raise `ulimit -n` or lower \
                 --max-connections"
            );
        }
        self.accept_again_at = Some(Instant::now() + ACCEPT_REST);
        for listener in &self.listeners {
            // A listener that is not polled is simply not accepted from.
            let _ = self.poller.remove(listener.socket.as_fd());
        }
    }

    /// Polls the listeners again, after a suspension.
    pub(super) fn poll_listeners(&mut self) {
        for listener in &self.listeners {
            let _ = self.poller.add(listener.socket.as_fd(), listener.token, Interest::READ);
        }
        if let Some(door) = &self.shm_door {
            // It may still be polled.
            let _ = self.poller.add(door.as_fd(), super::TOKEN_SHM_DOOR, Interest::READ);
        }
    }

    /// Admits a connection, for a thread that runs several workers in turn.
    #[cfg(any(test, feature = "drive"))]
    pub fn admit(&mut self, socket: TcpStream, protocol: Dialect, is_tls: bool) {
        self.admit_from(socket, None, (protocol, is_tls));
    }

    /// Admits a connection. `unix`: the names of both ends, if it is not a TCP connection.
    fn admit_from(
        &mut self,
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
        let Some(access) = self.access_of(&socket, &peer, (protocol, is_tls)) else { return };
        let Some(tls) = self.begin_tls(is_tls) else { return };
        let descriptor = socket.as_raw_fd();
        let client = match self.admit_client((protocol, peer, local), descriptor) {
            Ok(client) => client,
            Err(too_many) => {
                let counters = self.core.counters();
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
        self.core.counters().accepted.add(1);
        let client_id = client.id;
        let protocol_state = match protocol {
            Dialect::Resp => {
                ProtocolState::Resp(Resp { pass: Pass::new(&self.core.acl), ..Resp::default() })
            }
            Dialect::Memcached => ProtocolState::Memcached(Memcached {
                needs_auth: access.asks_login(),
                ..Memcached::default()
            }),
        };
        let mut connection = Connection::new(socket, client, protocol_state);
        connection.tls = tls;
        if self.core.cluster.is_some() && protocol == Dialect::Memcached {
            connection.awaiting.depth_max = DEPTH_AT_FIRST;
        }
        if protocol == Dialect::Memcached {
            self.show_connection(&connection.client, None);
        }
        if !self.member.plan().is_dispatcher(self.core.worker.index()) {
            return self.pass_on(connection);
        }
        let slot = self.core.connections.insert(connection);
        self.core.connections[slot].client.set_slot(slot);
        let socket = &self.core.connections[slot].socket;
        if self.poller.add(socket.as_fd(), slot as u64, Interest::READ).is_err() {
            self.core.connections.remove(slot);
            self.core.shared.clients().remove(client_id);
        } else if is_tls {
            self.await_handshake(slot);
        }
    }
}

impl<E: Home, P: Poller> Worker<E, P> {
    /// Gives a client its record. Where other clients hold all room, some of them are closed first.
    fn admit_client(
        &mut self,
        (protocol, peer, local): (Dialect, End, End),
        descriptor: RawFd,
    ) -> Result<Arc<Client>, TooMany> {
        let (worker, now) = (self.core.worker, self.core.now);
        let arrival = Arrival { protocol, worker, peer, local, descriptor, now };
        let max = self.core.shared.live().clients_max();
        match self.core.shared.clients().admit(arrival.clone(), max) {
            Err(TooMany::Full) => {
                self.evict_clients(Outgrown::Arrivals);
                self.core.shared.clients().admit(arrival, max)
            }
            admitted => admitted,
        }
    }

    /// The access that the door grants a new connection; `None`: the client is refused and was sent
    /// the reason.
    fn access_of(
        &self,
        socket: &TcpStream,
        peer: &End,
        (protocol, is_tls): (Dialect, bool),
    ) -> Option<Access> {
        let access = self.core.doors.of(Door::of(protocol, is_tls, peer));
        if access.admits(peer.is_local()) {
            return Some(access);
        }
        self.core.counters().doors.turn_away(access.is_closed());
        // A TLS client would not understand the line.
        if !is_tls {
            turn_away(socket, doors::denial(protocol, access));
        }
        None
    }
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
