//! What a command does with each of its keys, for COMMAND INFO and the rights of users.
//!
//! ```text
//!  RENAME source target ─▶ [TAKE REPLACE]      one use: the same for all keys
//! ```

/// What becomes of a key: a key specification without its place.
#[derive(Clone, Copy, Debug)]
pub struct KeyUse {
    /// A remark for COMMAND INFO.
    pub notes: Option<&'static str>,
    /// The flags of Redis: RO, RW, OW or RM, then access, insert, update, delete.
    pub flags: &'static [&'static str],
}

impl KeyUse {
    /// Returns its value.
    pub const READ: KeyUse = KeyUse::with(&["RO", "access"]);
    /// Looks at it without returning its value.
    pub const LOOK: KeyUse = KeyUse::with(&["RO"]);
    /// Returns and changes its value.
    pub const CHANGE: KeyUse = KeyUse::with(&["RW", "access", "update"]);
    /// Returns its value and removes it.
    pub const TAKE: KeyUse = KeyUse::with(&["RW", "access", "delete"]);
    /// Writes it where it is absent.
    pub const INSERT: KeyUse = KeyUse::with(&["OW", "insert"]);
    /// Overwrites it.
    pub const REPLACE: KeyUse = KeyUse::with(&["OW", "update"]);
    /// Removes it.
    pub const REMOVE: KeyUse = KeyUse::with(&["RM", "delete"]);
    /// Changes it without returning its value.
    pub const ALTER: KeyUse = KeyUse::with(&["RW", "update"]);
    /// Adds to its value.
    pub const EXTEND: KeyUse = KeyUse::with(&["RW", "insert"]);
    /// SET's, by its options.
    pub const SET: KeyUse = KeyUse {
        notes: Some("RW and ACCESS due to the optional `GET` argument"),
        flags: &["RW", "access", "update", "variable_flags"],
    };
    /// GETEX's, by its options.
    pub const GETEX: KeyUse = KeyUse {
        notes: Some("RW and UPDATE because it changes the TTL"),
        flags: KeyUse::CHANGE.flags,
    };
    /// BITFIELD's, by its actions.
    pub const FIELDS: KeyUse = KeyUse {
        notes: Some("This command allows both access and modification of the key"),
        flags: KeyUse::SET.flags,
    };
    /// DELEX's, by its options.
    pub const DROP: KeyUse = KeyUse::with(&["RW", "delete", "variable_flags"]);

    const fn with(flags: &'static [&'static str]) -> KeyUse {
        KeyUse { notes: None, flags }
    }
}
