//! Values of settings: what each kind accepts, and how it is printed so that it reads back.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use base::ByteSize;
use server::Dispatch;

use crate::settings::presets;

/// The kinds of values.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `HOST:PORT`, a port alone (loopback), or `off`.
    Address,
    /// The path of a file that is read at start; empty when unset.
    Path,
    /// The name or number of a host; empty when unset.
    Host,
    /// Names and numbers of hosts, with commas; empty when unset.
    Hosts,
    /// Hosts of a cluster's servers, each with or without a port, with commas; empty when unset.
    Servers,
    /// The path of a socket, or `off`.
    SocketPath,
    /// The mode of a file, octal.
    Mode,
    /// A network device and the number of its queues, or `off`.
    Device,
    /// A size within bounds.
    Size {
        /// Smallest.
        min_bytes: u64,
        /// Largest.
        max_bytes: u64,
    },
    /// `auto` or a size within bounds.
    AutoSize {
        /// Smallest.
        min_bytes: u64,
        /// Largest.
        max_bytes: u64,
    },
    /// A whole number within bounds.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// `auto` or a whole number within bounds.
    AutoCount {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// `auto`, `on`, `off`, or a number of cache ways.
    CacheWays,
    /// `auto`, `off` or a whole number within bounds.
    SwitchedCount {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// `off` or a time within bounds.
    SwitchedTime {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// The dispatch rule for requests; some words carry a number.
    Dispatch,
    /// The name of a preset.
    Preset,
    /// `on` or `off`; TOML's booleans too.
    Switch,
    /// Text that `config show` does not print.
    Secret,
}

/// Bits of the kernel's mask.
const WAYS_MAX: u64 = 64;

/// A setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Unset,
    /// The server decides.
    Auto,
    /// Switched off, or a closed port.
    Off,
    /// Switched on.
    On,
    /// An address to listen on.
    Address(SocketAddr),
    /// A size.
    Size(ByteSize),
    /// A whole number.
    Count(u64),
    /// A time.
    Time(Duration),
    /// One of the words of the setting's choice.
    Choice(&'static str),
    /// Which worker executes a request.
    Dispatch(Dispatch),
    /// Text that is not shown.
    Text(String),
    /// A path, as it was written.
    Path(String),
    /// The mode of a file.
    Mode(u16),
    /// A network device.
    Device {
        /// Its name.
        name: String,
        /// The number of its queues, from the first on; `None`: all.
        queues: Option<u32>,
    },
}

impl Kind {
    /// Parses a value of any layer; the error says what is valid.
    pub fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Address => read_address(text),
            Kind::Path | Kind::Host | Kind::Hosts | Kind::Servers if text.is_empty() => {
                Ok(Value::Unset)
            }
            Kind::Hosts => read_hosts(text),
            Kind::Host if text.contains(['/', ' ']) || text.len() > 253 => {
                Err(format!("`{text}` is no host: write its name or number, without a port"))
            }
            Kind::SocketPath if text == "off" => Ok(Value::Off),
            Kind::SocketPath if !is_socket_path(text) => {
                Err(format!("`{text}` is not a socket's path: write 1 to 107 bytes, or `off`"))
            }
            Kind::Mode => read_mode(text),
            Kind::Device => read_device(text),
            Kind::Path | Kind::Host | Kind::Servers | Kind::SocketPath => {
                Ok(Value::Path(text.to_owned()))
            }
            Kind::AutoSize { .. } | Kind::AutoCount { .. } | Kind::SwitchedCount { .. }
                if text == "auto" =>
            {
                Ok(Value::Auto)
            }
            Kind::SwitchedCount { .. } if text == "off" => Ok(Value::Off),
            Kind::SwitchedCount { min, max } => read_count(text, min, max, "`auto`, `off` or "),
            Kind::Size { min_bytes, max_bytes } | Kind::AutoSize { min_bytes, max_bytes } => {
                read_size(text, min_bytes, max_bytes)
            }
            Kind::CacheWays => match text {
                "auto" => Ok(Value::Auto),
                "on" => Ok(Value::On),
                "off" => Ok(Value::Off),
                _ => read_count(text, 1, WAYS_MAX, "`auto`, `on`, `off` or "),
            },
            Kind::SwitchedTime { min, max } => read_time(text, min, max),
            Kind::Count { min, max } => read_count(text, min, max, ""),
            Kind::AutoCount { min, max } => read_count(text, min, max, "`auto` or "),
            Kind::Choice(words) => words
                .iter()
                .find(|word| **word == text)
                .map(|word| Value::Choice(word))
                .ok_or_else(|| format!("`{text}` is not {}", one_of(words))),
            Kind::Dispatch if text == "auto" => Ok(Value::Auto),
            Kind::Dispatch => read_dispatch(text),
            Kind::Preset => presets::read(text).map(|preset| Value::Choice(preset.name)),
            Kind::Switch => read_switch(text),
            Kind::Secret if text.is_empty() => Ok(Value::Unset),
            Kind::Secret => Ok(Value::Text(text.to_owned())),
        }
    }
}

/// The kernel's address structure has room for this many bytes and a zero.
fn is_socket_path(text: &str) -> bool {
    (1..=107).contains(&text.len()) && !text.contains('\0')
}

