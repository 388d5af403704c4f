//! A worker's listeners, and the pause of accepting while no file descriptor is left.
//!
//! # Invariants
//! L1: while accepting is suspended, no listener is in the poller: it would be reported as ready at
//!     once, and the worker would spin.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use counters::Dialect;
use host::poller::{Interest, Poller};
use sessions::end::End;

use super::{
    TOKEN_MEMCACHED, TOKEN_RESP, TOKEN_TLS_MEMCACHED, TOKEN_TLS_RESP, TOKEN_UNIX_MEMCACHED,
    TOKEN_UNIX_RESP, WorkerSockets,
};
use crate::listen::UnixListener;

/// How long accepting is suspended when no descriptor is left.
pub const PAUSE: Duration = Duration::from_millis(100);

/// A listener of this worker.
pub(super) struct Listener {
    pub socket: ListeningSocket,
    pub protocol: Dialect,
    pub is_tls: bool,
    token: u64,
}

impl Listener {
    /// The name of both ends of its connections, unless they are TCP connections.
    pub fn unix_end(&self) -> Option<End> {
        match &self.socket {
            ListeningSocket::Tcp(_) => None,
            ListeningSocket::Unix(listener) => Some(End::Unix(Arc::clone(&listener.path))),
        }
    }
}

/// The socket of a listener.
pub(super) enum ListeningSocket {
    /// This worker's own share of a port.
    Tcp(TcpListener),
    /// A Unix socket, which all workers share: the first one to accept gets the connection.
    Unix(Arc<UnixListener>),
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(socket) => socket.as_fd(),
            ListeningSocket::Unix(listener) => listener.claim.as_fd(),
        }
    }
}

/// The listeners of a worker.
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Accepting is suspended until then, because no descriptor was left.
    paused_until: Option<Instant>,
}

impl Listeners {
    /// Takes the listeners from the sockets of a worker, and polls them.
    pub fn new(sockets: &mut WorkerSockets, poller: &mut impl Poller) -> io::Result<Listeners> {
        let (resp, memcached) = (Dialect::Resp, Dialect::Memcached);
        let sockets = [
            (sockets.resp.take().map(ListeningSocket::Tcp), resp, false, TOKEN_RESP),
            (sockets.memcached.take().map(ListeningSocket::Tcp), memcached, false, TOKEN_MEMCACHED),
            (sockets.tls_resp.take().map(ListeningSocket::Tcp), resp, true, TOKEN_TLS_RESP),
            (
                sockets.tls_memcached.take().map(ListeningSocket::Tcp),
                memcached,
                true,
                TOKEN_TLS_MEMCACHED,
            ),
            (sockets.unix_resp.take().map(ListeningSocket::Unix), resp, false, TOKEN_UNIX_RESP),
            (
                sockets.unix_memcached.take().map(ListeningSocket::Unix),
                memcached,
                false,
                TOKEN_UNIX_MEMCACHED,
            ),
        ];
        let listeners = sockets.into_iter().filter_map(|(socket, protocol, is_tls, token)| {
            Some(Listener { socket: socket?, protocol, is_tls, token })
        });
        let all: Vec<Listener> = listeners.collect();
        for listener in &all {
            poller.add(listener.socket.as_fd(), listener.token, Interest::READ)?;
        }
        Ok(Listeners { all, paused_until: None })
    }

    /// Where the listener of this token is.
    #[inline]
    pub fn position(&self, token: u64) -> Option<usize> {
        self.all.iter().position(|listener| listener.token == token)
    }

    /// The listener at a position.
    pub fn at(&self, position: usize) -> &Listener {
        &self.all[position]
    }

    /// Whether accepting is suspended.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Suspends accepting, because no descriptor is left.
    pub fn pause(&mut self, poller: &mut impl Poller) {
        if self.paused_until.is_none() {
            tracing::warn!(
                "no file descriptor left for a new connection; raise `ulimit -n` or lower \
                 --max-connections"
            );
        }
        self.note_pause(PAUSE);
        for listener in &self.all {
            // A listener that is not polled is simply not accepted from.
            let _ = poller.remove(listener.socket.as_fd());
        }
    }

    /// Sets when all that accepts is polled again: the caller has stopped polling something else.
    pub fn note_pause(&mut self, pause: Duration) {
        self.paused_until = Some(Instant::now() + pause);
    }

    /// Whether the pause has ended just now.
    #[inline]
    pub fn take_end_of_pause(&mut self, now: Instant) -> bool {
        self.paused_until.take_if(|until| *until <= now).is_some()
    }

    /// Polls the listeners again, after a pause.
    pub fn poll_again(&self, poller: &mut impl Poller) {
        for listener in &self.all {
            // It may still be polled.
            let _ = poller.add(listener.socket.as_fd(), listener.token, Interest::READ);
        }
    }

    /// Closes all listeners.
    pub fn close(&mut self, poller: &mut impl Poller) {
        for listener in self.all.drain(..) {
            // A Unix socket is open as long as any worker has it: it would be reported forever.
            let _ = poller.remove(listener.socket.as_fd());
        }
        self.paused_until = None;
    }
}
