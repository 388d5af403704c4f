//! Resharding by load, after Rowan-KV's Fig. 15: one shard becomes hot, and the manager moves it.
//!
//! ```text
//!  0 s: all shards alike    3 s: of what A's shards are asked, 80 % go to one of B's
//!                           ─▶ statistics: B is 30 % above the average ─▶ A becomes primary of the
//!                              shard, and pulls what it does not have ─▶ all alike again
//! ```
//!
//! Each client has one request in flight, so that a client that waits for B sends nothing to
//! others.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::crew::Crew;
use super::dice::Dice;
use super::resp::{Reply, connect, exchange, slot_of};
use super::{reshard_chart, whole};

/// The length of a throughput window.
pub const WINDOW: Duration = Duration::from_millis(100);
/// The time of the change of the load.
const HOT_AFTER: Duration = Duration::from_secs(4);
const LENGTH: Duration = Duration::from_secs(14);
/// The time without news from the manager that must pass after the keys were written.
const QUIET: Duration = Duration::from_secs(3);
const SETTLING_TIME_MAX: Duration = Duration::from_secs(30);
/// The number of keys of all shards together.
const KEYS: u32 = 60_000;
/// The value length: like ZippyDB's objects, some 90 bytes.
const VALUE_BYTES: usize = 90;
/// The label of a mark.
const MOVED: &str = "it has moved";
const WRITES_OF_HUNDRED: u64 = 5;

/// The measurements.
#[derive(Debug, Default)]
pub struct Course {
    /// Answers of each server, of each window.
    pub windows: Vec<Vec<u32>>,
    /// The change of the load and the later actions of the manager, with times since the start.
    pub marks: Vec<(String, Duration)>,
    /// Hundredths of a second of processor time of each server until each window.
    pub ticks: Vec<Vec<u64>>,
    /// The servers that lose and gain load.
    pub from: usize,
    /// See `from`.
    pub to: usize,
}

/// The data shared by all clients.
struct Scene {
    servers: Vec<String>,
    /// Keys of each shard.
    keys: Vec<Vec<u32>>,
    /// The server of each shard at first.
    owners: Vec<usize>,
    from: usize,
    hot: usize,
    is_hot: AtomicBool,
    is_over: AtomicBool,
    started: Instant,
}

/// Runs the demo, draws it, and prints the cost.
pub fn run(crew: &mut Crew, clients: u64, seed: u64, path: &Path) -> Result<()> {
    let mut scene = Scene::set(crew)?;
    whole::wait(crew)?;
    scene.settle(crew)?;
    let started_at = std::time::UNIX_EPOCH.elapsed()?;
    let started = Instant::now();
    scene.started = started;
    let scene = Arc::new(scene);
    let spawn = |index| {
        let scene = Arc::clone(&scene);
        std::thread::spawn(move || User::new(&scene, seed, index).serve())
    };
    let threads: Vec<JoinHandle<Vec<Vec<u32>>>> = (0..clients).map(spawn).collect();
    let mut course = Course {
        from: scene.from,
        to: scene.owners[scene.hot],
        marks: vec![("hotspot".to_owned(), HOT_AFTER)],
        ..Course::default()
    };
    while started.elapsed() < LENGTH {
        let next = WINDOW * (course.ticks.len() as u32 + 1);
        std::thread::sleep(next.saturating_sub(started.elapsed()));
        let all = (0..crew.plan().servers).map(|index| crew.cpu_ticks(index).unwrap_or_default());
        course.ticks.push(all.collect());
        scene.is_hot.store(started.elapsed() >= HOT_AFTER, Ordering::Relaxed);
    }
    scene.is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        let own = thread.join().ok().context("a client panicked")?;
        course.windows.resize(course.windows.len().max(own.len()), vec![0; scene.servers.len()]);
        for (all, own) in course.windows.iter_mut().zip(own) {
            all.iter_mut().zip(own).for_each(|(all, own)| *all += own);
        }
    }
    course.windows.truncate(LENGTH.as_millis() as usize / WINDOW.as_millis() as usize);
    for said in crew.managers_said("\"msg\":\"configuration\"") {
        if let Some(at) = said.at.checked_sub(started_at).filter(|at| *at < LENGTH) {
            let filling = said.number("filling").unwrap_or_default();
            let what = if filling > 0 { "a shard moves" } else { MOVED };
            course.marks.push((what.to_owned(), at));
        }
    }
    reshard_chart::write(path, &course)?;
    tell(&course);
    Ok(())
}

