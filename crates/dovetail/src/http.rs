//! One GET, for an admin port: an answer with a length, on a connection of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// For each step of an exchange.
const STEP_MAX: Duration = Duration::from_secs(5);

/// What is read of an answer; `/stats` has some tens of kilobytes.
const ANSWER_MAX_BYTES: u64 = 16 << 20;

/// The body of `path`, or what went wrong.
pub fn get(address: SocketAddr, path: &str) -> Result<Vec<u8>, String> {
    let words = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&address, STEP_MAX).map_err(words)?;
    stream.set_read_timeout(Some(STEP_MAX)).map_err(words)?;
    stream.set_write_timeout(Some(STEP_MAX)).map_err(words)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(words)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer).map_err(words)?;
    body_of(&answer)
}

fn body_of(answer: &[u8]) -> Result<Vec<u8>, String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.ok_or("no HTTP answer")? + 4);
    let status = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    if !status.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(status).escape_default().to_string());
    }
    Ok(body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_follows_the_head_of_a_good_answer() {
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(body_of(good), Ok(b"{}".to_vec()));
        let missing = b"HTTP/1.1 404 Not Found\r\n\r\nno";
        assert_eq!(body_of(missing), Err("HTTP/1.1 404 Not Found".to_owned()));
        assert_eq!(body_of(b"-ERR unknown command\r\n"), Err("no HTTP answer".to_owned()));
    }
}
