//! A RESP server without a store: it measures the cost of sockets and minimal parsing alone.
//!
//! ```text
//!  epoll ─▶ one read per ready connection ─▶ skip each command ─▶ one write of made-up replies
//! ```
//!
//! GET answers 64 bytes, every other command `+OK`. `lab peers` starts this server beside the
//! real ones: Dovetail's own cost is what it costs above this server. The server understands only
//! arrays of bulk strings; anything else closes the connection.
//!
//! `bare_server ADDR auto|block|busy`

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Like Dovetail's workers: it polls for this long after the last work.
const SPIN: Duration = Duration::from_micros(50);
const BUFFER_BYTES: usize = 256 << 10;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LISTENER: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Poll {
    Auto,
    Block,
    Busy,
}

struct Connection {
    socket: TcpStream,
    /// The start of a command whose rest has not arrived.
    rest: Vec<u8>,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let address = words.next().ok_or("usage: bare_server ADDR auto|block|busy")?;
    let poll = match words.next().as_deref() {
        None | Some("auto") => Poll::Auto,
        Some("block") => Poll::Block,
        Some("busy") => Poll::Busy,
        Some(other) => {
            return Err(format!("`{other}` is no way to wait: write auto, block or busy").into());
        }
    };
    let listener =
        TcpListener::bind(&address).map_err(|error| format!("cannot bind {address}: {error}"))?;
    listener.set_nonblocking(true)?;
    serve(&listener, poll)
}

fn serve(listener: &TcpListener, poll: Poll) -> Result<()> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&set, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
    let (mut input, mut output) = (vec![0; BUFFER_BYTES], Vec::with_capacity(BUFFER_BYTES));
    let mut worked_at = Instant::now();
    loop {
        events.clear();
        let spins = poll == Poll::Busy || (poll == Poll::Auto && worked_at.elapsed() < SPIN);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&set, spare_capacity(&mut events), spins.then_some(&now)) {
            Err(Errno::INTR) => continue, // Stopped and continued.
            waited => waited?,
        };
        for event in &events {
            let token = event.data.u64();
            if token == LISTENER {
                accept(listener, &set, &mut connections)?;
                continue;
            }
            let slot = &mut connections[token as usize];
            let is_open =
                slot.as_mut().is_some_and(|connection| answer(connection, &mut input, &mut output));
            if !is_open {
                *slot = None;
            }
        }
        if !events.is_empty() {
            worked_at = Instant::now();
        }
    }
}

fn accept(
    listener: &TcpListener,
    set: &impl std::os::fd::AsFd,
    connections: &mut Vec<Option<Connection>>,
) -> Result<()> {
    while let Ok((socket, _)) = listener.accept() {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let token = epoll::EventData::new_u64(connections.len() as u64);
        epoll::add(set, &socket, token, epoll::EventFlags::IN)?;
        connections.push(Some(Connection { socket, rest: Vec::new() }));
    }
    Ok(())
}

/// Reads once, answers all whole commands with one write; false if the connection is over.
fn answer(connection: &mut Connection, input: &mut [u8], output: &mut Vec<u8>) -> bool {
    let kept = connection.rest.len();
    input[..kept].copy_from_slice(&connection.rest);
    let len = match connection.socket.read(&mut input[kept..]) {
        Ok(0) => return false,
        Ok(len) => kept + len,
        Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
    };
    output.clear();
    let mut at = 0;
    while let Some(command_len) = command_len(&input[at..len]) {
        let command = &input[at..at + command_len];
        if command.get(8..11) == Some(b"GET".as_slice()) {
            output.extend_from_slice(b"$64\r\n");
            output.extend_from_slice(&[b'v'; 64]);
            output.extend_from_slice(b"\r\n");
        } else {
            output.extend_from_slice(b"+OK\r\n");
        }
        at += command_len;
    }
    connection.rest.clear();
    connection.rest.extend_from_slice(&input[at..len]);
    // A client that does not read its replies is not this server's subject.
    let is_sent = output.is_empty() || connection.socket.write_all(output).is_ok();
    is_sent && input.get(at).is_none_or(|first| at == len || *first == b'*')
}

/// The length of the command at the front; `None`: it is not whole.
fn command_len(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = number_line(bytes, 0)?;
    for _ in 0..words {
        let (len, start) = number_line(bytes, at)?;
        at = start.checked_add(len)?.checked_add(2)?;
    }
    (at <= bytes.len()).then_some(at)
}

/// The number of a line such as `*2` or `$16`, and where the next line starts.
fn number_line(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let mut number: usize = 0;
    for (index, byte) in bytes.get(start + 1..)?.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                number = number.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?
            }
            _ => return Some((number, start + index + 3)),
        }
    }
    None
}
