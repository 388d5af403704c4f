//! Native frames: any datagram, and any bytes as the body of every kind of frame.

use wire::native::{
    Challenge, Frame, FrameWriter, HEADER_LEN_BYTES, Header, Hello, Items, Kind, Moved, Refusal,
    Replies, Reply, Request, RequestError, Requests, SessionId, SteeringId, Welcome,
};

/// Reads a datagram. Properties: what parses is within bounds and comes out again as it was after
/// it was written; a frame that was cut is refused; a walk ends.
pub fn native_frames(datagram: &[u8]) {
    if let Ok(frame) = Frame::parse(datagram, None) {
        assert!(frame.len_bytes <= datagram.len());
        assert_eq!(frame.body.len() + HEADER_LEN_BYTES, frame.len_bytes);
        for cut in [0, HEADER_LEN_BYTES, frame.len_bytes / 2, frame.len_bytes - 1] {
            let whole = cut >= frame.len_bytes;
            assert!(whole || Frame::parse(&datagram[..cut], None).is_err(), "I2");
        }
    }
    // A wrong header must not hide what is behind it.
    let body = datagram.get(HEADER_LEN_BYTES..).unwrap_or_default();
    let mut out = vec![0; body.len() * 2 + 256];
    requests(body, &mut out);
    replies(body, &mut out);
    greetings(body, &mut out);
    let items = Items::new(body);
    assert!(items.count() <= body.len() / 8);
}

fn header(kind: Kind) -> Header {
    let (steering, session) = (SteeringId::ANY, SessionId(1));
    Header { kind, steering, session, number: 2, answered: 3 }
}

fn requests(body: &[u8], out: &mut [u8]) {
    let mut good: Vec<Request<'_>> = Vec::new();
    let mut is_over = false;
    for request in Requests::new(body) {
        assert!(!is_over, "nothing follows an overrun");
        match request {
            Ok(request) => good.push(request),
            Err(error) => is_over = error == RequestError::Overrun,
        }
    }
    let mut writer = FrameWriter::new(out, header(Kind::Requests)).expect("room for a header");
    for request in &good {
        let before = writer.len_bytes();
        writer.push_request(request).expect("no message grows");
        assert_eq!(writer.len_bytes() - before, request.len_bytes());
    }
    let len_bytes = writer.finish(None);
    let frame = Frame::parse(&out[..len_bytes], None).expect("what is written parses");
    assert!(Requests::new(frame.body).eq(good.into_iter().map(Ok)));
}

fn replies(body: &[u8], out: &mut [u8]) {
    let good: Vec<Reply<'_>> = Replies::new(body).flatten().collect();
    for moved in good.iter().filter_map(|reply| Moved::parse(reply.value)) {
        assert_eq!(Moved::parse(moved.to_string().as_bytes()), Some(moved));
    }
    let mut writer = FrameWriter::new(out, header(Kind::Replies)).expect("room for a header");
    for reply in &good {
        writer.push_reply(reply).expect("no message grows");
    }
    let len_bytes = writer.finish(None);
    let frame = Frame::parse(&out[..len_bytes], None).expect("what is written parses");
    assert!(Replies::new(frame.body).eq(good.into_iter().map(Ok)));
}

fn greetings(body: &[u8], out: &mut [u8]) {
    let asked = header(Kind::Hello);
    let frame = Frame { header: asked, body, len_bytes: HEADER_LEN_BYTES + body.len() };
    if let Ok(hello) = Hello::parse(&frame) {
        let len_bytes = hello.encode(1, None, out).expect("room");
        assert_eq!(Frame::parse(&out[..len_bytes], None).and_then(|f| Hello::parse(&f)), Ok(hello));
    }
    if let Ok(challenge) = Challenge::parse(&frame) {
        let len_bytes = challenge.encode(&asked, None, out).expect("room");
        let again = Frame::parse(&out[..len_bytes], None).and_then(|f| Challenge::parse(&f));
        assert_eq!(again, Ok(challenge));
    }
    if let Ok(welcome) = Welcome::parse(&frame) {
        let len_bytes = welcome.encode(&asked, SessionId(9), None, out).expect("room");
        let again = Frame::parse(&out[..len_bytes], None).and_then(|f| Welcome::parse(&f));
        assert_eq!(again, Ok(welcome));
    }
    if let Ok(refusal) = Refusal::parse(&frame) {
        let len_bytes = refusal.encode(&asked, None, out).expect("room");
        let again = Frame::parse(&out[..len_bytes], None).and_then(|f| Refusal::parse(&f));
        assert_eq!(again, Ok(refusal));
    }
}
