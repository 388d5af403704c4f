//! Roles: which thread has which half now, and how that changes while requests flow.
//!
//! ```text
//!  CONFIG SET, tuner ─change_roles─▶ latest: plan, routers ──Control::Roles──▶ every worker
//!                                              parks, drains, takes it up (`worker/roles`)
//! ```
//!
//! # Concurrency
//! Any thread may request other roles, and waits for no other thread. The lock is held while a plan
//! and its routers are made, and by each worker once for each plan.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::roles::{Publication, RolePlan, Transit};
use config::Config;
use config::StartError;
use policy::{Helping, Policies};

use super::layers::{Decider, Layers, helping};

/// Why requested roles are impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RolesError {
    /// More threads than were started, or none.
    #[error("threads must be 1 to {most}, as many as the server was started with")]
    Threads {
        /// The most.
        most: usize,
    },
    /// More threads would poll than there are, or none.
    #[error("cr-threads must be auto or 1 to {most}, the number of threads")]
    Dispatchers {
        /// The most.
        most: usize,
    },
    /// The dispatch setting fixes which threads poll.
    #[error("--dispatch hand-off:{workers} fixes which threads poll; start with another dispatch")]
    HandOff {
        /// The number of workers that poll under the dispatch setting.
        workers: u16,
    },
    /// No worker has the state that routing needs.
    #[error(
        "this server runs to completion; start it with --cr-threads 1 or more below --threads, or \
         with 4 threads and --cr-threads auto, to have two layers"
    )]
    OneLayer,
    /// The router does not work with that few workers.
    #[error("{reason}")]
    Policies {
        /// The policy's own words.
        reason: String,
    },
    /// The server is stopping: roles stay as they are.
    #[error("the server is stopping")]
    Stopping,
}

/// A plan and the routers of its threads.
pub struct PublishedRoles {
    /// The plan that all threads take up.
    pub publication: Publication,
    /// Which worker executes a request.
    pub policies: Policies,
    /// Whether requests go to workers other than the receiving one.
    pub is_routing: bool,
    helping: Option<Helping>,
    /// By dispatcher; each takes its own.
    deciders: Mutex<Vec<Option<Decider>>>,
}

/// A thread's role from now on.
pub struct Turn {
    /// The plan that it belongs to.
    pub plan: RolePlan,
    /// Whether its requests go to other workers.
    pub is_routing: bool,
    /// Whether small and large items have different workers.
    pub tells_sizes: bool,
    /// Which small requests idle large workers may take, if any.
    pub helping: Option<Helping>,
    /// None for a thread that does not poll.
    pub decider: Option<Decider>,
}

impl PublishedRoles {
    /// The plan.
    pub fn plan(&self) -> &RolePlan {
        self.publication.plan()
    }

    /// A thread's part in the plan; callable once for each thread.
    pub fn turn_of(&self, thread: usize) -> Turn {
        let decider = unpoisoned(&self.deciders).get_mut(thread).and_then(Option::take);
        debug_assert_eq!(decider.is_some(), self.plan().is_dispatcher(thread), "taken once");
        let PublishedRoles { policies, is_routing, helping, .. } = *self;
        let tells_sizes = policies.tell_sizes();
        Turn { plan: *self.plan(), is_routing, tells_sizes, helping, decider }
    }
}

/// The latest request for roles.
struct Latest {
    published: Arc<PublishedRoles>,
    /// `cr-threads auto`: all threads poll, or as many as the tuner decides. A number, even that of
    /// all threads, is set by hand.
    polls_with_all: bool,
}

/// The roles of a server's threads.
pub struct Roles {
    layers: Layers,
    latest: Mutex<Latest>,
    /// Connections in transit between two workers.
    pub transit: Transit,
}

