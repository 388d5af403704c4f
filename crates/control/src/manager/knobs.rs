//! The knobs that the tuner turns on a real server: the threads' roles, the hot set's size and the
//! ways of the cache.

use std::fs;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use base::Instant;
use config::Config;
use dispatch::hot::{HotKeys, ITEMS_DEFAULT, TRACKED_MAX};
use dispatch::lanes::{Dispatchers, Wanted};
use dispatch::layer_settings::why_not_tuned;
use dispatch::published::SharedWays;
use host::affinity;
use host::resctrl::CacheWays;
use policy::tuner::{Configuration, Ranges, RunToCompletion};
use runtime::shared::Shared;

use super::pressure::{self, KernelTimes, Pressure};
use super::tuning::Knobs;
use super::{Controller, Decision, Observed};

/// Step between two sizes of the hot set that a search tries (uTPS §3.5).
const HOT_STEP: u32 = 1_000;

/// Whether there is a tuner: one that turns a knob now, or would after CONFIG SET cr-threads auto.
pub fn may_tune(config: &Config, is_routed: bool, core_count: usize) -> bool {
    let left_to_it = Config { cr_threads: None, ..config.clone() };
    is_routed && why_not_tuned(&left_to_it, core_count).is_none()
}

/// The knobs.
pub struct ServerKnobs {
    shared: Arc<Shared>,
    ways: Option<SharedWays>,
    /// The hot set, whose size is turned while that is `auto`.
    hot: Option<Arc<HotKeys>>,
    /// The size set last, or found; `None`: it is not to be turned.
    hot_size: Option<usize>,
    pressure: Pressure,
    /// The epoch of the roles that were set last, or found.
    epoch: u64,
    is_by_hand: bool,
}

impl ServerKnobs {
    /// The knobs in their present positions.
    pub fn new(shared: Arc<Shared>, ways: Option<SharedWays>) -> ServerKnobs {
        let epoch = shared.roles().plan().epoch;
        let is_by_hand = shared.roles().asked().1.is_some();
        let hot = shared.hot_keys().cloned();
        let mut knobs = ServerKnobs {
            shared,
            ways,
            hot,
            hot_size: None,
            pressure: Pressure::default(),
            epoch,
            is_by_hand,
        };
        knobs.hot_size = knobs.hot_size_now();
        knobs
    }
}

impl ServerKnobs {
    /// The kernel's counts for the workers and their processors.
    fn kernel_times(shared: &Shared) -> KernelTimes {
        let read_thread = |worker| {
            let path = format!("/proc/self/task/{}/schedstat", shared.thread_id(worker)?);
            pressure::parse_schedstat(&fs::read_to_string(path).ok()?)
        };
        let processors = affinity::allowed();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        KernelTimes {
            threads: (0..shared.config().threads).map_while(read_thread).collect(),
            idle_ns: pressure::parse_idle_ns(&stat, &processors),
            processor_count: processors.len(),
        }
    }

    fn set_hot_size(&mut self, items: usize) {
        if let Some(keys) = self.hot_to_turn() {
            keys.set_size(items);
            self.hot_size = self.hot_size_now();
        }
    }

    fn hot_to_turn(&self) -> Option<&HotKeys> {
        self.hot.as_deref().filter(|keys| keys.is_auto())
    }

    fn hot_size_now(&self) -> Option<usize> {
        self.hot_to_turn().map(HotKeys::size)
    }
}

impl Knobs for ServerKnobs {
    fn ranges(&mut self) -> Option<(Ranges, Configuration)> {
        let plan = self.shared.roles().plan();
        let (threads, by_hand) = self.shared.roles().asked();
        if by_hand.is_some() || threads < 2 {
            // With threads divided by hand, the hot set has its usual size.
            self.set_hot_size(ITEMS_DEFAULT);
            return None;
        }
        let (way_range, ways) = match &self.ways {
            Some(ways) => {
                let ways = lock(ways);
                (ways.ways_min()..=ways.ways_max(), ways.ways())
            }
            None => (1..=1, 1),
        };
        let hot_size = self.hot_size.unwrap_or(0) as u32;
        let config = self.shared.config();
        let policies = self.shared.roles().latest().policies;
        let ranges = Ranges {
            policies: config.policies_tried(),
            mr_thread_count: 1..=(threads - 1) as u32,
            cached_item_count_max: self.cached_item_count_max().max(hot_size),
            cached_item_step: HOT_STEP,
            mr_way_count: way_range,
            run_to_completion: RunToCompletion::Tried,
        };
        let mr_thread_count = (plan.threads - plan.dispatchers) as u32;
        let configuration = Configuration {
            policies,
            mr_thread_count,
            // Without layers a hot set changes nothing: configurations that differ in it alone are
            // equal.
            cached_item_count: if mr_thread_count == 0 { 0 } else { hot_size },
            mr_way_count: ways,
        };
        Some((ranges, configuration))
    }

