//! Renders two successive `/stats` replies as one screen of text.
//!
//! ```text
//!  dovetail 0.1.0   cache   4 threads: 1 cache-resident, 3 memory-resident   up 61 s   RW_sk
//!  ops/s 58.2 k   hits 93.0 %   connections 62   memory 320 MiB of 1.0 GiB
//!
//!  worker   busy   queue
//!       0   98 %       0
//!  ...
//! ```

use std::fmt::Write;
use std::time::Duration;

use base::ByteSize;
use serde_json::Value;

/// Most entries of the decision log to show.
const JOURNAL_LINES_MAX: usize = 10;
/// Most commands to show, the most frequent first.
const COMMAND_LINES_MAX: usize = 8;
/// Most hot keys to show.
const HOT_LINES_MAX: usize = 8;

/// The whole screen. Parts that a server does not have are left out.
pub fn text(now: &Value, before: &Value) -> String {
    let mut out = String::new();
    let seconds = number(now, "/uptime_seconds") - number(before, "/uptime_seconds");
    let look = Look { now, before, seconds: seconds.max(0.001) };
    // Writing to a string cannot fail.
    let _ = head(&mut out, &look);
    let _ = workers(&mut out, &look);
    let _ = writes(&mut out, &look);
    let _ = slo(&mut out, &look);
    let _ = hot_keys(&mut out, &look);
    let _ = commands(&mut out, &look);
    let _ = decision_log(&mut out, &look);
    out
}

struct Look<'v> {
    now: &'v Value,
    before: &'v Value,
    seconds: f64,
}

impl Look<'_> {
    fn rate(&self, place: &str) -> f64 {
        (number(self.now, place) - number(self.before, place)).max(0.0) / self.seconds
    }
}

fn number(value: &Value, place: &str) -> f64 {
    value.pointer(place).and_then(Value::as_f64).unwrap_or(0.0)
}

fn words<'v>(value: &'v Value, place: &str) -> &'v str {
    value.pointer(place).and_then(Value::as_str).unwrap_or("")
}

fn list<'v>(value: &'v Value, place: &str) -> &'v [Value] {
    value.pointer(place).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Three digits and a unit: `58.2 k`.
fn brief(count: f64) -> String {
    for (unit, size) in [("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        if count >= size {
            return format!("{:.1} {unit}", count / size);
        }
    }
    format!("{count:.0}")
}

/// A size to a few digits: `320MiB`.
fn bytes(count: f64) -> String {
    let bytes = count.max(0.0) as u64;
    let shift = (bytes.max(1).ilog2() / 10 * 10).min(30);
    ByteSize { bytes: bytes >> shift << shift }.to_string()
}

fn head(out: &mut String, look: &Look<'_>) -> std::fmt::Result {
    let now = look.now;
    let roles = [("cr", "cache-resident"), ("rtc", "run to completion"), ("mr", "memory-resident")];
    let roles = roles.iter().filter_map(|(key, name)| {
        let count = number(now, &format!("/forwardings/threads/{key}"));
        (count > 0.0).then(|| format!("{count} {name}"))
    });
    let roles = roles.collect::<Vec<_>>().join(", ");
    writeln!(
        out,
        "dovetail {}   {}   threads: {roles}   up {:.0} s   {}",
        words(now, "/version"),
        words(now, "/mode"),
        number(now, "/uptime_seconds"),
        words(now, "/workload/region"),
    )?;
    let (hits, misses) = (look.rate("/hits_total"), look.rate("/misses_total"));
    let hit_pct = if hits + misses > 0.0 { 100.0 * hits / (hits + misses) } else { 0.0 };
    let connections = number(now, "/connections/resp") + number(now, "/connections/memcached");
    writeln!(
        out,
        "ops/s {}   hits {hit_pct:.1} %   connections {connections}   memory {} of {}",
        brief(look.rate("/commands_total")),
        bytes(number(now, "/memory/resident_bytes")),
        bytes(number(now, "/memory/limit_bytes")),
    )
}

fn workers(out: &mut String, look: &Look<'_>) -> std::fmt::Result {
    let count = list(look.now, "/workers/busy_ns_total").len();
    writeln!(out, "\n{:>8}{:>8}{:>9}", "worker", "busy", "queue")?;
    for worker in 0..count {
        let busy_ratio = look.rate(&format!("/workers/busy_ns_total/{worker}")) / 1e9;
        let busy_pct = 100.0 * busy_ratio.min(1.0);
        let queue = number(look.now, &format!("/forwardings/queue_depths/{worker}"));
        writeln!(out, "{worker:>8}{busy_pct:>6.0} %{queue:>9}")?;
    }
    Ok(())
}

