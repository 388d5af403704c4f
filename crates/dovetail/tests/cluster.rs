//! Three nodes and their managers as processes: redirects, kills, restarts, stops, refusals.
//!
//! ```text
//!  file:///DIR ◀─ cm, cm      127.P.P.N, 127.P.P.N+1        P: of this process
//!       ▲
//!       └─ serve x 3          127.P.P.N+3 to N+5            N: of the cluster: ports are free
//! ```

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// For whatever must happen at last, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SHARDS: u64 = 8;
const RESP_PORT: u16 = 7000;
const ADMIN_PORT: u16 = 7001;
const NATIVE_PORT: u16 = 7003;

struct Cluster {
    folder: tempfile::TempDir,
    /// The last part of its first address: no other cluster of this process has it.
    first_place: u8,
    scheme: &'static str,
    digest_threads: usize,
    managers: Vec<Child>,
    servers: Vec<Child>,
}

/// Ten places for each cluster that this process starts.
pub(crate) fn next_first_place() -> u8 {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    count.checked_mul(10).filter(|place| *place <= 240).expect("at most 25 clusters")
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Cluster {
    fn start(managers: u8) -> Cluster {
        Cluster::start_by(managers, "rowan")
    }

    fn start_by(managers: u8, scheme: &'static str) -> Cluster {
        Cluster::start_with(managers, scheme, 0)
    }

    fn start_with(manager_count: u8, scheme: &'static str, digest_threads: usize) -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        let (managers, servers) = (vec![], vec![]);
        let first_place = next_first_place();
        let mut cluster =
            Cluster { folder, first_place, scheme, digest_threads, managers, servers };
        for index in 0..manager_count {
            let manager = cluster.manager(index);
            cluster.managers.push(manager);
        }
        for index in 0..3 {
            let server = cluster.server_command(index).spawn().expect("the binary starts");
            cluster.servers.push(server);
        }
        cluster.until_whole();
        cluster
    }

    fn address(&self, place: u8) -> String {
        let pid = std::process::id();
        format!("127.{}.{}.{}", 1 + pid % 250, pid / 250 % 250, self.first_place + place)
    }

    fn config_store(&self) -> String {
        format!("file://{}", self.folder.path().display())
    }

    fn manager(&self, index: u8) -> Child {
        let listen = format!("{}:7600", self.address(index));
        let mut command = command();
        command.args(["cm", "--config-store", &self.config_store(), "--listen", &listen]);
        command.args(["--lease", "500ms", "--shards", &SHARDS.to_string()]);
        command.args(["--replication", self.scheme]);
        command.stderr(self.log(&format!("manager{index}")));
        command.spawn().expect("the binary starts")
    }

    fn server_command(&self, index: usize) -> Command {
        let at = |port: u16| format!("{}:{port}", self.host(index));
        let mut command = command();
        command.args(["serve", "--cluster", &self.config_store(), "--resp", &at(RESP_PORT)]);
        command.args(["--admin", &at(ADMIN_PORT), "--peer", &at(7002)]);
        command.args(["--memcached", "off", "--native", &at(NATIVE_PORT)]);
        command.args(["--memory", "64MiB", "--threads", "1"]);
        command.args(["--digest-threads", &self.digest_threads.to_string()]);
        command.stderr(self.log(&format!("server{index}")));
        command
    }

    /// What a process says, from one start to the next: shown if the test fails.
    fn log(&self, name: &str) -> Stdio {
        let path = self.folder.path().join(format!("{name}.log"));
        std::fs::File::options().create(true).append(true).open(path).expect("a log").into()
    }

    fn show_logs(&self) {
        for entry in std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                let said = std::fs::read_to_string(entry.path()).unwrap_or_default();
                eprintln!("== {}\n{said}", entry.path().display());
            }
        }
        for index in 0..3 {
            eprintln!("== server {index}: {:?}", self.told(index));
        }
    }

    fn host(&self, index: usize) -> String {
        self.address(3 + index as u8)
    }

    fn resp(&self, index: usize) -> String {
        format!("{}:{RESP_PORT}", self.host(index))
    }

    fn client(&self) -> Client {
        let servers = (0..3).map(|index| self.resp(index)).collect();
        Client { servers, connections: HashMap::new(), next: 0 }
    }

    /// A native client that has heard of one server.
    fn native_client(&self) -> client::Cluster {
        let target = format!("native://{}:{NATIVE_PORT}", self.host(0));
        let config = client::ClusterConfig { patience: PATIENCE, ..Default::default() };
        client::Cluster::new(&[&target], config).expect("a target")
    }

    fn metrics(&self, index: usize) -> Option<String> {
        let mut stream = connect(&format!("{}:{ADMIN_PORT}", self.host(index)))?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        Some(page)
    }

    /// Of a server: members that it knows, shards that it is primary of, and backup of.
    fn told(&self, index: usize) -> Option<[u64; 3]> {
        let page = self.metrics(index)?;
        let number = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse().ok()
        };
        Some([
            number("dovetail_members")?,
            number("dovetail_shards{role=\"primary\"}")?,
            number("dovetail_shards{role=\"backup\"}")?,
        ])
    }

    /// A number of a server's `/metrics`.
    fn metric(&self, index: usize, name: &str) -> Option<u64> {
        let page = self.metrics(index)?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }

    /// Every shard has all its copies, and every server knows.
    fn until_whole(&self) {
        until("the cluster is whole", || {
            let told: Vec<_> = (0..3).filter_map(|index| self.told(index)).collect();
            let sum = |place: usize| told.iter().map(|one| one[place]).sum::<u64>();
            let is_whole = told.len() == 3 && told.iter().all(|one| one[0] == 3);
            (is_whole && sum(1) == SHARDS && sum(2) == 2 * SHARDS).then_some(())
        });
    }

    /// What was found while no shard moved and no server came or went: on a busy machine it is
    /// tried again.
    #[track_caller]
    fn in_one_configuration<T>(&self, mut find: impl FnMut() -> T) -> T {
        let term = || {
            let terms = [0, 1, 2].map(|index| self.metric(index, "dovetail_term"));
            terms.iter().all(|term| *term == terms[0]).then_some(terms[0]?)
        };
        until("one configuration lasts", || {
            let before = term()?;
            let found = find();
            (term()? == before).then_some(found)
        })
    }

    fn kill(&mut self, index: usize) {
        self.servers[index].kill().expect("it runs");
        self.servers[index].wait().expect("it ends");
    }

    fn start_again(&mut self, index: usize) {
        self.servers[index] = self.server_command(index).spawn().expect("the binary starts");
    }

    /// Ends it as a user would; what it said on the way.
    fn end(&mut self, index: usize) -> String {
        self.signal(index, rustix::process::Signal::TERM);
        let server = &mut self.servers[index];
        let mut said = String::new();
        server.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(server.wait().expect("it ends").success(), "{said}");
        said
    }

    fn signal(&self, index: usize, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.servers[index]);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// The signal stops one thread after the other.
    fn until_stopped(&self, index: usize) {
        let tasks = format!("/proc/{}/task", self.servers[index].id());
        until("all its threads have stopped", || {
            let mut tasks = std::fs::read_dir(&tasks).ok()?;
            let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let path = task.ok()?.path().join("stat");
                // NUMBER (NAME) STATE
                std::fs::read_to_string(path)
                    .ok()?
                    .rsplit(") ")
                    .next()?
                    .starts_with('T')
                    .then_some(())
            };
            tasks.all(|task| is_stopped(task).is_some()).then_some(())
        });
    }

    /// The server of a key.
    fn primary(&self, key: &str) -> usize {
        until("somebody serves the key", || {
            (0..3).find(|index| {
                let stream = connect(&self.resp(*index));
                let reply =
                    stream.and_then(|stream| ask(&mut BufReader::new(stream), &["GET", key]));
                reply.is_some_and(|reply| !reply.starts_with('-'))
            })
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
        for child in self.servers.iter_mut().chain(&mut self.managers) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn connect(address: &str) -> Option<TcpStream> {
    let address: SocketAddr = address.parse().expect("an address");
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    Some(stream)
}

fn say(stream: &mut TcpStream, words: &[&str]) -> Option<()> {
    let mut out = format!("*{}\r\n", words.len());
    for word in words {
        out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(out.as_bytes()).ok()
}

/// A value without its length, everything else as its line.
fn hear(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    (stream.read_line(&mut line).ok()? > 0).then_some(())?;
    if line.starts_with('$') && line != "$-1\r\n" {
        line.clear();
        stream.read_line(&mut line).ok()?;
    }
    Some(line.trim_end().to_owned())
}

pub(crate) fn ask(stream: &mut BufReader<TcpStream>, words: &[&str]) -> Option<String> {
    say(stream.get_mut(), words)?;
    hear(stream)
}

struct Client {
    servers: Vec<String>,
    connections: HashMap<String, BufReader<TcpStream>>,
    next: usize,
}

impl Client {
    /// Follows redirects; `None`: the outcome is unknown.
    fn ask(&mut self, words: &[&str]) -> Option<String> {
        self.next = (self.next + 1) % self.servers.len();
        let mut at = self.servers[self.next].clone();
        loop {
            if !self.connections.contains_key(&at) {
                self.connections.insert(at.clone(), BufReader::new(connect(&at)?));
            }
            let reply = ask(self.connections.get_mut(&at)?, words);
            match reply.as_deref().map(|line| line.split(' ').collect::<Vec<_>>()).as_deref() {
                Some(["-MOVED", _, to]) => at = (*to).to_owned(),
                Some(_) => return reply,
                None => {
                    self.connections.remove(&at);
                    return None;
                }
            }
        }
    }

    /// Until it is acknowledged.
    #[track_caller]
    fn set(&mut self, key: &str, value: &str) {
        until("a write is acknowledged", || {
            self.ask(&["SET", key, value]).filter(|reply| reply == "+OK")
        });
    }

    /// Until there is an answer.
    #[track_caller]
    fn get(&mut self, key: &str) -> String {
        until("a read is answered", || {
            self.ask(&["GET", key]).filter(|reply| !reply.starts_with('-'))
        })
    }
}

fn keys() -> impl Iterator<Item = (String, String)> {
    (0..100).map(|number| (format!("key{number}"), format!("value{number}")))
}

#[test]
fn a_killed_node_loses_nothing_and_comes_back() {
    check_kill(Cluster::start(1));
}

#[test]
fn a_killed_node_with_digest_threads_loses_nothing_and_comes_back() {
    let cluster = Cluster::start_with(1, "rowan", 2);
    check_digest(&cluster);
    check_kill(cluster);
}

/// What lands is installed by the digest threads of each server.
#[track_caller]
fn check_digest(cluster: &Cluster) {
    let mut client = cluster.client();
    keys().for_each(|(key, value)| client.set(&key, &value));
    for index in 0..3 {
        for thread in 0..cluster.digest_threads {
            let name = format!("dovetail_digest_entries_total{{thread=\"{thread}\"}}");
            until("it has digested", || (cluster.metric(index, &name)? > 0).then_some(()));
        }
    }
}

#[track_caller]
fn check_kill(mut cluster: Cluster) {
    let mut client = cluster.client();
    keys().for_each(|(key, value)| client.set(&key, &value));
    // A server that does not serve a key names the one that does.
    let primary = cluster.primary("key0");
    let mut other = BufReader::new(connect(&cluster.resp((primary + 1) % 3)).expect("it runs"));
    let moved = ask(&mut other, &["GET", "key0"]).expect("it answers");
    assert!(moved.starts_with("-MOVED ") && moved.ends_with(&cluster.resp(primary)), "{moved}");

    cluster.kill(primary);
    for (key, value) in keys() {
        assert_eq!(client.get(&key), value, "{key}");
    }
    keys().for_each(|(key, value)| client.set(&key, &(value + " again")));
    cluster.start_again(primary);
    cluster.until_whole();
    // What it was given is all there: the others' copies are not asked any more.
    cluster.kill((primary + 1) % 3);
    for (key, value) in keys() {
        assert_eq!(client.get(&key), value + " again", "{key}");
    }
}

#[test]
fn a_rolling_restart_hands_over_and_loses_nothing() {
    let mut cluster = Cluster::start(1);
    let mut client = cluster.client();
    keys().for_each(|(key, value)| client.set(&key, &value));
    for index in 0..3 {
        cluster.kill(index);
        let mut command = cluster.server_command(index);
        cluster.servers[index] = command.stderr(Stdio::piped()).spawn().expect("it starts");
        cluster.until_whole();
        let said = cluster.end(index);
        assert!(said.contains("other servers have taken over"), "{said}");
        for (key, value) in keys() {
            assert_eq!(client.get(&key), value, "{key}");
        }
        cluster.start_again(index);
        cluster.until_whole();
    }
    // Where writes need two copies, the second one is not let go.
    let mut said = String::new();
    for index in 0..2 {
        cluster.kill(index);
        let mut command = cluster.server_command(index);
        cluster.servers[index] = command.stderr(Stdio::piped()).spawn().expect("it starts");
        cluster.until_whole();
    }
    for index in 0..2 {
        said = cluster.end(index);
    }
    assert!(said.contains("no others take over"), "{said}");
}

#[test]
fn what_was_flushed_does_not_come_back_with_the_next_primary() {
    check_flush(Cluster::start(1));
}

#[test]
fn what_was_flushed_does_not_come_back_where_digest_threads_install() {
    let cluster = Cluster::start_with(1, "write", 1);
    check_digest(&cluster);
    check_flush(cluster);
}

/// The replies of one server to FLUSHALL, DBSIZE and RANDOMKEY.
fn flush(at: &str) -> [Option<String>; 3] {
    let mut stream = BufReader::new(connect(at).expect("it runs"));
    ["FLUSHALL", "DBSIZE", "RANDOMKEY"].map(|word| ask(&mut stream, &[word]))
}

#[track_caller]
fn check_flush(mut cluster: Cluster) {
    let mut client = cluster.client();
    keys().for_each(|(key, value)| client.set(&key, &value));
    // A shard that moves meanwhile may miss all three flushes.
    let (flushed, left) = cluster.in_one_configuration(|| {
        let flushed = [0, 1, 2].map(|index| flush(&cluster.resp(index)));
        let left: Vec<_> = keys().filter(|(key, _)| client.get(key) != "$-1").collect();
        (flushed, left)
    });
    // Whatever is still in its index, no client is shown it.
    let want = ["+OK", ":0", "$-1"].map(|line| Some(line.to_owned()));
    assert_eq!(flushed, [(); 3].map(|()| want.clone()));
    assert_eq!(left, []);
    keys().step_by(3).for_each(|(key, value)| client.set(&key, &(value + " again")));
    let check = |client: &mut Client| {
        for (number, (key, value)) in keys().enumerate() {
            let want = if number % 3 == 0 { value + " again" } else { "$-1".to_owned() };
            assert_eq!(client.get(&key), want, "{key}");
        }
    };
    check(&mut client);
    let primary = cluster.primary("key0");
    cluster.kill(primary);
    check(&mut client);
    cluster.start_again(primary);
    cluster.until_whole();
    cluster.kill((primary + 1) % 3);
    check(&mut client);
}

#[test]
fn native_clients_find_each_key_and_follow_a_failover() {
    let mut cluster = Cluster::start(1);
    let mut native = cluster.native_client();
    keys().for_each(|(key, value)| native.set(key.as_bytes(), value.as_bytes()).unwrap());
    until("the one has named the others", || {
        native.get(b"key0").expect("it is served");
        (native.servers().len() == 3).then_some(())
    });
    let names: Vec<String> = keys().map(|(key, _)| key).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let values: Vec<_> = keys().map(|(_, value)| Some(value.into_bytes())).collect();
    assert_eq!(native.mget(&names).unwrap(), values);
    // In parts, by the same ways.
    let large: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
    native.set(b"large", &large).unwrap();
    assert!(native.get(b"large").unwrap().is_some_and(|found| found == large));
    for key in ["one", "two", "three"].map(str::as_bytes) {
        assert_eq!(native.incr(key, 40).unwrap(), 40);
        assert_eq!(native.incr(key, 2).unwrap(), 42);
        assert!(native.delete(key).unwrap() && !native.delete(key).unwrap());
    }
    let mut resp = cluster.client();
    keys().for_each(|(key, value)| assert_eq!(resp.get(&key), value, "{key}"));

    let primary = cluster.primary("key0");
    cluster.kill(primary);
    for (key, value) in keys() {
        assert_eq!(native.get(key.as_bytes()).unwrap(), Some(value.into_bytes()), "{key}");
    }
    // It may be sent again where the outcome is unknown.
    let mut set = |key: &str, value: &str| {
        until("a write is acknowledged", || native.set(key.as_bytes(), value.as_bytes()).ok());
    };
    keys().for_each(|(key, value)| set(&key, &(value + " again")));
    keys().for_each(|(key, value)| assert_eq!(resp.get(&key), value + " again", "{key}"));
    cluster.start_again(primary);
    cluster.until_whole();
    cluster.kill((primary + 1) % 3);
    for (key, value) in keys() {
        let found = native.get(key.as_bytes()).unwrap();
        assert_eq!(found, Some((value + " again").into_bytes()), "{key}");
    }
}

#[test]
fn one_copy_of_three_takes_no_writes() {
    let mut cluster = Cluster::start(1);
    let mut client = cluster.client();
    keys().for_each(|(key, value)| client.set(&key, &value));
    cluster.kill(0);
    cluster.kill(1);
    until("writes are refused for want of copies", || {
        let reply = client.ask(&["SET", "key0", "too few"])?;
        assert_ne!(reply, "+OK", "acknowledged by one copy");
        reply.starts_with("-NOREPLICAS").then_some(())
    });
    // Reads go on, or say that they do not.
    for (key, value) in keys() {
        if let Some(reply) = client.ask(&["GET", &key]).filter(|reply| !reply.starts_with('-')) {
            assert_eq!(reply, value, "{key}");
        }
    }
    cluster.start_again(0);
    cluster.start_again(1);
    cluster.until_whole();
    keys().skip(1).for_each(|(key, value)| assert_eq!(client.get(&key), value, "{key}"));
}

#[test]
fn another_manager_takes_over() {
    let mut cluster = Cluster::start(2);
    let mut client = cluster.client();
    keys().for_each(|(key, value)| client.set(&key, &value));
    let leads = std::fs::read_to_string(cluster.folder.path().join("leader")).expect("one leads");
    let is_first = leads.contains(&format!("{}:", cluster.address(0)));
    let leader = &mut cluster.managers[usize::from(!is_first)];
    leader.kill().expect("it runs");
    leader.wait().expect("it ends");
    // Only a manager that leads can give the shards of this one to others.
    cluster.kill(0);
    keys().for_each(|(key, value)| assert_eq!(client.get(&key), value, "{key}"));
    keys().for_each(|(key, value)| client.set(&key, &(value + " again")));
    cluster.start_again(0);
    cluster.until_whole();
}

#[test]
fn a_primary_that_was_stopped_says_nothing_stale() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client();
    keys().for_each(|(key, _)| client.set(&key, "old"));
    let primary = cluster.primary("key0");
    let mut early = BufReader::new(connect(&cluster.resp(primary)).expect("it runs"));
    assert_eq!(ask(&mut early, &["GET", "key0"]).as_deref(), Some("old"));
    cluster.signal(primary, rustix::process::Signal::STOP);
    cluster.until_stopped(primary);
    // Half of what asks it is there before it wakes.
    say(early.get_mut(), &["GET", "key0"]).expect("the kernel takes it");
    let others = cluster.resp((primary + 1) % 3);
    until("another is primary", || {
        let mut other = BufReader::new(connect(&others)?);
        let reply = ask(&mut other, &["SET", "key0", "new"])?;
        let is_new = reply == "+OK"
            || reply
                .strip_prefix("-MOVED ")
                .is_some_and(|rest| !rest.ends_with(&cluster.resp(primary)));
        is_new.then_some(())
    });
    // It serves no shard any more.
    let mut client = Client { servers: vec![others], ..cluster.client() };
    keys().for_each(|(key, _)| client.set(&key, "new"));
    cluster.signal(primary, rustix::process::Signal::CONT);
    let stale = |reply: &Option<String>| reply.as_deref() == Some("old");
    assert!(!stale(&hear(&mut early)), "what was asked while it was stopped");
    for (key, _) in keys() {
        assert!(!stale(&ask(&mut early, &["GET", &key])), "{key}");
    }
    cluster.until_whole();
    keys().for_each(|(key, _)| assert_eq!(client.get(&key), "new", "{key}"));
}

/// Commands on several keys at all servers at once: each waits for the others to take in what it
/// writes.
#[track_caller]
fn check_groups(cluster: &Cluster) {
    const ROUNDS: usize = 50;
    let count_bad = |at: &str, tag: &str, client: usize| {
        let mut stream = BufReader::new(connect(at).expect("it listens"));
        let [first, second] = ["a", "b"].map(|name| format!("{{{tag}}}{client}{name}"));
        let mut good_count = 0;
        for _ in 0..ROUNDS {
            let set = ask(&mut stream, &["MSET", &first, "1", &second, "2"]);
            let deleted = ask(&mut stream, &["DEL", &first, &second]);
            good_count += usize::from(set.as_deref() == Some("+OK"));
            good_count += usize::from(deleted.as_deref() == Some(":2"));
        }
        2 * ROUNDS - good_count
    };
    // Of each server one key that it serves: on a busy machine some may serve none for a while.
    let tag_of = |server: usize| {
        let mut tags = (0..100).map(|number| format!("tag{number}"));
        tags.find(|tag| cluster.primary(tag) == server).map(|tag| (cluster.resp(server), tag))
    };
    let count_all = || {
        let all: Vec<_> = (0..3).filter_map(tag_of).collect();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (at, tag) in &all {
                let start = |client| scope.spawn(move || count_bad(at, tag, client));
                threads.extend([0, 1].map(start));
            }
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum::<usize>()
        })
    };
    // Leases may end for a moment in a configuration that lasts.
    let bad_count = cluster.in_one_configuration(count_all);
    let count = 6 * 2 * ROUNDS;
    assert!(bad_count * 10 < count, "{}: {bad_count} of {count}", cluster.scheme);
}

/// Writes land as the scheme has it, and nothing is lost with a node.
#[track_caller]
fn check_scheme(scheme: &'static str, preset: &str) {
    let mut cluster = Cluster::start_by(1, scheme);
    check_groups(&cluster);
    let mut client = cluster.client();
    keys().for_each(|(key, value)| client.set(&key, &value));
    for index in 0..3 {
        let name = format!("dovetail_replication_info{{scheme=\"{scheme}\"}}");
        until("its scheme is told", || (cluster.metric(index, &name)? == 1).then_some(()));
        until("entries have come down", || {
            let frames = "dovetail_replication_frames_total{dir=\"received\"}";
            let streams = cluster.metric(index, "dovetail_replication_write_streams")?;
            (streams > 0 && cluster.metric(index, frames)? > 0).then_some(())
        });
    }
    cluster.kill(0);
    let mut client = Client { servers: vec![cluster.resp(1), cluster.resp(2)], ..client };
    keys().for_each(|(key, value)| assert_eq!(client.get(&key), value, "{scheme}: {key}"));
    cluster.servers[0] = cluster.server_command(0).args(["--preset", preset]).spawn().expect("it");
    cluster.until_whole();
    cluster.kill(1);
    let mut client = Client { servers: vec![cluster.resp(0), cluster.resp(2)], ..client };
    keys().for_each(|(key, value)| assert_eq!(client.get(&key), value, "{scheme}: {key}"));
}

#[test]
fn writes_are_requests_to_workers() {
    check_scheme("rpc", "rpc-kv");
}

#[test]
fn each_thread_writes_a_log_of_its_own() {
    check_scheme("write", "rwrite-kv");
}

#[test]
fn threads_write_several_entries_at_a_time() {
    check_scheme("batch", "batch-kv");
}

#[test]
fn threads_of_a_server_share_a_log() {
    check_scheme("share", "share-kv");
}

#[track_caller]
fn expect_refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {said}", output.status);
    // Log lines come before it.
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains(words), "{said}");
}

#[test]
fn flags_that_contradict_the_cluster_are_refused() {
    let cluster = Cluster::start(1);
    let refused = |flags: &[&str]| {
        let mut command = cluster.server_command(3);
        command.args(flags).stderr(Stdio::piped()).output().expect("the binary starts")
    };
    expect_refused(&refused(&["--copies", "2"]), "--copies 2");
    expect_refused(&refused(&["--min-copies", "1"]), "--min-copies 1");
    let rpc = "--replication rpc, but the cluster dovetail was made with rowan";
    expect_refused(&refused(&["--preset", "rpc-kv"]), rpc);
    let listen = format!("{}:7600", cluster.address(9));
    let mut manager = command();
    manager.args([
        "cm",
        "--config-store",
        &cluster.config_store(),
        "--listen",
        &listen,
        "--copies",
        "2",
    ]);
    expect_refused(&manager.stderr(Stdio::piped()).output().expect("it starts"), "copies");
}
