//! Native clients over UDP: raw sockets and the codec, against a server on a free port.

use super::support::native::{Answer, Peer, config, get, set};
use super::support::{PATIENCE, TestServer, command, pattern};
use server::{Config, IndexKind, Server};
use wire::native::{
    Condition, Direction, Expiry, Item, ItemValue, Items, Op, Part, Pull, PullStep, Range,
    RangeItems, Reason, Request, RequestId, Set, Span, Status, Want, push_spans,
};

fn start() -> TestServer {
    TestServer::with(config())
}

fn native(server: &TestServer) -> counters::NativeTotals {
    server.server().shared().totals().native
}

#[test]
fn a_set_is_read_back_in_one_frame() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let replies = peer.ask(&[set(b"key", b"value"), get(b"key"), get(b"none")]);
    assert_eq!(replies[0].status, Status::Ok);
    assert_eq!((replies[1].status, &replies[1].value[..]), (Status::Ok, &b"value"[..]));
    assert_eq!(replies[2].status, Status::Miss);
}

#[test]
fn native_redis_and_memcached_clients_share_their_keys() {
    let server = start();
    let mut peer = Peer::connect(&server);
    peer.ask(&[set(b"shared", b"12")]);
    server.resp().ask("*2\r\n$3\r\nGET\r\n$6\r\nshared\r\n", "$2\r\n12\r\n");
    server.memcached().ask("incr shared 5\r\n", "17\r\n");
    assert_eq!(peer.ask(&[get(b"shared")])[0].value, b"17");
}

#[test]
fn a_pipeline_of_many_frames_is_answered_whole() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let keys: Vec<String> = (0..2000).map(|index| format!("key:{index}")).collect();
    for chunk in keys.chunks(20) {
        let sets: Vec<Request<'_>> =
            chunk.iter().map(|key| set(key.as_bytes(), key.as_bytes())).collect();
        for reply in peer.ask(&sets) {
            assert_eq!(reply.status, Status::Ok);
        }
    }
    for chunk in keys.chunks(20) {
        let gets: Vec<Request<'_>> = chunk.iter().map(|key| get(key.as_bytes())).collect();
        for (reply, key) in peer.ask(&gets).iter().zip(chunk) {
            assert_eq!(reply.value, key.as_bytes());
        }
    }
    assert!(native(&server).requests >= 4000);
}

#[test]
fn a_get_answers_what_is_wanted_and_no_more() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let expiry = Expiry::AfterMs(100_000);
    let stored = Set { client_flags: 7, expiry, ..plain(b"k", b"value") };
    let asked = Request { want: Want::VERSION, ..request(Op::Set(stored)) };
    let version = peer.ask(&[asked])[0].version.unwrap();
    let bare = peer.ask(&[get(b"k")]).remove(0);
    assert_eq!((bare.version, bare.client_flags, bare.expires_at), (None, 0, None));
    let want = Want::VERSION | Want::CLIENT_FLAGS | Want::EXPIRY | Want::NO_VALUE;
    let full = peer.ask(&[Request { want, ..get(b"k") }]).remove(0);
    assert_eq!((full.version, full.client_flags), (Some(version), 7));
    assert_eq!((full.number, full.value.len()), (Some(5), 0));
    assert!(full.expires_at.is_some());
}

#[test]
fn conditions_and_versions_hold() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let mut status = |condition, value: &'static [u8]| {
        let set = Set { condition, ..plain(b"k", value) };
        peer.ask(&[Request { want: Want::VERSION, ..request(Op::Set(set)) }]).remove(0)
    };
    assert_eq!(status(Condition::IfPresent, b"1").status, Status::NotStored);
    assert_eq!(status(Condition::IfVersion(3), b"1").status, Status::Miss);
    let version = status(Condition::IfAbsent, b"1").version.unwrap();
    assert_eq!(status(Condition::IfAbsent, b"2").status, Status::NotStored);
    let other = status(Condition::IfVersion(version + 1), b"2");
    assert_eq!((other.status, other.version), (Status::VersionMismatch, Some(version)));
    assert_eq!(status(Condition::IfVersion(version), b"2").status, Status::Ok);
    let delete = |version| request(Op::Delete { key: b"k", version });
    let other = peer.ask(&[delete(Some(version))]).remove(0);
    assert_eq!(other.status, Status::VersionMismatch);
    let now = other.version.unwrap();
    let ended = peer.ask(&[delete(Some(now)), delete(Some(now)), delete(None)]);
    let found: Vec<Status> = ended.iter().map(|reply| reply.status).collect();
    assert_eq!(found, [Status::Ok, Status::Miss, Status::Miss]);
}

