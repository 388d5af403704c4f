//! The guard of the admin port: checks each request by the host name that the client used, and by
//! its login. Pure, apart from the users it is given.
//!
//! ```text
//!  Host ──▶ is it us? ──▶ Authorization ──▶ whose? ──▶ Access: refused, or with or without keys
//!   no: 421                wrong: 401       may not: 403
//! ```
//!
//! # Invariants
//! G1: a host name that is not the server's is refused, so that a page of another site cannot read
//!     through a browser what its own name was made to point at (DNS rebinding).
//! G2: keys are shown only after a login, never because a port is open.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, Version, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::Config;
use sessions::acl::{DEFAULT_USER, Table, User};
use sessions::doors::{self, Door, State};
use sessions::end::is_loopback;

/// Orchestrators request these paths without a password. They reveal nothing else.
const HEALTH_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The rights that a user needs for the admin port, and for the keys on it.
const READ_RIGHT: &[u8] = b"INFO\r\n";
const KEYS_RIGHT: &[u8] = b"HOTKEYS GET\r\n";

/// The answer of the table of doors for this port, at its bound address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdminDoor {
    /// Open to all clients that reach it.
    Open,
    /// Open after a login.
    Login,
    /// Closed.
    Closed,
}

impl AdminDoor {
    fn at(address: SocketAddr, state: &State) -> AdminDoor {
        match doors::answer(Door::Admin, state) {
            doors::Access::Open => AdminDoor::Open,
            doors::Access::AfterLogin => AdminDoor::Login,
            doors::Access::LoopbackOnly if is_loopback(address.ip()) => AdminDoor::Open,
            doors::Access::LoopbackOnly | doors::Access::Closed => AdminDoor::Closed,
        }
    }
}

/// The result for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It is answered.
    Granted { shows_keys: bool },
    /// 421: it names another server.
    WrongHost,
    /// 401: it has no login and needs one.
    NeedsLogin,
    /// 401: its login is wrong.
    WrongLogin,
    /// 429: too many logins of its address have failed; this one was not checked.
    TooManyFailed,
    /// 403: this user may not run INFO, or the door is closed.
    Denied,
}

/// Whether orchestrators request this path.
pub(super) fn is_health_path(path: &str) -> bool {
    HEALTH_PATHS.contains(&path)
}

/// The settings that apply to requests.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    door: AdminDoor,
    shows_keys: bool,
    hosts: Vec<String>,
}

impl Guard {
    pub(super) fn new(config: &Config, address: SocketAddr, users: &Table) -> Guard {
        Guard {
            door: AdminDoor::at(address, &State::new(config, users.default())),
            shows_keys: config.admin_access.shows_keys,
            hosts: config.admin_access.hosts.clone(),
        }
    }

    /// Checks a request that came in at the address `local`.
    pub(super) fn judge(&self, request: &Asked<'_>, local: IpAddr, users: &Table) -> Access {
        if !self.is_ours(request, local) {
            return Access::WrongHost;
        }
        if is_health_path(request.uri.path()) {
            return Access::Granted { shows_keys: false };
        }
        if self.door == AdminDoor::Closed {
            return Access::Denied;
        }
        let Some(credentials) = request.headers.get(header::AUTHORIZATION) else {
            return match self.door {
                AdminDoor::Open => Access::Granted { shows_keys: false },
                _ => Access::NeedsLogin,
            };
        };
        if !request.may_log_in {
            return Access::TooManyFailed;
        }
        match user_of(credentials.as_bytes(), users) {
            None => Access::WrongLogin,
            Some(user) if !user.may_run(READ_RIGHT) => Access::Denied,
            Some(user) => {
                Access::Granted { shows_keys: self.shows_keys && user.may_run(KEYS_RIGHT) }
            }
        }
    }

