//! The value of a [`super::Status::Moved`]: the server of the cluster that has the key.
//!
//! ```text
//!  "TERM FIRST LAST HOST:PORT"    slots FIRST to LAST are there; "TERM FIRST LAST": not known
//! ```

/// The answer of a server for a key that it does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved<'a> {
    /// The term of the configuration it comes from: a lower one is older.
    pub term: u64,
    /// The first slot of the key's shard.
    pub first: u16,
    /// The last slot of the key's shard.
    pub last: u16,
    /// HOST:PORT of the native port; `None`: no node serves the shard now, or its node has no
    /// native port.
    pub address: Option<&'a str>,
}

/// Slots of a cluster.
const SLOT_COUNT: u16 = 16_384;

impl<'a> Moved<'a> {
    /// Parses a reply's value; none: it has another format.
    pub fn parse(value: &'a [u8]) -> Option<Moved<'a>> {
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let term = words.next()?.parse().ok()?;
        let (first, last) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let address = words.next();
        let is_good = first <= last && last < SLOT_COUNT && words.next().is_none();
        let is_named = address.is_none_or(|address| address.contains(':'));
        (is_good && is_named).then_some(Moved { term, first, last, address })
    }
}

impl std::fmt::Display for Moved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.term, self.first, self.last)?;
        self.address.map_or(Ok(()), |address| write!(f, " {address}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for address in [Some("10.0.0.7:7379"), Some("[::1]:7"), None] {
            let moved = Moved { term: 9, first: 3, last: 16_383, address };
            assert_eq!(Moved::parse(moved.to_string().as_bytes()), Some(moved));
        }
        for text in ["", "9", "9 3", "9 4 3", "9 0 16384", "9 0 1 host", "9 0 1 h:1 x", "x 0 1"] {
            assert_eq!(Moved::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Moved::parse(&[0xff; 9]), None);
    }
}
