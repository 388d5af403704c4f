//! MONITOR: sends every command, as it arrives, to the clients that monitor.
//!
//! ```text
//!  a gathering ── any monitoring client? (one load) ── no ─▶ nothing
//!                           │ yes
//!                           └▶ its bytes are read again, a line a command ─▶ each monitor's worker
//! ```
//!
//! # Invariants
//! M1: without a monitor a gathering costs one relaxed load.
//! M2: a monitor that reads more slowly than commands come is disconnected: no worker waits for it.
//! M3: passwords are not shown, nor are commands of clients that have not logged in.
//! M4: a line shows at most [`LINE_BYTES_MAX`] of a command, and nothing more is written once the
//!     lines are more than may be under way: a long command costs no memory beside the buffers.
//!
//! # Limits
//! Lines come in the order of arrival at each worker; those of several workers are merged as they
//! come. Commands of a transaction are shown when they are queued. Commands of operators are not
//! shown, as in Redis.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use budget::{BufferBudget, UnderWay};
use wire::Parsed;
use wire::resp::{ArgIter, Flags, Limits, Parser, Spec};

use crate::clients::Client;
use crate::end::End;
use crate::slow_log::shown_args;

/// What a line shows of a command's bytes, at most: each byte may take four.
const LINE_BYTES_MAX: usize = 16 << 10;

/// A flag beside the number of monitoring clients: a session of HOTKEYS counts keys.
const COUNTS_KEYS: usize = 1 << (usize::BITS - 1);

/// The clients that monitor.
#[derive(Debug, Default)]
pub struct Monitors {
    /// The number of clients, and [`COUNTS_KEYS`]: one word, so that a gathering loads only one.
    monitoring: AtomicUsize,
    /// Lines on their way to monitors' workers.
    pub under_way: UnderWay,
    clients: Mutex<Vec<Arc<Client>>>,
}

impl Monitors {
    /// Whether any client monitors, or keys are counted.
    #[inline]
    pub fn is_any(&self) -> bool {
        // Relaxed: a change may take effect one command later.
        self.monitoring.load(Ordering::Relaxed) > 0
    }

    /// Whether a session of HOTKEYS counts keys.
    pub fn counts_keys(&self) -> bool {
        self.monitoring.load(Ordering::Relaxed) & COUNTS_KEYS != 0
    }

    /// Records that a session has begun or ended.
    pub fn count_keys(&self, counts: bool) {
        if counts {
            self.monitoring.fetch_or(COUNTS_KEYS, Ordering::Relaxed);
        } else {
            self.monitoring.fetch_and(!COUNTS_KEYS, Ordering::Relaxed);
        }
    }

    /// Whether any client monitors.
    pub fn has_any(&self) -> bool {
        self.monitoring.load(Ordering::Relaxed) & !COUNTS_KEYS > 0
    }

    fn set_len(&self, len: usize) {
        // Under the lock of the clients: only the other bit may change meanwhile.
        let with = |word| Some((word & COUNTS_KEYS) | len);
        let _ = self.monitoring.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }

    /// The client monitors from now on.
    pub fn add(&self, client: &Arc<Client>) {
        let mut clients = self.lock();
        if clients.iter().all(|known| known.id != client.id) {
            clients.push(Arc::clone(client));
        }
        self.set_len(clients.len());
    }

    /// Ends the client's monitoring, if it monitors.
    pub fn remove(&self, client_id: u64) {
        if !self.has_any() {
            return;
        }
        let mut clients = self.lock();
        clients.retain(|client| client.id != client_id);
        self.set_len(clients.len());
    }

