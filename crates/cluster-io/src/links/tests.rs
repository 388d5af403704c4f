//! Tests of links between two ends in one process, and of links that are refused.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use cluster::{ClientId, NodeId, Term};
use crossbeam_channel::{Receiver, unbounded};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn node(name: u16, incarnation: u32) -> Peer {
    Peer::Node(NodeId { name, incarnation })
}

struct End {
    links: Links,
    events: Receiver<LinkEvent>,
}

impl End {
    fn new(own: Peer, key: u8) -> End {
        End::listening(own, key, "127.0.0.1:0".parse().unwrap())
    }

    fn listening(own: Peer, key: u8, at: SocketAddr) -> End {
        let (told, events) = unbounded();
        let key = Key::new([key; 16]);
        let links = Links::start(own, Some(at), key, told, || {}).unwrap();
        End { links, events }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::address(&self.links.local_addr().unwrap().to_string())
    }

    fn hear(&self) -> (Peer, LinkId, Message) {
        let event = self.events.recv_timeout(PATIENCE).expect("a message");
        let LinkEvent::Message { from, link, message, .. } = event else { panic!("{event:?}") };
        (from, link, message)
    }

    /// Sends again until the message arrives, as the state machines do.
    fn send_until_heard(&self, other: &End, at: &Endpoint, to: Peer, message: &Message) {
        let started = std::time::Instant::now();
        while other.events.is_empty() {
            assert!(started.elapsed() < PATIENCE, "nothing arrives");
            self.links.send(at, to, message.clone());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn commit(term: u64) -> Message {
    Message::Commit { term: Term(term) }
}

#[test]
fn messages_arrive_in_order_and_are_answered_over_their_link() {
    let (one, two) = (End::new(node(1, 1), 7), End::new(node(2, 1), 7));
    for term in 0..500 {
        assert!(one.links.send(&two.endpoint(), node(2, 1), commit(term)));
    }
    for term in 0..500 {
        let (from, link, message) = two.hear();
        assert_eq!((from, &message), (node(1, 1), &commit(term)));
        two.links.send(&Endpoint::Link(link), from, message);
        let (from, _, message) = one.hear();
        assert_eq!((from, message), (node(2, 1), commit(term)));
    }
}

#[test]
fn a_message_for_another_incarnation_is_not_delivered() {
    let (one, two) = (End::new(node(1, 1), 7), End::new(node(2, 2), 7));
    one.links.send(&two.endpoint(), node(2, 1), commit(1));
    one.links.send(&two.endpoint(), Peer::Manager(0), commit(2));
    one.links.send(&two.endpoint(), node(2, 2), commit(3));
    assert_eq!(two.hear().2, commit(3));
    let manager = End::new(Peer::Manager(3), 7);
    one.links.send(&manager.endpoint(), Peer::Manager(0), commit(4));
    assert_eq!(manager.hear().2, commit(4));
}

#[test]
fn a_large_message_arrives() {
    let (one, two) = (End::new(node(1, 1), 7), End::new(Peer::Client(ClientId(1)), 7));
    let key: Arc<[u8]> = vec![7; 8 << 20].into();
    let message = Message::Fetch { term: Term(1), shard: cluster::ShardId(1), key };
    one.links.send(&two.endpoint(), Peer::Client(ClientId(1)), message.clone());
    assert_eq!(two.hear().2, message);
}

#[test]
fn another_key_is_refused() {
    let (one, two) = (End::new(node(1, 1), 7), End::new(node(2, 1), 8));
    for _ in 0..5 {
        one.links.send(&two.endpoint(), node(2, 1), commit(1));
        two.links.send(&one.endpoint(), node(1, 1), commit(1));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(one.events.is_empty() && two.events.is_empty());
}

#[test]
fn a_peer_that_starts_again_is_linked_again() {
    let one = End::new(node(1, 1), 7);
    let two = End::new(node(2, 1), 7);
    let (at, address) = (two.endpoint(), two.links.local_addr().unwrap());
    one.send_until_heard(&two, &at, node(2, 1), &commit(1));
    drop(two);
    one.links.send(&at, node(2, 1), commit(2));
    let two = End::listening(node(2, 2), 7, address);
    one.send_until_heard(&two, &at, node(2, 2), &commit(3));
    assert_eq!(two.hear().2, commit(3));
}

#[test]
fn another_format_is_answered_with_ours_and_refused() {
    let one = End::new(node(1, 1), 7);
    let mut stream = TcpStream::connect(one.links.local_addr().unwrap()).unwrap();
    stream.write_all(b"DTLK\x09\x00").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[..6], *b"DTLK\x01\x00");
    assert!(one.events.is_empty());
}

#[test]
fn a_dialled_peer_of_another_format_is_left_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = End::new(node(1, 1), 7);
    let at = Endpoint::address(&listener.local_addr().unwrap().to_string());
    one.links.send(&at, node(2, 1), commit(1));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"DTLK\x09\x00 and what only that format knows").unwrap();
    let mut heard = Vec::new();
    // Closed, perhaps with unread bytes.
    let _ = stream.read_to_end(&mut heard);
    assert_eq!(heard.len(), 31, "one hello and no more");
}

#[test]
fn noise_is_cut_off_and_others_are_served() {
    let (one, two) = (End::new(node(1, 1), 7), End::new(node(2, 1), 7));
    let at = two.links.local_addr().unwrap();
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"DTLK\x01\x00", &[0xff; 400]] {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(noise).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 100);
    }
    let silent = TcpStream::connect(at).unwrap();
    one.links.send(&two.endpoint(), node(2, 1), commit(1));
    assert_eq!(two.hear().2, commit(1));
    drop(silent);
}

