//! Tests of the tuner on simulated servers where the policies of routing matter: a planted cost
//! makes each candidate win once.

use super::super::*;

/// Four threads without control of cache ways, and with settings that leave the policies open.
fn ranges() -> Ranges {
    Ranges {
        policies: Policies::TRIED.to_vec(),
        mr_thread_count: 1..=3,
        cached_item_count_max: 0,
        cached_item_step: 1_000,
        mr_way_count: 1..=1,
        run_to_completion: RunToCompletion::Tried,
    }
}

fn without_layers(policies: Policies) -> Configuration {
    Configuration { policies, mr_thread_count: 0, cached_item_count: 0, mr_way_count: 1 }
}

/// A load: what each configuration serves of it.
#[derive(Clone, Copy, Debug)]
struct Load {
    best: Configuration,
    /// What the best serves more than all others.
    gain_ratio: f64,
    /// Windows differ from their mean by up to this fraction.
    noise_ratio: f64,
}

impl Load {
    fn served_rps(&self, configuration: Configuration) -> f64 {
        if configuration == self.best { 1e6 * (1.0 + self.gain_ratio) } else { 1e6 }
    }
}

struct Server {
    tuner: Tuner,
    window_count: u64,
    /// Requests served, and those that the best configuration would have served.
    served: f64,
    best_served: f64,
}

impl Server {
    fn new() -> Server {
        let tuner = Tuner::new(ranges(), TunerRules::default(), without_layers(Policies::STAY));
        Server { tuner, window_count: 0, served: 0.0, best_served: 0.0 }
    }

    fn window(&mut self, load: &Load) {
        self.window_of(load, 1.0);
    }

    /// A window of a load whose requests cost so much less than usual.
    fn window_of(&mut self, load: &Load, scale_ratio: f64) {
        self.window_count += 1;
        let random = base::hash::mix(self.window_count) as f64 / u64::MAX as f64;
        let served_rps = scale_ratio * load.served_rps(self.tuner.configuration());
        self.served += served_rps;
        self.best_served += load.served_rps(load.best);
        self.tuner.feed(Measurement {
            throughput_rps: served_rps * (1.0 + load.noise_ratio * (2.0 * random - 1.0)),
            hot_share_ratio: 0.0,
            busy_ratio: 1.0,
            over_slo_ratio: 0.0,
        });
    }

    /// Lets windows pass until a search has begun and ended; returns their number.
    fn settle(&mut self, load: &Load) -> u64 {
        let before = self.window_count;
        let searches = self.tuner.counters().search_count;
        while self.tuner.counters().search_count == searches || self.tuner.is_searching() {
            self.window(load);
            assert!(self.window_count - before < 100_000, "no search ends");
        }
        self.window_count - before
    }
}

fn candidates() -> Vec<Configuration> {
    let layered = (1..=3)
        .map(|mr_thread_count| Configuration { mr_thread_count, ..without_layers(Policies::STAY) });
    Policies::TRIED.into_iter().map(without_layers).chain(layered).collect()
}

/// Windows of 10 ms: a second where candidates differ by 30 % or more, ten otherwise.
#[test]
fn each_candidate_wins_where_it_serves_most() {
    for best in candidates() {
        let quiet = [(0.10, 0.0, 100), (0.30, 0.05, 100)];
        // Windows that differ by a third from one to the next.
        let noisy = [(0.50, 0.15, 100), (0.25, 0.15, 1_000), (0.30, 0.33, 1_000)];
        for (gain_ratio, noise_ratio, windows_max) in quiet.into_iter().chain(noisy) {
            let load = Load { best, gain_ratio, noise_ratio };
            let mut server = Server::new();
            let window_count = server.settle(&load);
            let found = server.tuner.configuration();
            assert_eq!(found, best, "{gain_ratio} more, noise {noise_ratio}");
            assert!(window_count <= windows_max, "{window_count} windows for {best}: {load:?}");
        }
    }
}

#[test]
fn equal_candidates_leave_every_request_where_it_is() {
    for noise_ratio in [0.0, 0.05, 0.15, 0.33, 0.6] {
        let best = without_layers(Policies::STAY);
        let load = Load { best, gain_ratio: 0.0, noise_ratio };
        let mut server = Server::new();
        for _ in 0..360_000 {
            server.window(&load);
        }
        assert_eq!(server.tuner.configuration(), best, "noise {noise_ratio}");
        assert_eq!(server.tuner.counters().adopted_count, 0, "noise {noise_ratio}");
        let bound = u64::from(ranges().noisy_windows_max());
        let counters = server.tuner.counters();
        let searches = counters.search_count + counters.restart_count;
        assert!(counters.search_window_count <= bound * searches, "I1: {counters:?}");
    }
}

