//! Log lines on standard error: text for people, JSON for machines; never on the data path.
//!
//! ```text
//!  human   13:22:01 INFO  ready resp=127.0.0.1:6379
//!  JSON    {"ts":"2026-11-21T13:22:01.5Z","level":"info","target":"dovetail","msg":"ready",...}
//! ```

use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Least level of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(usize);

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// The level at the start.
static HANDLE: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

impl Level {
    /// The word of the setting.
    pub fn name(self) -> &'static str {
        LEVELS[self.0].0
    }

    /// The level of a word of the setting `log`; `info` for any other.
    pub fn named(name: &str) -> Level {
        Level(LEVELS.iter().position(|(word, _)| *word == name).unwrap_or(3))
    }

    /// More (`-v`) or fewer (`-q`) lines, one level each.
    pub fn moved(self, more: u8, fewer: u8) -> Level {
        Level((self.0 + usize::from(more)).saturating_sub(usize::from(fewer)).min(LEVELS.len() - 1))
    }
}

/// Lines of that level are written from now on, and above; a word of the setting `log`.
pub fn change(name: &'static str) {
    if let Some(handle) = HANDLE.get() {
        // There is always a subscriber, since it is never dropped.
        let _ = handle.reload(LEVELS[Level::named(name).0].1);
    }
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Human on a terminal, else JSON.
    Auto,
    /// Text.
    Human,
    /// One JSON object each.
    Json,
}

impl Format {
    /// The form of a word of the setting `log-format`.
    pub fn named(name: &str) -> Format {
        match name {
            "human" => Format::Human,
            "json" => Format::Json,
            _ => Format::Auto,
        }
    }
}

/// Starts logging; called once, before any thread is started.
pub fn start(level: Level, format: Format) {
    let is_terminal = std::io::stderr().is_terminal();
    let is_human = format == Format::Human || format == Format::Auto && is_terminal;
    let has_colour =
        is_human && is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let (filter, handle) = reload::Layer::new(LEVELS[level.0].1);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(has_colour);
    let lines = lines.event_format(Lines { is_human });
    tracing_subscriber::registry().with(filter).with(lines).init();
    // This happens once: the subscriber lives until the process ends.
    let _ = HANDLE.set(handle);
}

/// An event's message and its fields, in the order in which they were written.
#[derive(Default)]
struct Parts {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Parts {
    fn of(event: &Event<'_>) -> Parts {
        let mut parts = Parts::default();
        event.record(&mut parts);
        parts
    }

    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// The form of every line.
struct Lines {
    is_human: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        if self.is_human {
            write_text(writer, &time, event)
        } else {
            write_json(writer, time, event)
        }
    }
}

fn write_json(mut writer: Writer<'_>, time: String, event: &Event<'_>) -> fmt::Result {
    let parts = Parts::of(event);
    let level = event.metadata().level().as_str().to_ascii_lowercase();
    let head = [
        ("ts", Value::from(time)),
        ("level", level.into()),
        ("target", event.metadata().target().into()),
        ("msg", parts.message.into()),
    ];
    // Written by hand: a map of serde_json would sort the names.
    for (index, (name, value)) in head.into_iter().chain(parts.fields).enumerate() {
        let mark = if index == 0 { '{' } else { ',' };
        write!(writer, "{mark}\"{name}\":{value}")?;
    }
    writeln!(writer, "}}")
}

fn write_text(mut writer: Writer<'_>, time: &str, event: &Event<'_>) -> fmt::Result {
    // From 2026-11-21T13:22:01.512345Z the text format shows only the time of day.
    write!(writer, "{} ", time.get(11..19).unwrap_or(time))?;
    let level = event.metadata().level();
    let colour = match *level {
        tracing::Level::ERROR => "31",
        tracing::Level::WARN => "33",
        tracing::Level::INFO => "32",
        _ => "2",
    };
    if writer.has_ansi_escapes() {
        write!(writer, "\x1b[{colour}m{level:<5}\x1b[0m ")?;
    } else {
        write!(writer, "{level:<5} ")?;
    }
    let parts = Parts::of(event);
    write!(writer, "{}", one_line(&parts.message))?;
    for (name, value) in &parts.fields {
        match value {
            Value::String(text) => write!(writer, " {name}={}", one_line(text))?,
            value => write!(writer, " {name}={value}")?,
        }
    }
    writeln!(writer)
}

/// Control characters escaped, so that nothing a client sent can forge a line.
fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, letter| {
        if letter.is_control() {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_moves_the_level_and_stops_at_the_ends() {
        assert_eq!(Level::named("info").moved(1, 0), Level::named("debug"));
        assert_eq!(Level::named("info").moved(9, 0), Level::named("trace"));
        assert_eq!(Level::named("info").moved(0, 9), Level::named("off"));
        assert_eq!(Level::named("warn").moved(1, 1), Level::named("warn"));
    }

    #[test]
    fn a_field_cannot_start_a_new_line() {
        assert_eq!(one_line("a\nINFO b\x1b[0m"), "a\\nINFO b\\u{1b}[0m");
    }
}
