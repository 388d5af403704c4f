//! The check of doors at the start: settings that would open one to strangers are refused, with a
//! remedy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use budget::BufferBudget;
use config::Config;
use config::StartError;

use super::{Access, Door, State, answer};
use crate::acl::Acl;
use crate::end::is_loopback;

/// Why a server with these settings does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which door.
    pub door: Door,
    /// What is wrong, and what would be right.
    pub reason: String,
}

/// The address that a door is bound to; `None`: it is off, or has no address.
pub(super) fn address(config: &Config, door: Door) -> Option<SocketAddr> {
    match door {
        Door::Resp => config.resp,
        Door::TlsResp => config.tls_resp,
        Door::Memcached => config.memcached,
        Door::TlsMemcached => config.tls_memcached,
        Door::MemcachedUdp if config.udp.port == 0 => None,
        Door::MemcachedUdp => {
            config.memcached.map(|address| SocketAddr::new(address.ip(), config.udp.port))
        }
        Door::Native => config.native,
        Door::Admin => config.admin,
        Door::Peer => config.cluster.as_ref().map(|cluster| cluster.peer),
        Door::UnixResp | Door::UnixMemcached | Door::Shm => None,
    }
}

/// Whether [`check`] depends on the users, so that a file of them has to be read first.
pub fn needs_users(config: &Config) -> bool {
    let is_reachable = |door| address(config, door).is_some_and(|at| !is_loopback(at.ip()));
    config.native.is_some()
        || config.shm.is_some()
        || config.udp.port != 0
        || Door::ALL.into_iter().any(is_reachable)
}

/// Checks that all doors that these settings open may be open.
///
/// # Errors
///
/// The first door that may not.
pub fn check(config: &Config, state: &State) -> Result<(), Refused> {
    for door in Door::ALL {
        let refuse = |reason| Err(Refused { door, reason });
        let at = address(config, door);
        let is_there = at.is_some() || (door == Door::Shm && config.shm.is_some());
        match answer(door, state) {
            Access::LoopbackOnly => {
                if let Some(at) = at.filter(|at| !is_loopback(at.ip())) {
                    return refuse(too_far(door, at.ip()));
                }
            }
            Access::Closed if is_there && is_useless_closed(door) => {
                return refuse(beside(door, config));
            }
            Access::Closed | Access::Open | Access::AfterLogin => {}
        }
    }
    Ok(())
}

/// Whether a closed door is a mistake in the settings. memcached's TCP ports are on by default, and
/// rights may change.
fn is_useless_closed(door: Door) -> bool {
    matches!(door, Door::Native | Door::Shm | Door::MemcachedUdp)
}

/// The error for a door that may only be on loopback, at another address.
fn too_far(door: Door, address: IpAddr) -> String {
    let (what, remedy) = match door {
        Door::Native => ("no key configured", "--native-key-file PATH or --insecure"),
        Door::MemcachedUdp => {
            ("datagrams can name any address as their sender", "--insecure or --udp-port 0")
        }
        Door::Admin => (
            "logins would cross the network in the clear",
            "--admin-tls on, a loopback address or --insecure",
        ),
        _ => ("no auth configured", "--requirepass PASSWORD or --insecure"),
    };
    format!("bind {address} refused: {what}; use {remedy}")
}

/// The error for a door that cannot be open beside the login that the settings demand of clients.
fn beside(door: Door, config: &Config) -> String {
    let flag = match config {
        Config { auth_file: Some(_), .. } if door == Door::MemcachedUdp => "--auth-file",
        Config { acl_file: Some(_), .. } => "--acl-file",
        _ => "--requirepass",
    };
    let (what, remedy) = match (door, flag) {
        (Door::MemcachedUdp, _) => ("datagrams carry no password", "--udp-port 0"),
        (Door::Shm, _) => (
            "clients in shared memory give no password",
            "--native-key-file PATH, --insecure or --shm off",
        ),
        (_, "--acl-file") => {
            ("native clients are no users", "--native-key-file PATH, --insecure or --native off")
        }
        _ => (
            "native clients give no password",
            "--native-key-file PATH, --insecure or --native off",
        ),
    };
    format!("refused beside {flag}: {what}; use {remedy}")
}

/// What doors answer by at the start with these settings.
///
/// # Errors
/// A file of users that is not there or says what cannot be.
pub fn door_state(config: &Config) -> Result<State, StartError> {
    // The server that starts holds the file against its own buffers.
    let budget = Arc::new(BufferBudget::new(u64::from(u32::MAX)));
    let (password, file) = (config.requirepass.as_deref(), config.acl_file.as_deref());
    Ok(State::new(config, Acl::open(password, file, &budget)?.table().default()))
}
