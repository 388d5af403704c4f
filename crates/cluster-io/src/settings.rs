//! The settings of a whole cluster: chosen when its first manager starts, kept in the config store.
//!
//! ```toml
//! format = 1
//! name = "production"
//! key = "5b0c..."        # 128 random bits
//! copies = 3
//! min-copies = 2
//! lease = "500ms"
//! ...
//! ```
//!
//! # Invariants
//! S1: they are written once, if none are stored; all readers have the same.
//! S2: a setting that this release does not know is refused in one line, never skipped.

use std::time::Duration;

use base::{format_duration, parse_duration};
use cluster::{Durability, Scheme, Settings};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Key;

const FORMAT: u16 = 1;

/// The settings of a cluster, as the config store keeps them.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The cluster's name, for people.
    pub name: String,
    /// The key that authenticates links and datagrams (K25).
    pub key: Key,
    /// Whether shards move by load (Rowan-KV §4.6).
    pub rebalance: bool,
    /// The settings of the state machines.
    pub settings: Settings,
}

/// The reason why a text is not valid settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The text is not TOML, or a key is missing or unknown.
    #[error("the settings in the config store cannot be read: {line}")]
    Text {
        /// The reason.
        line: String,
    },
    /// The settings are of another release.
    #[error("the settings in the config store have format {found}, this release reads {FORMAT}")]
    Format {
        /// The format found.
        found: u16,
    },
    /// A value is invalid, or contradicts another.
    #[error("the cluster's {key} = {value} is wrong: {want}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value found.
        value: String,
        /// A description of valid values.
        want: &'static str,
    },
}

/// The keys of the text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Text {
    format: u16,
    name: String,
    key: String,
    copies: u8,
    min_copies: u8,
    first_nodes: u8,
    shards: u16,
    durability: String,
    /// Settings written by releases with a single scheme do not have this key.
    #[serde(default = "first_scheme")]
    replication: String,
    rebalance: String,
    lease: String,
    session: String,
    retry: String,
    commit_interval: String,
    grace: String,
    drift_ppm: u64,
    datagram_bytes: usize,
    segment_bytes: usize,
    copy_part_entries: usize,
    copies_at_once: u16,
    pending_max: usize,
}

fn first_scheme() -> String {
    Scheme::Rowan.word().to_owned()
}

#[derive(Deserialize)]
struct Head {
    format: u16,
}

impl Stored {
    /// The settings of a new cluster where no others are requested.
    pub fn defaults() -> Settings {
        Settings {
            lease_ns: 500_000_000,
            session_ns: 2_000_000_000,
            retry_ns: 5_000_000,
            ..Settings::default()
        }
    }

    /// Parses the config store's text and checks everything, including [`check`].
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn parse(text: &str) -> Result<Stored, SettingsError> {
        let line = |error: toml::de::Error| {
            let line = error.message().replace('\n', " ");
            SettingsError::Text { line }
        };
        let head: Head = toml::from_str(text).map_err(line)?;
        if head.format != FORMAT {
            return Err(SettingsError::Format { found: head.format });
        }
        let text: Text = toml::from_str(text).map_err(line)?;
        let want = "32 hexadecimal digits";
        let wrong = || SettingsError::Value { key: "key", value: "(not shown)".to_owned(), want };
        let key = Key::from_hex(&text.key).ok_or_else(wrong)?;
        let settings = Settings {
            lease_ns: time("lease", &text.lease)?,
            drift_ppm: text.drift_ppm,
            session_ns: time("session", &text.session)?,
            retry_ns: time("retry", &text.retry)?,
            commit_interval_ns: time("commit-interval", &text.commit_interval)?,
            copies: text.copies,
            min_copies: text.min_copies,
            first_nodes: text.first_nodes,
            shards: text.shards,
            durability: durability(&text.durability)?,
            scheme: scheme(&text.replication)?,
            datagram_bytes: text.datagram_bytes,
            segment_bytes: text.segment_bytes,
            copy_part_entries: text.copy_part_entries,
            copies_at_once: text.copies_at_once,
            pending_max: text.pending_max,
            grace_ns: time("grace", &text.grace)?,
        };
        check(&settings)?;
        let rebalance = switch("rebalance", &text.rebalance)?;
        Ok(Stored { name: text.name, key, rebalance, settings })
    }

    /// The text that the config store keeps.
    pub fn to_text(&self) -> String {
        let settings = &self.settings;
        let spelled = |time_ns: u64| format_duration(Duration::from_nanos(time_ns));
        let text = Text {
            format: FORMAT,
            name: self.name.clone(),
            key: self.key.to_hex(),
            copies: settings.copies,
            min_copies: settings.min_copies,
            first_nodes: settings.first_nodes,
            shards: settings.shards,
            durability: durability_word(settings.durability).to_owned(),
            replication: settings.scheme.word().to_owned(),
            rebalance: if self.rebalance { "on" } else { "off" }.to_owned(),
            lease: spelled(settings.lease_ns),
            session: spelled(settings.session_ns),
            retry: spelled(settings.retry_ns),
            commit_interval: spelled(settings.commit_interval_ns),
            grace: spelled(settings.grace_ns),
            drift_ppm: settings.drift_ppm,
            datagram_bytes: settings.datagram_bytes,
            segment_bytes: settings.segment_bytes,
            copy_part_entries: settings.copy_part_entries,
            copies_at_once: settings.copies_at_once,
            pending_max: settings.pending_max,
        };
        // The table has only numbers and short words, which TOML can always represent.
        toml::to_string(&text).unwrap_or_default()
    }
}

/// The spelling in settings and flags.
pub fn durability_word(durability: Durability) -> &'static str {
    match durability {
        Durability::Replicated => "replicated",
        Durability::Fsync => "fsync",
    }
}

