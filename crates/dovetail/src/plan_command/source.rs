//! The source of the workload for `plan`: a name, a file, or a server.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use sim::plan::Workload;

use crate::failure::Failure;
use crate::plan_command::failure;

const SERVER_WAIT_MAX: Duration = Duration::from_secs(5);
/// A server's statistics are a few kilobytes.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Reads the workload: `text` is a server if it is an address, a trace if there is such a file,
/// else a name.
pub(super) fn read(
    text: &str,
    request_count: usize,
    seed: u64,
    zipf: f64,
) -> Result<Workload, Failure> {
    if let Some(address) = address_of(text) {
        let json = statistics(&address).map_err(|reason| {
            Failure::Runtime(format!("plan: http://{address}/stats: {reason}"))
        })?;
        return Workload::from_stats(&address, &json, zipf, request_count, seed).map_err(failure);
    }
    let looks_like_a_path = text.contains(['/', '.']);
    if looks_like_a_path || Path::new(text).is_file() {
        let file = File::open(text)
            .map_err(|error| Failure::Usage(format!("plan: --workload {text}: {error}")))?;
        return Workload::from_trace(text, BufReader::new(file), request_count).map_err(failure);
    }
    Workload::named(text, request_count, seed).map_err(failure)
}

/// `HOST:PORT` of `http://HOST:PORT/stats` or of `HOST:PORT`.
fn address_of(text: &str) -> Option<String> {
    let with_scheme = text.strip_prefix("http://");
    let authority = with_scheme.unwrap_or(text).split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    match (with_scheme, port) {
        (Some(_), None) => Some(format!("{authority}:80")),
        (_, Some(_)) => Some(authority.to_owned()),
        (None, None) => None,
    }
}

/// The body of `GET /stats`.
fn statistics(address: &str) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut found = address.to_socket_addrs().map_err(text)?;
    let socket_address = found.next().ok_or("the host has no address")?;
    let mut stream = TcpStream::connect_timeout(&socket_address, SERVER_WAIT_MAX).map_err(text)?;
    stream.set_read_timeout(Some(SERVER_WAIT_MAX)).map_err(text)?;
    // HTTP/1.0: the connection's end marks the end of the answer.
    let request = format!("GET /stats HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(text)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(text)?;
    body_of(&String::from_utf8_lossy(&answer))
}

fn body_of(answer: &str) -> Result<String, String> {
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or("no HTTP answer: write the admin address")?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => Err(format!(
            "status {}: write the admin address of a server",
            status.unwrap_or("missing")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{address_of, body_of};

    #[test]
    fn addresses_are_told_from_names_and_files() {
        for (text, want) in [
            ("http://127.0.0.1:8379/stats", Some("127.0.0.1:8379")),
            ("localhost:8379", Some("localhost:8379")),
            ("http://host", Some("host:80")),
            ("[::1]:8379", Some("[::1]:8379")),
            ("twitter-12", None),
            ("./trace.csv", None),
        ] {
            assert_eq!(address_of(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn only_a_good_answer_has_a_body() {
        assert_eq!(body_of("HTTP/1.0 200 OK\r\na: b\r\n\r\n{}"), Ok("{}".to_owned()));
        for answer in ["HTTP/1.0 404 Not Found\r\n\r\nx", "-ERR unknown command\r\n", ""] {
            assert!(body_of(answer).is_err_and(|reason| reason.contains("admin address")));
        }
    }
}