    /// Whether that client monitors.
    pub fn has(&self, client_id: u64) -> bool {
        self.has_any() && self.lock().iter().any(|client| client.id == client_id)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines while they are made.
#[derive(Debug)]
pub struct Feed {
    lines: String,
    bytes_max: u64,
}

impl Feed {
    /// No lines yet.
    pub fn new(budget: &BufferBudget) -> Feed {
        Feed { lines: String::new(), bytes_max: UnderWay::bytes_max(budget) }
    }

    /// The bytes that were written.
    pub fn len_bytes(&self) -> usize {
        self.lines.len()
    }

    /// Adds the commands that a client sent and the server accepted.
    pub fn add(&mut self, client: &Client, at: Duration, mut bytes: &[u8]) {
        let limits = Limits::new(usize::MAX);
        while !bytes.is_empty() && self.lines.len() as u64 <= self.bytes_max {
            let parsed = Parser::default().parse(bytes, &limits);
            let Parsed::Done { value, consumed_bytes } = parsed else { return };
            bytes = &bytes[consumed_bytes..];
            if let Some(line) = value.quoted_line() {
                let mut rewritten = Vec::new();
                line.rewrite(&mut rewritten);
                self.add(client, at, &rewritten);
            } else if !value.is_empty() && is_shown(value.iter()) {
                self.add_line(client, at, value.iter());
            }
        }
    }

    fn add_line(&mut self, client: &Client, at: Duration, args: ArgIter<'_>) {
        let (seconds, us) = (at.as_secs(), at.subsec_micros());
        // Writing to a string cannot fail.
        let _ = match &client.peer {
            End::Ip(address) => write!(self.lines, "+{seconds}.{us:06} [0 {address}]"),
            End::Unix(path) => {
                write!(self.lines, "+{seconds}.{us:06} [0 unix:{}]", path.display())
            }
        };
        let (mut left_bytes, mut left_count) = (LINE_BYTES_MAX, args.len());
        shown_args(args, |arg| {
            let shown = &arg[..arg.len().min(left_bytes)];
            left_bytes -= shown.len();
            left_count -= 1;
            self.lines.push_str(" \"");
            shown.iter().for_each(|byte| push_escaped(&mut self.lines, *byte));
            let hidden_bytes = arg.len() - shown.len();
            if hidden_bytes > 0 {
                let _ = write!(self.lines, "... ({hidden_bytes} more bytes)");
            }
            self.lines.push('"');
            // An argument without bytes takes its quotes.
            left_bytes = left_bytes.saturating_sub(3);
            left_bytes > 0
        });
        if left_count > 0 {
            let _ = write!(self.lines, " \"... ({left_count} more arguments)\"");
        }
        self.lines.push_str("\r\n");
    }

    /// Hands the lines of each monitor to `post`; `None`: it is too slow, and is to be cut off.
    pub fn send(
        self,
        (monitors, budget): (&Monitors, &BufferBudget),
        mut post: impl FnMut(&Client, Option<Arc<str>>),
    ) {
        if self.lines.is_empty() {
            return;
        }
        let lines: Arc<str> = self.lines.into();
        let mut cut_count = 0;
        for client in monitors.lock().iter().filter(|client| !client.is_killed()) {
            let has_room = monitors.under_way.try_add(budget, lines.len());
            cut_count += u64::from(!has_room);
            post(client, has_room.then(|| Arc::clone(&lines)));
        }
        if cut_count > 0 {
            tracing::warn!(cut_count, "clients of MONITOR were cut off: commands come too fast");
        }
    }
}

/// Whether monitors may see a command.
fn is_shown(mut args: ArgIter<'_>) -> bool {
    let name = args.next().unwrap_or_default();
    let Some(spec) = Spec::by_name(name) else { return false };
    let second = args.next().unwrap_or_default();
    let own = |sub: &&Spec| sub.own_name().as_bytes().eq_ignore_ascii_case(second);
    let spec = if spec.id.is_container() { spec.subcommands().find(own) } else { Some(spec) };
    spec.is_some_and(|spec| !spec.flags.contains(Flags::ADMIN))
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Escapes bytes as Redis does.
fn push_escaped(line: &mut String, byte: u8) {
    match byte {
        b'\\' => line.push_str("\\\\"),
        b'"' => line.push_str("\\\""),
        b'\n' => line.push_str("\\n"),
        b'\r' => line.push_str("\\r"),
        b'\t' => line.push_str("\\t"),
        0x07 => line.push_str("\\a"),
        0x08 => line.push_str("\\b"),
        b' '..=b'~' => line.push(char::from(byte)),
        _ => {
            line.push_str("\\x");
            for digit in [byte >> 4, byte & 15] {
                line.push(char::from(DIGITS[usize::from(digit)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{UnixMillis, WorkerId};
    use counters::Dialect;

    use super::*;
    use crate::clients::{Arrival, Clients, ClientsMax};

    #[test]
    fn bytes_are_shown_as_redis_shows_them() {
        let mut line = String::new();
        b"x\x00y\n\"z\\\xff\x7f".iter().for_each(|byte| push_escaped(&mut line, *byte));
        assert_eq!(line, r#"x\x00y\n\"z\\\xff\x7f"#);
    }

    /// The lines of commands with these words; the room for lines is a 32nd of the buffers.
    fn lines_of(buffers_bytes: u64, commands: &[&[&[u8]]]) -> String {
        let budget = Arc::new(BufferBudget::new(buffers_bytes));
        let (mut feed, clients) = (Feed::new(&budget), Clients::new(&budget, 0));
        let end = End::Unix(std::path::Path::new("/s").into());
        let arrival = Arrival {
            protocol: Dialect::Resp,
            worker: WorkerId(0),
            peer: end.clone(),
            local: end,
            descriptor: 3,
            now: UnixMillis(1),
        };
        let max = ClientsMax { all: 1, per_address: 0 };
        let client = clients.admit(arrival, max).expect("room for a client");
        for words in commands {
            let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
            for word in *words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
            feed.add(&client, Duration::ZERO, &bytes);
        }
        feed.lines
    }

    #[test]
    fn a_long_command_is_shown_in_part() {
        let long = vec![b'x'; 1 << 20];
        let line = lines_of(64 << 20, &[&[b"SET", b"k", &long]]);
        assert!(line.len() < LINE_BYTES_MAX + 100, "{}", line.len());
        assert!(line.ends_with(" more bytes)\"\r\n"), "{}", &line[line.len() - 60..]);
        let many = vec![&b"k"[..]; 100_000];
        let line = lines_of(64 << 20, &[&[&[&b"MGET"[..]], &many[..]].concat()]);
        assert!(line.len() < 3 * LINE_BYTES_MAX, "{}", line.len());
        assert!(line.ends_with(" more arguments)\"\r\n"), "{}", &line[line.len() - 60..]);
    }

    #[test]
    fn no_more_is_written_than_may_be_under_way() {
        let zeros = vec![0; 1 << 20];
        let set: &[&[u8]] = &[b"SET", b"k", &zeros];
        let lines = lines_of(4 << 20, &vec![set; 100]);
        assert!(lines.len() < (128 << 10) + 5 * LINE_BYTES_MAX, "{}", lines.len());
    }
}
