//! The bytes of a member's file: a head, and one record for each batch of changes
//! (docs/formats/quorum.md).
//!
//! ```text
//!  | DVTQ | format | crc | len | !len | identity |  | crc | len | !len | changes | ...
//!     4       4       4     4      4                   4     4      4
//! ```
//!
//! # Invariants
//! J1: a record counts whole or not at all. A file that ends within a record was cut by a crash
//!     before the record was synced, so nothing that was promised is missing.
//! J2: a record that is damaged with others behind it is an error: something promised may be
//!     missing, and this member must not answer by what is left.

use crc_fast::{CrcAlgorithm, checksum};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::log::{Change, State};

const MAGIC: [u8; 4] = *b"DVTQ";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 8;
const RECORD_HEAD_BYTES: usize = 12;

/// The longest record; a member writes far shorter ones (M4 of `member`).
const RECORD_BYTES_MAX: usize = 512 << 20;

/// The member that a journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The cluster's name.
    pub(crate) name: String,
    /// All members' addresses, in their order.
    pub(crate) members: Vec<String>,
    /// The index of its member in this list.
    pub(crate) own: usize,
}

/// The reason why a file is not the journal of this member.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Not such a file.
    #[error("this is no config store of a cluster's server: give another --cluster-dir")]
    Foreign,
    /// Of another release.
    #[error(
        "the config store has format {found}, this release reads {FORMAT}: start the release that \
         wrote it"
    )]
    Format {
        /// The format found.
        found: u32,
    },
    /// Damaged in its middle (J2).
    #[error(
        "the config store is damaged at byte {at_bytes}: remove its folder, and this server takes \
         the others' copy once all of them are there"
    )]
    Damaged {
        /// The offset of the record.
        at_bytes: usize,
    },
    /// Of another cluster or member.
    #[error(
        "the config store in this folder is of {found}, this server is {wanted}: give another \
         --cluster-dir"
    )]
    Other {
        /// The identity in the file.
        found: String,
        /// The identity of this server.
        wanted: String,
    },
}

/// What a file holds.
#[derive(Debug)]
pub struct Recovered {
    pub(crate) state: State,
    /// The length of its whole records; the file is cut to it.
    pub whole_bytes: usize,
}

impl Identity {
    fn spelled(&self) -> String {
        let own = self.members.get(self.own).map_or("?", String::as_str);
        format!("member {own} of cluster {} ({})", self.name, self.members.join(","))
    }
}

/// The first bytes of a file.
pub(crate) fn head(identity: &Identity) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    append(identity, &mut bytes);
    bytes
}

/// Appends a record of changes.
pub(crate) fn record(changes: &[Change], out: &mut Vec<u8>) {
    append(changes, out);
}

fn append<T: Serialize + ?Sized>(what: &T, out: &mut Vec<u8>) {
    // Only numbers, bytes, lists and enums, which postcard can always represent.
    let content = postcard::to_stdvec(what).unwrap_or_default();
    out.extend(crc(&content).to_le_bytes());
    let len_bytes = content.len() as u32;
    out.extend(len_bytes.to_le_bytes());
    out.extend((!len_bytes).to_le_bytes());
    out.extend(content);
}

/// Reads a file of this member.
///
/// # Errors
/// If it is another's, of another format, or damaged (J2).
pub(crate) fn read(bytes: &[u8], wanted: &Identity) -> Result<Recovered, JournalError> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(JournalError::Foreign)?;
    if head[..4] != MAGIC {
        return Err(JournalError::Foreign);
    }
    let format = head[4..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if format != FORMAT {
        return Err(JournalError::Format { found: format });
    }
    let mut at_bytes = HEAD_BYTES;
    let damaged = |at_bytes| JournalError::Damaged { at_bytes };
    let (content, mut rest) = match next(rest) {
        Next::Record(content, rest) => (content, rest),
        _ => return Err(damaged(at_bytes)),
    };
    let found: Identity = postcard::from_bytes(content).map_err(|_| damaged(at_bytes))?;
    if found != *wanted {
        let (found, wanted) = (found.spelled(), wanted.spelled());
        return Err(JournalError::Other { found, wanted });
    }
    let mut state = State::default();
    loop {
        at_bytes = bytes.len() - rest.len();
        match next(rest) {
            Next::Record(content, behind) => {
                let changes: Vec<Change> =
                    postcard::from_bytes(content).map_err(|_| damaged(at_bytes))?;
                if !changes.into_iter().all(|change| state.change(change)) {
                    return Err(damaged(at_bytes));
                }
                rest = behind;
            }
            Next::Cut if state.is_sound() => {
                return Ok(Recovered { state, whole_bytes: at_bytes });
            }
            Next::Cut => return Err(damaged(at_bytes)),
            Next::Damaged => return Err(damaged(at_bytes)),
        }
    }
}

