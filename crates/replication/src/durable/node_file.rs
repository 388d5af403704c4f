//! The file `NODE` of a data directory: the node and the cluster it belongs to, and the state that
//! the node keeps beside its log ([`Kept`]).
//!
//! ```text
//!  bytes ─▶ NODE.new ─ sync ─▶ rename to NODE ─▶ sync of the directory
//! ```
//!
//! # Invariants
//! I1: NODE is written before the log exists, so a log without NODE belongs to a server without a
//!     cluster.
//! I2: a lost or damaged log is no longer the node's. Before anything is written to a new log, NODE
//!     records the incarnation that began it, so no incarnation takes the new log for the data of
//!     earlier incarnations.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use cluster::message::Recovered;
use host::small_file;
use store::medium::open_regular;

use super::{Kept, Owner};

const NODE_FILE: &str = "NODE";
const NEW_FILE: &str = "NODE.new";
/// The name under which a damaged log is kept for inspection.
const DAMAGED_FILE: &str = "log.damaged";
/// The superblocks of a log are in its first bytes.
const SUPERBLOCKS_BYTES: u64 = 8192;

/// The node for which a directory is opened.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The ids of the node and its cluster.
    pub owner: Owner,
    /// The minimum of its incarnation.
    pub incarnation_min: u32,
}

/// A directory of a node, opened.
pub struct Tenancy {
    /// The state in the file, with the new incarnation.
    pub kept: Kept,
    /// The data that earlier incarnations have left.
    pub recovered: Recovered,
    directory: PathBuf,
}

impl Tenancy {
    /// Begins a new incarnation in a locked directory, before its log is opened.
    pub fn begin(directory: &Path, tenant: &Tenant) -> Result<Tenancy, String> {
        let has_log = has_log(directory)?;
        let incarnation_min = tenant.incarnation_min;
        let new = |incarnation| Kept::of(tenant.owner.clone(), incarnation);
        let (kept, recovered) = match read(directory)? {
            None if has_log => {
                return Err("its log is of a server without a cluster, or its file NODE is lost; \
                            give another directory"
                    .to_owned());
            }
            None => (new(incarnation_min), Recovered::Nothing),
            Some(mut kept) => {
                let (since, incarnation) = (kept.since, kept.incarnation);
                refuse_others(&kept.owner, &tenant.owner)?;
                let next =
                    incarnation.checked_add(1).ok_or("its node has no further incarnations")?;
                kept.incarnation = next.max(incarnation_min);
                match has_log {
                    true => (kept, Recovered::Whole { since, incarnation }),
                    false => (new(kept.incarnation), Recovered::Nothing),
                }
            }
        };
        let tenancy = Tenancy { kept, recovered, directory: directory.to_owned() };
        tenancy.write().map_err(|error| format!("{NODE_FILE}: {error}"))?;
        Ok(tenancy)
    }

    /// Sets aside a log that cannot be relied on; this incarnation begins another one (I2).
    pub fn begin_anew(&mut self, log: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("{DAMAGED_FILE}: {error}");
        fs::rename(log, self.directory.join(DAMAGED_FILE)).map_err(failed)?;
        sync_directory(&self.directory).map_err(failed)?;
        self.kept = Kept::of(self.kept.owner.clone(), self.kept.incarnation);
        self.recovered = Recovered::Nothing;
        self.write().map_err(|error| format!("{NODE_FILE}: {error}"))
    }

    fn write(&self) -> io::Result<()> {
        write(&self.directory, &self.kept.encode())
    }

    /// Writes the node's state from now on; unchanged state is not written again.
    pub fn keeper(&self) -> impl FnMut(&[u8]) -> io::Result<()> + Send + 'static {
        let (directory, mut last) = (self.directory.clone(), Vec::new());
        move |bytes: &[u8]| {
            if last != bytes {
                write(&directory, bytes)?;
                last = bytes.to_vec();
            }
            Ok(())
        }
    }
}

