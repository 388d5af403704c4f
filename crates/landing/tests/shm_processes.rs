//! Shared memory between real processes: this test binary starts itself again as the client.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use landing::shm::{
    Accepted, Acceptor, AcceptorConfig, Armed, ClientConfig, ClientEnd, ConnectError, Frame, Gone,
    Refusal, RingSize, ServerEnd,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::hostile;

const ROLE: &str = "DOVETAIL_SHM_ROLE";
const SOCKET: &str = "DOVETAIL_SHM_SOCKET";
/// A client in another process takes a while to start on a busy machine; only a failure waits so
/// long.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// A client that blocks at once, so that each frame needs its bells.
const NO_SPIN: ClientConfig =
    ClientConfig { connect_timeout: Duration::from_secs(60), spin_rounds: 0 };

/// A server's socket in a directory of its own.
struct Server {
    acceptor: Acceptor,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

fn server() -> Server {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dovetail.sock");
    let ring = RingSize::new(4096).unwrap();
    let config = AcceptorConfig { ring, clients_max: 8, ..AcceptorConfig::default() };
    Server { acceptor: Acceptor::listen(&path, config).unwrap(), path, _directory: directory }
}

impl Server {
    fn start(&self, role: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["shm_processes::the_other_process", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(SOCKET, &self.path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn accept(&self) -> ServerEnd {
        wait_readable(&self.acceptor);
        match self.acceptor.accept().unwrap() {
            Accepted::Client(end) => end,
            _ => panic!("a client was waiting"),
        }
    }

    /// Serves another, well-behaved client: the server is unharmed.
    fn check_serves(&self) {
        let mut child = self.start("echo");
        echo_until_gone(&mut self.accept());
        assert!(child.wait().unwrap().success());
    }
}

fn wait_readable(fd: impl AsFd) {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut polled, Some(&PATIENCE)), Ok(1), "no bell rang");
}

/// Sends every request back, sleeping in between, until the client disconnects.
fn echo_until_gone(end: &mut ServerEnd) -> Gone {
    loop {
        if let Err(gone) = echo(end) {
            return gone;
        }
    }
}

fn echo(end: &mut ServerEnd) -> Result<(), Gone> {
    let mut arena = [0; 4096];
    let mut frames = Vec::new();
    end.poll(&mut arena, 1, |frame: Frame| frames.push(frame))?;
    for frame in &frames {
        let reply = &arena[frame.offset..frame.offset + frame.len_bytes];
        assert!(end.write(reply)?, "poll takes nothing while a reply might not fit");
    }
    end.publish();
    if frames.is_empty() && end.arm(0)? == Armed::Sleep {
        wait_readable(&*end);
        end.hear()?;
    }
    Ok(())
}

/// The code of the child process; in the parent's run of the tests it does nothing.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    match role.as_str() {
        "echo" => ask_for_echoes(&path),
        "half a frame" => hostile::Raw::connect(&path).die_in_the_middle_of_a_frame(),
        "cut the memory" => hostile::Raw::connect(&path).try_to_cut_the_memory(),
        "garbage" => hostile::Raw::connect(&path).scribble(),
        "ring without end" => hostile::Raw::connect(&path).ring_without_end(),
        "stranger" => be_a_stranger(&path),
        _ => panic!("{role} is no role"),
    }
}

fn ask_for_echoes(path: &Path) {
    let mut client = ClientEnd::connect(path, NO_SPIN).unwrap();
    for number in 0..300_usize {
        let len_bytes = 1 + number * 7 % client.frame_len_max();
        let request: Vec<u8> = (0..len_bytes).map(|at| (number + at) as u8).collect();
        assert!(client.write(&request).unwrap());
        client.publish();
        client.wait(None).unwrap();
        assert_eq!(client.receive().unwrap(), Some(&request[..]));
    }
}

#[test]
fn two_processes_that_always_sleep_answer_each_other() {
    let server = server();
    server.check_serves();
    assert_eq!(server.acceptor.client_count(), 0);
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_frame_leaves_nothing() {
    let server = server();
    let mut child = server.start("half a frame");
    let mut end = server.accept();
    assert!(matches!(echo_until_gone(&mut end), Gone::HungUp));
    assert!(!child.wait().unwrap().success(), "it was killed");
    drop(end);
    assert_eq!(server.acceptor.client_count(), 0);
    server.check_serves();
}

#[test]
fn a_client_cannot_cut_the_memory_under_the_server() {
    let server = server();
    let mut child = server.start("cut the memory");
    let mut end = server.accept();
    // The client's request comes after its attempts; the hole that it made reads as zeros.
    let gone = echo_until_gone(&mut end);
    assert!(matches!(gone, Gone::HungUp), "{gone}");
    assert!(child.wait().unwrap().success());
    server.check_serves();
}

#[test]
fn a_client_that_writes_garbage_everywhere_is_found_out_and_parted_with() {
    let server = server();
    let mut child = server.start("garbage");
    let mut end = server.accept();
    let mut gone = echo_until_gone(&mut end);
    // Its last words may even be valid; at the latest its hang-up is noticed.
    while !matches!(gone, Gone::Fault(_) | Gone::HungUp) {
        gone = echo_until_gone(&mut end);
    }
    drop(end);
    child.kill().unwrap();
    child.wait().unwrap();
    server.check_serves();
}

#[test]
fn a_client_that_rings_without_end_gets_a_turn_and_no_more() {
    let server = server();
    let mut child = server.start("ring without end");
    let mut end = server.accept();
    for _ in 0..100 {
        wait_readable(&end);
        end.hear().unwrap();
    }
    // Meanwhile other clients are served.
    server.check_serves();
    child.kill().unwrap();
    child.wait().unwrap();
    while end.hear().is_ok() {}
}

/// Gives up root, so that the kernel names another user to the server.
fn be_a_stranger(path: &Path) {
    // SAFETY: a plain system call of this process, which has one thread that matters.
    assert_eq!(unsafe { libc::setuid(65_534) }, 0);
    let refused = ClientEnd::connect(path, NO_SPIN).err();
    assert!(matches!(refused, Some(ConnectError::Refused(Refusal::WrongUser))), "{refused:?}");
}

#[test]
fn another_users_client_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can start a process of another user: not tested");
        return;
    }
    let server = server();
    // The mode already keeps strangers out; this test is about the check after it.
    open_up(server.path.parent().unwrap(), 0o755);
    open_up(&server.path, 0o666);
    let mut child = server.start("stranger");
    wait_readable(&server.acceptor);
    let accepted = server.acceptor.accept().unwrap();
    assert!(matches!(accepted, Accepted::Refused(Refusal::WrongUser)));
    assert!(child.wait().unwrap().success());
    assert_eq!(server.acceptor.client_count(), 0);
}

fn open_up(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
