//! Knocks at every door of a server in every state that clients can bring about while it runs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use counters::{DropReason, UdpDrop};
use sessions::doors::{Access, DefaultUser, Door, State, answer};

use crate::support::native::{Peer, get};
use crate::support::{Client, PATIENCE, TestServer, config, free_udp_port, read_some};
use landing::shm::{ClientConfig, ClientEnd, Woken};
use server::{Config, UdpConfig};
use wire::native::{Frame, Hello, Kind, Reason, Refusal, TagKey, Versions};

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// An address of a private namespace that is not the loopback interface's, although its packets go
/// through that.
const FAR: &str = "10.98.7.1";

/// Files of one server: they go with it.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A server with all doors that need no certificates.
fn start(files: &Files, has_key: bool, ip: &str, wanted: Config) -> TestServer {
    let at = Some(SocketAddr::new(ip.parse().unwrap(), 0));
    std::fs::write(files.path("key"), KEY).unwrap();
    let all = Config {
        resp: at,
        memcached: at,
        native: at,
        admin: Some(([127, 0, 0, 1], 0).into()),
        unix_socket: Some(files.path("resp")),
        memcached_unix_socket: Some(files.path("memcached")),
        shm: Some(files.path("shm")),
        native_key_file: has_key.then(|| files.path("key")),
        ..wanted
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Another process may take the port in between.
        let udp = UdpConfig { port: free_udp_port(), reply_factor: 10 };
        match TestServer::try_with(Config { udp, ..all.clone() }) {
            Ok(server) => return server,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

/// A client that may do everything, at the Unix socket.
struct Boss(UnixStream);

impl Boss {
    fn new(files: &Files) -> Boss {
        let mut boss = Boss(UnixStream::connect(files.path("resp")).unwrap());
        boss.0.set_read_timeout(Some(PATIENCE)).unwrap();
        boss.does("ACL SETUSER boss on >b ~* +@all");
        boss.does("AUTH boss b");
        boss
    }

    #[track_caller]
    fn does(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut reply = [0; 5];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply.escape_ascii().to_string(), b"+OK\r\n".escape_ascii().to_string());
    }
}

/// What the loopback interface finds at a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Served,
    ServedAfterLogin,
    Shut,
}

fn line_of(stream: &mut (impl Read + Write), ask: &str) -> String {
    // The server may have said no already, and closed.
    let _ = stream.write_all(ask.as_bytes());
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") && read_some(stream, &mut byte).is_ok_and(|count| count == 1) {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn knock_resp(mut stream: impl Read + Write) -> Found {
    match line_of(&mut stream, "GET k\r\n") {
        line if line.starts_with('$') => Found::Served,
        line => {
            assert!(line.starts_with("-NOAUTH"), "{line}");
            assert_eq!(line_of(&mut stream, "AUTH boss b\r\n"), "+OK\r\n");
            assert!(line_of(&mut stream, "GET k\r\n").starts_with('$'));
            Found::ServedAfterLogin
        }
    }
}

fn knock_memcached(mut stream: impl Read + Write) -> Found {
    match line_of(&mut stream, "get k\r\n") {
        line if line == "END\r\n" => Found::Served,
        line if line.starts_with("CLIENT_ERROR closed") => {
            assert_eq!(line_of(&mut stream, "version\r\n"), "", "the connection is over");
            Found::Shut
        }
        line => {
            assert_eq!(line, "CLIENT_ERROR unauthenticated\r\n");
            assert_eq!(line_of(&mut stream, "set a 0 0 3\r\nu x\r\n"), "STORED\r\n");
            assert_eq!(line_of(&mut stream, "get k\r\n"), "END\r\n");
            Found::ServedAfterLogin
        }
    }
}

fn tcp(address: SocketAddr) -> TcpStream {
    Client::connect(address).stream
}

fn unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a datagram of memcached until it is answered, or dropped for that reason.
fn knock_udp(server: &TestServer, ip: &str, reason: UdpDrop) -> Found {
    let port = server.server().shared().config().udp.port;
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.connect((ip, port)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let dropped = || server.server().shared().totals().udp.drops[reason as usize];
    let before = dropped();
    socket.send(b"\0\x01\0\0\0\x01\0\0get k\r\n").unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut reply = [0; 64];
    loop {
        if let Ok(count) = socket.recv(&mut reply) {
            assert_eq!(&reply[8..count], b"END\r\n");
            return Found::Served;
        }
        if dropped() > before {
            return Found::Shut;
        }
        assert!(Instant::now() < deadline, "neither answered nor dropped");
        std::thread::yield_now();
    }
}

fn tag_key() -> TagKey {
    TagKey::from_hex(KEY).unwrap()
}

fn refusal_in(bytes: &[u8], key: Option<&TagKey>) -> Option<Reason> {
    let frame = Frame::parse(bytes, key).unwrap();
    let is_refused = frame.header.kind == Kind::Refusal;
    is_refused.then(|| Refusal::parse(&frame).unwrap().reason)
}

fn knock_native(server: &TestServer, has_key: bool) -> Found {
    if has_key {
        // Without the key a frame is not even answered.
        let stranger = Peer::bind(server, None);
        let tags = || server.server().shared().totals().native.drops[DropReason::Tag as usize];
        let before = tags();
        stranger.send_hello(None);
        let mut friend = Peer::connect_with(server, Some(tag_key()));
        friend.wait_for(|| tags() > before);
        friend.ask(&[get(b"k")]);
        return Found::ServedAfterLogin;
    }
    match refusal_in(&Peer::bind(server, None).hello(None), None) {
        Some(reason) => {
            assert_eq!(reason, Reason::Closed);
            Found::Shut
        }
        None => {
            Peer::connect(server).ask(&[get(b"k")]);
            Found::Served
        }
    }
}

/// The kind of the answer to a hello through shared memory.
fn knock_shm(files: &Files, has_key: bool) -> Found {
    let mut end = ClientEnd::connect(&files.path("shm"), ClientConfig::default()).unwrap();
    let hello = Hello {
        versions: Versions::OURS,
        frame_max_bytes: end.frame_len_max() as u32,
        cookie: None,
        nonce: 7,
        replaces: None,
    };
    let key = has_key.then(tag_key);
    let mut bytes = [0; 128];
    let len_bytes = hello.encode(1, key.as_ref(), &mut bytes).unwrap();
    assert!(end.write(&bytes[..len_bytes]).unwrap());
    end.publish();
    let reply = loop {
        if let Some(frame) = end.receive().unwrap() {
            break frame.to_vec();
        }
        assert_eq!(end.wait(Some(PATIENCE)).unwrap(), Woken::Ready);
    };
    match refusal_in(&reply, key.as_ref()) {
        Some(reason) => {
            assert_eq!(reason, Reason::Closed);
            Found::Shut
        }
        None if has_key => Found::ServedAfterLogin,
        None => Found::Served,
    }
}

fn knock_admin(server: &TestServer) -> Found {
    let mut stream = tcp(server.server().admin_addr().unwrap());
    let line = line_of(&mut stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(line.contains("200"), "{line}");
    Found::Served
}

/// All doors, by what the table says for the loopback interface.
fn check_doors(server: &TestServer, files: &Files, state: &State) {
    let has_key = state.has_native_key;
    for door in Door::ALL {
        let found = match door {
            Door::Resp => knock_resp(tcp(server.server().resp_addr().unwrap())),
            Door::UnixResp => knock_resp(unix(&files.path("resp"))),
            Door::Memcached => knock_memcached(tcp(server.server().memcached_addr().unwrap())),
            Door::UnixMemcached => knock_memcached(unix(&files.path("memcached"))),
            Door::MemcachedUdp => knock_udp(server, "127.0.0.1", UdpDrop::Auth),
            Door::Native => knock_native(server, has_key),
            Door::Shm => knock_shm(files, has_key),
            Door::Admin => knock_admin(server),
            // They need certificates, and a cluster.
            Door::TlsResp | Door::TlsMemcached | Door::Peer => continue,
        };
        let want = match answer(door, state) {
            Access::Open | Access::LoopbackOnly => Found::Served,
            Access::AfterLogin => Found::ServedAfterLogin,
            Access::Closed => Found::Shut,
        };
        assert_eq!(found, want, "{door:?} in {state:?}");
    }
}

/// How the user `default` changes while a server runs.
const STEPS: [(&str, DefaultUser); 11] = [
    ("CONFIG SET requirepass x", DefaultUser::Locked),
    ("CONFIG SET requirepass \"\"", DefaultUser::Open),
    ("ACL SETUSER default -flushall", DefaultUser::Limited),
    ("ACL SETUSER default +flushall", DefaultUser::Open),
    ("ACL SETUSER default off", DefaultUser::Shut),
    ("ACL SETUSER default on", DefaultUser::Open),
    ("ACL SETUSER default >x", DefaultUser::Locked),
    ("ACL SETUSER default resetkeys ~a:*", DefaultUser::Shut),
    ("ACL SETUSER default allkeys", DefaultUser::Locked),
    ("ACL SETUSER default resetpass", DefaultUser::Shut),
    ("ACL SETUSER default nopass", DefaultUser::Open),
];

fn check_every_state(has_key: bool, is_insecure: bool) {
    let files = Files::new();
    let server = start(&files, has_key, "127.0.0.1", Config { is_insecure, ..config() });
    let mut boss = Boss::new(&files);
    let mut state = State {
        default_user: DefaultUser::Open,
        has_auth_file: false,
        has_native_key: has_key,
        requires_certificates: false,
        has_admin_login: false,
        is_insecure,
    };
    check_doors(&server, &files, &state);
    for (line, default_user) in STEPS {
        boss.does(line);
        state.default_user = default_user;
        check_doors(&server, &files, &state);
    }
}

#[test]
fn every_door_answers_as_the_table_says_after_each_change_of_the_users() {
    check_every_state(false, false);
}

#[test]
fn a_native_key_keeps_the_native_doors_as_they_are_in_every_state() {
    check_every_state(true, false);
}

#[test]
fn insecure_keeps_the_native_doors_open_in_every_state() {
    check_every_state(false, true);
}

#[test]
fn native_sessions_without_a_key_end_when_a_password_is_set() {
    let files = Files::new();
    let server = start(&files, false, "127.0.0.1", config());
    let mut boss = Boss::new(&files);
    let mut peers: Vec<Peer> = (0..8).map(|_| Peer::connect(&server)).collect();
    for peer in &mut peers {
        peer.ask(&[get(b"k")]);
    }
    let sessions = || server.server().shared().totals().native.sessions;
    assert_eq!(sessions(), 8);
    boss.does("CONFIG SET requirepass x");
    assert_eq!(sessions(), 0);
    for peer in &mut peers {
        peer.send(&[get(b"k")]);
        assert_eq!(peer.receive_refusal().reason, Reason::UnknownSession);
        assert_eq!(refusal_in(&peer.hello(None), None), Some(Reason::Closed));
    }
    boss.does("CONFIG SET requirepass \"\"");
    Peer::connect(&server).ask(&[get(b"k")]);
}

#[test]
fn native_sessions_end_when_a_file_of_users_that_is_read_again_has_a_password() {
    let files = Files::new();
    let path = files.path("users");
    std::fs::write(&path, "user default on nopass ~* +@all\n").unwrap();
    let acl_file = Some(path.clone());
    let server = start(&files, false, "127.0.0.1", Config { acl_file, ..config() });
    let mut peer = Peer::connect(&server);
    peer.ask(&[get(b"k")]);
    std::fs::write(&path, "user default on >x ~* +@all\n").unwrap();
    assert!(server.server().shared().reload().iter().all(Result::is_ok));
    peer.send(&[get(b"k")]);
    assert_eq!(peer.receive_refusal().reason, Reason::UnknownSession);
    assert_eq!(refusal_in(&peer.hello(None), None), Some(Reason::Closed));
}

#[test]
fn sessions_that_show_the_key_go_on_when_a_password_is_set() {
    let files = Files::new();
    let server = start(&files, true, "127.0.0.1", config());
    let mut boss = Boss::new(&files);
    let mut peer = Peer::connect_with(&server, Some(tag_key()));
    boss.does("CONFIG SET requirepass x");
    peer.ask(&[get(b"k")]);
}

/// Runs an ignored test of this file with an address beyond loopback, in a network namespace.
fn run_in_a_namespace(inner: &str) {
    let outer = std::thread::current();
    let module = outer.name().unwrap().rsplit_once("::").map_or("", |(module, _)| module);
    let inner = format!("{module}::{inner}");
    let prepare =
        format!("ip link set lo up && ip address add {FAR}/32 dev lo && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &prepare]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", inner.trim_start_matches("::"), "--ignored"]).output();
    let Some(output) = output.ok().filter(|output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        !said.contains("unshare: ") && !said.contains("ip: ")
    }) else {
        println!("skipped: a network namespace needs root, unshare and ip");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn strangers_are_denied_as_soon_as_the_last_password_goes() {
    run_in_a_namespace("in_a_namespace_strangers_are_denied_as_the_last_password_goes");
}

#[test]
fn a_denial_stands_behind_the_replies_under_way() {
    run_in_a_namespace("in_a_namespace_a_denial_stands_behind_the_replies_under_way");
}

/// A server with a user without a password, its address beyond loopback, and a client of default.
fn start_for_nop(
    threads: usize,
    cr_threads: Option<usize>,
) -> (Files, TestServer, SocketAddr, Client) {
    let files = Files::new();
    let requirepass = Some("x".to_owned());
    let config = Config { requirepass, threads, cr_threads, ..config() };
    let server = start(&files, false, "0.0.0.0", config);
    let port = server.server().resp_addr().unwrap().port();
    let mut boss = Client::connect(SocketAddr::from(([127, 0, 0, 1], port)));
    boss.ask("AUTH x\r\n", "+OK\r\n");
    boss.ask("ACL SETUSER nop on nopass +@all ~*\r\n", "+OK\r\n");
    (files, server, SocketAddr::new(FAR.parse().unwrap(), port), boss)
}

/// A door that closes while commands are under way: at another worker, in the same round, or in the
/// client's own EXEC.
#[test]
#[ignore = "needs a network namespace: the test above runs it in one, in cargo xtask test"]
fn in_a_namespace_a_denial_stands_behind_the_replies_under_way() {
    const PAIRS: usize = 1_000;
    for (threads, cr_threads) in [(1, None), (3, Some(1))] {
        let (_files, _server, resp, mut boss) = start_for_nop(threads, cr_threads);
        boss.ask("SET a value\r\n", "+OK\r\n");
        for way in ["ACL SETUSER default nopass", "CONFIG SET requirepass \"\""] {
            for _ in 0..15 {
                let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(resp)).collect();
                for client in &mut clients {
                    client.ask("AUTH nop x\r\n", "+OK\r\n");
                }
                for client in &mut clients {
                    client.send("SET a value\r\nGET a\r\n".repeat(PAIRS));
                }
                boss.ask(format!("{way}\r\n"), "+OK\r\n");
                for mut client in clients {
                    let said = String::from_utf8(client.read_to_end()).unwrap();
                    let (replies, denial) = said.split_once("-DENIED ").unwrap();
                    let whole = "+OK\r\n$5\r\nvalue\r\n".repeat(PAIRS);
                    assert!(whole.starts_with(replies), "{said}");
                    assert!(denial.ends_with("on\r\n") && denial.lines().count() == 1, "{said}");
                }
                boss.ask("CONFIG SET requirepass x\r\n", "+OK\r\n");
            }
            let mut nop = Client::connect(resp);
            nop.ask("AUTH nop x\r\nMULTI\r\n", "+OK\r\n+OK\r\n");
            nop.ask(format!("{way}\r\nGET a\r\n"), "+QUEUED\r\n+QUEUED\r\n");
            nop.send("EXEC\r\nGET a\r\n");
            let said = String::from_utf8(nop.read_to_end()).unwrap();
            let refused = "*2\r\n+OK\r\n-NOAUTH Authentication required.\r\n-DENIED ";
            assert!(said.starts_with(refused) && said.lines().count() == 4, "{said}");
            boss.ask("CONFIG SET requirepass x\r\n", "+OK\r\n");
        }
    }
}

#[test]
fn a_denial_stands_behind_a_reply_in_parts() {
    run_in_a_namespace("in_a_namespace_a_denial_stands_behind_a_reply_in_parts");
}

/// A door that closes while clients have read the first part of a long reply.
#[test]
#[ignore = "needs a network namespace: the test above runs it in one, in cargo xtask test"]
fn in_a_namespace_a_denial_stands_behind_a_reply_in_parts() {
    const KEYS: usize = 100;
    const VALUE_BYTES: usize = 1 << 20;
    for (threads, cr_threads) in [(1, None), (3, Some(1))] {
        let (_files, _server, resp, mut boss) = start_for_nop(threads, cr_threads);
        let value = "v".repeat(VALUE_BYTES);
        boss.ask(format!("*3\r\n$3\r\nSET\r\n$1\r\nv\r\n${VALUE_BYTES}\r\n{value}\r\n"), "+OK\r\n");
        let mut client = Client::connect(resp);
        client.ask("AUTH nop x\r\n", "+OK\r\n");
        client.send(format!("MGET{}\r\nGET v\r\n", " v".repeat(KEYS)));
        client.expect(format!("*{KEYS}\r\n"));
        boss.ask("ACL SETUSER default nopass\r\n", "+OK\r\n");
        for _ in 0..KEYS {
            client.expect(format!("${VALUE_BYTES}\r\n{value}\r\n"));
        }
        let said = String::from_utf8(client.read_to_end()).unwrap();
        assert!(said.starts_with("-DENIED ") && said.lines().count() == 1, "{said}");
    }
}

#[test]
#[ignore = "needs a network namespace: the test above runs it in one, in cargo xtask test"]
fn in_a_namespace_strangers_are_denied_as_the_last_password_goes() {
    let files = Files::new();
    let requirepass = Some("x".to_owned());
    let server = start(&files, false, "0.0.0.0", Config { requirepass, ..config() });
    let far = |at: Option<SocketAddr>| SocketAddr::new(FAR.parse().unwrap(), at.unwrap().port());
    let resp = far(server.server().resp_addr());
    let memcached = far(server.server().memcached_addr());
    let mut boss = Boss(unix(&files.path("resp")));
    boss.does("AUTH x");
    let (mut known, mut unknown) = (Client::connect(resp), Client::connect(resp));
    known.ask("AUTH x\r\n", "+OK\r\n");
    unknown.ask("PING\r\n", "-NOAUTH Authentication required.\r\n");
    boss.does("ACL SETUSER al on >pw +get +reset +auth +hello +multi +exec ~a");
    let forgetful = ["RESET", "AUTH default x", "HELLO 3 AUTH default x", "RESET"].map(|forget| {
        let mut al = Client::connect(resp);
        al.ask("AUTH al pw\r\n", "+OK\r\n");
        (al, forget)
    });
    let queueing = ["AUTH default x", "HELLO 3 AUTH default x"].map(|forget| {
        let mut al = Client::connect(resp);
        al.ask("AUTH al pw\r\nMULTI\r\n", "+OK\r\n+OK\r\n");
        al.ask(format!("{forget}\r\nGET a\r\n"), "+QUEUED\r\n+QUEUED\r\n");
        (al, forget)
    });
    let mut unknown_memcached = Client::connect(memcached);
    unknown_memcached.ask("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    boss.does("CONFIG SET requirepass \"\"");
    for stranger in [&mut unknown, &mut Client::connect(resp)] {
        let said = String::from_utf8(stranger.read_to_end()).unwrap();
        assert!(said.starts_with("-DENIED ") && said.ends_with("\r\n"), "{said}");
    }
    for stranger in [&mut unknown_memcached, &mut Client::connect(memcached)] {
        let said = String::from_utf8(stranger.read_to_end()).unwrap();
        assert!(said.starts_with("CLIENT_ERROR protected mode"), "{said}");
    }
    known.ask("GET k\r\n", "$-1\r\n");
    // A client that gives its user up is a stranger, and no command behind runs.
    for (mut al, forget) in forgetful {
        al.ask("GET a\r\n", "$-1\r\n");
        al.send(format!("{forget}\r\nCONFIG SET requirepass mine\r\n"));
        let said = String::from_utf8(al.read_to_end()).unwrap();
        assert!(said.starts_with("-DENIED ") && said.lines().count() == 1, "{forget}: {said}");
    }
    // Nor does what is left of its transaction.
    for (mut al, forget) in queueing {
        al.send("EXEC\r\n");
        let said = String::from_utf8(al.read_to_end()).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 3 && lines[1].starts_with("-DENIED "), "{forget}: {said}");
        assert_eq!(lines[2], "-NOAUTH Authentication required.", "{forget}");
    }
    assert_eq!(knock_udp(&server, FAR, UdpDrop::Protected), Found::Shut);
    let native = UdpSocket::bind((FAR, 0)).unwrap();
    native.connect(far(server.server().native_addr())).unwrap();
    native.set_read_timeout(Some(PATIENCE)).unwrap();
    native.send(&Peer::bind(&server, None).hello_bytes(None)).unwrap();
    let mut bytes = [0; 256];
    let len_bytes = native.recv(&mut bytes).unwrap();
    assert_eq!(refusal_in(&bytes[..len_bytes], None), Some(Reason::Closed));
    let near = |at: Option<SocketAddr>| SocketAddr::from(([127, 0, 0, 1], at.unwrap().port()));
    assert_eq!(knock_resp(tcp(near(server.server().resp_addr()))), Found::Served);
    assert_eq!(knock_memcached(tcp(near(server.server().memcached_addr()))), Found::Served);
    assert_eq!(server.server().shared().totals().doors.protected, 11);
    boss.does("CONFIG SET requirepass y");
    Client::connect(resp).ask("AUTH y\r\n", "+OK\r\n");
    let mut guessing: Vec<Client> = (0..100).map(|_| Client::connect(resp)).collect();
    guessing.iter_mut().for_each(|client| client.send("AUTH no\r\n"));
    let refused = || server.server().shared().totals().doors.logins_refused;
    let deadline = Instant::now() + PATIENCE;
    while refused() < 50 {
        assert!(Instant::now() < deadline, "{} were refused", refused());
        std::thread::yield_now();
    }
    Client::connect(near(server.server().resp_addr())).ask("AUTH y\r\n", "+OK\r\n");
}

#[test]
fn wrong_passwords_wait_and_right_ones_of_this_machine_do_not() {
    let server = TestServer::with(Config { requirepass: Some("x".into()), ..config() });
    let mut guessing: Vec<Client> = (0..16).map(|_| server.resp()).collect();
    let mut guessing_memcached: Vec<Client> = (0..4).map(|_| server.memcached()).collect();
    guessing.iter_mut().for_each(|client| client.send("AUTH no\r\nAUTH x\r\nPING\r\n"));
    guessing_memcached.iter_mut().for_each(|client| client.send("set a 0 0 4\r\nu no\r\n"));
    let doors = || server.server().shared().totals().doors;
    let deadline = Instant::now() + PATIENCE;
    while doors().logins_slowed < 2 {
        assert!(Instant::now() < deadline, "beyond ten they wait");
        std::thread::yield_now();
    }
    for _ in 0..100 {
        server.resp().ask("AUTH x\r\nPING\r\n", "+OK\r\n+PONG\r\n");
        server.memcached().ask("set a 0 0 3\r\nu x\r\n", "STORED\r\n");
    }
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for client in &mut guessing {
        client.expect(wrong);
        client.expect("+OK\r\n+PONG\r\n");
    }
    for client in &mut guessing_memcached {
        client.expect("CLIENT_ERROR authentication failure\r\n");
    }
    assert_eq!(doors().logins_refused, 0);
}

#[test]
fn a_client_that_leaves_while_its_answer_waits_is_forgotten() {
    let server = TestServer::with(Config { requirepass: Some("x".into()), ..config() });
    for _ in 0..20 {
        server.resp().send("AUTH no\r\n");
    }
    let open = || server.server().shared().clients().list().len();
    let deadline = Instant::now() + PATIENCE;
    while open() > 0 {
        assert!(Instant::now() < deadline, "{} are here", open());
        std::thread::yield_now();
    }
}

#[test]
fn a_client_is_told_only_of_keys_that_its_user_may_read() {
    let server = TestServer::start();
    let mut boss = server.resp();
    boss.ask("ACL SETUSER alice on >a +@all ~app:* %W~log:*\r\n", "+OK\r\n");
    let mut alice = server.resp();
    let denied = "-NOPERM this user has no permissions to access one of the keys used as arguments\
                  \r\n";
    alice.send("AUTH alice a\r\n");
    alice.expect("+OK\r\n");
    for asked in ["", " PREFIX ap", " PREFIX log:1", " PREFIX app:1 PREFIX b"] {
        alice.ask(format!("CLIENT TRACKING ON BCAST{asked}\r\n"), denied);
    }
    alice.ask("CLIENT TRACKINGINFO\r\n", "*6\r\n$5\r\nflags\r\n*1\r\n$3\r\noff\r\n");
    let mut alice = server.resp();
    alice.send("HELLO 3 AUTH alice a\r\n");
    alice.send("CLIENT TRACKING ON BCAST PREFIX app:\r\nPING\r\n");
    let mut seen = Vec::new();
    while !seen.ends_with(b"+OK\r\n+PONG\r\n") {
        let mut byte = [0];
        alice.stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    boss.ask("SET app:9 v\r\n", "+OK\r\n");
    alice.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\napp:9\r\n");
    boss.ask("ACL SETUSER alice resetkeys ~app:1*\r\n", "+OK\r\n");
    boss.ask("SET app:2 v\r\n", "+OK\r\n");
    boss.ask("MSET app:3 v app:1x v app:4 v\r\n", "+OK\r\n");
    alice.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\napp:1x\r\n");
    let log = boss_log(&mut boss);
    assert!(log.contains("log:1") && log.contains("alice"), "{log}");
}

fn boss_log(boss: &mut Client) -> String {
    boss.send("ACL LOG\r\nECHO end\r\n");
    let mut seen = Vec::new();
    while !seen.ends_with(b"$3\r\nend\r\n") {
        let mut byte = [0];
        boss.stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

#[test]
fn protected_mode_is_told_by_config_get() {
    for (is_insecure, want) in [(false, "$3\r\nyes\r\n"), (true, "$2\r\nno\r\n")] {
        let server = TestServer::with(Config { is_insecure, ..config() });
        let mut client = server.resp();
        client
            .ask("CONFIG GET protected-mode\r\n", format!("*2\r\n$14\r\nprotected-mode\r\n{want}"));
        let refused = if is_insecure { "yes" } else { "no" };
        client.send(format!("CONFIG SET protected-mode {refused}\r\n"));
        client.expect("-ERR CONFIG SET failed");
    }
}
