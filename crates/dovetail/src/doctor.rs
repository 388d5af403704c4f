//! `dovetail doctor`: compares this machine with the settings and says how to fix what does not
//! fit.
//!
//! ```text
//!  ok    cores          2 allowed, 1 worker
//!  warn  huge pages     transparent huge pages are off: echo madvise > /sys/kernel/mm/...
//!  bad   memory         64GiB of 16GiB: ... give --memory at most 15856MiB
//! ```
//!
//! `--quick` only asks the running server: the health check of a container.
//!
//! Exit status 0 unless a check says `bad`. Each check is a pure function of the values read from
//! the machine, so its test runs on any machine.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use base::ByteSize;
use clap::{Arg, ArgAction, ArgMatches, Command};
use rustix::process::{Resource, getrlimit};
use server::{Config, HugePages, memory_max_bytes};

use crate::failure::{Failure, print};
use crate::flags;
use crate::http::AdminPort;
use crate::machine::{self, Machine};
use crate::settings::ServeSettings;

/// Descriptors that the process needs besides its connections.
const OTHER_FILES: u64 = 64;

const HUGE_PAGE_BYTES: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Ok,
    Warn,
    Bad,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        }
    }
}

/// The result of one check.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub name: &'static str,
    pub verdict: Verdict,
    /// The value found and, unless it is fine, how to fix it.
    pub text: String,
}

/// The subcommand.
pub fn command() -> Command {
    flags::with_settings(Command::new("doctor"))
        .about("Check this machine against the settings; exit status 1 if something is bad")
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print an array of {name, verdict, text}"),
        )
        .arg(
            Arg::new("quick")
                .long("quick")
                .action(ArgAction::SetTrue)
                .conflicts_with("json")
                .help("Only check whether the running server is ready, at its admin port"),
        )
}

/// Runs all checks and prints the results.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let machine = Machine::detect();
    let gathered = flags::gather(matches, &machine)?;
    let settings = ServeSettings::new(&gathered.settings, gathered.config_file, &machine)?;
    if matches.get_flag("quick") {
        return ask_whether_ready(&settings.config);
    }
    let findings = examine(&settings.config, &machine);
    if matches.get_flag("json") {
        print(&format!("{}\n", json(&findings)))?;
    } else {
        print(&table(&findings))?;
    }
    match findings.iter().map(|finding| finding.verdict).max() {
        Some(Verdict::Bad) => Err(Failure::Silent(1)),
        _ => Ok(()),
    }
}

/// The health check of a container without curl.
fn ask_whether_ready(config: &Config) -> Result<(), Failure> {
    let Some(mut address) = config.admin else {
        let text = "doctor: --quick asks the admin port, and --admin is off";
        return Err(Failure::Usage(text.to_owned()));
    };
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let tls = config.tls.as_ref().filter(|_| config.admin_access.is_tls);
    let tls = tls.map(|tls| tls.certificate.clone());
    match (AdminPort { address, tls, login: None }).get("/readyz") {
        Ok(_) => print("ready\n"),
        Err(reason) => Err(Failure::Runtime(format!("doctor: {address} is not ready: {reason}"))),
    }
}

fn examine(config: &Config, machine: &Machine) -> Vec<Finding> {
    let mut findings = check_machine(config, machine);
    // The server itself checks these at its start.
    let ports = [("resp", config.resp), ("memcached", config.memcached), ("admin", config.admin)];
    for (name, address) in ports {
        findings.extend(address.map(|address| port(name, address)));
    }
    findings.extend(config.native.map(native_port));
    findings
}

