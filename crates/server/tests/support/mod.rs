//! A server on free ports and clients that speak raw bytes.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod native;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use server::{
    Cat, Config, Dispatch, Pin, Policies, Poll, Server, SizeThreshold, Tuning, WritePolicy,
};

/// How long a test waits for bytes before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server that ends with the test.
pub struct TestServer {
    server: Option<Server>,
}

/// What one read brings. A read with a timeout is not begun again by the kernel, whatever stopped
/// the process.
pub fn read_some(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

const ALONE: &str = "DOVETAIL_TEST_ALONE";

/// Whether this process runs the test `name` alone, for what it measures of its process. If not,
/// another process has run it so, and the caller is done.
pub fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let output = std::process::Command::new(own)
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{failed}");
    false
}

/// Free ports, no admin port, two workers; or as the module says that the suite is a part of.
pub fn config() -> Config {
    let part = |name: &str| module_path!().split("::").any(|part| part == name);
    let plain = plain_config();
    if part("two_layers") {
        Config { threads: 3, cr_threads: Some(1), ..plain }
    } else if part("erew") {
        let (write_policy, dispatch) = (WritePolicy::Erew, Dispatch::KeyHash);
        Config { threads: 3, policies: Policies::new(write_policy, dispatch), ..plain }
    } else if part("dcrew_jbsq") {
        let (write_policy, dispatch) = (WritePolicy::DCrew, Dispatch::Jbsq(1));
        Config { threads: 3, policies: Policies::new(write_policy, dispatch), ..plain }
    } else if part("stealing") {
        let (write_policy, dispatch) = (WritePolicy::Crew, Dispatch::Steal);
        Config { threads: 3, policies: Policies::new(write_policy, dispatch), ..plain }
    } else if part("size_aware") {
        let (write_policy, dispatch) = (WritePolicy::DCrew, Dispatch::SizeAware);
        let size_threshold = SizeThreshold::Static { bytes: 60 };
        Config {
            threads: 3,
            policies: Policies::new(write_policy, dispatch),
            size_threshold,
            ..plain
        }
    } else {
        plain
    }
}

fn plain_config() -> Config {
    let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    Config {
        resp: any,
        memcached: any,
        native: None,
        admin: None,
        memory_bytes: 128 << 20,
        threads: 2,
        // Roles are the tests' to change.
        tuning: Tuning::Off,
        cat: Cat::Off,
        pin: Pin::Off,
        poll: Poll::Block,
        ..Config::default()
    }
}

/// A port that no other process had a moment ago.
pub fn free_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl TestServer {
    /// Starts a server with [`config`].
    pub fn start() -> TestServer {
        TestServer::with(config())
    }

    /// Starts a server.
    pub fn with(config: Config) -> TestServer {
        TestServer::try_with(config).unwrap()
    }

    /// The same where it may fail.
    pub fn try_with(config: Config) -> Result<TestServer, server::StartError> {
        Server::start(config).map(|server| TestServer { server: Some(server) })
    }

    /// Ends a server with the test.
    pub fn around(server: Server) -> TestServer {
        TestServer { server: Some(server) }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// A Redis client.
    pub fn resp(&self) -> Client {
        Client::connect(self.server().resp_addr().unwrap())
    }

    /// A memcached client.
    pub fn memcached(&self) -> Client {
        Client::connect(self.server().memcached_addr().unwrap())
    }

    /// Stops; whether everything was drained within `limit`.
    pub fn stop(mut self, limit: Duration) -> bool {
        let server = self.server.take().unwrap();
        server.stop();
        server.join(limit)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            server.join(PATIENCE);
        }
    }
}

/// A connection that speaks raw bytes.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// The next `want.len()` bytes are `want`.
    #[track_caller]
    pub fn expect(&mut self, want: impl AsRef<[u8]>) {
        let want = want.as_ref();
        let mut found = vec![0; want.len()];
        let mut filled = 0;
        while filled < found.len() {
            match read_some(&mut self.stream, &mut found[filled..]) {
                Ok(count @ 1..) => filled += count,
                other => {
                    panic!("{other:?} after {:?}, wanted {:?}", text(&found[..filled]), text(want))
                }
            }
            // Fails at the first difference instead of waiting for bytes that do not come.
            assert_eq!(text(&found[..filled]), text(&want[..filled]));
        }
    }

    /// Sends and expects.
    #[track_caller]
    pub fn ask(&mut self, bytes: impl AsRef<[u8]>, want: impl AsRef<[u8]>) {
        self.send(bytes);
        self.expect(want);
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        // Those that memcached's `watch` tells end without a carriage return.
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8_lossy(line.trim_ascii_end()).into_owned()
    }

    /// The next bulk string, with its length before it.
    pub fn bulk(&mut self) -> Vec<u8> {
        let head = self.line();
        let mut body = self.take(head[1..].parse::<usize>().unwrap() + 2);
        body.truncate(body.len() - 2);
        body
    }

    /// The next so many bytes.
    pub fn take(&mut self, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next line has `part`, and no line before it: returns the line.
    #[track_caller]
    pub fn expect_line_with(&mut self, part: &str) -> String {
        let line = self.line();
        assert!(line.contains(part), "{line:?} has no {part:?}");
        line
    }

    /// Everything until the server closes the connection.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut found = Vec::new();
        self.stream.read_to_end(&mut found).unwrap();
        found
    }

    /// The server has closed the connection and sent nothing more.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{}", text(&rest)),
            // Closed with our bytes unread.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }

    /// No more will be sent.
    pub fn finish_sending(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// Escaped and cut, for messages.
pub fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(600)];
    format!("{} ({} bytes)", shown.escape_ascii(), bytes.len())
}

/// A command as clients send it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A bulk string as the server sends it.
pub fn bulk(value: &[u8]) -> Vec<u8> {
    let mut out = format!("${}\r\n", value.len()).into_bytes();
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    out
}

/// Bytes that differ everywhere, so that a shifted copy shows.
pub fn pattern(len_bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len_bytes).map(next).collect()
}
