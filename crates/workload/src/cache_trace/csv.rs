//! Reads CSV traces: one request per line.

use std::io::{BufRead, Read};

use base::KeyHasher;

use crate::cache_trace::columns::{Columns, Layout, TimeUnit};
use crate::cache_trace::{Access, CacheRequest, TraceError, end_after};

/// The longest line: no request needs more, and a file without line ends is not a trace.
const LINE_BYTES_MAX: usize = 64 << 10;
/// More columns than any trace has.
const FIELDS_MAX: usize = 256;
/// Value size if the trace has no column for it.
const SIZE_UNKNOWN_BYTES: u32 = 1;

/// Reads requests line by line.
pub struct CsvReader<R> {
    source: R,
    layout: Layout,
    delimiter: u8,
    time_unit: TimeUnit,
    hasher: KeyHasher,
    line: Vec<u8>,
    line_number: u64,
    /// The first line, if it was not a header.
    is_line_unread: bool,
    is_done: bool,
}

impl<R: BufRead> CsvReader<R> {
    /// Reads the first line to find the columns.
    pub fn new(source: R, columns: &Columns) -> Result<CsvReader<R>, TraceError> {
        let mut reader = CsvReader {
            source,
            layout: Layout { time: None, key: 0, size: None, key_size: None, op: None, ttl: None },
            delimiter: columns.delimiter.unwrap_or(b','),
            time_unit: columns.time_unit,
            // The hasher of non-numeric texts: the same in every run.
            hasher: KeyHasher::new(0),
            line: Vec::new(),
            line_number: 0,
            is_line_unread: false,
            is_done: false,
        };
        if !reader.read_line()? {
            // An empty trace has no columns and needs none.
            reader.is_done = true;
            return Ok(reader);
        }
        let fields: Vec<&[u8]> = fields(&reader.line, reader.delimiter).collect();
        let starts_with_number = fields.first().is_some_and(|field| number(field).is_some());
        let has_header = columns.has_header.unwrap_or(!starts_with_number);
        let words: Vec<String> =
            fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        let header = has_header.then_some(words.as_slice());
        reader.layout = Layout::of(columns, header, words.len())?;
        reader.is_line_unread = !has_header;
        Ok(reader)
    }

    /// Reads a line; returns false at the end. Empty lines are skipped.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.source).take(LINE_BYTES_MAX as u64 + 1);
            if limited.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(false);
            }
            self.line_number += 1;
            if self.line.len() > LINE_BYTES_MAX {
                return Err(self.bad(format!("longer than {LINE_BYTES_MAX} bytes: no CSV?")));
            }
            while matches!(self.line.last(), Some(b'\n' | b'\r')) {
                self.line.pop();
            }
            if !self.line.is_empty() {
                return Ok(true);
            }
        }
    }

    fn bad(&self, reason: String) -> TraceError {
        TraceError::BadLine { line: self.line_number, reason }
    }

    fn next_request(&mut self) -> Result<Option<CacheRequest>, TraceError> {
        if !std::mem::take(&mut self.is_line_unread) && !self.read_line()? {
            return Ok(None);
        }
        self.parse().map(Some).map_err(|reason| self.bad(reason))
    }

    fn parse(&self) -> Result<CacheRequest, String> {
        let mut places: [&[u8]; FIELDS_MAX] = [b""; FIELDS_MAX];
        let mut count = 0;
        for (place, field) in places.iter_mut().zip(fields(&self.line, self.delimiter)) {
            *place = field;
            count += 1;
        }
        let layout = &self.layout;
        if layout.last() >= count {
            return Err(format!(
                "{count} fields, the last that is needed is {}",
                layout.last() + 1
            ));
        }
        let time_ms = match layout.time {
            Some(place) => time_of(places[place], self.time_unit)?,
            None => self.line_number,
        };
        let length = |place: Option<usize>, what, default| match place {
            Some(place) => length_of(places[place], what),
            None => Ok(default),
        };
        Ok(CacheRequest {
            time_ms,
            key: self.key_of(places[layout.key])?,
            key_len_bytes: length(layout.key_size, "key size", 0)?,
            value_len_bytes: length(layout.size, "size", SIZE_UNKNOWN_BYTES)?,
            ttl_s: length(layout.ttl, "ttl", 0)?,
            access: layout.op.map_or(Access::Look, |place| access_of(places[place])),
        })
    }

    /// Keeps numbers as they are, so that another tool's keys can be compared with ours.
    fn key_of(&self, field: &[u8]) -> Result<u64, String> {
        if field.is_empty() {
            return Err("the key is empty".to_owned());
        }
        let is_plain = field == b"0" || field[0] != b'0';
        let digits = std::str::from_utf8(field).ok().filter(|_| is_plain);
        let number = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.and_then(|text| text.parse().ok());
        Ok(number.unwrap_or_else(|| self.hasher.hash(field).0))
    }
}

impl<R: BufRead> Iterator for CsvReader<R> {
    type Item = Result<CacheRequest, TraceError>;

    fn next(&mut self) -> Option<Result<CacheRequest, TraceError>> {
        if self.is_done {
            return None;
        }
        let next = self.next_request();
        end_after(&mut self.is_done, next)
    }
}

/// The fields of a line, without spaces and quotes around them.
fn fields(line: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> {
    line.split(move |byte| *byte == delimiter).map(|field| {
        let field = field.trim_ascii();
        let inner = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\""));
        inner.unwrap_or(field)
    })
}

fn number(field: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(field).ok()?;
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

fn shown(field: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 40;
    field[..field.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()
}

fn time_of(field: &[u8], unit: TimeUnit) -> Result<u64, String> {
    let milliseconds = number(field).and_then(|number| unit.milliseconds(number));
    milliseconds.ok_or_else(|| format!("`{}` is no time", shown(field)))
}

fn length_of(field: &[u8], what: &str) -> Result<u32, String> {
    let text = std::str::from_utf8(field).ok();
    let length = text.and_then(|text| text.parse::<u32>().ok());
    length.ok_or_else(|| format!("`{}` is no {what}: write 0 to {}", shown(field), u32::MAX))
}

/// Memcached's verbs keep their meaning; any other word (block traces distinguish reads from
/// writes) is an access: the block is wanted in the cache.
fn access_of(field: &[u8]) -> Access {
    match field.to_ascii_lowercase().as_slice() {
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => {
            Access::Write
        }
        b"delete" | b"del" => Access::Delete,
        _ => Access::Look,
    }
}
