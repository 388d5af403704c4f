//! Long messages over loopback TCP, with and without a copy in the kernel's send call.
//!
//! `cargo bench -p landing --bench zero_copy`. On loopback the kernel copies in spite of the flag,
//! and reports it. The bench measures the cost of the attempt there, which is why zero copy turns
//! itself off. CPU time of the sending thread, and of both sides together (K21).

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use landing::uring::{Uring, UringConfig};
use landing::{Pinned, Transport, ZeroCopy, Zone, ZoneSize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

const ROUND_BYTES: usize = 512 << 20;
const ROUNDS: usize = 3;

/// The way a message is sent.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// `send`.
    Send,
    /// `send` with MSG_ZEROCOPY, its notifications read from the error queue.
    SendZeroCopy,
    /// io_uring, a pinned value.
    Uring,
    /// The same by SENDMSG_ZC, whatever the kernel reports.
    UringZeroCopy,
}

#[derive(Clone, Copy)]
struct Cost {
    sender: Duration,
    both: Duration,
    copied_pct: u64,
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A thread that reads everything that arrives.
fn connection() -> io::Result<(TcpStream, std::thread::JoinHandle<io::Result<usize>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut reader = TcpStream::connect(listener.local_addr()?)?;
    let (socket, _) = listener.accept()?;
    let reading = std::thread::spawn(move || {
        let (mut total, mut chunk) = (0, vec![0; 1 << 18]);
        loop {
            match reader.read(&mut chunk)? {
                0 => return Ok(total),
                count => total += count,
            }
        }
    });
    Ok((socket, reading))
}

/// Sends by the socket's own calls; returns how many messages were sent without a copy, and copied.
fn by_calls(socket: &TcpStream, message: &[u8], count: usize, flag: i32) -> io::Result<(u64, u64)> {
    let descriptor = socket.as_raw_fd();
    if flag != 0 {
        socket2::SockRef::from(socket).set_tcp_nodelay(true)?;
        let on: libc::c_int = 1;
        // SAFETY: the option's value is a C int, which is read during the call.
        let code = unsafe {
            libc::setsockopt(
                descriptor,
                libc::SOL_SOCKET,
                libc::SO_ZEROCOPY,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let (mut taken, mut let_go, mut copied) = (0, 0, 0);
    for _ in 0..count {
        let mut left = message;
        while !left.is_empty() {
            let flags = libc::MSG_NOSIGNAL | flag;
            // SAFETY: the bytes are alive, and are not changed before the bench ends.
            let sent = unsafe { libc::send(descriptor, left.as_ptr().cast(), left.len(), flags) };
            match usize::try_from(sent) {
                Ok(sent) => left = &left[sent..],
                // Too many messages wait for their notification.
                Err(_) if flag != 0 && taken > let_go => {}
                Err(_) => return Err(io::Error::last_os_error()),
            }
            taken += u64::from(flag != 0 && sent > 0);
        }
        while flag != 0 && taken - let_go > 16 {
            notifications(descriptor, &mut let_go, &mut copied);
        }
    }
    while flag != 0 && let_go < taken {
        notifications(descriptor, &mut let_go, &mut copied);
    }
    Ok((let_go, copied))
}

/// Reads one entry of the error queue, if there is one.
fn notifications(descriptor: i32, let_go: &mut u64, copied: &mut u64) {
    let mut control = [0_u64; 16];
    // SAFETY: a `msghdr` of zeros is valid: null pointers and lengths of 0.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to a control area of the length that it states.
    if unsafe { libc::recvmsg(descriptor, &raw mut header, flags) } < 0 {
        std::thread::yield_now();
        return;
    }
    // SAFETY: the kernel has filled the control area and said how far.
    let control = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    if control.is_null() {
        return;
    }
    // SAFETY: the message of an error queue is a `sock_extended_err`, which lies in the area.
    let data = unsafe { libc::CMSG_DATA(control) }.cast::<libc::sock_extended_err>();
    // SAFETY: as above.
    let error = unsafe { data.read_unaligned() };
    let count = u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1;
    *let_go += count;
    *copied += if error.ee_code == 1 { count } else { 0 };
}

fn by_uring(
    socket: TcpStream,
    message: &Arc<[u8]>,
    count: usize,
    zero_copy: ZeroCopy,
) -> io::Result<(u64, u64)> {
    let size = ZoneSize { buffer_bytes: 1 << 16, buffer_count: 4, completions_max: 64 };
    let mut zone = Zone::ring(size, Box::new(|_| true))?;
    let mut uring = Uring::new(&mut zone, UringConfig { zero_copy, ..UringConfig::default() })
        .map_err(|unavailable| io::Error::other(unavailable.to_string()))?;
    let polled = socket.try_clone()?;
    let lane = uring.add_stream(socket)?;
    for _ in 0..count {
        let mut value: Box<dyn Pinned> = Box::new(Arc::clone(message));
        while let Err((_, refused)) = uring.queue_pinned(lane.into(), b"", value) {
            uring.flush()?;
            value = refused;
        }
        while uring.unsettled() > 16 || uring.queued() > 0 {
            uring.flush()?;
            wait_until_writable(&polled)?;
        }
    }
    while uring.unsettled() > 0 {
        uring.flush()?;
        wait_until_writable(&polled)?;
    }
    let counters = uring.zero_copy_counters();
    Ok((counters.let_go, counters.copied))
}

/// Sleeps while the socket's buffer is full, so that waiting costs nothing for either way of
/// sending.
fn wait_until_writable(socket: &TcpStream) -> io::Result<()> {
    let at_most = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&at_most))?;
    Ok(())
}

fn run(kind: Kind, message: &Arc<[u8]>) -> io::Result<Cost> {
    let (socket, reading) = connection()?;
    let count = ROUND_BYTES / message.len();
    let (sender, both) = (time_of(ClockId::ThreadCPUTime), time_of(ClockId::ProcessCPUTime));
    let (let_go, copied) = match kind {
        Kind::Send => by_calls(&socket, message, count, 0)?,
        Kind::SendZeroCopy => by_calls(&socket, message, count, libc::MSG_ZEROCOPY)?,
        Kind::Uring => by_uring(socket.try_clone()?, message, count, ZeroCopy::Never)?,
        Kind::UringZeroCopy => {
            by_uring(socket.try_clone()?, message, count, ZeroCopy::AlwaysFrom { bytes: 1 })?
        }
    };
    let sender = time_of(ClockId::ThreadCPUTime) - sender;
    socket.shutdown(std::net::Shutdown::Write)?;
    let total = reading.join().expect("the reader ran")?;
    assert_eq!(total, count * message.len(), "all of it arrived");
    let both = time_of(ClockId::ProcessCPUTime) - both;
    let copied_pct = (copied * 100).checked_div(let_go).unwrap_or_default();
    let each = count as u32;
    Ok(Cost { sender: sender / each, both: both / each, copied_pct })
}

fn main() -> io::Result<()> {
    println!("{} MiB of messages over loopback TCP, best of {ROUNDS} rounds", ROUND_BYTES >> 20);
    println!("bytes     way            sender us  both us  copied after all");
    for len_bytes in [8 << 10, 64 << 10, 1 << 20] {
        let message: Arc<[u8]> = vec![7; len_bytes].into();
        let kinds = [Kind::Send, Kind::SendZeroCopy, Kind::Uring, Kind::UringZeroCopy];
        let mut best = [None::<Cost>; 4];
        for _ in 0..ROUNDS {
            for (kind, best) in kinds.iter().zip(&mut best) {
                let cost = run(*kind, &message)?;
                let best = best.get_or_insert(cost);
                best.sender = best.sender.min(cost.sender);
                best.both = best.both.min(cost.both);
            }
        }
        for (kind, cost) in kinds.iter().zip(best.into_iter().flatten()) {
            let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
            print!("{len_bytes:<8}  {kind:<13?}  {:9.2}  ", us(cost.sender));
            println!("{:7.2}  {:>3} %", us(cost.both), cost.copied_pct);
        }
    }
    Ok(())
}
