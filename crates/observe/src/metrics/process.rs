//! The kernel's figures on this process: resident memory and CPU time.

/// Resident memory and CPU time of this process; zero where /proc is not mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The resident set, including shared pages.
    pub resident_bytes: u64,
    /// User and system time of all threads.
    pub cpu_ms: u64,
}

impl Usage {
    /// Reads /proc/self.
    pub fn now() -> Usage {
        let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
        let page_bytes = rustix::param::page_size() as u64;
        let tick_ms = 1000 / rustix::param::clock_ticks_per_second().max(1);
        Usage {
            resident_bytes: resident_pages(&read("/proc/self/statm")) * page_bytes,
            cpu_ms: cpu_ticks(&read("/proc/self/stat")) * tick_ms,
        }
    }
}

/// The second number of `statm`.
fn resident_pages(statm: &str) -> u64 {
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// `utime` and `stime`, the 14th and 15th fields; the second may contain spaces and ends in `)`.
fn cpu_ticks(stat: &str) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 10 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_ticks(stat), 300);
        assert_eq!(cpu_ticks(""), 0);
    }

    #[test]
    fn the_resident_set_is_the_second_number() {
        assert_eq!(resident_pages("100 42 7 1 0 30 0\n"), 42);
        assert!(Usage::now().resident_bytes > 0);
    }
}