/// What is tried and does not pay costs at most 3 % of the minute after a change.
#[test]
fn trials_cost_little_of_the_minute_after_a_change() {
    for noise_ratio in [0.0, 0.05, 0.15, 0.33] {
        for best in candidates() {
            // All others serve half as much.
            let load = Load { best, gain_ratio: 1.0, noise_ratio };
            let other = Load { best: without_layers(Policies::TRIED[3]), ..load };
            let mut server = Server::new();
            server.settle(&other);
            for _ in 0..3_000 {
                server.window(&other);
            }
            (server.served, server.best_served) = (0.0, 0.0);
            for _ in 0..6_000 {
                server.window(&load);
            }
            let lost_ratio = 1.0 - server.served / server.best_served;
            assert!(lost_ratio < 0.03, "noise {noise_ratio}, {best}: {lost_ratio:.3} lost");
        }
    }
}

/// The same with as many sizes of the hot set as uTPS tries, and windows that differ much.
#[test]
fn searches_of_a_noisy_load_take_a_tenth_of_the_time() {
    for (noise_ratio, period_window_count) in [(0.2, 4_500), (0.33, 4_500), (0.6, 3_000)] {
        let ranges = Ranges { cached_item_count_max: 10_000, ..ranges() };
        let first = without_layers(Policies::STAY);
        let mut server =
            Server { tuner: Tuner::new(ranges, TunerRules::default(), first), ..Server::new() };
        let load = Load { best: first, gain_ratio: 0.0, noise_ratio };
        for window_index in 0..360_000_u64 {
            let is_half = window_index / period_window_count % 2 == 1;
            server.window_of(&load, if is_half { 0.5 } else { 1.0 });
        }
        let counters = server.tuner.counters();
        assert_eq!(counters.adopted_count, 0, "noise {noise_ratio}");
        assert!(counters.search_window_count <= 36_000, "I4: noise {noise_ratio}: {counters:?}");
        assert!(counters.search_count > 20, "{counters:?}");
    }
}

/// Loads that change all the time: each search soon after another makes the next one rarer.
#[test]
fn an_hour_of_changing_loads_does_not_flap() {
    for period_window_count in [50, 300, 1_000, 6_000, 30_000] {
        let mut server = Server::new();
        for window_index in 0..360_000_u64 {
            let turn = (window_index / period_window_count) as usize;
            let best = candidates()[turn % candidates().len()];
            server.window(&Load { best, gain_ratio: 0.5, noise_ratio: 0.1 });
        }
        let counters = server.tuner.counters();
        let turns = 360_000 / period_window_count;
        assert!(counters.adopted_count <= turns.min(300), "{period_window_count}: {counters:?}");
        assert!(counters.search_window_count < 36_000, "I4: {period_window_count}: {counters:?}");
    }
}

/// The load that comes while the tuner rests from the one before is searched for after the rest.
#[test]
fn a_change_during_a_rest_is_noticed_after_it() {
    for noise_ratio in [0.0, 0.1] {
        let first = Load { best: without_layers(Policies::STAY), gain_ratio: 0.0, noise_ratio };
        let best = without_layers(Policies::TRIED[3]);
        let mut server = Server::new();
        server.settle(&first);
        // At once, so that no baseline was taken of the first load; it serves half.
        let load = Load { best, gain_ratio: 0.5, noise_ratio };
        for _ in 0..4_000 {
            server.window_of(&load, 0.5);
        }
        assert_eq!(server.tuner.configuration(), best, "noise {noise_ratio}");
        assert!(server.tuner.counters().search_count >= 2);
    }
}

/// A search that loses its load has found nothing: the same load is searched for when it is back.
#[test]
fn a_search_that_was_given_up_is_made_again() {
    let best = without_layers(Policies::TRIED[3]);
    let load = Load { best, gain_ratio: 0.5, noise_ratio: 0.0 };
    let mut server = Server::new();
    while !server.tuner.is_searching() {
        server.window(&load);
    }
    while server.tuner.is_searching() {
        server.window_of(&load, 0.0);
    }
    for _ in 0..400 {
        server.window(&load);
    }
    assert_eq!(server.tuner.configuration(), best);
}

#[test]
fn a_search_says_what_each_candidate_served() {
    let best = without_layers(Policies::TRIED[2]);
    let load = Load { best, gain_ratio: 0.5, noise_ratio: 0.0 };
    let mut server = Server::new();
    let event = loop {
        server.window(&load);
        match server.tuner.take_event() {
            None | Some(Event::Begun { .. }) => {}
            Some(event) => break event,
        }
    };
    let Event::Adopted { from, to, confirmed, tried } = event else { panic!("{event:?}") };
    assert_eq!((from, to), (without_layers(Policies::STAY), best));
    assert_eq!((confirmed.best_rps, confirmed.incumbent_rps), (1.5e6, 1e6));
    let served = |index: usize| if index == 2 { 1.5e6 } else { 1e6 };
    let one_layer: Vec<_> = (0..4).map(|index| (Policies::TRIED[index], served(index))).collect();
    assert_eq!(tried, Tried { one_layer, two_layers_rps: Some(1e6) });
    assert_eq!(
        (from.to_string(), to.to_string()),
        ("run to completion".to_owned(), "crcw size-aware".to_owned())
    );
}
