//! The memory limit of the binary: what is refused, what changes live, and that the server can be
//! stopped at any time. Also tests the files that the server creates.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::sockets::read_some;

const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, with a umask that lets every user read every file.
fn dovetail(arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_dovetail")]);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DOVETAIL_")) {
        command.env_remove(name);
    }
    command
}

struct Served {
    child: Child,
    resp: TcpStream,
    memcached: TcpStream,
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        let ports =
            ["--resp", "0", "--memcached", "0", "--native", "off", "--admin", "off", "--threads"];
        let all = [&["serve", "--log-format", "json"], &ports[..], &["1"], arguments].concat();
        let mut child = dovetail(&all).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let ready = lines.find(|line| line.contains("\"ready\"")).expect("it becomes ready");
        std::thread::spawn(move || lines.for_each(drop));
        let connect = |name: &str| {
            let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
            let address: SocketAddr = ready[name].as_str().unwrap().parse().unwrap();
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        };
        Served { child, resp: connect("resp"), memcached: connect("memcached") }
    }

    /// The first line of the answer.
    fn ask(&mut self, command: &str) -> String {
        line(&mut self.resp, command)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// Sets items of 1 KB; all are stored.
    fn fill(&mut self, first: u32, count: u32) {
        for ids in (first..first + count).collect::<Vec<_>>().chunks(100) {
            let mut sets = Vec::new();
            for id in ids {
                write!(sets, "*3\r\n$3\r\nSET\r\n$8\r\n{id:08}\r\n$1000\r\n{id:01000}\r\n")
                    .unwrap();
            }
            self.resp.write_all(&sets).unwrap();
            let mut answers = vec![0; 5 * ids.len()];
            self.resp.read_exact(&mut answers).unwrap();
            assert!(answers.chunks(5).all(|answer| answer == b"+OK\r\n"));
        }
    }

    /// Waits until `wanted` holds.
    fn until(&mut self, what: &str, wanted: impl Fn(&mut Served) -> bool) {
        let began = Instant::now();
        while !wanted(self) {
            assert!(began.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let (mut found, mut byte) = (Vec::new(), [0]);
    while !found.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).unwrap();
        found.push(byte[0]);
    }
    String::from_utf8(found).unwrap().trim_end().to_owned()
}

#[test]
fn memory_that_the_machine_lacks_is_refused_with_the_number_that_would_do() {
    let serve = ["serve", "-qq", "--resp", "0", "--memcached", "off", "--admin", "off"];
    let output = dovetail(&[&serve[..], &["--memory", "15TiB"]].concat()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.starts_with("dovetail: memory: 15TiB of "), "{message}");
    let would_do = message.trim().rsplit_once("give --memory at most ").unwrap().1.to_owned();

    let mut doctor = dovetail(&["doctor", "--json", "--memory", &would_do]);
    let output = doctor.stdout(Stdio::piped()).output().unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_memory = |finding: &&serde_json::Value| finding["name"] == "memory";
    let memory = findings.as_array().unwrap().iter().find(is_memory).unwrap().clone();
    assert_ne!(memory["verdict"], "bad", "{memory}");
}

#[test]
fn a_signal_ends_a_server_that_has_not_read_its_settings_yet() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.toml");
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let mut child = dovetail(&["serve", "--config", file.to_str().unwrap()]).spawn().unwrap();
        // Its settings do not come: it waits for a writer. First it takes signals.
        let is_taking_signals = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (Signal::TERM.as_raw() - 1) != 0
        };
        let began = Instant::now();
        while !is_taking_signals() {
            assert!(began.elapsed() < PATIENCE, "it does not take signals");
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal:?}");
    }
}

#[test]
fn memory_changes_by_each_door_while_clients_write_and_goes_back_to_the_kernel() {
    let mut served = Served::start(&["--memory", "128MiB", "--mode", "cache"]);
    assert_eq!(served.ask("CONFIG SET maxmemory 256mb"), "+OK");
    served.fill(0, 200_000);
    assert!(served.resident_bytes() > 180 << 20);
    let mut memcached = served.memcached.try_clone().unwrap();
    for turn in 0..20_u32 {
        match turn % 2 {
            0 => assert_eq!(line(&mut memcached, "cache_memlimit 128"), "OK"),
            _ => assert_eq!(served.ask("CONFIG SET maxmemory 256mb"), "+OK"),
        }
        served.fill(turn * 1000, 5_000);
    }
    assert_eq!(line(&mut memcached, "cache_memlimit 128"), "OK");
    served.until("the pages go back", |served| {
        served.resident_bytes() < (128 << 20) + (128 << 20) / 20 + (32 << 20)
    });
    served.stop();
}

