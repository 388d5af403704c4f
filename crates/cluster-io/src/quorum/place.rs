//! Where a quorum is: its members' addresses, the cluster's name, and the key that they share.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::Key;

/// The port of a member that is written without one.
const DEFAULT_PORT: u16 = 7600;

/// The fewest members: of two, none may fail.
const MEMBERS_MIN: usize = 3;

/// The most members: each write is sent to all.
const MEMBERS_MAX: usize = 7;

/// The members of a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumPlace {
    /// The cluster's name.
    pub name: String,
    /// `HOST:PORT` of each member, sorted.
    pub members: Vec<String>,
    /// The file with the cluster's key; none: see [`QuorumPlace::key`].
    pub key_file: Option<PathBuf>,
    /// The index of the member in this process, which is asked first.
    pub own: Option<usize>,
}

/// The reason why there is no such quorum.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A bad name of a cluster.
    #[error("`{name}` is no cluster's name: write 1 to 63 letters, digits, `-` and `_`")]
    Name {
        /// The given name.
        name: String,
    },
    /// Too few or too many members.
    #[error("{count} members: write the addresses of 3 to 7 servers, as a:7600,b:7600,c:7600")]
    Count {
        /// The number given.
        count: usize,
    },
    /// The same member twice.
    #[error("{member} stands there twice: write each server once")]
    Twice {
        /// The member.
        member: String,
    },
    /// No address of a member.
    #[error("`{text}` is no address of a server: write HOST or HOST:PORT")]
    Member {
        /// The given text.
        text: String,
    },
    /// There is no key, or it cannot be read.
    #[error("{line}")]
    Key {
        /// The reason.
        line: String,
    },
}

impl QuorumPlace {
    /// Parses a cluster's name and its list of members.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(name: &str, list: &str) -> Result<QuorumPlace, PlaceError> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=63).contains(&name.len()) || !name.bytes().all(is_word) {
            return Err(PlaceError::Name { name: name.to_owned() });
        }
        let mut members = BTreeSet::new();
        for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let member = member(text)?;
            if !members.insert(member.clone()) {
                return Err(PlaceError::Twice { member });
            }
        }
        if !(MEMBERS_MIN..=MEMBERS_MAX).contains(&members.len()) {
            return Err(PlaceError::Count { count: members.len() });
        }
        Ok(QuorumPlace {
            name: name.to_owned(),
            members: members.into_iter().collect(),
            key_file: None,
            own: None,
        })
    }

    /// Parses what follows `quorum://`: `HOST:PORT,HOST:PORT,HOST:PORT/NAME`, and perhaps
    /// `?key=FILE`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<QuorumPlace, PlaceError> {
        let (text, key_file) = match text.split_once("?key=") {
            Some((text, file)) => (text, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let missing = || PlaceError::Name { name: String::new() };
        let (list, name) = text.rsplit_once('/').ok_or_else(missing)?;
        Ok(QuorumPlace { key_file, ..QuorumPlace::new(name, list)? })
    }

    /// A number that only members of the same list and cluster have.
    pub(super) fn mark(&self, key: &Key) -> u64 {
        let text = self.to_string();
        let tag = key.tag(&[text.as_bytes()]);
        tag.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The index of a member, as it may be written in the list.
    pub fn position(&self, text: &str) -> Option<usize> {
        let member = member(text).ok()?;
        self.members.iter().position(|one| *one == member)
    }

    /// The address that a member binds: its own, or, where its name is that of the loopback
    /// interface although others are on other machines, all of its machine.
    pub fn listen(&self, at: usize) -> Option<SocketAddr> {
        let mut address = addresses(self.members.get(at)?).first().copied()?;
        if address.ip().is_loopback() && !self.is_local() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            });
        }
        Some(address)
    }

    /// The members whose names have no address.
    pub fn unknown_members(&self) -> Vec<&str> {
        let is_unknown = |member: &&str| addresses(member).is_empty();
        self.members.iter().map(String::as_str).filter(is_unknown).collect()
    }

    /// The members that are this machine's, by the addresses that their names have.
    pub fn members_here(&self) -> Vec<usize> {
        let is_here = |member: &&String| {
            addresses(member).iter().any(|address| {
                // An address that a socket can have is this machine's.
                std::net::UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok()
            })
        };
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| is_here(member)).map(|(at, _)| at).collect()
    }

    /// Whether all members are on this machine and can only be reached from it.
    pub fn is_local(&self) -> bool {
        self.members.iter().all(|member| {
            let addresses = addresses(member);
            !addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback())
        })
    }

    /// The cluster's key: of the key file, or, if all members are on this machine, of a file in the
    /// state folder that only this user can read, which the first one writes.
    ///
    /// # Errors
    /// If there is no key, or its file is wrong.
    pub fn key(&self, state: Option<&Path>) -> Result<Key, PlaceError> {
        let failed = |path: &Path, why: String| {
            let path = path.display();
            PlaceError::Key { line: format!("the cluster's key {path}: {why}") }
        };
        if let Some(path) = &self.key_file {
            return read_key(path).map_err(|why| failed(path, why));
        }
        if !self.is_local() {
            let line = "servers on several machines need a key that all have: write one with \
                        `dovetail cluster key > FILE`, and give --cluster-key FILE to each";
            return Err(PlaceError::Key { line: line.to_owned() });
        }
        let Some(state) = state else {
            let line = "neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set, so there is no \
                        place for the cluster's key: give --cluster-key FILE";
            return Err(PlaceError::Key { line: line.to_owned() });
        };
        let path = state.join(format!("{}.key", self.name));
        let made = make_key(state, &path).map_err(|error| failed(&path, error.to_string()));
        made.and_then(|()| read_key(&path).map_err(|why| failed(&path, why)))
    }
}

