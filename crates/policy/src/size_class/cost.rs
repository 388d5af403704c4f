//! The cost of a request by its size, for dividing the workers (Minos §3).

/// A cost function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Network packets of the item: the paper's cost.
    Packets {
        /// The bytes of an item that one packet carries, above 0.
        payload_max_bytes: u64,
    },
    /// Bytes of the item.
    Bytes,
    /// Bytes of the item and a constant for the request itself.
    ConstantAndBytes {
        /// The cost of the request itself, in bytes.
        constant_bytes: u64,
    },
}

/// An Ethernet frame of 1500 bytes less the headers of IP and UDP.
pub const PACKET_PAYLOAD_MAX_BYTES: u64 = 1472;

impl Default for Cost {
    fn default() -> Cost {
        Cost::Packets { payload_max_bytes: PACKET_PAYLOAD_MAX_BYTES }
    }
}

impl Cost {
    /// The cost of one request for an item of `size_bytes`; at least 1, because no request is free.
    #[inline]
    pub fn of(&self, size_bytes: u64) -> u64 {
        match self {
            Cost::Packets { payload_max_bytes } => size_bytes.div_ceil(*payload_max_bytes).max(1),
            Cost::Bytes => size_bytes.max(1),
            Cost::ConstantAndBytes { constant_bytes } => {
                size_bytes.saturating_add(*constant_bytes).max(1)
            }
        }
    }
}
