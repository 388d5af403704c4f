//! The commands of the text protocol: of each its form, its word, and how it is routed.
//!
//! ```text
//!  set k 0 0 5 ──▶ Line::read ──▶ Command::Store ──▶ Command::is_on_one_key
//!  the word        its arm here   its form here      routed to the key's worker, or a barrier
//! ```
//!
//! A new command is a variant and an arm here, a row of `counters::MemcachedCommand`, and what it
//! does in `handlers::memcached`.

use super::administration::DumpKind;
use super::command::Limits;
use super::command::{
    Arithmetic, Delete, ProtocolError, Retrieve, StatsKind, Store, StoreVerb, Touch,
};
use super::meta::{Meta, MetaVerb};
use super::parser::{Line, NextCommand};
use super::reply::Reply;
use super::watch::EventTopics;
use super::words::{Words, split_word};
use crate::Parsed;

/// One request. Keys are checked: 1 to 250 bytes, without a space or a control byte that ends a
/// word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command<'a> {
    /// get and gets.
    Get(Retrieve<'a>),
    /// gat and gats: the same, and sets the expiry.
    GetAndTouch {
        /// As given; see [`expiry_from_exptime`].
        exptime: i64,
        /// What to read.
        retrieve: Retrieve<'a>,
    },
    /// set, add, replace, append, prepend and cas.
    Store(Store<'a>),
    /// delete.
    Delete(Delete<'a>),
    /// incr and decr.
    Arithmetic(Arithmetic<'a>),
    /// touch.
    Touch(Touch<'a>),
    /// flush_all.
    FlushAll {
        /// As given: seconds from now, or a Unix time; 0 or negative is now.
        delay: i64,
        /// Do not reply.
        noreply: bool,
    },
    /// version.
    Version,
    /// verbosity: reply OK.
    Verbosity {
        /// Do not reply.
        noreply: bool,
    },
    /// quit: close without a reply.
    Quit,
    /// stats.
    Stats(StatsKind<'a>),
    /// config get cluster: the nodes of the cluster. Not of memcached itself.
    ConfigGetCluster,
    /// shutdown.
    Shutdown {
        /// Alone, or `graceful`.
        is_valid: bool,
    },
    /// refresh_certs.
    RefreshCertificates {
        /// Do not reply.
        noreply: bool,
    },
    /// cache_memlimit: the memory of the running server.
    MemoryLimit {
        /// In MiB, as in memcached.
        mib: u64,
        /// Do not reply.
        noreply: bool,
    },
    /// watch: the connection gets lines from now on, and nothing else.
    Watch {
        /// The topics.
        topics: EventTopics,
        /// Do not reply.
        noreply: bool,
    },
    /// mn, the meta no-op: reply MN.
    MetaNoop,
    /// mg, ms, md, ma and me.
    Meta(Meta<'a>),
    /// lru_crawler metadump and mgdump: lists all keys.
    Dump(DumpKind),
}

impl Command<'_> {
    /// Whether it reads keys, each of which another node of a cluster may have.
    pub fn is_read(&self) -> bool {
        matches!(self, Command::Get(_) | Command::GetAndTouch { .. })
    }

    /// Whether it is one request on one key: such commands are routed. Everything else is a
    /// barrier for its connection (K10).
    pub fn is_on_one_key(&self) -> bool {
        match self {
            Command::Get(retrieve) | Command::GetAndTouch { retrieve, .. } => {
                let mut keys = retrieve.keys;
                keys.next().is_some() && keys.next().is_none()
            }
            Command::Store(_)
            | Command::Delete(_)
            | Command::Arithmetic(_)
            | Command::Touch(_)
            | Command::Meta(_) => true,
            _ => false,
        }
    }
}

impl<'a> Line<'a> {
    pub(super) fn read(&self, limits: &Limits) -> NextCommand<'a> {
        let Some((name, rest)) = split_word(self.line) else {
            return self.reject(Reply::Error, false);
        };
        if name.len() < 2 {
            return self.reject(Reply::Error, false);
        }
        match name {
            b"get" | b"bget" => self.retrieve(rest, false),
            b"gets" => self.retrieve(rest, true),
            b"set" => self.store(StoreVerb::Set, rest, limits),
            b"gat" => self.get_and_touch(rest, false),
            b"gats" => self.get_and_touch(rest, true),
            b"add" => self.store(StoreVerb::Add, rest, limits),
            b"replace" => self.store(StoreVerb::Replace, rest, limits),
            b"append" => self.store(StoreVerb::Append, rest, limits),
            b"prepend" => self.store(StoreVerb::Prepend, rest, limits),
            b"cas" => self.store(StoreVerb::Cas(0), rest, limits),
            b"delete" => self.delete(),
            b"incr" => self.arithmetic(false),
            b"decr" => self.arithmetic(true),
            b"touch" => self.touch(),
            b"mg" => self.meta(MetaVerb::Get, rest, limits),
            b"ms" => self.meta(MetaVerb::Set, rest, limits),
            b"md" => self.meta(MetaVerb::Delete, rest, limits),
            b"ma" => self.meta(MetaVerb::Arithmetic, rest, limits),
            b"me" => self.meta(MetaVerb::Debug, rest, limits),
            _ => self.read_other(name),
        }
    }

    fn read_other(&self, name: &[u8]) -> NextCommand<'a> {
        let words = Words::split(self.line);
        match name {
            b"mn" => self.done(Command::MetaNoop),
            b"version" => self.done(Command::Version),
            b"quit" => self.done(Command::Quit),
            b"shutdown" => {
                let is_graceful = words.count == 2 && words.get(1) == b"graceful";
                self.done(Command::Shutdown { is_valid: words.count == 1 || is_graceful })
            }
            b"refresh_certs" => {
                self.done(Command::RefreshCertificates { noreply: words.ends_in_noreply() })
            }
            b"stats" => self.stats(&words),
            b"flush_all" => self.flush_all(&words),
            b"verbosity" => self.verbosity(&words),
            b"config" if words.count == 3 && is_cluster_config(&words) => {
                self.done(Command::ConfigGetCluster)
            }
            b"lru_crawler" => self.lru_crawler(&words),
            b"cache_memlimit" => self.memory_limit(&words),
            b"watch" => self.watch(&words),
            b"slabs" => self.slabs(&words),
            _ if is_http(self.line) => Parsed::Bad(ProtocolError::Http),
            _ => self.reject(Reply::Error, false),
        }
    }
}

/// The command by which clients of managed caches request the list of nodes.
fn is_cluster_config(words: &Words<'_>) -> bool {
    (words.get(1), words.get(2)) == (&b"get"[..], &b"cluster"[..])
}

/// Whether the last word of an unknown command shows that the client is a web browser.
fn is_http(line: &[u8]) -> bool {
    let mut rest = line;
    let mut last = &line[..0];
    while let Some((word, after)) = split_word(rest) {
        (last, rest) = (word, after);
    }
    last.starts_with(b"HTTP/")
}
