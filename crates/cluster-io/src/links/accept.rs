//! Incoming links: those that peers open.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::links::handshake;
use crate::links::stream::{self, Ends, Hub, QUEUE_MAX};

/// The most incoming links, proven or not. A cluster has a few hundred nodes at most.
const LINKS_MAX: usize = 2048;

/// The most incoming links that have not proven the key (L5).
const UNPROVEN_MAX: usize = 256;

/// The pause after an error of the listener itself, such as a lack of file descriptors.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// An incoming connection that has not proven the key.
struct Unproven {
    number: u64,
    from: IpAddr,
    task: AbortHandle,
}

/// The open incoming connections.
#[derive(Default)]
struct Open {
    all: Cell<usize>,
    numbers: Cell<u64>,
    /// The unproven ones, the oldest first.
    unproven: RefCell<VecDeque<Unproven>>,
}

impl Open {
    /// Makes room for one more (L5); returns false if there is none.
    fn make_room(&self) -> bool {
        let mut unproven = self.unproven.borrow_mut();
        if self.all.get() < LINKS_MAX && unproven.len() < UNPROVEN_MAX {
            return true;
        }
        let froms: Vec<IpAddr> = unproven.iter().map(|one| one.from).collect();
        let Some(closed) = oldest_of_most(&froms).and_then(|at| unproven.remove(at)) else {
            return false;
        };
        closed.task.abort();
        true
    }

    fn forget(&self, number: u64) {
        self.unproven.borrow_mut().retain(|one| one.number != number);
    }
}

/// The first index of the address that occurs most often; of several such, of the one that occurs
/// first.
fn oldest_of_most(froms: &[IpAddr]) -> Option<usize> {
    let mut counts: HashMap<IpAddr, (usize, usize)> = HashMap::new();
    for (at, from) in froms.iter().enumerate() {
        counts.entry(*from).or_insert((0, at)).0 += 1;
    }
    counts.into_values().max_by_key(|(count, first)| (*count, Reverse(*first))).map(|(_, at)| at)
}

/// A count that this value raises for as long as it lives.
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

/// Accepts every peer that connects.
pub(super) async fn serve(hub: Rc<Hub>, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return hub.warn(format!("no peer can link to this process: {error}")),
    };
    let open = Rc::new(Open::default());
    loop {
        match listener.accept().await {
            Ok((tcp, address)) => {
                if !open.make_room() {
                    hub.warn("links are refused: too many are open".to_owned());
                    continue;
                }
                let number = open.numbers.get();
                open.numbers.set(number + 1);
                let one = one(Rc::clone(&hub), (Rc::clone(&open), number), tcp, address);
                let task = tokio::task::spawn_local(one).abort_handle();
                let unproven = Unproven { number, from: address.ip(), task };
                open.unproven.borrow_mut().push_back(unproven);
            }
            Err(error) => {
                hub.warn(format!("a link is not taken: {error}"));
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

async fn one(
    hub: Rc<Hub>,
    (open, number): (Rc<Open>, u64),
    mut tcp: TcpStream,
    address: SocketAddr,
) {
    let _counted = Counted::new(&open.all);
    let shaken = handshake::accept(&mut tcp, hub.own, &hub.key).await;
    open.forget(number);
    match shaken {
        Ok(proven) => {
            let (queue, mut queued) = mpsc::channel(QUEUE_MAX);
            let ends = Ends { queue: &queue, first: None, queued: &mut queued };
            let why = stream::run(&hub, tcp, proven, ends).await;
            debug!(from = %address, why = why.as_deref().unwrap_or("closed"), "a link ended");
        }
        // A port scan, or a dialler that gave up: nothing to do about it.
        Err(handshake::HandshakeError::Io(error)) => debug!(from = %address, %error, "no link"),
        // Logged without its port: each attempt has another.
        Err(error) => hub.warn(format!("no link from {}: {error}", address.ip())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_the_most_makes_room() {
        let froms = |text: &str| -> Vec<IpAddr> {
            text.chars().map(|last| IpAddr::from([10, 0, 0, last as u8])).collect()
        };
        for (text, want) in [("", None), ("a", Some(0)), ("abb", Some(1)), ("ab", Some(0))] {
            assert_eq!(oldest_of_most(&froms(text)), want, "{text}");
        }
        assert_eq!(oldest_of_most(&froms("abbacca")), Some(0));
    }
}
