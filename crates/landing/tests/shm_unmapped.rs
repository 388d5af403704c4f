//! The leftovers of a client's memory: a separate process counts its mappings and descriptors.

use std::os::unix::net::UnixStream;
use std::process::Command;

use landing::shm::{Accepted, Acceptor, AcceptorConfig};

/// The number of regions this process has mapped.
fn mapped_regions() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("dovetail-shm")).count()
}

/// The number of files it has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

const ALONE: &str = "DOVETAIL_TEST_ALONE";

#[test]
fn a_client_that_has_gone_leaves_no_mapping_and_no_descriptor() {
    if std::env::var_os(ALONE).is_some() {
        return check_mappings();
    }
    // The program's other tests map memory and open files meanwhile.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["a_client_that_has_gone_leaves_no_mapping", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn check_mappings() {
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
