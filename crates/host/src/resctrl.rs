//! Allocation of last-level cache ways to some threads, through Linux's resctrl file system.
//!
//! ```text
//!  /sys/fs/resctrl/                       the root; an argument, so that tests bring their own
//!    info/L3/cbm_mask       fff           one bit a way, of each cache
//!    info/L3/min_cbm_bits   1
//!    schemata               L3:0=fff;1=fff          caches 0 and 1, all ways: the default group
//!    tasks                  every thread that is in no other group
//!    dovetail-4711/                       made here, removed at the end
//!      schemata             L3:0=03f;1=03f          six ways of each
//!      tasks                the threads of the memory-resident layer
//! ```
//!
//! The cache-resident threads stay in the default group, which has all ways; the memory-resident
//! threads share a part of them (uTPS §5.5.1 found that best). The part is taken from the low end,
//! because devices write through the highest ways (`shareable_bits`).
//!
//! # Invariants
//! I1: outside its own group the server writes only `tasks` of the root, to release threads.
//! I2: nothing is half-done: a failed step leaves the ways as they were and is reported in one
//!     line.
//!
//! # Limits
//! Caches that are split into code and data (`-o cdp`) are refused.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Ways of the last-level cache for the memory-resident threads; the others may use all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cat {
    /// As the tuner decides, if the machine can allocate its cache.
    Auto,
    /// As the tuner decides; the start fails if the machine cannot allocate its cache.
    On,
    /// All threads may use all ways.
    Off,
    /// So many; the start fails if the machine cannot allocate its cache.
    Ways(u32),
}

impl fmt::Display for Cat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cat::Auto => formatter.write_str("auto"),
            Cat::On => formatter.write_str("on"),
            Cat::Off => formatter.write_str("off"),
            Cat::Ways(count) => count.fmt(formatter),
        }
    }
}

/// The usual mount point.
pub const ROOT: &str = "/sys/fs/resctrl";

/// Why no cache ways can be allocated, and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResctrlError {
    /// No such file system.
    #[error(
        "{} is not mounted: mount it with `mount -t resctrl resctrl /sys/fs/resctrl`, which needs \
         a processor with cache allocation, or give --cat off",
        path.display()
    )]
    NotMounted {
        /// The root.
        path: PathBuf,
    },
    /// The file system cannot allocate a last-level cache.
    #[error(
        "this machine does not share out its last-level cache ({} is missing): give --cat off",
        path.display()
    )]
    NoCache {
        /// The missing file.
        path: PathBuf,
    },
    /// Code and data have separate caches.
    #[error("the cache is split into code and data: mount resctrl without `-o cdp`")]
    CodeAndData,
    /// The caller lacks the permission.
    #[error("{} cannot be written: run as root, or give --cat off", path.display())]
    Denied {
        /// The file to be written.
        path: PathBuf,
    },
    /// All classes of service are taken.
    #[error(
        "no group is left of {groups_max}: remove another with `rmdir {}/GROUP`, or give --cat off",
        root.display()
    )]
    NoGroupLeft {
        /// The number of groups that the CPU supports.
        groups_max: u32,
        /// The root.
        root: PathBuf,
    },
    /// That number of ways is not possible.
    #[error("{asked} ways are out of range: this machine gives {least} to {most}")]
    Ways {
        /// The requested number.
        asked: u32,
        /// The smallest part.
        least: u32,
        /// All ways.
        most: u32,
    },
    /// A file has unexpected text.
    #[error("{} says `{text}`, which is {wanted}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Its text, cut.
        text: String,
        /// The expected contents.
        wanted: &'static str,
    },
    /// The kernel refused, with a reason.
    #[error("{} was refused: {reason}", path.display())]
    Refused {
        /// The file to be written.
        path: PathBuf,
        /// The kernel's own text if there is one.
        reason: String,
    },
}

/// A group of threads with a part of the ways. Dropping it removes the group; its threads are then
/// in the default group again.
#[derive(Debug)]
pub struct CacheWays {
    root: PathBuf,
    group: PathBuf,
    /// All ways of a cache.
    mask: u64,
    least: u32,
    caches: Vec<u32>,
    ways: u32,
    /// The threads in the group.
    threads: Vec<i32>,
}

