//! The native protocol: frames for datagrams and shared memory; see docs/formats/native.md.
//!
//! ```text
//!  datagram ──▶ Frame::parse ──▶ header, body ──▶ Requests ──▶ Request | Refused | Overrun
//!                  │ tag wrong, cut: dropped        (server)      (borrow the datagram)
//!                  └──▶ Hello, Challenge, Welcome, Refusal      Replies ──▶ Reply   (client)
//!  buffer   ◀── FrameWriter ◀── push_request, push_reply
//! ```
//!
//! Beside the codec are the protocol's pure state machines: a server's record of writes, by which
//! each takes effect at most once, and the assembly of large values.
//!
//! # Invariants
//! I1: no input makes a parser panic or read outside `input`; nothing is allocated for it.
//! I2: a frame's header is checked completely before its first message is looked at.
//! I3: messages are parsed in one pass: those before a malformed one are valid, those after it are
//!     dropped. A frame arrived as it was sent (length, tag), so a malformed message was sent
//!     malformed, and its sender could have sent the well-formed ones alone.

mod assembly;
mod cookie;
mod header;
mod hello;
mod items;
mod layout;
mod moved;
mod once;
mod parts_in;
mod reply;
mod request;
mod steering;
mod tag;
mod transfer;
mod writer;

pub use assembly::{Assembly, BadPart, PART_UNIT_BYTES};
pub use cookie::{COOKIE_SECRET_LEN_BYTES, Cookies};
pub use header::{
    FRAME_MAX_BYTES, Frame, FrameError, HEADER_LEN_BYTES, Header, Kind, MAGIC, SessionId, VERSION,
};
pub use hello::{
    Challenge, HELLO_LEN_BYTES, Hello, Reason, Refusal, Versions, Welcome, encode_bye,
};
pub use items::{Item, ItemValue, ItemWriter, Items, item_len_bytes};
pub use layout::{KEY_MAX_BYTES, MESSAGE_HEAD_BYTES, message_len_bytes};
pub use moved::Moved;
pub use once::{Admission, Once, Remembered};
pub use parts_in::{PartLimits, PartOutcome, PartsIn};
pub use reply::{Replies, Reply, ReplyError, Status};
pub use request::{
    Condition, Direction, Expiry, Op, Part, Range, RangeItems, Request, RequestError, RequestId,
    Requests, Set, Span, Want,
};
pub use steering::{Steering, SteeringId};
pub use tag::{BadTagKey, TAG_KEY_LEN_BYTES, TagKey};
pub use transfer::{Pull, PullError, PullStep, part_room_bytes, push_spans};
pub use writer::{FrameWriter, NoRoom};
