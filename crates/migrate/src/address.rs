//! The source and the target of a copy: `redis://`, `memcached://`, `rdb://`; with TLS `rediss://`
//! and `memcacheds://`.
//!
//! ```text
//!  redis://[[user]:password@]host[:port][/database]     rediss:// by TLS
//!  memcached://[user:password@]host[:port]              memcacheds:// by TLS
//!  rdb:///path/to/dump.rdb
//! ```
//!
//! Characters of a user name or password other than letters and digits may be percent-encoded
//! (`%40`).

use std::fmt;
use std::path::PathBuf;

use crate::tls::TlsFiles;

/// A server, and the user to log in as.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user name; empty if there is none.
    pub user: String,
    /// The password; without one there is no login.
    pub password: Option<String>,
    /// The database of a Redis server.
    pub database: u32,
    /// The TLS files; `None`: no TLS.
    pub tls: Option<TlsFiles>,
}

impl Place {
    fn by_tls(self) -> Place {
        Place { tls: Some(TlsFiles::default()), ..self }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password stays out of logs.
        write!(formatter, "Place({self})")
    }
}

impl fmt::Display for Place {
    /// The address without user and password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A server that speaks RESP.
    Redis(Place),
    /// A server that speaks memcached's text protocol.
    Memcached(Place),
    /// A file that Redis has saved.
    Rdb(PathBuf),
}

/// The reasons for which an address is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct AddressError {
    reason: String,
}

const FORMS: &str = "write redis://[user:password@]host:port[/db], memcached://host:port \
                     (by TLS: rediss://, memcacheds://) or rdb:///path/dump.rdb";

fn wrong(reason: impl Into<String>) -> AddressError {
    AddressError { reason: reason.into() }
}

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong(format!("no address: {FORMS}")));
        };
        match scheme {
            "redis" => place(rest, 6379, true).map(Address::Redis),
            "rediss" => place(rest, 6379, true).map(|place| Address::Redis(place.by_tls())),
            "memcached" => place(rest, 11211, false).map(Address::Memcached),
            "memcacheds" => {
                place(rest, 11211, false).map(|place| Address::Memcached(place.by_tls()))
            }
            "rdb" if rest.is_empty() => Err(wrong("no path: write rdb:///path/dump.rdb")),
            "rdb" => Ok(Address::Rdb(PathBuf::from(rest))),
            _ => Err(wrong(format!("{scheme}:// is none of the addresses: {FORMS}"))),
        }
    }
}

fn place(rest: &str, port: u16, has_databases: bool) -> Result<Place, AddressError> {
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    };
    let (user, password) = match login {
        Some(login) => {
            let Some((user, password)) = login.split_once(':') else {
                return Err(wrong("the password is missing: write user:password@ or :password@"));
            };
            (decoded(user)?, Some(decoded(password)?))
        }
        None => (String::new(), None),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match path {
        "" => 0,
        _ if !has_databases => return Err(wrong("there is nothing behind the port")),
        number => number
            .parse()
            .map_err(|_| wrong("what is behind the port is a database's number, e.g. /1"))?,
    };
    let (host, port_text) = match authority.strip_prefix('[') {
        Some(inner) => {
            let Some((host, after)) = inner.split_once(']') else {
                return Err(wrong("the bracket of the IPv6 address is open"));
            };
            let port = after.strip_prefix(':');
            if port.is_none() && !after.is_empty() {
                return Err(wrong("a port follows `:`"));
            }
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(wrong("write IPv6 addresses in brackets: [::1]:6379"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(wrong("the host is missing"));
    }
    let port = match port_text {
        Some(text) => text.parse().map_err(|_| wrong("the port is no number below 65,536"))?,
        None => port,
    };
    Ok(Place { host: host.to_owned(), port, user, password, database, tls: None })
}

/// Decodes percent-encoded bytes.
fn decoded(text: &str) -> Result<String, AddressError> {
    let bytes = percent_decoded(text.as_bytes())
        .ok_or_else(|| wrong("a % in user or password is written %25"))?;
    String::from_utf8(bytes).map_err(|_| wrong("user and password are UTF-8"))
}

/// `None`: a percent sign without two digits.
pub(crate) fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(*rest.next()?).to_digit(16)?;
            let low = char::from(*rest.next()?).to_digit(16)?;
            out.push((high << 4 | low) as u8);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(host: &str, port: u16, user: &str, password: Option<&str>, database: u32) -> Address {
        let (host, user) = (host.to_owned(), user.to_owned());
        let password = password.map(Into::into);
        Address::Redis(Place { host, port, user, password, database, tls: None })
    }

    #[track_caller]
    fn check(text: &str, want: Address) {
        assert_eq!(text.parse(), Ok(want), "{text}");
    }

    #[test]
    fn addresses_are_read() {
        check("redis://localhost", redis("localhost", 6379, "", None, 0));
        check("redis://10.0.0.1:7000/3", redis("10.0.0.1", 7000, "", None, 3));
        check("redis://:p%40ss@h:1/", redis("h", 1, "", Some("p@ss"), 0));
        check("redis://u:a:b@[::1]:6380", redis("::1", 6380, "u", Some("a:b"), 0));
        check("rdb:///var/dump.rdb", Address::Rdb("/var/dump.rdb".into()));
        let found: Address = "memcached://cache".parse().expect("an address");
        assert!(matches!(found, Address::Memcached(place) if place.port == 11211));
        let tls = |text: &str| match text.parse() {
            Ok(Address::Redis(place) | Address::Memcached(place)) => (place.port, place.tls),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(tls("rediss://:p@cache"), (6379, Some(TlsFiles::default())));
        assert_eq!(tls("memcacheds://cache:7"), (7, Some(TlsFiles::default())));
        assert_eq!(tls("redis://cache"), (6379, None));
    }

    #[track_caller]
    fn check_refused(text: &str, want: &str) {
        let error = text.parse::<Address>().expect_err(text).to_string();
        assert!(error.contains(want), "{text}: {error}");
    }

    #[test]
    fn other_addresses_are_refused_by_what_is_wrong() {
        check_refused("localhost:6379", "no address");
        check_refused("http://x", "none of the addresses");
        check_refused("https://x", "rediss://");
        check_refused("redis://", "host is missing");
        check_refused("redis://::1:6379", "brackets");
        check_refused("redis://h:70000", "65,536");
        check_refused("redis://h/zero", "number");
        check_refused("redis://me@h", "password is missing");
        check_refused("redis://me:%4@h", "%25");
        check_refused("memcached://h/1", "nothing behind");
        check_refused("rdb://", "no path");
    }

    #[test]
    fn a_password_is_never_shown() {
        let address: Address = "redis://me:secret@h".parse().expect("an address");
        assert!(!format!("{address:?}").contains("secret"));
    }
}