impl fmt::Display for QuorumPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "quorum://{}/{}", self.members.join(","), self.name)
    }
}

/// The addresses of `HOST:PORT`; none while its name is unknown.
fn addresses(member: &str) -> Vec<SocketAddr> {
    member.to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

fn member(text: &str) -> Result<String, PlaceError> {
    let wrong = || PlaceError::Member { text: text.to_owned() };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT).to_string());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 { Err(wrong()) } else { Ok(address.to_string()) };
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
        None => (text, DEFAULT_PORT),
    };
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.is_empty() || port == 0 || !host.bytes().all(is_of_name) {
        return Err(wrong());
    }
    Ok(format!("{}:{port}", host.to_ascii_lowercase()))
}

fn read_key(path: &Path) -> Result<Key, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(4096).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let want = "it has no 32 hexadecimal digits: write it with `dovetail cluster key`";
    Key::from_hex(text.trim()).ok_or_else(|| want.to_owned())
}

/// Writes a new key if there is none: to a name of its own, then linked, so that no reader sees
/// half of it and the first writer's counts.
fn make_key(state: &Path, path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    // The name is of no use to others: a tag of the key that the file gets.
    let key = Key::random()?;
    let mark = u64::from_le_bytes(*key.tag(&[b"name"]).first_chunk().unwrap_or(&[0; 8]));
    let own = path.with_extension(format!("key.{mark:016x}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own)?;
    writeln!(file, "{}", key.to_hex())?;
    file.sync_all()?;
    let linked = fs::hard_link(&own, path);
    fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The folder for what this user's servers must remember: of systemd, of XDG, or in the home.
pub fn state_folder() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd lists all state folders of a unit; the first is ours.
    let first = |paths: PathBuf| {
        let text = paths.to_string_lossy().into_owned();
        PathBuf::from(text.split(':').next().unwrap_or_default())
    };
    of("STATE_DIRECTORY")
        .map(first)
        .or_else(|| Some(of("XDG_STATE_HOME")?.join("dovetail")))
        .or_else(|| Some(of("HOME")?.join(".local/state/dovetail")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_servers_is_read_sorted() {
        #[track_caller]
        fn check(name: &str, list: &str, want: Result<&str, &str>) {
            let found = QuorumPlace::new(name, list).map(|place| place.to_string());
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, want.map(str::to_owned).map_err(str::to_owned));
        }
        check("x", "c, B:7000,a", Ok("quorum://a:7600,b:7000,c:7600/x"));
        check(
            "x",
            "10.0.0.2,10.0.0.1:5,[::1]:9",
            Ok("quorum://10.0.0.1:5,10.0.0.2:7600,[::1]:9/x"),
        );
        let count = |count| {
            format!(
                "{count} members: write the addresses of 3 to 7 servers, as a:7600,b:7600,c:7600"
            )
        };
        check("x", "a,b", Err(&count(2)));
        check("x", "", Err(&count(0)));
        check("x", "a,b,c,d,e,f,g,h", Err(&count(8)));
        check("x", "a,b,a:7600", Err("a:7600 stands there twice: write each server once"));
        for text in ["a:x", "a:0", ":1", "a b", "1.2.3.4:0", "a:70000"] {
            let line = format!("`{text}` is no address of a server: write HOST or HOST:PORT");
            check("x", &format!("{text},b,c"), Err(&line));
        }
        let line = "`a/b` is no cluster's name: write 1 to 63 letters, digits, `-` and `_`";
        check("a/b", "a,b,c", Err(line));
    }

    #[test]
    fn a_name_of_the_loopback_interface_is_bound_for_other_machines() {
        let listen = |list| QuorumPlace::new("x", list).unwrap().listen(0).unwrap().to_string();
        assert_eq!(listen("127.0.0.1:7,127.0.0.2,127.0.0.3"), "127.0.0.1:7");
        assert_eq!(listen("127.0.1.1:7,192.0.2.2,192.0.2.3"), "0.0.0.0:7");
        assert_eq!(listen("[::1]:7,192.0.2.2,192.0.2.3"), "192.0.2.2:7600");
        let place = QuorumPlace::new("x", "127.0.0.1:7,192.0.2.1,nowhere.invalid").unwrap();
        assert_eq!(place.unknown_members(), ["nowhere.invalid:7600"]);
    }

    #[test]
    fn an_address_names_the_key_file() {
        let place = QuorumPlace::parse("a,b,c/x?key=/etc/key").unwrap();
        assert_eq!(place.key_file.as_deref(), Some(Path::new("/etc/key")));
        assert_eq!(place.to_string(), "quorum://a:7600,b:7600,c:7600/x");
    }

    #[test]
    fn servers_of_one_machine_make_a_key_that_all_find() {
        let folder = tempfile::tempdir().unwrap();
        let place = QuorumPlace::new("x", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").unwrap();
        let state = folder.path().join("state");
        let key = |_| {
            let (place, state) = (place.clone(), state.clone());
            std::thread::spawn(move || place.key(Some(&state)).unwrap().to_hex())
        };
        let threads: Vec<_> = (0..8).map(key).collect();
        let keys: BTreeSet<String> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(keys.len(), 1);
        let files = fs::read_dir(&state).unwrap().count();
        assert_eq!(files, 1, "no half-written file stays");
    }

    #[test]
    fn servers_of_several_machines_need_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let mut place = QuorumPlace::new("x", "127.0.0.1:1,127.0.0.1:2,10.1.2.3:3").unwrap();
        let line = place.key(Some(folder.path())).unwrap_err().to_string();
        assert!(line.contains("`dovetail cluster key > FILE`"), "{line}");
        let file = folder.path().join("key");
        place.key_file = Some(file.clone());
        assert!(place.key(Some(folder.path())).unwrap_err().to_string().contains("No such file"));
        fs::write(&file, "no key\n").unwrap();
        assert!(
            place.key(Some(folder.path())).unwrap_err().to_string().contains("no 32 hexadecimal")
        );
        fs::write(&file, format!("{}\n", Key::new([7; 16]).to_hex())).unwrap();
        assert_eq!(place.key(Some(folder.path())).unwrap(), Key::new([7; 16]));
    }
}
