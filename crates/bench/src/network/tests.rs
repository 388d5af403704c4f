//! Tests of runs against a scripted server in this process, which records its input.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use clap::Parser;

use super::*;
use crate::args::Args;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// A request as the scripted server sees it.
enum Request {
    Get(Vec<Vec<u8>>),
    Set(Vec<u8>, Vec<u8>),
}

/// Answers the requests of one read, all together.
trait Script: Sync {
    fn answer(&self, requests: Vec<Request>, out: &mut Vec<u8>);
    /// Requests that must have come in before the first is answered; no more may follow.
    fn depth(&self) -> Option<usize> {
        None
    }
}

/// Takes whole requests of either protocol off the front of `input`.
fn take_requests(input: &mut Vec<u8>) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some((request, len)) =
        if input.starts_with(b"*") { take_resp(input) } else { take_text(input) }
    {
        input.drain(..len);
        requests.push(request);
    }
    requests
}

fn take_line(input: &[u8], at: &mut usize) -> Option<String> {
    let end = at.checked_add(input[*at..].windows(2).position(|pair| pair == b"\r\n")?)?;
    let text = String::from_utf8(input[*at..end].to_vec()).unwrap();
    *at = end + 2;
    Some(text)
}

fn take_body(input: &[u8], at: &mut usize, len: usize) -> Option<Vec<u8>> {
    let body = input.get(*at..*at + len)?.to_vec();
    *at += len + 2;
    (*at <= input.len()).then_some(body)
}

fn take_resp(input: &[u8]) -> Option<(Request, usize)> {
    let mut at = 0;
    let count: usize = take_line(input, &mut at)?[1..].parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        let len: usize = take_line(input, &mut at)?[1..].parse().unwrap();
        words.push(take_body(input, &mut at, len)?);
    }
    let name = words.remove(0);
    let request = match name.as_slice() {
        b"GET" | b"MGET" => Request::Get(words),
        b"SET" => Request::Set(words.remove(0), words.remove(0)),
        other => panic!("unexpected command {}", other.escape_ascii()),
    };
    Some((request, at))
}

fn take_text(input: &[u8]) -> Option<(Request, usize)> {
    let mut at = 0;
    let line = take_line(input, &mut at)?;
    let words: Vec<&str> = line.split(' ').collect();
    let bytes = |word: &&str| word.as_bytes().to_vec();
    let request = match words[0] {
        "get" => Request::Get(words[1..].iter().map(bytes).collect()),
        "set" => {
            let len = words[4].parse().unwrap();
            Request::Set(bytes(&words[1]), take_body(input, &mut at, len)?)
        }
        other => panic!("unexpected command {other}"),
    };
    Some((request, at))
}

fn serve(mut socket: TcpStream, script: &dyn Script) {
    let mut input = Vec::new();
    let mut waiting = Vec::new();
    let mut out = Vec::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        let Ok(len @ 1..) = socket.read(&mut bytes) else { return };
        input.extend_from_slice(&bytes[..len]);
        waiting.append(&mut take_requests(&mut input));
        match script.depth() {
            Some(depth) if waiting.len() < depth => continue,
            Some(depth) => {
                assert_eq!(waiting.len(), depth, "more requests than the pipeline is deep");
                // Nothing more may come before an answer is on its way.
                socket.set_nonblocking(true).unwrap();
                let beyond = socket.peek(&mut [0]);
                assert!(!matches!(beyond, Ok(1..)), "a request beyond the pipeline's depth");
                socket.set_nonblocking(false).unwrap();
            }
            None => {}
        }
        out.clear();
        script.answer(std::mem::take(&mut waiting), &mut out);
        if socket.write_all(&out).is_err() {
            return;
        }
    }
}

/// Runs `bench` with `line` against `script`; `{}` in the line is the server's address.
fn run_against(line: &str, script: &dyn Script) -> (Plan, Result<Summary, BenchError>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let line = line.replace("{}", &address);
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let mut plan = Plan::new(&Command::parse_from(words).args).unwrap();
    plan.trace_len = 10_000;
    let crate::target::Target::Server { protocol, address } = plan.target.clone() else {
        panic!("{line} names no server")
    };
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let count = plan.lane_count();
            let sockets: Vec<_> = (0..count).map(|_| listener.accept().unwrap().0).collect();
            std::thread::scope(|scope| {
                for socket in sockets {
                    scope.spawn(|| serve(socket, script));
                }
            });
        });
        let control = Control::new(Arc::default());
        run(&plan, protocol, &address, &control, &Progress::hidden())
    });
    (plan, result)
}

const SHORT: &str = "--keys 500 --duration 250ms --warmup 10ms --poll block --no-populate";

/// A right server, after a fashion: it keeps what it is given.
#[derive(Default)]
struct Faithful {
    items: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    depth: Option<usize>,
    text: bool,
}

