//! The processes: servers, managers and ZooKeeper, each with a log file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::place::{Network, Spot};

/// RESP, of each server.
pub const RESP_PORT: u16 = 7000;
const ADMIN_PORT: u16 = 7001;
const PEER_PORT: u16 = 7002;
const MANAGER_PORT: u16 = 7600;
const ZOOKEEPER_PORT: u16 = 2181;
/// ZooKeeper takes seconds to start on a busy machine.
const ZOOKEEPER_TIME_MAX: Duration = Duration::from_secs(60);

/// What is started, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server's program.
    pub binary: PathBuf,
    /// Logs and the register.
    pub folder: PathBuf,
    /// ZooKeeper's jars; otherwise the register is a folder.
    pub jars: Option<PathBuf>,
    /// Servers.
    pub servers: usize,
    /// Managers.
    pub managers: usize,
    /// Ranges of slots.
    pub shards: u16,
    /// As the flag has it.
    pub lease: String,
}

/// All processes.
pub struct Crew {
    plan: Plan,
    /// Where they run.
    pub network: Network,
    zookeeper: Option<Child>,
    members: Vec<(Spot, Option<Child>)>,
}

impl Crew {
    /// Starts everything.
    pub fn start(plan: Plan) -> Result<Crew> {
        let servers = (0..plan.servers).map(Spot::Server);
        let spots: Vec<Spot> = (0..plan.managers).map(Spot::Manager).chain(servers).collect();
        let network = Network::make(&spots);
        let members = spots.iter().map(|spot| (*spot, None)).collect();
        let mut crew = Crew { plan, network, zookeeper: None, members };
        std::fs::create_dir_all(crew.plan.folder.join("register"))?;
        crew.start_zookeeper()?;
        for spot in spots {
            crew.start_one(spot)?;
        }
        Ok(crew)
    }

    /// Of its plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where clients reach the servers.
    pub fn resp_addresses(&self) -> Vec<String> {
        let address = |index| format!("{}:{RESP_PORT}", self.network.address(Spot::Server(index)));
        (0..self.plan.servers).map(address).collect()
    }

    /// Where a server tells about itself.
    pub fn admin_address(&self, index: usize) -> String {
        format!("{}:{ADMIN_PORT}", self.network.address(Spot::Server(index)))
    }

    fn log(&self, name: &str) -> Result<Stdio> {
        let path = self.plan.folder.join(format!("{name}.log"));
        Ok(File::options().create(true).append(true).open(path)?.into())
    }

