//! Streams in one piece, in random pieces and byte by byte.

use std::fmt::Debug;

use crate::rng::Rng;

/// How a stream is cut changes nothing. `read` gets a function of the number of bytes that have
/// arrived, which says how many of them there are after the next read, and returns what it read.
pub(crate) fn check_cuts<Events: PartialEq + Debug>(
    stream_len: usize,
    (seed, piece_max): (u8, usize),
    read: impl Fn(&mut dyn FnMut(usize) -> usize) -> Events,
) {
    let whole = read(&mut |_| stream_len);
    let mut rng = Rng::new(u64::from(seed));
    let pieces = read(&mut |available| available + 1 + rng.below(piece_max));
    assert_eq!(whole, pieces, "how a stream is cut changes nothing");
    let bytewise = read(&mut |available| available + 1);
    assert_eq!(whole, bytewise, "nor does its arriving byte by byte");
}
