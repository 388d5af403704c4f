//! The target of a run: a server at an address, or the store in this process.

use crate::error::BenchError;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp,
    Memcached,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Resp => "RESP",
            Protocol::Memcached => "memcached text",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Protocol::Resp => 6379,
            Protocol::Memcached => 11_211,
        }
    }
}

/// A parsed TARGET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// HOST:PORT, the host as written.
    Server {
        protocol: Protocol,
        address: String,
    },
    /// The native protocol, over UDP or shared memory.
    Native(client::Target),
    Embedded,
    /// No store: measures the harness of the embedded store alone.
    Null,
}

impl Target {
    /// Whether there is no server: requests are served on the threads that form them.
    pub(crate) fn is_in_process(&self) -> bool {
        matches!(self, Target::Embedded | Target::Null)
    }

    pub(crate) fn parse(text: &str) -> Result<Target, BenchError> {
        let bad = || {
            BenchError::usage(format!(
                "`{text}` is no target: write resp://HOST:PORT, memcached://HOST:PORT, \
                 native://HOST:PORT, shm:PATH, HOST:PORT, embedded: or null:"
            ))
        };
        if matches!(text, "embedded:" | "embedded" | "embedded://") {
            return Ok(Target::Embedded);
        }
        if text == "null:" {
            return Ok(Target::Null);
        }
        if text.starts_with("native:") || text.starts_with("shm:") {
            return text.parse().map(Target::Native).map_err(|_| bad());
        }
        let (protocol, rest) = match text.split_once("://") {
            None => (Protocol::Resp, text),
            Some(("resp" | "redis" | "valkey", rest)) => (Protocol::Resp, rest),
            Some(("memcached" | "memcache", rest)) => (Protocol::Memcached, rest),
            Some(_) => return Err(bad()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let address = with_port(rest, protocol.default_port()).ok_or_else(bad)?;
        Ok(Target::Server { protocol, address })
    }
}

/// `rest` as HOST:PORT, with `default_port` where it names none.
fn with_port(rest: &str, default_port: u16) -> Option<String> {
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (rest, None),
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        None => default_port,
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let bare = if is_bracketed { &host[1..host.len() - 1] } else { host };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:%".contains(letter);
    if bare.is_empty() || !bare.chars().all(is_plain) {
        return None;
    }
    if bare.contains(':') {
        Some(format!("[{bare}]:{port}"))
    } else {
        Some(format!("{bare}:{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<(Protocol, &str)>) {
        let found = Target::parse(text).ok();
        let want =
            want.map(|(protocol, address)| Target::Server { protocol, address: address.into() });
        assert_eq!(found, want, "{text}");
    }

    #[test]
    fn targets_name_a_protocol_and_an_address() {
        check("resp://127.0.0.1:7000", Some((Protocol::Resp, "127.0.0.1:7000")));
        check("redis://localhost", Some((Protocol::Resp, "localhost:6379")));
        check("localhost:1", Some((Protocol::Resp, "localhost:1")));
        check("memcached://h/", Some((Protocol::Memcached, "h:11211")));
        check("resp://[::1]:7000", Some((Protocol::Resp, "[::1]:7000")));
        check("::1", Some((Protocol::Resp, "[::1]:6379")));
        for text in ["", "http://x:1", "resp://", "x:0", "x:70000", "x:y", "a b:1"] {
            check(text, None);
        }
        assert_eq!(Target::parse("embedded:").ok(), Some(Target::Embedded));
        for text in ["native://127.0.0.1:7379", "shm:/run/dovetail.sock"] {
            assert_eq!(Target::parse(text).ok(), text.parse().ok().map(Target::Native), "{text}");
        }
        assert_eq!(Target::parse("native:h").ok(), None);
        assert_eq!(Target::parse("null:").ok(), Some(Target::Null));
    }
}