/// The kernel's rule for names: 1 to 15 bytes, no slash, no colon, no blank.
fn read_hosts(text: &str) -> Result<Value, String> {
    let is_name = |host: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        !host.is_empty() && host.len() <= 253 && host.bytes().all(is_part)
    };
    let is_host = |host: &&str| is_name(host) || host.parse::<IpAddr>().is_ok();
    match text.split(',').find(|host| !is_host(host)) {
        Some(wrong) => Err(format!("`{wrong}` is no host: write names or numbers, without ports")),
        None => Ok(Value::Path(text.to_owned())),
    }
}

fn is_device_name(text: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_graphic() && !b"/:".contains(&byte);
    (1..=15).contains(&text.len()) && text.bytes().all(is_sound) && !matches!(text, "." | "..")
}

fn read_device(text: &str) -> Result<Value, String> {
    if text == "off" {
        return Ok(Value::Off);
    }
    let (name, queues) = match text.split_once(':') {
        None => (text, Ok(None)),
        Some((name, queues)) => (name, queues.parse::<u32>().map(Some)),
    };
    match queues {
        Ok(queues) if queues != Some(0) && is_device_name(name) => {
            Ok(Value::Device { name: name.to_owned(), queues })
        }
        _ => Err(format!(
            "`{text}` is not a network device: write DEVICE or DEVICE:QUEUES, e.g. eth0 or \
             eth0:4, or `off`"
        )),
    }
}

fn read_mode(text: &str) -> Result<Value, String> {
    let is_octal =
        (3..=4).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
    match u16::from_str_radix(text, 8) {
        Ok(mode @ 0..=0o777) if is_octal => Ok(Value::Mode(mode)),
        _ => Err(format!("`{text}` is not the mode of a file: write 0000 to 0777, e.g. 0770")),
    }
}

fn read_address(text: &str) -> Result<Value, String> {
    const WANTED: &str = "an address: write HOST:PORT, e.g. 127.0.0.1:6379 or [::1]:6379, or `off`";
    if text == "off" {
        return Ok(Value::Off);
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok(Value::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
    }
    if let Some(port) = text.strip_prefix("*:").and_then(|port| port.parse::<u16>().ok()) {
        return Ok(Value::Address(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Value::Address(address));
    }
    let is_host_and_port = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !is_host_and_port || text.contains(['/', ' ', '[']) {
        return Err(format!("`{text}` is not {WANTED}"));
    }
    let mut found: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|_| format!("the host of `{text}` is not known: write an IP address"))?
        .collect();
    found.sort_by_key(|address| matches!(address.ip(), IpAddr::V6(_)));
    found
        .first()
        .map(|address| Value::Address(*address))
        .ok_or_else(|| format!("the host of `{text}` has no address: write an IP address"))
}

fn read_size(text: &str, min_bytes: u64, max_bytes: u64) -> Result<Value, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if size.bytes < min_bytes {
        return Err(format!("`{text}` is too little: write at least {}", spelled(min_bytes)));
    }
    if size.bytes > max_bytes {
        return Err(format!("`{text}` is too much: write at most {}", spelled(max_bytes)));
    }
    Ok(Value::Size(size))
}

fn spelled(bytes: u64) -> ByteSize {
    ByteSize { bytes }
}

fn read_count(text: &str, min: u64, max: u64, or_auto: &str) -> Result<Value, String> {
    match text.parse::<u64>() {
        Ok(count) if (min..=max).contains(&count) => Ok(Value::Count(count)),
        _ => Err(format!("`{text}` is not {or_auto}a whole number from {min} to {max}")),
    }
}

fn read_time(text: &str, min: Duration, max: Duration) -> Result<Value, String> {
    match base::parse_duration(text) {
        _ if text == "off" => Ok(Value::Off),
        Err(error) if base::is_unit_missing(text) => Err(error.to_string()),
        Ok(time) if (min..=max).contains(&time) => Ok(Value::Time(time)),
        _ => {
            let example = if min > Duration::from_millis(1) { "60s" } else { "1ms" };
            let [min, max] = [min, max].map(base::format_duration);
            Err(format!("`{text}` is not `off` or a time from {min} to {max}, e.g. {example}"))
        }
    }
}

fn read_dispatch(text: &str) -> Result<Value, String> {
    match text.parse() {
        Ok(dispatch) => Ok(Value::Dispatch(dispatch)),
        Err(error) => Err(format!("{error}, or auto")),
    }
}

fn read_switch(text: &str) -> Result<Value, String> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Ok(Value::On),
        "off" | "false" | "no" | "0" => Ok(Value::Off),
        _ => Err(format!("`{text}` is neither `on` nor `off`")),
    }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [only] => format!("built: the only value is `{only}`"),
        [first @ .., last] => format!("one of {} or {last}", first.join(", ")),
        [] => "a value".to_owned(),
    }
}

impl fmt::Display for Value {
    /// As a user would write it on the command line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unset => Ok(()),
            Value::Auto => formatter.write_str("auto"),
            Value::Off => formatter.write_str("off"),
            Value::On => formatter.write_str("on"),
            Value::Address(address) => address.fmt(formatter),
            Value::Size(size) => size.fmt(formatter),
            Value::Count(count) => count.fmt(formatter),
            Value::Time(time) => formatter.write_str(&base::format_duration(*time)),
            Value::Choice(word) => formatter.write_str(word),
            Value::Dispatch(dispatch) => dispatch.fmt(formatter),
            Value::Mode(mode) => write!(formatter, "{mode:04o}"),
            Value::Text(text) | Value::Path(text) => formatter.write_str(text),
            Value::Device { name, queues: None } => formatter.write_str(name),
            Value::Device { name, queues: Some(queues) } => write!(formatter, "{name}:{queues}"),
        }
    }
}
