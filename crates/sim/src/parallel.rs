//! Runs the points of a figure in parallel, with a progress bar on a terminal.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

thread_local! {
    /// This thread runs points, so that whatever it starts is a part of one: only the whole has a
    /// bar.
    static RUNS_POINTS: Cell<bool> = const { Cell::new(false) };
}

/// `run` of each point, in the points' order, on `threads` threads.
///
/// The result does not depend on the number of threads (I1 of the crate).
pub fn map<P: Sync, R: Send>(
    what: &'static str,
    threads: usize,
    points: &[P],
    run: impl Fn(&P) -> R + Sync,
) -> Vec<R> {
    let bar =
        ProgressBar::with_draw_target(Some(points.len() as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} points, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(points.iter().map(|_| None).collect::<Vec<Option<R>>>());
    let work = || {
        let was_running = RUNS_POINTS.replace(true);
        loop {
            // Relaxed: a counter; the mutex publishes the results.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = points.get(index) else { break };
            let result = run(point);
            bar.inc(1);
            results.lock().expect("no thread panics with the lock")[index] = Some(result);
        }
        RUNS_POINTS.set(was_running);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, points.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    bar.finish_and_clear();
    let results = results.into_inner().expect("no thread panics with the lock");
    results.into_iter().map(|result| result.expect("each point was run")).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_come_in_the_points_order_on_any_number_of_threads() {
        let points: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7, 1000] {
            let squares = map("squares", threads, &points, |point| point * point);
            assert!(squares.iter().zip(&points).all(|(square, point)| *square == point * point));
        }
        assert!(map("nothing", 4, &[] as &[u8], |_| ()).is_empty());
    }
}
