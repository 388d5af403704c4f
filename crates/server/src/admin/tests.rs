//! The admin port over a real socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::Config;

struct Port {
    address: SocketAddr,
    _thread: AdminThread,
}

fn start() -> Port {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared::new(Config::default()));
    Port { address, _thread: AdminThread::start(listener, shared).unwrap() }
}

/// Sends `request` and reads until the server closes.
fn exchange(port: &Port, request: &str) -> String {
    let mut stream = TcpStream::connect(port.address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // A reset after the answer is as good as an end.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[track_caller]
fn check(request_line: &str, want_status: &str, want_part: &str) {
    let port = start();
    let request = format!("{request_line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = exchange(&port, &request);
    assert!(answer.starts_with(&format!("HTTP/1.1 {want_status}")), "{answer}");
    assert!(answer.contains(want_part), "{answer}");
}

#[test]
fn every_path_answers_with_its_type() {
    check("GET /healthz", "200", "\r\n\r\nok\n");
    check("GET /metrics", "200", "content-type: application/openmetrics-text; version=1.0.0");
    check("GET /metrics", "200", "\n# EOF\n");
    check("GET /stats", "200", "\"uptime_seconds\":");
    check("GET /", "200", "content-security-policy: default-src 'self'");
    check("GET /page.js", "200", "text/javascript");
    check("GET /charts.js", "200", "text/javascript");
    check("GET /page.css", "200", "text/css");
    check("GET /favicon.ico", "200", "image/svg+xml");
    check("GET /nothing", "404", "not found: there are /, /stats");
}

#[test]
fn nothing_can_be_changed() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        check(&format!("{method} /stats"), "405", "allow: GET,HEAD");
    }
}

#[test]
fn a_head_beyond_the_limit_is_refused() {
    let port = start();
    let request = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(HEAD_MAX_BYTES * 2));
    assert!(exchange(&port, &request).starts_with("HTTP/1.1 431"));
}

#[test]
fn what_is_no_http_gets_no_page() {
    let port = start();
    assert!(exchange(&port, "*1\r\n$4\r\nPING\r\n").starts_with("HTTP/1.1 400"));
}

#[test]
fn the_port_is_closed_once_the_thread_is_dropped() {
    let port = start();
    let address = port.address;
    drop(port);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    for text in [
        include_str!("page/index.html"),
        include_str!("page/page.js"),
        include_str!("page/charts.js"),
        include_str!("page/page.css"),
    ] {
        let addresses = text.matches("://").count();
        let names_of_svg = text.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, names_of_svg);
    }
}

/// The page and `/stats` are written by different hands: what the one reads the other must have.
#[test]
fn what_the_page_reads_is_in_the_stats() {
    let port = start();
    let answer = exchange(&port, "GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let stats: serde_json::Value = serde_json::from_str(body.trim()).unwrap();
    let script = include_str!("page/page.js");
    // Parts that a server has only under some settings.
    let optional = [
        "cluster",
        "dcrew",
        "sizes",
        "hot_set",
        "llc_ways",
        "workload",
        "tuner",
        "slo",
        // From /metrics.
        "durations",
    ];
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut read_count = 0;
    for place in script.split("now.").skip(1) {
        let path = place.split(|letter: char| !is_word(letter) && letter != '.').next().unwrap();
        let mut names = path.split('.');
        let first = names.next().unwrap();
        if optional.contains(&first) {
            continue;
        }
        let part = &stats[first];
        assert!(!part.is_null(), "the page reads {path}, /stats has no {first}");
        let is_method = |name: &str| matches!(name, "map" | "sort" | "length" | "slice");
        if let Some(second) = names.next().filter(|name| !is_method(name)) {
            assert!(!part[second].is_null(), "the page reads {path}, /stats has no {second}");
        }
        read_count += 1;
    }
    assert!(read_count > 20, "{read_count}");
}

#[test]
fn every_element_that_the_script_looks_for_is_on_the_page() {
    let (page, script) = (include_str!("page/index.html"), include_str!("page/page.js"));
    let mut found_count = 0;
    for mark in ["getElementById(\"", "show(\"", "querySelector(\"#"] {
        for place in script.split(mark).skip(1) {
            let id = place.split(['"', ' ']).next().unwrap();
            assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
            found_count += 1;
        }
    }
    assert!(found_count > 8, "{found_count}");
}
