//! Datagrams of peers out of any bytes: refused, or whole.

use cluster::NodeId;
use cluster::datagram::{AckBuilder, Body, FrameBuilder, Key, Route, open, retag};
use cluster::record::BlockId;

/// The receiver of the inputs, unless damage says otherwise.
pub(crate) const TO: NodeId = NodeId { name: 2, incarnation: 3 };

/// The key of the inputs.
pub(crate) fn key() -> Key {
    Key::new(&[7; 16]).expect("it is not zero")
}

/// An input is a datagram; it is opened as it is, and once more with the tag that it should have.
pub fn peer_datagrams(data: &[u8]) {
    check(data);
    let mut tagged = data.to_vec();
    retag(&mut tagged, &key());
    check(&tagged);
}

/// What can be opened can be packed, and is the same again.
fn check(bytes: &[u8]) {
    let Ok(datagram) = open(bytes, TO, &key()) else { return };
    let route = Route { lane: datagram.lane, to: TO };
    match datagram.body {
        Body::Frames(frames) => {
            let frames: Vec<&[u8]> = frames.collect();
            let mut builder = FrameBuilder::new(usize::MAX);
            assert!(frames.iter().all(|frame| builder.push(frame)));
            let again = builder.finish(route, datagram.way, &key());
            let Ok(Body::Frames(read)) = open(again, TO, &key()).map(|again| again.body) else {
                panic!("what was packed can be opened");
            };
            assert!(read.eq(frames));
        }
        Body::Acks(acks) => {
            let blocks: Vec<BlockId> = acks.collect();
            let mut builder = AckBuilder::new(usize::MAX);
            assert!(blocks.iter().all(|block| builder.push(*block)));
            let again = builder.finish(route, &key());
            let Ok(Body::Acks(read)) = open(again, TO, &key()).map(|again| again.body) else {
                panic!("what was packed can be opened");
            };
            assert!(read.eq(blocks));
        }
    }
}