impl Scene {
    /// Writes all keys, and finds the servers of the shards.
    fn set(crew: &Crew) -> Result<Scene> {
        let servers = crew.addresses().resp;
        let shards = usize::from(crew.plan().shards);
        let mut keys = vec![Vec::new(); shards];
        for key in 0..KEYS {
            let slot = usize::from(slot_of(&format!("hot{key}")));
            keys[(slot / (16_384 / shards)).min(shards - 1)].push(key);
        }
        let mut scene = Scene {
            owners: vec![0; shards],
            servers,
            keys,
            from: 0,
            hot: 0,
            is_hot: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            started: Instant::now(),
        };
        let mut user = User::new(&scene, 0, 0);
        for shard in 0..shards {
            // In pieces: each is a pipeline.
            for piece in scene.keys[shard].chunks(64) {
                let began = Instant::now();
                while !user.fill(shard, piece)? {
                    if began.elapsed() > Duration::from_secs(20) {
                        bail!("shard {shard} takes no writes: {}", user.refusal);
                    }
                }
            }
        }
        scene.owners = user.owners;
        Ok(scene)
    }

    /// Filling was load, too: waits until no shard moves because of it, and finds the servers of
    /// the shards.
    fn settle(&mut self, crew: &Crew) -> Result<()> {
        let said = || crew.managers_said("\"msg\":\"configuration\"").len();
        let (mut before, began) = (0, Instant::now());
        while before != said() && began.elapsed() < SETTLING_TIME_MAX {
            before = said();
            std::thread::sleep(QUIET);
        }
        let mut user = User::new(self, 0, 0);
        for shard in 0..self.keys.len() {
            let key = format!("hot{}", self.keys[shard].first().context("a shard has keys")?);
            while !user.ask(shard, &[&["GET", &key]])? {}
        }
        self.owners = user.owners;
        self.hot = self.keys.len() - 1;
        let to = self.owners[self.hot];
        // Prefers a server without a copy of the shard: a move to it moves data.
        let others = (1..self.servers.len()).map(|step| (to + step) % self.servers.len());
        let mut others = others.filter(|other| !has_copy(crew, self.hot, &self.servers[*other]));
        self.from = others.next().unwrap_or((to + 1) % self.servers.len());
        Ok(())
    }
}

/// Whether a server is a backup of a shard, by the leading manager's status.
fn has_copy(crew: &Crew, shard: usize, server: &str) -> bool {
    let status = crew.status().unwrap_or_default();
    let status = &status["status"];
    let is_it = |node: &&serde_json::Value| {
        let host = node["host"].as_str().unwrap_or_default();
        server == format!("{host}:{}", node["resp"])
    };
    let node = status["nodes"].as_array().and_then(|nodes| nodes.iter().find(is_it));
    let backups = status["shards"][shard]["backups"].as_array();
    let name = node.map(|node| &node["node"]);
    backups.is_some_and(|backups| backups.iter().any(|backup| Some(backup) == name))
}

struct User<'a> {
    scene: &'a Scene,
    dice: Dice,
    owners: Vec<usize>,
    connections: BTreeMap<usize, BufReader<TcpStream>>,
    windows: Vec<Vec<u32>>,
    /// The last error instead of an answer.
    refusal: String,
}

