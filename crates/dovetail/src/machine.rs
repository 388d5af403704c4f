//! The resources this process may use: cores by affinity and cgroup quota, memory by machine and
//! cgroup.
//!
//! ```text
//!  sched_getaffinity ──┐
//!  cgroup cpu.max ─────┴─▶ core_count        /proc/meminfo ─────┐
//!                                            cgroup memory.max ─┴─▶ memory_bytes
//! ```
//!
//! Every limit between the process's cgroup and the root counts; core quotas are read from cgroup
//! v2 only.

use std::path::{Path, PathBuf};

use server::MemoryLimits;

/// The limits of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cores that the affinity mask and the quota allow, at least 1.
    pub core_count: usize,
    /// The machine's memory, or the cgroup's limit if that is less.
    pub memory_bytes: u64,
    /// Huge pages that the administrator has reserved, and those of them that are free.
    pub huge_pages: HugePages,
}

/// The kernel's pages larger than 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Reserved pages, used or not.
    pub reserved_count: u64,
    /// Those of them that are free.
    pub free_count: u64,
    /// Whether `madvise` gets transparent huge pages.
    pub transparent: bool,
}

const DEFAULT_MEMORY_MAX_BYTES: u64 = 1 << 30;
const DEFAULT_MEMORY_MIN_BYTES: u64 = 64 << 20;

impl Machine {
    /// Reads the limits. A limit that cannot be read does not count.
    pub fn detect() -> Machine {
        let affinity_count = match rustix::thread::sched_getaffinity(None) {
            Ok(set) => set.count() as usize,
            Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Machine::detect_under(Path::new("/"), affinity_count)
    }

    fn detect_under(root: &Path, affinity_count: usize) -> Machine {
        let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let groups = cgroup_directories(root);
        let quota_cores = groups.iter().filter_map(|group| quota_core_count(group)).min();
        let transparent =
            std::fs::read_to_string(root.join("sys/kernel/mm/transparent_hugepage/enabled"))
                .is_ok_and(|text| text.contains("[always]") || text.contains("[madvise]"));
        Machine {
            core_count: affinity_count.min(quota_cores.unwrap_or(usize::MAX)).max(1),
            memory_bytes: MemoryLimits::detect_under(root).total_bytes,
            huge_pages: HugePages {
                reserved_count: meminfo_value(&meminfo, "HugePages_Total").unwrap_or(0),
                free_count: meminfo_value(&meminfo, "HugePages_Free").unwrap_or(0),
                transparent,
            },
        }
    }

    /// The value of `--memory auto`: 1 GiB, or half of the memory if that is less.
    pub fn default_memory_bytes(&self) -> u64 {
        let half_bytes = (self.memory_bytes / 2) >> 20 << 20;
        half_bytes.clamp(DEFAULT_MEMORY_MIN_BYTES, DEFAULT_MEMORY_MAX_BYTES)
    }

    /// The value of `--threads auto`: all cores but one, which is left for clients, the kernel and
    /// the admin port.
    pub fn default_thread_count(&self) -> usize {
        (self.core_count - 1).max(1)
    }
}

/// The process's cgroup and its parents, deepest first.
fn cgroup_directories(root: &Path) -> Vec<PathBuf> {
    let mount = root.join("sys/fs/cgroup");
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    Path::new(path).ancestors().map(|group| mount.join(group)).collect()
}

/// Whole cores of `cpu.max`, at least 1; `None` without a quota.
fn quota_core_count(group: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota_us, period_us) = text.trim().split_once(' ')?;
    let (quota_us, period_us) = (quota_us.parse::<u64>().ok()?, period_us.parse::<u64>().ok()?);
    usize::try_from(quota_us.checked_div(period_us)?.max(1)).ok()
}

/// The first number after `name:`.
fn meminfo_value(meminfo: &str, name: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory laid out like the root of a machine.
    fn fake_root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree: 1 kB\nHugePages_Total:       8\n\
                           HugePages_Free:        5\nHugepagesize:       2048 kB\n";

    #[test]
    fn without_a_cgroup_the_machine_is_the_limit() {
        let root = fake_root(&[("proc/meminfo", MEMINFO)]);
        let machine = Machine::detect_under(root.path(), 8);
        assert_eq!((machine.core_count, machine.memory_bytes), (8, 16 << 30));
        assert_eq!(machine.default_memory_bytes(), 1 << 30);
        assert_eq!(machine.default_thread_count(), 7);
        let huge_pages = HugePages { reserved_count: 8, free_count: 5, transparent: false };
        assert_eq!(machine.huge_pages, huge_pages);
    }

    #[test]
    fn the_tightest_cgroup_on_the_way_to_the_root_counts() {
        let root = fake_root(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/kube/pod\n"),
            ("sys/fs/cgroup/kube/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/kube/pod/memory.max", "max\n"),
            ("sys/fs/cgroup/kube/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/kube/pod/cpu.max", "250000 100000\n"),
        ]);
        let machine = Machine::detect_under(root.path(), 8);
        assert_eq!((machine.core_count, machine.memory_bytes), (2, 1 << 30));
        assert_eq!(machine.default_memory_bytes(), 512 << 20);
        assert_eq!(machine.default_thread_count(), 1);
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let root = fake_root(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "104857600"),
            ("sys/fs/cgroup/cpu.max", "50000 100000"),
        ]);
        let machine = Machine::detect_under(root.path(), 2);
        assert_eq!((machine.core_count, machine.default_thread_count()), (1, 1));
        assert_eq!(machine.default_memory_bytes(), 64 << 20);
    }
}
