//! How long a failover takes: from the kill of a primary until all shards take writes again.
//!
//! One client per shard writes without a pause. The time is that of the last shard whose write,
//! begun after the kill, is acknowledged.

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

/// Kills `times` times, and prints median and spread.
pub fn run(crew: &mut Crew, times: usize, seed: u64) -> Result<()> {
    let mut dice = Dice::new(seed);
    let mut taken_ms = Vec::new();
    for round in 1..=times {
        let primaries: Vec<usize> = (0..crew.plan().servers)
            .filter(|index| whole::ask(crew, *index).is_ok_and(|told| told.primary > 0))
            .collect();
        let victim = Spot::Server(dice.of(&primaries));
        let polled = Polled::start(crew);
        // Every client has found its shard by then.
        polled.wait(Instant::now())?;
        crew.end(victim, "KILL")?;
        let taken = polled.wait(Instant::now());
        polled.is_over.store(true, Ordering::Relaxed);
        let taken = taken?;
        taken_ms.push(taken.as_secs_f64() * 1e3);
        crew.start_one(victim)?;
        let whole = whole::wait(crew)?;
        println!(
            "failover {round}/{times}: {victim} killed, all shards served after {:.0} ms, \
             whole again {:.0} ms after its start",
            taken.as_secs_f64() * 1e3,
            whole.as_secs_f64() * 1e3,
        );
    }
    taken_ms.sort_by(f64::total_cmp);
    let at = |part: f64| taken_ms[((taken_ms.len() - 1) as f64 * part).round() as usize];
    println!(
        "failover: median {:.0} ms, quartiles {:.0} to {:.0} ms, least {:.0}, most {:.0} ms, of \
         {times}, lease {}, {} shards",
        at(0.5),
        at(0.25),
        at(0.75),
        at(0.0),
        at(1.0),
        crew.plan().lease,
        crew.plan().shards,
    );
    Ok(())
}

/// Of each shard, when the last write that was acknowledged began and ended.
type Last = Vec<Option<(Instant, Instant)>>;

struct Polled {
    is_over: Arc<AtomicBool>,
    last: Arc<Mutex<Last>>,
}

impl Polled {
    fn start(crew: &Crew) -> Polled {
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

    /// Until every shard has taken a write that began after `since`.
    fn wait(&self, since: Instant) -> Result<Duration> {
        // Of each shard, its first such write.
        let mut first: Vec<Option<Instant>> = Vec::new();
        loop {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            first.resize(last.len(), None);
            for (first, last) in first.iter_mut().zip(last) {
                let ended = last.filter(|(began, _)| *began >= since).map(|(_, ended)| ended);
                *first = first.or(ended);
            }
            if first.iter().all(Option::is_some) {
                let ended = first.into_iter().flatten().max().context("a cluster has shards")?;
                return Ok(ended - since);
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