    /// Whether the client meant this server (G1).
    fn is_ours(&self, request: &Asked<'_>, local: IpAddr) -> bool {
        let mut named = request.headers.get_all(header::HOST).iter();
        let (first, second) = (named.next(), named.next());
        if second.is_some() {
            return false;
        }
        let is_named_right = match first {
            // Browsers always name a host.
            None => request.version < Version::HTTP_11,
            Some(host) => host.to_str().is_ok_and(|host| self.is_our_name(host, local)),
        };
        let target = request.uri.authority();
        is_named_right && target.is_none_or(|target| self.is_our_name(target.as_str(), local))
    }

    /// Whether `host` is a name of this server. It may have any port, because a proxy may forward
    /// from another one.
    fn is_our_name(&self, host: &str, local: IpAddr) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let has_port = host.len() > authority.host().len();
        if host.contains('@') || (has_port && authority.port_u16().is_none()) {
            return false;
        }
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = name.parse::<IpAddr>() {
            let address = address.to_canonical();
            return address.is_loopback()
                || address == local.to_canonical()
                || self.hosts.iter().any(|own| own.parse() == Ok(address));
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name == "localhost" || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(&name))
    }
}

/// The parts of a request that are checked.
pub(super) struct Asked<'r> {
    pub(super) version: Version,
    pub(super) uri: &'r Uri,
    pub(super) headers: &'r HeaderMap,
    /// Whether a login of its address is checked now (`logins.rs`).
    pub(super) may_log_in: bool,
}

