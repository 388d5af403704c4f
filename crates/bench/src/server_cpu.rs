//! CPU time of the server under load, when it runs on this host.
//!
//! It finds the server by its socket: `/proc/net/tcp` gives the inodes of the listening sockets on
//! the target's port, and the server is the process that holds one of them. Its run time is the sum
//! over its threads of the first number in `/proc/PID/task/*/schedstat`: nanoseconds on a CPU, in
//! user space and kernel alike. A thread that has ended counts no longer.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The processes of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerProcesses {
    pub(crate) pids: Vec<u32>,
}

impl ServerProcesses {
    /// The process named by the user.
    pub(crate) fn of_pid(pid: u32) -> ServerProcesses {
        ServerProcesses { pids: vec![pid] }
    }

    /// The processes on this host that listen on `server`; `None` when they are elsewhere or hidden
    /// from us.
    pub(crate) fn listening_on(server: SocketAddr) -> Option<ServerProcesses> {
        ServerProcesses::holding(&["/proc/net/tcp", "/proc/net/tcp6"], LISTENING, server)
    }

    /// The processes on this host that receive datagrams at `server`.
    pub(crate) fn receiving_at(server: SocketAddr) -> Option<ServerProcesses> {
        ServerProcesses::holding(&["/proc/net/udp", "/proc/net/udp6"], UNCONNECTED, server)
    }

    fn holding(tables: &[&str], state: &str, server: SocketAddr) -> Option<ServerProcesses> {
        let mut inodes = HashSet::new();
        for table in tables {
            let text = fs::read_to_string(table).unwrap_or_default();
            inodes.extend(inodes_at(&text, state, server));
        }
        let own_pid = std::process::id();
        let mut pids: Vec<u32> = numbered_entries(Path::new("/proc"))
            .filter(|(pid, path)| *pid != own_pid && holds_socket(path, &inodes))
            .map(|(pid, _)| pid)
            .collect();
        pids.sort_unstable();
        (!pids.is_empty()).then_some(ServerProcesses { pids })
    }

    /// Time on a CPU so far; `None` once a process is gone.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        self.pids.iter().map(|pid| process_cpu_ns(*pid)).sum()
    }
}

fn process_cpu_ns(pid: u32) -> Option<u64> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let mut sum = None;
    for (_, task) in numbered_entries(&tasks) {
        let Ok(text) = fs::read_to_string(task.join("schedstat")) else { continue };
        let run_ns: u64 = text.split_whitespace().next()?.parse().ok()?;
        sum = Some(sum.unwrap_or(0) + run_ns);
    }
    sum
}

/// Entries of a directory whose names are numbers.
fn numbered_entries(directory: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

fn holds_socket(process: &Path, inodes: &HashSet<u64>) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let Ok(target) = fs::read_link(descriptor.path()) else { return false };
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:["));
        let inode = inode.and_then(|text| text.strip_suffix(']')?.parse().ok());
        inode.is_some_and(|inode| inodes.contains(&inode))
    })
}

/// Socket states as written in the tables.
const LISTENING: &str = "0A";
const UNCONNECTED: &str = "07";

/// The inodes of sockets in `table` in this state on `server`'s port at its address or at any.
fn inodes_at(table: &str, wanted_state: &str, server: SocketAddr) -> Vec<u64> {
    let mut inodes = Vec::new();
    for row in table.lines().skip(1) {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let (Some(local), Some(state), Some(inode)) = (fields.get(1), fields.get(3), fields.get(9))
        else {
            continue;
        };
        let Some((address, port)) = local.split_once(':') else { continue };
        let is_port = u16::from_str_radix(port, 16) == Ok(server.port());
        let is_address = parse_address(address).is_some_and(|found| serves(found, server.ip()));
        if *state == wanted_state && is_port && is_address {
            inodes.extend(inode.parse::<u64>());
        }
    }
    inodes
}

fn serves(listening: IpAddr, asked: IpAddr) -> bool {
    listening.is_unspecified() || listening.to_canonical() == asked.to_canonical()
}

/// `/proc/net/tcp` writes addresses as hexadecimal words in the host's byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => word(text).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes))),
        32 => {
            let mut bytes = [0; 16];
            for (place, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(text.get(place * 8..place * 8 + 8)?)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1
   1: 00000000:2BCB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 102 1
   2: 0100007F:18EB 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 103 1
   3: 0200007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 104 1
";

    #[track_caller]
    fn check(server: &str, want: &[u64]) {
        assert_eq!(inodes_at(TABLE, LISTENING, server.parse().unwrap()), want, "{server}");
    }

    #[test]
    fn listeners_are_found_by_port_and_address() {
        check("127.0.0.1:6379", &[101]);
        check("127.0.0.2:6379", &[104]);
        check("127.0.0.1:11211", &[102]);
        check("[::ffff:127.0.0.1]:6379", &[101]);
        check("127.0.0.1:1", &[]);
    }

    #[test]
    fn sixth_version_addresses_are_read() {
        let text = "00000000000000000000000001000000";
        assert_eq!(parse_address(text), Some(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert_eq!(parse_address("xyz"), None);
    }

    /// Ends the process at the end of a test, also if that fails.
    struct Busy(std::process::Child);

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_running_process_uses_cpu_until_it_is_gone() {
        // Another process: threads of other tests begin and end in this one.
        let child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        let busy = Busy(child.unwrap());
        let processes = ServerProcesses::of_pid(busy.0.id());
        let before = processes.cpu_ns().unwrap();
        while processes.cpu_ns().unwrap() == before {
            std::thread::yield_now();
        }
        assert!(processes.cpu_ns().unwrap() > before);
        drop(busy);
        assert_eq!(processes.cpu_ns(), None);
    }
}
