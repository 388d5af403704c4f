//! The format that scrapers and the page read.

use std::collections::HashSet;

use counters::{CommandTotals, NativeTotals, Protocol};
use store::LogSpace;

use super::*;

fn snapshot() -> Snapshot {
    let command = |protocol, name, calls, hits, misses, errors| CommandTotals {
        protocol,
        name,
        calls,
        hits,
        misses,
        errors,
        rejected: 0,
        not_stored: 0,
        spent_ns: 0,
    };
    Snapshot {
        uptime_ms: 1500,
        memory_limit_bytes: 64 << 20,
        memory_surplus_bytes: 3 << 20,
        memory_changes: (2, 1),
        mode: "cache",
        totals: Totals {
            commands: vec![
                command(Protocol::Resp, "get", 10, 7, 2, 1),
                command(Protocol::Resp, "ping", 3, 0, 0, 0),
                command(Protocol::Memcached, "set", 0, 0, 0, 0),
            ],
            connections_resp: 4,
            net_input_bytes: 99,
            worker_busy_ns: vec![1_500_000_000, 0],
            native: NativeTotals {
                sessions: 3,
                frames_in: 4,
                requests: 10,
                drops: [0, 0, 5, 0, 0, 1],
                kernel_drops: 2,
                ..NativeTotals::default()
            },
            ..Totals::default()
        },
        store: StoreStats {
            items: 12,
            evicted_by_index: 3,
            evicted_by_log: 9,
            evicted_small: 5,
            space: LogSpace { live_bytes: 300, dead_bytes: 100, ..LogSpace::default() },
            ..StoreStats::default()
        },
        client_buffer_bytes: 4096,
        ..Snapshot::default()
    }
}

#[test]
fn every_sample_follows_the_head_of_its_family_and_no_family_comes_twice() {
    let text = openmetrics::text(&snapshot());
    let mut families = HashSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, of_kind) = head.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "twice: {line}");
            (family, kind) = (name.to_owned(), of_kind.to_owned());
        } else if !line.starts_with('#') {
            let suffixes: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            let name = line.split(['{', ' ']).next().unwrap();
            let is_known = suffixes.iter().any(|suffix| *name == format!("{family}{suffix}"));
            assert!(is_known, "{line} in {family}");
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn commands_count_by_status_and_keys_by_what_was_found() {
    let text = openmetrics::text(&snapshot());
    for line in [
        "dovetail_commands_total{proto=\"resp\",cmd=\"get\",status=\"ok\"} 9",
        "dovetail_commands_total{proto=\"resp\",cmd=\"get\",status=\"error\"} 1",
        "dovetail_keys_total{proto=\"resp\",cmd=\"get\",status=\"hit\"} 7",
        "dovetail_keys_total{proto=\"resp\",cmd=\"get\",status=\"miss\"} 2",
        "dovetail_connections{proto=\"resp\"} 4",
        "dovetail_net_bytes_total{dir=\"in\"} 99",
        "dovetail_worker_busy_seconds_total{worker=\"0\"} 1.5",
        "dovetail_native_sessions 3",
        "dovetail_native_drops_total{reason=\"tag\"} 5",
        "dovetail_native_drops_total{reason=\"kernel\"} 2",
        "dovetail_memory_limit_bytes 67108864",
        "dovetail_memory_surplus_bytes 3145728",
        "dovetail_memory_changes_total{outcome=\"done\"} 2",
        "dovetail_memory_changes_total{outcome=\"refused\"} 1",
        "dovetail_uptime_seconds 1.5",
        "dovetail_items 12",
        "dovetail_evictions_total{reason=\"index\"} 3",
        "dovetail_memory_used_bytes{kind=\"client\"} 4096",
        "dovetail_queue_evictions_total{queue=\"main\"} 4",
        "dovetail_log_space_bytes{state=\"dead\"} 100",
        "dovetail_log_fragmentation_ratio 0.25",
    ] {
        assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
    }
    assert!(!text.contains("cmd=\"set\""), "a command never called is left out");
}

#[test]
fn the_json_folds_the_commands() {
    let json = snapshot().json();
    assert_eq!(json["commands_total"], 13);
    assert_eq!((&json["hits_total"], &json["misses_total"]), (&json!(7), &json!(2)));
    assert_eq!(json["commands"].as_array().unwrap().len(), 2);
    assert_eq!(json["connections"]["resp"], 4);
    assert_eq!(json["store"]["items"], 12);
    assert_eq!(json["native"]["drops_total"]["unknown_session"], 1);
    assert_eq!(json["native"]["requests_per_frame"], 2.5);
    assert_eq!(json["store"]["log_live_bytes"], 300);
    assert_eq!(json["store"]["evicted_small_total"], 5);
}

#[test]
fn sizes_are_bars_with_a_border_once_one_is_known() {
    let sizes = SizeNumbers { threshold_bytes: u64::MAX, small_workers: 2, large_workers: 0 };
    let none = Snapshot { sizes: Some(sizes), ..snapshot() };
    assert_eq!(none.json()["sizes"]["threshold_bytes"], Value::Null, "all are small");
    assert!(openmetrics::text(&none).contains("\ndovetail_size_threshold_bytes +Inf\n"));
    let sizes = SizeNumbers { threshold_bytes: 1456, ..sizes };
    let bar = SizeCount { size_min_bytes: 129, size_max_bytes: 144, requests: 7 };
    let some = Snapshot { sizes: Some(sizes), size_counts: vec![bar], ..none }.json();
    assert_eq!(some["sizes"]["threshold_bytes"], 1456);
    assert_eq!(some["sizes"]["buckets"], json!([{ "size_max_bytes": 144, "count": 7 }]));
    assert_eq!(snapshot().json()["sizes"], Value::Null);
}

#[test]
fn stolen_requests_are_counted() {
    let mut counted = snapshot();
    counted.totals.forwardings.stolen = 42;
    assert_eq!(counted.json()["forwardings"]["stolen_total"], 42);
    assert!(openmetrics::text(&counted).contains("\ndovetail_steals_total 42\n"));
}

#[test]
fn the_write_table_is_shown_where_there_is_one() {
    let mut counted = Snapshot { table_entries: Some(64), ..snapshot() };
    let forwardings = &mut counted.totals.forwardings;
    (forwardings.pins, forwardings.pin_conflicts, forwardings.pins_held) = (30, 2, 5);
    let want = json!({ "occupied": 5, "capacity": 64, "pins_total": 30, "conflicts_total": 2 });
    assert_eq!(counted.json()["dcrew"], want);
    let text = openmetrics::text(&counted);
    for line in ["dovetail_dcrew_pins_total 30", "dovetail_dcrew_conflicts_total 2"] {
        assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
    }
    assert_eq!(snapshot().json()["dcrew"], Value::Null);
    assert!(!openmetrics::text(&snapshot()).contains("dcrew"));
}

#[test]
fn the_source_of_the_number_of_polling_threads_is_shown() {
    let shown = |cr_threads| Snapshot { cr_threads, ..Snapshot::default() }.json();
    assert_eq!(shown(None)["forwardings"]["cr_threads"], "auto");
    assert_eq!(shown(Some(4))["forwardings"]["cr_threads"], 4);
}