    fn were_turned(&mut self) -> bool {
        let epoch = self.shared.roles().plan().epoch;
        let is_by_hand = self.shared.roles().asked().1.is_some();
        let hot_size = self.hot_size_now();
        let before = (self.epoch, self.is_by_hand, self.hot_size);
        (self.epoch, self.is_by_hand, self.hot_size) = (epoch, is_by_hand, hot_size);
        before != (epoch, is_by_hand, hot_size)
    }

    fn prepare(&mut self) {
        let is_used = self.shared.roles().latest().policies.tell_sizes();
        if let Some(sizes) = self.shared.sizes()
            && !is_used
        {
            sizes.end_epoch(self.shared.size_counts(), is_used);
        }
    }

    fn reset(&mut self) {
        if self.shared.roles().asked().1.is_none() {
            let policies = Some(self.shared.config().policies);
            let wanted = Wanted { dispatchers: Dispatchers::All, policies, ..Wanted::default() };
            // It fails only while the server stops.
            let _ = self.shared.change_roles(wanted);
        }
        self.epoch = self.shared.roles().plan().epoch;
    }

    fn set(&mut self, configuration: &Configuration) -> Result<(), String> {
        let threads = self.shared.roles().plan().threads;
        let dispatchers = threads - configuration.mr_thread_count as usize;
        let wanted = Wanted::tuned(threads, dispatchers, configuration.policies);
        self.shared.change_roles(wanted).map_err(|error| error.to_string())?;
        self.epoch = self.shared.roles().plan().epoch;
        self.set_hot_size(configuration.cached_item_count as usize);
        let Some(ways) = &self.ways else { return Ok(()) };
        let mut ways = lock(ways);
        ways.set_ways(configuration.mr_way_count).map_err(|error| error.to_string())?;
        follow(&self.shared, &mut ways).map_err(|error| error.to_string())
    }

    fn are_settled(&self) -> bool {
        let has_readers = self.shared.roles().plan().has_two_layers();
        let is_in_force = |keys: &Arc<HotKeys>| keys.is_in_force(has_readers);
        self.shared.roles().are_settled() && self.hot.as_ref().is_none_or(is_in_force)
    }

    fn cached_item_count_max(&self) -> u32 {
        let eligible_count = self.hot_to_turn().map_or(0, HotKeys::eligible_count);
        (eligible_count as u32).next_multiple_of(HOT_STEP).min(TRACKED_MAX as u32)
    }

    fn busy_ratio(&mut self, now: Instant, observed: &Observed, busiest_ratio: f64) -> f64 {
        let shared = &self.shared;
        let read = || ServerKnobs::kernel_times(shared);
        busiest_ratio.max(self.pressure.look(now, &observed.busy_ns, read))
    }

    fn hot_share_ratio(&self) -> f64 {
        self.shared.hot_keys().map_or(0.0, |keys| keys.now().frequent_share_ratio())
    }
}

/// Keeps the memory-resident threads in their group, whether a setting or the tuner gave them that
/// role.
pub struct WaysFollower {
    shared: Arc<Shared>,
    ways: SharedWays,
    epoch: Option<u64>,
}

impl WaysFollower {
    /// No thread is in the group yet.
    pub fn new(shared: Arc<Shared>, ways: SharedWays) -> WaysFollower {
        WaysFollower { shared, ways, epoch: None }
    }
}

impl Controller for WaysFollower {
    fn name(&self) -> &'static str {
        "ways"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn tick(&mut self, _: Instant, _: &Observed) -> Option<Decision> {
        let epoch = self.shared.roles().plan().epoch;
        if self.epoch.replace(epoch) == Some(epoch) {
            return None;
        }
        let error = follow(&self.shared, &mut lock(&self.ways)).err()?;
        let change = "cache ways stay as they were".to_owned();
        let (what, reason, inputs) = (Vec::new(), error.to_string(), Vec::new());
        Some(Decision { what, change, reason, inputs })
    }
}

