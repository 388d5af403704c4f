//! The admin port: HTTP for people, scrapers and orchestrators, on a thread of its own.
//!
//! ```text
//!  listener ─▶ permit (connections bounded) ─▶ hyper (head and lifetime bounded) ─▶ routes
//!      /         page, its script and style       /healthz  the process is alive
//!      /stats    JSON                             /readyz   a SET and GET through each worker
//!      /metrics  OpenMetrics
//! ```
//!
//! # Invariants
//! I1: nothing here runs on a worker's thread, and no worker waits for anything here.
//! I2: every client is bounded: in number, in the size of its head, in time.
//! I3: only GET and HEAD; nothing can be changed through this port.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, watch};

use crate::shared::Shared;

mod routes;

/// Clients at one time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// For a request's head to arrive, also after an earlier request on the same connection.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// For a whole connection; a scraper that keeps its own open reconnects.
const LIFETIME_MAX: Duration = Duration::from_secs(300);
/// Bytes of a request's head.
const HEAD_MAX_BYTES: usize = 16 << 10;
/// After an accept that failed, e.g. for want of descriptors.
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
            // A probe may still wait for a worker; it must not hold up the end.
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

async fn accept_until_stopped(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the admin port is closed");
            return;
        }
    };
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let service = TowerToHyperService::new(routes::router(shared));
    loop {
        let accepted = async {
            // Never closed, so this waits for a permit and cannot fail.
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (result, permit) = tokio::select! {
            accepted = accepted => accepted,
            _ = stopped.changed() => return,
        };
        let stream = match result {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin port could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            // How it ended is the client's business.
            let _ = tokio::time::timeout(LIFETIME_MAX, connection).await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests;
