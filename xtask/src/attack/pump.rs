//! Sends a script over many connections at once, and reads the replies or leaves them unread.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::door::Stream;
use super::script::Script;

/// Bytes that one connection sends or reads before the next one's turn.
const TURN_BYTES: usize = 256 << 10;
/// The pause before a connection whose peer takes nothing is tried again.
const BLOCKED: Duration = Duration::from_millis(5);
/// Interval between two checks of connections that are all blocked.
const PAUSE: Duration = Duration::from_millis(1);
/// A reading client that receives nothing for this long has received everything.
const SILENCE: Duration = Duration::from_millis(400);
/// Interval between two reads of a slow reader.
const SIP_EVERY: Duration = Duration::from_millis(50);
const SIP_BYTES: usize = 512;

/// How a connection reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Not at all.
    Never,
    /// A few bytes now and then, so that the client does not look dead.
    Sip,
    /// Everything.
    All,
}

/// One connection of a flood.
struct Sender {
    stream: Box<dyn Stream>,
    sent: u64,
    next_write: Instant,
    next_read: Instant,
    is_open: bool,
}

/// A flood over many connections.
pub struct Flood<'s> {
    pub script: &'s Script,
    pub reading: Reading,
    /// Bytes of one write.
    pub piece: usize,
    pub deadline: Instant,
}

impl Flood<'_> {
    /// Sends until the deadline, or until everything is sent and, for reading clients, answered.
    /// Returns the number of errors read and connections closed.
    pub fn run(&self, streams: Vec<Box<dyn Stream>>) -> u64 {
        let now = Instant::now();
        let mut refused = 0;
        let mut senders = Vec::new();
        for stream in streams {
            let is_open = stream.set_nonblocking(true).is_ok();
            refused += u64::from(!is_open);
            senders.push(Sender { stream, sent: 0, next_write: now, next_read: now, is_open });
        }
        let (mut buffer, mut heard) = (Vec::new(), now);
        while Instant::now() < self.deadline && senders.iter().any(|sender| sender.is_open) {
            let mut has_moved = false;
            for sender in senders.iter_mut().filter(|sender| sender.is_open) {
                let now = Instant::now();
                if now >= self.deadline {
                    break;
                }
                has_moved |= self.write(sender, &mut buffer, now);
                let (read_bytes, errors) = self.read(sender, &mut buffer, now);
                refused += errors + u64::from(!sender.is_open);
                has_moved |= read_bytes > 0;
            }
            if has_moved {
                heard = Instant::now();
            } else {
                std::thread::sleep(PAUSE);
            }
            let is_sent = senders.iter().all(|one| !one.is_open || one.sent == self.script.len());
            if self.reading == Reading::All && is_sent && heard.elapsed() > SILENCE {
                break;
            }
        }
        refused
    }

    /// True if something was sent.
    fn write(&self, sender: &mut Sender, buffer: &mut Vec<u8>, now: Instant) -> bool {
        if sender.sent == self.script.len() || now < sender.next_write {
            return false;
        }
        self.script.read(sender.sent, self.piece.min(TURN_BYTES), buffer);
        match sender.stream.write(buffer) {
            Ok(written) => {
                sender.sent += written as u64;
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                sender.next_write = now + BLOCKED;
                false
            }
            Err(_) => {
                sender.is_open = false;
                false
            }
        }
    }

    /// Bytes and errors among them.
    fn read(&self, sender: &mut Sender, buffer: &mut Vec<u8>, now: Instant) -> (usize, u64) {
        if self.reading == Reading::Never || now < sender.next_read || !sender.is_open {
            return (0, 0);
        }
        let is_sipping = self.reading == Reading::Sip;
        buffer.resize(if is_sipping { SIP_BYTES } else { TURN_BYTES }, 0);
        if is_sipping {
            sender.next_read = now + SIP_EVERY;
        }
        match sender.stream.read(buffer) {
            Ok(count) => {
                sender.is_open = count > 0;
                (count, errors_in(&buffer[..count]))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => (0, 0),
            Err(_) => {
                sender.is_open = false;
                (0, 0)
            }
        }
    }
}

/// Errors of RESP and of memcached's text protocol.
fn errors_in(replies: &[u8]) -> u64 {
    let of_resp = replies.split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b'-'));
    let of_memcached = replies.windows(5).filter(|window| window == b"ERROR");
    (of_resp.count() + of_memcached.count()) as u64
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (Box<dyn Stream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Box::new(client), listener.accept().unwrap().0)
    }

    fn flood(script: &Script, reading: Reading, piece: usize) -> Flood<'_> {
        let deadline = Instant::now() + Duration::from_secs(20);
        Flood { script, reading, piece, deadline }
    }

    #[test]
    fn errors_are_lines_that_begin_so() {
        assert_eq!(errors_in(b"-ERR a\r\n+OK\r\n$2\r\n-x\r\n-NOAUTH\r\n"), 3);
        assert_eq!(errors_in(b"SERVER_ERROR out of memory\r\nERROR\r\nEND\r\n"), 2);
        assert_eq!(errors_in(b"+OK\r\n:-1\r\n"), 0);
    }

    #[test]
    fn a_flood_sends_its_script_and_counts_what_was_refused() {
        let script = Script::repeat("PING\r\n", 1000);
        let (client, mut server) = pair();
        let peer = std::thread::spawn(move || {
            let mut all = vec![0; 6000];
            server.read_exact(&mut all).unwrap();
            server.write_all(b"-ERR no\r\n").unwrap();
            all
        });
        // The peer closes behind its one error.
        assert_eq!(flood(&script, Reading::All, 7).run(vec![client]), 2);
        assert_eq!(peer.join().unwrap(), "PING\r\n".repeat(1000).as_bytes());
    }

    #[test]
    fn a_client_that_never_reads_stops_at_the_deadline() {
        let script = Script::repeat("x", u64::MAX / 2);
        let (client, _server) = pair();
        let mut flood = flood(&script, Reading::Never, TURN_BYTES);
        flood.deadline = Instant::now() + Duration::from_millis(50);
        assert_eq!(flood.run(vec![client]), 0);
    }
}
