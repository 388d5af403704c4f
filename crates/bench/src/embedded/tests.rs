//! Short runs on a small store: reads return what was written.

use std::sync::Arc;

use clap::Parser;

use super::*;
use crate::args::Args;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

#[track_caller]
fn check(line: &str) -> Summary {
    check_target("embedded:", line)
}

#[track_caller]
fn check_target(target: &str, line: &str) -> Summary {
    let keys = if line.contains("--keys") { "" } else { "--keys 3000" };
    let fixed = format!("{keys} --duration 150ms --warmup 0");
    let words = ["bench", target].into_iter().chain(fixed.split_whitespace());
    let args = Command::parse_from(words.chain(line.split_whitespace())).args;
    let mut plan = Plan::new(&args).unwrap();
    plan.trace_len = 10_000;
    let summary = run(&plan, &Control::new(Arc::default()), &Progress::hidden()).unwrap();
    let total = &summary.total;
    assert!(total.operation_count > 0 && !total.latency_ns.is_empty(), "{line}: nothing happened");
    assert_eq!((total.miss_count, total.mismatch_count, total.error_count), (0, 0, 0), "{line}");
    assert!(summary.ops_per_cpu_second.unwrap() > 0.0);
    summary
}

#[test]
fn every_workload_reads_back_what_it_wrote() {
    for workload in ["get", "set", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-f"] {
        check(&format!("--workload {workload} --value-size 0-300 --key-size 20"));
    }
}

#[test]
fn named_workloads_bring_items_of_their_own() {
    for workload in ["put", "ycsb-load", "minos", "zippydb", "etc", "twitter-12"] {
        check(&format!("--workload {workload}"));
    }
}

#[test]
fn short_keys_and_any_batch_work() {
    for key_size in [8, 16] {
        for batch in [1, 7, 64] {
            check(&format!("--ratio 1:1 --key-size {key_size} --value-size 8 --batch {batch}"));
        }
    }
}

#[test]
fn loads_of_known_sizes_read_back_what_they_wrote() {
    for (key_size, value_size) in [(8, 8), (16, 64), (16, 8)] {
        for ratio in ["1:0", "0:1", "1:1", "95:5"] {
            let sizes = format!("--key-size {key_size} --value-size {value_size}");
            let summary = check(&format!("{sizes} --ratio {ratio} --distribution zipf:0.99"));
            let total = &summary.total;
            assert_eq!(total.hit_count + total.write_count, total.operation_count);
            assert_eq!(total.hit_count > 0, ratio != "0:1");
            assert_eq!(total.write_count > 0, ratio != "1:0");
        }
    }
}

#[test]
fn scans_find_what_was_written_in_order_of_the_keys() {
    for line in ["--key-style decimal --scan-keys 50", "--key-size 8"] {
        let tree = "--workload ycsb-e --index tree --value-size 8";
        let total = check(&format!("{tree} {line}")).total;
        assert!(total.scanned_count > total.operation_count, "{line}: {}", total.scanned_count);
        assert!(total.write_count > 0);
    }
}

#[test]
fn decimal_keys_have_any_length() {
    check("--key-style decimal --value-size 8 --ratio 1:1");
}

#[test]
fn the_harness_runs_without_a_store() {
    for line in ["--value-size 8 --key-size 8 --ratio 1:1", "--workload ycsb-e --value-size 8"] {
        let total = check_target("null:", line).total;
        assert!(total.write_count > 0 && total.operation_count > total.write_count, "{line}");
    }
}

#[test]
fn every_call_is_timed_when_asked() {
    let total = check("--ratio 1:1 --latency every --eviction fifo").total;
    let calls = total.calls.unwrap();
    assert!(calls.execute_wall_ns.len() >= total.operation_count / 32);
    assert!(!calls.maintain_cpu_ns.is_empty() && calls.execute_cpu_ns.max() > 0);
    assert!(calls.control_cpu_ns.max() > 0, "the control runs beside them");
    assert_eq!(total.populate_calls.unwrap().execute_wall_ns.len(), 3000_u64.div_ceil(32));
    assert!(check("").total.calls.is_none());
}

#[test]
fn values_of_a_mebibyte_come_back_whole() {
    check("--keys 20 --value-size 1MiB --ratio 1:1");
}

#[test]
fn threads_share_the_store() {
    let summary = check("--threads 3 --workload ycsb-a --mode store");
    assert_eq!(summary.thread_count, 3);
}

#[test]
fn an_open_loop_offers_its_rate() {
    let summary = check("--rate 50k --arrivals constant");
    let due_count = summary.total.latency_ns.len();
    // 50,000 a second for 150 ms are 7500; a busy machine may cut either end of the window.
    assert!(due_count >= 500, "{due_count} requests were due");
}

#[test]
fn a_store_that_cannot_hold_the_keys_says_so() {
    let line =
        ["bench", "embedded:", "--memory", "64MiB", "--mode", "store", "--value-size", "64k"];
    let mut plan = Plan::new(&Command::parse_from(line).args).unwrap();
    plan.trace_len = 100;
    let error = run(&plan, &Control::new(Arc::default()), &Progress::hidden()).err().unwrap();
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert!(error.to_string().contains("--memory"), "{error}");
}