impl CacheWays {
    /// Makes the group `name`, with all ways and without threads.
    pub fn open(root: &Path, name: &str) -> Result<CacheWays, ResctrlError> {
        let schemata_path = root.join("schemata");
        if !schemata_path.exists() {
            return Err(ResctrlError::NotMounted { path: root.to_owned() });
        }
        let info = root.join("info/L3");
        if !info.is_dir() {
            let is_split = root.join("info/L3CODE").is_dir();
            let missing = ResctrlError::NoCache { path: info };
            return Err(if is_split { ResctrlError::CodeAndData } else { missing });
        }
        let mask = read_mask(&info.join("cbm_mask"))?;
        let least = read_number(&info.join("min_cbm_bits")).unwrap_or(1).max(1);
        let groups_max = read_number(&info.join("num_closids")).unwrap_or(0);
        let caches = read_caches(&schemata_path)?;
        let group = root.join(name);
        match fs::create_dir(&group) {
            Ok(()) => {}
            // It belongs to an earlier process with this id, which could not remove it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error()) => {
                return Err(ResctrlError::NoGroupLeft { groups_max, root: root.to_owned() });
            }
            Err(error) => return Err(refused(root, &group, &error)),
        }
        let root = root.to_owned();
        let mut ways = CacheWays { root, group, mask, least, caches, ways: 0, threads: Vec::new() };
        ways.set_ways(ways.ways_max())?;
        Ok(ways)
    }

    /// All ways of a cache.
    pub fn ways_max(&self) -> u32 {
        self.mask.count_ones()
    }

    /// The smallest part.
    pub fn ways_min(&self) -> u32 {
        self.least
    }

    /// The ways of the group.
    pub fn ways(&self) -> u32 {
        self.ways
    }

    /// Gives the group so many ways of each cache.
    pub fn set_ways(&mut self, ways: u32) -> Result<(), ResctrlError> {
        let (least, most) = (self.ways_min(), self.ways_max());
        if !(least..=most).contains(&ways) {
            return Err(ResctrlError::Ways { asked: ways, least, most });
        }
        if ways == self.ways {
            return Ok(());
        }
        let part = low_bits(self.mask, ways);
        let of_caches: Vec<String> =
            self.caches.iter().map(|cache| format!("{cache}={part:x}")).collect();
        let line = format!("L3:{}\n", of_caches.join(";"));
        write(&self.root, &self.group.join("schemata"), &line)?;
        self.ways = ways;
        Ok(())
    }

    /// Puts exactly these threads into the group; the others return to the default group.
    pub fn set_threads(&mut self, threads: &[i32]) -> Result<(), ResctrlError> {
        let group_tasks = self.group.join("tasks");
        for thread in threads.iter().filter(|thread| !self.threads.contains(thread)) {
            // One at a time: the kernel takes no lists.
            write(&self.root, &group_tasks, &format!("{thread}\n"))?;
        }
        let root_tasks = self.root.join("tasks");
        for thread in self.threads.iter().filter(|thread| !threads.contains(thread)) {
            write(&self.root, &root_tasks, &format!("{thread}\n"))?;
        }
        self.threads.clear();
        self.threads.extend_from_slice(threads);
        Ok(())
    }
}

impl Drop for CacheWays {
    fn drop(&mut self) {
        // The kernel removes its directories with their files; a fake one stays, and does no harm.
        let _ = fs::remove_dir(&self.group);
    }
}

/// The lowest `count` of the ways in `mask`, which are contiguous.
fn low_bits(mask: u64, count: u32) -> u64 {
    let first = mask.trailing_zeros();
    (((1_u128 << count) - 1) as u64) << first
}

/// A write is one `write(2)`, as resctrl requires.
fn write(root: &Path, path: &Path, text: &str) -> Result<(), ResctrlError> {
    use std::io::Write;
    let written = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| refused(root, path, &error))
}

fn refused(root: &Path, path: &Path, error: &io::Error) -> ResctrlError {
    let path = path.to_owned();
    let kind = error.kind();
    if kind == io::ErrorKind::PermissionDenied || kind == io::ErrorKind::ReadOnlyFilesystem {
        return ResctrlError::Denied { path };
    }
    let status = fs::read_to_string(root.join("info/last_cmd_status")).unwrap_or_default();
    let reason = match status.trim() {
        "" | "ok" => error.to_string(),
        words => words.to_owned(),
    };
    ResctrlError::Refused { path, reason }
}

fn read_mask(path: &Path) -> Result<u64, ResctrlError> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mask = u64::from_str_radix(text.trim(), 16).ok().filter(|mask| *mask != 0);
    mask.ok_or_else(|| unreadable(path, &text, "no mask of cache ways"))
}

fn read_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The ids in a line such as `    L3:0=fff;1=fff`.
fn read_caches(path: &Path) -> Result<Vec<u32>, ResctrlError> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("L3:"));
    let ids = line.map(|line| {
        line.split(';').map(|part| part.split('=').next()?.trim().parse().ok()).collect()
    });
    ids.flatten().ok_or_else(|| unreadable(path, &text, "no list of caches"))
}

fn unreadable(path: &Path, text: &str, wanted: &'static str) -> ResctrlError {
    let text = text.trim().chars().take(64).collect();
    ResctrlError::Unreadable { path: path.to_owned(), text, wanted }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