impl Script for Faithful {
    fn answer(&self, requests: Vec<Request>, out: &mut Vec<u8>) {
        let mut items = self.items.lock().unwrap();
        for request in requests {
            match request {
                Request::Set(key, value) => {
                    items.insert(key, value);
                    out.extend_from_slice(if self.text { b"STORED\r\n" } else { b"+OK\r\n" });
                }
                Request::Get(keys) if self.text => {
                    for key in keys {
                        let Some(value) = items.get(&key) else { continue };
                        let key = String::from_utf8(key).unwrap();
                        out.extend(format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes());
                        out.extend_from_slice(value);
                        out.extend_from_slice(b"\r\n");
                    }
                    out.extend_from_slice(b"END\r\n");
                }
                Request::Get(keys) => {
                    if keys.len() > 1 {
                        out.extend(format!("*{}\r\n", keys.len()).into_bytes());
                    }
                    for key in keys {
                        match items.get(&key) {
                            None => out.extend_from_slice(b"$-1\r\n"),
                            Some(value) => {
                                out.extend(format!("${}\r\n", value.len()).into_bytes());
                                out.extend_from_slice(value);
                                out.extend_from_slice(b"\r\n");
                            }
                        }
                    }
                }
            }
        }
    }

    fn depth(&self) -> Option<usize> {
        self.depth
    }
}

#[track_caller]
fn check_all_right(line: &str, script: Faithful) -> Summary {
    let line = line.replace(SHORT, "--keys 500 --duration 250ms --warmup 10ms --poll block");
    let (_, result) = run_against(&line, &script);
    let summary = result.unwrap();
    let total = &summary.total;
    assert!(total.operation_count > 0, "{line}: nothing happened");
    assert_eq!((total.miss_count, total.mismatch_count, total.error_count), (0, 0, 0), "{line}");
    summary
}

#[test]
fn every_workload_reads_back_what_it_wrote() {
    for workload in ["get", "set", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-f"] {
        for (scheme, text) in [("resp", false), ("memcached", true)] {
            let line = format!(
                "{scheme}://{{}} --connections 3 --threads 2 --pipeline 5 --value-size 0-300 \
                 --workload {workload} {SHORT}"
            );
            let summary = check_all_right(&line, Faithful { text, ..Faithful::default() });
            assert_eq!(summary.thread_count, 2);
        }
    }
}

/// Each connection is served by a thread of its own.
#[derive(Default)]
struct Classes {
    faithful: Faithful,
    /// Whether GETs of values above 1400 bytes came, by connection.
    large: Mutex<HashMap<std::thread::ThreadId, Vec<bool>>>,
}

impl Script for Classes {
    fn answer(&self, requests: Vec<Request>, out: &mut Vec<u8>) {
        for request in requests {
            if let Request::Get(keys) = &request {
                let len = self.faithful.items.lock().unwrap()[&keys[0]].len();
                let id = std::thread::current().id();
                self.large.lock().unwrap().entry(id).or_default().push(len > 1400);
            }
            self.faithful.answer(vec![request], out);
        }
    }

    fn depth(&self) -> Option<usize> {
        None
    }
}

#[test]
fn large_values_are_read_by_threads_and_connections_of_their_own() {
    let line = "resp://{} --connections 4 --threads 2 --large-threads 1 --rate 20000 --keys 500 \
                --value-size 64:9,2000:1 --duration 250ms --warmup 10ms --poll block";
    let script = Classes::default();
    let (plan, result) = run_against(line, &script);
    let summary = result.unwrap();
    assert_eq!((plan.lane_count(), summary.thread_count), (6, 3));
    let total = &summary.total;
    assert_eq!((total.miss_count, total.mismatch_count, total.error_count), (0, 0, 0));
    let connections: Vec<Vec<bool>> = script.large.into_inner().unwrap().into_values().collect();
    assert_eq!(connections.len(), 6);
    let is_mixed = |seen: &&Vec<bool>| seen.iter().any(|large| *large != seen[0]);
    assert_eq!(connections.iter().filter(is_mixed).count(), 0);
    assert_eq!(connections.iter().filter(|seen| seen[0]).count(), 2);
}

#[test]
fn multi_gets_count_each_key_and_one_request() {
    for (scheme, text) in [("resp", false), ("memcached", true)] {
        let line = format!("{scheme}://{{}} --connections 1 --mget 20 {SHORT}");
        let summary = check_all_right(&line, Faithful { text, ..Faithful::default() });
        let total = &summary.total;
        assert_eq!(total.hit_count, total.operation_count);
        assert!(total.request_count.abs_diff(total.operation_count / 20) <= 1);
    }
}

