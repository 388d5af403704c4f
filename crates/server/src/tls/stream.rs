//! The TLS state of one connection. The thread that has bytes drives it; it never blocks.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::{Reader, ServerConfig, ServerConnection};

use crate::budget::{BufferBudget, Kind, Reservation};
use crate::output::{Output, Sent};

/// Sealed bytes that wait for the socket (T2).
pub const SEALED_BYTES_MAX: usize = 64 << 10;

/// What a connection takes when nothing waits: the session and the buffer of its records.
const IDLE_BYTES: u64 = 8 << 10;

/// What a handshake takes at first: the session, its transcript, and the server's first flight.
/// Each byte that the client sends in it is buffered in a vector that doubles.
pub const HANDSHAKE_BYTES: u64 = 16 << 10;

/// Plaintext that is sealed at a time: records are at most this long.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// One connection's TLS.
#[derive(Debug)]
pub struct Stream {
    session: ServerConnection,
    is_handshaking: bool,
    /// Bytes of the handshake that have come.
    received_bytes: u64,
    /// What it takes when nothing waits for the socket.
    booked: Reservation,
}

/// What [`Stream::receive`] found.
#[derive(Debug)]
pub enum Received {
    /// So many bytes, sealed ones.
    Sealed(usize),
    /// Nothing has arrived.
    Nothing,
    /// The client sends no more.
    End,
    /// The client does not speak TLS as we do, or shows no right certificate. An alert may wait.
    Refused(rustls::Error),
    /// The socket is broken.
    Broken,
}

impl Stream {
    /// Of a connection that was just accepted; [`HANDSHAKE_BYTES`] are booked.
    pub fn new(config: Arc<ServerConfig>, booked: Reservation) -> Result<Stream, rustls::Error> {
        debug_assert_eq!(booked.bytes(), HANDSHAKE_BYTES);
        let mut session = ServerConnection::new(config)?;
        session.set_buffer_limit(Some(SEALED_BYTES_MAX));
        Ok(Stream { session, is_handshaking: true, received_bytes: 0, booked })
    }

    /// Books what the handshake has grown by, or what is left of it behind its end; false: there
    /// is no room.
    pub fn book(&mut self, budget: &Arc<BufferBudget>) -> bool {
        if self.is_handshaking {
            return self.booked.try_resize(HANDSHAKE_BYTES + 2 * self.received_bytes);
        }
        let standing = Reservation::try_new(budget, Kind::Connections, IDLE_BYTES);
        let has_room = standing.is_some();
        self.booked = standing.unwrap_or_else(|| Reservation::empty(budget, Kind::Connections));
        has_room
    }

    /// Whether the handshake has not ended yet.
    pub fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    /// True once: the handshake has ended well.
    pub fn take_handshake(&mut self) -> bool {
        let has_ended = self.is_handshaking && !self.session.is_handshaking();
        self.is_handshaking &= !has_ended;
        has_ended
    }

    /// What waits for the socket, at most.
    pub fn sealed_bytes(&self) -> usize {
        if self.session.wants_write() { SEALED_BYTES_MAX } else { 0 }
    }

    /// Reads once, through `sealed`, and gives `take` all that could be opened (T1): at most as
    /// much as fits into `sealed` and one more record.
    pub fn receive(
        &mut self,
        socket: impl AsFd,
        sealed: &mut [u8],
        mut take: impl FnMut(Reader<'_>),
    ) -> Received {
        let count = match recv(socket, &mut *sealed, RecvFlags::empty()) {
            Ok((0, _)) => return Received::End,
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Broken,
        };
        self.received_bytes += count as u64;
        let mut rest = &sealed[..count];
        while !rest.is_empty() {
            match self.session.read_tls(&mut rest) {
                Ok(0) => return Received::End, // Behind a close_notify.
                Ok(_) => {}
                Err(_) => return Received::Broken,
            }
            let state = match self.session.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Received::Refused(error),
            };
            if state.plaintext_bytes_to_read() > 0 {
                take(self.session.reader());
            }
            if state.peer_has_closed() {
                return Received::End;
            }
        }
        Received::Sealed(count)
    }

    /// Seals and sends what the socket takes, at most about `bytes_max`.
    pub fn send(
        &mut self,
        output: &mut Output,
        socket: BorrowedFd<'_>,
        bytes_max: usize,
        sent_total: &mut u64,
    ) -> io::Result<Sent> {
        let mut sealed_bytes = 0;
        let sent = output.send_by(|piece| {
            self.flush(socket, sent_total)?;
            if sealed_bytes >= bytes_max {
                return Err(ErrorKind::WouldBlock.into());
            }
            let piece = &piece[..piece.len().min(PIECE_BYTES_MAX)];
            match self.session.writer().write(piece)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                count => {
                    sealed_bytes += count;
                    Ok(count)
                }
            }
        })?;
        match self.flush(socket, sent_total) {
            Ok(()) => Ok(sent),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Sent::Blocked),
            Err(error) => Err(error),
        }
    }

    /// Says that nothing more comes, if the socket takes that at once.
    pub fn close(&mut self, socket: BorrowedFd<'_>) {
        self.session.send_close_notify();
        self.alert(socket);
    }

    /// Sends what waits sealed, if the socket takes that at once: no thread waits for it any more.
    pub fn alert(&mut self, socket: BorrowedFd<'_>) {
        let _ = self.flush(socket, &mut 0);
    }

    fn flush(&mut self, socket: BorrowedFd<'_>, sent_total: &mut u64) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Raw(socket)) {
                Ok(count) => *sent_total += count as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Takes all that is open into a buffer that it fits in; how much there was.
pub fn fill(mut reader: Reader<'_>, free: &mut [u8]) -> usize {
    let mut count = 0;
    // An error: nothing more is open.
    while let Ok(more @ 1..) = reader.read(&mut free[count..]) {
        count += more;
    }
    count
}

/// Appends all that is open.
pub fn append(mut reader: Reader<'_>, held: &mut Vec<u8>) {
    // An error: nothing more is open. What was read is there.
    let _ = reader.read_to_end(held);
}

/// A socket that is written to.
struct Raw<'s>(BorrowedFd<'s>);

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            [one] => self.write(one),
            // SIGPIPE is ignored from the start of every Rust program.
            _ => Ok(rustix::io::writev(self.0, slices)?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
