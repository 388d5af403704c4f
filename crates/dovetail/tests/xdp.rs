//! The native port over AF_XDP: the real server in one network namespace, real clients in another.
//!
//! The tests need root and iproute2, and one needs curl; without them a test prints one line and
//! passes.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

const DEVICE: &str = "dv0";
const ADDRESS: &str = "10.98.0.1:7379";
const TARGET: &str = "native://10.98.0.1:7379";

/// Two namespaces joined by a veth pair, removed on drop.
struct Hosts {
    server: String,
    client: String,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

fn ip(arguments: &[&str], input: &str) -> bool {
    let mut command = Command::new("ip");
    let Ok(mut child) = command.args(arguments).stdin(Stdio::piped()).spawn() else { return false };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

impl Hosts {
    /// `None`, with a line that says why, where this machine cannot.
    fn open(queue_count: u32) -> Option<Hosts> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: AF_XDP is tested by root only");
            return None;
        }
        let base = format!("dvx{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts { server: format!("{base}s"), client: format!("{base}c") };
        for name in [&hosts.server, &hosts.client] {
            if !ip(&["netns", "add", name], "") {
                println!("skipped: `ip netns add` does not work here (iproute2, namespaces?)");
                return None;
            }
        }
        let queues = format!("numrxqueues {queue_count} numtxqueues {queue_count}");
        let of_server = format!(
            "link add {DEVICE} {queues} type veth peer name {DEVICE} {queues} netns {}\n\
             address add 10.98.0.1/24 dev {DEVICE}\nlink set {DEVICE} up\nlink set lo up\n",
            hosts.client
        );
        let of_client = format!("address add 10.98.0.2/24 dev {DEVICE}\nlink set {DEVICE} up\n");
        for (name, lines) in [(&hosts.server, of_server), (&hosts.client, of_client)] {
            assert!(ip(&["-n", name, "-batch", "-"], &lines));
        }
        Some(hosts)
    }

    /// A command of ours inside one of them.
    fn inside(name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, env!("CARGO_BIN_EXE_dovetail")]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a server and waits until it serves. A queue comes back a moment after its last user
    /// has gone.
    fn serve(&self, arguments: &[&str]) -> Serving {
        let mut tries_left = 100;
        loop {
            match self.try_serve(arguments) {
                Ok(serving) => return serving,
                Err(error) => assert!(error.contains("busy") && tries_left > 0, "{error}"),
            }
            tries_left -= 1;
        }
    }

    fn try_serve(&self, arguments: &[&str]) -> Result<Serving, String> {
        let usual = [
            ["--resp", "off"],
            ["--memcached", "off"],
            ["--admin", "off"],
            ["--insecure", "on"],
            ["--memory", "64MiB"],
            ["--native", ADDRESS],
        ];
        let mut all = vec!["serve"];
        all.extend(usual.iter().filter(|[flag, _]| !arguments.contains(flag)).flatten());
        all.extend(arguments);
        let mut child = Hosts::inside(&self.server, &all).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while lines.read_line(&mut said).unwrap() > 0 {
            if said.contains("\"ready\"") {
                std::thread::spawn(move || lines.read_to_string(&mut String::new()));
                return Ok(Serving { child, said });
            }
        }
        child.wait().unwrap();
        Err(said)
    }

    /// Asks once.
    fn ask(&self, words: &[&str]) -> String {
        let arguments = [&["cli", "--target", TARGET, "--raw"], words].concat();
        let output = Hosts::inside(&self.client, &arguments).output().unwrap();
        answer_of(&output)
    }

    /// Asks line by line on one connection.
    fn ask_lines(&self, lines: &str) -> String {
        let mut command = Hosts::inside(&self.client, &["cli", "--target", TARGET, "--raw"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let lines = lines.to_owned();
        let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        answer_of(&output)
    }

    /// What a program prints on the server's host.
    fn on_server(&self, program: &[&str]) -> String {
        let netns = ["netns", "exec", &self.server];
        let output = Command::new("ip").args(netns).args(program).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// By worker: frames that came to it.
    fn worker_frames(&self) -> Vec<u64> {
        let stats = self.on_server(&["curl", "-s", "http://127.0.0.1:8379/stats"]);
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        let frames = stats["native"]["worker_frames_in_total"].as_array().unwrap();
        frames.iter().map(|count| count.as_u64().unwrap()).collect()
    }

    /// Datagrams that the server's kernel has handed to sockets.
    fn kernel_datagrams(&self) -> u64 {
        let netns = ["netns", "exec", &self.server, "cat", "/proc/net/snmp"];
        let output = Command::new("ip").args(netns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers = text.lines().filter(|line| line.starts_with("Udp: ")).nth(1).unwrap();
        numbers.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn device_line(&self) -> String {
        let shown = ["-n", &self.server, "link", "show", DEVICE];
        String::from_utf8(Command::new("ip").args(shown).output().unwrap().stdout).unwrap()
    }
}

#[track_caller]
fn answer_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            ip(&["netns", "delete", name], "");
        }
    }
}

/// A server that ends with the test.
struct Serving {
    child: Child,
    said: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // `ip netns exec` becomes the server.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

#[track_caller]
fn check_serving(queue_count: u32, device: &str, threads: &str) {
    let Some(hosts) = Hosts::open(queue_count) else { return };
    let serving = hosts.serve(&["--native-xdp", device, "--threads", threads]);
    assert!(serving.said.contains("xdp"), "the log says what receives: {}", serving.said);
    assert_eq!(hosts.ask(&["set", "k", "v"]), "OK\n");
    assert_eq!(hosts.ask(&["get", "k"]), "v\n");
    // Keys of all partitions, so of all workers.
    let (mut lines, mut want) = (String::new(), String::new());
    for index in 0..500 {
        writeln!(lines, "set key:{index} value:{index}\nget key:{index}\nincr n").unwrap();
        writeln!(want, "OK\nvalue:{index}\n{}", index + 1).unwrap();
    }
    assert_eq!(hosts.ask_lines(&lines), want);
    // In parts, both ways: a frame here is a packet.
    let large = "large value ".repeat(8000);
    assert_eq!(hosts.ask(&["set", "large", &large]), "OK\n");
    assert_eq!(hosts.ask(&["get", "large"]), format!("{large}\n"));
    assert_eq!(hosts.kernel_datagrams(), 0, "all of it went past the kernel's stack");
    assert!(hosts.device_line().contains("xdp"));
    drop(serving);
    assert!(!hosts.device_line().contains("xdp"), "the program leaves with the server");
}

#[test]
fn clients_on_another_host_are_served_past_the_kernel() {
    check_serving(1, DEVICE, "1");
    check_serving(1, DEVICE, "2");
    check_serving(2, DEVICE, "2");
    check_serving(2, "dv0:2", "3");
}

/// U2: threads change roles, and datagrams of all partitions go to those that poll then.
#[test]
fn datagrams_go_to_the_threads_that_poll() {
    let Some(hosts) = Hosts::open(1) else { return };
    if hosts.on_server(&["curl", "--version"]).is_empty() {
        println!("skipped: curl asks for the server's statistics");
        return;
    }
    let ports = ["--resp", "127.0.0.1:6379", "--admin", "127.0.0.1:8379"];
    let roles = ["--native-xdp", DEVICE, "--threads", "4", "--tuner", "off"];
    let _serving = hosts.serve(&[&ports[..], &roles].concat());
    let lines: String = (0..300).map(|key| format!("set key:{key} v\n")).collect();
    for (cr, dispatcher_count) in [("auto", 4), ("1", 1), ("3", 3), ("auto", 4)] {
        let set = format!(
            "exec 3<>/dev/tcp/127.0.0.1/6379; printf 'CONFIG SET cr-threads {cr}\\r\\n' >&3; \
             head -c 3 <&3"
        );
        assert_eq!(hosts.on_server(&["bash", "-c", &set]), "+OK");
        // The first answers may come before all threads have taken up their roles.
        let mut tries_left = 50;
        loop {
            let before = hosts.worker_frames();
            assert_eq!(hosts.ask_lines(&lines), "OK\n".repeat(300));
            let after = hosts.worker_frames();
            let grown = before.iter().zip(&after).map(|(before, after)| after > before);
            if grown.eq((0..4).map(|worker| worker < dispatcher_count)) {
                break;
            }
            assert!(tries_left > 0, "{cr}: {before:?}, then {after:?}");
            tries_left -= 1;
        }
    }
    assert_eq!(hosts.kernel_datagrams(), 0, "all of it went past the kernel's stack");
}

#[test]
fn what_cannot_be_is_one_line() {
    let Some(hosts) = Hosts::open(1) else { return };
    let check = |arguments: &[&str], want: &str| {
        let said = hosts.try_serve(arguments).err().expect("it does not start");
        let last = said.lines().last().unwrap();
        let line = last.strip_prefix("dovetail: ").unwrap_or_else(|| panic!("{said}"));
        assert_eq!(line, want);
    };
    check(&["--native-xdp", "nope"], "--native-xdp nope: no such device; `ip link` lists them");
    check(&["--native-xdp", "lo"], "--native-xdp lo: cannot be found: lo is no Ethernet device");
    check(
        &["--native-xdp", DEVICE, "--native", "0.0.0.0:7379"],
        "--native-xdp dv0: --native 0.0.0.0 is no address of one device; give one of dv0's",
    );
    check(
        &["--native-xdp", "dv0:7"],
        "--native-xdp dv0: cannot bind a socket to each queue: Invalid argument (os error 22); it \
         may have fewer queues: give DEVICE:QUEUES",
    );
    let _serving = hosts.serve(&["--native-xdp", DEVICE, "--threads", "1"]);
    let taken = hosts.try_serve(&["--native-xdp", DEVICE, "--native", "10.98.0.1:7380"]);
    let said = taken.err().expect("it does not start");
    assert!(said.contains("another program holds the device or one of its queues"), "{said}");
}

#[test]
fn a_user_without_the_right_is_told_what_it_takes() {
    let Some(hosts) = Hosts::open(1) else { return };
    let setpriv = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all"];
    let serve = ["serve", "--native", ADDRESS, "--insecure", "on", "--native-xdp", DEVICE];
    let output = Command::new("ip")
        .args(["netns", "exec", &hosts.server])
        .args(setpriv)
        .arg(env!("CARGO_BIN_EXE_dovetail"))
        .args(serve)
        .args(["--resp", "off", "--memcached", "off", "--admin", "off", "--memory", "64MiB"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("setpriv") || said.contains("ermission denied") {
        println!("skipped: the binary cannot be run by another user here: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    let want = "; root may, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF";
    assert!(said.trim_end().ends_with(want), "{said}");
}
