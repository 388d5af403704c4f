//! Measures a failover: from the kill of a primary until all shards take writes again.
//!
//! ```text
//!  kill ─ detected and stored ─▶ ─ all have installed it ─▶ ─ gathered, scattered ─▶ served
//!        └ the manager says so   └ the manager says so      └ a write of each shard
//! ```
//!
//! One client per shard writes without a pause. The time ends with the last shard to acknowledge a
//! write that began after the kill. Before the first kill all servers live for a while: if a lease
//! ends during that time, it is too short for this machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::crew::Crew;
use super::dice::Dice;
use super::place::Spot;
use super::resp::{Client, Told, slot_of};
use super::whole;

const SERVED_TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);
/// A manager's log text for each member that it removes.
const LEFT_OUT: &str = "no member any more";

/// One failover, in ms since the kill.
struct Taken {
    registered: f64,
    committed: f64,
    served: f64,
}

/// Observes for a while, kills `times` times, and prints medians and spread.
pub fn run(crew: &mut Crew, times: usize, seed: u64, calm: Duration) -> Result<()> {
    let alarms = || crew.managers_said(LEFT_OUT).len();
    let (polled, before) = (Polled::start(crew), alarms());
    std::thread::sleep(calm);
    println!("{} s of load: {} false alarms", calm.as_secs(), alarms() - before);
    drop(polled);
    whole::wait(crew)?;
    let mut dice = Dice::new(seed);
    let mut taken = Vec::new();
    let mut alarms = 0;
    for round in 1..=times {
        let primaries: Vec<usize> = (0..crew.plan().servers)
            .filter(|index| whole::ask(crew, *index).is_ok_and(|told| told.primary > 0))
            .collect();
        let victim = Spot::Server(dice.of(&primaries));
        let before = crew.managers_said(LEFT_OUT).len();
        let one = kill(crew, victim)?;
        println!(
            "failover {round}/{times}: {victim} killed; ms: in the config_store {:.1}, committed \
             {:.1}, all shards served {:.1}",
            one.registered, one.committed, one.served,
        );
        taken.push(one);
        crew.start_one(victim)?;
        whole::wait(crew)?;
        alarms += crew.managers_said(LEFT_OUT).len() - before - 1;
    }
    println!("{times} failovers, {alarms} more members left out than were killed");
    tell("detected and in the config store", &taken, |one| one.registered);
    tell("committed after that", &taken, |one| one.committed - one.registered);
    tell("promoted and served after that", &taken, |one| one.served - one.committed);
    tell("from kill to all shards served", &taken, |one| one.served);
    println!("of {times}, lease {}, {} shards", crew.plan().lease, crew.plan().shards);
    Ok(())
}

fn kill(crew: &mut Crew, victim: Spot) -> Result<Taken> {
    let polled = Polled::start(crew);
    // Every client has found its shard by then.
    polled.wait(Instant::now())?;
    let killed_at = std::time::UNIX_EPOCH.elapsed()?;
    let killed = Instant::now();
    crew.end(victim, "KILL")?;
    // A write that began before the server was dead may be its own last answer.
    let served = (polled.wait(Instant::now())? - killed).as_secs_f64() * 1e3;
    let since = |words: &str, from: Duration| {
        let said = crew.managers_said(words).into_iter().map(|said| said.at);
        said.into_iter().find(|at| *at >= from).unwrap_or(from)
    };
    let registered = since(LEFT_OUT, killed_at);
    let committed = since("all members have installed it", registered);
    let ms = |at: Duration| (at - killed_at).as_secs_f64() * 1e3;
    Ok(Taken { registered: ms(registered), committed: ms(committed), served })
}

fn tell(what: &str, taken: &[Taken], of: fn(&Taken) -> f64) {
    let mut all: Vec<f64> = taken.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    let Some(last) = all.len().checked_sub(1) else { return };
    let at = |part: f64| all[(last as f64 * part).round() as usize];
    println!(
        "{what}: median {:.1} ms, quartiles {:.1} to {:.1}, least {:.1}, most {:.1}",
        at(0.5),
        at(0.25),
        at(0.75),
        at(0.0),
        at(1.0),
    );
}

/// For each shard, the begin and the end of the last acknowledged write.
type Last = Vec<Option<(Instant, Instant)>>;

/// One client per shard that writes without a pause.
pub struct Polled {
    is_over: Arc<AtomicBool>,
    last: Arc<Mutex<Last>>,
}

impl Polled {
    /// Begins.
    pub fn start(crew: &Crew) -> Polled {
        let shards = crew.plan().shards;
        let polled = Polled {
            is_over: Arc::default(),
            last: Arc::new(Mutex::new(vec![None; usize::from(shards)])),
        };
        let slots = 16_384 / shards;
        for shard in 0..shards {
            let key = (0..).map(|number| format!("failover{number}"));
            let Some(key) = key.into_iter().find(|key| slot_of(key) / slots == shard) else {
                continue;
            };
            let mut client = Client::new(&crew.addresses().resp, usize::from(shard));
            let (is_over, last) = (Arc::clone(&polled.is_over), Arc::clone(&polled.last));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    if let Told::Reply(_) = client.ask(&["SET", &key, "1"]) {
                        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                        last[usize::from(shard)] = Some((began, Instant::now()));
                    }
                    std::thread::sleep(PAUSE);
                }
            });
        }
        polled
    }

    /// The time when every shard had acknowledged a write that began after `since`.
    pub fn wait(&self, since: Instant) -> Result<Instant> {
        // The first such write of each shard.
        let mut first: Vec<Option<Instant>> = Vec::new();
        loop {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            first.resize(last.len(), None);
            for (first, last) in first.iter_mut().zip(last) {
                let ended = last.filter(|(began, _)| *began >= since).map(|(_, ended)| ended);
                *first = first.or(ended);
            }
            if first.iter().all(Option::is_some) {
                return first.into_iter().flatten().max().context("a cluster has shards");
            }
            if since.elapsed() > SERVED_TIME_MAX {
                bail!("shards that are not served: {:?}", not_served(&first));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn not_served(first: &[Option<Instant>]) -> Vec<usize> {
    (0..first.len()).filter(|shard| first[*shard].is_none()).collect()
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