#[test]
fn numbers_texts_and_expiries_are_changed_in_place() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let number = |peer: &mut Peer, op| {
        let reply = peer.ask(&[request(op)]).remove(0);
        (reply.status, reply.number)
    };
    let incr = |delta| Op::Incr { key: b"n", delta };
    assert_eq!(number(&mut peer, incr(5)), (Status::Ok, Some(5)));
    assert_eq!(number(&mut peer, incr(-7)), (Status::Ok, Some(-2)));
    assert_eq!(number(&mut peer, incr(i64::MIN)), (Status::OutOfRange, None));
    let append = Op::Append { key: b"t", value: b"cd" };
    assert_eq!(number(&mut peer, append), (Status::Ok, Some(2)));
    let prepend = Op::Prepend { key: b"t", value: b"ab" };
    assert_eq!(number(&mut peer, prepend), (Status::Ok, Some(4)));
    assert_eq!(peer.ask(&[get(b"t")])[0].value, b"abcd");
    assert_eq!(number(&mut peer, Op::Incr { key: b"t", delta: 1 }), (Status::NotANumber, None));
    let touch = |expiry| Op::Touch { key: b"t", expiry };
    assert_eq!(number(&mut peer, touch(Expiry::Keep)).0, Status::Ok);
    assert_eq!(number(&mut peer, touch(Expiry::AfterMs(60_000))).0, Status::Ok);
    let want = Want::EXPIRY;
    assert!(peer.ask(&[Request { want, ..get(b"t") }])[0].expires_at.is_some());
    let touching = Op::Get { key: b"t", touch: Some(Expiry::Never) };
    let touched = peer.ask(&[Request { want, ..request(touching) }]).remove(0);
    assert_eq!((&touched.value[..], touched.expires_at), (&b"abcd"[..], None));
    let none = Op::Touch { key: b"none", expiry: Expiry::Keep };
    assert_eq!(number(&mut peer, none).0, Status::Miss);
    let passed = Op::Touch { key: b"t", expiry: Expiry::At(base::UnixMillis(1)) };
    assert_eq!(number(&mut peer, passed).0, Status::Ok);
    assert_eq!(peer.ask(&[get(b"t")])[0].status, Status::Miss);
}

#[test]
fn a_write_that_comes_again_is_answered_from_memory() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let incr = Request { id: RequestId::Once(0), ..request(Op::Incr { key: b"n", delta: 1 }) };
    for _ in 0..3 {
        // A client whose answers are lost sends the request again in a new frame.
        assert_eq!(peer.ask(&[incr])[0].number, Some(1));
    }
    assert_eq!(native(&server).answered_again, 2);
    peer.floor = 1;
    let next = Request { id: RequestId::Once(1), ..incr };
    assert_eq!(peer.ask(&[next])[0].number, Some(2));
    // Below the floor: dropped, since the client has its answer.
    peer.send(&[incr]);
    peer.wait_for(|| native(&server).dropped_copies == 1);
    assert_eq!(peer.ask(&[get(b"n")])[0].value, b"2");
}

#[test]
fn a_write_that_was_given_up_never_happens_behind_a_read_that_says_so() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let late = Request { id: RequestId::Once(0), ..set(b"k", b"late") };
    // The frame is on its way for long; meanwhile its client gives the write up and reads.
    let frame = peer.frame(&[late]);
    peer.floor = 1;
    assert_eq!(peer.ask(&[get(b"k")])[0].status, Status::Miss);
    peer.socket.send(&frame).unwrap();
    peer.wait_for(|| native(&server).dropped_copies == 1);
    assert_eq!(peer.ask(&[get(b"k")])[0].status, Status::Miss);
}

#[test]
fn a_copy_in_the_same_frame_takes_effect_once() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let append = Op::Append { key: b"t", value: b"x" };
    let append = Request { id: RequestId::Once(0), ..request(append) };
    peer.send(&[append, append]);
    assert_eq!(peer.receive().len(), 1);
    assert_eq!(peer.ask(&[get(b"t")])[0].value, b"x");
}

