//! The arguments of HOTKEYS START.

use std::borrow::Cow;

use dispatch::hot::session::Wanted;
use wire::resp::ArgIter;
use wire::resp::number::parse_i64;

/// Hash slots of a cluster.
const SLOT_COUNT: i64 = 16_384;

/// The number of keys shown unless COUNT is given.
const COUNT_DEFAULT: usize = 10;

/// The maximum number of metrics: `cpu` and `net`.
const METRICS_MAX: i64 = 2;

const NO_METRICS: &str = "METRICS parameter is required";
const METRICS_COUNT: &str = "METRICS count must be > 0 and <= 2";
const METRICS_MISSING: &str = "METRICS count does not match number of metric types provided";
const METRICS_UNKNOWN: &str = "METRICS no valid metrics passed. Supported: CPU|NET";
const CPU_TWICE: &str = "METRICS CPU defined more than once!";
const NET_TWICE: &str = "METRICS NET defined more than once!";
const COUNT: &str = "COUNT must be between 1 and 64";
const DURATION: &str = "DURATION must be between 1 and 1000000";
const SAMPLE: &str = "SAMPLE ratio must be positive";
const NO_CLUSTER: &str = "SLOTS parameter cannot be used in non-cluster mode";
const SLOTS_TWICE: &str = "SLOTS parameter already specified";
const SLOTS_COUNT: &str = "SLOTS count must be between 1 and 16384";
const SLOTS_MISSING: &str = "not enough slot numbers provided";
const SLOT_TWICE: &str = "duplicate slot number";

const SYNTAX: &str = "syntax error";
const BAD_SLOT: &str = "Invalid or out of range slot";

/// The reason of a refusal.
pub(super) type Refused = Cow<'static, str>;

