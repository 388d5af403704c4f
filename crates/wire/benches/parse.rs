//! What parsing and encoding costs per request; run it under an instruction counter.
//!
//! ```text
//!  cargo bench -p wire --bench parse -- resp-get 1000000
//!  valgrind --tool=callgrind target/release/deps/parse-* resp-get 100000
//! ```
//! The count of a run with N requests minus that of a run with 0, divided by N, is the cost.

use std::hint::black_box;
use std::time::Instant;

use wire::Parsed;
use wire::{memcached, resp};

/// Requests in one read, as a pipelining client sends them.
const PIPELINE: usize = 32;

/// Handles so many requests; answers how many bytes it touched.
type Case = fn(usize) -> usize;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let cases: [(&str, Case); 8] = [
        ("resp-get", resp_get),
        ("resp-set", resp_set),
        ("resp-incr", resp_incr),
        ("resp-mget", resp_mget),
        ("resp-reply", resp_reply),
        ("memcached-get", memcached_get),
        ("memcached-set", memcached_set),
        ("memcached-reply", memcached_reply),
    ];
    let wanted = args.next();
    let count = args.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    for (name, run) in cases {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            let start = Instant::now();
            let bytes = black_box(run(count));
            let ns_per_request = start.elapsed().as_nanos() as f64 / count.max(1) as f64;
            println!("{name:15} {count:9} requests  {ns_per_request:7.1} ns each  {bytes} bytes");
        }
    }
}

/// One read of pipelined commands, each made by `command(index)`.
fn pipeline(command: impl Fn(usize) -> String) -> Vec<u8> {
    (0..PIPELINE).map(command).collect::<String>().into_bytes()
}

fn run_resp(input: &[u8], count: usize) -> usize {
    let limits = black_box(resp::Limits::default());
    let mut parser = resp::Parser::default();
    let mut touched_bytes = 0;
    let mut at = 0;
    for _ in 0..count {
        match resp::next_command(&mut parser, &input[at..], &limits) {
            Parsed::Done { value: Ok(command), consumed_bytes } => {
                at += consumed_bytes;
                touched_bytes += match black_box(command) {
                    resp::Command::Get { key } => key.len(),
                    resp::Command::Set(set) => set.key.len() + set.value.len(),
                    resp::Command::IncrBy { key, .. } => key.len(),
                    resp::Command::MGet { keys } => keys.map(<[u8]>::len).sum(),
                    _ => 0,
                };
            }
            _ => unreachable!("the input is whole commands"),
        }
        if at == input.len() {
            at = 0;
        }
    }
    touched_bytes
}

fn resp_get(count: usize) -> usize {
    let input = pipeline(|i| format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{i:012}\r\n"));
    run_resp(&input, count)
}

fn resp_set(count: usize) -> usize {
    let value = "v".repeat(64);
    let input =
        pipeline(|i| format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{i:012}\r\n$64\r\n{value}\r\n"));
    run_resp(&input, count)
}

fn resp_incr(count: usize) -> usize {
    let input = pipeline(|i| format!("*2\r\n$4\r\nINCR\r\n$16\r\nkey:{i:012}\r\n"));
    run_resp(&input, count)
}

/// Ten keys to a request.
fn resp_mget(count: usize) -> usize {
    let input = pipeline(|i| {
        let key = format!("$16\r\nkey:{i:012}\r\n");
        format!("*11\r\n$4\r\nMGET\r\n{}", key.repeat(10))
    });
    run_resp(&input, count)
}

fn resp_reply(count: usize) -> usize {
    let value = black_box([b'v'; 64]);
    let mut out = Vec::with_capacity(PIPELINE * 80);
    let mut bytes = 0;
    for request in 0..count {
        if request % PIPELINE == 0 {
            bytes += black_box(&out).len();
            out.clear();
        }
        resp::Encoder::new(&mut out, resp::Protocol::Resp2).bulk(&value);
    }
    bytes + out.len()
}

fn run_memcached(input: &[u8], count: usize) -> usize {
    let limits = black_box(memcached::Limits::default());
    let mut parser = memcached::Parser::default();
    let mut touched_bytes = 0;
    let mut at = 0;
    for _ in 0..count {
        match memcached::next_command(&mut parser, &input[at..], &limits) {
            Parsed::Done { value: Ok(command), consumed_bytes } => {
                at += consumed_bytes;
                touched_bytes += match black_box(command) {
                    memcached::Command::Get(retrieve) => retrieve.keys.map(<[u8]>::len).sum(),
                    memcached::Command::Store(store) => store.key.len() + store.value.len(),
                    _ => 0,
                };
            }
            _ => unreachable!("the input is whole commands"),
        }
        if at == input.len() {
            at = 0;
        }
    }
    touched_bytes
}

fn memcached_get(count: usize) -> usize {
    run_memcached(&pipeline(|i| format!("get key:{i:012}\r\n")), count)
}

fn memcached_set(count: usize) -> usize {
    let value = "v".repeat(64);
    run_memcached(&pipeline(|i| format!("set key:{i:012} 0 0 64\r\n{value}\r\n")), count)
}

fn memcached_reply(count: usize) -> usize {
    let (key, value) = black_box(([b'k'; 16], [b'v'; 64]));
    let mut out = Vec::with_capacity(PIPELINE * 200);
    let mut bytes = 0;
    for request in 0..count {
        if request % PIPELINE == 0 {
            bytes += black_box(&out).len();
            out.clear();
        }
        let mut encoder = memcached::Encoder::new(&mut out);
        encoder.value(&key, 0, None, &value);
        encoder.reply(memcached::Reply::End);
    }
    bytes + out.len()
}
