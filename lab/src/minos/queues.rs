//! The four queueing models of Fig. 2, most of them without an event queue.
//!
//! ```text
//!  early       start = max(arrival, core's last finish): a recursion per core
//!  late        start = max(arrival, earliest finish of all cores): Kiefer and Wolfowitz
//!  steal       completions in time order; a core that runs dry takes the head of another's queue
//!  size-aware  early, with the size plan choosing the core; or under d-CREW, see `routed`
//! ```
//!
//! The models contain only waiting and service: no cost of dispatch, of stealing, of cold caches
//! (Minos §2.2: "an idealized scenario").

mod routed;

use std::collections::VecDeque;

use base::PartitionId;
use policy::size_class::SizePlan;
use rand::RngExt;
use rand::rngs::SmallRng;

pub use routed::size_aware_d_crew;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// When it arrives.
    pub at: f64,
    /// How long a core works on it.
    pub service: f64,
    /// A uniform number that stands for the key's hash.
    pub hash: u32,
}

impl Job {
    /// The core among `cores` that the hash chooses.
    #[inline]
    fn home(&self, cores: usize) -> usize {
        ((u64::from(self.hash) * cores as u64) >> 32) as usize
    }
}

/// Poisson arrivals whose service times `service` makes of a uniform number.
#[derive(Debug)]
pub struct Jobs<S> {
    random: SmallRng,
    gap_mean: f64,
    now: f64,
    service: S,
}

impl<S: Fn(f64) -> f64> Jobs<S> {
    /// `per_time` of them in a unit of time.
    pub fn new(random: SmallRng, per_time: f64, service: S) -> Jobs<S> {
        Jobs { random, gap_mean: 1.0 / per_time, now: 0.0, service }
    }
}

impl<S: Fn(f64) -> f64> Iterator for Jobs<S> {
    type Item = Job;

    #[inline]
    fn next(&mut self) -> Option<Job> {
        // 1 - [0, 1) is never 0, so the logarithm is finite.
        self.now += -(1.0 - self.random.random::<f64>()).ln() * self.gap_mean;
        let service = (self.service)(self.random.random());
        Some(Job { at: self.now, service, hash: self.random.random() })
    }
}

/// nxM/G/1: the hash binds each request to a core at once.
pub fn early(cores: usize, jobs: impl Iterator<Item = Job>, mut served: impl FnMut(&Job, f64)) {
    let mut free_at = vec![0.0_f64; cores];
    for job in jobs {
        let core = &mut free_at[job.home(cores)];
        *core = core.max(job.at) + job.service;
        served(&job, *core - job.at);
    }
}

/// M/G/n: the request that arrived first goes to the core that is free first.
pub fn late(cores: usize, jobs: impl Iterator<Item = Job>, mut served: impl FnMut(&Job, f64)) {
    let mut free_at = vec![0.0_f64; cores];
    for job in jobs {
        let core = earliest(&free_at);
        free_at[core] = free_at[core].max(job.at) + job.service;
        served(&job, free_at[core] - job.at);
    }
}

/// nxM/G/1 with stealing: a core serves its own queue first, then the head of the next core's that
/// has one. A request that finds its core busy and another idle is stolen at once.
pub fn steal(cores: usize, jobs: impl Iterator<Item = Job>, mut served: impl FnMut(&Job, f64)) {
    let mut state = Stealing {
        finish_at: vec![f64::INFINITY; cores],
        queues: vec![VecDeque::new(); cores],
        queued: 0,
        idle: cores,
    };
    for job in jobs {
        state.complete_until(job.at, &mut served);
        state.arrive(job, &mut served);
    }
    state.complete_until(f64::MAX, &mut served);
}

struct Stealing {
    /// Infinite: idle.
    finish_at: Vec<f64>,
    queues: Vec<VecDeque<Job>>,
    queued: usize,
    idle: usize,
}

impl Stealing {
    fn arrive(&mut self, job: Job, served: &mut impl FnMut(&Job, f64)) {
        let cores = self.finish_at.len();
        let home = job.home(cores);
        if self.idle == 0 {
            self.queues[home].push_back(job);
            self.queued += 1;
            return;
        }
        let next = (0..cores).map(|step| (home + step) % cores);
        let idle = next.into_iter().find(|core| self.finish_at[*core] == f64::INFINITY);
        let core = idle.expect("one is idle");
        self.idle -= 1;
        self.start(core, job.at, &job, served);
    }

    fn complete_until(&mut self, now: f64, served: &mut impl FnMut(&Job, f64)) {
        loop {
            let core = earliest(&self.finish_at);
            let finish_at = self.finish_at[core];
            if finish_at > now {
                return;
            }
            match self.take(core) {
                Some(job) => self.start(core, finish_at, &job, served),
                None => {
                    self.finish_at[core] = f64::INFINITY;
                    self.idle += 1;
                }
            }
        }
    }

    fn take(&mut self, core: usize) -> Option<Job> {
        if self.queued == 0 {
            return None;
        }
        self.queued -= 1;
        let cores = self.queues.len();
        (0..cores).find_map(|step| self.queues[(core + step) % cores].pop_front())
    }

    fn start(&mut self, core: usize, now: f64, job: &Job, served: &mut impl FnMut(&Job, f64)) {
        self.finish_at[core] = now + job.service;
        served(job, now + job.service - job.at);
    }
}

/// Minos: the size plan says which core serves a large request; small ones are bound to small cores
/// by hash, since what arrives for a large core is drained by all small ones alike. A size here is
/// the service time.
///
/// A standby core that has a large request is a large core until it is done: what arrives for it
/// meanwhile, the others drain.
pub fn size_aware(
    plan: &SizePlan,
    jobs: impl Iterator<Item = Job>,
    mut served: impl FnMut(&Job, f64),
) {
    let mut free_at = vec![0.0_f64; plan.worker_count];
    let mut standby_until = 0.0;
    for job in jobs {
        let core = match plan.core_for(job.service as u64, PartitionId(job.hash)) {
            Some(core) => core.index(),
            None if job.at < standby_until => job.home((plan.small_workers - 1).max(1)),
            None => job.home(plan.small_workers),
        };
        free_at[core] = free_at[core].max(job.at) + job.service;
        if job.service > plan.threshold_bytes as f64 && plan.standby.is_some() {
            standby_until = free_at[core];
        }
        served(&job, free_at[core] - job.at);
    }
}

/// The index of the least of `times`; of equals the first.
#[inline]
fn earliest(times: &[f64]) -> usize {
    let mut least = 0;
    for (index, at) in times.iter().enumerate() {
        if *at < times[least] {
            least = index;
        }
    }
    least
}