/// A frame of long work holds its worker for a turn (K28): the rest is not executed, and takes
/// effect once when it comes again.
#[test]
fn appends_to_a_large_value_beyond_a_turns_work_are_busy_and_may_come_again() {
    const LARGE_BYTES: usize = 2 << 20;
    let server = start();
    let (mut resp, mut peer) = (server.resp(), Peer::connect(&server));
    resp.ask(command(&[b"SET", b"t", &vec![b'x'; LARGE_BYTES]]), "+OK\r\n");
    let append = Op::Append { key: b"t", value: b"x" };
    let mut waiting: Vec<u32> = (0..40).collect();
    let mut frame_count = 0;
    while !waiting.is_empty() {
        let once = |number: &u32| Request { id: RequestId::Once(*number), ..request(append) };
        peer.send(&waiting.iter().map(once).collect::<Vec<_>>());
        let answers = peer.receive();
        let is_busy = |answer: &&Answer| answer.status == Status::Busy;
        assert!(answers.iter().all(|answer| [Status::Ok, Status::Busy].contains(&answer.status)));
        // All of a frame may be busy, where it comes in the turn of the one before.
        assert!(frame_count < 100_000, "{} of 40 are left", waiting.len());
        waiting = answers
            .iter()
            .filter(is_busy)
            .map(|answer| match answer.id {
                RequestId::Once(number) => number,
                id => panic!("{id:?}"),
            })
            .collect();
        frame_count += 1;
    }
    // 2 + 2 MiB each: two are a turn's work, and eight go to the store together.
    assert!(frame_count >= 5, "{frame_count} frames");
    resp.ask("STRLEN t\r\n", format!(":{}\r\n", LARGE_BYTES + 40));
}

#[test]
fn a_number_far_above_the_floor_is_refused() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let once = |number| Request { id: RequestId::Once(number), ..set(b"k", b"v") };
    let beyond = peer.welcome.once_window;
    assert_eq!(peer.ask(&[once(beyond)])[0].status, Status::OutsideWindow);
    assert_eq!(peer.ask(&[once(beyond - 1)])[0].status, Status::Ok);
}

#[test]
fn a_large_value_comes_and_goes_in_parts_whatever_is_lost() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let value = pattern(300_001);
    let total = value.len() as u32;
    let spans: Vec<Span> = push_spans(total, 1280).collect();
    // The first third of the parts is sent twice, and all of them out of order.
    let (mut done, mut sent) = (0, spans.clone());
    sent.extend_from_slice(&spans[..spans.len() / 3]);
    sent.reverse();
    for span in sent {
        let (start, end) = (span.offset as usize, (span.offset + span.len_bytes) as usize);
        let part = Some(span.part_of(total));
        let set = Set { part, ..plain(b"large", &value[start..end]) };
        let asked = Request { id: RequestId::Once(0), ..request(Op::Set(set)) };
        let reply = peer.ask(&[asked]).remove(0);
        done += usize::from(reply.status == Status::Ok);
        assert!(matches!(reply.status, Status::Ok | Status::PartTaken), "{reply:?}");
    }
    assert!(done >= 1, "the last part that was missing executes the set");
    assert_eq!(native(&server).transfer_bytes, 0);
    assert!(peer.pull(b"large") == value);
}

#[test]
fn a_value_that_changes_while_it_is_pulled_is_begun_again() {
    let server = start();
    let mut peer = Peer::connect(&server);
    server.resp().ask(crate::support::command(&[b"SET", b"k", &[b'a'; 20_000]]), "+OK\r\n");
    let first = peer.ask(&[get(b"k")]).remove(0);
    let mut pull = Pull::begin(&first.reply(), 1280, 1 << 20).unwrap();
    server.resp().ask(crate::support::command(&[b"SET", b"k", &[b'b'; 20_000]]), "+OK\r\n");
    let span = pull.next_span().unwrap();
    let asked = Op::Pull { key: b"k", version: pull.version(), span };
    let reply = peer.ask(&[request(asked)]).remove(0);
    assert_eq!(pull.accept(span, &reply.reply()), Ok(PullStep::Changed));
    assert!(peer.pull(b"k") == [b'b'; 20_000]);
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let mut status = |number, part, len_bytes: usize| {
        let value = vec![1; len_bytes];
        let set = Set { part: Some(part), ..plain(b"k", &value) };
        peer.ask(&[Request { id: RequestId::Once(number), ..request(Op::Set(set)) }])[0].status
    };
    assert_eq!(status(0, Part { offset: 32, total: 4096 }, 64), Status::Malformed);
    assert_eq!(status(1, Part { offset: 0, total: u32::MAX }, 64), Status::TooLarge);
    assert_eq!(status(2, Part { offset: 0, total: 4096 }, 64), Status::PartTaken);
    assert_eq!(status(2, Part { offset: 0, total: 8192 }, 64), Status::Malformed);
}

