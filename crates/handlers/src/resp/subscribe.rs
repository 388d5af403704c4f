//! SUBSCRIBE and UNSUBSCRIBE of the only channel: invalidations for RESP2 clients, which cannot
//! receive push messages between replies.

use runtime::walks::Caller;
use sessions::tracking::message::CHANNEL;
use wire::resp::{ArgIter, CommandId, Encoder, ErrorReply, Protocol};

use crate::gather::Gather;

/// The commands that a subscriber may send in RESP2.
const ALLOWED: [CommandId; 5] = [
    CommandId::Ping,
    CommandId::Subscribe,
    CommandId::Unsubscribe,
    CommandId::Quit,
    CommandId::Reset,
];

/// The reply to a client that asks for another channel.
pub(super) const NO_SUCH_CHANNEL: ErrorReply<'static> = ErrorReply::Other(
    "unknown command 'SUBSCRIBE': this server has strings only, no pub/sub but the channel \
     __redis__:invalidate",
);

/// SUBSCRIBE.
pub(super) fn subscribe<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, channels: ArgIter<'a>) {
    gather.settle(caller.slot);
    if has_others(channels) {
        return gather.fail(caller, &NO_SUCH_CHANNEL);
    }
    let connection = &mut gather.core.connections[caller.slot];
    connection.resp().is_subscribed = true;
    connection.client.set_subscribed(true);
    // As for a client that tracks: from now on its commands take the general path, where they
    // are checked.
    gather.core.shared.tracking().is_ready(gather.core.connections[caller.slot].client.id);
    gather.core.has_exceptions = true;
    gather.say(caller, |encoder| {
        channels.for_each(|channel| encode_change(encoder, "subscribe", Some(channel), 1));
    });
}

/// UNSUBSCRIBE; without channels, of all.
pub(super) fn unsubscribe<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, channels: ArgIter<'a>) {
    gather.settle(caller.slot);
    let connection = &mut gather.core.connections[caller.slot];
    let was_subscribed = connection.resp().is_subscribed;
    let ends = channels.len() == 0 || channels.clone().any(|channel| channel == CHANNEL);
    if ends {
        connection.resp().is_subscribed = false;
        connection.client.set_subscribed(false);
    }
    gather.say(caller, |encoder| {
        if channels.len() == 0 {
            let channel = was_subscribed.then_some(CHANNEL);
            return encode_change(encoder, "unsubscribe", channel, 0);
        }
        let mut count = i64::from(was_subscribed);
        for channel in channels {
            if channel == CHANNEL {
                count = 0;
            }
            encode_change(encoder, "unsubscribe", Some(channel), count);
        }
    });
}

/// Whether the client is a subscriber in RESP2, where replies and messages look alike.
pub(super) fn listens_only(gather: &mut Gather<'_, '_>, slot: usize) -> bool {
    let resp = gather.core.connections[slot].resp();
    resp.is_subscribed && resp.protocol == Protocol::Resp2
}

/// Whether a subscriber in RESP2 may not send this command; answers the error itself.
#[cold]
pub(super) fn is_out_of_place(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    id: Option<CommandId>,
) -> bool {
    let Some(id) = id.filter(|id| !ALLOWED.contains(id)) else { return false };
    let text = format!(
        "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context",
        id.name()
    );
    gather.fail(caller, &ErrorReply::Other(&text));
    true
}

/// Whether some of the channels do not exist on this server.
pub(super) fn has_others(mut channels: ArgIter<'_>) -> bool {
    channels.any(|channel| channel != CHANNEL)
}

/// The reply to PING of a subscriber in RESP2.
pub(super) fn encode_pong(encoder: &mut Encoder<'_>, message: Option<&[u8]>) {
    encoder.array_header(2);
    encoder.bulk(b"pong");
    encoder.bulk(message.unwrap_or_default());
}

fn encode_change(encoder: &mut Encoder<'_>, what: &str, channel: Option<&[u8]>, count: i64) {
    encoder.push_header(3);
    encoder.bulk(what.as_bytes());
    match channel {
        Some(channel) => encoder.bulk(channel),
        None => encoder.null(),
    }
    encoder.integer(count);
}
