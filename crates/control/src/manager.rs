//! The manager: one thread that runs the slow controllers beside the workers.
//!
//! ```text
//!  workers' cells ─▶ Observed ─▶ Manager::step ─▶ each controller that is due ─▶ Decision
//!                        ▲            │                                             │
//!                        └── sleep ───┘ until the next is due,                   Decision log
//!                                       or 1 s if nothing was asked of the server
//! ```
//!
//! A controller reads the figures that workers publish, decides by pure code of `policy`, and
//! publishes the result: a plan, a set, roles. No thread waits for it, and it waits for none.
//!
//! # Invariants
//! I1: on an idle server the thread wakes once a second, looks at the counts of requests, and
//!     sleeps again.
//! I2: a controller is asked again only after its own period, unless another thread waits for its
//!     work ([`Controller::is_urgent`]).
//! I3: the decision log records each decision, with its reason, the figures behind it, and its
//!     time.
//! I4: a controller that shows recent measurements is informed when the server turns idle.
//!
//! # Limits
//! Traffic that begins on an idle server is seen after up to a second.

pub mod knobs;
mod pressure;
mod size_monitor;
pub mod slo_monitor;
pub mod tuning;
pub mod ways;
pub mod workload;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use base::Instant;
use config::StartError;
use config::Tuning;
use crossbeam_channel::{RecvTimeoutError, Sender};
use dispatch::published::DecisionLog;
use policy::tuner::TunerRules;

use size_monitor::SizeMonitor;

pub use dispatch::controller::{Controller, Decision, Observed};
use dispatch::hot::HotEpochs;
use dispatch::layer_settings::why_not_tuned;
use host::affinity;
use host::resctrl::Cat;
use runtime::shared::Shared;
use sessions::doors::{self, Reminder};

/// Time between two looks at an idle server; a server without a request for this long is idle.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// The shortest sleep, even if a controller wants to be asked sooner.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The controllers that the settings require.
fn controllers(shared: &Arc<Shared>) -> Vec<Box<dyn Controller>> {
    let mut controllers: Vec<Box<dyn Controller>> =
        vec![Box::new(workload::WorkloadMonitor::new(Arc::clone(shared)))];
    if let Some(keys) = shared.hot_keys() {
        controllers.push(Box::new(HotEpochs::new(Arc::clone(keys), clock(shared))));
    }
    let ways = shared.control().ways.get().cloned();
    if let Some(ways) = &ways {
        let follower = knobs::WaysFollower::new(Arc::clone(shared), Arc::clone(ways));
        controllers.push(Box::new(follower));
    }
    let is_routed = shared.roles().layers().is_routed;
    if knobs::may_tune(shared.config(), is_routed, affinity::processor_count()) {
        let tuned_ways = ways.filter(|_| !matches!(shared.config().cat, Cat::Ways(_)));
        let knobs = knobs::ServerKnobs::new(Arc::clone(shared), tuned_ways);
        let shown = Arc::clone(shared);
        let show = move |view| shown.control().tuner.set(view);
        controllers.push(Box::new(tuning::Tuning::new(knobs, TunerRules::default(), show)));
    }
    if shared.slo().is_measurable() {
        controllers.push(Box::new(slo_monitor::SloMonitor::new(Arc::clone(shared))));
    }
    if shared.sizes().is_some() {
        controllers.push(Box::new(SizeMonitor::new(Arc::clone(shared))));
    }
    controllers
}

/// Decides when to ask which controller. Time comes in as an argument.
pub struct Manager {
    controllers: Vec<Due>,
    request_count: u64,
    /// When requests were last found.
    worked_at: Instant,
    is_idle: bool,
}

struct Due {
    controller: Box<dyn Controller>,
    at: Instant,
}

impl Manager {
    /// None has been asked yet.
    pub fn new(controllers: Vec<Box<dyn Controller>>, now: Instant) -> Manager {
        let due = |controller| Due { controller, at: now };
        Manager {
            controllers: controllers.into_iter().map(due).collect(),
            request_count: 0,
            worked_at: now,
            is_idle: true,
        }
    }

