//! CPU time by the role of threads, as the kernel counts it.
//!
//! ```text
//!  /proc/self/task/*/{comm,schedstat} ─▶ worker-3, worker-4 ─▶ worker
//!                                        control            ─▶ control     (digests what landed,
//!                                        digest-0           ─▶ digest       or these do)
//!                                        all else           ─▶ other
//! ```

use std::collections::BTreeMap;
use std::path::Path;

/// Seconds by role; empty where /proc is not mounted.
pub type CpuSeconds = BTreeMap<&'static str, f64>;

/// The CPU time of the live threads.
pub fn cpu_seconds() -> CpuSeconds {
    let mut seconds = CpuSeconds::new();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for task in tasks {
        if let Some((role, ns)) = of_task(&task.path()) {
            *seconds.entry(role).or_default() += ns as f64 / 1e9;
        }
    }
    seconds
}

fn of_task(task: &Path) -> Option<(&'static str, u64)> {
    let name = std::fs::read_to_string(task.join("comm")).ok()?;
    let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
    Some((role_of(name.trim()), times.split(' ').next()?.parse().ok()?))
}

/// One thread of this process, as the kernel reports it.
pub struct Thread {
    /// The kernel's id.
    pub id: i32,
    /// The name it was given.
    pub name: String,
    /// Running (R), sleeping (S), or waiting for a disk (D).
    pub state: char,
    /// CPU time since its start.
    pub cpu_ms: u64,
}

/// The live threads; empty where /proc is not mounted.
pub fn threads() -> Vec<Thread> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| thread_at(&task.path())).collect()
}

fn thread_at(task: &Path) -> Option<Thread> {
    let read = |name| std::fs::read_to_string(task.join(name)).ok();
    let ns: u64 = read("schedstat")?.split(' ').next()?.parse().ok()?;
    Some(Thread {
        id: task.file_name()?.to_str()?.parse().ok()?,
        name: read("comm")?.trim().to_owned(),
        // After the name, which may contain anything.
        state: read("stat")?.rsplit_once(") ")?.1.chars().next()?,
        cpu_ms: ns / 1_000_000,
    })
}

fn role_of(name: &str) -> &'static str {
    match name {
        "control" => "control",
        _ if name.starts_with("worker-") => "worker",
        _ if name.starts_with("digest-") => "digest",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_for_their_role() {
        assert_eq!(role_of("worker-12"), "worker");
        assert_eq!(role_of("control"), "control");
        assert_eq!(role_of("digest-0"), "digest");
        assert_eq!(role_of("dovetail-links"), "other");
        assert!(cpu_seconds().contains_key("other"), "this test's own thread");
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let found = threads().into_iter().find(|thread| thread.id == own);
        assert_eq!(found.map(|thread| thread.state), Some('R'), "it runs");
    }
}
