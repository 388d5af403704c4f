//! Limits the copy to a number of keys and bytes a second.

use std::time::{Duration, Instant};

/// The longest single wait, so that an interruption is noticed.
const SLICE_MAX: Duration = Duration::from_millis(100);

/// One rate. Unused capacity is lost: no burst follows a pause.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_second: Option<u64>,
    free_at: Instant,
}

impl Throttle {
    pub(crate) fn new(per_second: Option<u64>) -> Throttle {
        Throttle { per_second, free_at: Instant::now() }
    }

    /// Charges `count`; returns the time from which the next ones may go.
    fn charge(&mut self, count: u64, now: Instant) -> Instant {
        let start = self.free_at.max(now);
        if let Some(per_second) = self.per_second {
            let seconds = count as f64 / per_second.max(1) as f64;
            let wait = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            self.free_at = start.checked_add(wait).unwrap_or(start);
        }
        start
    }
}

/// Charges both rates and waits; returns false if `is_stopped` said so.
pub(crate) fn wait(
    keys: (&mut Throttle, u64),
    bytes: (&mut Throttle, u64),
    is_stopped: impl Fn() -> bool,
) -> bool {
    let now = Instant::now();
    let until = keys.0.charge(keys.1, now).max(bytes.0.charge(bytes.1, now));
    pause(until.saturating_duration_since(now), is_stopped)
}

/// Sleeps in slices; returns false if `is_stopped` said so.
pub(crate) fn pause(time: Duration, is_stopped: impl Fn() -> bool) -> bool {
    let end = Instant::now() + time;
    loop {
        if is_stopped() {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(SLICE_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_delays_the_next_ones() {
        let start = Instant::now();
        let mut throttle = Throttle { per_second: Some(100), free_at: start };
        assert_eq!(throttle.charge(50, start), start);
        assert_eq!(throttle.charge(50, start), start + Duration::from_millis(500));
        // A pause of an hour saves up no capacity.
        let later = start + Duration::from_secs(3600);
        assert_eq!(throttle.charge(100, later), later);
        assert_eq!(throttle.charge(1, later), later + Duration::from_secs(1));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let start = Instant::now();
        let mut throttle = Throttle { per_second: None, free_at: start };
        assert_eq!(throttle.charge(u64::MAX, start), start);
        assert_eq!(throttle.charge(1, start), start);
    }

    #[test]
    fn an_interruption_ends_a_wait() {
        assert!(!pause(Duration::from_secs(3600), || true));
    }
}