#[test]
fn ranges_come_in_pages() {
    let server = TestServer::with(Config { index: IndexKind::Tree, ..config() });
    let mut peer = Peer::connect(&server);
    for index in 0..200 {
        let (key, value) = (format!("k{index:03}"), vec![index as u8; 40]);
        peer.ask(&[set(key.as_bytes(), &value)]);
    }
    peer.ask(&[set(b"k050a", &[0; 3000])]);
    let mut resume = b"k".to_vec();
    let mut found = Vec::new();
    loop {
        let range = Range {
            start: std::ops::Bound::Excluded(&resume),
            end: std::ops::Bound::Unbounded,
            direction: Direction::Forward,
            items: RangeItems::Whole,
            item_limit: 1000,
        };
        let page = peer.ask(&[request(Op::Range(range))]).remove(0);
        assert_eq!(page.status, Status::Ok);
        let items = Items::new(&page.value);
        found.extend(items.map(|Item { key, value }| (key.to_vec(), value == left_out(3000))));
        match page.resume_key {
            Some(key) => resume = key,
            None => break,
        }
    }
    assert_eq!(found.len(), 201);
    assert!(found.is_sorted());
    let left_out: Vec<_> = found.iter().filter(|(_, is_left_out)| *is_left_out).collect();
    assert_eq!(left_out, [&(b"k050a".to_vec(), true)]);
}

#[test]
fn a_range_goes_on_behind_keys_that_hardly_fit_a_reply_and_behind_longer_ones() {
    let server = TestServer::with(Config { index: IndexKind::Tree, ..config() });
    let mut peer = Peer::connect(&server);
    let lengths = [5, 600, 1000, 1344, 1352, 3000];
    let mut keys = Vec::new();
    for index in 0..4 {
        for length in lengths {
            let mut key = format!("{index}-{length:04}").into_bytes();
            key.resize(length.max(6), b'x');
            server.resp().ask(crate::support::command(&[b"SET", &key, b"value"]), "+OK\r\n");
            keys.push(key);
        }
    }
    // A frame of 1,400 bytes has room for an item with a key of 1,344 bytes, and no more.
    keys.retain(|key| key.len() <= 1344);
    for item_limit in [1, 2, 1000] {
        let found = keys_in_pages(&mut peer, item_limit);
        assert!(found == keys, "{item_limit}: {} of {} keys", found.len(), keys.len());
    }
}

/// All keys, page by page, each behind the last.
fn keys_in_pages(peer: &mut Peer, item_limit: u32) -> Vec<Vec<u8>> {
    let (mut found, mut start): (Vec<Vec<u8>>, Vec<u8>) = (Vec::new(), Vec::new());
    loop {
        let range = Range {
            start: std::ops::Bound::Excluded(&start),
            end: std::ops::Bound::Unbounded,
            direction: Direction::Forward,
            items: RangeItems::Whole,
            item_limit,
        };
        let page = peer.ask(&[request(Op::Range(range))]).remove(0);
        assert_eq!(page.status, Status::Ok);
        found.extend(Items::new(&page.value).map(|item| item.key.to_vec()));
        match page.resume_key {
            None => return found,
            Some(key) if key.is_empty() => start.clone_from(&found[found.len() - 1]),
            Some(key) => start = key,
        }
    }
}

fn left_out(len_bytes: u32) -> ItemValue<'static> {
    ItemValue::LeftOut { len_bytes }
}

#[test]
fn a_hash_index_has_no_ranges() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let range = Range {
        start: std::ops::Bound::Included(b""),
        end: std::ops::Bound::Unbounded,
        direction: Direction::Reverse,
        items: RangeItems::KeysOnly,
        item_limit: 10,
    };
    assert_eq!(peer.ask(&[request(Op::Range(range))])[0].status, Status::NoOrder);
    assert_eq!(peer.welcome.features, 0);
}

