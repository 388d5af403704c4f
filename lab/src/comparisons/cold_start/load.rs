//! Writes in pipelines: every key once, or random keys until the server is killed.

use std::io::{BufWriter, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Requests that are sent before their answers are read.
const PIPELINE: u64 = 1000;
const CONNECTIONS: u64 = 2;
const OK: &[u8] = b"+OK\r\n";

/// Stores every key once; returns the time it took.
pub fn fill(port: u16, entries: u64, value_size: usize) -> Result<Duration> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let halves = (0..CONNECTIONS).map(|at| {
            let keys = entries * at / CONNECTIONS..entries * (at + 1) / CONNECTIONS;
            scope.spawn(move || {
                let mut writer = Writer::connect(port, value_size)?;
                let (mut next, end) = (keys.start, keys.end);
                while next < end {
                    let to = end.min(next + PIPELINE);
                    writer.write(next..to)?;
                    next = to;
                }
                anyhow::Ok(())
            })
        });
        let halves: Vec<_> = halves.collect();
        halves.into_iter().try_for_each(|half| half.join().expect("no thread panics"))
    })?;
    Ok(began.elapsed())
}

/// Stores keys drawn by a fixed seed for this long. The last pipeline is left unread, so that a
/// kill hits writes.
pub fn overwrite(port: u16, (entries, value_size): (u64, usize), time: Duration) -> Result<()> {
    let mut writer = Writer::connect(port, value_size)?;
    let (began, mut state) = (Instant::now(), 1_u64);
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 16) % entries
    };
    while began.elapsed() < time {
        writer.write((0..PIPELINE).map(|_| draw()))?;
    }
    writer.send((0..PIPELINE).map(|_| draw()))?;
    Ok(())
}

struct Writer {
    stream: TcpStream,
    value: Vec<u8>,
}

impl Writer {
    fn connect(port: u16, value_size: usize) -> Result<Writer> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Writer { stream, value: vec![b'v'; value_size] })
    }

    /// Sends and reads the answers.
    fn write(&mut self, keys: impl Iterator<Item = u64>) -> Result<()> {
        let count = self.send(keys)?;
        let mut answers = vec![0; count * OK.len()];
        self.stream.read_exact(&mut answers)?;
        ensure!(answers.chunks(OK.len()).all(|answer| answer == OK), "a SET was refused");
        Ok(())
    }

    /// How many.
    fn send(&mut self, keys: impl Iterator<Item = u64>) -> Result<usize> {
        let mut out = BufWriter::with_capacity(1 << 18, &self.stream);
        let mut count = 0;
        for key in keys {
            write!(out, "*3\r\n$3\r\nSET\r\n$16\r\n{key:016x}\r\n${}\r\n", self.value.len())?;
            out.write_all(&self.value)?;
            out.write_all(b"\r\n")?;
            count += 1;
        }
        out.flush()?;
        Ok(count)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stream.shutdown(Shutdown::Both).ok();
    }
}