impl<'a> User<'a> {
    fn new(scene: &'a Scene, seed: u64, index: u64) -> User<'a> {
        let dice = Dice::new(seed ^ index.wrapping_mul(0x9e37_79b9));
        let owners = scene.owners.clone();
        let (connections, windows, refusal) = (BTreeMap::new(), Vec::new(), String::new());
        User { scene, dice, owners, connections, windows, refusal }
    }

    fn serve(mut self) -> Vec<Vec<u32>> {
        while !self.scene.is_over.load(Ordering::Relaxed) {
            let mut shard = self.dice.below(self.scene.keys.len() as u64) as usize;
            let is_hot = self.scene.is_hot.load(Ordering::Relaxed);
            if is_hot && self.scene.owners[shard] == self.scene.from && self.dice.below(10) < 8 {
                shard = self.scene.hot;
            }
            let keys = &self.scene.keys[shard];
            let key = format!("hot{}", keys[self.dice.below(keys.len() as u64) as usize]);
            let is_write = self.dice.below(100) < WRITES_OF_HUNDRED;
            let value = if is_write { "v".repeat(VALUE_BYTES) } else { String::new() };
            let words: &[&str] = if is_write { &["SET", &key, &value] } else { &["GET", &key] };
            match self.ask(shard, &[words]) {
                Ok(true) => {}
                Ok(false) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => {
                    self.connections.clear();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        self.windows
    }

    fn fill(&mut self, shard: usize, keys: &[u32]) -> Result<bool> {
        let value = "v".repeat(VALUE_BYTES);
        let names: Vec<String> = keys.iter().map(|key| format!("hot{key}")).collect();
        let words: Vec<[&str; 3]> = names.iter().map(|name| ["SET", name, &value]).collect();
        let commands: Vec<&[&str]> = words.iter().map(|words| &words[..]).collect();
        self.ask(shard, &commands)
    }

    /// Returns whether the request was answered and not refused; follows one MOVED.
    fn ask(&mut self, shard: usize, commands: &[&[&str]]) -> Result<bool> {
        let at = self.owners[shard];
        let connection = match self.connections.entry(at) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(connect(&self.scene.servers[at])?)
            }
        };
        match exchange(connection, commands)? {
            Reply::Error(line) => {
                let to = line.strip_prefix("MOVED ").and_then(|rest| rest.split(' ').nth(1));
                let to = self.scene.servers.iter().position(|server| Some(server.as_str()) == to);
                self.owners[shard] = to.unwrap_or(at);
                self.refusal = line;
                Ok(false)
            }
            _ => {
                let window = self.scene.started.elapsed().as_millis() / WINDOW.as_millis();
                let window = window as usize;
                if self.windows.len() <= window {
                    self.windows.resize(window + 1, vec![0; self.scene.servers.len()]);
                }
                self.windows[window][at] += commands.len() as u32;
                Ok(true)
            }
        }
    }
}

fn tell(course: &Course) {
    let total = |from: Duration, until: Duration| {
        let place = |at: Duration| at.as_millis() as usize / WINDOW.as_millis() as usize;
        let windows = course.windows.get(place(from)..place(until)).unwrap_or_default();
        let sum: u32 = windows.iter().flatten().sum();
        f64::from(sum) / (windows.len().max(1) as f64 * WINDOW.as_secs_f64())
    };
    let after = |from: Duration| course.marks.iter().filter(move |mark| mark.1 > from);
    let Some(begun) = after(HOT_AFTER).next().map(|mark| mark.1) else {
        println!("nothing was moved within {} s", (LENGTH - HOT_AFTER).as_secs());
        return;
    };
    let ended = after(begun).next().map_or(LENGTH, |mark| mark.1);
    let later = after(ended).filter(|mark| mark.0 == MOVED).count();
    let before = total(Duration::from_secs(1), HOT_AFTER);
    let dip = total(HOT_AFTER + WINDOW, begun);
    let moving = total(begun, ended.max(begun + WINDOW));
    let last = total(LENGTH - Duration::from_secs(3), LENGTH);
    println!("before the hotspot: {before:.0} requests per second");
    println!("hotspot: {dip:.0}, {:+.1} %", (dip / before - 1.0) * 100.0);
    println!("decided {:.0} ms after the hotspot", (begun - HOT_AFTER).as_secs_f64() * 1e3);
    println!(
        "the first move took {:.0} ms; meanwhile {moving:.0}, {:+.1} %; {later} more followed",
        (ended - begun).as_secs_f64() * 1e3,
        (moving / before - 1.0) * 100.0,
    );
    println!("last 3 s: {last:.0}, {:+.1} %", (last / before - 1.0) * 100.0);
}
