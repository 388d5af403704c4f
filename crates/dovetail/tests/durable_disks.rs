//! The binary on full, read-only or damaged disks: it reports the problem in one line and loses
//! nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::sockets::read_some;

/// A server, and what it logs.
struct Served {
    child: Child,
    resp: SocketAddr,
    lines: Receiver<String>,
    /// Up to "ready".
    start: Vec<String>,
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command
        .args(["serve", "--mode", "store", "--memory", "64m", "--threads", "2"])
        .args(["--resp", "127.0.0.1:0", "--memcached", "off", "--native", "off"])
        .args(["--checkpoint", "300s"])
        .args(["--admin", "off", "--log-format", "json", "--data-dir"])
        .arg(directory);
    command
}

impl Served {
    fn start(directory: &Path) -> Served {
        Served::begin(command(directory))
    }

    fn begin(mut command: Command) -> Served {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let lines = stderr.lines().map_while(Result::ok);
            lines.map_while(|line| send.send(line).ok()).for_each(drop);
        });
        let mut start: Vec<String> = Vec::new();
        while !start.last().is_some_and(|line| line.contains("\"ready\"")) {
            let line = lines.recv_timeout(Duration::from_secs(60));
            start.push(line.unwrap_or_else(|_| panic!("it becomes ready: {start:?}")));
        }
        let ready = start.last().expect("it is there");
        let resp = address_in(ready, "resp").expect("an address");
        Served { child, resp, lines, start }
    }

    /// Where it listens for a protocol.
    fn address(&self, protocol: &str) -> SocketAddr {
        address_in(self.start.last().expect("it is ready"), protocol).expect("an address")
    }

    /// From now on the system refuses whatever it writes to a file.
    fn break_files(&self) {
        let pid = self.child.id().to_string();
        let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=0:0"]).status();
        assert!(limited.expect("util-linux is there").success());
    }

    fn wait_for(&self, text: &str) {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60)).expect("it says so");
            if line.contains(text) {
                return;
            }
        }
    }

    fn ask(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(self.resp).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a timeout");
        let mut out = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| out.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        stream.write_all(out.as_bytes()).expect("it reads");
        let mut bytes = [0; 4096];
        let count = read_some(&mut stream, &mut bytes).expect("it answers");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    fn store(&self, count: usize) {
        for id in 0..count {
            assert_eq!(self.ask(&["SET", &format!("key-{id}"), "value"]), "+OK\r\n");
        }
    }

    /// By a signal that it handles; what it logged at the end.
    fn stop(mut self) -> Vec<String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it ends").success());
        self.lines.iter().collect()
    }

    fn said(&self, text: &str) -> bool {
        self.start.iter().any(|line| line.contains(text))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_in(ready: &str, protocol: &str) -> Option<SocketAddr> {
    let rest = ready.split(&format!("\"{protocol}\":\"")).nth(1)?;
    rest.split('"').next()?.parse().ok()
}

/// A server of all protocols that outlives a write beyond the limit of its files' sizes.
fn breakable(directory: &Path, threads: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_dovetail")])
        .args(["serve", "--mode", "store", "--memory", "64m", "--threads", threads])
        .args(["--resp", "127.0.0.1:0", "--memcached", "127.0.0.1:0", "--native", "127.0.0.1:0"])
        .args(["--admin", "off", "--log-format", "json", "--data-dir"])
        .arg(directory);
    command
}

/// A connection that stays; its server may close it.
struct Talk(BufReader<TcpStream>);

impl Talk {
    fn with(address: SocketAddr) -> Talk {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a timeout");
        Talk(BufReader::new(stream))
    }

    /// The first line of the answer; empty: the connection was closed.
    fn say(&mut self, text: &str) -> String {
        let sent = self.0.get_mut().write_all(text.as_bytes());
        let mut line = String::new();
        if sent.and_then(|()| self.0.read_line(&mut line)).is_err() {
            line.clear();
        }
        line
    }

    /// A value of RESP or of memcached's text protocol: the line behind the first.
    fn value(&mut self, text: &str) -> String {
        let first = self.say(text);
        let mut value = String::new();
        if first.starts_with('$') || first.starts_with("VALUE") {
            self.0.read_line(&mut value).expect("the value follows");
        }
        if first.starts_with("VALUE") {
            self.0.read_line(&mut String::new()).expect("END follows");
        }
        value
    }
}

/// The last line of a server that does not start.
fn refused(directory: &Path) -> String {
    refused_by(command(directory))
}

fn refused_by(mut command: Command) -> String {
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "it is refused");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().last().unwrap_or_default().to_owned()
}

