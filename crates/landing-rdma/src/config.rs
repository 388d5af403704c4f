//! The configuration of an RDMA transport.

use std::time::Duration;

/// When a sender learns that its messages have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// Occasionally, as buffers have to be freed: for replies, which no thread waits for. One
    /// completion for many messages (selective signalling).
    #[default]
    Lazily,
    /// Once for each flushed batch: its last message is in the peer's memory.
    Batches,
    /// As for batches, with a READ of the peer's zone after each batch: the device's earlier writes
    /// are in memory by then, not in a buffer on the way (Rowan-KV §3.2.2). With memory that
    /// survives a power cut, and a device that writes past the cache, they are durable.
    Persistent,
}

/// The configuration of an RDMA transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaConfig {
    /// The device's name as in /sys/class/infiniband; the first one if none is given.
    pub device: Option<String>,
    /// The device's port, from 1.
    pub port: u8,
    /// Which of the port's addresses to use; if none is given, RoCE v2 over IPv4 if there is one.
    pub gid_index: Option<u8>,
    /// The longest frame, to send and to receive. A slot of the zone has the same length, rounded
    /// up to 64.
    pub frame_bytes_max: usize,
    /// The maximum number of messages in one receive.
    pub burst_max: usize,
    /// The maximum number of connections.
    pub lanes_max: usize,
    /// The maximum number of frames of all connections that are queued or not acknowledged.
    pub send_frames_max: usize,
    /// The maximum of those for each connection.
    pub lane_frames_max: usize,
    /// The maximum number of receives that the device holds.
    pub receives_max: usize,
    /// When a sender learns that its messages have arrived.
    pub acknowledge: Acknowledge,
    /// An unacknowledged packet is sent again after that time, eight times; then the connection is
    /// closed.
    pub resend_after: Duration,
}

impl Default for RdmaConfig {
    fn default() -> RdmaConfig {
        RdmaConfig {
            device: None,
            port: 1,
            gid_index: None,
            frame_bytes_max: 1024,
            burst_max: 64,
            lanes_max: 256,
            send_frames_max: 4096,
            lane_frames_max: 256,
            receives_max: 8192,
            acknowledge: Acknowledge::Lazily,
            resend_after: Duration::from_millis(67),
        }
    }
}

impl RdmaConfig {
    /// Bytes of a slot: messages begin at multiples of 64 (Rowan-KV §3.2.2).
    pub(crate) fn slot_bytes(&self) -> usize {
        self.frame_bytes_max.max(1).next_multiple_of(64)
    }

    /// The code of the resend timer: 4.096 us times two to the power of it.
    pub(crate) fn timeout_code(&self) -> u8 {
        let units = (self.resend_after.as_nanos() / 4096).max(1);
        (units.next_power_of_two().trailing_zeros() as u8).clamp(1, 31)
    }

    /// How many frames of a lane may leave before one requests an acknowledgement. So small that
    /// the frames that idle lanes keep leave half of all buffers to others.
    pub(crate) fn unsignalled_max(&self) -> u32 {
        let of_lane = self.lane_frames_max / 4;
        let of_all = self.send_frames_max / (2 * self.lanes_max.max(1));
        of_lane.min(of_all).max(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_begin_at_multiples_of_64() {
        let slot_bytes =
            |frame_bytes_max| RdmaConfig { frame_bytes_max, ..RdmaConfig::default() }.slot_bytes();
        assert_eq!([0, 1, 64, 65, 1024].map(slot_bytes), [64, 64, 64, 128, 1024]);
    }

    #[test]
    fn a_timer_is_at_least_as_long_as_was_asked_for() {
        let code =
            |resend_after| RdmaConfig { resend_after, ..RdmaConfig::default() }.timeout_code();
        assert_eq!(code(Duration::from_millis(67)), 14);
        assert_eq!(code(Duration::ZERO), 1, "0 would mean for ever");
        assert_eq!(code(Duration::from_secs(1 << 30)), 31);
    }

    #[test]
    fn idle_lanes_cannot_keep_all_buffers() {
        for (lanes_max, send_frames_max, lane_frames_max) in [(256, 4096, 256), (1, 64, 64)] {
            let config =
                RdmaConfig { lanes_max, send_frames_max, lane_frames_max, ..RdmaConfig::default() };
            assert!(config.unsignalled_max() as usize * lanes_max <= send_frames_max / 2);
        }
    }
}
