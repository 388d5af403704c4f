//! Every fuzz body over its checked-in inputs and 10,000 seeded ones.

use std::path::Path;

use fuzz::inputs;
use fuzz::rng::Rng;

const SEEDED_COUNT: u64 = 10_000;
/// Of a store, which has to be opened and recounted for each.
const SEEDED_STORE_COUNT: u64 = 1500;
/// Of a server, with its connections.
const SEEDED_SERVER_COUNT: u64 = 300;

#[track_caller]
fn check(target: &str, body: fn(&[u8]), input: fn(&mut Rng) -> Vec<u8>) {
    check_seeds(target, body, input, SEEDED_COUNT);
}

#[track_caller]
fn check_seeds(target: &str, body: fn(&[u8]), input: fn(&mut Rng) -> Vec<u8>, seeded_count: u64) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut file_count = 0;
    for entry in std::fs::read_dir(&directory).expect("the target has a corpus") {
        let path = entry.expect("a readable directory").path();
        if path.is_file() {
            println!("{}", path.display());
            body(&std::fs::read(&path).expect("a readable file"));
            file_count += 1;
        }
    }
    assert!(file_count > 0, "the corpus is not empty");
    for seed in 0..seeded_count {
        let input = input(&mut Rng::new(seed));
        // Shown only when the body fails: replay with this seed.
        println!("seed {seed}: {:?}", input.escape_ascii().to_string());
        body(&input);
    }
}

#[test]
fn resp_commands() {
    check("resp_commands", fuzz::resp_commands, inputs::resp_commands);
}

#[test]
fn memcached_binary() {
    check("memcached_binary", fuzz::memcached_binary, inputs::memcached_binary);
}

#[test]
fn memcached_datagrams() {
    let input = inputs::memcached_datagrams;
    check("memcached_datagrams", fuzz::memcached_datagrams, input);
}

#[test]
fn memcached_text() {
    check("memcached_text", fuzz::memcached_text, inputs::memcached_text);
}

#[test]
fn acl_files() {
    check("acl_files", fuzz::acl_files, inputs::acl_files);
}

#[test]
fn checkpoints() {
    check_seeds("checkpoints", fuzz::checkpoints, inputs::checkpoints, SEEDED_SERVER_COUNT);
}

#[test]
fn data_files() {
    check_seeds("data_files", fuzz::data_files, inputs::data_files, SEEDED_SERVER_COUNT);
}

#[test]
fn foreign_data() {
    check("foreign_data", fuzz::foreign_data, inputs::foreign_data);
}

#[test]
fn globs() {
    check("globs", fuzz::globs, inputs::globs);
}

#[test]
fn native_client() {
    check("native_client", fuzz::native_client, inputs::native_client);
}

#[test]
fn native_frames() {
    check("native_frames", fuzz::native_frames, inputs::native_frames);
}

#[test]
fn native_memory() {
    check("native_memory", fuzz::native_memory, inputs::native_memory);
}

#[test]
fn dumps() {
    check("dumps", fuzz::dumps, inputs::dumps);
}

#[test]
fn foreign_configs() {
    check("foreign_configs", fuzz::foreign_configs, inputs::foreign_configs);
}

#[test]
fn numbers() {
    check("numbers", fuzz::numbers, inputs::numbers);
}

#[test]
fn cluster_texts() {
    check("cluster_texts", fuzz::cluster_texts, inputs::cluster_texts);
}

#[test]
fn peer_datagrams() {
    check("peer_datagrams", fuzz::peer_datagrams, inputs::peer_datagrams);
}

#[test]
fn peer_messages() {
    check("peer_messages", fuzz::peer_messages, inputs::peer_messages);
}

#[test]
fn policy_events() {
    check("policy_events", fuzz::policy_events, inputs::policy_events);
}

#[test]
fn routed_commands() {
    let body = fuzz::routed_commands;
    check_seeds("routed_commands", body, inputs::routed_commands, SEEDED_SERVER_COUNT);
}

#[test]
fn store_requests() {
    let body = fuzz::store_requests;
    check_seeds("store_requests", body, inputs::store_requests, SEEDED_STORE_COUNT);
}

#[test]
fn records() {
    check("records", fuzz::records, inputs::records);
}

#[test]
fn windows() {
    check("windows", fuzz::windows, inputs::windows);
}
