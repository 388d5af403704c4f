//! Frames of memcached's datagrams: any bytes as a request, and any reply cut into parts.

use wire::memcached::datagram::{
    DATAGRAM_BYTES_MAX, FrameError, HEADER_BYTES, PART_BYTES_MAX, count_of, parts, request,
};

/// Properties: a request is what stands behind a header that names one datagram; the parts of a
/// reply are the reply, none is longer than a datagram, and each says where it belongs.
pub fn memcached_datagrams(data: &[u8]) {
    match request(data) {
        Ok((id, asked)) => {
            assert_eq!(&data[..2], &id.to_be_bytes()[..]);
            assert_eq!(&data[4..6], &[0, 1]);
            assert_eq!((asked, asked.is_empty()), (&data[HEADER_BYTES..], false));
        }
        Err(FrameError::TooShort { len_bytes }) => assert!(len_bytes <= HEADER_BYTES),
        Err(FrameError::Reply) => {
            let first = data[HEADER_BYTES];
            assert!(!first.is_ascii_lowercase() && first != 0x80, "a request of either protocol");
        }
        Err(FrameError::NotAlone { count }) => assert_ne!(count, 1),
        Err(error) => panic!("{error}"),
    }
    // Longer replies than inputs are.
    let Some((times, reply)) = data.split_first() else { return };
    let reply = reply.repeat(usize::from(*times));
    let mut joined = Vec::new();
    for (at, (header, part)) in parts(0x1234, &reply).enumerate() {
        let number = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        assert_eq!((number(0), number(2), number(4)), (0x1234, at, count_of(reply.len())));
        assert!(HEADER_BYTES + part.len() <= DATAGRAM_BYTES_MAX && !part.is_empty());
        assert_eq!(joined.len(), at * PART_BYTES_MAX, "I1: all but the last one are full");
        joined.extend_from_slice(part);
    }
    assert_eq!(joined, reply);
}