/// Puts the threads that only execute into the group, and all others out of it.
pub fn follow(shared: &Shared, ways: &mut CacheWays) -> Result<(), host::resctrl::ResctrlError> {
    let plan = shared.roles().plan();
    let mr_threads: Vec<i32> = (plan.dispatchers..plan.threads)
        .filter(|_| plan.has_two_layers())
        .filter_map(|worker| shared.thread_id(worker))
        .collect();
    ways.set_threads(&mr_threads)
}

/// A panic while the lock was held leaves the kernel's state as it is.
pub fn lock(ways: &SharedWays) -> MutexGuard<'_, CacheWays> {
    ways.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use config::{HotSetSize, Tuning};
    use dispatch::lanes::Threads;
    use policy::{Dispatch, Policies, WritePolicy};

    use super::*;

    #[track_caller]
    fn check(threads: usize, tuning: Tuning, core_count: usize, want: Option<&str>) {
        let config = Config { threads, tuning, ..Config::default() };
        assert_eq!(why_not_tuned(&config, core_count).as_deref(), want);
    }

    #[test]
    fn few_threads_are_left_to_run_to_completion_unless_the_tuner_is_asked_for() {
        check(4, Tuning::Auto, 4, None);
        check(2, Tuning::On, 2, None);
        check(
            3,
            Tuning::Auto,
            3,
            Some("3 threads run to completion: give --tuner on to let it try two layers"),
        );
        check(4, Tuning::Auto, 2, Some("4 threads share 2 cores: give --tuner on"));
        check(8, Tuning::Auto, 6, Some("8 threads share 6 cores: give --threads 6 or --tuner on"));
        check(
            1,
            Tuning::Auto,
            2,
            Some("one thread has no layers: give --threads 2 or more, and --tuner on"),
        );
        check(8, Tuning::Off, 8, Some("--tuner off"));
        check(1, Tuning::On, 1, Some("one thread has no layers: give --threads 2 or more"));
    }

    /// The tuner's findings on a server that has just started, and the knobs that it turns there.
    #[test]
    fn the_tuner_begins_within_its_ranges_and_waits_until_a_hot_set_is_in_force() {
        let config =
            Config { threads: 2, tuning: Tuning::On, memory_bytes: 128 << 20, ..Config::default() };
        let shared = Arc::new(Shared::new(config));
        let mut knobs = ServerKnobs::new(Arc::clone(&shared), None);
        let (ranges, configuration) = knobs.ranges().unwrap();
        assert!(ranges.contain(&configuration), "{configuration}");
        assert_eq!(configuration.cached_item_count, 0, "no layers, and no search among equals");
        assert_eq!(shared.hot_keys().unwrap().size(), ITEMS_DEFAULT);
        assert!(knobs.are_settled() && !knobs.were_turned());
        let keys = Arc::clone(shared.hot_keys().unwrap());
        let other = Configuration { cached_item_count: 3_000, ..configuration };
        knobs.set(&other).unwrap();
        assert!(keys.is_in_force(false) && !keys.is_in_force(true), "two layers alone read them");
        let mut epochs = dispatch::hot::HotEpochs::new(Arc::clone(&keys), Instant { ns: 0 });
        let layers = Observed { has_two_layers: true, ..Observed::default() };
        assert!(epochs.is_urgent(&layers) && !epochs.is_urgent(&Observed::default()));
        epochs.tick(Instant { ns: 0 }, &layers);
        assert!(keys.is_in_force(true), "the keys are chosen for that size");
        epochs.tick(Instant { ns: 0 }, &Observed::default());
        assert!(knobs.are_settled() && !knobs.were_turned());
        shared.hot_keys().unwrap().set_size(7);
        assert!(knobs.were_turned() && !knobs.were_turned());
        shared.hot_keys().unwrap().choose(HotSetSize::Items(7));
        assert!(knobs.were_turned() && !knobs.were_turned(), "it is by hand from now on");
        knobs.set(&other).unwrap();
        assert_eq!((shared.hot_keys().unwrap().size(), knobs.cached_item_count_max()), (7, 0));
        shared.hot_keys().unwrap().choose(HotSetSize::Auto);
        assert!(knobs.were_turned());
    }

    #[test]
    fn a_size_that_was_asked_for_is_not_turned() {
        let hot_set = HotSetSize::Items(50);
        let config = Config {
            threads: 2,
            tuning: Tuning::On,
            hot_set,
            memory_bytes: 128 << 20,
            ..Config::default()
        };
        let shared = Arc::new(Shared::new(config));
        let mut knobs = ServerKnobs::new(Arc::clone(&shared), None);
        let (ranges, configuration) = knobs.ranges().unwrap();
        assert_eq!((ranges.cached_item_count_max, configuration.cached_item_count), (0, 0));
        knobs.set(&configuration).unwrap();
        assert_eq!(shared.hot_keys().unwrap().size(), 50);
    }

    /// A tuner that does nothing until `auto` is set, where the workers can be divided at all.
    #[test]
    fn a_number_of_pollers_at_the_start_leaves_room_for_a_tuner_afterwards() {
        let check = |cr_threads, policies: &str, want| {
            let (write_policy, dispatch) = policies.split_once(' ').unwrap();
            let named = Policies::new(write_policy.parse().unwrap(), dispatch.parse().unwrap());
            let base = Config { memory_bytes: 128 << 20, ..Config::default() };
            let config = Config { threads: 4, cr_threads, policies: named, ..base };
            let shared = Arc::new(Shared::new(config.clone()));
            let is_routed = shared.roles().layers().is_routed;
            let found = may_tune(&config, is_routed, 4).then(|| {
                let mut knobs = ServerKnobs::new(Arc::clone(&shared), None);
                let had_ranges = knobs.ranges().is_some();
                let asked = Wanted { dispatchers: Dispatchers::Auto, ..Wanted::default() };
                shared.change_roles(asked).unwrap();
                (had_ranges, knobs.were_turned() && knobs.ranges().is_some())
            });
            assert_eq!(found, want, "{cr_threads:?} {policies}");
        };
        check(None, "crcw any", Some((true, false)));
        check(Some(1), "crcw any", Some((false, true)));
        check(Some(4), "erew key-hash", Some((false, true)));
        check(Some(4), "crcw any", None); // Nothing is routed: its workers have one half.
        check(Some(1), "crcw hand-off:1", None);
    }

    #[test]
    fn policies_on_trial_end_with_a_change_by_hand_and_with_the_tuner() {
        let base = Config { threads: 4, memory_bytes: 128 << 20, ..Config::default() };
        let shared = Arc::new(Shared::new(Config { tries_policies: true, ..base }));
        let mut knobs = ServerKnobs::new(Arc::clone(&shared), None);
        let (ranges, start) = knobs.ranges().unwrap();
        assert_eq!((ranges.policies.len(), start.policies), (4, Policies::STAY));
        let on_trial = Configuration { policies: Policies::TRIED[3], ..start };
        let policies = || shared.roles().latest().policies;
        for threads in [3, 1, 4] {
            knobs.set(&on_trial).unwrap();
            assert_eq!(policies(), Policies::TRIED[3]);
            let fewer = Wanted { threads: Threads::Count(threads), ..Wanted::default() };
            let is_other = threads != shared.roles().plan().threads;
            shared.change_roles(fewer).unwrap();
            assert_eq!(policies() == Policies::STAY, is_other, "{threads} threads");
            assert_eq!(knobs.were_turned(), is_other);
            knobs.reset();
            assert_eq!(policies(), Policies::STAY);
            assert!(!knobs.were_turned(), "it was its own doing");
        }
        knobs.set(&Configuration { mr_thread_count: 2, ..start }).unwrap();
        knobs.reset();
        assert_eq!((shared.roles().plan().dispatchers, policies()), (4, Policies::STAY));
    }

    #[test]
    fn what_is_fixed_by_the_settings_is_not_tuned() {
        let fixed =
            Config { threads: 4, cr_threads: Some(1), tuning: Tuning::On, ..Config::default() };
        let words = "--cr-threads 1 leaves it nothing to turn: give --cr-threads auto";
        assert_eq!(why_not_tuned(&fixed, 4).as_deref(), Some(words));
        let policies = Policies::new(WritePolicy::Crcw, Dispatch::HandOff(1));
        let hand_off = Config { cr_threads: None, policies, ..fixed };
        let words = "--dispatch hand-off:1 fixes the threads that poll: give another --dispatch";
        assert_eq!(why_not_tuned(&hand_off, 4).as_deref(), Some(words));
    }
}
