//! A cluster whose nodes write to disks: acknowledged writes survive when all nodes are killed at
//! once, and when the log of one node is damaged.
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::sockets::read_some;

const NODES: usize = 3;
/// The time limit for the cluster to answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Ended with its handle.
struct Process {
    child: Child,
    resp: String,
}

impl Process {
    /// Starts it and waits for a line that says this.
    fn start(command: &mut Command, want: &str) -> Process {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut lines = stderr.lines().map_while(Result::ok);
        let mut seen = Vec::new();
        let line = lines.find(|line| {
            seen.push(line.clone());
            line.contains(want)
        });
        let line = line.unwrap_or_else(|| panic!("no {want}: {seen:#?}"));
        std::thread::spawn(move || lines.for_each(drop));
        let resp = line.split("\"resp\":\"").nth(1).and_then(|rest| rest.split('"').next());
        Process { child, resp: resp.unwrap_or_default().to_owned() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dovetail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command.env("DOVETAIL_MODE", "store").stdin(Stdio::null());
    command
}

/// A manager, three directories, and the nodes that run.
struct Cluster {
    folder: tempfile::TempDir,
    url: String,
    peers: Vec<u16>,
    nodes: Vec<Option<Process>>,
    memory: &'static str,
    _manager: Process,
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::of("8", "64m")
    }

    /// A cluster of this many shards, on servers with this much memory.
    fn of(shards: &str, memory: &'static str) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/config_store", folder.path().display());
        let mut manager = dovetail();
        manager.args([
            "cm",
            "--config-store",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ]);
        manager.args(["--durability", "fsync", "--shards", shards]);
        let manager = Process::start(&mut manager, "\"leading\"");
        let listeners: Vec<_> =
            (0..NODES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let peers = listeners.iter().map(|at| at.local_addr().unwrap().port()).collect();
        drop(listeners);
        let nodes = (0..NODES).map(|_| None).collect();
        let mut cluster = Cluster { folder, url, peers, nodes, memory, _manager: manager };
        cluster.start_all();
        cluster
    }

    fn directory(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    fn command(&self, node: usize, url: &str) -> Command {
        // A write beyond a limit of the system is an error, as that of a broken disk is.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_dovetail")]);
        command.env("DOVETAIL_MODE", "store").stdin(Stdio::null());
        command.args(["serve", "--memory", self.memory, "--threads", "2", "--log-format", "json"]);
        command.args(["--resp", "127.0.0.1:0", "--memcached", "off", "--native", "off"]);
        command.args(["--admin", "off", "--cluster", url]);
        command.args(["--node-id", &(node + 1).to_string()]);
        // A cluster's servers need not have the same number of them.
        command.args(["--digest-threads", &node.to_string()]);
        command.args(["--peer", &format!("127.0.0.1:{}", self.peers[node])]);
        command
    }

    fn start_all(&mut self) {
        let commands: Vec<_> = (0..NODES)
            .map(|node| {
                let mut command = self.command(node, &self.url);
                command.arg("--data-dir").arg(self.directory(node));
                command
            })
            .collect();
        for (node, mut command) in commands.into_iter().enumerate() {
            if self.nodes[node].is_none() {
                self.nodes[node] = Some(Process::start(&mut command, "\"ready\""));
            }
        }
    }

    /// Like a power cut: no server is notified before all are killed.
    fn kill_all(&mut self) {
        self.nodes.iter_mut().flatten().for_each(|node| node.child.kill().unwrap());
        self.nodes.iter_mut().for_each(|node| *node = None);
    }

    fn client(&self) -> Client {
        let known = self.nodes.iter().flatten().map(|node| node.resp.clone()).collect();
        Client { known, at: 0, streams: HashMap::new() }
    }

    /// Of all nodes, whichever has which shards.
    fn flush(&self) {
        let mut client = self.client();
        for node in self.nodes.iter().flatten() {
            let reply = client.ask_at(&node.resp, &["FLUSHALL"]).unwrap();
            assert_eq!(reply, "+OK\r\n");
            // On this disk, and on both backups'.
            let waited = client.ask_at(&node.resp, &["WAITAOF", "1", "2", "0"]).unwrap();
            assert_eq!(waited, "*2\r\n:1\r\n:2\r\n");
        }
    }

    /// From now on the system refuses whatever a node writes to a file.
    fn break_files(&self, node: usize) {
        let pid = self.nodes[node].as_ref().unwrap().child.id().to_string();
        let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=0:0"]).status();
        assert!(limited.expect("util-linux is there").success());
    }

    fn check(&self, node: usize) -> Output {
        dovetail().arg("check").arg(self.directory(node)).output().unwrap()
    }

    /// The number of the present configuration.
    fn term(&self) -> u64 {
        let status =
            dovetail().args(["cluster", "status", "--json", "--config-store", &self.url]).output();
        let status = String::from_utf8(status.unwrap().stdout).unwrap();
        let digits = status.split("\"term\":").nth(1).map(str::trim_start);
        let digits = digits.and_then(|rest| rest.split(|it: char| !it.is_ascii_digit()).next());
        digits.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no term: {status}"))
    }

    /// Asks for all of it, each until its shard is served; the answers' first lines.
    fn ask_all(&self, requests: &[String]) -> Vec<String> {
        let began = Instant::now();
        let first = self.nodes.iter().flatten().map(|node| node.resp.clone()).next().unwrap();
        let mut answers = vec![String::new(); requests.len()];
        let mut asked = vec![(first.clone(), (0..requests.len()).collect::<Vec<usize>>())];
        while let Some((at, indices)) = asked.pop() {
            let (mut moved, mut later) = (HashMap::<String, Vec<usize>>::new(), Vec::new());
            assert!(began.elapsed() < PATIENCE, "{} are not served", indices.len());
            // An earlier life of a server may be named still.
            let Ok(stream) = TcpStream::connect(&at) else {
                std::thread::sleep(Duration::from_millis(20));
                asked.push((first.clone(), indices));
                continue;
            };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut replies = BufReader::new(stream);
            for part in indices.chunks(256) {
                let text: String = part.iter().map(|index| requests[*index].as_str()).collect();
                // A server without a lease closes connections: then nothing more is read.
                let _ = replies.get_mut().write_all(text.as_bytes());
                for index in part {
                    let mut line = String::new();
                    let _ = replies.read_line(&mut line);
                    if line.starts_with('$') && line != "$-1\r\n" {
                        line.clear();
                        let _ = replies.read_line(&mut line);
                    }
                    match line.strip_prefix("-MOVED ") {
                        Some(to) => {
                            let to = to.split_whitespace().nth(1).unwrap().to_owned();
                            moved.entry(to).or_default().push(*index);
                        }
                        None if line.starts_with('-') || !line.ends_with('\n') => {
                            later.push(*index);
                        }
                        None => answers[*index] = line,
                    }
                }
            }
            if !later.is_empty() {
                std::thread::sleep(Duration::from_millis(20));
                moved.entry(first.clone()).or_default().extend(later);
            }
            asked.extend(moved);
        }
        answers
    }

    /// Until every shard has all of its copies.
    fn until_whole(&self) {
        let began = Instant::now();
        loop {
            let status =
                dovetail().args(["cluster", "status", "--config-store", &self.url]).output();
            let status = status.unwrap();
            if status.status.success() {
                return;
            }
            let text = String::from_utf8_lossy(&status.stderr).into_owned();
            assert!(began.elapsed() < PATIENCE, "{text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Follows MOVED, and asks again while no server answers.
struct Client {
    known: Vec<String>,
    at: usize,
    streams: HashMap<String, TcpStream>,
}

impl Client {
    fn ask_at(&mut self, at: &str, words: &[&str]) -> std::io::Result<String> {
        if !self.streams.contains_key(at) {
            let stream = TcpStream::connect(at)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            self.streams.insert(at.to_owned(), stream);
        }
        let stream = self.streams.get_mut(at).unwrap();
        let mut out = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| out.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        let mut bytes = [0; 4096];
        let read = stream.write_all(out.as_bytes()).and_then(|()| read_some(stream, &mut bytes));
        match read {
            Ok(count) if count > 0 => Ok(String::from_utf8_lossy(&bytes[..count]).into_owned()),
            _ => {
                self.streams.remove(at);
                Err(std::io::ErrorKind::UnexpectedEof.into())
            }
        }
    }

    /// One that was executed, or an error of a node that is gone.
    fn ask(&mut self, words: &[&str]) -> std::io::Result<String> {
        let (began, mut at) = (Instant::now(), self.known[self.at % self.known.len()].clone());
        loop {
            let reply = self.ask_at(&at, words)?;
            if !reply.starts_with('-') {
                return Ok(reply);
            }
            assert!(began.elapsed() < PATIENCE, "{words:?}: {reply}");
            if let Some(to) = reply.strip_prefix("-MOVED ") {
                at = to.split_whitespace().nth(1).unwrap().to_owned();
            } else {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// [`Client::ask`], of the nodes that live.
    fn asked(&mut self, words: &[&str]) -> String {
        let began = Instant::now();
        loop {
            match self.ask(words) {
                Ok(reply) => return reply,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{words:?}: {error}"),
            }
            self.at += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn number(&mut self, key: &str) -> u64 {
        let reply = self.asked(&["GET", key]);
        reply.lines().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

const KEYS: usize = 20;
const WRITERS: usize = 3;
/// Writes of one writer before the nodes are killed.
const ENOUGH: u64 = 100;

/// Counts in keys of its own until the nodes are gone; the last count of each that was
/// acknowledged.
fn count_up(mut client: Client, name: usize, mut counts: Vec<u64>, told: &dyn Fn()) -> Vec<u64> {
    for number in 0.. {
        let index = number % KEYS;
        let value = (counts[index] + 1).to_string();
        match client.ask(&["SET", &format!("{name}-{index}"), &value]) {
            Ok(reply) => assert_eq!(reply, "+OK\r\n"),
            Err(_) => break,
        }
        counts[index] += 1;
        if number as u64 == ENOUGH {
            told();
        }
    }
    counts
}

/// All writers count, all nodes are killed under them.
fn count_and_kill(cluster: &mut Cluster, counts: &mut [Vec<u64>]) {
    let (told, enough) = std::sync::mpsc::channel();
    let writers: Vec<_> = (0..WRITERS)
        .map(|name| {
            let (client, counts, told) = (cluster.client(), counts[name].clone(), told.clone());
            std::thread::spawn(move || count_up(client, name, counts, &|| told.send(()).unwrap()))
        })
        .collect();
    for _ in 0..WRITERS {
        enough.recv_timeout(PATIENCE).unwrap();
    }
    cluster.kill_all();
    for (counts, writer) in counts.iter_mut().zip(writers) {
        *counts = writer.join().unwrap();
    }
}

/// What was on its way may be there or not; it is what counts from now on.
#[track_caller]
fn check_counts(cluster: &Cluster, counts: &mut [Vec<u64>], when: &str) {
    let mut client = cluster.client();
    for (name, counts) in counts.iter_mut().enumerate() {
        for (index, count) in counts.iter_mut().enumerate() {
            let found = client.number(&format!("{name}-{index}"));
            let may_be = *count..=*count + 1;
            assert!(may_be.contains(&found), "{when}, {name}-{index}: {found} and not {count}");
            *count = found;
        }
    }
}

fn damage(log: &Path) {
    let mut bytes = std::fs::read(log).unwrap();
    let found = bytes.windows(200).position(|window| window == [b'v'; 200]).expect("the value");
    bytes[found + 100] ^= 1;
    std::fs::write(log, bytes).unwrap();
}

#[test]
fn every_acknowledged_write_survives_a_kill_of_all_nodes_and_damage_of_one_log() {
    let mut cluster = Cluster::start();
    let mut counts = vec![vec![0; KEYS]; WRITERS];
    assert_eq!(cluster.client().asked(&["SET", "long", &"v".repeat(500)]), "+OK\r\n");
    assert_eq!(cluster.client().asked(&["SET", "gone", "1"]), "+OK\r\n");
    assert_eq!(cluster.client().asked(&["DEL", "gone"]), ":1\r\n");
    assert_eq!(cluster.client().asked(&["SET", "flushed", "1"]), "+OK\r\n");
    cluster.flush();
    assert_eq!(cluster.client().asked(&["SET", "long", &"v".repeat(500)]), "+OK\r\n");
    count_and_kill(&mut cluster, &mut counts);
    for node in 0..NODES {
        let checked = cluster.check(node);
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        let of = format!("node {} of the cluster dovetail", node + 1);
        assert!(checked.status.success() && text.contains(&of), "{text}");
    }
    cluster.start_all();
    check_counts(&cluster, &mut counts, "all came back");
    assert_eq!(cluster.client().asked(&["GET", "gone"]), "$-1\r\n");
    assert_eq!(cluster.client().asked(&["GET", "flushed"]), "$-1\r\n");
    count_and_kill(&mut cluster, &mut counts);
    damage(&cluster.directory(0).join("log"));
    assert_eq!(cluster.check(0).status.code(), Some(1), "it is damaged");
    cluster.start_all();
    assert!(cluster.directory(0).join("log.damaged").exists(), "it is set aside");
    check_counts(&cluster, &mut counts, "one came back with nothing");
    cluster.until_whole();
    // The damaged one has all again: it and one other are enough.
    cluster.nodes[1] = None;
    check_counts(&cluster, &mut counts, "the damaged one has copies");
    cluster.start_all();
    cluster.until_whole();
    count_and_kill(&mut cluster, &mut counts);
    cluster.start_all();
    check_counts(&cluster, &mut counts, "all came back again");
    assert_eq!(cluster.client().asked(&["GET", "long"]).len(), 4 + 2 + 500 + 2);
    assert_eq!(cluster.client().asked(&["GET", "flushed"]), "$-1\r\n");
}

/// Many shards and an index of many buckets: a start does not walk it once for each.
#[test]
fn many_shards_are_served_again_after_a_kill_of_all_nodes() {
    const COUNT: usize = 20_000;
    let mut cluster = Cluster::of("64", "256m");
    cluster.until_whole();
    let sets: Vec<_> = (0..COUNT).map(|id| format!("SET key:{id} value-{id}\r\n")).collect();
    assert!(cluster.ask_all(&sets).iter().all(|reply| reply == "+OK\r\n"));
    let before = cluster.term();
    cluster.kill_all();
    cluster.start_all();
    let gets: Vec<_> = (0..COUNT).map(|id| format!("GET key:{id}\r\n")).collect();
    for (id, value) in cluster.ask_all(&gets).iter().enumerate() {
        assert_eq!(*value, format!("value-{id}\r\n"));
    }
    cluster.until_whole();
    // Three that go, three that come, and copies; hundreds where servers are expelled in turn.
    let terms = cluster.term() - before;
    assert!(terms < 60, "{terms} configurations");
}

/// One line in a connection that stays; empty: it was closed.
fn say(stream: &mut BufReader<TcpStream>, text: &str) -> String {
    let mut line = String::new();
    let sent = stream.get_mut().write_all(text.as_bytes());
    let _ = sent.and_then(|()| stream.read_line(&mut line));
    line
}

#[test]
fn a_node_whose_log_fails_keeps_its_connections_and_others_take_its_shards() {
    const COUNT: usize = 24;
    let cluster = Cluster::start();
    cluster.until_whole();
    let mut client = cluster.client();
    for id in 0..COUNT {
        assert_eq!(client.asked(&["SET", &format!("key:{id}"), "1"]), "+OK\r\n");
    }
    let broken = cluster.nodes[0].as_ref().unwrap().resp.clone();
    let stream = TcpStream::connect(&broken).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stays = BufReader::new(stream);
    assert_eq!(say(&mut stays, "PING\r\n"), "+PONG\r\n");
    cluster.break_files(0);
    // Where it has to acknowledge, too, nothing is acknowledged until it is no member any more.
    for id in 0..COUNT {
        let (began, key) = (Instant::now(), format!("key:{id}"));
        let others = cluster.nodes[1..].iter().flatten().map(|node| node.resp.clone());
        let others: Vec<String> = others.collect();
        for at in others.iter().cycle() {
            let reply = client.ask_at(at, &["SET", &key, "2"]);
            if reply.is_ok_and(|reply| reply == "+OK\r\n") {
                break;
            }
            assert_eq!(say(&mut stays, "PING\r\n"), "+PONG\r\n");
            assert!(began.elapsed() < PATIENCE, "{key} is not served");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    for id in 0..COUNT {
        assert_eq!(say(&mut stays, "PING\r\n"), "+PONG\r\n");
        let refused = say(&mut stays, &format!("SET key:{id} 3\r\n"));
        assert!(refused.starts_with('-') && refused.ends_with('\n'), "{refused:?}");
    }
}

#[test]
fn a_directory_that_does_not_fit_is_one_line() {
    let mut cluster = Cluster::start();
    let refused = |mut command: Command, want: &str| {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = text.lines().last().unwrap_or_default();
        assert!(!output.status.success() && last.contains(want), "{text}");
    };
    cluster.kill_all();
    refused(cluster.command(0, &cluster.url), "give --data-dir PATH");
    let mut command = cluster.command(0, &cluster.url);
    command.arg("--data-dir").arg(cluster.directory(1));
    refused(command, "it is of node 2 of the cluster dovetail");
    // As another release would have written it, but for the checksum, which keeps it out too.
    let node_file = cluster.directory(2).join("NODE");
    let mut bytes = std::fs::read(&node_file).unwrap();
    let name = bytes.windows(8).position(|window| window == b"dovetail").unwrap();
    bytes[name] ^= 1;
    std::fs::write(&node_file, bytes).unwrap();
    let mut command = cluster.command(2, &cluster.url);
    command.arg("--data-dir").arg(cluster.directory(2));
    refused(command, "its file NODE is damaged; give another directory");
    let mut alone = dovetail();
    alone.args(["serve", "--memory", "64m", "--resp", "127.0.0.1:0", "--admin", "off"]);
    alone.args(["--memcached", "off", "--native", "off"]);
    alone.arg("--data-dir").arg(cluster.directory(1));
    refused(alone, "give --cluster, or another directory");
    let other = format!("file://{}/other", cluster.folder.path().display());
    let mut manager = dovetail();
    manager.args([
        "cm",
        "--config-store",
        &other,
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ]);
    let _manager = Process::start(&mut manager, "\"leading\"");
    let mut command = cluster.command(1, &other);
    command.arg("--data-dir").arg(cluster.directory(1));
    refused(command, "leave --data-dir out");
}
