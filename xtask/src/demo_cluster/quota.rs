//! A CPU quota of part of a core for each server, so that one machine can run servers that are
//! overloaded one by one. Uses cgroups v1 or v2, if this user may create them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The period: short, so that a server that has used up its part is not silent for long.
const PERIOD_US: u64 = 20_000;

/// A cgroup, which is removed when this is dropped.
#[derive(Debug)]
pub struct Quota {
    group: PathBuf,
}

impl Quota {
    /// A quota of this many hundredths of a core.
    pub fn make(name: &str, hundredths: u64) -> Result<Quota> {
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (root, is_first) = match first.is_dir() {
            true => (first, true),
            false => (Path::new("/sys/fs/cgroup"), false),
        };
        let quota = Quota { group: root.join(name) };
        std::fs::create_dir_all(&quota.group)
            .with_context(|| format!("cannot make {}", quota.group.display()))?;
        let quota_us = PERIOD_US * hundredths / 100;
        let write = |file: &str, text: String| {
            let path = quota.group.join(file);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if is_first {
            write("cpu.cfs_period_us", PERIOD_US.to_string())?;
            // The kernel takes no less than a millisecond.
            write("cpu.cfs_quota_us", quota_us.max(1000).to_string())?;
        } else {
            write("cpu.max", format!("{} {PERIOD_US}", quota_us.max(1000)))?;
        }
        Ok(quota)
    }

    /// Adds a process.
    pub fn take(&self, process: u32) -> Result<()> {
        Ok(std::fs::write(self.group.join("cgroup.procs"), process.to_string())?)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // This works once all its processes have ended.
        let _ = std::fs::remove_dir(&self.group);
    }
}
