//! System figures of this process: memory and CPU time for INFO and stats, from /proc; the wall
//! clock; random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use base::UnixMillis;

/// Memory and CPU time of this process; zero where /proc is not mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Resident memory now.
    pub resident_bytes: u64,
    /// The maximum of resident memory so far.
    pub resident_max_bytes: u64,
    /// User time of all threads.
    pub user_cpu_seconds: f64,
    /// System time of all threads.
    pub system_cpu_seconds: f64,
}

impl Usage {
    /// Reads /proc/self.
    pub fn now() -> Usage {
        let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
        let status = read("/proc/self/status");
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
        let [user, system] = cpu_ticks(&read("/proc/self/stat"));
        Usage {
            resident_bytes: status_bytes(&status, "VmRSS:"),
            resident_max_bytes: status_bytes(&status, "VmHWM:"),
            user_cpu_seconds: user as f64 / ticks_per_second,
            system_cpu_seconds: system as f64 / ticks_per_second,
        }
    }
}

/// The machine's memory; zero where /proc is not mounted.
pub fn machine_memory_bytes() -> u64 {
    status_bytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:")
}

/// A line such as `VmRSS:     1234 kB`.
fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// `utime` and `stime`, the 14th and 15th fields; the second may contain spaces and ends in `)`.
fn cpu_ticks(stat: &str) -> [u64; 2] {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|ticks| ticks.parse().ok()).unwrap_or(0);
    [next(), next()]
}

/// Wall-clock time.
pub fn unix_now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// 40 hexadecimal digits.
pub fn random_id() -> String {
    (0..3).map(|_| format!("{:016x}", random_u64())).collect::<String>()[..40].to_owned()
}

/// 64 bits from the standard library's random hash keys, which come from the kernel.
pub fn random_u64() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_an_odd_name() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 10 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_ticks(stat), [250, 50]);
        assert_eq!(cpu_ticks(""), [0, 0]);
    }

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::now();
        assert!(usage.resident_bytes > 0 && usage.resident_max_bytes >= usage.resident_bytes);
        assert_eq!(status_bytes("VmHWM:\t  12 kB\nVmRSS:\t 10 kB\n", "VmRSS:"), 10 << 10);
    }
}