/// Compares the machine with the settings, and changes neither: `serve` refuses to start on `bad`.
pub fn check_machine(config: &Config, machine: &Machine) -> Vec<Finding> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut findings = vec![
        cores(config.threads, machine.core_count),
        memory(config.memory_bytes, machine.memory_bytes),
        open_files(config.max_connections as u64, getrlimit(Resource::Nofile).maximum),
        huge_pages(config.huge_pages, config.memory_bytes, &machine.huge_pages),
        clock(read("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim()),
        backlog(read("/proc/sys/net/core/somaxconn").trim()),
        cache_ways(&config.resctrl_root),
    ];
    if config.native.is_some() {
        findings.push(socket_buffers(read("/proc/sys/net/core/rmem_max").trim()));
    }
    findings.extend(config.native_key_file.as_deref().map(key_file));
    findings
}

fn finding(name: &'static str, verdict: Verdict, text: String) -> Finding {
    Finding { name, verdict, text }
}

fn cores(thread_count: usize, core_count: usize) -> Finding {
    let found = format!("{core_count} allowed, {thread_count} workers");
    if thread_count > core_count {
        let text = format!("{found}: workers share cores; lower --threads or use --poll block");
        return finding("cores", Verdict::Warn, text);
    }
    finding("cores", Verdict::Ok, found)
}

fn memory(wanted_bytes: u64, machine_bytes: u64) -> Finding {
    let spelled = |bytes: u64| ByteSize { bytes: bytes >> 20 << 20 };
    let found = format!("{} of {}", spelled(wanted_bytes), spelled(machine_bytes));
    let most_bytes = memory_max_bytes(machine_bytes);
    if wanted_bytes > most_bytes {
        let most = spelled(most_bytes);
        let text =
            format!("{found}: the kernel would end the process; give --memory at most {most}");
        return finding("memory", Verdict::Bad, text);
    }
    // An eighth is left for code, stacks, the kernel's socket buffers and other processes.
    if wanted_bytes > machine_bytes / 8 * 7 {
        let text = format!("{found}: socket buffers come on top; leave an eighth");
        return finding("memory", Verdict::Warn, text);
    }
    finding("memory", Verdict::Ok, found)
}

/// `limit` is the hard limit, up to which the server may raise its own.
fn open_files(connections_max: u64, limit: Option<u64>) -> Finding {
    let needed = connections_max + OTHER_FILES;
    match limit {
        // The server starts with fewer connections and says so.
        Some(limit) if limit < needed => finding(
            "open files",
            Verdict::Warn,
            format!(
                "{limit}, and {connections_max} connections need {needed}: raise LimitNOFILE or \
                 ulimit -Hn, or lower --max-connections"
            ),
        ),
        Some(limit) => finding("open files", Verdict::Ok, limit.to_string()),
        None => finding("open files", Verdict::Ok, "unlimited".to_owned()),
    }
}

fn huge_pages(wanted: HugePages, memory_bytes: u64, there: &machine::HugePages) -> Finding {
    let needed_count = memory_bytes.div_ceil(HUGE_PAGE_BYTES);
    let free_count = there.free_count;
    let (verdict, text) = match wanted {
        HugePages::Off => {
            (Verdict::Warn, "off by --huge-pages, which costs lookups up to 40 %".to_owned())
        }
        _ if free_count >= needed_count => {
            (Verdict::Ok, format!("reserved, {free_count} free of 2 MiB each"))
        }
        HugePages::Reserved => (
            Verdict::Bad,
            format!(
                "{free_count} reserved ones free, and --memory needs {needed_count}: \
                 sysctl vm.nr_hugepages={needed_count}, or --huge-pages auto"
            ),
        ),
        HugePages::Auto if there.transparent => (Verdict::Ok, "transparent, on request".to_owned()),
        HugePages::Auto => (
            Verdict::Warn,
            "off, which costs lookups up to 40 %: \
             echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
                .to_owned(),
        ),
    };
    finding("huge pages", verdict, text)
}

fn clock(source: &str) -> Finding {
    match source {
        "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page" => {
            finding("clock", Verdict::Ok, source.to_owned())
        }
        "" => finding("clock", Verdict::Warn, "unknown: /sys is not there".to_owned()),
        slow => finding("clock", Verdict::Warn, format!("{slow} needs a system call to be read")),
    }
}

fn backlog(somaxconn: &str) -> Finding {
    match somaxconn.parse::<u32>() {
        Ok(count) if count < 1024 => finding(
            "listen backlog",
            Verdict::Warn,
            format!("{count}: bursts of connections are dropped; sysctl net.core.somaxconn=4096"),
        ),
        Ok(count) => finding("listen backlog", Verdict::Ok, count.to_string()),
        Err(_) => {
            finding("listen backlog", Verdict::Warn, "unknown: /proc is not there".to_owned())
        }
    }
}

/// Ways of the cache help only with two layers, so that their absence is no fault.
fn cache_ways(root: &Path) -> Finding {
    let mask = std::fs::read_to_string(root.join("info/L3/cbm_mask")).unwrap_or_default();
    let ways = u64::from_str_radix(mask.trim(), 16).map_or(0, u64::count_ones);
    let text = match ways {
        0 => format!("not shared out ({}/info/L3 missing)", root.display()),
        _ => format!("{ways}, shared out by {}", root.display()),
    };
    finding("cache ways", Verdict::Ok, text)
}

fn port(name: &'static str, address: SocketAddr) -> Finding {
    bound(name, address, TcpListener::bind(address).map(drop))
}

fn native_port(address: SocketAddr) -> Finding {
    bound("native", address, UdpSocket::bind(address).map(drop))
}

/// A burst of datagrams waits in the kernel until its worker polls.
fn socket_buffers(rmem_max: &str) -> Finding {
    match rmem_max.parse::<u64>() {
        Ok(bytes) if bytes < 1 << 20 => finding(
            "socket buffers",
            Verdict::Warn,
            format!("{bytes}: bursts of datagrams are dropped; sysctl net.core.rmem_max=4194304"),
        ),
        Ok(bytes) => finding("socket buffers", Verdict::Ok, bytes.to_string()),
        Err(_) => {
            finding("socket buffers", Verdict::Warn, "unknown: /proc is not there".to_owned())
        }
    }
}

/// Any user that can read the key can impersonate its clients.
fn key_file(path: &Path) -> Finding {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::metadata(path) {
        Ok(file) if file.permissions().mode() & 0o077 != 0 => {
            let text = format!("{} is readable by others: chmod 600", path.display());
            finding("native key", Verdict::Warn, text)
        }
        Ok(_) => finding("native key", Verdict::Ok, path.display().to_string()),
        Err(error) => finding("native key", Verdict::Bad, format!("{}: {error}", path.display())),
    }
}

fn bound(name: &'static str, address: SocketAddr, result: std::io::Result<()>) -> Finding {
    match result {
        Ok(()) => finding(name, Verdict::Ok, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            finding(name, Verdict::Warn, format!("{address} is in use, maybe by a running server"))
        }
        Err(error) => finding(name, Verdict::Bad, format!("{address}: {error}")),
    }
}

fn table(findings: &[Finding]) -> String {
    findings.iter().fold(String::new(), |mut out, finding| {
        // Writing to a string cannot fail.
        let _ =
            writeln!(out, "{:<5} {:<15} {}", finding.verdict.name(), finding.name, finding.text);
        out
    })
}

fn json(findings: &[Finding]) -> serde_json::Value {
    let object = |finding: &Finding| {
        serde_json::json!({
            "name": finding.name,
            "verdict": finding.verdict.name(),
            "text": finding.text,
        })
    };
    findings.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: &Finding, want: Verdict, want_text: &str) {
        assert_eq!(found.verdict, want, "{found:?}");
        assert!(found.text.contains(want_text), "{found:?}");
    }

    #[test]
    fn more_workers_than_cores_are_a_warning() {
        check(&cores(2, 2), Verdict::Ok, "2 allowed, 2 workers");
        check(&cores(3, 2), Verdict::Warn, "lower --threads");
    }

    #[test]
    fn memory_beyond_the_machine_less_a_reserve_is_bad_and_the_text_says_what_would_do() {
        check(&memory(4 << 30, 8 << 30), Verdict::Ok, "4GiB of 8GiB");
        check(&memory(15 << 29, 8 << 30), Verdict::Warn, "leave an eighth");
        check(&memory(7920 << 20, 8 << 30), Verdict::Warn, "leave an eighth");
        check(&memory(7921 << 20, 8 << 30), Verdict::Bad, "give --memory at most 7920MiB");
        check(&memory(9 << 30, 8 << 30), Verdict::Bad, "give --memory at most 7920MiB");
    }

    #[test]
    fn too_few_open_files_are_a_warning() {
        check(&open_files(1000, Some(1063)), Verdict::Warn, "1000 connections need 1064");
        check(&open_files(1000, Some(1064)), Verdict::Ok, "1064");
        check(&open_files(1000, None), Verdict::Ok, "unlimited");
    }

    #[test]
    fn slow_clocks_small_backlogs_and_small_pages_are_warnings() {
        check(&clock("tsc"), Verdict::Ok, "tsc");
        check(&clock("hpet"), Verdict::Warn, "hpet needs a system call");
        check(&clock(""), Verdict::Warn, "unknown");
        check(&backlog("128"), Verdict::Warn, "somaxconn=4096");
        check(&backlog("4096"), Verdict::Ok, "4096");
        check(&socket_buffers("212992"), Verdict::Warn, "rmem_max=4194304");
        check(&socket_buffers("4194304"), Verdict::Ok, "4194304");
    }

    #[test]
    fn huge_pages_are_looked_for_as_they_were_asked_for() {
        let there = |free_count, transparent| machine::HugePages {
            reserved_count: free_count,
            free_count,
            transparent,
        };
        let memory_bytes = (64 << 20) + 1;
        let look = |wanted, found| huge_pages(wanted, memory_bytes, &found);
        check(&look(HugePages::Auto, there(33, false)), Verdict::Ok, "reserved, 33 free");
        check(&look(HugePages::Auto, there(32, true)), Verdict::Ok, "transparent");
        check(&look(HugePages::Auto, there(32, false)), Verdict::Warn, "echo madvise");
        check(&look(HugePages::Reserved, there(33, false)), Verdict::Ok, "reserved");
        check(&look(HugePages::Reserved, there(32, true)), Verdict::Bad, "vm.nr_hugepages=33");
        check(&look(HugePages::Off, there(33, true)), Verdict::Warn, "--huge-pages");
    }

    #[test]
    fn cache_ways_are_counted_where_there_are_any() {
        let root = tempfile::tempdir().unwrap();
        let text = format!("not shared out ({}/info/L3 missing)", root.path().display());
        check(&cache_ways(root.path()), Verdict::Ok, &text);
        std::fs::create_dir_all(root.path().join("info/L3")).unwrap();
        std::fs::write(root.path().join("info/L3/cbm_mask"), "7ff\n").unwrap();
        check(&cache_ways(root.path()), Verdict::Ok, "11, shared out by");
    }

    #[test]
    fn a_port_in_use_is_a_warning() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = holder.local_addr().unwrap();
        check(&port("resp", address), Verdict::Warn, "is in use");
        check(&port("resp", "192.0.2.1:7".parse().unwrap()), Verdict::Bad, "192.0.2.1:7");
    }

    #[test]
    fn a_key_that_others_can_read_is_a_warning() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        check(&key_file(file.path()), Verdict::Ok, "");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
        check(&key_file(file.path()), Verdict::Warn, "chmod 600");
        check(&key_file(Path::new("/nowhere/key")), Verdict::Bad, "/nowhere/key");
    }

    #[test]
    fn findings_print_as_lines_and_as_json() {
        let findings = [cores(3, 2)];
        assert!(table(&findings).starts_with("warn  cores           2 allowed, 3 workers"));
        assert_eq!(json(&findings)[0]["verdict"], "warn");
    }
}
