//! What a connection is besides bytes.
//!
//! ```text
//!  doors            doors, tls
//!  users, rights    logins, password, acl, memcached_users, auth_log
//!  messages to it   tracking, monitor, event_stream
//!  facts about it   clients, end, slow_log
//! ```

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
