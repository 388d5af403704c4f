//! Parses the words of a line into an order: the command and its checked arguments.

use std::ops::Bound;

use base::UnixMillis;
use client::{Condition, Direction, Expiry, Range, RangeItems, SetOptions};

use crate::settings::closest;

/// Every command: its name, its arguments, and a description.
const COMMANDS: [(&str, &str, &str); 19] = [
    ("get", "KEY", "print the value"),
    ("gets", "KEY", "print the value and its version"),
    ("mget", "KEY...", "print the values of several keys"),
    ("set", "KEY VALUE [NX|XX] [EX S|PX MS|EXAT S|PXAT MS|KEEPTTL]", "store a value"),
    ("cas", "KEY VALUE VERSION", "store a value if the item still has this version (from gets)"),
    ("del", "KEY...", "delete keys; print how many existed"),
    ("incr", "KEY", "add 1 to a number"),
    ("decr", "KEY", "subtract 1"),
    ("incrby", "KEY NUMBER", "add a number"),
    ("decrby", "KEY NUMBER", "subtract a number"),
    ("append", "KEY BYTES", "append bytes to the value; print its new length"),
    ("prepend", "KEY BYTES", "insert bytes before the value; print its new length"),
    ("expire", "KEY S", "let a key expire after S seconds; print 1 if it exists"),
    ("touch", "KEY S", "the same as expire"),
    ("persist", "KEY", "let a key never expire"),
    (
        "range",
        "START END [LIMIT N] [REV] [KEYSONLY]",
        "print a range of keys in order; bounds: - + [key (key",
    ),
    ("ping", "", "print PONG"),
    ("stats", "", "print what this connection has sent, lost and received"),
    ("help", "", "print this list (at the prompt only; quit ends it)"),
];

/// The reasons for which words are not a valid order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOrder {
    /// No such command.
    #[error("`{name}` is no command{}", did_you_mean(name))]
    Unknown {
        /// The word as the user wrote it.
        name: String,
    },
    /// Too few arguments, too many, or different ones.
    #[error("write {name} {arguments}")]
    Arguments {
        /// The command.
        name: &'static str,
        /// Its arguments.
        arguments: &'static str,
    },
    /// Not a number, or not in its range.
    #[error("{name}: `{text}` is not {want}")]
    Value {
        /// The command.
        name: &'static str,
        /// The word as the user wrote it.
        text: String,
        /// The correct form.
        want: &'static str,
    },
}

