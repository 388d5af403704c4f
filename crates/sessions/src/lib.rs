//! The users, rights, TLS state and subscriptions of clients, and the lists that all clients share.
//! The connection itself, with its buffers, is `runtime::connection`.
//!
//! ```text
//!  doors            doors: open or closed; tls: certificates, and the bytes of TLS connections
//!  users, rights    logins, password, acl, memcached_users
//!  messages to it   tracking, monitor, event_stream: lines for `watch`, counts for `stats detail`
//!  records          auth_log: refusals (ACL LOG); slow_log: slow commands
//!  connections      clients: the registry of all, and its limits; end: the address of each end
//! ```
//!
//! It knows no worker and no batch. The store's sessions are in `store`, those of native clients in
//! `native`.

#![forbid(unsafe_code)]

pub mod acl;
pub mod auth_log;
pub mod clients;
pub mod doors;
pub mod end;
pub mod event_stream;
pub mod logins;
pub mod memcached_users;
pub mod monitor;
pub mod password;
pub mod slow_log;
pub mod tls;
pub mod tracking;
