//! The links that others open.

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tracing::debug;

use crate::links::handshake;
use crate::links::stream::{self, Ends, Hub, QUEUE_MAX};

/// Of all that came in, proven or not. A cluster has a few hundred nodes at most.
const LINKS_MAX: usize = 2048;

/// Of those that have not proven anything (L5).
const UNPROVEN_MAX: usize = 256;

/// After an error of the listener itself, such as no file descriptor being left.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Counts {
    all: Cell<usize>,
    unproven: Cell<usize>,
}

/// One that is counted for as long as it lasts.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Counted<'a> {
        count.set(count.get() + 1);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Takes every peer that comes.
pub(super) async fn serve(hub: Rc<Hub>, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return hub.warn(format!("no peer can link to this process: {error}")),
    };
    let counts = Rc::new(Counts::default());
    loop {
        match listener.accept().await {
            Ok((tcp, address)) => {
                let is_full =
                    counts.all.get() >= LINKS_MAX || counts.unproven.get() >= UNPROVEN_MAX;
                if is_full {
                    hub.warn("links are refused: too many are open".to_owned());
                    continue;
                }
                let one = one(Rc::clone(&hub), Rc::clone(&counts), tcp, address);
                tokio::task::spawn_local(one);
            }
            Err(error) => {
                hub.warn(format!("a link is not taken: {error}"));
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

async fn one(hub: Rc<Hub>, counts: Rc<Counts>, mut tcp: TcpStream, address: SocketAddr) {
    let _counted = Counted::new(&counts.all);
    let shaken = {
        let _unproven = Counted::new(&counts.unproven);
        handshake::accept(&mut tcp, hub.own, &hub.key).await
    };
    match shaken {
        Ok(proven) => {
            let (queue, mut queued) = mpsc::channel(QUEUE_MAX);
            let ends = Ends { queue: &queue, first: None, queued: &mut queued };
            let why = stream::run(&hub, tcp, proven, ends).await;
            debug!(from = %address, why = why.as_deref().unwrap_or("closed"), "a link ended");
        }
        // A port scan, or a dialler that gave up: nothing to do about it.
        Err(handshake::HandshakeError::Io(error)) => debug!(from = %address, %error, "no link"),
        // Without its port: each attempt has another.
        Err(error) => hub.warn(format!("no link from {}: {error}", address.ip())),
    }
}