    /// Asks the controllers that are due; returns how long none is.
    pub fn step(
        &mut self,
        now: Instant,
        observed: &Observed,
        decision_log: &DecisionLog,
    ) -> Duration {
        let was_idle = self.is_idle;
        self.look(now, observed);
        if self.is_idle {
            if !was_idle {
                self.controllers.iter_mut().for_each(|due| due.controller.rest());
            }
            return IDLE_LOOK; // I1
        }
        let mut next_at = Instant { ns: now.ns + IDLE_LOOK.as_nanos() as u64 };
        for due in &mut self.controllers {
            if due.at <= now || due.controller.is_urgent(observed) {
                if let Some(decision) = due.controller.tick(now, observed) {
                    decision_log.add(due.controller.name(), decision); // I3
                }
                due.at = Instant { ns: now.ns + due.controller.period().as_nanos() as u64 }; // I2
            }
            next_at = next_at.min(due.at);
        }
        Duration::from_nanos(next_at.ns - now.ns).max(SLEEP_MIN)
    }

    fn look(&mut self, now: Instant, observed: &Observed) {
        if observed.request_count != self.request_count {
            self.request_count = observed.request_count;
            self.worked_at = now;
            self.is_idle = false;
        } else if now.ns - self.worked_at.ns >= IDLE_LOOK.as_nanos() as u64 {
            self.is_idle = true;
        }
    }
}

/// The running thread. Dropping it ends it.
pub struct ManagerThread {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ManagerThread {
    /// Starts the thread with the controllers that the settings require, and logs which.
    pub fn start(shared: &Arc<Shared>) -> Result<ManagerThread, StartError> {
        open_ways(shared)?;
        ManagerThread::spawn(shared)
            .map_err(|source| StartError::System { what: "start the manager", source })
    }

    fn spawn(shared: &Arc<Shared>) -> io::Result<ManagerThread> {
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let shared = Arc::clone(shared);
        let thread =
            std::thread::Builder::new().name("dovetail-manager".to_owned()).spawn(move || {
                let mut manager = Manager::new(controllers(&shared), clock(&shared));
                let mut observed = Observed::default();
                let mut reminder = Reminder::default();
                loop {
                    remind(&shared, &mut reminder);
                    observed.observe(shared.all_counters());
                    observed.has_two_layers = shared.roles().plan().has_two_layers();
                    let sleep =
                        manager.step(clock(&shared), &observed, &shared.control().decision_log);
                    if stopped.recv_timeout(sleep) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })?;
        Ok(ManagerThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ManagerThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the manager thread panicked");
        }
    }
}

/// Opens the cache's group, and logs what is tuned and what is not, a line each.
fn open_ways(shared: &Shared) -> Result<(), StartError> {
    let config = shared.config();
    let why_not = why_not_tuned(config, affinity::processor_count());
    let has_two_layers = why_not.is_none() || shared.roles().plan().has_two_layers();
    match ways::open(config, has_two_layers)? {
        ways::Opened::Ways(ways) => {
            let of_threads = knobs::follow(shared, &mut knobs::lock(&ways));
            of_threads
                .map_err(|error| StartError::Cat { cat: config.cat, reason: error.to_string() })?;
            let (mr_ways, ways_max) = {
                let ways = knobs::lock(&ways);
                (ways.ways(), ways.ways_max())
            };
            tracing::info!(mr_ways, ways_max, "cache ways");
            // Set once, at the start.
            let _ = shared.control().ways.set(ways);
        }
        ways::Opened::Not(why) => tracing::info!("cache ways: not used: {why}"),
    }
    match why_not {
        None => tracing::info!("tuner: on"),
        Some(why) if config.tuning != Tuning::Off => tracing::info!("tuner: off: {why}"),
        Some(_) => {}
    }
    Ok(())
}

/// Logs one line a minute while `--insecure` leaves a door open to strangers.
fn remind(shared: &Shared, reminder: &mut Reminder) {
    if !shared.config().is_insecure || !reminder.is_due(clock(shared)) {
        return;
    }
    let exposed = doors::exposed(shared.config(), &shared.door_state());
    if !exposed.is_empty() {
        tracing::warn!(
            "--insecure: every machine that reaches these addresses has all data: {}; set \
             --requirepass and --native-key-file, or bind them to 127.0.0.1",
            exposed.join(", "),
        );
    }
}

fn clock(shared: &Shared) -> Instant {
    Instant { ns: u64::try_from(shared.run().uptime().as_nanos()).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests;
