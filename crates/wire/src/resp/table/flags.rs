//! The properties of a command, as COMMAND reports them.

/// A set of command flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// No flags.
    pub const NONE: Flags = Flags(0);
    /// May change data.
    pub const WRITE: Flags = Flags(1);
    /// Reads data.
    pub const READONLY: Flags = Flags(1 << 1);
    /// Refused if the memory is full.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// For operators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Concerns channels.
    pub const PUBSUB: Flags = Flags(1 << 4);
    /// Not from scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    /// Allowed while loading.
    pub const LOADING: Flags = Flags(1 << 6);
    /// Allowed on a stale replica.
    pub const STALE: Flags = Flags(1 << 7);
    /// Constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 8);
    /// Allowed before AUTH.
    pub const NO_AUTH: Flags = Flags(1 << 9);
    /// Not in the slow log.
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 10);
    /// Not while a replica loads in the background.
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 11);
    /// Not inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 12);
    /// Allowed while a script runs too long.
    pub const ALLOW_BUSY: Flags = Flags(1 << 13);

    /// The positions of its keys depend on its arguments.
    pub const MOVABLE_KEYS: Flags = Flags(1 << 14);

    const NAMES: [&'static str; 15] = [
        "write",
        "readonly",
        "denyoom",
        "admin",
        "pubsub",
        "noscript",
        "loading",
        "stale",
        "fast",
        "no_auth",
        "skip_slowlog",
        "no_async_loading",
        "no_multi",
        "allow_busy",
        "movablekeys",
    ];

    /// The union.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names, as COMMAND lists them.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        Flags::NAMES
            .into_iter()
            .enumerate()
            .filter_map(move |(bit, name)| self.contains(Flags(1 << bit)).then_some(name))
    }
}

/// The group of a command in COMMAND DOCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Any type of value.
    Generic,
    /// Strings.
    String,
    /// The bits of strings.
    Bitmap,
    /// Connections.
    Connection,
    /// The server.
    Server,
    /// Transactions.
    Transactions,
    /// The cluster.
    Cluster,
    /// Channels.
    PubSub,
}

impl Group {
    /// As in COMMAND DOCS.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::Cluster => "cluster",
            Group::PubSub => "pubsub",
        }
    }
}