fn writes(out: &mut String, look: &Look<'_>) -> std::fmt::Result {
    let mut parts = vec![format!("forwarded {}/s", brief(look.rate("/forwardings/sent_total")))];
    parts.push(format!("open windows {}", number(look.now, "/compaction/windows_open")));
    parts.push(format!("writes saved {}/s", brief(look.rate("/compaction/writes_saved_total"))));
    if number(look.now, "/forwardings/stolen_total") > 0.0 {
        parts.push(format!("stolen {}/s", brief(look.rate("/forwardings/stolen_total"))));
    }
    if look.now.pointer("/dcrew").is_some_and(Value::is_object) {
        parts.push(format!("pins {}/s", brief(look.rate("/dcrew/pins_total"))));
        parts.push(format!("conflicts {}/s", brief(look.rate("/dcrew/conflicts_total"))));
    }
    if let Some(threshold) = look.now.pointer("/sizes/threshold_bytes").and_then(Value::as_f64) {
        parts.push(format!("small items: up to {threshold} bytes"));
    }
    if look.now.pointer("/llc_ways").is_some_and(Value::is_object) {
        let (mr, all) = (number(look.now, "/llc_ways/mr"), number(look.now, "/llc_ways/cr"));
        parts.push(format!("{mr} of {all} cache ways memory-resident"));
    }
    writeln!(out, "\n{}", parts.join("   "))
}

fn slo(out: &mut String, look: &Look<'_>) -> std::fmt::Result {
    let Some(target_ns) = look.now.pointer("/slo/target_ns").and_then(Value::as_u64) else {
        return Ok(());
    };
    let target = base::format_duration(Duration::from_nanos(target_ns));
    if !look.now.pointer("/slo/lately").is_some_and(Value::is_object) {
        return writeln!(out, "SLO {target}   no samples yet");
    }
    let time = |name: &str| {
        let ns = look.now.pointer(&format!("/slo/lately/{name}")).and_then(Value::as_f64);
        let text = |ns: f64| base::format_duration(Duration::from_micros((ns / 1000.0) as u64));
        ns.map_or("-".to_owned(), text)
    };
    let p50 = time("latency_ns_p50");
    let late = match p50.as_str() {
        "-" => "-".to_owned(),
        _ => format!("{:.2} %", 100.0 * number(look.now, "/slo/lately/over_ratio")),
    };
    writeln!(
        out,
        "SLO {target}   late {late}   p50 {p50}   p99 {}   goodput {}/s",
        time("latency_ns_p99"),
        brief(number(look.now, "/slo/lately/goodput_rps")),
    )
}

fn hot_keys(out: &mut String, look: &Look<'_>) -> std::fmt::Result {
    let keys = list(look.now, "/hot_set/keys");
    if keys.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:>8}  hot key", "share")?;
    for key in keys.iter().take(HOT_LINES_MAX) {
        let share_pct = 100.0 * number(key, "/share_ratio");
        let name = match words(key, "/key") {
            "" => "(not shown)".to_owned(),
            name => name.escape_default().to_string(),
        };
        writeln!(out, "{share_pct:>6.1} %  {}", name.chars().take(64).collect::<String>())?;
    }
    Ok(())
}

fn commands(out: &mut String, look: &Look<'_>) -> std::fmt::Result {
    let before = list(look.before, "/commands");
    let calls_before = |command: &Value| {
        let same = |other: &&Value| {
            words(other, "/cmd") == words(command, "/cmd")
                && words(other, "/proto") == words(command, "/proto")
        };
        before.iter().find(same).map_or(0.0, |found| number(found, "/calls"))
    };
    let mut rated: Vec<(f64, &Value)> = list(look.now, "/commands")
        .iter()
        .map(|command| {
            ((number(command, "/calls") - calls_before(command)) / look.seconds, command)
        })
        .collect();
    rated.sort_by(|one, other| other.0.total_cmp(&one.0));
    writeln!(out, "\n{:>10}{:>12}{:>10}{:>10}", "protocol", "command", "per s", "errors")?;
    for (rate, command) in rated.iter().take(COMMAND_LINES_MAX) {
        let (protocol, name) = (words(command, "/proto"), words(command, "/cmd"));
        let errors = brief(number(command, "/errors"));
        writeln!(out, "{protocol:>10}{name:>12}{:>10}{errors:>10}", brief(*rate))?;
    }
    Ok(())
}

