//! Replaces `auto` by a value derived from the machine or from other settings.
//!
//! ```text
//!  combined layers ──settle──▶ what is printed, shown by CONFIG GET, and started with
//! ```

use base::ByteSize;
use server::{Config, Dispatch, WritePolicy};

use crate::machine::Machine;
use crate::settings::serve::Lookup;
use crate::settings::{Layered, Origin, Value};

/// Replaces values that depend on the machine or on other settings, so that the printed values are
/// the effective ones.
pub fn settle(settings: &mut [Layered], machine: &Machine) {
    settle_memory(settings, machine);
    settle_cluster(settings);
    settle_policies(settings, machine);
    settle_compaction(settings);
}

/// If the write policy is not set, `--compaction on` means `auto`.
fn settle_compaction(settings: &mut [Layered]) {
    let lookup = Lookup(settings);
    let is_unnamed = lookup.layered("write-policy").origin == Origin::Default;
    if !is_unnamed || lookup.word("write-policy") != "crcw" || lookup.word("compaction") != "on" {
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

/// `--write-policy auto` and `--dispatch auto`: d-CREW and size-aware if the threads have a core
/// each and are enough for it to pay, else run to completion (decision 0047). If only one of the
/// two is set, the other is derived from it.
fn settle_policies(settings: &mut [Layered], machine: &Machine) {
    let lookup = Lookup(settings);
    let named_policy = match lookup.word("write-policy") {
        "auto" => None,
        word => word.parse::<WritePolicy>().ok(),
    };
    let named_dispatch = match lookup.layered("dispatch").value {
        Value::Dispatch(dispatch) => Some(dispatch),
        _ => None,
    };
    let (threads, memory) = (lookup.count("threads"), lookup.size_bytes("memory"));
    let config = Config {
        threads: threads.unwrap_or(machine.default_thread_count()),
        memory_bytes: memory.unwrap_or(machine.default_memory_bytes()),
        ..Config::default()
    };
    let routes = server::routes_by_default(&config, machine.core_count);
    let write_policy = named_policy.unwrap_or(match named_dispatch {
        Some(Dispatch::Steal) => WritePolicy::Crcw,
        _ if routes => WritePolicy::DCrew,
        _ => WritePolicy::Crcw,
    });
    let dispatch = named_dispatch.unwrap_or(match write_policy {
        _ if !routes => Dispatch::Any,
        WritePolicy::Erew => Dispatch::KeyHash,
        _ => Dispatch::SizeAware,
    });
    for layered in settings {
        match layered.setting.key {
            "write-policy" => layered.value = Value::Choice(write_policy.name()),
            "dispatch" => layered.value = Value::Dispatch(dispatch),
            _ => {}
        }
    }
}
