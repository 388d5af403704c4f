//! The meaning of the columns of a CSV trace: by number, by the header's word, or by convention.

use std::str::FromStr;

use crate::cache_trace::TraceError;

/// The column of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The column's number, from 1.
    Number(usize),
    /// The header's word, in any case.
    Header(String),
}

/// The unit of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds, the default.
    #[default]
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimeUnit {
    /// Converts to milliseconds; `None`: below 0 or not a number.
    pub(super) fn milliseconds(self, number: f64) -> Option<u64> {
        let factor = match self {
            TimeUnit::Seconds => 1e3,
            TimeUnit::Milliseconds => 1.0,
            TimeUnit::Microseconds => 1e-3,
            TimeUnit::Nanoseconds => 1e-6,
        };
        let milliseconds = number * factor;
        (0.0..TIME_MS_MAX).contains(&milliseconds).then_some(milliseconds as u64)
    }
}

/// Two million years: adding to it cannot overflow.
const TIME_MS_MAX: f64 = (1_u64 << 56) as f64;

impl FromStr for TimeUnit {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<TimeUnit, TraceError> {
        match text {
            "s" => Ok(TimeUnit::Seconds),
            "ms" => Ok(TimeUnit::Milliseconds),
            "us" => Ok(TimeUnit::Microseconds),
            "ns" => Ok(TimeUnit::Nanoseconds),
            _ => Err(TraceError::BadColumns { text: format!("time-unit={text}") }),
        }
    }
}

/// The user's options for columns; the others are taken from the header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Time of the request.
    pub time: Option<Place>,
    /// The key.
    pub key: Option<Place>,
    /// Length of the value.
    pub size: Option<Place>,
    /// Length of the key.
    pub key_size: Option<Place>,
    /// The operation.
    pub op: Option<Place>,
    /// Lifetime of the value in seconds.
    pub ttl: Option<Place>,
    /// The separator of fields; `None`: a comma.
    pub delimiter: Option<u8>,
    /// Whether the first line is a header; `None`: it is one unless it starts with a number.
    pub has_header: Option<bool>,
    /// The unit of the time column.
    pub time_unit: TimeUnit,
}

/// `time=2,size=4,key=lbn`; the names of libCacheSim (`time-col=2,obj-id-col=5`) mean the same.
impl FromStr for Columns {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Columns, TraceError> {
        let mut columns = Columns::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            columns.take(part).ok_or_else(|| TraceError::BadColumns { text: part.to_owned() })?;
        }
        Ok(columns)
    }
}

impl Columns {
    fn take(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=')?;
        let field = match name {
            "time" | "time-col" => &mut self.time,
            "key" | "obj-id" | "obj-id-col" => &mut self.key,
            "size" | "obj-size" | "obj-size-col" => &mut self.size,
            "key-size" | "key-size-col" => &mut self.key_size,
            "op" | "op-col" => &mut self.op,
            "ttl" | "ttl-col" => &mut self.ttl,
            "delimiter" => {
                self.delimiter = Some(delimiter_of(value)?);
                return Some(());
            }
            "has-header" => {
                self.has_header = Some(switch_of(value)?);
                return Some(());
            }
            "time-unit" => {
                self.time_unit = value.parse().ok()?;
                return Some(());
            }
            _ => return None,
        };
        *field = Some(match value.parse::<usize>() {
            Ok(0) => return None,
            Ok(number) => Place::Number(number),
            Err(_) if value.is_empty() => return None,
            Err(_) => Place::Header(value.to_owned()),
        });
        Some(())
    }
}

fn delimiter_of(text: &str) -> Option<u8> {
    match text {
        "comma" => Some(b','),
        "tab" | "\\t" => Some(b'\t'),
        "space" => Some(b' '),
        "semicolon" => Some(b';'),
        "pipe" => Some(b'|'),
        _ if text.len() == 1 && text.is_ascii() => Some(text.as_bytes()[0]),
        _ => None,
    }
}

fn switch_of(text: &str) -> Option<bool> {
    match text {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The places of all fields, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub time: Option<usize>,
    pub key: usize,
    pub size: Option<usize>,
    pub key_size: Option<usize>,
    pub op: Option<usize>,
    pub ttl: Option<usize>,
}

/// Twitter's published traces have no header: time, key, key size, value size, client, operation,
/// TTL.
const TWITTER_FIELDS: usize = 7;
const TWITTER: Layout =
    Layout { time: Some(0), key: 1, size: Some(3), key_size: Some(2), op: Some(5), ttl: Some(6) };

const TIME_WORDS: &[&str] = &["time", "timestamp", "clock_time", "ts"];
const KEY_WORDS: &[&str] =
    &["key", "lbn", "obj_id", "object_id", "objid", "obj", "id", "anonymized key", "block", "lba"];
const SIZE_WORDS: &[&str] = &["size", "obj_size", "object_size", "value_size", "value size"];
const KEY_SIZE_WORDS: &[&str] = &["key_size", "key size"];
const OP_WORDS: &[&str] = &["op", "operation"];
const TTL_WORDS: &[&str] = &["ttl"];

impl Layout {
    /// Finds the columns by the user's options and the header, if there is one. `fields` is the
    /// number of fields of the first line.
    pub(super) fn of(
        columns: &Columns,
        header: Option<&[String]>,
        fields: usize,
    ) -> Result<Layout, TraceError> {
        let said_nothing = columns.key.is_none() && columns.time.is_none();
        if header.is_none() && said_nothing && fields == TWITTER_FIELDS {
            return Ok(TWITTER);
        }
        let find = |place: &Option<Place>, what: &'static str, words: &[&str]| {
            let in_header = |wanted: &str| {
                header?.iter().position(|word| word.eq_ignore_ascii_case(wanted.trim()))
            };
            match place {
                Some(Place::Number(number)) => Ok(Some(number - 1)),
                Some(Place::Header(word)) => {
                    in_header(word).map(Some).ok_or(TraceError::NoColumn { what })
                }
                None => Ok(words.iter().find_map(|word| in_header(word))),
            }
        };
        let key = find(&columns.key, "key", KEY_WORDS)?;
        Ok(Layout {
            time: find(&columns.time, "time", TIME_WORDS)?,
            key: key.ok_or(TraceError::NoColumn { what: "key" })?,
            size: find(&columns.size, "size", SIZE_WORDS)?,
            key_size: find(&columns.key_size, "key-size", KEY_SIZE_WORDS)?,
            op: find(&columns.op, "op", OP_WORDS)?,
            ttl: find(&columns.ttl, "ttl", TTL_WORDS)?,
        })
    }

    /// The place of the last field that is read, from 0.
    pub(super) fn last(&self) -> usize {
        let places = [self.time, Some(self.key), self.size, self.key_size, self.op, self.ttl];
        places.into_iter().flatten().max().unwrap_or(0)
    }
}
