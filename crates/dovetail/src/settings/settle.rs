//! Replaces `auto` by a value derived from the machine or from other settings.
//!
//! ```text
//!  combined layers ──settle──▶ what is printed, shown by CONFIG GET, and started with
//! ```

use base::ByteSize;
use server::{Config, Dispatch, WritePolicy};

use crate::machine::Machine;
use crate::settings::serve::{Lookup, routing};
use crate::settings::{Layered, Origin, Value};

/// Replaces values that depend on the machine or on other settings, so that the printed values are
/// the effective ones.
pub fn settle(settings: &mut [Layered], machine: &Machine) {
    let is_policy_open = Lookup(settings).word("write-policy") == "auto";
    settle_memory(settings, machine);
    settle_cluster(settings);
    settle_policies(settings, machine);
    if is_policy_open {
        settle_compaction(settings);
    }
}

/// Where the write policy is left open, `--compaction on` means `auto`: a key has many writers.
fn settle_compaction(settings: &mut [Layered]) {
    if Lookup(settings).word("compaction") != "on" {
        return;
    }
    let compaction = settings.iter_mut().find(|layered| layered.setting.key == "compaction");
    if let Some(compaction) = compaction {
        compaction.value = Value::Choice("auto");
    }
}

/// A node of a cluster keeps its data, unless the settings make it a cache. Its writes go through
/// one thread, whichever thread receives them.
fn settle_cluster(settings: &mut [Layered]) {
    if Lookup(settings).text("cluster").is_none() {
        return;
    }
    for layered in settings.iter_mut().filter(|layered| layered.origin == Origin::Default) {
        match layered.setting.key {
            "mode" => layered.value = Value::Choice("store"),
            "write-policy" => layered.value = Value::Choice("crcw"),
            "dispatch" => layered.value = Value::Dispatch(Dispatch::Any),
            "tuner" => layered.value = Value::Choice("off"),
            _ => {}
        }
    }
}

/// Replaces `--memory auto` by a number.
fn settle_memory(settings: &mut [Layered], machine: &Machine) {
    for layered in settings {
        if layered.setting.key == "memory" && layered.value == Value::Auto {
            layered.value = Value::Size(ByteSize { bytes: machine.default_memory_bytes() });
        }
    }
}

/// `--write-policy auto` and `--dispatch auto` together stay `auto` where the tuner tries policies;
/// elsewhere, and beside another word, they mean that requests stay where they were received
/// (decision 0112).
fn settle_policies(settings: &mut [Layered], machine: &Machine) {
    let lookup = Lookup(settings);
    let open_policy = lookup.word("write-policy") == "auto";
    let open_dispatch = lookup.layered("dispatch").value == Value::Auto;
    let config = Config {
        threads: lookup.count("threads").unwrap_or(machine.default_thread_count()),
        memory_bytes: lookup.size_bytes("memory").unwrap_or(machine.default_memory_bytes()),
        ..routing(&lookup)
    };
    let is_alone = lookup.text("cluster").is_none();
    let may_try = is_alone && open_policy && open_dispatch;
    if may_try && server::tries_policies(&config, machine.core_count) {
        return;
    }
    for layered in settings {
        match layered.setting.key {
            "write-policy" if open_policy => {
                layered.value = Value::Choice(WritePolicy::Crcw.name());
            }
            "dispatch" if open_dispatch => layered.value = Value::Dispatch(Dispatch::Any),
            _ => {}
        }
    }
}
