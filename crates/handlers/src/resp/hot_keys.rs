//! HOTKEYS: the keys that are requested most.
//!
//! ```text
//!  no session since the start or RESET ─▶ GET: what is sampled all the time: key, db, qps (Valkey)
//!  START ... STOP, and until RESET     ─▶ GET: what the session has counted (Redis 8.6)
//!  LIST JSON: both
//! ```

mod start;

use dispatch::hot::session::{Counted, HotSession, Weighed};
use dispatch::hot::{HotKey, Published};
use replication::cluster::View;
use runtime::walks::Caller;
use serde_json::{Value, json};
use wire::resp::{ArgIter, CommandId, Encoder, ErrorReply};

use crate::gather::Gather;

const IN_PROGRESS: &str = "hotkey tracking session already in progress";
const STOP_FIRST: &str = "hotkey tracking session in progress, stop tracking first";

/// The number of keys shown, of those that were requested at all.
const SHOWN_MAX: usize = 16;

/// Hash slots.
const SLOT_COUNT: u16 = 16_384;

/// The counts of the session, as GET shows them.
struct Shown<'s> {
    session: &'s HotSession,
    counted: Counted,
    is_active: bool,
    duration_ms: u64,
    slots: Vec<(u16, u16)>,
}

/// Runs one of these.
pub(super) fn hot_keys<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    args: ArgIter<'a>,
) {
    gather.settle(caller.slot);
    match id {
        CommandId::HotKeysStart => start_hot_session(gather, caller, args),
        CommandId::HotKeysStop => {
            let shared = &gather.core.shared;
            let was_active = shared.observations().hot_sessions.stop(gather.core.now);
            shared.observations().monitors.count_keys(false);
            gather.say(caller, |encoder| if was_active { encoder.ok() } else { encoder.null() });
        }
        CommandId::HotKeysReset => {
            let sessions = &gather.core.shared.observations().hot_sessions;
            if sessions.latest().is_some_and(|session| session.is_active(gather.core.now)) {
                return gather.fail(caller, &ErrorReply::Other(STOP_FIRST));
            }
            sessions.reset();
            gather.say(caller, |encoder| encoder.ok());
        }
        CommandId::HotKeysList => list_hot_keys(gather, caller, args),
        _ => match gather.core.shared.observations().hot_sessions.latest() {
            Some(session) => {
                let shown = shown(gather, &session);
                gather.say(caller, |encoder| shown.encode(encoder));
            }
            None => show_sampled(gather, caller),
        },
    }
}

fn start_hot_session<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, args: ArgIter<'a>) {
    let (shared, now) = (&gather.core.shared, gather.core.now);
    let sessions = &shared.observations().hot_sessions;
    if sessions.latest().is_some_and(|session| session.is_active(now)) {
        return gather.fail(caller, &ErrorReply::Other(IN_PROGRESS));
    }
    let view = gather.core.cluster.as_deref();
    let is_own = |slot: u16| view.is_some_and(|view| view.is_own(cluster::Slot(slot)));
    let is_own: Option<&dyn Fn(u16) -> bool> = view.is_some().then_some(&is_own);
    let wanted = match start::read(args, is_own) {
        Ok(wanted) => wanted,
        Err(text) => return gather.fail(caller, &ErrorReply::Other(&text)),
    };
    let worker_count = shared.config().threads;
    match sessions.start(wanted, worker_count, shared.buffer_budget(), now) {
        Ok(()) => {
            shared.observations().monitors.count_keys(true);
            gather.say(caller, |encoder| encoder.ok());
        }
        Err(bytes) => {
            let text = format!(
                "the clients' buffers have no room for the {} that counting takes: ask for \
                 fewer keys by COUNT",
                base::ByteSize { bytes }
            );
            gather.fail(caller, &ErrorReply::Other(&text));
        }
    }
}