/// Clients that each have sent a part of a command with a large value.
fn send_halves(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let clients = (0..count).map(|id| {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        client.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$300000\r\n").unwrap();
        // A server whose buffers are full does not read all of it.
        let _ = client.write_all(&vec![b'a'; 1000 + id * 7919 % 249_000]);
        client
    });
    clients.collect()
}

/// Of the buffers for large values.
fn booked_bytes(served: &mut Served) -> u64 {
    served.resp.write_all(b"*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\nPING\r\n").unwrap();
    let mut text = String::new();
    while !text.ends_with("+PONG\r\n") {
        let mut part = [0; 4096];
        let count = read_some(&mut served.resp, &mut part).unwrap();
        text.push_str(std::str::from_utf8(&part[..count]).unwrap());
    }
    let row = text.split("dovetail_buffers_bodies:bytes=").nth(1).unwrap();
    row.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn free_pages_of_heaps_go_back_to_the_kernel_after_a_shrink() {
    let mut served = Served::start(&["--memory", "64MiB", "--mode", "cache"]);
    let address = served.resp.peer_addr().unwrap();
    assert_eq!(served.ask("CONFIG SET maxmemory 512mb"), "+OK");
    served.fill(0, 80_000);
    let mut halves = Vec::new();
    for _ in 0..3 {
        halves.extend(send_halves(address, 250));
        served.until("the halves are read", |served| booked_bytes(served) > 24 << 20);
        let mut is_kept = [true, false, false].into_iter().cycle();
        halves.retain(|_| is_kept.next().unwrap());
    }
    assert_eq!(served.ask("CONFIG SET maxmemory 64mb"), "+OK");
    drop(halves);
    served.until("the halves are gone", |served| booked_bytes(served) < 1 << 20);
    served.until("the pages go back", |served| served.resident_bytes() < (64 + 3 + 32) << 20);
    served.stop();
}

#[test]
fn what_cannot_be_had_is_refused_with_a_number_and_changes_nothing() {
    let mut served = Served::start(&["--memory", "128MiB", "--mode", "store"]);
    let refusal = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - ";
    for (value, want) in [
        ("64mb", "64MiB is too little: give at least "),
        ("0", "0B is too little: give at least "),
        ("2tb", "2TiB is too much: give at most "),
        ("900gb", "900GiB is too much: give at most "),
        ("lots", "argument must be a memory value"),
    ] {
        let answer = served.ask(&format!("CONFIG SET maxmemory {value}"));
        assert!(answer.starts_with(refusal) && answer.contains(want), "{value}: {answer}");
    }
    let mut memcached = served.memcached.try_clone().unwrap();
    let answer = line(&mut memcached, "cache_memlimit 64");
    let want = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust: memory: 64MiB is too";
    assert!(answer.starts_with(want), "{answer}");
    let policy = served.ask("CONFIG SET maxmemory-policy allkeys-lru");
    assert!(policy.ends_with("a store evicts nothing: start the server with --mode cache"));

    // Items of a store stay: a size that they do not fit is refused, and the one named will do.
    assert_eq!(served.ask("CONFIG SET maxmemory 512mb"), "+OK");
    served.fill(0, 200_000);
    let answer = served.ask("CONFIG SET maxmemory 150mb");
    assert!(answer.contains("which the stored items need"), "{answer}");
    let least = answer.split("give at least ").nth(1).unwrap().split(',').next().unwrap();
    assert_eq!(served.ask(&format!("CONFIG SET maxmemory {least}")), "+OK");
    assert_eq!(served.ask("DBSIZE"), ":200000");
    served.stop();
}

#[test]
fn the_file_changes_memory_by_a_signal_and_a_rewritten_one_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.toml");
    std::fs::write(&file, "memory = \"128MiB\"\nmode = \"cache\"\n").unwrap();
    let mut served = Served::start(&["--config", file.to_str().unwrap()]);
    let memory = |served: &mut Served| {
        assert_eq!(served.ask("CONFIG GET maxmemory"), "*2");
        let mut rest = [0; 2048];
        let count = read_some(&mut served.resp, &mut rest).unwrap();
        String::from_utf8_lossy(&rest[..count]).into_owned()
    };
    std::fs::write(&file, "memory = \"200MiB\"\nmode = \"cache\"\n").unwrap();
    served.signal(Signal::HUP);
    served.until("the file's size holds", |served| memory(served).contains("\r\n209715200\r\n"));
    assert_eq!(served.ask("CONFIG SET maxmemory 160mb"), "+OK");
    assert_eq!(served.ask("CONFIG REWRITE"), "+OK");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, "memory = \"160MiB\"\nmode = \"cache\"\n");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    served.stop();
}

