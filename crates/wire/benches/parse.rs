//! The cost of parsing and encoding per request; to be run under an instruction counter.
//!
//! ```text
//!  cargo bench -p wire --bench parse -- resp-get 1000000
//!  valgrind --tool=callgrind target/release/deps/parse-* resp-get 100000
//! ```
//!
//! The count of a run with N requests minus that of a run with 0, divided by N, is the cost.

use std::hint::black_box;
use std::time::Instant;

use wire::{Parsed, memcached, native, resp};

/// Requests in one read, as a pipelining client sends them.
const PIPELINE: usize = 32;

/// Handles so many requests; returns the number of bytes it touched.
type Case = fn(usize) -> usize;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let cases: [(&str, Case); 15] = [
        ("resp-get", resp_get),
        ("resp-set", resp_set),
        ("resp-incr", resp_incr),
        ("resp-mget", resp_mget),
        ("resp-reply", resp_reply),
        ("memcached-get", memcached_get),
        ("memcached-set", memcached_set),
        ("memcached-reply", memcached_reply),
        ("native-get", native_get),
        ("native-get-encode", native_get_encode),
        ("native-set", native_set),
        ("native-reply", native_reply),
        ("native-reply-parse", native_reply_parse),
        ("native-tag", native_tag),
        ("native-once", native_once),
    ];
    let wanted = args.next();
    let count = args.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    for (name, run) in cases {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            let start = Instant::now();
            let bytes = black_box(run(count));
            let ns_per_request = start.elapsed().as_nanos() as f64 / count.max(1) as f64;
            println!("{name:18} {count:9} requests  {ns_per_request:7.1} ns each  {bytes} bytes");
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
                    resp::Command::String(resp::StringCommand::Get { key }) => key.len(),
                    resp::Command::String(resp::StringCommand::Set(set)) => {
                        set.key.len() + set.value.len()
                    }
                    resp::Command::String(resp::StringCommand::IncrBy { key, .. }) => key.len(),
                    resp::Command::String(resp::StringCommand::MGet { keys }) => {
                        keys.map(<[u8]>::len).sum()
                    }
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

/// Ten keys per request.
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

fn native_header(kind: native::Kind) -> native::Header {
    let (steering, session) = (native::SteeringId::ANY, native::SessionId(1));
    native::Header { kind, steering, session, number: 0, answered: 0 }
}

/// A frame of requests, each made by `op(key)`.
fn native_frame(op: impl Fn(&[u8]) -> native::Op<'_>) -> Vec<u8> {
    let mut buffer = vec![0; 16 << 10];
    let header = native_header(native::Kind::Requests);
    let mut writer = native::FrameWriter::new(&mut buffer, header).expect("room");
    for index in 0..PIPELINE {
        let key = format!("key:{index:012}");
        let id = native::RequestId::Free(index as u32);
        let request = native::Request { id, want: native::Want::PLAIN, op: op(key.as_bytes()) };
        writer.push_request(&request).expect("room");
    }
    let len_bytes = writer.finish(None);
    buffer.truncate(len_bytes);
    buffer
}

/// Frames of 32 requests, including the header.
fn run_native(datagram: &[u8], count: usize) -> usize {
    let mut touched_bytes = 0;
    for _ in 0..count / PIPELINE {
        let frame = native::Frame::parse(black_box(datagram), None).expect("a good frame");
        for request in native::Requests::new(frame.body) {
            touched_bytes += match black_box(request.expect("a good request").op) {
                native::Op::Get { key, .. } => key.len(),
                native::Op::Set(set) => set.key.len() + set.value.len(),
                _ => 0,
            };
        }
    }
    touched_bytes
}

fn native_get(count: usize) -> usize {
    run_native(&native_frame(|key| native::Op::Get { key, touch: None }), count)
}

fn native_set(count: usize) -> usize {
    let datagram = native_frame(|key| {
        native::Op::Set(native::Set {
            key,
            value: &[b'v'; 64],
            client_flags: 0,
            expiry: native::Expiry::Never,
            condition: native::Condition::Always,
            part: None,
        })
    });
    run_native(&datagram, count)
}

fn native_get_encode(count: usize) -> usize {
    let mut buffer = vec![0; 16 << 10];
    let mut bytes = 0;
    for _ in 0..count / PIPELINE {
        let header = black_box(native_header(native::Kind::Requests));
        let mut writer = native::FrameWriter::new(&mut buffer, header).expect("room");
        for number in 0..PIPELINE as u32 {
            let op = native::Op::Get { key: black_box(b"key:000000000000"), touch: None };
            let id = native::RequestId::Free(number);
            let request = native::Request { id, want: native::Want::PLAIN, op };
            writer.push_request(&request).expect("room");
        }
        bytes += black_box(writer.finish(None));
    }
    bytes
}

fn native_replies(buffer: &mut [u8]) -> usize {
    let header = black_box(native_header(native::Kind::Replies));
    let mut writer = native::FrameWriter::new(buffer, header).expect("room");
    for number in 0..PIPELINE as u32 {
        let id = native::RequestId::Free(number);
        let value = black_box(&[b'v'; 64][..]);
        let reply = native::Reply { value, ..native::Reply::new(id, native::Status::Ok) };
        writer.push_reply(&reply).expect("room");
    }
    writer.finish(None)
}

fn native_reply(count: usize) -> usize {
    let mut buffer = vec![0; 16 << 10];
    (0..count / PIPELINE).map(|_| native_replies(black_box(&mut buffer))).sum()
}

fn native_reply_parse(count: usize) -> usize {
    let mut buffer = vec![0; 16 << 10];
    let len_bytes = native_replies(&mut buffer);
    let mut bytes = 0;
    for _ in 0..count / PIPELINE {
        let datagram = black_box(&buffer[..len_bytes]);
        let frame = native::Frame::parse(datagram, None).expect("a good frame");
        for reply in native::Replies::new(frame.body) {
            bytes += black_box(reply.expect("a good reply")).value.len();
        }
    }
    bytes
}

/// Tags of full Ethernet frames, also per 32 requests.
fn native_tag(count: usize) -> usize {
    let key = native::TagKey::new(b"sixteen secrets!");
    let mut buffer = vec![0; 1472];
    let header = native_header(native::Kind::Requests);
    let mut writer = native::FrameWriter::new(&mut buffer, header).expect("room");
    let id = native::RequestId::Free(0);
    let ping = native::Request { id, want: native::Want::PLAIN, op: native::Op::Ping };
    while writer.push_request(&ping).is_ok() {}
    let len_bytes = writer.finish(Some(&key));
    let parse = || native::Frame::parse(black_box(&buffer[..len_bytes]), Some(&key));
    (0..count / PIPELINE).map(|_| parse().expect("a good frame").len_bytes).sum()
}

/// Writes of a client with 32 outstanding.
fn native_once(count: usize) -> usize {
    let mut once = native::Once::new(1024);
    let outcome = native::Remembered { status: native::Status::Ok, version: Some(9), number: None };
    let mut executed = 0;
    for first in (0..count as u32).step_by(PIPELINE) {
        once.raise_low_water(first);
        for sequence in first..first + PIPELINE as u32 {
            executed += usize::from(once.admit(sequence) == native::Admission::Execute);
        }
        for sequence in first..first + PIPELINE as u32 {
            once.record(sequence, black_box(outcome));
        }
    }
    executed
}
