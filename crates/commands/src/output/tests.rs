//! Outputs over a real socket pair: order, short writes, pinned values.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, far)
}

/// Sends everything while the far side reads, and returns what arrived.
fn exchange(output: &mut Output) -> Vec<u8> {
    let (near, mut far) = pair();
    let mut arrived = Vec::new();
    let mut sent_total = 0;
    let want_bytes = output.unsent_bytes();
    while output.send(near.as_fd(), &mut sent_total).unwrap() == Sent::Blocked {
        let mut chunk = [0; 5000];
        let count = far.read(&mut chunk).unwrap();
        arrived.extend_from_slice(&chunk[..count]);
    }
    drop(near);
    far.read_to_end(&mut arrived).unwrap();
    assert_eq!(sent_total, want_bytes as u64);
    arrived
}

#[test]
fn bytes_leave_in_order_through_a_narrow_socket() {
    let want: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut output = Output::default();
    output.append(|out| out.extend_from_slice(&want));
    assert_eq!(exchange(&mut output), want);
    assert!(output.is_empty());
    assert!(output.take_buffer().is_some());
}

#[test]
fn what_is_appended_while_blocked_comes_after() {
    let (near, mut far) = pair();
    let mut output = Output::default();
    let first = vec![b'a'; 2_000_000];
    output.append(|out| out.extend_from_slice(&first));
    let mut sent_total = 0;
    assert_eq!(output.send(near.as_fd(), &mut sent_total).unwrap(), Sent::Blocked);
    assert_eq!(output.unsent_bytes() as u64, 2_000_000 - sent_total);
    output.append(|out| out.push(b'z'));
    let reader = std::thread::spawn(move || {
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).unwrap();
        arrived
    });
    near.set_nonblocking(false).unwrap();
    assert_eq!(output.send(near.as_fd(), &mut sent_total).unwrap(), Sent::All);
    drop(near);
    let arrived = reader.join().unwrap();
    assert_eq!((arrived.len(), arrived.last()), (2_000_001, Some(&b'z')));
}

#[test]
fn what_was_appended_behind_a_place_can_be_forgotten() {
    let mut output = Output::default();
    output.append(|out| out.extend_from_slice(b"kept"));
    let end = output.end();
    output.append(|out| out.extend_from_slice(b"forgotten"));
    output.cut_back(end);
    assert_eq!((output.unsent_bytes(), output.encoded_bytes()), (4, 4));
    output.append(|out| out.extend_from_slice(b" and new"));
    assert_eq!(exchange(&mut output), b"kept and new");
}

#[test]
fn a_place_between_encoded_pieces_is_kept_exactly() {
    let mut output = Output::default();
    output.append(|out| out.extend_from_slice(b"front"));
    output.rest.push_back(Piece::Encoded(b"rest".to_vec()));
    (output.rest_bytes, output.rest_encoded_bytes) = (4, 4);
    let end = output.end();
    output.append(|out| out.extend_from_slice(b"forgotten"));
    output.rest.push_back(Piece::Encoded(b"too".to_vec()));
    output.cut_back(end);
    assert_eq!((output.unsent_bytes(), output.encoded_bytes()), (9, 9));
    assert_eq!(exchange(&mut output), b"frontrest");
}
