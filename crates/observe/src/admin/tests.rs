//! The admin port over a real socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use config::Config;

use super::*;

struct Port {
    address: SocketAddr,
    shared: Arc<Shared>,
    _thread: AdminThread,
}

fn start() -> Port {
    start_with(Config::default())
}

fn start_with(config: Config) -> Port {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared::new(config));
    let thread = AdminThread::start(listener, Arc::clone(&shared)).unwrap();
    Port { address, shared, _thread: thread }
}

/// Sends `request` and reads until the server closes.
fn exchange(port: &Port, request: &str) -> String {
    let mut stream = TcpStream::connect(port.address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // A reset after the answer counts as an end.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[track_caller]
fn check(request_line: &str, want_status: &str, want_part: &str) {
    let port = start();
    let request =
        format!("{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
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
    check("GET /", "200", "content-security-policy: default-src 'self'; ");
    check("GET /page.js", "200", "text/javascript");
    check("GET /charts.js", "200", "text/javascript");
    check("GET /page.css", "200", "text/css");
    check("GET /favicon.ico", "200", "image/svg+xml");
    check("GET /nothing", "404", "not found: there are /, /stats");
}

#[test]
fn every_answer_forbids_frames_and_guesses_of_its_type() {
    for path in ["/", "/stats", "/metrics", "/healthz", "/nothing"] {
        let port = start();
        for host in ["localhost", "evil.example"] {
            let answer = get(&port, path, host, None);
            for header in [
                "frame-ancestors 'none'",
                "x-frame-options: DENY",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "cache-control: no-store",
            ] {
                assert!(answer.contains(header), "{path} {host} {header}: {answer}");
            }
        }
    }
}

fn get(port: &Port, path: &str, host: &str, login: Option<&str>) -> String {
    use base64::Engine as _;
    let login = login.map_or_else(String::new, |login| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(login);
        format!("Authorization: Basic {encoded}\r\n")
    });
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{login}Connection: close\r\n\r\n");
    exchange(port, &head)
}

#[test]
fn a_request_for_another_host_is_refused_and_counted() {
    let port = start();
    for path in ["/", "/stats", "/metrics", "/healthz"] {
        let answer = get(&port, path, "evil.example", None);
        assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
        assert!(answer.contains("--admin-hosts"), "{answer}");
    }
    let metrics = get(&port, "/metrics", "127.0.0.1", None);
    assert!(metrics.contains("dovetail_admin_refused_total{reason=\"host\"} 4\n"), "{metrics}");
}

#[test]
fn a_wrong_login_is_refused_and_counted_where_none_is_needed() {
    let port = start_with(Config { requirepass: Some("right".to_owned()), ..Config::default() });
    let wrong = get(&port, "/stats", "localhost", Some("default:wrong"));
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    assert!(wrong.contains("www-authenticate: Basic realm="), "{wrong}");
    for login in [None, Some("default:right"), Some(":right")] {
        let answer = get(&port, "/stats", "localhost", login);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let metrics = get(&port, "/metrics", "localhost", None);
    assert!(metrics.contains("dovetail_admin_refused_total{reason=\"login\"} 1\n"), "{metrics}");
}

#[test]
fn failed_logins_here_and_at_other_ports_slow_one_another() {
    let port = start_with(Config { requirepass: Some("right".to_owned()), ..Config::default() });
    let before = host::process::unix_now();
    let wrong = get(&port, "/stats", "localhost", Some("default:wrong"));
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    let origin = Origin::of(&End::Ip(([127, 0, 0, 1], 1).into()));
    let paces = (0..10).map(|_| port.shared.acl().logins.pace(origin, false, before));
    // Ten are free, and these ten are not the first.
    let last = paces.reduce(|_, pace| pace);
    assert_ne!(last, Some(sessions::logins::Pace::Now));
}

#[test]
fn answers_to_logins_wait_as_long_as_at_other_ports() {
    let far = Origin::of(&End::Ip(([192, 0, 2, 1], 1).into()));
    let (logins, now) = (sessions::logins::Logins::default(), base::UnixMillis(1_000_000));
    let waits: Vec<Duration> =
        (0..12).map(|_| routes::login_wait(&logins, far, guard::Access::WrongLogin, now)).collect();
    let ms = |ms| Duration::from_millis(ms);
    assert!(waits[..11].iter().all(|wait| *wait == ms(500)), "{waits:?}");
    let granted = guard::Access::Granted { shows_keys: false };
    assert_eq!((waits[11], routes::login_wait(&logins, far, granted, now)), (ms(1000), ms(1000)));
}

#[test]
fn health_is_answered_while_other_clients_do_not_read() {
    let port = start();
    let flood = b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20);
    let mut readers = Vec::new();
    for _ in 0..CONNECTIONS_MAX + 10 {
        let mut stream = TcpStream::connect(port.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        // The server need not take all of it.
        let _ = stream.write(&flood);
        readers.push(stream);
    }
    for _ in 0..5 {
        assert!(get(&port, "/healthz", "localhost", None).starts_with("HTTP/1.1 200"));
    }
    let made_room = port.shared.observations().admin.made_room.load(Ordering::Relaxed);
    assert!(made_room > 0, "{made_room}");
}

#[test]
fn a_write_that_no_client_takes_ends_after_its_time() {
    use tokio::io::AsyncWriteExt;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let error = runtime.block_on(async {
        let (near, _far) = tokio::io::duplex(1 << 10);
        let mut near = WriteLimit::new(near, Duration::from_millis(10));
        near.write_all(&[0; 1 << 10]).await.expect("the buffer takes it");
        near.write_all(b"more").await.unwrap_err()
    });
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
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

/// The page and `/stats` are written separately: every field that the page reads must exist in
/// `/stats`.
#[test]
fn what_the_page_reads_is_in_the_stats() {
    let port = start();
    let answer =
        exchange(&port, "GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let stats: serde_json::Value = serde_json::from_str(body.trim()).unwrap();
    let script = include_str!("page/page.js");
    // Fields that a server has only under some settings.
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
