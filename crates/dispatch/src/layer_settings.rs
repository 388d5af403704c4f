//! The settings about layers: their checks, their defaults, and reasons why there is one layer.

use config::StartError;
use config::{Config, Tuning};
use host::affinity;
use policy::Dispatch;

use crate::lanes::Layers;

/// By default, rings and tables between threads take at most this fraction of the memory.
const ROUTING_MEMORY_PART: u64 = 8;

/// On fewer threads two layers hardly ever pay, and nothing is tried unless requested (K17).
const AUTO_THREADS_MIN: usize = 4;

/// Checks that a requested tuner has something to tune.
pub fn check_tuning(config: &Config) -> Result<(), StartError> {
    match why_not_tuned(config, usize::MAX) {
        Some(reason) if config.tuning == Tuning::On => Err(StartError::NothingToTune { reason }),
        _ => Ok(()),
    }
}

/// Whether the tuner tries policies where the settings leave them open: if it runs, and if the
/// memory between the threads stays a small part of all (decision 0112).
pub fn tries_policies(config: &Config, core_count: usize) -> bool {
    let tried = Config { tries_policies: true, ..config.clone() };
    let Ok(layers) = Layers::new(&tried) else { return false };
    let most_bytes = config.memory_bytes / ROUTING_MEMORY_PART;
    why_not_tuned(config, core_count).is_none()
        && layers.forwarding_memory(&tried).fixed_bytes <= most_bytes
}

/// Checks that threads, write policy and dispatch fit together; the error says what would be
/// right.
pub fn check_layers(config: &Config) -> Result<(), StartError> {
    Layers::new(config).map(|_| ())
}

/// What would let some threads only execute; `None`: some do, or will if the tuner finds that
/// right.
pub fn why_one_layer(config: &Config) -> Option<String> {
    let is_divided = Layers::new(config).is_ok_and(|layers| layers.start.has_two_layers());
    let is_tuned = || why_not_tuned(config, affinity::processor_count()).is_none();
    (!is_divided && !is_tuned()).then(|| layers_remedy(config))
}

/// What prevents tuning; words for one line.
pub fn why_not_tuned(config: &Config, core_count: usize) -> Option<String> {
    if config.tuning == Tuning::Off {
        return Some("--tuner off".to_owned());
    }
    if let Some(count) = config.cr_threads {
        return Some(format!(
            "--cr-threads {count} leaves it nothing to turn: give --cr-threads auto"
        ));
    }
    if let Dispatch::HandOff(_) = config.policies.dispatch {
        let dispatch = config.policies.dispatch;
        let reason = format!("--dispatch {dispatch} fixes the threads that poll");
        return Some(format!("{reason}: give another --dispatch"));
    }
    if config.threads < 2 {
        let on = if config.tuning == Tuning::On { "" } else { ", and --tuner on" };
        return Some(format!("one thread has no layers: give --threads 2 or more{on}"));
    }
    if config.tuning == Tuning::On {
        return None;
    }
    if config.threads < AUTO_THREADS_MIN {
        return Some(format!(
            "{} threads run to completion: give --tuner on to let it try two layers",
            config.threads
        ));
    }
    (config.threads > core_count).then(|| {
        let fewer = match core_count >= AUTO_THREADS_MIN {
            true => format!("--threads {core_count} or "),
            false => String::new(),
        };
        format!("{} threads share {core_count} cores: give {fewer}--tuner on", config.threads)
    })
}

/// The setting that gives a server threads that only execute.
pub fn layers_remedy(config: &Config) -> String {
    match (config.policies.dispatch, config.cr_threads) {
        (Dispatch::HandOff(_), _) => "give another --dispatch, and --cr-threads N below --threads",
        _ if config.threads < 2 => "give --threads 2 or more, and --cr-threads 1 or --tuner on",
        (_, Some(_)) => "give --cr-threads N below --threads",
        (_, None) => "give --cr-threads N below --threads, or --tuner on",
    }
    .to_owned()
}
