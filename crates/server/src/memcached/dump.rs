//! lru_crawler metadump and mgdump: all keys at once, as long as the client buffers hold them;
//! stats cachedump: some of them.

use base::UnixMillis;
use store::request::{Item, LastUse};
use store::{Session, entry_len_bytes};
use wire::memcached::{DumpKind, DumpedFacts, Encoder, Reply};

use crate::counters::MemcachedCommand;
use crate::engine::Engine;
use crate::gather::Gather;

/// Items that are visited between two quiescent points.
const STEP_ITEMS: usize = 1024;

/// The lines may take this part of the client buffers, as KEYS may.
const BUFFER_PART: u64 = 4;

/// What memcached's `stats cachedump` shows at most.
const ITEMS_BYTES_MAX: u64 = 2 << 20;

impl<E: Engine> Gather<'_, '_, E> {
    /// Lists what this server has; in a cluster what it serves.
    pub(super) fn dump(&mut self, slot: usize, kind: DumpKind) {
        let (command, wanted) = match kind {
            DumpKind::Items { class: 1, count_max: 0 } => (MemcachedCommand::Stats, usize::MAX),
            DumpKind::Items { class: 1, count_max } => {
                (MemcachedCommand::Stats, count_max as usize)
            }
            DumpKind::Items { .. } => (MemcachedCommand::Stats, 0),
            DumpKind::Facts | DumpKind::Gets => (MemcachedCommand::LruCrawler, usize::MAX),
        };
        let is_part = command == MemcachedCommand::Stats;
        let caller = self.caller(slot, command, false);
        self.settle(slot);
        let mut bytes_max = self.core.shared.buffer_budget().limit_bytes() / BUFFER_PART;
        if is_part {
            bytes_max = bytes_max.min(ITEMS_BYTES_MAX);
        }
        let (now, cluster) = (self.core.now, self.core.cluster.clone());
        let is_own = |item: &Item<'_>| {
            let slot = cluster::Slot::of(item.key);
            cluster.as_ref().is_none_or(|view| view.shows(slot, item.version))
        };
        let (mut lines, mut shown) = (Vec::new(), 0);
        let Some(session) = self.engine.session() else {
            return self.say_line(caller, Reply::TooManyKeys);
        };
        let is_whole = each_item(session, now, |item| {
            if is_own(item) && shown < wanted {
                let len_before = lines.len();
                line_of(kind, item, now, &mut lines);
                shown += usize::from(lines.len() > len_before);
            }
            lines.len() as u64 <= bytes_max && shown < wanted
        });
        if !is_whole && !is_part {
            return self.say_line(caller, Reply::TooManyKeys);
        }
        self.reply_to(caller.slot, |out| {
            out.extend_from_slice(&lines);
            let end = if kind == DumpKind::Gets { Reply::MetaMiss } else { Reply::End };
            Encoder::new(out).reply(end);
        });
    }
}

/// Visits all items as long as `visit` wants more; whether it did to the end.
fn each_item(
    session: &mut Session,
    now: UnixMillis,
    mut visit: impl FnMut(&Item<'_>) -> bool,
) -> bool {
    let (mut cursor, mut goes_on) = (0, true);
    loop {
        // A cursor of the step before is known.
        let next = session.scan(now, cursor, STEP_ITEMS, |item| goes_on &= visit(item));
        cursor = next.unwrap_or(0);
        if cursor == 0 || !goes_on {
            return goes_on;
        }
    }
}

fn line_of(kind: DumpKind, item: &Item<'_>, now: UnixMillis, lines: &mut Vec<u8>) {
    let mut encoder = Encoder::new(lines);
    match kind {
        DumpKind::Gets => encoder.dumped_get(item.key),
        DumpKind::Items { .. } => {
            let expires_at_s = item.expires_at.map(|at| at.0.div_ceil(1000));
            encoder.dumped_item(item.key, item.value.len(), expires_at_s);
        }
        DumpKind::Facts => {
            let is_known = item.last_use != LastUse::UNKNOWN;
            let used_at_s = (now.0 / 1000).saturating_sub(item.last_use.seconds_ago(now));
            let facts = DumpedFacts {
                expires_at_s: item.expires_at.map(|at| at.0.div_ceil(1000)),
                used_at_s: if is_known { used_at_s } else { 0 },
                is_read: item.last_use.is_read(),
                version: item.cas(),
                size_bytes: entry_len_bytes(item.key.len(), item.value.len()),
            };
            encoder.dumped_facts(item.key, facts);
        }
    }
}