/// The user with this name and password. A user without a password does not count: it proves
/// nothing.
fn user_of<'t>(credentials: &[u8], users: &'t Table) -> Option<&'t User> {
    let (scheme, encoded) = credentials.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = if colon == 0 { DEFAULT_USER } else { &decoded[..colon] };
    let user = users.user(name)?;
    (!user.has_no_password && user.admits(&decoded[colon + 1..])).then_some(user)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::HeaderValue;
    use budget::BufferBudget;
    use config::AdminAccess;
    use sessions::acl::Acl;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn guard(door: AdminDoor, shows_keys: bool) -> Guard {
        let hosts = vec!["cache.example".to_owned(), "203.0.113.9".to_owned()];
        Guard { door, shows_keys, hosts }
    }

    fn users() -> Acl {
        let budget = Arc::new(BufferBudget::new(8 << 20));
        let acl = Acl::open(None, None, &budget).unwrap();
        let set = |name: &str, rules: &str| {
            acl.set_user(name.as_bytes(), rules.split(' ').map(str::as_bytes)).unwrap();
        };
        set("prom", "on >pw:1 +info");
        set("boss", "on >pw ~* +@all");
        set("get", "on >pw ~* +get");
        set("off", "off >pw +@all");
        set("free", "on nopass +@all");
        acl
    }

    #[track_caller]
    fn check_host(host: &str, want: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_bytes(host.as_bytes()).unwrap());
        let uri = Uri::from_static("/stats");
        let asked =
            Asked { version: Version::HTTP_11, uri: &uri, headers: &headers, may_log_in: true };
        assert_eq!(guard(AdminDoor::Open, false).is_ours(&asked, LOCAL), want, "{host}");
    }

    #[test]
    fn names_of_this_server_are_answered_with_any_port() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "127.0.0.1:8379",
            "127.9.9.9",
            "[::1]:8379",
            "192.0.2.7",
            "192.0.2.7:80",
            "[::ffff:192.0.2.7]",
            "Cache.Example:443",
            "203.0.113.9",
        ] {
            check_host(host, true);
        }
    }

    #[test]
    fn names_of_others_are_refused() {
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil.example:8379",
            "192.0.2.8",
            "[2001:db8::1]",
            "localhost@evil.example",
            "evil.example@localhost",
            "127.0.0.1.nip.io",
            "cache.example.evil",
            "a b",
            "0",
            "localhost:8379:1",
            "localhost:x.evil.example",
            "localhost:99999",
        ] {
            check_host(host, false);
        }
    }

    #[test]
    fn a_request_names_one_host_and_the_same_in_its_target() {
        let guard = guard(AdminDoor::Open, false);
        let judge = |version, target: &'static str, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            let uri = Uri::from_static(target);
            guard.is_ours(&Asked { version, uri: &uri, headers: &headers, may_log_in: true }, LOCAL)
        };
        assert!(judge(Version::HTTP_10, "/", &[]));
        assert!(!judge(Version::HTTP_11, "/", &[]));
        assert!(!judge(Version::HTTP_11, "/", &["localhost", "localhost"]));
        assert!(judge(Version::HTTP_11, "http://localhost:1/", &["localhost"]));
        assert!(!judge(Version::HTTP_11, "http://evil.example/", &["localhost"]));
        assert!(!judge(Version::HTTP_11, "http://localhost/", &["evil.example"]));
    }

    #[track_caller]
    fn check_login(guard: &Guard, path: &'static str, login: Option<&str>, want: Access) {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        if let Some(login) = login {
            let value = format!("Basic {}", STANDARD.encode(login));
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&value).unwrap());
        }
        let uri = Uri::from_static(path);
        let asked =
            Asked { version: Version::HTTP_11, uri: &uri, headers: &headers, may_log_in: true };
        assert_eq!(guard.judge(&asked, LOCAL, &users().table()), want, "{path} {login:?}");
    }

    #[test]
    fn keys_are_shown_to_permitted_users_where_the_setting_says_so() {
        let (with, without) =
            (Access::Granted { shows_keys: true }, Access::Granted { shows_keys: false });
        for door in [AdminDoor::Open, AdminDoor::Login] {
            check_login(&guard(door, true), "/stats", Some("boss:pw"), with);
            check_login(&guard(door, true), "/stats", Some("prom:pw:1"), without);
            check_login(&guard(door, false), "/stats", Some("boss:pw"), without);
        }
        check_login(&guard(AdminDoor::Open, true), "/stats", None, without);
        check_login(&guard(AdminDoor::Login, true), "/stats", None, Access::NeedsLogin);
        check_login(&guard(AdminDoor::Login, true), "/readyz", None, without);
        check_login(&guard(AdminDoor::Login, true), "/healthz", Some("boss:x"), without);
    }

    #[test]
    fn a_login_needs_a_password_that_is_right_and_the_right_to_run_info() {
        for door in [AdminDoor::Open, AdminDoor::Login] {
            let guard = guard(door, true);
            for login in
                ["boss:x", "boss:", "boss", "", ":", "none:pw", "off:pw", "free:", "free:x"]
            {
                check_login(&guard, "/metrics", Some(login), Access::WrongLogin);
            }
            check_login(&guard, "/metrics", Some("get:pw"), Access::Denied);
        }
    }

    #[test]
    fn no_password_is_looked_at_where_too_many_have_failed() {
        let asked = |headers: &HeaderMap| {
            let uri = Uri::from_static("/stats");
            let asked = Asked { version: Version::HTTP_10, uri: &uri, headers, may_log_in: false };
            guard(AdminDoor::Login, true).judge(&asked, LOCAL, &users().table())
        };
        let mut headers = HeaderMap::new();
        assert_eq!(asked(&headers), Access::NeedsLogin);
        let right = format!("Basic {}", STANDARD.encode("boss:pw"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&right).unwrap());
        assert_eq!(asked(&headers), Access::TooManyFailed);
    }

    #[test]
    fn beyond_loopback_the_door_is_closed_without_tls() {
        let at = |address: &str, is_tls, is_insecure| {
            let admin = Some(address.parse().unwrap());
            let admin_access = AdminAccess { is_tls, ..AdminAccess::default() };
            let config = Config { admin, admin_access, is_insecure, ..Config::default() };
            AdminDoor::at(address.parse().unwrap(), &State::new(&config, users().table().default()))
        };
        for address in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(at(address, false, false), AdminDoor::Open);
            assert_eq!(at(address, true, false), AdminDoor::Open);
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.7:1"] {
            assert_eq!(at(address, false, false), AdminDoor::Closed);
            assert_eq!(at(address, true, false), AdminDoor::Login);
            assert_eq!(at(address, false, true), AdminDoor::Open);
        }
    }
}
