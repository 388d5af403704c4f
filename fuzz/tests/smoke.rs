//! Every fuzz body over its checked-in inputs and 10,000 seeded ones.

use std::path::Path;

use fuzz::inputs;
use fuzz::rng::Rng;

const SEEDED_COUNT: u64 = 10_000;

#[track_caller]
fn check(target: &str, body: fn(&[u8]), input: fn(&mut Rng) -> Vec<u8>) {
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
    for seed in 0..SEEDED_COUNT {
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
fn memcached_text() {
    check("memcached_text", fuzz::memcached_text, inputs::memcached_text);
}

#[test]
fn globs() {
    check("globs", fuzz::globs, inputs::globs);
}

#[test]
fn numbers() {
    check("numbers", fuzz::numbers, inputs::numbers);
}

#[test]
fn policy_events() {
    check("policy_events", fuzz::policy_events, inputs::policy_events);
}
