//! The memory of a process, as `/proc/PID/status` reports it, and the amount that a cap allows.

const MIB: u64 = 1 << 20;
/// The memory that a server may take beside its cap: program, stacks, allocator.
const BESIDE_THE_CAP_BYTES: u64 = 32 * MIB;

/// One reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `VmHWM`: the most that was ever resident, files of the program included.
    pub peak_bytes: u64,
    /// `RssAnon` and `RssShmem`: the process's own memory now.
    pub own_bytes: u64,
}

impl Memory {
    /// Reads the figures of a process; none once it has ended.
    pub fn of(pid: u32) -> Option<Memory> {
        parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }
}

/// Takes the figures out of a status file.
fn parse(status: &str) -> Option<Memory> {
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find(|line| line.starts_with(name))?;
        let words = line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace();
        let (number, unit) = words.clone().next().zip(words.last())?;
        (unit == "kB").then(|| number.parse::<u64>().ok())?.map(|kib| kib << 10)
    };
    let own_bytes = field("RssAnon")? + field("RssShmem")?;
    Some(Memory { peak_bytes: field("VmHWM")?, own_bytes })
}

/// Resets the peak to the present size; false if the kernel does not allow it.
pub fn forget_peak(pid: u32) -> bool {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok()
}

/// The most resident memory that a server with this cap may ever have.
pub fn allowed_bytes(cap_bytes: u64) -> u64 {
    cap_bytes + cap_bytes / 20 + BESIDE_THE_CAP_BYTES
}

/// Reads a size such as `64m`, `256MiB` or `1g`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|one: char| one.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err(format!("{text}: a number and m or g, such as 64m")),
    };
    let number: u64 = number.parse().map_err(|error| format!("{text}: {error}"))?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or(format!("{text}: no size"))
}

/// A size in MiB, rounded up.
pub fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tdovetail\nVmPeak:\t  900000 kB\nVmHWM:\t   70000 kB\n\
                          VmRSS:\t   60000 kB\nRssAnon:\t   50000 kB\nRssFile:\t    9000 kB\n\
                          RssShmem:\t    1000 kB\nThreads:\t4\n";

    #[test]
    fn a_status_file_is_read_by_the_names_of_its_fields() {
        let memory = parse(STATUS).unwrap();
        assert_eq!(memory, Memory { peak_bytes: 70_000 << 10, own_bytes: 51_000 << 10 });
    }

    #[test]
    fn a_status_file_without_a_field_or_its_unit_has_no_figures() {
        // A zombie has no memory.
        assert_eq!(parse("Name:\tdovetail\nState:\tZ (zombie)\n"), None);
        assert_eq!(parse(&STATUS.replace("VmHWM:\t   70000 kB", "VmHWM:\t   70000 MB")), None);
        assert_eq!(parse(&STATUS.replace("RssShmem", "RssOther")), None);
    }

    #[test]
    fn this_process_has_memory() {
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.own_bytes > 0 && memory.peak_bytes >= memory.own_bytes, "{memory:?}");
    }

    #[test]
    fn a_cap_allows_a_twentieth_and_32_mib_more() {
        assert_eq!(allowed_bytes(100 * MIB), 137 * MIB);
        assert_eq!(mib(allowed_bytes(64 * MIB)), 100);
        assert_eq!(mib(allowed_bytes(1 << 30)), 1108);
    }

    #[test]
    fn sizes_have_a_number_and_a_unit() {
        assert_eq!(parse_size("64m"), Ok(64 * MIB));
        assert_eq!(parse_size("256MiB"), Ok(256 * MIB));
        assert_eq!(parse_size("1g"), Ok(1 << 30));
        for bad in ["", "m", "64", "0m", "64k", "-1m", "99999999999999g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