#[test]
fn an_address_is_shown_to_be_true_before_anything_is_kept() {
    let server = start();
    let peer = Peer::bind(&server, None);
    let challenge = peer.hello(None);
    assert!(challenge.len() <= wire::native::HELLO_LEN_BYTES);
    assert_eq!((native(&server).sessions, native(&server).challenges), (0, 1));
    assert_ne!(Peer::cookie_of(&peer.hello(Some(1234))), None, "a guess is challenged again");
    let cookie = Peer::cookie_of(&challenge);
    let other = Peer::bind(&server, None);
    assert_ne!(Peer::cookie_of(&other.hello(cookie)), None, "another's cookie too");
    assert_eq!(Peer::cookie_of(&peer.hello(cookie)), None, "a welcome");
    peer.hello(cookie);
    assert_eq!(native(&server).sessions, 1, "a repeated hello gets the same session");
}

#[test]
fn strangers_frames_are_dropped_or_refused_and_counted() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let mut stranger = Peer::bind(&server, None);
    stranger.session = peer.session;
    stranger.send(&[get(b"k")]);
    assert_eq!(stranger.receive_refusal().reason, Reason::UnknownSession);
    let good = peer.frame(&[get(b"k")]);
    let mut hostile: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"hello".to_vec(),
        vec![0xff; 1400],
        b"set key 0 0 5\r\nvalue\r\n".repeat(5),
        good[..20].to_vec(),
        good[..good.len() - 8].to_vec(),
    ];
    for at in [2, 3, 6, 24] {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        hostile.push(bad);
    }
    // Messages that are not what they say, in good frames.
    for at in 0..16 {
        let mut bad = good.clone();
        bad[32 + at] = 0xff;
        hostile.push(bad);
    }
    for datagram in &hostile {
        peer.socket.send(datagram).unwrap();
    }
    use counters::DropReason::{Malformed, NotOurs, Tag, Truncated, UnknownSession, Version};
    // Several workers share the port: each takes its datagrams in its own time.
    peer.wait_for(|| {
        let drops = native(&server).drops;
        let least = [(NotOurs, 2), (Version, 1), (Tag, 1), (Truncated, 1), (Malformed, 3)];
        least.iter().all(|(reason, count)| drops[*reason as usize] >= *count)
    });
    peer.drain_until_answered();
    assert_eq!(native(&server).drops[UnknownSession as usize], 1);
}

#[test]
fn a_hello_in_another_version_is_told_so() {
    let server = start();
    let mut peer = Peer::bind(&server, None);
    // As a version 2 would write it, and as version 1 says that only version 2 is spoken.
    for at in [2, 32] {
        let mut hello = peer.hello_bytes(None);
        hello[at] = 2;
        hello[33] = 2;
        peer.socket.send(&hello).unwrap();
        let refusal = peer.receive_refusal();
        assert_eq!(refusal.reason, Reason::Version);
        assert_eq!(refusal.versions, wire::native::Versions::OURS);
    }
    // What is shorter than its answer could be is not answered, nor is anything but a hello.
    let mut short = peer.hello_bytes(None)[..64].to_vec();
    (short[2], short[6]) = (2, 8);
    peer.socket.send(&short).unwrap();
    let mut requests = peer.frame(&[get(b"k")]);
    requests[2] = 2;
    peer.socket.send(&requests).unwrap();
    peer.wait_for(|| native(&server).drops[counters::DropReason::Version as usize] == 3);
    assert_eq!(Peer::cookie_of(&peer.hello(None)).map(|_| ()), Some(()), "nothing else came");
}

#[test]
fn datagrams_without_the_key_are_not_heard() {
    let folder = std::env::temp_dir().join(format!("dovetail-native-key-{}", std::process::id()));
    std::fs::write(&folder, "000102030405060708090a0b0c0d0e0f\n").unwrap();
    let server = TestServer::with(Config { native_key_file: Some(folder.clone()), ..config() });
    let key = wire::native::TagKey::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
    let mut peer = Peer::connect_with(&server, Some(key));
    assert_eq!(peer.ask(&[set(b"k", b"v")])[0].status, Status::Ok);
    let stranger = Peer::bind(&server, None);
    stranger.send_hello(None);
    let other = Peer::bind(&server, wire::native::TagKey::from_hex(&"7".repeat(32)).ok());
    other.send_hello(None);
    assert_eq!(peer.ask(&[get(b"k")])[0].value, b"v");
    peer.wait_for(|| native(&server).drops[counters::DropReason::Tag as usize] == 2);
    std::fs::remove_file(folder).unwrap();
}