/// Checks that the settings are consistent.
///
/// # Errors
/// The first inconsistency, and what would be valid.
pub fn check(settings: &Settings) -> Result<(), SettingsError> {
    let wrong = |key: &'static str, value: String, want: &'static str| {
        Err(SettingsError::Value { key, value, want })
    };
    let spelled = |time_ns: u64| format_duration(Duration::from_nanos(time_ns));
    let minute_ns = 60_000_000_000;
    if !(1..=7).contains(&settings.copies) {
        return wrong("copies", settings.copies.to_string(), "write 1 to 7");
    }
    if !(1..=settings.copies).contains(&settings.min_copies) {
        let want = "write 1 or more, and no more than copies";
        return wrong("min-copies", settings.min_copies.to_string(), want);
    }
    if settings.first_nodes == 0 {
        return wrong("first-nodes", "0".to_owned(), "write 1 or more");
    }
    if !(1..=4096).contains(&settings.shards) {
        return wrong("shards", settings.shards.to_string(), "write 1 to 4096");
    }
    if !(10_000_000..=minute_ns).contains(&settings.lease_ns) {
        return wrong("lease", spelled(settings.lease_ns), "write 10ms to 60s");
    }
    if !(settings.lease_ns..=10 * minute_ns).contains(&settings.session_ns) {
        let want = "write a time as long as the lease or longer, 10m at most";
        return wrong("session", spelled(settings.session_ns), want);
    }
    if !(100_000..=settings.lease_ns).contains(&settings.retry_ns) {
        let want = "write 100us or more, and no more than the lease";
        return wrong("retry", spelled(settings.retry_ns), want);
    }
    if !(1_000_000..=minute_ns).contains(&settings.commit_interval_ns) {
        return wrong("commit-interval", spelled(settings.commit_interval_ns), "write 1ms to 60s");
    }
    if settings.drift_ppm > 100_000 {
        return wrong("drift-ppm", settings.drift_ppm.to_string(), "write 0 to 100000");
    }
    if !(512..=65_000).contains(&settings.datagram_bytes) {
        return wrong("datagram-bytes", settings.datagram_bytes.to_string(), "write 512 to 65000");
    }
    let segments = 65_536..=1 << 30;
    if !segments.contains(&settings.segment_bytes) {
        let want = "write 65536 to 1073741824";
        return wrong("segment-bytes", settings.segment_bytes.to_string(), want);
    }
    if !(1..=65_536).contains(&settings.copy_part_entries) {
        let want = "write 1 to 65536";
        return wrong("copy-part-entries", settings.copy_part_entries.to_string(), want);
    }
    if settings.copies_at_once == 0 {
        return wrong("copies-at-once", "0".to_owned(), "write 1 or more");
    }
    if !(1..=1 << 20).contains(&settings.pending_max) {
        let want = "write 1 to 1048576";
        return wrong("pending-max", settings.pending_max.to_string(), want);
    }
    Ok(())
}

fn time(key: &'static str, text: &str) -> Result<u64, SettingsError> {
    let parsed = parse_duration(text).ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
    let want = "write a time, as 500ms";
    parsed.ok_or_else(|| SettingsError::Value { key, value: text.to_owned(), want })
}

fn durability(text: &str) -> Result<Durability, SettingsError> {
    match text {
        "replicated" => Ok(Durability::Replicated),
        "fsync" => Ok(Durability::Fsync),
        _ => {
            let want = "write replicated or fsync";
            Err(SettingsError::Value { key: "durability", value: text.to_owned(), want })
        }
    }
}

fn scheme(text: &str) -> Result<Scheme, SettingsError> {
    let want = "write rowan, rpc, write, batch or share";
    let wrong = || SettingsError::Value { key: "replication", value: text.to_owned(), want };
    Scheme::of_word(text).ok_or_else(wrong)
}

fn switch(key: &'static str, text: &str) -> Result<bool, SettingsError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(SettingsError::Value { key, value: text.to_owned(), want: "write on or off" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        Stored {
            name: "test".to_owned(),
            key: Key::new([7; 16]),
            rebalance: true,
            settings: Stored::defaults(),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = stored().to_text();
        let read = Stored::parse(&text).unwrap();
        assert_eq!(read.to_text(), text);
        assert_eq!(format!("{:?}", read.settings), format!("{:?}", stored().settings));
    }

    #[test]
    fn what_says_no_scheme_is_by_the_first_one() {
        let text = stored().to_text().replace("replication = \"rowan\"\n", "");
        assert_eq!(Stored::parse(&text).unwrap().settings.scheme, Scheme::Rowan);
    }

    #[track_caller]
    fn refused(from: &str, to: &str, want: &str) {
        let text = stored().to_text();
        assert!(text.contains(from), "{text}");
        let found = Stored::parse(&text.replace(from, to)).unwrap_err().to_string();
        assert!(found.contains(want) && !found.contains('\n'), "{found}");
    }

    #[test]
    fn anything_else_is_refused_in_one_line() {
        refused("format = 1", "format = 2", "format 2, this release reads 1");
        refused("copies = 3\n", "", "missing field `copies`");
        refused("copies = 3\n", "copies = 3\ncopiez = 4\n", "unknown field `copiez`");
        refused("copies = 3\n", "copies = 0\n", "copies = 0 is wrong: write 1 to 7");
        refused("min-copies = 2", "min-copies = 4", "no more than copies");
        refused("lease = \"500ms\"", "lease = \"500\"", "lease = 500 is wrong");
        refused("\"replicated\"", "\"sometimes\"", "write replicated or fsync");
        refused("\"rowan\"", "\"rdma\"", "write rowan, rpc, write, batch or share");
        refused("key = \"07", "key = \"x7", "(not shown)");
    }
}
