//! The frame of memcached's datagrams.
//!
//! ```text
//!  0            2          4       6          8
//!  | request id | sequence | count | reserved | a request, or a part of its reply
//! ```
//!
//! All numbers are big-endian. A request is one datagram. A reply is one or more datagrams,
//! numbered from 0; each has their count and the id of the request.
//!
//! # Invariants
//! I1: the parts of a reply, joined in the order of their sequence numbers, are the reply; each
//!     part but the last has the maximum length.

/// The length of the header before each request and each part of a reply.
pub const HEADER_BYTES: usize = 8;

/// The longest datagram of a reply, as memcached sends them.
pub const DATAGRAM_BYTES_MAX: usize = 1400;

/// The maximum number of reply bytes in a datagram.
pub const PART_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

/// Why a datagram is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// There is no byte after the header, or no whole header.
    #[error("{len_bytes} bytes: a header has 8, and a request follows it")]
    TooShort {
        /// Its length.
        len_bytes: usize,
    },
    /// It begins like a reply. If forged ones were answered, two servers could answer each other
    /// for ever.
    #[error("a reply, not a request")]
    Reply,
    /// memcached does not accept a request in several datagrams.
    #[error("one of {count} datagrams: a request is one")]
    NotAlone {
        /// The number of datagrams, by its header.
        count: u16,
    },
}

/// Takes a request out of its frame: its id and its text. The sequence and reserved bytes of a
/// request have no meaning.
///
/// # Errors
///
/// It is dropped without a reply, as memcached drops it.
pub fn request(datagram: &[u8]) -> Result<(u16, &[u8]), FrameError> {
    let Some((header, asked)) =
        datagram.split_first_chunk::<HEADER_BYTES>().filter(|(_, asked)| !asked.is_empty())
    else {
        return Err(FrameError::TooShort { len_bytes: datagram.len() });
    };
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    match number(4) {
        1 if begins_a_reply(asked[0]) => Err(FrameError::Reply),
        1 => Ok((number(0), asked)),
        count => Err(FrameError::NotAlone { count }),
    }
}

/// Whether the first byte belongs to a reply. Replies begin with words in capitals, with a number,
/// or with the magic of binary responses, and no request does. Other output (lists of keys) is not
/// a command, and the answer to it is such a reply.
fn begins_a_reply(first: u8) -> bool {
    first.is_ascii_uppercase() || first.is_ascii_digit() || first == 0x81
}

/// The number of datagrams of a reply.
pub fn count_of(reply_bytes: usize) -> usize {
    reply_bytes.div_ceil(PART_BYTES_MAX)
}

/// Cuts a reply into the parts of its datagrams, each with its header (I1). A reply that takes more
/// than 65,535 of them must not be sent.
pub fn parts(
    request_id: u16,
    reply: &[u8],
) -> impl Iterator<Item = ([u8; HEADER_BYTES], &[u8])> + Clone {
    let [id0, id1] = request_id.to_be_bytes();
    let [count0, count1] = (count_of(reply.len()) as u16).to_be_bytes();
    reply.chunks(PART_BYTES_MAX).enumerate().map(move |(sequence, part)| {
        let [sequence0, sequence1] = (sequence as u16).to_be_bytes();
        ([id0, id1, sequence0, sequence1, count0, count1, 0, 0], part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_alone_and_not_empty() {
        let framed = |count: u8, asked: &[u8]| {
            [&[1, 2, 9, 9, 0, count, 7, 7], asked].concat() // Sequence and reserved say nothing.
        };
        assert_eq!(request(&framed(1, b"get k\r\n")), Ok((0x102, &b"get k\r\n"[..])));
        assert_eq!(request(&framed(2, b"get k\r\n")), Err(FrameError::NotAlone { count: 2 }));
        assert_eq!(request(&framed(0, b"get k\r\n")), Err(FrameError::NotAlone { count: 0 }));
        assert_eq!(request(&framed(1, b"")), Err(FrameError::TooShort { len_bytes: 8 }));
        assert_eq!(request(b"abc"), Err(FrameError::TooShort { len_bytes: 3 }));
    }

    #[test]
    fn what_begins_as_a_reply_is_no_request() {
        for reply in
            [&b"ERROR\r\n"[..], b"SERVER_ERROR x\r\n", b"VALUE k 0 1\r\n", b"HD\r\n", b"5\r\n"]
        {
            let frame = [&[0, 1, 0, 0, 0, 1, 0, 0], reply].concat();
            assert_eq!(request(&frame), Err(FrameError::Reply), "{reply:?}");
        }
        assert_eq!(request(&[0, 1, 0, 0, 0, 1, 0, 0, 0x81, 0]), Err(FrameError::Reply));
        assert!(request(&[0, 1, 0, 0, 0, 1, 0, 0, 0x80, 0]).is_ok());
    }

    #[test]
    fn a_reply_is_cut_where_a_datagram_is_full() {
        let reply: Vec<u8> = (0..PART_BYTES_MAX + 1).map(|at| at as u8).collect();
        let check = |len: usize, want: &[(u8, usize)]| {
            let found: Vec<_> = parts(7, &reply[..len])
                .map(|(header, part)| {
                    assert_eq!(header, [0, 7, 0, header[3], 0, want.len() as u8, 0, 0]);
                    (header[3], part.len())
                })
                .collect();
            assert_eq!(found, want, "{len}");
            let joined: Vec<u8> =
                parts(7, &reply[..len]).flat_map(|(_, part)| part.iter().copied()).collect();
            assert_eq!(joined, reply[..len], "I1");
        };
        check(0, &[]);
        check(1, &[(0, 1)]);
        check(PART_BYTES_MAX, &[(0, PART_BYTES_MAX)]);
        check(PART_BYTES_MAX + 1, &[(0, PART_BYTES_MAX), (1, 1)]);
    }
}