#[test]
fn values_larger_than_the_read_buffer_arrive_whole() {
    let line = "resp://{} --connections 2 --value-size 300KiB --ratio 1:1 --keys 10 \
                --duration 250ms --warmup 0 --poll block";
    check_all_right(line, Faithful::default());
}

#[test]
fn a_closed_loop_keeps_exactly_its_depth_outstanding() {
    for depth in [1, 2, 32] {
        let script = Faithful { depth: Some(depth), ..Faithful::default() };
        let line = format!("resp://{{}} --connections 2 --pipeline {depth} --workload set {SHORT}");
        let (_, result) = run_against(&line, &script);
        let total = result.unwrap().total;
        assert!(total.write_count > 0 && total.error_count == 0, "{depth} deep");
    }
}

/// Answers every four reads with a miss, a value of another key, and two right values.
#[derive(Default)]
struct Faulty {
    count: AtomicUsize,
}

impl Script for Faulty {
    fn answer(&self, requests: Vec<Request>, out: &mut Vec<u8>) {
        let format = workload::KeyFormat::new(workload::KeyStyle::Text, 16, 500).unwrap();
        for request in requests {
            let Request::Get(keys) = request else { panic!("only reads are sent") };
            let is_key = |id: &u64| {
                let mut key = [0; 16];
                format.write(*id, &mut key);
                key == keys[0][..]
            };
            let id = (0..500).find(is_key).expect("a key of the key set");
            let turn = self.count.fetch_add(1, Ordering::Relaxed) % 4;
            if turn == 0 {
                out.extend_from_slice(b"$-1\r\n");
                continue;
            }
            let mut value = [0; 64];
            workload::values::fill(if turn == 1 { id + 1 } else { id }, 9, &mut value);
            out.extend_from_slice(b"$64\r\n");
            out.extend_from_slice(&value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[test]
fn misses_and_wrong_values_are_counted_one_by_one() {
    let line = format!("resp://{{}} --connections 1 --pipeline 4 {SHORT}");
    let (_, result) = run_against(&line, &Faulty::default());
    let total = result.unwrap().total;
    // The window may cut a batch of four at either end.
    assert!(total.miss_count > 10);
    assert!(total.hit_count.abs_diff(3 * total.miss_count) <= 6, "{total:?}");
    assert!(total.mismatch_count.abs_diff(total.miss_count) <= 2);
    assert_eq!(total.hit_count + total.miss_count, total.operation_count);
}

#[test]
fn an_open_loop_shows_a_stall_to_every_request_that_was_due_in_it() {
    let calm = format!("resp://{{}} --connections 1 --rate 2k --arrivals constant {SHORT}");
    let (_, result) = run_against(&calm, &Faithful::default());
    let total = result.unwrap().total;
    let due_count = total.latency_ns.len();
    // A busy machine may cut either end of the window.
    assert!((100..=560).contains(&due_count), "2000/s for 250 ms, and {due_count} were due");

    let stalled = StallAfter { inner: Faithful::default(), left: AtomicUsize::new(40) };
    let line = "resp://{} --connections 1 --rate 1k --arrivals constant --keys 500 \
                --duration 300ms --warmup 0 --poll block --no-populate";
    let (_, result) = run_against(line, &stalled);
    let summary = result.unwrap();
    // One connection, one request at a time: a client that waits politely would see one slow
    // request. Here every request that fell due in the 200 ms is late, half of them by > 100 ms.
    assert!(summary.latency_us(1.0) >= 190_000.0, "{}", summary.latency_us(1.0));
    assert!(summary.latency_us(0.7) >= 50_000.0, "p70 {}", summary.latency_us(0.7));
}

#[test]
fn a_client_that_gives_up_drops_what_finds_no_room() {
    let stalled = StallAfter { inner: Faithful::default(), left: AtomicUsize::new(40) };
    let line = "resp://{} --connections 1 --rate 1k --arrivals constant --keys 500 \
                --duration 300ms --warmup 0 --poll block --no-populate --when-full drop";
    let (_, result) = run_against(line, &stalled);
    let summary = result.unwrap();
    let dropped_count = summary.total.dropped_count;
    // One connection, one request at a time: what falls due in the 200 ms is never sent.
    assert!((100..=310).contains(&dropped_count), "{dropped_count}");
    assert!(summary.latency_us(1.0) >= 190_000.0, "one of them was on its way");
    let sent_count = summary.total.latency_ns.len();
    assert!(sent_count + dropped_count <= 310, "{sent_count} sent, {dropped_count} dropped");
}

/// Stalls for 200 ms once, before its 41st answer.
struct StallAfter {
    inner: Faithful,
    left: AtomicUsize,
}

impl Script for StallAfter {
    fn answer(&self, requests: Vec<Request>, out: &mut Vec<u8>) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
        self.inner.answer(requests, out);
    }
}

/// Says the same to every request.
struct Says(&'static [u8]);

impl Script for Says {
    fn answer(&self, requests: Vec<Request>, out: &mut Vec<u8>) {
        for _ in requests {
            out.extend_from_slice(self.0);
        }
    }
}

#[test]
fn refusals_are_counted_with_the_first_words() {
    let line = format!("resp://{{}} --connections 2 {SHORT}");
    let (_, result) = run_against(&line, &Says(b"-ERR too hot\r\n"));
    let total = result.unwrap().total;
    assert_eq!(total.error_count, total.request_count);
    assert_eq!((total.operation_count, total.hit_count), (0, 0));
    assert_eq!(total.error_first.as_deref(), Some("ERR too hot"));
}

#[track_caller]
fn check_ends(line: &str, says: &'static [u8], want: &str) {
    let (_, result) = run_against(line, &Says(says));
    let error = result.expect_err("the run cannot go on");
    assert!(error.to_string().contains(want), "{error}");
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn a_run_that_cannot_go_on_says_why() {
    let populating = "resp://{} --connections 1 --keys 10";
    check_ends(populating, b"-NOAUTH Authentication required.\r\n", "refused a write");
    check_ends(populating, b"HTTP/1.1 400 Bad Request\r\n", "does not speak RESP");
    check_ends(populating, b"$3\r\nabc\r\n", "reply to a Write");
    let reading = format!("memcached://{{}} --connections 1 {SHORT}");
    check_ends(&reading, b"VALUE other 0 1\r\nx\r\nEND\r\n", "not asked for");
    check_ends(&reading, b"END\r\nEND\r\n", "a reply to no request");
}

#[test]
fn a_port_without_a_listener_is_one_line_with_a_hint() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let args = Command::parse_from(["bench", &address]).args;
    let plan = Plan::new(&args).unwrap();
    let control = Control::new(Arc::default());
    let error = run(&plan, Protocol::Resp, &address, &control, &Progress::hidden()).err().unwrap();
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot connect to {address}: ")), "{text}");
    assert!(text.ends_with("is the server running? start one with `dovetail serve`"), "{text}");
    assert_eq!((error.exit_code(), text.contains('\n')), (1, false));
}

#[test]
fn the_chart_and_the_log_can_be_read_back() {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    let directory = tempfile::tempdir().unwrap();
    let (svg, log) = (directory.path().join("chart.svg"), directory.path().join("log.hlog"));
    let line = format!("resp://{{}} --connections 2 {SHORT}");
    let (mut plan, result) = run_against(&line, &Faithful::default());
    plan.outputs.svg = Some(svg.clone());
    plan.outputs.latency_log = Some(log.clone());
    let summary = result.unwrap();
    crate::report::write(&plan, &summary).unwrap();
    let chart = std::fs::read_to_string(svg).unwrap();
    assert!(chart.starts_with("<svg") && chart.contains("99.99 %") && chart.contains("500 keys"));
    let text = std::fs::read(log).unwrap();
    let encoded = IntervalLogIterator::new(&text).find_map(|entry| match entry.unwrap() {
        LogEntry::Interval(interval) => Some(interval.encoded_histogram().to_owned()),
        _ => None,
    });
    let mut bytes = Vec::new();
    decode_base64(&encoded.unwrap(), &mut bytes);
    let histogram: hdrhistogram::Histogram<u64> =
        Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
    assert_eq!(histogram.len(), summary.total.latency_ns.len());
    assert_eq!(histogram.max(), summary.total.latency_ns.max());
}

fn decode_base64(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut word, mut bits) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = DIGITS.iter().position(|digit| *digit == byte).expect("a base-64 digit");
        word = word << 6 | digit as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
        }
    }
}

#[test]
fn the_json_report_keeps_its_promises() {
    let line = format!("resp://{{}} --connections 2 --rate 3k --workload ycsb-a {SHORT}");
    let (plan, result) = run_against(&line, &Faithful::default());
    let text = crate::report::json(&plan, &result.unwrap()).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    for name in ["ops_per_second", "server_cpu_ns_per_op", "ops_per_cpu_second"] {
        assert!(report.get(name).is_some(), "{name} is always there");
    }
    assert!(report["ops_per_second"].is_f64() && report["ops_per_cpu_second"].is_null());
    for name in ["p50", "p90", "p99", "p999", "p9999", "max"] {
        assert!(report["latency_us"][name].is_f64(), "latency_us.{name}");
    }
    for name in ["operations", "misses", "mismatches", "errors", "unanswered"] {
        assert!(report[name].is_u64(), "{name}");
    }
    assert_eq!(report["config"]["loop"], "open");
    assert_eq!(report["config"]["workload"], "ycsb-a");
    assert_eq!(report["config"]["rate"], 3000.0);
}