#[test]
fn a_bad_key_file_is_said_at_the_start() {
    let missing = Some("/nowhere/key".into());
    let error = Server::start(Config { native_key_file: missing, ..config() }).err().unwrap();
    assert!(error.to_string().starts_with("--native-key-file /nowhere/key: "), "{error}");
}

#[test]
fn a_session_ends_with_a_bye_and_with_its_server() {
    let server = start();
    let mut peer = Peer::connect(&server);
    peer.ask(&[set(b"k", b"v")]);
    peer.bye();
    peer.wait_for(|| native(&server).sessions == 0);
    peer.send(&[get(b"k")]);
    assert_eq!(peer.receive_refusal().reason, Reason::UnknownSession);
    let address = server.server().native_addr();
    assert!(server.stop(PATIENCE));
    let again = TestServer::with(Config { native: address, ..config() });
    peer.send(&[get(b"k")]);
    assert_eq!(peer.receive_refusal().reason, Reason::UnknownSession);
    let mut fresh = Peer::connect(&again);
    assert_eq!(fresh.ask(&[get(b"k")])[0].status, Status::Miss);
}

#[test]
fn sessions_are_bounded() {
    let server = TestServer::with(Config { max_connections: 2, ..config() });
    let mut peers = [Peer::connect(&server), Peer::connect(&server)];
    for peer in &mut peers {
        assert_eq!(peer.ask(&[get(b"k")])[0].status, Status::Miss, "sessions that work stay");
    }
    let third = Peer::bind(&server, None);
    let cookie = Peer::cookie_of(&third.hello(None));
    third.send_hello(cookie);
    assert_eq!(third.receive_refusal().reason, Reason::SessionsFull);
    drop(peers);
}

#[test]
fn a_paused_server_is_busy() {
    // Of several workers, one may be in a round that began before the pause.
    let server = TestServer::with(Config { threads: 1, ..config() });
    let mut peer = Peer::connect(&server);
    server.resp().ask("CLIENT PAUSE 60000 WRITE\r\n", "+OK\r\n");
    let write = Request { id: RequestId::Once(0), ..set(b"k", b"v") };
    let replies = peer.ask(&[write, get(b"k")]);
    assert_eq!((replies[0].status, replies[1].status), (Status::Busy, Status::Miss));
    server.resp().ask("CLIENT PAUSE 60000 ALL\r\n", "+OK\r\n");
    peer.send(&[get(b"k")]);
    assert_eq!(peer.receive_refusal().reason, Reason::Busy);
    server.resp().ask("CLIENT UNPAUSE\r\n", "+OK\r\n");
    assert_eq!(peer.ask(&[write])[0].status, Status::Ok, "it was not executed before");
    assert!(native(&server).busy >= 2);
}

#[test]
fn a_taken_port_ends_the_start() {
    let server = start();
    let taken = Config { native: server.server().native_addr(), ..config() };
    let error = Server::start(taken).err().unwrap().to_string();
    assert!(error.contains("is in use") && error.ends_with("--native"), "{error}");
}

#[test]
fn a_steered_frame_reaches_the_worker_of_its_partition() {
    let server = start();
    let mut peer = Peer::connect(&server);
    let layers = server.server().shared().roles().plan();
    assert_eq!(usize::from(peer.welcome.steering.worker_count()), layers.dispatchers);
    for id in 0..20 {
        peer.steering = wire::native::SteeringId(id);
        assert_eq!(peer.ask(&[set(b"k", b"v"), get(b"k")])[1].value, b"v");
    }
}

fn request(op: Op<'_>) -> Request<'_> {
    Request { id: RequestId::Free(0), want: Want::PLAIN, op }
}

fn plain<'a>(key: &'a [u8], value: &'a [u8]) -> Set<'a> {
    match set(key, value).op {
        Op::Set(set) => set,
        _ => unreachable!("a set is a set"),
    }
}
