//! The table of doors (K29). A door is a way into the server; the table says whether it is open in
//! the present state of users, keys, certificates and `--insecure`.
//!
//! ```text
//!  settings ─▶ State ─▶ answer(door) ─▶ start.rs: refuses to start with a door that must not open
//!  users    ─▶   │
//!                └─▶ Answers, again at each change of the users ─▶ accept, hello, datagram
//! ```
//!
//! # Invariants
//! D1: no listener or protocol decides by itself: start, accept, hellos and datagrams ask
//!     [`answer`].
//! D2: an answer depends only on the [`State`].

mod remind;
mod start;

use config::Config;
use config::tls::{ClientCertificates, TlsConfig};
use counters::Dialect;

use crate::acl::User;
use crate::end::{End, is_loopback};

pub use remind::{Reminder, exposed};
pub use start::{Refused, check, door_state, needs_users};

/// A way into the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Door {
    /// The RESP port.
    Resp,
    /// The RESP port of TLS.
    TlsResp,
    /// The Unix socket that speaks RESP.
    UnixResp,
    /// The memcached port, TCP.
    Memcached,
    /// The memcached port of TLS.
    TlsMemcached,
    /// The Unix socket that speaks memcached.
    UnixMemcached,
    /// The memcached port, UDP.
    MemcachedUdp,
    /// The native port, UDP.
    Native,
    /// Native clients in shared memory.
    Shm,
    /// The admin port.
    Admin,
    /// The port for other nodes of the cluster.
    Peer,
}

impl Door {
    /// All of them.
    pub const ALL: [Door; 11] = [
        Door::Resp,
        Door::TlsResp,
        Door::UnixResp,
        Door::Memcached,
        Door::TlsMemcached,
        Door::UnixMemcached,
        Door::MemcachedUdp,
        Door::Native,
        Door::Shm,
        Door::Admin,
        Door::Peer,
    ];

    /// The door through which a connection came.
    pub fn of(protocol: Dialect, is_tls: bool, peer: &End) -> Door {
        match (protocol, peer) {
            (Dialect::Resp, End::Unix(_)) => Door::UnixResp,
            (Dialect::Resp, End::Ip(_)) if is_tls => Door::TlsResp,
            (Dialect::Resp, End::Ip(_)) => Door::Resp,
            (Dialect::Memcached, End::Unix(_)) => Door::UnixMemcached,
            (Dialect::Memcached, End::Ip(_)) if is_tls => Door::TlsMemcached,
            (Dialect::Memcached, End::Ip(_)) => Door::Memcached,
        }
    }

    /// The key of the setting that opens it.
    pub fn setting(self) -> &'static str {
        match self {
            Door::Resp => "resp",
            Door::TlsResp => "tls-resp",
            Door::UnixResp => "unix-socket",
            Door::Memcached => "memcached",
            Door::TlsMemcached => "tls-memcached",
            Door::UnixMemcached => "memcached-unix-socket",
            Door::MemcachedUdp => "udp-port",
            Door::Native => "native",
            Door::Shm => "shm",
            Door::Admin => "admin",
            Door::Peer => "peer",
        }
    }
}

/// The answer of a door to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Every client is admitted.
    Open,
    /// A client is admitted once it has shown a password or a key.
    AfterLogin,
    /// Clients of the loopback interface are admitted, others are not.
    LoopbackOnly,
    /// No client is admitted.
    Closed,
}

impl Access {
    /// Whether no client is let in.
    pub fn is_closed(self) -> bool {
        self == Access::Closed
    }

    /// Whether a client is admitted at all.
    #[inline]
    pub fn admits(self, is_loopback: bool) -> bool {
        match self {
            Access::Open | Access::AfterLogin => true,
            Access::LoopbackOnly => is_loopback,
            Access::Closed => false,
        }
    }

    /// Whether a client that is admitted has to log in before anything else.
    pub fn asks_login(self) -> bool {
        matches!(self, Access::AfterLogin | Access::Closed)
    }

    /// Its words in documents.
    pub fn words(self) -> &'static str {
        match self {
            Access::Open => "open",
            Access::AfterLogin => "after login",
            Access::LoopbackOnly => "loopback only",
            Access::Closed => "closed",
        }
    }
}

/// The rights of clients that have not logged in: the user `default`, as far as doors depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultUser {
    /// No password, and all rights.
    Open,
    /// No password, and fewer rights.
    Limited,
    /// A password, and all rights.
    Locked,
    /// Off, without any way to log in, or with a password and fewer rights.
    Shut,
}

impl From<&User> for DefaultUser {
    fn from(user: &User) -> DefaultUser {
        let has_password = user.is_on && !user.passwords.is_empty();
        match (user.takes_anybody(), user.is_unrestricted()) {
            (true, true) => DefaultUser::Open,
            (true, false) => DefaultUser::Limited,
            (false, true) if has_password => DefaultUser::Locked,
            (false, _) => DefaultUser::Shut,
        }
    }
}