/// The state in a directory's file; none: it does not belong to a node.
pub fn read(directory: &Path) -> Result<Option<Kept>, String> {
    match small_file::read(&directory.join(NODE_FILE), small_file::USERS_MAX_BYTES) {
        Ok(bytes) => match Kept::decode(&bytes) {
            Some(kept) => Ok(Some(kept)),
            None => {
                Err("its file NODE is damaged; give another directory: the node then gets its \
                         copies from the others"
                    .to_owned())
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{NODE_FILE}: {error}")),
    }
}

/// Two nodes never share a directory, nor does a node use one of another cluster.
fn refuse_others(has: &Owner, asked: &Owner) -> Result<(), String> {
    if (has.name, has.mark) == (asked.name, asked.mark) {
        return Ok(());
    }
    Err(format!("it is of {has}, and this is {asked}; give that node's directory, or a new one"))
}

/// Whether a log was ever begun.
pub(super) fn has_log(directory: &Path) -> Result<bool, String> {
    let log = directory.join(super::directory::LOG_FILE);
    let file = match open_regular(&log, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(format!("log: {error}")),
    };
    let mut bytes = Vec::new();
    file.take(SUPERBLOCKS_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("log: {error}"))?;
    Ok(bytes.iter().any(|byte| *byte != 0))
}

fn write(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = directory.join(NEW_FILE);
    let mut file = host::private::create_file(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, directory.join(NODE_FILE))?;
    sync_directory(directory)
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: u16, mark: u64, incarnation_min: u32) -> Tenant {
        Tenant { owner: Owner { name, mark, cluster: "c".to_owned() }, incarnation_min }
    }

    #[test]
    fn lives_grow_and_what_was_lost_is_not_taken_for_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (path, log) = (directory.path(), directory.path().join("log"));
        let first = Tenancy::begin(path, &tenant(1, 2, 10)).unwrap();
        assert_eq!((first.kept.incarnation, &first.recovered), (10, &Recovered::Nothing));
        fs::write(&log, [1; 9000]).unwrap();
        let second = Tenancy::begin(path, &tenant(1, 2, 5)).unwrap();
        assert_eq!(second.kept.incarnation, 11);
        assert_eq!(second.recovered, Recovered::Whole { since: 10, incarnation: 10 });
        let mut third = Tenancy::begin(path, &tenant(1, 2, 20)).unwrap();
        assert_eq!(third.recovered, Recovered::Whole { since: 10, incarnation: 11 });
        third.begin_anew(&log).unwrap();
        assert_eq!((third.kept.incarnation, &third.recovered), (20, &Recovered::Nothing));
        let fourth = Tenancy::begin(path, &tenant(1, 2, 20)).unwrap();
        assert_eq!((fourth.kept.incarnation, &fourth.recovered), (21, &Recovered::Nothing));
        fs::write(&log, [1; 9000]).unwrap();
        let fifth = Tenancy::begin(path, &tenant(1, 2, 20)).unwrap();
        assert_eq!(fifth.recovered, Recovered::Whole { since: 21, incarnation: 21 });
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        Tenancy::begin(path, &tenant(1, 2, 10)).unwrap();
        for other in [tenant(2, 2, 10), tenant(1, 3, 10)] {
            let line = Tenancy::begin(path, &other).err().unwrap();
            assert!(line.contains("it is of node 1 of the cluster c"), "{line}");
        }
        fs::write(path.join(NODE_FILE), b"nothing").unwrap();
        let line = Tenancy::begin(path, &tenant(1, 2, 10)).err().unwrap();
        assert!(line.contains("damaged"), "{line}");
        fs::remove_file(path.join(NODE_FILE)).unwrap();
        fs::write(path.join("log"), [1; 9000]).unwrap();
        let line = Tenancy::begin(path, &tenant(1, 2, 10)).err().unwrap();
        assert!(line.contains("without a cluster"), "{line}");
    }
}