/// A relay between two links; it sees each byte and may send some again.
#[test]
fn a_frame_that_is_sent_again_ends_the_link() {
    let (one, two) = (End::new(node(1, 1), 7), End::new(node(2, 1), 7));
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::address(&between.local_addr().unwrap().to_string());
    one.links.send(&at, node(2, 1), commit(1));
    let (mut inward, _) = between.accept().unwrap();
    let mut outward = TcpStream::connect(two.links.local_addr().unwrap()).unwrap();
    let mut carry = |bytes: usize, to_two: bool| {
        let (from, to) =
            if to_two { (&mut inward, &mut outward) } else { (&mut outward, &mut inward) };
        let mut buffer = vec![0; bytes];
        from.read_exact(&mut buffer).unwrap();
        to.write_all(&buffer).unwrap();
        buffer
    };
    carry(31, true);
    carry(31 + 16, false);
    carry(16, true);
    let len = carry(4, true);
    let rest = carry(u32::from_le_bytes(len.clone().try_into().unwrap()) as usize + 16, true);
    assert_eq!(two.hear().2, commit(1));
    outward.write_all(&len).unwrap();
    outward.write_all(&rest).unwrap();
    let mut answer = Vec::new();
    // Closed, perhaps after a sign of life.
    let _ = outward.read_to_end(&mut answer);
    assert!(two.events.is_empty(), "{answer:?}");
}

#[test]
fn questions_are_answered_over_their_link() {
    let (one, two) = (End::new(Peer::Client(ClientId(1)), 7), End::new(Peer::Manager(0), 7));
    one.links.ask(&two.endpoint(), 5, b"status".to_vec());
    let event = two.events.recv_timeout(PATIENCE).unwrap();
    let LinkEvent::Ask { link, id, bytes } = event else { panic!("{event:?}") };
    assert_eq!((id, &bytes[..]), (5, &b"status"[..]));
    two.links.answer(link, id, b"well".to_vec());
    let event = one.events.recv_timeout(PATIENCE).unwrap();
    assert_eq!(event, LinkEvent::Answer { id: 5, bytes: b"well".to_vec() });
}

#[test]
fn long_messages_wait_up_to_a_bound_and_short_ones_beside_them() {
    const LONG_BYTES: usize = 1 << 20;
    let one = End::new(node(1, 1), 7);
    // A peer that accepts a connection and proves nothing, so that all messages to it wait.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::address(&silent.local_addr().unwrap().to_string());
    let booked = Arc::new(());
    let mut refused_count = 0;
    for id in 0..32 {
        let message = Message::Forward { id, bytes: vec![0; LONG_BYTES].into() };
        let hold = Hold::new(Arc::clone(&booked));
        refused_count += u32::from(!one.links.send_held(&at, node(2, 1), message, hold));
        let waiting_count = Arc::strong_count(&booked) - 1;
        assert!(waiting_count <= WAITING_BYTES_MAX / LONG_BYTES, "L6: {waiting_count}");
        assert!(one.links.send(&at, node(2, 1), commit(id)));
    }
    assert!(refused_count > 0, "L6");
    drop(one);
    assert_eq!(Arc::strong_count(&booked), 1, "what never left is booked no more");
}
