//! Tests against a real ZooKeeper, which `cargo xtask test-zookeeper` provides.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::config_store::{Answer, Ask, Path, Request, SessionId, Stamp};
use config_store_zookeeper::{Event, Place, ZooKeeperConfigStore};

const TICK: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A server of its own, in a folder of its own, ended with its handle.
struct ZooKeeper {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl ZooKeeper {
    fn start() -> ZooKeeper {
        let port = free_port();
        let folder = tempfile::tempdir().expect("a folder");
        let child = run(port, &folder);
        let zookeeper = ZooKeeper { child, port, folder };
        zookeeper.until_it_listens();
        zookeeper
    }

    fn until_it_listens(&self) {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(started.elapsed() < PATIENCE, "ZooKeeper does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn restart(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.child = run(self.port, &self.folder);
        self.until_it_listens();
    }

    fn place(&self, name: &str) -> Place {
        format!("zk://127.0.0.1:{}/dovetail/{name}", self.port).parse().expect("a place")
    }
}

fn run(port: u16, folder: &tempfile::TempDir) -> Child {
    let jars = std::env::var_os("DOVETAIL_ZOOKEEPER_JARS");
    let jars = PathBuf::from(jars.expect("cargo xtask test-zookeeper says where the jars are"));
    let settings = folder.path().join("zoo.cfg");
    let text = format!(
        "tickTime={}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         admin.enableServer=false\nmaxSessionTimeout=60000\n",
        TICK.as_millis(),
        folder.path().display(),
    );
    std::fs::write(&settings, text).expect("its settings are written");
    let class_path = format!("{}/*", jars.display());
    Command::new("java")
        .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", &class_path])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(settings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("java starts")
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stands between an asker and the server, and can be cut.
struct Proxy {
    port: u16,
    state: Arc<Mutex<ProxyState>>,
}

#[derive(Default)]
struct ProxyState {
    is_cut: bool,
    streams: Vec<TcpStream>,
}

impl Proxy {
    fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(Mutex::new(ProxyState::default()));
        let shared = Arc::clone(&state);
        // Ends with the process.
        std::thread::spawn(move || {
            for inward in listener.incoming().map_while(Result::ok) {
                let mut state = shared.lock().expect("no thread panics with it");
                if state.is_cut {
                    continue;
                }
                let Ok(outward) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let ends = [&inward, &outward].map(|end| end.try_clone().expect("a second handle"));
                let (inward_again, outward_again) = (inward.try_clone(), outward.try_clone());
                std::thread::spawn(move || carry(inward, outward_again.expect("one")));
                std::thread::spawn(move || carry(outward, inward_again.expect("one")));
                state.streams.extend(ends);
            }
        });
        Proxy { port, state }
    }

    fn cut(&self, is_cut: bool) {
        let mut state = self.state.lock().expect("no thread panics with it");
        state.is_cut = is_cut;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

/// One manager's side.
struct Asker {
    config_store: ZooKeeperConfigStore,
    session: Option<SessionId>,
    next_id: u64,
}

impl Asker {
    fn new(place: Place) -> Asker {
        Asker {
            config_store: ZooKeeperConfigStore::start(place).expect("a thread"),
            session: None,
            next_id: 0,
        }
    }

    /// With a session of so long.
    fn open(place: Place, timeout: Duration) -> Asker {
        let mut asker = Asker::new(place);
        // A server that has just begun to listen may be too slow for the first try.
        let answer = asker.ask_until_answered(&Ask::Open { timeout_ns: nanoseconds(timeout) });
        let Answer::Opened(session) = answer else { panic!("{answer:?}") };
        asker.session = Some(session);
        asker
    }

    fn send(&mut self, ask: Ask) -> u64 {
        self.next_id += 1;
        self.config_store.ask(Request { session: self.session, id: self.next_id, ask });
        self.next_id
    }

    #[track_caller]
    fn ask(&mut self, ask: Ask) -> Answer {
        let id = self.send(ask);
        self.answer(id)
    }

    /// Again while there is no answer: what was on its way when a connection broke has none.
    fn ask_until_answered(&mut self, ask: &Ask) -> Answer {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let id = self.send(ask.clone());
            if let Some(Event::Response(response)) = self.config_store.wait(PATIENCE)
                && response.id == id
            {
                return response.answer;
            }
        }
        panic!("no answer in {PATIENCE:?}")
    }

    #[track_caller]
    fn answer(&mut self, id: u64) -> Answer {
        loop {
            match self.config_store.wait(PATIENCE).expect("an answer") {
                Event::Response(response) if response.id == id => return response.answer,
                Event::Response(_) => {}
                Event::Trouble(line) => panic!("{line}"),
            }
        }
    }
}

fn write(expected: u64, value: &[u8]) -> Ask {
    let (path, expected) = (Path::Configuration, Stamp(expected));
    Ask::Write { path, expected, value: Arc::from(value) }
}

fn claim(value: &[u8]) -> Ask {
    Ask::Claim { path: Path::Leader, value: Arc::from(value) }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a short time")
}

const READ: Ask = Ask::Read(Path::Configuration);
const SESSION: Duration = Duration::from_secs(1);

#[test]
#[ignore = "needs ZooKeeper: cargo xtask test-zookeeper, which cargo xtask nightly runs too"]
fn writes_compare_and_reads_see_them_from_everywhere() {
    let zookeeper = ZooKeeper::start();
    let mut one = Asker::open(zookeeper.place("a"), SESSION);
    let mut two = Asker::open(zookeeper.place("a"), SESSION);
    assert_eq!(one.ask(READ), Answer::Value(Stamp(0), None));
    assert_eq!(one.ask(write(1, b"x")), Answer::Conflict(Stamp(0)));
    assert_eq!(one.ask(write(0, b"x")), Answer::Written(Stamp(1)));
    assert_eq!(two.ask(write(0, b"y")), Answer::Conflict(Stamp(1)));
    assert_eq!(two.ask(READ), Answer::Value(Stamp(1), Some(Arc::from(*b"x"))));
    assert_eq!(two.ask(write(1, b"y")), Answer::Written(Stamp(2)));
    assert_eq!(one.ask(write(1, b"z")), Answer::Conflict(Stamp(2)));
    assert_eq!(one.ask(READ), Answer::Value(Stamp(2), Some(Arc::from(*b"y"))));
    let mut elsewhere = Asker::open(zookeeper.place("b"), SESSION);
    assert_eq!(elsewhere.ask(READ), Answer::Value(Stamp(0), None));
}

#[test]
#[ignore = "needs ZooKeeper: cargo xtask test-zookeeper, which cargo xtask nightly runs too"]
fn a_claim_is_one_sessions_until_that_ends() {
    let zookeeper = ZooKeeper::start();
    let mut one = Asker::open(zookeeper.place("a"), SESSION);
    let mut two = Asker::open(zookeeper.place("a"), SESSION);
    assert_eq!(one.ask(claim(b"1")), Answer::Claimed);
    assert_eq!(one.ask(claim(b"1")), Answer::Claimed, "again by its holder");
    assert_eq!(two.ask(claim(b"2")), Answer::Held);
    let watch = two.send(Ask::Watch(Path::Leader));
    assert_eq!(two.ask(Ask::Beat), Answer::Alive);
    drop(one);
    assert_eq!(two.answer(watch), Answer::Changed(Path::Leader));
    assert_eq!(two.ask(claim(b"2")), Answer::Claimed);
}

#[test]
#[ignore = "needs ZooKeeper: cargo xtask test-zookeeper, which cargo xtask nightly runs too"]
fn a_session_outlives_a_restart_of_the_server() {
    let mut zookeeper = ZooKeeper::start();
    let mut asker = Asker::open(zookeeper.place("a"), SESSION);
    assert_eq!(asker.ask(write(0, b"x")), Answer::Written(Stamp(1)));
    zookeeper.restart();
    let want = Answer::Value(Stamp(1), Some(Arc::from(*b"x")));
    assert_eq!(asker.ask_until_answered(&READ), want);
}

#[test]
#[ignore = "needs ZooKeeper: cargo xtask test-zookeeper, which cargo xtask nightly runs too"]
fn a_manager_that_is_cut_off_loses_the_session_and_its_claim() {
    let zookeeper = ZooKeeper::start();
    let proxy = Proxy::start(zookeeper.port);
    let behind = Place { hosts: format!("127.0.0.1:{}", proxy.port), ..zookeeper.place("a") };
    let mut cut_off = Asker::open(behind, SESSION);
    let mut other = Asker::open(zookeeper.place("a"), SESSION);
    assert_eq!(cut_off.ask(claim(b"1")), Answer::Claimed);
    let watch = other.send(Ask::Watch(Path::Leader));
    assert_eq!(other.ask(Ask::Beat), Answer::Alive);
    let asked_at = Instant::now();
    assert_eq!(cut_off.ask(Ask::Beat), Answer::Alive);
    proxy.cut(true);
    assert_eq!(other.answer(watch), Answer::Changed(Path::Leader));
    assert!(asked_at.elapsed() >= SESSION, "R2: it was promised so long after its last answer");
    assert_eq!(other.ask(claim(b"2")), Answer::Claimed);
    proxy.cut(false);
    assert_eq!(cut_off.ask_until_answered(&Ask::Beat), Answer::Expired);
    assert_eq!(cut_off.ask(Ask::Beat), Answer::Expired, "and for good");
}

#[test]
#[ignore = "needs ZooKeeper: cargo xtask test-zookeeper, which cargo xtask nightly runs too"]
fn an_ensemble_that_is_not_there_is_one_line() {
    let port = free_port();
    let place: Place = format!("zk://127.0.0.1:{port}/x").parse().unwrap();
    let mut asker = Asker::new(place);
    asker.send(Ask::Open { timeout_ns: nanoseconds(SESSION) });
    let Some(Event::Trouble(line)) = asker.config_store.wait(PATIENCE) else { panic!("an answer") };
    assert!(line.starts_with(&format!("zookeeper 127.0.0.1:{port}: ")), "{line}");
    assert!(!line.contains('\n'));
}

#[test]
#[ignore = "needs ZooKeeper: cargo xtask test-zookeeper, which cargo xtask nightly runs too"]
fn nodes_of_a_digest_are_closed_to_others() {
    let zookeeper = ZooKeeper::start();
    let own = Place { digest: Some("me:secret".to_owned()), ..zookeeper.place("a") };
    let mut one = Asker::open(own, SESSION);
    assert_eq!(one.ask(write(0, b"x")), Answer::Written(Stamp(1)));
    let mut stranger = Asker::new(zookeeper.place("a"));
    stranger.send(Ask::Open { timeout_ns: nanoseconds(SESSION) });
    let Some(Event::Trouble(line)) = stranger.config_store.wait(PATIENCE) else {
        panic!("it opens")
    };
    assert!(line.ends_with("not authorized"), "{line}");
}
