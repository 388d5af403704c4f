//! The kinds of memory that clients cause: one row each, with its part of the client buffers.

/// The part of the client buffers that a kind belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Has the last eighth to itself.
    Small,
    /// Is released with requests and replies.
    Passing,
    /// Stays as long as a client, a user or a session does.
    Standing,
    /// Has a part of its own that no other kind takes: for bytes that must not wait for any client.
    Apart,
}

/// The purpose that bytes are booked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// Small commands and replies of connected clients.
    Small,
    /// Input of clients that still have to log in.
    Strangers,
    /// Large commands while they arrive, and their copies in request slots between threads.
    Bodies,
    /// Replies that have not left.
    Replies,
    /// Queues of MULTI, watched keys, and the scratch memory of commands on several keys.
    Groups,
    /// memcached over UDP: buffers of its sockets, and exchanges that wait for a reply.
    Udp,
    /// Values that native clients send in parts.
    Transfers,
    /// New values of updates, while they are made.
    Scratch,
    /// Writes of a cluster's node until all copies have them.
    Writes,
    /// Writes of other nodes that a cluster's node assembles. Its part is its own, because other
    /// nodes' writes wait for it, and clients' commands for those writes.
    Landing,
    /// Copies of requests that a cluster's node forwards to other nodes.
    Forwards,
    /// Requests that other nodes have forwarded to this one. Forwards wait for guests of other
    /// nodes, guests for writes, writes for landing at other nodes, and landing for nothing: so no
    /// two nodes wait for each other.
    Guests,
    /// Connections themselves: their records, and TLS sessions after the handshake.
    Connections,
    /// Names that clients give themselves or log in with.
    Names,
    /// TLS handshakes that have not ended.
    Handshakes,
    /// Users, their passwords and rules, and ACL LOG.
    Acl,
    /// CLIENT TRACKING: the table of read keys, and prefixes.
    Tracking,
    /// Native sessions, their records of writes, and the buffers of their sockets.
    Sessions,
    /// Rings of clients in shared memory.
    SharedMemory,
    /// HOTKEYS.
    HotKeys,
    /// Entries of SLOWLOG.
    SlowLog,
}

/// The properties of a kind.
struct Row {
    kind: Kind,
    name: &'static str,
    class: Class,
    /// The part of the client buffers, in 64ths; 0 for a kind with a part apart.
    share: u64,
}

const fn row(kind: Kind, name: &'static str, class: Class, share: u64) -> Row {
    Row { kind, name, class, share }
}

/// All kinds. The parts add up to more than the whole: bytes that one kind does not use are free
/// for another. The classes ensure that none takes the room of another class.
const ROWS: [Row; Kind::COUNT] = [
    row(Kind::Small, "small", Class::Small, 40),
    row(Kind::Strangers, "strangers", Class::Passing, 8),
    row(Kind::Bodies, "bodies", Class::Passing, 52),
    row(Kind::Replies, "replies", Class::Passing, 48),
    row(Kind::Groups, "groups", Class::Passing, 32),
    row(Kind::Udp, "udp", Class::Passing, 16),
    row(Kind::Transfers, "transfers", Class::Passing, 48),
    row(Kind::Scratch, "scratch", Class::Passing, 52),
    row(Kind::Writes, "writes", Class::Passing, 10),
    row(Kind::Landing, "landing", Class::Apart, 0),
    row(Kind::Forwards, "forwards", Class::Passing, 12),
    row(Kind::Guests, "guests", Class::Passing, 24),
    row(Kind::Connections, "connections", Class::Standing, 28),
    row(Kind::Names, "names", Class::Standing, 4),
    row(Kind::Handshakes, "handshakes", Class::Standing, 8),
    row(Kind::Acl, "acl", Class::Standing, 8),
    row(Kind::Tracking, "tracking", Class::Standing, 24),
    row(Kind::Sessions, "sessions", Class::Standing, 16),
    row(Kind::SharedMemory, "shared_memory", Class::Standing, 24),
    row(Kind::HotKeys, "hot_keys", Class::Standing, 28),
    row(Kind::SlowLog, "slow_log", Class::Standing, 4),
];

impl Kind {
    /// How many there are.
    pub const COUNT: usize = Kind::SlowLog as usize + 1;

    /// All, in the order of their rows.
    pub const ALL: [Kind; Kind::COUNT] = {
        let mut all = [Kind::Small; Kind::COUNT];
        let mut at = 0;
        while at < Kind::COUNT {
            assert!(ROWS[at].kind as usize == at, "a row stands where its kind counts");
            all[at] = ROWS[at].kind;
            at += 1;
        }
        all
    };

    /// Its label in metrics and INFO.
    pub fn name(self) -> &'static str {
        ROWS[self as usize].name
    }

    /// The part that it belongs to.
    pub fn class(self) -> Class {
        ROWS[self as usize].class
    }

    /// Whether it is what a client needs to connect: a part is kept for these kinds alone.
    pub fn arrives(self) -> bool {
        matches!(self, Kind::Connections | Kind::Handshakes)
    }

    /// Its sub-limit in client buffers of that size. All of it comes from `--memory`: raising that
    /// is the remedy of every refusal.
    pub fn share_of(self, limit_bytes: u64) -> u64 {
        let share = ROWS[self as usize].share;
        limit_bytes / 64 * share + limit_bytes % 64 * share / 64
    }
}