/// A panic while a plan was made leaves the previous one in place.
fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Roles {
    /// The roles at the server's start: all threads have taken them up.
    pub fn new(layers: Layers, config: &Config) -> Result<Roles, StartError> {
        let policies = config.policies;
        let deciders = layers.deciders(&layers.start, config, policies)?;
        let deciders = deciders.into_iter().map(Some).collect();
        let published = Arc::new(PublishedRoles {
            publication: Publication::new(layers.start, 0),
            policies,
            is_routing: layers.is_routing(&layers.start, config, policies),
            helping: helping(config.large_help, policies),
            deciders: Mutex::new(deciders),
        });
        let polls_with_all = config.cr_threads.is_none() && !layers.has_fixed_dispatchers();
        let latest = Mutex::new(Latest { published, polls_with_all });
        Ok(Roles { layers, latest, transit: Transit::new() })
    }

    /// The layers that the settings allow.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The roles that were published last; some threads may not have taken them up yet.
    pub fn latest(&self) -> Arc<PublishedRoles> {
        Arc::clone(&unpoisoned(&self.latest).published)
    }

    /// Which threads receive and which execute, by the latest plan.
    pub fn plan(&self) -> RolePlan {
        *self.latest().plan()
    }

    /// Whether every thread has adopted the latest plan.
    pub fn are_settled(&self) -> bool {
        self.latest().publication.is_settled()
    }

    /// The number of threads, and of those that poll; `None`: all.
    pub fn asked(&self) -> (usize, Option<usize>) {
        let latest = unpoisoned(&self.latest);
        let plan = latest.published.plan();
        (plan.threads, (!latest.polls_with_all).then_some(plan.dispatchers))
    }

    /// Says why [`Roles::change`] would be refused.
    pub fn check(&self, config: &Config, wanted: Wanted) -> Result<(), RolesError> {
        self.next(&unpoisoned(&self.latest), config, wanted).map(|_| ())
    }

    /// Publishes other roles; unnamed parts stay as they are. Returns false if nothing was to be
    /// changed.
    pub fn change(&self, config: &Config, wanted: Wanted) -> Result<bool, RolesError> {
        let mut latest = unpoisoned(&self.latest);
        let (published, polls_with_all) = self.next(&latest, config, wanted)?;
        latest.polls_with_all = polls_with_all;
        let is_changed = published.is_some();
        if let Some(published) = published {
            latest.published = published;
        }
        Ok(is_changed)
    }

    /// The roles to publish, unless they are there already, and whether all threads poll.
    fn next(
        &self,
        latest: &Latest,
        config: &Config,
        wanted: Wanted,
    ) -> Result<(Option<Arc<PublishedRoles>>, bool), RolesError> {
        let now = *latest.published.plan();
        let polls_with_all = match wanted.dispatchers {
            // Without routing all threads poll, whatever number was named.
            Dispatchers::AsNow => latest.polls_with_all || !self.layers.is_routed,
            Dispatchers::All | Dispatchers::Auto => true,
            // A number set by hand meanwhile stays.
            Dispatchers::Tuned(_) if !latest.polls_with_all => return Ok((None, false)),
            Dispatchers::Tuned(_) => true,
            Dispatchers::Count(_) => false,
        };
        let threads = match wanted.threads {
            Threads::AsNow => now.threads,
            Threads::All => self.layers.thread_max,
            Threads::Count(count) => count,
        };
        let stays_auto = latest.polls_with_all && threads == now.threads;
        let dispatchers = match wanted.dispatchers {
            Dispatchers::Count(count) | Dispatchers::Tuned(count) => count,
            // It is set already: the tuner's division stays.
            Dispatchers::AsNow | Dispatchers::Auto if stays_auto => now.dispatchers,
            _ if polls_with_all => threads,
            _ => now.dispatchers,
        };
        // Tried policies hold while all threads poll; another division begins with the settings'.
        let is_divided_anew = (threads, dispatchers) != (now.threads, now.dispatchers);
        let policies = match wanted.policies {
            Some(policies) if polls_with_all && dispatchers == threads => policies,
            None if polls_with_all && !is_divided_anew => latest.published.policies,
            _ => config.policies,
        };
        let before = (now.threads, now.dispatchers, latest.published.policies);
        if (threads, dispatchers, policies) == before {
            return Ok((None, polls_with_all));
        }
        let plan = self.layers.plan(now.epoch + 1, threads, dispatchers)?;
        let is_routing = self.layers.is_routing(&plan, config, policies);
        if is_routing && !self.layers.is_routed {
            return Err(RolesError::OneLayer);
        }
        let deciders = self.layers.deciders(&plan, config, policies);
        let deciders =
            deciders.map_err(|error| RolesError::Policies { reason: error.to_string() })?;
        let deciders = Mutex::new(deciders.into_iter().map(Some).collect());
        let publication = Publication::new(plan, self.layers.thread_max);
        let helping = helping(config.large_help, policies);
        let published =
            Arc::new(PublishedRoles { publication, policies, is_routing, helping, deciders });
        Ok((Some(published), polls_with_all))
    }
}