    fn start_zookeeper(&mut self) -> Result<()> {
        let Some(jars) = &self.plan.jars else { return Ok(()) };
        let folder = self.plan.folder.join("zookeeper");
        std::fs::create_dir_all(&folder)?;
        let (settings, address) = (folder.join("zoo.cfg"), self.network.address(Spot::Here));
        let text = format!(
            "tickTime=200\ndataDir={}\nclientPort={ZOOKEEPER_PORT}\nclientPortAddress={address}\n\
             admin.enableServer=false\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n",
            folder.display(),
        );
        std::fs::write(&settings, text)?;
        let mut command = self.network.command(Spot::Here, "java");
        command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp"]);
        command.arg(format!("{}/*", jars.display()));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(settings);
        self.zookeeper = Some(self.spawn(command, "zookeeper")?);
        let started = Instant::now();
        while std::net::TcpStream::connect((address.as_str(), ZOOKEEPER_PORT)).is_err() {
            if started.elapsed() > ZOOKEEPER_TIME_MAX {
                bail!("ZooKeeper does not listen; its log is in {}", self.plan.folder.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn spawn(&self, mut command: Command, name: &str) -> Result<Child> {
        command.stdin(Stdio::null()).stdout(self.log(name)?).stderr(self.log(name)?);
        command.spawn().with_context(|| format!("cannot start {name}"))
    }

    fn register(&self) -> String {
        match self.plan.jars {
            Some(_) => {
                let address = self.network.address(Spot::Here);
                format!("zk://{address}:{ZOOKEEPER_PORT}/demo")
            }
            None => format!("file://{}", self.plan.folder.join("register").display()),
        }
    }

    /// Starts what does not run.
    pub fn start_one(&mut self, spot: Spot) -> Result<()> {
        let at = |port: u16| format!("{}:{port}", self.network.address(spot));
        let binary = self.plan.binary.display().to_string();
        let mut command = self.network.command(spot, &binary);
        let register = self.register();
        match spot {
            Spot::Here => return self.start_zookeeper(),
            Spot::Manager(_) => {
                command.args(["cm", "--register", &register, "--listen", &at(MANAGER_PORT)]);
                command.args(["--lease", &self.plan.lease]);
                command.args(["--shards", &self.plan.shards.to_string()]);
            }
            Spot::Server(_) => {
                command.args(["serve", "--cluster", &register, "--resp", &at(RESP_PORT)]);
                command.args(["--admin", &at(ADMIN_PORT), "--peer", &at(PEER_PORT)]);
                command.args(["--memcached", "off", "--native", "off", "--insecure", "on"]);
                command.args(["--memory", "128MiB", "--threads", "1"]);
            }
        }
        command.args(["--log-format", "json"]);
        let child = self.spawn(command, &spot.to_string())?;
        if let Some(member) = self.members.iter_mut().find(|member| member.0 == spot) {
            member.1 = Some(child);
        }
        Ok(())
    }

    fn child(&mut self, spot: Spot) -> Option<&mut Child> {
        match spot {
            Spot::Here => self.zookeeper.as_mut(),
            _ => self.members.iter_mut().find(|member| member.0 == spot)?.1.as_mut(),
        }
    }

    /// Sends a signal, by its name.
    pub fn signal(&mut self, spot: Spot, signal: &str) -> Result<()> {
        let child = self.child(spot).context("it does not run")?;
        let id = child.id().to_string();
        Command::new("kill").args([&format!("-{signal}"), &id]).status()?;
        Ok(())
    }

    /// Ends it by a signal, and waits for that.
    pub fn end(&mut self, spot: Spot, signal: &str) -> Result<()> {
        self.signal(spot, signal)?;
        self.child(spot).context("it does not run")?.wait()?;
        Ok(())
    }

    /// Processes that have ended though nobody ended them, which is always a fault of theirs.
    pub fn fallen(&mut self) -> Vec<Spot> {
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        let members = self.members.iter_mut();
        let fallen =
            members.filter_map(|(spot, child)| has_ended(child.as_mut()?).then_some(*spot));
        fallen.collect()
    }

    /// The term of the configuration that a manager has made last: servers may not know it yet.
    pub fn last_term(&self) -> Option<u64> {
        let made = (0..self.plan.managers).filter_map(|index| {
            let path = self.plan.folder.join(format!("{}.log", Spot::Manager(index)));
            last_line(&path, "\"msg\":\"configuration\"")
        });
        let line = made.max()?;
        let term = line.split("\"term\":").nth(1)?;
        term.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// The manager that leads, as the servers have heard last.
    pub fn leader(&self) -> Option<Spot> {
        let told = (0..self.plan.servers).filter_map(|index| {
            let path = self.plan.folder.join(format!("{}.log", Spot::Server(index)));
            last_line(&path, "manager is at")
        });
        // Lines begin with their time.
        let line = told.max()?;
        (0..self.plan.managers)
            .map(Spot::Manager)
            .find(|spot| line.contains(&format!("{}:", self.network.address(*spot))))
    }
}

fn last_line(log: &Path, words: &str) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines().rfind(|line| line.contains(words)).map(str::to_owned)
}

impl Drop for Crew {
    fn drop(&mut self) {
        let members = self.members.iter_mut().filter_map(|member| member.1.as_mut());
        for child in members.chain(self.zookeeper.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