/// A file system of its own; `None`: this user may not mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(size: &str) -> Option<Disk> {
        let directory = tempfile::tempdir().expect("a directory");
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "dovetail-test"]).arg(directory.path());
        let is_there = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !is_there {
            println!("skipped: no file system can be mounted here");
        }
        is_there.then_some(Disk(directory))
    }

    fn remount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount.arg("-o").arg(format!("remount,{options}")).arg(self.0.path());
        assert!(mount.status().is_ok_and(|status| status.success()), "it can be remounted");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_medium_that_is_not_there_is_refused_and_one_that_is_is_named() {
    // tmpfs, which has no persistent memory.
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let mut dax = command(directory.path());
    dax.args(["--media", "dax"]);
    let line = refused_by(dax);
    assert!(line.contains("--media dax") && line.contains("or --media file"), "{line}");
    let served = Served::start(directory.path());
    assert!(served.said("\"medium\":\"file\""), "{:?}", served.start);
    assert!(served.ask(&["INFO", "persistence"]).contains("dovetail_log_medium:file"));
}

/// The table of `dovetail check`, which finds nothing damaged.
fn checked(directory: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    let output = command.arg("check").arg(directory).output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    text
}

#[test]
fn a_checkpoint_is_used_and_a_damaged_one_is_removed_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path());
    served.store(50);
    served.stop();
    assert!(checked(directory.path()).contains("good: 50 entries; 0 bytes are later"));
    let path = directory.path().join("checkpoint");
    let served = Served::start(directory.path());
    assert!(served.said("\"from_checkpoint\":50"), "{:?}", served.start);
    // What is newer than the checkpoint comes from the log.
    assert_eq!(served.ask(&["SET", "key-7", "newer"]), "+OK\r\n");
    assert_eq!(served.ask(&["DEL", "key-8"]), ":1\r\n");
    drop(served);
    let check = |served: &Served| {
        assert_eq!(served.ask(&["GET", "key-7"]), "$5\r\nnewer\r\n");
        assert_eq!(served.ask(&["GET", "key-8"]), "$-1\r\n");
        assert_eq!(served.ask(&["DBSIZE"]), ":49\r\n");
    };
    let served = Served::start(directory.path());
    assert!(served.said("\"from_checkpoint\":"), "{:?}", served.start);
    check(&served);
    drop(served);
    let mut bytes = std::fs::read(&path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&path, bytes).expect("it can be written");
    assert!(checked(directory.path()).contains("not used: it is damaged"));
    let served = Served::start(directory.path());
    assert!(served.said("checkpoint: it is damaged"), "{:?}", served.start);
    assert!(!path.exists(), "it is not looked at again");
    check(&served);
}

#[test]
fn a_disk_that_is_too_small_is_refused_and_a_checkpoint_that_does_not_fit_is_not_missed() {
    let Some(disk) = Disk::new("16m") else { return };
    let path = disk.0.path();
    let line = refused(path);
    assert!(line.contains("no space left"), "{line}");
    // All of the log's space is had at the start: what fills the disk later finds no use of it.
    disk.remount("size=200m");
    let served = Served::start(path);
    served.store(20);
    disk.remount(&format!("size={}", used_bytes(path)));
    served.store(40);
    let lines = served.stop();
    let is_told = |line: &String| line.contains("the next start does without");
    assert!(lines.iter().any(is_told), "{lines:?}");
    let served = Served::start(path);
    assert_eq!(served.ask(&["DBSIZE"]), ":40\r\n");
}