fn did_you_mean(name: &str) -> String {
    let names = || COMMANDS.iter().map(|(name, ..)| *name);
    match closest(name, names()) {
        _ if name.starts_with('-') => {
            "; flags stand before it, and `dovetail cli --help` lists them".to_owned()
        }
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => format!("; write one of {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// The list of commands as readable text.
pub fn listing() -> String {
    let forms = COMMANDS.map(|(name, arguments, about)| (format!("{name} {arguments}"), about));
    forms.iter().fold(String::new(), |text, (form, about)| {
        // An entry longer than the column has its description on the next line.
        let gap = if form.len() > 20 { format!("\n{:23}", "") } else { String::new() };
        format!("{text}  {form:20}{gap} {about}\n")
    })
}

/// A valid command.
#[derive(Clone, Debug)]
pub enum Order {
    /// Checks that the server answers.
    Ping,
    /// Reads a value.
    Get(Vec<u8>),
    /// Reads a value and its version.
    Gets(Vec<u8>),
    /// Reads several values.
    Mget(Vec<Vec<u8>>),
    /// Stores a value.
    Set {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// Condition and expiry.
        options: SetOptions,
    },
    /// Stores a value if the item has this version.
    Cas {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// The required version of the item.
        version: u64,
    },
    /// Deletes a key.
    Del(Vec<Vec<u8>>),
    /// Adds to a number.
    Add {
        /// The key.
        key: Vec<u8>,
        /// May be negative.
        delta: i64,
    },
    /// Appends bytes.
    Append {
        /// The key.
        key: Vec<u8>,
        /// The bytes.
        value: Vec<u8>,
    },
    /// Prepends bytes.
    Prepend {
        /// The key.
        key: Vec<u8>,
        /// The bytes.
        value: Vec<u8>,
    },
    /// Changes the expiry.
    Touch {
        /// The key.
        key: Vec<u8>,
        /// The new one.
        expiry: Expiry,
    },
    /// Reads a range of keys in order.
    Range(OwnedRange),
    /// Shows the counters of the connection.
    Stats,
    /// Shows the list of commands.
    Help,
}

/// A range that owns its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRange {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    direction: Direction,
    items: RangeItems,
    item_limit: u32,
}

impl OwnedRange {
    /// The range in the client's form.
    pub fn asked(&self) -> Range<'_> {
        Range {
            start: self.start.as_ref().map(Vec::as_slice),
            end: self.end.as_ref().map(Vec::as_slice),
            direction: self.direction,
            items: self.items,
            item_limit: self.item_limit,
        }
    }
}

impl Order {
    /// Parses the words of a command line or of a line at the prompt.
    pub fn from_words(words: &[Vec<u8>]) -> Result<Order, BadOrder> {
        let (name, arguments) =
            words.split_first().map_or((&[][..], words), |(name, rest)| (name.as_slice(), rest));
        let written = String::from_utf8_lossy(name).to_ascii_lowercase();
        let command = COMMANDS.iter().find(|(name, ..)| *name == written);
        let Some(&(name, form, _)) = command else {
            return Err(BadOrder::Unknown { name: String::from_utf8_lossy(name).into_owned() });
        };
        let wrong = BadOrder::Arguments { name, arguments: form };
        let add = |key: &Vec<u8>, delta: Option<i64>, text: &[u8]| {
            let delta = delta.ok_or_else(|| bad(name, text, WHOLE))?;
            Ok(Order::Add { key: key.clone(), delta })
        };
        match (name, arguments) {
            ("ping", []) => Ok(Order::Ping),
            ("stats", []) => Ok(Order::Stats),
            ("help", []) => Ok(Order::Help),
            ("get", [key]) => Ok(Order::Get(key.clone())),
            ("gets", [key]) => Ok(Order::Gets(key.clone())),
            ("mget", [_, ..]) => Ok(Order::Mget(arguments.to_vec())),
            ("del", [_, ..]) => Ok(Order::Del(arguments.to_vec())),
            ("set", [key, value, options @ ..]) => {
                let options = set_options(options)?.ok_or(wrong)?;
                Ok(Order::Set { key: key.clone(), value: value.clone(), options })
            }
            ("cas", [key, value, text]) => {
                let version = number(text).ok_or_else(|| bad(name, text, "a version"))?;
                Ok(Order::Cas { key: key.clone(), value: value.clone(), version })
            }
            ("incr", [key]) => add(key, Some(1), b""),
            ("decr", [key]) => add(key, Some(-1), b""),
            ("incrby", [key, text]) => add(key, number(text), text),
            ("decrby", [key, text]) => add(key, number(text).and_then(i64::checked_neg), text),
            ("append", [key, value]) => {
                Ok(Order::Append { key: key.clone(), value: value.clone() })
            }
            ("prepend", [key, value]) => {
                Ok(Order::Prepend { key: key.clone(), value: value.clone() })
            }
            ("expire" | "touch", [key, text]) => {
                let expiry = Expiry::AfterMs(milliseconds(name, text, 1000)?);
                Ok(Order::Touch { key: key.clone(), expiry })
            }
            ("persist", [key]) => Ok(Order::Touch { key: key.clone(), expiry: Expiry::Never }),
            ("range", [start, end, options @ ..]) => {
                range(start, end, options)?.map(Order::Range).ok_or(wrong)
            }
            _ => Err(wrong),
        }
    }
}

const WHOLE: &str = "a whole number of 64 bits";

fn bad(name: &'static str, text: &[u8], want: &'static str) -> BadOrder {
    BadOrder::Value { name, text: String::from_utf8_lossy(text).into_owned(), want }
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A time of at least 1, in units of `unit_ms`.
fn milliseconds(name: &'static str, text: &[u8], unit_ms: u64) -> Result<u64, BadOrder> {
    let time = number::<u64>(text).filter(|time| *time > 0);
    // The largest time that the server's clock can add to itself.
    let time_ms = time.and_then(|time| time.checked_mul(unit_ms)).filter(|ms| *ms <= 1 << 60);
    time_ms.ok_or_else(|| bad(name, text, "a time of 1 or more"))
}

/// Returns `None` if the words are not options, or exclude each other.
fn set_options(mut words: &[Vec<u8>]) -> Result<Option<SetOptions>, BadOrder> {
    let mut options = SetOptions::default();
    while let [word, rest @ ..] = words {
        let option = word.to_ascii_uppercase();
        words = match (option.as_slice(), rest) {
            (b"NX" | b"XX", rest) if options.condition == Condition::Always => {
                let is_absent = option == b"NX";
                options.condition =
                    if is_absent { Condition::IfAbsent } else { Condition::IfPresent };
                rest
            }
            (b"KEEPTTL", rest) if options.expiry == Expiry::Never => {
                options.expiry = Expiry::Keep;
                rest
            }
            (unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT"), [text, rest @ ..])
                if options.expiry == Expiry::Never =>
            {
                let unit_ms = if unit.starts_with(b"E") { 1000 } else { 1 };
                let ms = milliseconds("set", text, unit_ms)?;
                let is_at = unit.ends_with(b"AT");
                options.expiry =
                    if is_at { Expiry::At(UnixMillis(ms)) } else { Expiry::AfterMs(ms) };
                rest
            }
            _ => return Ok(None),
        };
    }
    Ok(Some(options))
}

/// Returns `None` if the words are not options.
fn range(start: &[u8], end: &[u8], mut words: &[Vec<u8>]) -> Result<Option<OwnedRange>, BadOrder> {
    let (direction, items) = (Direction::Forward, RangeItems::Whole);
    let (start, end) = (bound(start, b"-")?, bound(end, b"+")?);
    let mut range = OwnedRange { start, end, direction, items, item_limit: u32::MAX };
    while let [word, rest @ ..] = words {
        words = match (word.to_ascii_uppercase().as_slice(), rest) {
            (b"REV", rest) => {
                range.direction = Direction::Reverse;
                rest
            }
            (b"KEYSONLY", rest) => {
                range.items = RangeItems::KeysOnly;
                rest
            }
            (b"LIMIT", [text, rest @ ..]) => {
                let limit = number(text).ok_or_else(|| bad("range", text, "a count"))?;
                range.item_limit = limit;
                rest
            }
            _ => return Ok(None),
        };
    }
    Ok(Some(range))
}

/// A bound in the syntax of KV.RANGE: `[key` includes the key, `(key` excludes it, or the open end.
fn bound(text: &[u8], open: &[u8]) -> Result<Bound<Vec<u8>>, BadOrder> {
    match text {
        [b'[', key @ ..] => Ok(Bound::Included(key.to_vec())),
        [b'(', key @ ..] => Ok(Bound::Excluded(key.to_vec())),
        _ if text == open => Ok(Bound::Unbounded),
        _ if open == b"-" => Err(bad("range", text, "a start: write -, [key or (key")),
        _ => Err(bad("range", text, "an end: write +, [key or (key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(line: &str) -> Result<Order, BadOrder> {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(|word| word.into()).collect();
        Order::from_words(&words)
    }

    #[track_caller]
    fn check_set(line: &str, expiry: Expiry, condition: Condition) {
        match order(line) {
            Ok(Order::Set { options, .. }) => {
                assert_eq!((options.expiry, options.condition), (expiry, condition), "{line}");
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[track_caller]
    fn check_refused(line: &str, want: &str) {
        match order(line) {
            Ok(order) => panic!("{line}: {order:?}"),
            Err(error) => assert!(error.to_string().contains(want), "{line}: {error}"),
        }
    }

    #[test]
    fn set_takes_one_condition_and_one_expiry() {
        check_set("SET k v", Expiry::Never, Condition::Always);
        check_set("set k v ex 2 nx", Expiry::AfterMs(2000), Condition::IfAbsent);
        check_set("set k v XX PX 7", Expiry::AfterMs(7), Condition::IfPresent);
        check_set("set k v keepttl", Expiry::Keep, Condition::Always);
        check_set("set k v exat 9", Expiry::At(UnixMillis(9000)), Condition::Always);
        check_set("set k v pxat 9", Expiry::At(UnixMillis(9)), Condition::Always);
        for line in ["set k v NX XX", "set k v EX", "set k v EX 1 PX 1", "set k v 5", "set k"] {
            check_refused(line, "write set KEY VALUE [NX|XX]");
        }
        for time in ["0", "-1", "x", "18446744073709551615"] {
            check_refused(&format!("set k v EX {time}"), "is not a time of 1 or more");
        }
    }

    #[track_caller]
    fn check_add(line: &str, want: i64) {
        assert!(matches!(order(line), Ok(Order::Add { delta, .. }) if delta == want), "{line}");
    }

    #[test]
    fn decr_adds_the_negative() {
        check_add("incr k", 1);
        check_add("decr k", -1);
        check_add("incrby k -5", -5);
        check_add("decrby k 9223372036854775807", -i64::MAX);
        check_refused("decrby k -9223372036854775808", "is not a whole number of 64 bits");
        check_refused("incrby k 1.5", "incrby: `1.5` is not a whole number");
    }

    #[test]
    fn range_has_the_bounds_of_kv_range() {
        let Ok(Order::Range(found)) = order("range [a (c rev KEYSONLY limit 3") else {
            panic!("no range");
        };
        let (start, end) = (Bound::Included(b"a".to_vec()), Bound::Excluded(b"c".to_vec()));
        let (direction, items) = (Direction::Reverse, RangeItems::KeysOnly);
        assert_eq!(found, OwnedRange { start, end, direction, items, item_limit: 3 });
        check_refused("range a +", "`a` is not a start");
        check_refused("range - -", "`-` is not an end");
        check_refused("range - + LIMIT x", "`x` is not a count");
        check_refused("range - + LIMIT", "write range START END");
    }

    #[test]
    fn a_mistake_is_answered_with_what_would_be_right() {
        check_refused("gat k", "`gat` is no command; did you mean `get`?");
        check_refused("hgetall k", "write one of get, gets, mget");
        check_refused("--tagret x", "flags stand before it");
        check_refused("get", "write get KEY");
        check_refused("get a b", "write get KEY");
        check_refused("cas k v x", "`x` is not a version");
        check_refused("expire k 0", "`0` is not a time of 1 or more");
    }

    #[test]
    fn every_command_of_the_list_is_understood() {
        for (name, arguments, _) in COMMANDS {
            let filled = arguments.split_once(" [").map_or(arguments, |(needed, _)| needed);
            let filled = filled.replace("START", "-").replace("END", "+").replace("KEY...", "k");
            let filled = filled.replace(" S", " 1").replace("VERSION", "1").replace("NUMBER", "1");
            assert!(order(&format!("{name} {filled}")).is_ok(), "{name} {filled}");
        }
    }
}
