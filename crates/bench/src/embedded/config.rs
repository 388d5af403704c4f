//! The store settings for a benchmark plan.

use store::{IndexKind, Mode, StoreConfig};

use crate::plan::Plan;

/// Index bytes a key: a little over two slots for each, so that few chains overflow.
const INDEX_BYTES_PER_KEY: u64 = 26;
/// The same for a tree, whose nodes are partly full and contain slices of keys.
const TREE_BYTES_PER_KEY: u64 = 64;
/// Log bytes beyond the items, for open segments and for the reclaimer to work ahead.
const LOG_SLACK_BYTES: u64 = 64 << 20;

/// Room for all items, unless the plan sets the size.
pub(super) fn store_config(plan: &Plan) -> StoreConfig {
    let keys = plan.draw.key_count;
    let value_len = plan.value_sizes.len_mean_bytes().ceil() as usize;
    let entry_bytes = store::entry_len_bytes(plan.key_format.len_max_bytes(), value_len) as u64;
    let index_wanted_bytes = keys.saturating_mul(match plan.embedded.index {
        IndexKind::Hash => INDEX_BYTES_PER_KEY,
        IndexKind::Tree => TREE_BYTES_PER_KEY,
    });
    let index_wanted_bytes = plan.embedded.index_bytes.unwrap_or(index_wanted_bytes);
    // Rewrites append: with room for every item several times over, reclaiming is rare.
    let is_read_only = plan.draw.mix.write_share() == 0.0;
    let rooms_percent = if is_read_only { 110 } else { 300 };
    let items_bytes = keys.saturating_mul(entry_bytes) / 100 * rooms_percent;
    let slack_bytes = LOG_SLACK_BYTES * plan.thread_count as u64;
    let wanted_bytes = items_bytes + index_wanted_bytes + slack_bytes;
    let memory_bytes = plan.embedded.memory_bytes.unwrap_or(wanted_bytes);
    let index_max_bytes =
        if plan.embedded.index_bytes.is_some() { u64::MAX } else { memory_bytes / 4 };
    StoreConfig {
        memory_bytes,
        index_bytes: index_wanted_bytes.max(memory_bytes / 64).min(index_max_bytes),
        mode: if plan.embedded.is_cache { Mode::Evict } else { Mode::Clean },
        eviction: plan.embedded.eviction,
        index: plan.embedded.index,
        lossy_index: false,
        session_max: plan.thread_count,
        item_max_bytes: store::ITEM_MAX_BYTES,
        hash_seed: workload::scramble::mix(plan.draw.seed),
        batch: plan.embedded.batch,
        huge_pages: plan.embedded.huge_pages,
    }
}
