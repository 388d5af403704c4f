//! Outgoing links: those that this process opens, one task per address, for as long as there are
//! messages for it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use crate::links::stream::{self, Ends, Hub};
use crate::links::{Parcel, handshake};

/// A dead machine does not answer at all.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The pause between two attempts, from the first to the last; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A dialer without messages for this long ends; the next message starts another.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Serves one address.
pub(super) async fn serve(hub: Rc<Hub>, address: Arc<str>, mut queued: mpsc::Receiver<Parcel>) {
    let mut pause = PAUSE_MIN;
    let mut first = None;
    loop {
        if first.is_none() {
            first = match timeout(IDLE_MAX, queued.recv()).await {
                Ok(Some(parcel)) => Some(parcel),
                Ok(None) | Err(_) => break,
            };
        }
        let Some(queue) = hub.dials.borrow().get(&address).cloned() else { break };
        match connect(&hub, &address).await {
            Ok((tcp, proven)) => {
                pause = PAUSE_MIN;
                let ends = Ends { queue: &queue, first: first.take(), queued: &mut queued };
                let why = stream::run(&hub, tcp, proven, ends).await;
                debug!(to = %address, why = why.as_deref().unwrap_or("closed"), "a link ended");
            }
            Err(line) => {
                hub.warn(format!("no link to {address}: {line}"));
                first = None;
            }
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (2 * pause).min(PAUSE_MAX);
        // The messages queued since are outdated: the state machines send again those that still
        // matter.
        while queued.try_recv().is_ok() {}
    }
    // No other task runs in between: a message queued from here on starts a new dialer.
    hub.dials.borrow_mut().remove(&address);
}

async fn connect(hub: &Hub, address: &str) -> Result<(TcpStream, handshake::Proven), String> {
    let connected = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
    let mut tcp = match connected {
        Err(_) => return Err("it does not answer".to_owned()),
        Ok(connected) => connected.map_err(|error| error.to_string())?,
    };
    let proven = handshake::dial(&mut tcp, hub.own, &hub.key).await;
    proven.map(|proven| (tcp, proven)).map_err(|error| error.to_string())
}

/// Half to all of the pause, at random, so that a whole cluster does not dial at once.
fn jittered(pause: Duration) -> Duration {
    use std::hash::BuildHasher;
    let share = std::hash::RandomState::new().hash_one(0_u8) % 512;
    pause / 2 + pause / 1024 * share as u32
}
