//! What is left of a client's memory; alone in its process, which it counts mappings of.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::net::UnixStream;

use landing::shm::{Accepted, Acceptor, AcceptorConfig};

/// How many regions this process has mapped.
fn mapped_regions() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("dovetail-shm")).count()
}

/// How many files it has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_client_that_has_gone_leaves_no_mapping_and_no_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dovetail.sock");
    let acceptor = Acceptor::listen(&path, AcceptorConfig::default()).unwrap();
    let files_before = open_files();
    for _ in 0..3 {
        let client = UnixStream::connect(&path).unwrap();
        let Accepted::Client(end) = acceptor.accept().unwrap() else { panic!("one was waiting") };
        assert_eq!(mapped_regions(), 1);
        drop(client);
        drop(end);
        assert_eq!(mapped_regions(), 0);
    }
    assert_eq!(open_files(), files_before);
}