#[test]
fn a_server_whose_items_outlive_it_keeps_its_size_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let warm = folder.path().join("warm");
    let mut served =
        Served::start(&["--memory", "64MiB", "--mode", "cache", "--warm-file", path(&warm)]);
    let answer = served.ask("CONFIG SET maxmemory 128mb");
    assert!(answer.contains("has a fixed size (--warm-file)"), "{answer}");
    assert_eq!(served.ask("CONFIG SET maxmemory 64mb"), "+OK", "as it is");
    let policy = served.ask("CONFIG SET maxmemory-policy noeviction");
    assert!(policy.contains("a cache evicts when its memory is full"), "{policy}");
    served.stop();
    check_private(folder.path(), 1);
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Of everything below `folder`, which holds at least `least` files and directories.
fn check_private(folder: &Path, least: usize) {
    let (mut left, mut seen) = (vec![folder.to_owned()], 0);
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let (path, is_directory) = {
                let entry = entry.unwrap();
                (entry.path(), entry.file_type().unwrap().is_dir())
            };
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            let want = if is_directory { 0o700 } else { 0o600 };
            assert_eq!(mode, want, "{}: {mode:o}", path.display());
            seen += 1;
            left.extend(is_directory.then_some(path));
        }
    }
    assert!(seen >= least, "{seen}");
}

#[test]
fn what_a_server_writes_is_its_owners_alone_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let [file, users, data, copy] =
        ["settings.toml", "users.acl", "data/of/it", "copy"].map(|name| folder.path().join(name));
    std::fs::write(&file, "mode = \"store\"\n").unwrap();
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
    let settings = ["--config", path(&file), "--acl-file", path(&users), "--data-dir", path(&data)];
    let mut served = Served::start(&[&settings[..], &["--memory", "64MiB"]].concat());
    served.fill(0, 100);
    assert_eq!(served.ask("CONFIG SET slowlog-max-len 7"), "+OK");
    assert_eq!(served.ask("CONFIG REWRITE"), "+OK");
    assert_eq!(served.ask("ACL SETUSER joe on nopass"), "+OK");
    assert_eq!(served.ask("ACL SAVE"), "+OK");
    let backup = ["backup", "--data-dir", path(&data), "--to", path(&copy)];
    let output = dovetail(&backup).stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    served.stop();
    // The settings, the users, two directories above the data, its log and lock, the copy's.
    check_private(folder.path(), 8);
}

#[test]
fn a_log_that_is_a_pipe_is_refused_at_once_and_a_directory_open_to_others_is_told() {
    for name in ["log", "LOCK"] {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let ports = ["--resp", "0", "--memcached", "off", "--admin", "off", "--memory", "64MiB"];
        let data = ["serve", "--mode", "store", "--data-dir", path(folder.path())];
        let arguments = [&data[..], &ports[..]].concat();
        let output = dovetail(&arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{text}");
        assert!(text.contains("its mode is 0755: other users can enter it"), "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains(&format!(": {name}: no regular file")), "{text}");
    }
}

#[test]
fn a_variable_that_is_no_text_is_refused_by_its_name() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for name in ["DOVETAIL_REQUIREPASS", "DOVETAIL_MEMORY"] {
        let mut command = dovetail(&["serve", "--print-config"]);
        let output = command.env(name, OsStr::from_bytes(b"64\xff")).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text, format!("dovetail: {name}: no text: write it in UTF-8\n"));
    }
}
