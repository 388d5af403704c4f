//! The server under attack: started with all its doors, monitored, ended by TERM.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::door::{Address, Door, PASSWORD, USER};
use crate::conformance::reply::{Wire, multibulk};

/// The time limit from TERM to the end: a server waits 10 s for clients to read their replies.
const STOP_MAX: Duration = Duration::from_secs(20);
/// The time limit for a server to notice that clients have gone.
const NOTICE_MAX: Duration = Duration::from_secs(5);
/// The length of values that fill a server, and the number sent before their replies are read.
const FILLING_BYTES: usize = 50_000;
const FILLING_PIPELINE: usize = 16;
/// Lines of the log that are kept to explain an end.
const LOG_LINES: usize = 8;
/// The key of native clients, if the server has a password.
const NATIVE_KEY: &str = "000102030405060708090a0b0c0d0e0f\n";

/// The parts that are the same for all servers.
pub struct Binary {
    pub path: PathBuf,
    pub threads: usize,
    /// The output of `serve --help`: flags that it does not list are not used.
    help: String,
    folder: PathBuf,
    /// The certificate of the TLS ports; none without the program openssl.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Binary {
    /// Reads a binary's help, and makes a certificate for its servers.
    pub fn new(path: &Path, threads: usize) -> Result<Binary> {
        let path = path.canonicalize().with_context(|| format!("no binary {}", path.display()))?;
        let output = Command::new(&path).args(["serve", "--help"]).stdin(Stdio::null()).output()?;
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(help.contains("--memory"), "{} does not serve", path.display());
        let folder = std::env::temp_dir().join(format!("dovetail-attack-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let mut binary = Binary { path, threads, help, folder, tls: None };
        binary.tls = binary.certificate()?;
        Ok(binary)
    }

    fn certificate(&self) -> Result<Option<Arc<ClientConfig>>> {
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                     -subj /CN=localhost -addext basicConstraints=critical,CA:FALSE \
                     -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out certificate.pem";
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace()).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.folder.join("certificate.pem"))?)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions()?;
        Ok(Some(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
    }

    /// The flags of a server, and the doors that they open.
    fn flags(&self, cap_bytes: u64, is_locked: bool, own: &Path) -> Result<Vec<String>> {
        let inside = |name: &str| own.join(name).display().to_string();
        let any_port = "127.0.0.1:0".to_owned();
        let udp_port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut flags = vec![
            ("memory", cap_bytes.to_string()),
            ("threads", self.threads.to_string()),
            ("pin", "off".to_owned()),
            ("log-format", "json".to_owned()),
            ("enable-debug-command", "yes".to_owned()),
            ("resp", any_port.clone()),
            ("memcached", any_port.clone()),
            ("native", any_port.clone()),
            ("admin", any_port.clone()),
            ("shm", inside("shm.sock")),
            ("unix-socket", inside("resp.sock")),
            ("memcached-unix-socket", inside("memcached.sock")),
        ];
        if self.tls.is_some() {
            let shared = |name: &str| self.folder.join(name).display().to_string();
            flags.push(("tls-resp", any_port.clone()));
            flags.push(("tls-memcached", any_port));
            flags.push(("tls-cert", shared("certificate.pem")));
            flags.push(("tls-key", shared("key.pem")));
        }
        if is_locked {
            let user = format!("user {USER} on >{PASSWORD} ~* &* +@all\n");
            std::fs::write(own.join("users.acl"), user)?;
            std::fs::write(own.join("users.txt"), format!("{USER}:{PASSWORD}\n"))?;
            std::fs::write(own.join("native.key"), NATIVE_KEY)?;
            flags.push(("acl-file", inside("users.acl")));
            flags.push(("auth-file", inside("users.txt")));
            flags.push(("native-key-file", inside("native.key")));
        } else {
            // This door does not open together with a password.
            flags.push(("udp-port", udp_port.to_string()));
        }
        let known = flags.into_iter().filter(|(name, _)| self.knows(name));
        Ok(known.flat_map(|(name, value)| [format!("--{name}"), value]).collect())
    }

    fn knows(&self, flag: &str) -> bool {
        let flag = format!("--{flag}");
        let mut words = self.help.split(|one: char| one.is_whitespace() || ",=[".contains(one));
        words.any(|word| word == flag)
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // Leftovers in the temporary directory do no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A running server.
pub struct Server {
    child: Child,
    pub cap_bytes: u64,
    pub is_locked: bool,
    pub doors: BTreeMap<Door, Address>,
    folder: PathBuf,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl Server {
    /// Starts a server, and waits until it logs that it is ready.
    pub fn start(binary: &Binary, cap_bytes: u64, is_locked: bool) -> Result<Server> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = binary.folder.join(number.to_string());
        std::fs::create_dir_all(&folder)?;
        let mut command = Command::new(&binary.path);
        command.arg("serve").args(binary.flags(cap_bytes, is_locked, &folder)?);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DOVETAIL_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("the server does not start")?;
        let stderr = child.stderr.take();
        let doors = BTreeMap::new();
        let log = Arc::default();
        let mut server = Server { child, cap_bytes, is_locked, doors, folder, log };
        let mut lines = BufReader::new(stderr.context("the server has no log")?).lines();
        for line in &mut lines {
            let line = line?;
            let fields: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if fields["msg"] == "ready" {
                server.doors = doors_of(&fields);
                let log = Arc::clone(&server.log);
                std::thread::spawn(move || {
                    lines.map_while(Result::ok).for_each(|it| note(&log, it))
                });
                server.fill().context("filling the server")?;
                return Ok(server);
            }
            note(&server.log, line);
        }
        bail!("the server ended at its start:\n{}", server.last_lines());
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that ACL LOAD reads.
    pub fn acl_file(&self) -> PathBuf {
        self.folder.join("users.acl")
    }

    /// The end of its log.
    pub fn last_lines(&self) -> String {
        let lines = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Waits until the server has closed the connections of the previous trial; returns false if it
    /// does not.
    pub fn is_left_alone(&self) -> bool {
        let began = Instant::now();
        while began.elapsed() < NOTICE_MAX {
            if self.connected().is_ok_and(|clients| clients <= 1) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Stores as many bytes as the cap, so that the log's memory is resident before an attack.
    fn fill(&self) -> Result<()> {
        let mut wire = self.operator()?;
        let value = vec![b'f'; FILLING_BYTES];
        for first in (0..self.cap_bytes / FILLING_BYTES as u64).step_by(FILLING_PIPELINE) {
            for at in first..first + FILLING_PIPELINE as u64 {
                let key = format!("filling:{at}");
                wire.send(&multibulk([&b"SET"[..], key.as_bytes(), &value].into_iter()));
            }
            for _ in 0..FILLING_PIPELINE {
                let reply = wire.reply()?.shown();
                ensure!(reply.starts_with("+OK"), "SET of {FILLING_BYTES} bytes: {reply}");
            }
        }
        Ok(())
    }

    fn operator(&self) -> Result<Wire> {
        let Some(Address::Ip(at)) = self.doors.get(&Door::Resp) else { bail!("no port of RESP") };
        let mut wire = Wire::patient(at.port(), NOTICE_MAX)?;
        if self.is_locked {
            wire.ask(&[b"AUTH", USER.as_bytes(), PASSWORD.as_bytes()])?;
        }
        Ok(wire)
    }

    /// The number of connected clients, including the asking one.
    fn connected(&self) -> Result<u64> {
        let mut wire = self.operator()?;
        connected_in(&wire.ask(&[b"INFO", b"clients"])?.shown())
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Ends it by TERM; returns the time it took.
    pub fn stop(mut self) -> Result<Duration> {
        let began = Instant::now();
        if let Some(status) = self.child.try_wait()? {
            bail!("it had ended by itself: {status}\n{}", self.last_lines());
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        while began.elapsed() < STOP_MAX {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "it ended with {status}\n{}", self.last_lines());
                return Ok(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("it did not end within {} s of TERM", STOP_MAX.as_secs());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What has ended already need not be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The number in the answer to INFO, whose line ends are escaped.
fn connected_in(info: &str) -> Result<u64> {
    let (_, rest) = info.split_once("connected_clients:").context("no number of clients")?;
    let digits = rest.split(|one: char| !one.is_ascii_digit()).next().unwrap_or_default();
    Ok(digits.parse()?)
}

fn note(log: &Mutex<VecDeque<String>>, line: String) {
    let mut lines = log.lock().unwrap_or_else(PoisonError::into_inner);
    lines.push_back(line);
    if lines.len() > LOG_LINES {
        lines.pop_front();
    }
}

/// The contents of the log line `ready`.
fn doors_of(ready: &serde_json::Value) -> BTreeMap<Door, Address> {
    let of = |door: Door| -> Option<Address> {
        let text = ready[door.ready_name()].as_str()?;
        if text.starts_with('/') {
            return Some(Address::Path(text.into()));
        }
        text.parse().ok().map(Address::Ip)
    };
    Door::ALL.into_iter().filter_map(|door| Some((door, of(door)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_that_are_off_are_no_doors() {
        let line = r#"{"msg":"ready","resp":"127.0.0.1:7000","memcached":"off","shm":"/tmp/s"}"#;
        let doors = doors_of(&serde_json::from_str(line).unwrap());
        let want = [
            (Door::Resp, Address::Ip("127.0.0.1:7000".parse().unwrap())),
            (Door::Shm, Address::Path("/tmp/s".into())),
        ];
        assert_eq!(doors, BTreeMap::from(want));
    }

    #[test]
    fn clients_are_counted_by_what_the_server_says() {
        let info = r"$60\r\n# Clients\r\nconnected_clients:12\r\nmaxclients:10000\r\n\r\n";
        assert_eq!(connected_in(info).unwrap(), 12);
        assert!(connected_in("-NOAUTH").is_err());
    }

    #[test]
    fn a_log_keeps_its_last_lines() {
        let log = Mutex::default();
        (0..20).for_each(|number| note(&log, number.to_string()));
        let kept = log.into_inner().unwrap();
        assert_eq!(kept, (12..20).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}