/// As the file system counts them.
fn used_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(directory).expect("it is there").map_while(Result::ok);
    files.map_while(|file| file.metadata().ok()).map(|data| data.blocks() * 512).sum()
}

#[test]
fn a_read_only_disk_is_refused_in_one_line_and_loses_nothing() {
    let Some(disk) = Disk::new("200m") else { return };
    let path = disk.0.path();
    let served = Served::start(path);
    served.store(20);
    served.stop();
    disk.remount("ro");
    let line = refused(path);
    assert!(line.contains("ead-only"), "{line}");
    disk.remount("rw");
    let served = Served::start(path);
    assert_eq!(served.ask(&["DBSIZE"]), ":20\r\n");
}

#[test]
fn after_a_failed_write_of_the_log_reads_go_on_and_writes_are_refused() {
    for threads in ["1", "3"] {
        let directory = tempfile::tempdir().expect("a directory");
        let served = Served::begin(breakable(directory.path(), threads));
        let (resp, memcached) = (served.address("resp"), served.address("memcached"));
        let native = format!("native://{}", served.address("native"));
        served.store(20);
        let mut reader = Talk::with(resp);
        let mut lines = Talk::with(memcached);
        assert_eq!(reader.say("PING\r\n"), "+PONG\r\n");
        assert_eq!(lines.say("set key-m 0 0 1\r\n7\r\n"), "STORED\r\n");
        let mut client = client::Client::connect(&native).expect("it is served");
        client.set(b"key-n", b"7").expect("it is stored");
        served.break_files();
        // The write that meets the failure is not acknowledged: its connection is closed.
        assert_eq!(Talk::with(resp).say("SET key-0 lost\r\n"), "");
        served.wait_for("the log cannot be written");
        // Connections that were there go on, in each protocol.
        for _ in 0..50 {
            assert_eq!(reader.say("PING\r\n"), "+PONG\r\n");
            assert_eq!(reader.value("GET key-1\r\n"), "value\r\n");
            assert!(reader.say("SET key-1 x\r\n").starts_with("-MISCONF "));
            assert_eq!(lines.value("get key-m\r\n"), "7\r\n");
            let refused = "SERVER_ERROR the log cannot be written\r\n";
            assert_eq!(lines.say("set key-m 0 0 1\r\n8\r\n"), refused);
        }
        for write in ["DEL key-1", "INCR n", "MSET key-1 x key-2 x", "EXPIRE key-1 1", "FLUSHALL"] {
            let reply = reader.say(&format!("{write}\r\n"));
            assert!(reply.starts_with("-MISCONF "), "{write}: {reply}");
        }
        assert_eq!(lines.say("flush_all\r\n"), "SERVER_ERROR the log cannot be written\r\n");
        assert_eq!(lines.say("version\r\n").split(' ').next(), Some("VERSION"));
        assert_eq!(client.get(b"key-n").expect("reads go on"), Some(b"7".to_vec()));
        assert!(client.set(b"key-n", b"8").is_err(), "it is not acknowledged");
        assert_eq!(client.get(b"key-n").expect("reads go on"), Some(b"7".to_vec()));
        let mut other = Talk::with(resp);
        assert_eq!(other.value("GET key-2\r\n"), "value\r\n");
        assert_eq!(other.say("DBSIZE\r\n"), reader.say("DBSIZE\r\n"));
        drop(served);
        // What was acknowledged is there; what was refused is not.
        let served = Served::start(directory.path());
        assert_eq!(served.ask(&["GET", "key-1"]), "$5\r\nvalue\r\n");
        assert_eq!(served.ask(&["GET", "key-n"]), "$1\r\n7\r\n");
    }
}