enum Next<'a> {
    Record(&'a [u8], &'a [u8]),
    /// The bytes end here, or within a record (J1).
    Cut,
    Damaged,
}

fn next(bytes: &[u8]) -> Next<'_> {
    let Some((head, rest)) = bytes.split_at_checked(RECORD_HEAD_BYTES) else { return Next::Cut };
    let word = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let (crc_found, len, len_inverse) = (word(0), word(4), word(8));
    let len_bytes = len as usize;
    // Some file systems extend a file before its bytes are there.
    let cut_if_zero = |from: usize| match bytes[from..].iter().all(|byte| *byte == 0) {
        true => Next::Cut,
        false => Next::Damaged,
    };
    if len != !len_inverse || len_bytes > RECORD_BYTES_MAX {
        return cut_if_zero(8);
    }
    let Some((content, behind)) = rest.split_at_checked(len_bytes) else { return Next::Cut };
    match crc(content) == crc_found {
        true => Next::Record(content, behind),
        false if behind.is_empty() => Next::Cut,
        false => cut_if_zero(RECORD_HEAD_BYTES + len_bytes),
    }
}

fn crc(content: &[u8]) -> u32 {
    // A 32-bit checksum has 32 bits.
    checksum(CrcAlgorithm::Crc32Iscsi, content) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{self, Command, Entry, Origin, Snapshot};
    use cluster::config_store::{Ask, Request};
    use omnipaxos::storage::Snapshot as _;

    fn identity() -> Identity {
        let members = vec!["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()];
        Identity { name: "test".to_owned(), members, own: 1 }
    }

    fn entry(id: u64) -> Entry {
        let request = Request { session: None, id, ask: Ask::Open { timeout_ns: 1 } };
        let origin = Origin { member: 1, start: 2 };
        Entry::new(&Command { origin, ticket: id, change: command::Change::Request(request) })
    }

    /// A file of three records.
    fn file() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = head(&identity());
        record(&State::founded(vec![1, 2, 3]).changes(), &mut bytes);
        let mut ends = vec![bytes.len()];
        for id in 0..3 {
            record(&[Change::Append(vec![entry(id)]), Change::Decided(id as usize)], &mut bytes);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    #[test]
    fn a_file_that_is_cut_anywhere_has_its_whole_records() {
        let (bytes, ends) = file();
        for cut in ends[0]..=bytes.len() {
            let found = read(&bytes[..cut], &identity()).unwrap();
            let whole = ends.iter().copied().filter(|end| *end <= cut).max().unwrap();
            assert_eq!(found.whole_bytes, whole, "cut at {cut}");
        }
        for cut in 0..ends[0] {
            read(&bytes[..cut], &identity()).unwrap_err();
        }
    }

    #[test]
    fn a_file_that_ends_in_zeros_has_its_whole_records() {
        let (mut bytes, ends) = file();
        bytes.truncate(ends[2]);
        bytes.extend([0; 100]);
        assert_eq!(read(&bytes, &identity()).unwrap().whole_bytes, ends[2]);
    }

    #[test]
    fn a_changed_byte_is_seen() {
        let (bytes, ends) = file();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            match read(&changed, &identity()) {
                // The last record looks as if a crash had cut it.
                Ok(found) => assert!(at >= ends[2] && found.whole_bytes == ends[2], "byte {at}"),
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
        }
    }

    #[test]
    fn the_file_of_another_is_refused_with_both_names() {
        let (bytes, _) = file();
        let error = read(&bytes, &Identity { own: 2, ..identity() }).unwrap_err().to_string();
        assert_eq!(
            error,
            "the config store in this folder is of member b:1 of cluster test (a:1,b:1,c:1), this \
             server is member c:1 of cluster test (a:1,b:1,c:1): give another --cluster-dir"
        );
    }

    #[test]
    fn a_whole_state_is_read_back() {
        let mut state = State::founded(vec![1, 2, 3]);
        let entries: Vec<Entry> = (0..9).map(entry).collect();
        let placed: Vec<Entry> = (0..4).map(|at| entries[at].at(at)).collect();
        for change in [
            Change::Append(entries),
            Change::Decided(5),
            Change::Trim(4),
            Change::Compacted(4),
            Change::Snapshot(Some(Snapshot::create(&placed))),
            Change::Promise(Default::default()),
            Change::Replace(6, vec![entry(20)]),
        ] {
            assert!(state.change(change.clone()), "{change:?}");
        }
        let mut bytes = head(&identity());
        record(&state.changes(), &mut bytes);
        assert_eq!(read(&bytes, &identity()).unwrap().state, state);
        assert!(!state.change(Change::Replace(3, Vec::new())), "below the snapshot");
        assert!(!state.change(Change::Replace(8, Vec::new())), "behind the end");
        record(&[Change::Decided(8)], &mut bytes);
        read(&bytes, &identity()).unwrap_err();
    }
}
