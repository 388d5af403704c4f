//! The kernel agrees with `socket_of`.

use super::*;

fn datagram(partition: u16) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(b"DV\x01\x03");
    bytes[4..6].copy_from_slice(&partition.to_le_bytes());
    bytes
}

/// The socket that has a datagram waiting, which is taken. Loopback delivers inside the send call.
fn arrived_at(sockets: &[UdpSocket]) -> Option<usize> {
    let mut bytes = [0; 64];
    sockets.iter().position(|socket| socket.recv(&mut bytes).is_ok())
}

fn open(address: &str, socket_count: u16) -> (Vec<UdpSocket>, UdpSocket) {
    let address: SocketAddr = address.parse().unwrap();
    let sockets = group(address, socket_count).unwrap();
    for socket in &sockets {
        socket.set_nonblocking(true).unwrap();
    }
    let client = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
    client.connect(sockets[0].local_addr().unwrap()).unwrap();
    (sockets, client)
}

#[test]
fn the_kernel_picks_the_owner_of_every_partition() {
    for (address, socket_count) in [("127.0.0.1:0", 4), ("127.0.0.1:0", 3), ("[::1]:0", 4)] {
        let (sockets, client) = open(address, socket_count);
        for partition in (0..4000).chain([0x1234, 0xfffe]) {
            client.send(&datagram(partition)).unwrap();
            let want = socket_of(partition, socket_count).map(usize::from);
            assert_eq!(arrived_at(&sockets), want, "partition {partition} of {socket_count}");
        }
    }
}

#[test]
fn datagrams_for_any_worker_reach_every_worker() {
    assert_eq!(socket_of(ANY_PARTITION, 4), None);
    let (sockets, client) = open("127.0.0.1:0", 4);
    let mut counts = [0_u32; 4];
    for _ in 0..400 {
        client.send(&datagram(ANY_PARTITION)).unwrap();
        counts[arrived_at(&sockets).unwrap()] += 1;
    }
    // The probability that one of four gets fewer than 40 of 400 is below 1 in 10^12.
    assert!(counts.iter().all(|count| *count >= 40), "{counts:?}");
}

#[test]
fn what_is_spread_reaches_the_first_sockets_and_no_others() {
    let (sockets, client) = open("127.0.0.1:0", 4);
    spread(&sockets[0], 3).unwrap();
    let mut counts = [0_u32; 4];
    for _ in 0..400 {
        client.send(&datagram(1)).unwrap();
        counts[arrived_at(&sockets).unwrap()] += 1;
    }
    // The probability that one of three gets fewer than 50 of 400 is below 1 in 10^15.
    assert!(counts[..3].iter().all(|count| *count >= 50), "{counts:?}");
    assert_eq!(counts[3], 0);
    assert!(spread(&sockets[0], 0).is_err());
}

#[test]
fn a_datagram_without_a_partition_goes_to_the_first() {
    let (sockets, client) = open("127.0.0.1:0", 4);
    for len in 0..=5 {
        client.send(&datagram(3)[..len]).unwrap();
        assert_eq!(arrived_at(&sockets), Some(0), "{len} bytes");
    }
}

#[test]
fn the_group_is_steered_anew_while_it_is_open() {
    let (sockets, client) = open("127.0.0.1:0", 4);
    for socket_count in [2, 3, 1, 4] {
        steer(&sockets[0], socket_count).unwrap();
        for partition in 0..40 {
            client.send(&datagram(partition)).unwrap();
            let want = socket_of(partition, socket_count).map(usize::from);
            assert_eq!(arrived_at(&sockets), want);
        }
    }
    assert!(steer(&sockets[0], 0).is_err());
}
