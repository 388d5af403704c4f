//! How a server runs a command, as far as its row decides it.

/// A set of properties that are not flags of Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handling(u8);

#[expect(non_upper_case_globals, reason = "the words of the table's rows")]
impl Handling {
    /// None of them: it runs by itself, after all commands before it on its connection.
    pub const ALONE: Handling = Handling(0);
    /// Is one request on one key if it names one: it may be executed by the key's owner, beside
    /// others of its connection (K10).
    pub const One: Handling = Handling(1);
    /// Is more than one write of one key if it names several: one group in a cluster.
    pub const Several: Handling = Handling(1 << 1);
    /// Reads or copies the whole value of its first key.
    pub const Value: Handling = Handling(1 << 2);
    /// Names no key, and has a reply whose length is known only when it is made. Such commands only
    /// read, but for the options of `ACL LOG` and DEBUG.
    pub const Measured: Handling = Handling(1 << 3);
    /// Looks at the whole keyspace: it cannot run under the locks of some keys (I1).
    pub const Keyspace: Handling = Handling(1 << 4);
    /// Has a reply with the values of its keys, or parts of them; SET only with the option GET.
    pub const Tells: Handling = Handling(1 << 5);

    /// Names no key, and has a reply of a few words and numbers, besides what it repeats of the
    /// command. A command without keys is this or [`Handling::Measured`].
    pub const Short: Handling = Handling(1 << 6);

    /// The union.
    pub const fn with(self, other: Handling) -> Handling {
        Handling(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    pub const fn contains(self, other: Handling) -> bool {
        self.0 & other.0 == other.0
    }
}
