//! The processes: servers, managers and ZooKeeper, each with a log file.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::disks::Disks;
use super::place::{Network, Spot};
use super::quota::Quota;
use super::said::{self, Said};
use super::user::Addresses;

/// The RESP port of each server.
pub const RESP_PORT: u16 = 7000;
const ADMIN_PORT: u16 = 7001;
const PEER_PORT: u16 = 7002;
const MEMCACHED_PORT: u16 = 7003;
const MANAGER_PORT: u16 = 7600;
const ZOOKEEPER_PORT: u16 = 2181;
/// ZooKeeper takes seconds to start on a busy machine.
const ZOOKEEPER_TIME_MAX: Duration = Duration::from_secs(60);

const LOG_PART_BYTES: u64 = 128 << 10;

/// The processes to start, and their settings.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server's program.
    pub binary: PathBuf,
    /// The directory of logs and the config store.
    pub folder: PathBuf,
    /// ZooKeeper's jars; otherwise the config store is a folder.
    pub jars: Option<PathBuf>,
    /// Servers.
    pub servers: usize,
    /// Managers.
    pub managers: usize,
    /// Ranges of slots.
    pub shards: u16,
    /// The durability, as the flag has it.
    pub lease: String,
    /// Whether servers write to disks, and acknowledge synced writes.
    pub is_durable: bool,
    /// Hundredths of a core for each server; `None`: no limit.
    pub cpu_hundredths: Option<u64>,
}

/// All processes.
pub struct Crew {
    plan: Plan,
    /// The network.
    pub network: Network,
    /// The disks.
    pub disks: Disks,
    zookeeper: Option<Child>,
    members: Vec<(Spot, Option<Child>)>,
    /// The processes of the servers.
    quotas: Vec<Quota>,
}

impl Crew {
    /// Starts everything.
    pub fn start(plan: Plan) -> Result<Crew> {
        let servers = (0..plan.servers).map(Spot::Server);
        let spots: Vec<Spot> = (0..plan.managers).map(Spot::Manager).chain(servers).collect();
        let network = Network::make(&spots);
        let members = spots.iter().map(|spot| (*spot, None)).collect();
        std::fs::create_dir_all(plan.folder.join("config_store"))?;
        let disks = Disks::make(&plan.folder, if plan.is_durable { plan.servers } else { 0 })?;
        let quota = |index| {
            let name = format!("dovetail-{}-{index}", std::process::id());
            plan.cpu_hundredths.map(|hundredths| Quota::make(&name, hundredths))
        };
        let quotas = (0..plan.servers).filter_map(quota).collect::<Result<_>>()?;
        let mut crew = Crew { plan, network, disks, zookeeper: None, members, quotas };
        crew.start_zookeeper()?;
        for spot in spots {
            crew.start_one(spot)?;
        }
        Ok(crew)
    }

    /// The settings.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The addresses of the servers for clients.
    pub fn addresses(&self) -> Addresses {
        let address = |index, port| {
            let host = self.network.address(Spot::Server(index));
            format!("{host}:{port}")
        };
        let all = |port| (0..self.plan.servers).map(|index| address(index, port)).collect();
        Addresses { resp: all(RESP_PORT), memcached: all(MEMCACHED_PORT) }
    }

    /// The address of a server's admin port.
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

    fn config_store(&self) -> String {
        match self.plan.jars {
            Some(_) => {
                let address = self.network.address(Spot::Here);
                format!("zk://{address}:{ZOOKEEPER_PORT}/demo")
            }
            None => format!("file://{}", self.plan.folder.join("config_store").display()),
        }
    }

