//! Sockets that are closed a moment later, so that their clients can read the last reply.
//!
//! ```text
//!  reply ─▶ sending ends ─▶ what arrives is thrown away ─▶ the client's end, or a second: closed
//! ```
//!
//! A client in the middle of a long command goes on sending. A socket that is closed with bytes
//! unread, or that gets some afterwards, resets the connection, and the client's error is then the
//! reset instead of the reason that it was sent.
//!
//! # Limits
//! [`SOCKETS_MAX`] sockets of a worker linger, each for [`TIME`]; of more, the oldest is closed.
//! They have no buffer, no place among the clients, and are in no poller: what arrives fills the
//! kernel's buffer of the socket at most, and one read of each is thrown away in a round.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};

/// The most sockets of a worker that linger.
const SOCKETS_MAX: usize = 32;
/// How long one lingers.
const TIME: Duration = Duration::from_secs(1);

/// The sockets that linger, the oldest first.
#[derive(Default)]
pub(super) struct Lingering(VecDeque<(Instant, TcpStream)>);

impl Lingering {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a socket, whose sending half is closed, until its client has gone.
    pub(super) fn add(&mut self, socket: TcpStream) {
        if self.0.len() == SOCKETS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now(), socket));
    }

    /// Throws away what has arrived, and closes what has ended or lingered for long.
    pub(super) fn tend(&mut self, now: Instant, waste: &mut [u8]) {
        self.0.retain(|(since, socket)| {
            let is_open = match recv(socket, &mut *waste, RecvFlags::empty()) {
                Ok((count, _)) => count > 0,
                Err(error) => error == rustix::io::Errno::AGAIN,
            };
            is_open && now.duration_since(*since) < TIME
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};

    use super::*;

    /// A client, and the server's side of it, which has sent its last reply.
    fn told() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.write_all(b"-ERR the reason\r\n").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        (client, socket)
    }

    #[test]
    fn a_client_that_goes_on_sending_reads_the_reason() {
        let (mut client, socket) = told();
        let (mut lingering, start) = (Lingering::default(), Instant::now());
        lingering.add(socket);
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || {
                // More than the kernel's buffers hold.
                client.write_all(&vec![b'x'; 32 << 20]).expect("no reset");
                let mut found = Vec::new();
                client.read_to_end(&mut found).expect("no reset");
                found
            });
            let mut waste = vec![0; 64 << 10];
            while !lingering.is_empty() {
                lingering.tend(start, &mut waste);
                std::thread::yield_now();
            }
            assert_eq!(sending.join().unwrap(), b"-ERR the reason\r\n");
        });
    }

    #[test]
    fn sockets_linger_for_a_while_and_no_more_than_some() {
        let mut lingering = Lingering::default();
        let clients: Vec<TcpStream> = (0..SOCKETS_MAX + 3)
            .map(|_| {
                let (client, socket) = told();
                lingering.add(socket);
                client
            })
            .collect();
        lingering.tend(Instant::now(), &mut [0; 64]);
        assert!(lingering.0.len() <= SOCKETS_MAX);
        lingering.tend(Instant::now() + TIME, &mut [0; 64]);
        assert!(lingering.is_empty());
        drop(clients);
    }
}