/// Everything that answers depend on (D2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The user `default`, now.
    pub default_user: DefaultUser,
    /// `--auth-file`: the memcached port has users of its own.
    pub has_auth_file: bool,
    /// `--native-key-file`.
    pub has_native_key: bool,
    /// `--tls-auth-clients yes`: TLS ends the connection of a client without a certificate.
    pub requires_certificates: bool,
    /// Users log in at the admin port, and TLS hides their passwords.
    pub has_admin_login: bool,
    /// `--insecure`.
    pub is_insecure: bool,
}

impl State {
    /// The state by the settings, and by the present user `default`.
    pub fn new(config: &Config, default: &User) -> State {
        let requires = |tls: &TlsConfig| tls.clients == ClientCertificates::Required;
        State {
            default_user: default.into(),
            has_auth_file: config.auth_file.is_some(),
            has_native_key: config.native_key_file.is_some(),
            requires_certificates: config.tls.as_ref().is_some_and(requires),
            has_admin_login: config.admin_access.is_tls
                && config.admin.is_some_and(|address| !is_loopback(address.ip())),
            is_insecure: config.is_insecure,
        }
    }
}

/// The table: the answer of a door in a state.
pub fn answer(door: Door, state: &State) -> Access {
    let for_strangers = if state.is_insecure { Access::Open } else { Access::LoopbackOnly };
    let by_certificate = if state.requires_certificates { Access::Open } else { for_strangers };
    match door {
        Door::Resp => resp(state, for_strangers),
        Door::TlsResp => resp(state, by_certificate),
        Door::UnixResp => resp(state, Access::Open),
        Door::Memcached => memcached(state, for_strangers),
        Door::TlsMemcached => memcached(state, by_certificate),
        Door::UnixMemcached => memcached(state, Access::Open),
        // A datagram carries no password.
        Door::MemcachedUdp => match memcached(state, for_strangers) {
            Access::AfterLogin => Access::Closed,
            access => access,
        },
        Door::Native => native(state, Access::LoopbackOnly),
        Door::Shm => native(state, Access::Open),
        Door::Admin if state.is_insecure => Access::Open,
        // On loopback it shows no keys and no values without a login.
        Door::Admin if state.has_admin_login => Access::AfterLogin,
        Door::Admin => Access::LoopbackOnly,
        // Nodes prove the cluster's key to each other.
        Door::Peer => Access::AfterLogin,
    }
}

/// Users log in by AUTH, unless `default` needs no password.
fn resp(state: &State, without_password: Access) -> Access {
    match state.default_user {
        DefaultUser::Open | DefaultUser::Limited => without_password,
        DefaultUser::Locked | DefaultUser::Shut => Access::AfterLogin,
    }
}

/// No command is checked there: without users of its own, clients are `default` with all rights.
fn memcached(state: &State, without_password: Access) -> Access {
    match state.default_user {
        _ if state.has_auth_file => Access::AfterLogin,
        DefaultUser::Open => without_password,
        DefaultUser::Locked => Access::AfterLogin,
        DefaultUser::Limited | DefaultUser::Shut => Access::Closed,
    }
}

/// Native clients are not users: the key admits them, or the absence of any password.
fn native(state: &State, without_password: Access) -> Access {
    match state.default_user {
        _ if state.has_native_key => Access::AfterLogin,
        _ if state.is_insecure => Access::Open,
        DefaultUser::Open => without_password,
        DefaultUser::Limited | DefaultUser::Locked | DefaultUser::Shut => Access::Closed,
    }
}

/// The answers of all doors in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers([Access; Door::ALL.len()]);

impl Answers {
    /// Computes the answers of all doors.
    pub fn new(state: &State) -> Answers {
        Answers(Door::ALL.map(|door| answer(door, state)))
    }

    /// The answer of one door.
    #[inline]
    pub fn of(&self, door: Door) -> Access {
        self.0[door as usize]
    }
}

/// The message to a client that a door refuses.
pub fn denial(protocol: Dialect, access: Access) -> &'static [u8] {
    match (protocol, access) {
        (Dialect::Resp, _) => DENIED_RESP,
        (Dialect::Memcached, Access::Closed) => CLOSED_MEMCACHED,
        (Dialect::Memcached, _) => DENIED_MEMCACHED,
    }
}

/// For a client of a RESP port refused by [`Access::LoopbackOnly`], as Redis's protected mode
/// answers.
const DENIED_RESP: &[u8] = b"-DENIED protected mode: the user default has no password, so \
    that only clients of the loopback interface may connect; set one by CONFIG SET requirepass \
    PASSWORD or --requirepass, or start with --insecure on\r\n";

/// For a client of a memcached port refused by it.
const DENIED_MEMCACHED: &[u8] = b"CLIENT_ERROR protected mode: no password is set, so that \
    only clients of the loopback interface may connect; set --requirepass, --auth-file or \
    --insecure\r\n";

/// For a client of a memcached port refused by [`Access::Closed`].
const CLOSED_MEMCACHED: &[u8] = b"CLIENT_ERROR closed: the user default may not log in with \
    all rights here; set --auth-file, or give default a password and all rights\r\n";

#[cfg(test)]
mod tests;
