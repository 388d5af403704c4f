//! The network of the processes: a namespace each on one bridge, or the loopback of this one.
//!
//! ```text
//!  this namespace: clients, ZooKeeper  10.213.T.1 ── bridge ─┬─ veth ─ n1 10.213.T.11
//!                                                            ├─ veth ─ n2 10.213.T.12 ...
//!                                                            └─ veth ─ m1 10.213.T.21 ...
//! ```
//!
//! A link is cut in one of two ways: by taking it down, or by giving a neighbour an address of the
//! bridge that no device has. The second way silently loses packets in one direction, and needs no
//! kernel module.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// An Ethernet address that no device has.
const NOWHERE: &str = "02:00:00:00:00:fe";

/// The place of a process in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// The clients and ZooKeeper.
    Here,
    /// A server.
    Server(usize),
    /// A manager.
    Manager(usize),
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spot::Here => f.write_str("here"),
            Spot::Server(index) => write!(f, "n{}", index + 1),
            Spot::Manager(index) => write!(f, "m{}", index + 1),
        }
    }
}

/// The network.
#[derive(Debug)]
pub struct Network {
    /// Distinguishes simultaneous runs.
    tag: u32,
    spots: Vec<Spot>,
    /// Whether there are namespaces; otherwise everything is on the loopback.
    has_namespaces: bool,
}

impl Network {
    /// Uses namespaces if this user may create them; otherwise says that no link will be cut.
    pub fn make(spots: &[Spot]) -> Network {
        let tag = std::process::id() % 250;
        let mut network = Network { tag, spots: spots.to_vec(), has_namespaces: true };
        if let Err(error) = network.build() {
            network.remove();
            network.has_namespaces = false;
            println!("no network namespaces, so nothing is cut: {error:#}");
        }
        network
    }

    /// Whether links can be cut.
    pub fn has_cuts(&self) -> bool {
        self.has_namespaces
    }

    /// Its address.
    pub fn address(&self, spot: Spot) -> String {
        let net = if self.has_namespaces { "10.213" } else { "127.213" };
        let host = match spot {
            Spot::Here => 1,
            Spot::Server(index) => 11 + index,
            Spot::Manager(index) => 21 + index,
        };
        format!("{net}.{}.{host}", self.tag)
    }

    /// A command that runs in that place.
    pub fn command(&self, spot: Spot, program: &str) -> Command {
        // The processes end with this one, even if it is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if self.has_namespaces && spot != Spot::Here {
            command.args(["ip", "netns", "exec", &self.namespace(spot)]);
        }
        command.arg(program);
        command
    }

    /// Takes a spot's link down or up.
    pub fn set_link(&self, spot: Spot, is_up: bool) -> Result<()> {
        ip(&["link", "set", &self.link(spot), if is_up { "up" } else { "down" }])
    }

    /// Drops everything that `from` sends to `to`.
    pub fn cut(&self, from: Spot, to: Spot) -> Result<()> {
        let (space, to) = (self.namespace(from), self.address(to));
        let lost = ["lladdr", NOWHERE, "dev", "eth0", "nud", "permanent"];
        ip(&[&["-n", &space, "neigh", "replace", &to][..], &lost].concat())
    }

    /// Lets everything that `from` sends to `to` arrive again.
    pub fn mend(&self, from: Spot, to: Spot) -> Result<()> {
        let (space, to) = (self.namespace(from), self.address(to));
        ip(&["-n", &space, "neigh", "del", &to, "dev", "eth0"])
    }

    fn namespace(&self, spot: Spot) -> String {
        format!("dvt{}-{spot}", self.tag)
    }

    fn link(&self, spot: Spot) -> String {
        format!("dvt{}{spot}", self.tag)
    }

    fn bridge(&self) -> String {
        format!("dvt{}", self.tag)
    }

    fn build(&self) -> Result<()> {
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", self.address(Spot::Here)), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for spot in &self.spots {
            let (space, link) = (self.namespace(*spot), self.link(*spot));
            let address = format!("{}/24", self.address(*spot));
            ip(&["netns", "add", &space])?;
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", &space];
            ip(&[&["link", "add", &link][..], &peer].concat())?;
            ip(&["link", "set", &link, "master", &bridge, "up"])?;
            ip(&["-n", &space, "addr", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn remove(&self) {
        if self.has_namespaces {
            for spot in &self.spots {
                // Its link goes with it. What was never made cannot be removed.
                let _ = ip(&["netns", "del", &self.namespace(*spot)]);
            }
            let _ = ip(&["link", "del", &self.bridge()]);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", words.join(" "), said.trim());
    Ok(())
}