/// Requested roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Threads with a role.
    pub threads: Threads,
    /// The threads among them that poll.
    pub dispatchers: Dispatchers,
    /// The tuner's policies, which hold while all threads poll. `None`: as now, and those of the
    /// settings if the threads are divided anew.
    pub policies: Option<Policies>,
}

impl Wanted {
    /// Lets `threads` threads work: the first `dispatchers` of them poll connections and the others
    /// execute. If all poll, they run to completion, `cr-threads` is `auto` and a tuner may divide
    /// them; a lower number is set by hand. Further threads sleep.
    pub fn by_hand(threads: usize, dispatchers: usize) -> Wanted {
        let polling = (dispatchers != threads).then_some(Dispatchers::Count(dispatchers));
        let dispatchers = polling.unwrap_or(Dispatchers::All);
        Wanted { threads: Threads::Count(threads), dispatchers, policies: None }
    }

    /// The same for the tuner: `cr-threads` stays `auto`.
    pub fn tuned(threads: usize, dispatchers: usize, policies: Policies) -> Wanted {
        let dispatchers = Dispatchers::Tuned(dispatchers);
        Wanted { threads: Threads::Count(threads), dispatchers, policies: Some(policies) }
    }
}

/// Threads with a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// As many as now.
    #[default]
    AsNow,
    /// As many as were started.
    All,
    /// The first ones, of that number.
    Count(usize),
}

/// Threads that poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatchers {
    /// As many as now; all if that was requested last and the number of threads changes.
    #[default]
    AsNow,
    /// All: run to completion, until the tuner finds something better.
    All,
    /// The same, unless it was requested already: then as now.
    Auto,
    /// The first ones, of that number; all others only execute.
    Count(usize),
    /// The tuner's number, valid while `auto` is the last request.
    Tuned(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of four threads and one that its tuner has divided into 1 and 3.
    fn tuned() -> (Config, Roles) {
        let config = Config { threads: 4, ..Config::default() };
        let roles = Roles::new(Layers::new(&config).unwrap(), &config).unwrap();
        let divided = Wanted { dispatchers: Dispatchers::Tuned(1), ..Wanted::default() };
        assert_eq!(roles.change(&config, divided), Ok(true));
        (config, roles)
    }

    /// Makes the requests one after another; checks how many threads poll in the end, and whether
    /// by hand.
    #[track_caller]
    fn check(wanted: &[Wanted], want: (usize, Option<usize>)) {
        let (config, roles) = tuned();
        for wanted in wanted {
            roles.change(&config, *wanted).unwrap();
        }
        assert_eq!((roles.latest().plan().dispatchers, roles.asked().1), want, "{wanted:?}");
    }

    #[test]
    fn auto_stays_auto_and_a_number_stays_by_hand_even_that_of_all_threads() {
        let dispatchers = |dispatchers| Wanted { dispatchers, ..Wanted::default() };
        let threads = |count| Wanted { threads: Threads::Count(count), ..Wanted::default() };
        check(&[], (1, None));
        check(&[dispatchers(Dispatchers::Auto)], (1, None));
        check(&[threads(4)], (1, None));
        check(&[threads(3)], (3, None));
        check(&[dispatchers(Dispatchers::Count(1))], (1, Some(1)));
        check(&[dispatchers(Dispatchers::Count(4))], (4, Some(4)));
        check(&[dispatchers(Dispatchers::Count(4)), dispatchers(Dispatchers::Auto)], (4, None));
        check(&[dispatchers(Dispatchers::Count(2)), dispatchers(Dispatchers::Auto)], (4, None));
        check(
            &[dispatchers(Dispatchers::Count(2)), dispatchers(Dispatchers::Tuned(3))],
            (2, Some(2)),
        );
    }

    #[test]
    fn a_number_of_pollers_that_was_all_of_them_allows_more_threads() {
        for (threads, wanted) in [(Threads::Count(3), 3), (Threads::All, 3), (Threads::Count(1), 1)]
        {
            let config = Config { threads: 3, ..Config::default() };
            let roles = Roles::new(Layers::new(&config).unwrap(), &config).unwrap();
            let dispatchers = Dispatchers::Count(2);
            let two = Wanted { threads: Threads::Count(2), dispatchers, policies: None };
            assert_eq!(roles.change(&config, two), Ok(true));
            assert_eq!(roles.asked(), (2, Some(2)));
            let others = Wanted { threads, ..Wanted::default() };
            assert_eq!(roles.change(&config, others), Ok(true));
            assert_eq!(roles.asked(), (wanted, None));
        }
    }
}