fn shown<'a, 's>(gather: &Gather<'_, 'a>, session: &'s HotSession) -> Shown<'s> {
    let is_active = session.is_active(gather.core.now);
    Shown {
        counted: session.counted(),
        is_active,
        duration_ms: session.duration_ms(gather.core.now),
        slots: match &session.wanted.slots {
            Some(slots) => ranges(slots.iter().copied()),
            None => ranges(own_slots(gather.core.cluster.as_deref())),
        },
        session,
    }
}

/// Shows the permanent samples; nothing with `--hot-set off`.
fn show_sampled(gather: &mut Gather<'_, '_>, caller: Caller) {
    let shared = &gather.core.shared;
    let (published, calls_per_second) = (sampled(shared), shared.rates().calls);
    let listed = &published.listed()[..published.listed().len().min(SHOWN_MAX)];
    gather.say(caller, |encoder| {
        encoder.array_header(listed.len());
        listed.iter().for_each(|key| encode(encoder, key, calls_per_second));
    });
}

fn list_hot_keys<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    if !args.next().unwrap_or_default().eq_ignore_ascii_case(b"json") {
        return gather.fail(caller, &ErrorReply::Syntax);
    }
    let shared = &gather.core.shared;
    let (published, calls_per_second) = (sampled(shared), shared.rates().calls);
    let key = |(rank, key): (usize, &HotKey)| {
        json!({
            "key": key_text(&key.head, key.len_bytes),
            "len_bytes": key.len_bytes,
            "share_ratio": key.share_ratio,
            "calls_per_second": (key.share_ratio * calls_per_second as f64).round(),
            // The hot set consists of the first ranked keys.
            "is_in_hot_set": rank < published.item_count(),
        })
    };
    let session = shared.observations().hot_sessions.latest();
    let text = json!({
        "sampled": published.listed().iter().enumerate().map(key).collect::<Vec<_>>(),
        "session": session.map(|session| shown(gather, &session).json()),
    });
    let text = text.to_string();
    gather.say(caller, |encoder| encoder.bulk(text.as_bytes()));
}

fn sampled(shared: &runtime::shared::Shared) -> std::sync::Arc<Published> {
    shared.hot_keys().map(|keys| keys.now()).unwrap_or_default()
}

/// The slots that this node serves; all of them without a cluster.
fn own_slots(view: Option<&View>) -> impl Iterator<Item = u16> {
    (0..SLOT_COUNT).filter(move |slot| view.is_none_or(|view| view.is_own(cluster::Slot(*slot))))
}

/// Ascending numbers as ranges.
fn ranges(slots: impl Iterator<Item = u16>) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => ranges.push((slot, slot)),
        }
    }
    ranges
}

/// A key, or its head and the number of missing bytes.
fn key_bytes(head: &[u8], len_bytes: usize) -> Vec<u8> {
    match len_bytes.saturating_sub(head.len()) {
        0 => head.to_vec(),
        cut_bytes => [head, format!("... ({cut_bytes} more bytes)").as_bytes()].concat(),
    }
}

fn key_text(head: &[u8], len_bytes: usize) -> String {
    String::from_utf8_lossy(&key_bytes(head, len_bytes)).into_owned()
}

fn encode(encoder: &mut Encoder<'_>, key: &HotKey, calls_per_second: u64) {
    encoder.map_header(3);
    encoder.bulk(b"key");
    encoder.bulk(&key_bytes(&key.head, key.len_bytes));
    encoder.bulk(b"db");
    encoder.integer(0);
    encoder.bulk(b"qps");
    encoder.integer((key.share_ratio * calls_per_second as f64).round() as i64);
}

