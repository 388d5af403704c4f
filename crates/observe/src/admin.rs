//! The admin port: HTTP for people, scrapers and orchestrators, on a thread of its own.
//!
//! ```text
//!  listener ─▶ a slot (the oldest client makes room) ─▶ TLS? ─▶ hyper (head, write and lifetime
//!                                                                │                  bounded)
//!      /         page, its script and style                     guard: Host, login
//!      /stats    JSON                                            │
//!      /metrics  OpenMetrics       ◀─────────────────────────────┘
//!      /healthz  the process is alive        /readyz   a SET and GET through each worker
//! ```
//!
//! # Invariants
//! I1: nothing here runs on a worker's thread, and no worker waits for anything here.
//! I2: every client is bounded: in number, in the size of its head, and in time, even while it does
//!     not read. A new client is always accepted; of the clients that could be closed for it, one
//!     that asks for `/healthz` or `/readyz` is closed last.
//! I3: only GET and HEAD; nothing can be changed through this port.
//! I4: keys are shown only with `--admin-show-keys`, after a login by a user with the right to run
//!     HOTKEYS.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use runtime::shared::Shared;
use sessions::end::End;
use sessions::logins::Origin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use write_limit::WriteLimit;

mod guard;
mod routes;
mod write_limit;

/// The maximum number of clients at one time; for one more, the oldest is closed.
const CONNECTIONS_MAX: usize = 64;
/// The time for a request's head to arrive, also after an earlier request on the same connection;
/// and for a TLS handshake.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// The time for a client to take some of its answer.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// The time for a whole connection; a scraper that keeps its connection open reconnects.
const LIFETIME_MAX: Duration = Duration::from_secs(300);
/// The maximum length of a request's head.
const HEAD_MAX_BYTES: usize = 16 << 10;
/// The pause after a failed accept, e.g. for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The running admin port. Dropping it closes the port and ends the thread.
pub struct AdminThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminThread {
    /// Serves `listener` until dropped.
    pub fn start(listener: TcpListener, shared: Arc<Shared>) -> io::Result<AdminThread> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("admin-probe")
            .max_blocking_threads(2)
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(accept_until_stopped(listener, shared, stopped));
            // A probe may still wait for a worker; it must not delay the shutdown.
            runtime.shutdown_background();
        })?;
        Ok(AdminThread { stop, thread: Some(thread) })
    }
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // The thread ends at its next wake-up; if it panicked there is nothing left to end.
            let _ = thread.join();
        }
    }
}

/// The facts about a connection that its requests use.
#[derive(Clone, Debug)]
struct Connection {
    /// The server's address, as this client reached it.
    local: SocketAddr,
    /// Where its failed logins are counted.
    origin: Origin,
    /// A request for the server's health is being answered.
    is_health: Arc<AtomicBool>,
}

/// A connection that is being served.
struct Open {
    task: AbortHandle,
    is_health: Arc<AtomicBool>,
}

async fn accept_until_stopped(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let listening = tokio::net::TcpListener::from_std(listener)
        .and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = match listening {
        Ok(listening) => listening,
        Err(error) => {
            tracing::error!(%error, "the admin port is closed");
            return;
        }
    };
    let router = routes::router(Arc::clone(&shared), address);
    let mut open = VecDeque::with_capacity(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.and_then(|(stream, peer)| {
                Ok((stream.local_addr()?, peer, stream))
            }),
            _ = stopped.changed() => return,
        };
        let (local, peer, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the admin port could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        make_room(&mut open, &shared);
        let is_health = Arc::new(AtomicBool::new(false));
        let origin = Origin::of(&End::Ip(peer));
        let connection = Connection { local, origin, is_health: Arc::clone(&is_health) };
        let acceptor = acceptor(&shared);
        let served = serve(stream, acceptor, router.clone().layer(Extension(connection)));
        // The outcome of a connection is not recorded.
        let task = tokio::spawn(async { drop(timeout(LIFETIME_MAX, served).await) });
        open.push_back(Open { task: task.abort_handle(), is_health });
        // The client's request may have arrived already: it is looked at before the next client.
        tokio::task::yield_now().await;
    }
}

/// Closes the oldest connection if there is no slot left (I2).
fn make_room(open: &mut VecDeque<Open>, shared: &Shared) {
    open.retain(|open| !open.task.is_finished());
    if open.len() < CONNECTIONS_MAX {
        return;
    }
    let is_other = |open: &Open| !open.is_health.load(Ordering::Relaxed);
    let oldest = open.iter().position(is_other).unwrap_or(0);
    if let Some(closed) = open.remove(oldest) {
        closed.task.abort();
        shared.observations().admin.made_room.fetch_add(1, Ordering::Relaxed);
    }
}

/// The TLS acceptor for `--admin-tls`, with the present certificates.
fn acceptor(shared: &Shared) -> Option<TlsAcceptor> {
    let certificates = shared.tls().filter(|_| shared.config().admin_access.is_tls)?;
    Some(TlsAcceptor::from(certificates.without_clients()))
}

async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>, router: Router) {
    let stream = WriteLimit::new(stream, WRITE_MAX);
    let Some(acceptor) = acceptor else { return answer(stream, router).await };
    if let Ok(Ok(stream)) = timeout(HEAD_MAX, acceptor.accept(stream)).await {
        answer(stream, router).await;
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: S, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    drop(connection.await);
}

#[cfg(test)]
mod tests;
