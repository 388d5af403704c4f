//! The interface of a transport under test, and the messages of the scenarios.

use landing::{Sender, Transport, Zone};

/// The longest message of a test.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// Messages begin with their length.
pub fn is_whole(message: &[u8]) -> bool {
    message.first_chunk().is_some_and(|len| usize::from(u16::from_le_bytes(*len)) == message.len())
}

/// The operations that a scenario needs of a transport.
pub trait Rig: Sized {
    /// `None`, with a line that says why, if this kernel does not support it.
    fn open(sender_count: usize) -> Option<Self>;

    /// Transport and zone of the receiver.
    fn receiver(&mut self) -> (&mut dyn Transport, &mut Zone);

    /// A sender sends messages; those that its transport does not take now are lost.
    fn send(&mut self, index: usize, messages: &[Vec<u8>]);

    /// The index of the sender of a completion.
    fn index_of(&self, sender: Sender) -> usize;

    /// A sender dies; another takes its place.
    fn replace_client(&mut self, index: usize);

    /// The receiver dies with everything that had landed, and comes back at the same address.
    fn restart(&mut self);

    /// Sends a datagram that no transport would.
    fn send_raw(&mut self, index: usize, bytes: &[u8]);
}