impl Shown<'_> {
    /// The numbers, in the order in which Redis has them.
    fn numbers(&self) -> Vec<(&'static str, u64)> {
        let wanted = &self.session.wanted;
        let (all, selected, sampled) =
            (self.counted.all, self.counted.selected, self.counted.sampled);
        let has_slots = wanted.slots.is_some();
        let has_samples = has_slots && wanted.sample_every > 1;
        let (user_ms, system_ms) = self.session.processor_ms();
        [
            (has_samples, "sampled-commands-selected-slots-us", sampled.time_ns / 1000),
            (has_slots, "all-commands-selected-slots-us", selected.time_ns / 1000),
            (true, "all-commands-all-slots-us", all.time_ns / 1000),
            (has_samples, "net-bytes-sampled-commands-selected-slots", sampled.net_bytes),
            (has_slots, "net-bytes-all-commands-selected-slots", selected.net_bytes),
            (true, "net-bytes-all-commands-all-slots", all.net_bytes),
            (true, "collection-start-time-unix-ms", self.session.started_at.0),
            (true, "collection-duration-ms", self.duration_ms),
            (wanted.cpu, "total-cpu-time-user-ms", user_ms),
            (wanted.cpu, "total-cpu-time-sys-ms", system_ms),
            (wanted.net, "total-net-bytes", sampled.net_bytes),
        ]
        .into_iter()
        .filter_map(|(is_shown, name, number)| is_shown.then_some((name, number)))
        .collect()
    }

    /// Keys by time in microseconds, and by bytes.
    fn lists(&self) -> Vec<(&'static str, u64, &[Weighed])> {
        let wanted = &self.session.wanted;
        let mut lists = Vec::new();
        if wanted.cpu {
            lists.push(("by-cpu-time-us", 1000, self.counted.by_time_ns.as_slice()));
        }
        if wanted.net {
            lists.push(("by-net-bytes", 1, self.counted.by_net_bytes.as_slice()));
        }
        lists
    }

    /// In the form of Redis 8.6: an array of one map, so that the replies of several nodes can be
    /// joined.
    fn encode(&self, encoder: &mut Encoder<'_>) {
        let (numbers, lists) = (self.numbers(), self.lists());
        encoder.array_header(1);
        encoder.map_header(3 + numbers.len() + lists.len());
        for (name, number) in [
            ("tracking-active", u64::from(self.is_active)),
            ("sample-ratio", u64::from(self.session.wanted.sample_every)),
        ] {
            encoder.bulk(name.as_bytes());
            encoder.integer(number.cast_signed());
        }
        encoder.bulk(b"selected-slots");
        encoder.array_header(self.slots.len());
        for (first, last) in &self.slots {
            let ends = [*first, *last];
            let ends = if first == last { &ends[..1] } else { &ends };
            encoder.array_header(ends.len());
            ends.iter().for_each(|end| encoder.integer(i64::from(*end)));
        }
        for (name, number) in numbers {
            encoder.bulk(name.as_bytes());
            encoder.integer(number.cast_signed());
        }
        for (name, unit, list) in lists {
            encoder.bulk(name.as_bytes());
            encoder.array_header(2 * list.len());
            for (key, weight, _) in list {
                encoder.bulk(&key_bytes(&key.head, key.len_bytes));
                encoder.integer((weight / unit).cast_signed());
            }
        }
    }

    fn json(&self) -> Value {
        let mut shown = serde_json::Map::new();
        shown.insert("tracking-active".to_owned(), self.is_active.into());
        shown.insert("sample-ratio".to_owned(), self.session.wanted.sample_every.into());
        shown.insert("selected-slots".to_owned(), json!(self.slots));
        for (name, number) in self.numbers() {
            shown.insert(name.to_owned(), number.into());
        }
        for (name, unit, list) in self.lists() {
            let key = |(key, weight, accesses): &Weighed| {
                json!({
                    "key": key_text(&key.head, key.len_bytes),
                    "len_bytes": key.len_bytes,
                    "value": weight / unit,
                    "reads": accesses.reads,
                    "writes": accesses.writes,
                })
            };
            shown.insert(name.to_owned(), list.iter().map(key).collect());
        }
        Value::Object(shown)
    }
}

#[cfg(test)]
mod tests {
    use wire::resp::Protocol;

    use super::*;

    #[test]
    fn a_key_is_shown_with_its_rate_and_cut_if_only_its_head_is_known() {
        let check = |len_bytes, want: &str| {
            let key = HotKey { head: b"ab".as_slice().into(), len_bytes, share_ratio: 0.25 };
            let mut out = Vec::new();
            encode(&mut Encoder::new(&mut out, Protocol::Resp3), &key, 1000);
            let text = String::from_utf8_lossy(&out).into_owned();
            assert_eq!(
                text,
                format!("%3\r\n$3\r\nkey\r\n{want}\r\n$2\r\ndb\r\n:0\r\n$3\r\nqps\r\n:250\r\n")
            );
        };
        check(2, "$2\r\nab");
        check(9, "$20\r\nab... (7 more bytes)");
    }

    #[test]
    fn slots_in_a_row_are_a_range() {
        assert_eq!(ranges([0, 1, 2, 5, 7, 8].into_iter()), [(0, 2), (5, 5), (7, 8)]);
        assert_eq!(ranges(own_slots(None)), [(0, 16383)]);
    }
}