fn decision_log(out: &mut String, look: &Look<'_>) -> std::fmt::Result {
    let entries = list(look.now, "/manager/decision_log");
    // The server's clock, not ours: they may differ.
    let now_ms = number(look.now, "/at_ms");
    if entries.is_empty() {
        return Ok(());
    }
    let state = match words(look.now, "/tuner/state") {
        "" => "the tuner is off".to_owned(),
        state => format!("{state}, {}", words(look.now, "/tuner/policies")),
    };
    writeln!(out, "\ndecisions, newest first ({state})")?;
    for entry in entries.iter().rev().take(JOURNAL_LINES_MAX) {
        let ago_seconds = ((now_ms - number(entry, "/at_ms")) / 1000.0).max(0.0);
        let (controller, change) = (words(entry, "/controller"), words(entry, "/change"));
        let reason = words(entry, "/reason");
        let count = number(entry, "/count");
        let often = if count > 1.0 { format!(" ({count} times)") } else { String::new() };
        writeln!(
            out,
            "{:>9}  {controller:<9} {change}: {reason}{often}",
            format!("-{ago_seconds:.0} s")
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stats(uptime_seconds: f64, calls: u64) -> Value {
        json!({
            "version": "0.1.0", "at_ms": 64_000, "uptime_seconds": uptime_seconds, "mode": "cache",
            "commands_total": calls, "hits_total": calls / 2, "misses_total": calls / 2,
            "connections": { "resp": 3, "memcached": 1 },
            "memory": { "resident_bytes": 320 << 20, "limit_bytes": 1 << 30 },
            "workers": { "busy_ns_total": [calls * 1000, 0] },
            "forwardings": { "threads": { "cr": 1, "rtc": 0, "mr": 1 }, "queue_depths": [0, 7] },
            "compaction": { "writes_saved_total": 0 },
            "commands": [{ "proto": "resp", "cmd": "get", "calls": calls, "errors": 0 }],
            "tuner": { "state": "watching", "policies": "crcw any" },
            "manager": { "decision_log": [
                { "at_ms": 1000, "controller": "taxonomy", "change": "a", "reason": "b" },
                { "at_ms": 61_000, "controller": "tuner", "change": "c", "reason": "d",
                  "count": 9 },
            ] },
        })
    }

    #[track_caller]
    fn check(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
    }

    #[test]
    fn a_screen_tells_rates_workers_and_decisions() {
        let text = text(&stats(11.0, 600_000), &stats(10.0, 100_000));
        check(
            &text,
            "dovetail 0.1.0   cache   threads: 1 cache-resident, 1 memory-resident   up 11 s   ",
        );
        check(&text, "ops/s 500.0 k   hits 50.0 %   connections 4   memory 320MiB of 1GiB");
        check(&text, "       0    50 %        0");
        check(&text, "       1     0 %        7");
        check(&text, "      resp         get   500.0 k         0");
        check(&text, "     -3 s  tuner     c: d (9 times)");
        check(&text, "    -63 s  taxonomy  a: b");
        check(&text, "decisions, newest first (watching, crcw any)");
        assert!(!text.contains("hot key") && !text.contains("pins"), "{text}");
    }

    #[test]
    fn an_objective_is_told_with_how_many_were_late() {
        let mut now = stats(11.0, 0);
        now["slo"] = json!({ "target_ns": 1_000_000, "lately": null });
        check(&text(&now, &stats(10.0, 0)), "SLO 1ms   no samples yet");
        now["slo"]["lately"] = json!({ "over_ratio": 0.0125, "latency_ns_p50": 81_920,
            "latency_ns_p99": 2_097_152, "goodput_rps": 51_200.0 });
        let line = "SLO 1ms   late 1.25 %   p50 81us   p99 2097us   goodput 51.2 k/s";
        check(&text(&now, &stats(10.0, 0)), line);
        now["slo"]["lately"] = json!({ "over_ratio": 0.0, "latency_ns_p50": null,
            "latency_ns_p99": null, "goodput_rps": 0.0 });
        let line = "SLO 1ms   late -   p50 -   p99 -   goodput 0/s";
        check(&text(&now, &stats(10.0, 0)), line);
    }

    #[test]
    fn stolen_requests_are_shown_once_there_are_some() {
        let mut now = stats(11.0, 0);
        now["forwardings"]["stolen_total"] = json!(3000);
        let text = text(&now, &stats(10.0, 0));
        check(&text, "forwarded 0/s   open windows 0   writes saved 0/s   stolen 3.0 k/s");
    }

    #[test]
    fn keys_cannot_speak_to_the_terminal() {
        let mut now = stats(11.0, 0);
        now["hot_set"] = json!({ "keys": [{ "key": "a\u{1b}[2J", "share_ratio": 0.25 }] });
        let text = text(&now, &stats(10.0, 0));
        check(&text, "  25.0 %  a\\u{1b}[2J");
    }

    #[test]
    fn nothing_at_all_is_still_a_screen() {
        let text = text(&Value::Null, &Value::Null);
        assert!(text.starts_with("dovetail "), "{text}");
    }
}