    /// Starts the processes that do not run.
    pub fn start_one(&mut self, spot: Spot) -> Result<()> {
        let at = |port: u16| format!("{}:{port}", self.network.address(spot));
        let binary = self.plan.binary.display().to_string();
        let mut command = self.network.command(spot, &binary);
        let config_store = self.config_store();
        match spot {
            Spot::Here => return self.start_zookeeper(),
            Spot::Manager(_) => {
                command.args([
                    "cm",
                    "--config-store",
                    &config_store,
                    "--listen",
                    &at(MANAGER_PORT),
                ]);
                command.args(["--lease", &self.plan.lease]);
                command.args(["--shards", &self.plan.shards.to_string()]);
                command.args(["--first-nodes", &self.plan.servers.to_string()]);
                let durability = if self.plan.is_durable { "fsync" } else { "replicated" };
                command.args(["--durability", durability]);
            }
            Spot::Server(index) => {
                command.args(["serve", "--cluster", &config_store, "--resp", &at(RESP_PORT)]);
                command.args(["--admin", &at(ADMIN_PORT), "--peer", &at(PEER_PORT)]);
                command.args(["--memcached", &at(MEMCACHED_PORT)]);
                command.args(["--native", "off", "--insecure", "on"]);
                command.args(["--memory", "128MiB", "--threads", "1"]);
                if self.plan.is_durable {
                    command.arg("--data-dir").arg(self.disks.folder(index));
                }
            }
        }
        command.args(["--log-format", "json"]);
        let child = self.spawn(command, &spot.to_string())?;
        if let Spot::Server(index) = spot
            && let Some(quota) = self.quotas.get(index)
        {
            quota.take(child.id())?;
        }
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

    /// The CPU time of a server, in hundredths of a second.
    pub fn cpu_ticks(&mut self, index: usize) -> Option<u64> {
        let id = self.child(Spot::Server(index))?.id();
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The user and system time follow the name, which may contain any character.
        let mut rest = text.rsplit(')').next()?.split_whitespace().skip(11);
        Some(rest.next()?.parse::<u64>().ok()? + rest.next()?.parse::<u64>().ok()?)
    }

    /// The log lines of the managers with these words, in order.
    pub fn managers_said(&self, words: &str) -> Vec<Said> {
        let log = |index| self.plan.folder.join(format!("{}.log", Spot::Manager(index)));
        let all = (0..self.plan.managers).flat_map(|index| said::lines(&log(index), words));
        let mut all: Vec<Said> = all.collect();
        all.sort_by_key(|said| said.at);
        all
    }

    /// Sends a signal, by its name.
    pub fn signal(&mut self, spot: Spot, signal: &str) -> Result<()> {
        let child = self.child(spot).context("it does not run")?;
        if signal == "KILL" {
            // The signal is sent directly: another process would take milliseconds to start.
            return Ok(child.kill()?);
        }
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

    /// The leading manager's status of the cluster.
    pub fn status(&self) -> Option<serde_json::Value> {
        let mut command = Command::new(&self.plan.binary);
        command.args(["cluster", "status", "--json", "--config-store", &self.config_store()]);
        let output = command.stdin(Stdio::null()).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// The data that an operator would read first, beside the logs.
    pub fn keep_evidence(&mut self) {
        self.disks.is_kept = true;
        let text = self.status().map(|status| status.to_string()).unwrap_or_default();
        let _ = std::fs::write(self.plan.folder.join("status.json"), text);
        for index in 0..self.plan.servers {
            if let Ok(text) = super::resp::page(&self.admin_address(index), "/metrics") {
                let name = format!("{}-metrics.txt", Spot::Server(index));
                let _ = std::fs::write(self.plan.folder.join(name), text);
            }
        }
    }

    /// Processes that have ended by themselves, which is always an error.
    pub fn fallen(&mut self) -> Vec<Spot> {
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        let members = self.members.iter_mut();
        let fallen =
            members.filter_map(|(spot, child)| has_ended(child.as_mut()?).then_some(*spot));
        fallen.collect()
    }

    /// The leading manager, as the servers learned last.
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

/// Searches the last part of the log, since runs of an hour write much; then all of it.
fn last_line(log: &Path, words: &str) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    for from in [length.saturating_sub(LOG_PART_BYTES), 0] {
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        // An incomplete or truncated line does not count.
        let lines = text.lines().rev().skip(usize::from(!text.ends_with('\n')));
        if let Some(line) = lines.into_iter().find(|line| line.contains(words)) {
            return Some(line.to_owned());
        }
    }
    None
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
