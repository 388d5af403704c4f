//! Attacks on the admin port: clients that do not read, endless request heads, connections that
//! stay.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Shape, UNNAMED};
use crate::attack::door::Door;
use crate::attack::pump::Reading;
use crate::attack::script::Script;
use crate::attack::target::Target;

/// Readers of one shape.
const READERS: usize = 70;
/// The time limit for `/healthz` on a machine under attack.
const HEALTH_MAX: Duration = Duration::from_secs(5);

pub const SHAPES: &[Shape] = &[
    Shape::new(
        "admin-metrics-unread",
        Door::Admin,
        "70 clients that leave /metrics unread",
        |it| it_floods(it, &Script::repeat(request("/metrics"), 10_000), Reading::Never),
    )
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new("admin-stats-unread", Door::Admin, "70 clients that leave /stats unread", |it| {
        it_floods(it, &Script::repeat(request("/stats"), 10_000), Reading::Never)
    })
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new("admin-page-unread", Door::Admin, "70 clients that leave / unread", |it| {
        it_floods(it, &Script::repeat(request("/"), 10_000), Reading::Never)
    })
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new(
        "admin-sipped",
        Door::Admin,
        "70 clients that read /metrics a few bytes at a time",
        |it| it_floods(it, &Script::repeat(request("/metrics"), 10_000), Reading::Sip),
    )
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new("admin-slow-head", Door::Admin, "70 clients whose heads come byte by byte", |it| {
        let (streams, refused) = it.silent_crowd(Door::Admin, READERS);
        let script = Script::once(format!("GET /metrics HTTP/1.1\r\nHost: {}", "h".repeat(10_000)));
        Ok(refused + it.trickle(streams, &script, Reading::Never, 1))
    })
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new("admin-silent", Door::Admin, "1,000 clients that say nothing", |it| {
        let (crowd, refused) = it.silent_crowd(Door::Admin, 1_000);
        it.linger();
        drop(crowd);
        Ok(refused)
    })
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new(
        "admin-huge-head",
        Door::Admin,
        "heads of a megabyte, of one field and of many",
        |it| {
            let field = format!("X-Long: {}\r\n", "x".repeat(1_000_000));
            let many = "X: y\r\n".repeat(200_000);
            let head = "GET / HTTP/1.1\r\nHost: localhost\r\n";
            let script = Script::repeat(format!("{head}{field}\r\n{head}{many}\r\n"), 10);
            it_floods(it, &script, Reading::All)
        },
    )
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new("admin-keep-alive", Door::Admin, "70 clients that ask once and stay", |it| {
        it_floods(it, &Script::once(request("/healthz")), Reading::Sip)
    })
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new(
        "admin-bodies",
        Door::Admin,
        "POSTs with bodies that were announced, in chunks and not",
        |it| {
            let plain =
                "POST /stats HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n";
            let chunked =
                "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
            let body = "b".repeat(100_000);
            let text = format!("{chunked}fffffff\r\n{body}\r\n0\r\n\r\n{plain}{body}");
            it_floods(it, &Script::repeat(text, 100), Reading::All)
        },
    )
    .by(UNNAMED)
    .holding(is_healthy),
    Shape::new("admin-garbage", Door::Admin, "what is no HTTP, and paths of 60 KB", |it| {
        let text = format!("GET /{} HTTP/1.1\r\n\r\nPING\r\n\0\0\r\n\r\n", "../".repeat(20_000));
        let mut refused = 0;
        for _ in 0..100 {
            if it.is_over() {
                break;
            }
            let (streams, failed) = it.silent_crowd(Door::Admin, 8);
            refused += failed + it.pump(streams, &Script::once(text.clone()), Reading::All);
        }
        Ok(refused)
    })
    .by(UNNAMED)
    .holding(is_healthy),
];

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn it_floods(target: &Target, script: &Script, reading: Reading) -> Result<u64> {
    let (streams, refused) = target.silent_crowd(Door::Admin, READERS);
    Ok(refused + target.pump(streams, script, reading))
}

/// Checks that monitoring still gets its answers.
fn is_healthy(target: &Target) -> Result<()> {
    for path in ["/healthz", "/readyz"] {
        let answer = ask(target, path).with_context(|| format!("{path} beside the attack"))?;
        let is_good = answer.starts_with("HTTP/1.1 200");
        ensure!(is_good, "{path} beside the attack: {}", answer.lines().next().unwrap_or_default());
    }
    Ok(())
}

fn ask(target: &Target, path: &str) -> Result<String> {
    let at = target.ip(Door::Admin)?;
    let mut stream = TcpStream::connect_timeout(&at, HEALTH_MAX)?;
    stream.set_read_timeout(Some(HEALTH_MAX))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}
