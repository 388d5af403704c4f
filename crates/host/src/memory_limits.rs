//! The memory that this process may use: of the machine, and of its cgroups of either version.
//!
//! ```text
//!  /proc/meminfo ───── MemTotal, MemAvailable ──────────────────────────┐
//!  cgroup v2 ───────── memory.max, memory.current, memory.stat ─────────┼─▶ total, available
//!  cgroup v1 ───────── memory.limit_in_bytes, .usage_in_bytes, .stat ───┘
//! ```
//!
//! Every limit between the process's group and the root counts. File pages that a group does not
//! use count as available: the kernel reclaims them before it kills a process.

use std::path::{Path, PathBuf};

/// The fraction of all memory that is left to code, stacks, the kernel's buffers and other
/// processes.
const RESERVE_PART: u64 = 32;
/// The bytes left to them besides that.
const RESERVE_BYTES: u64 = 16 << 20;

/// A limit of cgroup v1 from here on is no limit: the kernel's largest number, minus a page.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// Memory of the machine, or of the tightest cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The machine's memory, or a cgroup's limit if that is less.
    pub total_bytes: u64,
    /// The part of it that is available now.
    pub available_bytes: u64,
}

impl MemoryLimits {
    /// Reads the limits. A file that cannot be read does not limit.
    pub fn detect() -> MemoryLimits {
        MemoryLimits::detect_under(Path::new("/"))
    }

    /// Reads the limits, with the machine's files under `root`.
    pub fn detect_under(root: &Path) -> MemoryLimits {
        let meminfo = read(&root.join("proc/meminfo"));
        let of_machine = |name| kib(&meminfo, name).unwrap_or(u64::MAX);
        let total_bytes = of_machine("MemTotal:");
        // Kernels before 3.14 do not report the available memory.
        let available_bytes = of_machine("MemAvailable:").min(total_bytes);
        let machine = MemoryLimits { total_bytes, available_bytes };
        let groups = groups(root).into_iter().filter_map(|group| group.limits());
        groups.fold(machine, |least, group| MemoryLimits {
            total_bytes: least.total_bytes.min(group.total_bytes),
            available_bytes: least.available_bytes.min(group.available_bytes),
        })
    }

    /// The maximum of `--memory`.
    pub fn memory_max_bytes(&self) -> u64 {
        memory_max_bytes(self.total_bytes)
    }

    /// The memory that may be used in addition to the memory in use.
    pub fn spare_bytes(&self) -> u64 {
        self.available_bytes.saturating_sub(reserve_bytes(self.total_bytes))
    }
}

/// The maximum of `--memory` on a machine with `total_bytes`.
pub fn memory_max_bytes(total_bytes: u64) -> u64 {
    total_bytes.saturating_sub(reserve_bytes(total_bytes))
}

fn reserve_bytes(total_bytes: u64) -> u64 {
    RESERVE_BYTES + total_bytes / RESERVE_PART
}

/// A cgroup's directory.
struct Group {
    path: PathBuf,
    files: &'static GroupFiles,
}

/// The file names of a cgroup version.
struct GroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// The field of `memory.stat` with file pages that are not in use.
    idle_files: &'static str,
}

const VERSION_1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    idle_files: "total_inactive_file ",
};
const VERSION_2: GroupFiles =
    GroupFiles { limit: "memory.max", usage: "memory.current", idle_files: "inactive_file " };

impl Group {
    fn limits(&self) -> Option<MemoryLimits> {
        let number = |name: &str| read(&self.path.join(name)).trim().parse::<u64>().ok();
        let total_bytes = number(self.files.limit).filter(|bytes| *bytes < NO_LIMIT_BYTES)?;
        let stat = read(&self.path.join("memory.stat"));
        let idle_line = stat.lines().find_map(|line| line.strip_prefix(self.files.idle_files));
        let idle_bytes = idle_line.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let used_bytes = number(self.files.usage).unwrap_or(0).saturating_sub(idle_bytes);
        let available_bytes = total_bytes.saturating_sub(used_bytes);
        Some(MemoryLimits { total_bytes, available_bytes })
    }
}

/// The process's groups and their parents, of both versions.
fn groups(root: &Path) -> Vec<Group> {
    let text = read(&root.join("proc/self/cgroup"));
    let mount = root.join("sys/fs/cgroup");
    let above = |path: &str, mount: &Path, files: &'static GroupFiles| -> Vec<Group> {
        let paths = Path::new(path.trim_start_matches('/')).ancestors();
        paths.map(|group| Group { path: mount.join(group), files }).collect()
    };
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        match controllers {
            "" => Some(above(path, &mount, &VERSION_2)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(above(path, &mount.join("memory"), &VERSION_1))
            }
            _ => None,
        }
    };
    text.lines().filter_map(of_line).flatten().collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A line such as `MemTotal:     1234 kB`.
fn kib(meminfo: &str, name: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable: 8388608 kB\n");

    #[track_caller]
    fn check(files: &[(&str, &str)], want_mib: (u64, u64)) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = MemoryLimits::detect_under(root.path());
        assert_eq!((found.total_bytes >> 20, found.available_bytes >> 20), want_mib);
    }

    #[test]
    fn without_a_cgroup_the_machine_is_the_limit() {
        check(&[MEMINFO], (16 << 10, 8 << 10));
        check(&[], (u64::MAX >> 20, u64::MAX >> 20));
    }

    #[test]
    fn the_tightest_group_of_version_2_on_the_way_to_the_root_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/kube/pod\n"),
            ("sys/fs/cgroup/kube/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/kube/memory.current", "536870912\n"),
            ("sys/fs/cgroup/kube/memory.stat", "anon 1\ninactive_file 104857600\n"),
            ("sys/fs/cgroup/kube/pod/memory.max", "max\n"),
        ];
        check(&files, (1024, 612));
    }

    #[test]
    fn a_group_of_version_1_is_found_among_others_and_its_largest_number_is_no_limit() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "268435456\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "134217728\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.stat", "total_inactive_file 67108864\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        check(&files, (256, 192));
    }

    #[test]
    fn a_reserve_is_left_to_code_and_kernel() {
        let limits = MemoryLimits { total_bytes: 1 << 30, available_bytes: 100 << 20 };
        assert_eq!(limits.memory_max_bytes() >> 20, 1024 - 32 - 16);
        assert_eq!(limits.spare_bytes() >> 20, 100 - 32 - 16);
        let none = MemoryLimits { total_bytes: 1 << 20, available_bytes: 0 };
        assert_eq!((none.memory_max_bytes(), none.spare_bytes()), (0, 0));
    }
}