/// Parses the arguments of START. `is_own` tells for a slot whether this node of a cluster serves
/// it; `None`: there is no cluster. The texts of errors are those of Redis 8.6.
pub(super) fn read(
    mut args: ArgIter<'_>,
    is_own: Option<&dyn Fn(u16) -> bool>,
) -> Result<Wanted, Refused> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let (Some(word), Some(count)) = (args.next(), args.next()) else {
        return Err(NO_METRICS.into());
    };
    if !is(word, "metrics") {
        return Err(NO_METRICS.into());
    }
    let (cpu, net) = read_metrics(&mut args, within(count, METRICS_MAX, METRICS_COUNT)?)?;
    let mut wanted =
        Wanted { cpu, net, count: COUNT_DEFAULT, duration_ms: None, sample_every: 1, slots: None };
    while let Some(option) = args.next() {
        let Some(value) = args.next() else { return Err(SYNTAX.into()) };
        if is(option, "count") {
            wanted.count = within(value, 64, COUNT)? as usize;
        } else if is(option, "duration") {
            wanted.duration_ms = Some(within(value, 1_000_000, DURATION)? * 1000);
        } else if is(option, "sample") {
            let every = within(value, i64::from(i32::MAX), SAMPLE)?;
            wanted.sample_every = u32::try_from(every).unwrap_or(u32::MAX);
        } else if is(option, "slots") {
            let is_own = is_own.ok_or(NO_CLUSTER)?;
            if wanted.slots.is_some() {
                return Err(SLOTS_TWICE.into());
            }
            let count = within(value, SLOT_COUNT, SLOTS_COUNT)?;
            wanted.slots = Some(read_slots(&mut args, count as usize, is_own)?);
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(wanted)
}

/// A number from 1 to `max`.
fn within(word: &[u8], max: i64, text: &'static str) -> Result<u64, Refused> {
    let number = parse_i64(word).filter(|number| (1..=max).contains(number));
    number.map(i64::cast_unsigned).ok_or(text.into())
}

/// Reads so many words; those that name no metric are ignored, as in Redis.
fn read_metrics(args: &mut ArgIter<'_>, count: u64) -> Result<(bool, bool), Refused> {
    let (mut cpu, mut net) = (false, false);
    for _ in 0..count {
        let word = args.next().ok_or(METRICS_MISSING)?;
        if word.eq_ignore_ascii_case(b"cpu") {
            if std::mem::replace(&mut cpu, true) {
                return Err(CPU_TWICE.into());
            }
        } else if word.eq_ignore_ascii_case(b"net") && std::mem::replace(&mut net, true) {
            return Err(NET_TWICE.into());
        }
    }
    if cpu || net { Ok((cpu, net)) } else { Err(METRICS_UNKNOWN.into()) }
}

fn read_slots(
    args: &mut ArgIter<'_>,
    count: usize,
    is_own: &dyn Fn(u16) -> bool,
) -> Result<Vec<u16>, Refused> {
    if args.len() < count {
        return Err(SLOTS_MISSING.into());
    }
    let mut slots = Vec::with_capacity(count);
    for word in args.take(count) {
        let slot = parse_i64(word).filter(|slot| (0..SLOT_COUNT).contains(slot));
        let slot = slot.ok_or(BAD_SLOT)? as u16;
        if !is_own(slot) {
            return Err(format!("slot {slot} not handled by this node").into());
        }
        slots.push(slot);
    }
    slots.sort_unstable();
    let count = slots.len();
    slots.dedup();
    if slots.len() < count { Err(SLOT_TWICE.into()) } else { Ok(slots) }
}

#[cfg(test)]
mod tests {
    use wire::Parsed;
    use wire::resp::{Limits, Parser};

    use super::*;

    fn check(line: &str, is_cluster: bool) -> Result<Wanted, String> {
        let bytes = format!("{line}\r\n");
        let parsed = Parser::default().parse(bytes.as_bytes(), &Limits::default());
        let Parsed::Done { value, .. } = parsed else { panic!("{line}") };
        let mut args = value.iter();
        args.next();
        let is_own: &dyn Fn(u16) -> bool = &|slot| slot < 100;
        read(args, is_cluster.then_some(is_own)).map_err(Cow::into_owned)
    }

    #[test]
    fn what_is_not_said_is_as_in_redis() {
        let wanted = check("START METRICS 1 cpu", false).unwrap();
        assert_eq!((wanted.cpu, wanted.net, wanted.count), (true, false, 10));
        assert_eq!((wanted.duration_ms, wanted.sample_every, wanted.slots), (None, 1, None));
    }

    #[test]
    fn all_options_are_read_in_any_order() {
        let line = "START metrics 2 NET CPU SLOTS 2 7 3 SAMPLE 5 DURATION 2 COUNT 64";
        let wanted = check(line, true).unwrap();
        assert_eq!((wanted.cpu, wanted.net, wanted.count), (true, true, 64));
        assert_eq!((wanted.duration_ms, wanted.sample_every), (Some(2000), 5));
        assert_eq!(wanted.slots, Some(vec![3, 7]));
    }

    #[test]
    fn errors_are_those_of_redis() {
        let refused = |line: &str, is_cluster, want: &str| {
            assert_eq!(check(line, is_cluster).unwrap_err(), want, "{line}");
        };
        for line in ["START", "START METRICS", "START COUNT 1", "START CPU 1 CPU"] {
            refused(line, false, NO_METRICS);
        }
        for count in ["0", "3", "-1", "x"] {
            refused(&format!("START METRICS {count} CPU"), false, METRICS_COUNT);
        }
        refused("START METRICS 2 CPU", false, METRICS_MISSING);
        refused("START METRICS 1 MEM", false, METRICS_UNKNOWN);
        refused("START METRICS 2 CPU CPU", false, CPU_TWICE);
        refused("START METRICS 2 NET net", false, NET_TWICE);
        refused("START METRICS 1 CPU COUNT 65", false, COUNT);
        refused("START METRICS 1 CPU DURATION 0", false, DURATION);
        refused("START METRICS 1 CPU SAMPLE 0", false, SAMPLE);
        refused("START METRICS 1 CPU NET", false, "syntax error");
        refused("START METRICS 1 CPU COUNT", false, "syntax error");
        refused("START METRICS 1 CPU SLOTS 1 1", false, NO_CLUSTER);
        refused("START METRICS 1 CPU SLOTS 0", true, SLOTS_COUNT);
        refused("START METRICS 1 CPU SLOTS 2 1", true, SLOTS_MISSING);
        refused("START METRICS 1 CPU SLOTS 1 x", true, "Invalid or out of range slot");
        refused("START METRICS 1 CPU SLOTS 1 100", true, "slot 100 not handled by this node");
        refused("START METRICS 1 CPU SLOTS 2 1 1", true, SLOT_TWICE);
        refused("START METRICS 1 CPU SLOTS 1 1 SLOTS 1 2", true, SLOTS_TWICE);
    }
}
