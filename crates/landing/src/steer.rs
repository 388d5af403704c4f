//! Steering: picks the socket of a group that receives a datagram, by the owner of its partition
//! (decision 0044).
//!
//! ```text
//!   native datagram   0    2 3 4        6                socket_of(partition, n)
//!                     ├────┼─┼─┼────────┼────            = partition mod n
//!                     │"DV"│ │ │partition│ ...           0xffff: a random one
//!                     └────┴─┴─┴────────┴────
//! ```
//!
//! All sockets of a group are bound to one address with SO_REUSEPORT. A classic BPF program of nine
//! instructions reads the partition, little-endian at byte 4 of the payload, and picks the socket.
//! A datagram too short to have a partition goes to socket 0. The program can be replaced while
//! datagrams arrive: that changes `n`; sockets from the new `n` on then receive nothing more.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The partition of a datagram that any socket may take.
pub const ANY_PARTITION: u16 = 0xffff;

/// The offset of the partition in the payload.
pub const PARTITION_OFFSET_BYTES: usize = 4;

/// The socket that owns a partition, of `socket_count`: the group's program computes it, and so can
/// a client. `None` for [`ANY_PARTITION`]: a random one.
pub fn socket_of(partition: u16, socket_count: u16) -> Option<u16> {
    (partition != ANY_PARTITION).then(|| partition % socket_count)
}

/// Opens `socket_count` sockets at one address, socket `i` at index `i`, with the program that
/// steers between them. Port 0 picks a port for all of them. They belong together: closing one
/// changes the others' positions in the group.
pub fn group(address: SocketAddr, socket_count: u16) -> io::Result<Vec<UdpSocket>> {
    let sockets = unsteered(address, socket_count)?;
    if let Some(first) = sockets.first() {
        steer(first, socket_count)?;
    }
    Ok(sockets)
}

/// As [`group`], but without steering: datagrams are distributed by the hash of their addresses.
pub fn unsteered(address: SocketAddr, socket_count: u16) -> io::Result<Vec<UdpSocket>> {
    let mut address = address;
    let mut sockets = Vec::with_capacity(usize::from(socket_count));
    for _ in 0..socket_count {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_port(true)?;
        socket.bind(&SockAddr::from(address))?;
        let socket = UdpSocket::from(socket);
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Steers a group by `partition mod socket_count` from now on. Any socket of the group will do.
pub fn steer(member: &UdpSocket, socket_count: u16) -> io::Result<()> {
    if socket_count == 0 {
        let message = "datagrams are steered to at least one socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    attach(member, &mut program(socket_count))
}

/// Steers each datagram of a group to a random one of the first `socket_count`, from now on: for
/// protocols that any of them can serve.
pub fn spread(member: &UdpSocket, socket_count: u16) -> io::Result<()> {
    if socket_count == 0 {
        let message = "datagrams are spread over at least one socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    attach(member, &mut anywhere(socket_count))
}

/// Steers a group by one byte of the payload: datagrams with a 0 there go to socket 0, all others
/// to one of the `others` after it, by `(byte - 1) mod others`.
pub fn steer_apart(member: &UdpSocket, offset_bytes: u32, others: u16) -> io::Result<()> {
    if others == 0 {
        let message = "what is steered apart has somewhere to go";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    attach(member, &mut apart(offset_bytes, others))
}

fn attach(member: &UdpSocket, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let argument = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the option's value is a `sock_fprog`, whose instructions live during the call, in
    // which the kernel copies them.
    let code = unsafe {
        libc::setsockopt(
            member.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const argument).cast(),
            size_of_val(&argument) as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The program. Offsets count from the payload; a load beyond its end returns 0, socket 0.
fn program(socket_count: u16) -> [libc::sock_filter; 9] {
    let low = PARTITION_OFFSET_BYTES as u32;
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
    let byte = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    [
        step(byte, low + 1),
        step(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 8),
        step(libc::BPF_MISC | libc::BPF_TAX, 0),
        step(byte, low),
        step(libc::BPF_ALU | libc::BPF_OR | libc::BPF_X, 0),
        // Unless it is "any", skip one step.
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: u32::from(ANY_PARTITION),
        },
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random),
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(socket_count)),
        step(libc::BPF_RET | BPF_A, 0),
    ]
}

/// The program of [`spread`].
fn anywhere(socket_count: u16) -> [libc::sock_filter; 3] {
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random),
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(socket_count)),
        step(libc::BPF_RET | BPF_A, 0),
    ]
}

/// The program of [`steer_apart`].
fn apart(offset_bytes: u32, others: u16) -> [libc::sock_filter; 6] {
    // A load beyond the end returns 0, socket 0, too.
    let is_first = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset_bytes),
        libc::sock_filter { code: is_first, jt: 3, jf: 0, k: 0 },
        step(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 1),
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(others)),
        step(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 1),
        step(libc::BPF_RET | BPF_A, 0),
    ]
}

/// "Return the accumulator."
const BPF_A: u32 = 0x10;

fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests;
