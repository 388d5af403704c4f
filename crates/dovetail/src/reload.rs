//! SIGHUP: rereads the settings and the files that they name.
//!
//! ```text
//!  flags, environment, file ─▶ as at the start ─▶ what differs from the last reading
//!                                                  ├─ live:    holds from now on
//!                                                  └─ restart: one line, and nothing of it holds
//!  certificates, --acl-file, --auth-file ─▶ each by itself
//! ```
//!
//! # Invariants
//! I1: wrong settings, alone or together, change nothing; one line says what is wrong.
//! I2: the changed live settings take effect all together or not at all.
//! I3: a value from CONFIG SET stays, unless the file's value has changed since the last reading.

use std::sync::Arc;

use clap::ArgMatches;
use server::{Shared, live_keys};
use tracing::{info, warn};

use crate::flags;
use crate::machine::Machine;
use crate::settings::{Layered, ServeSettings, Value};

/// The state that is needed to reread everything.
pub struct Reload {
    matches: ArgMatches,
    /// The settings of the last reading.
    last: Vec<Layered>,
    shared: Arc<Shared>,
}

/// The changes of the settings.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// Live changes, in the words of the file.
    live: Vec<(&'static str, String)>,
    /// Settings that only a restart changes.
    restart: Vec<&'static str>,
}

impl Reload {
    /// The state after a start with these settings.
    pub fn new(matches: &ArgMatches, settings: Vec<Layered>, shared: Arc<Shared>) -> Reload {
        Reload { matches: matches.clone(), last: settings, shared }
    }

    /// Rereads everything.
    pub fn run(&mut self) {
        match self.read_settings() {
            Ok(line) => info!("SIGHUP: {line}"),
            Err(line) => warn!("SIGHUP: {line}; the settings stay as they were"),
        }
        match self.shared.users().map(|users| users.reload()) {
            None => {}
            Some(Ok(())) => info!("SIGHUP: the users of --auth-file are read anew"),
            Some(Err(error)) => warn!(%error, "SIGHUP: the users of before stay"),
        }
        for reloaded in self.shared.reload() {
            match reloaded {
                Ok(line) => info!("SIGHUP: {line}"),
                Err(line) => warn!("SIGHUP: {line}"),
            }
        }
    }

    fn read_settings(&mut self) -> Result<String, String> {
        if let Some(path) = &self.shared.config().origin.file
            && std::fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir())
        {
            // The writer of a pipe is gone, and signals would wait for it.
            return Err(format!("config {}: no regular file, and not read again", path.display()));
        }
        let machine = Machine::detect();
        let gathered =
            flags::gather(&self.matches, &machine).map_err(|failure| failure.to_string())?;
        // I1: contradictions are reported now, not at the next start.
        ServeSettings::new(&gathered.settings, gathered.config_file, &machine)
            .map_err(|error| error.to_string())?;
        let changes = changes(&self.last, &gathered.settings);
        server::set_live(&self.shared, &changes.live)?;
        if !changes.restart.is_empty() {
            let keys = changes.restart.join(", ");
            warn!("SIGHUP: a change of {keys} needs a restart, and does not hold yet");
        }
        // Settings that need a restart are reported each time until there was one.
        for (last, new) in self.last.iter_mut().zip(gathered.settings) {
            if is_live(new.setting.key) {
                *last = new;
            }
        }
        let keys: Vec<&str> = changes.live.iter().map(|(key, _)| *key).collect();
        Ok(match keys.is_empty() {
            true => "no live setting has changed".to_owned(),
            false => format!("new values hold for {}", keys.join(", ")),
        })
    }
}

fn is_live(key: &str) -> bool {
    live_keys().any(|live| live == key)
}

fn changes(last: &[Layered], new: &[Layered]) -> Changes {
    let mut changes = Changes::default();
    for (last, new) in last.iter().zip(new) {
        let key = new.setting.key;
        match () {
            () if last.value == new.value => {}
            () if is_live(key) => changes.live.push((key, text_of(&new.value))),
            () => changes.restart.push(key),
        }
    }
    changes
}

fn text_of(value: &Value) -> String {
    match value {
        // Others are shown in full.
        Value::Text(text) => text.clone(),
        Value::Unset => String::new(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::settings::layers::combine;

    fn settings(flags: &[(&'static str, &str)]) -> Vec<Layered> {
        let flags: BTreeMap<&'static str, String> =
            flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        combine(&flags, &|_| None, &[]).expect("these are right")
    }

    #[track_caller]
    fn check(key: &'static str, from: &str, to: &str, want: &str) {
        let found = changes(&settings(&[(key, from)]), &settings(&[(key, to)]));
        let want = Changes { live: vec![(key, want.to_owned())], restart: Vec::new() };
        assert_eq!(found, want);
    }

    #[test]
    fn live_settings_are_told_in_the_words_of_the_file() {
        check("slowlog-log-slower-than", "10ms", "1500us", "1500us");
        check("slowlog-log-slower-than", "10ms", "off", "off");
        check("latency-monitor-threshold", "off", "20ms", "20ms");
        check("idle-timeout", "off", "90s", "90s");
        check("log", "info", "debug", "debug");
        check("slo", "off", "1500us", "1500us");
        check("slo", "1ms", "off", "off");
        check("max-connections", "10", "20", "20");
        check("max-connections-per-address", "10", "0", "0");
        check("memory", "1g", "1536m", "1536MiB");
        check("threads", "4", "3", "3");
        check("cr-threads", "1", "auto", "auto");
        check("hot-set", "auto", "5", "5");
        check("slowlog-max-len", "10", "20", "20");
        check("requirepass", "one", "two", "two");
    }

    #[test]
    fn what_is_the_same_is_no_change_and_what_is_not_live_needs_a_restart() {
        let (last, new) = (settings(&[("slo", "1ms")]), settings(&[("slo", "1000us")]));
        assert_eq!(changes(&last, &new), Changes::default());
        let new = settings(&[("slo", "2ms"), ("batch", "3"), ("mode", "store")]);
        let want =
            Changes { live: vec![("slo", "2ms".to_owned())], restart: vec!["mode", "batch"] };
        assert_eq!(changes(&last, &new), want);
    }

    #[test]
    fn every_live_setting_has_words() {
        for key in live_keys() {
            assert!(crate::settings::find(key).is_some(), "{key}");
        }
    }
}
