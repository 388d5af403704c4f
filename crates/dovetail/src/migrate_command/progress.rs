//! The progress lines of a running copy, and its summary at the end.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use migrate::{Error, Tally, Watch};

use super::is_set;
use crate::failure::note;

/// Interval between two lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The most reasons or types to list.
const REASONS_SHOWN_MAX: usize = 10;

/// A bar on a terminal, lines elsewhere.
pub struct Progress {
    stop: Arc<AtomicBool>,
    bar: Option<ProgressBar>,
    start: Instant,
    line_at: Instant,
}

impl Progress {
    /// Starts the clock.
    pub fn new(stop: Arc<AtomicBool>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        let start = Instant::now();
        Progress { stop, bar, start, line_at: start + LINE_EVERY }
    }

    /// Removes the bar; returns the seconds it took.
    pub fn finish(&self) -> f64 {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.start.elapsed().as_secs_f64()
    }
}

impl Watch for Progress {
    fn is_stopped(&self) -> bool {
        is_set(&self.stop)
    }

    fn progress(&mut self, tally: &Tally, total: Option<u64>) {
        if let Some(bar) = &self.bar {
            if let Some(total) = total.filter(|_| bar.length().is_none()) {
                bar.set_length(total);
                let template = "{pos}/{len} keys {wide_bar} {per_sec}, {eta} left";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
            }
            bar.set_position(tally.seen);
        } else if Instant::now() >= self.line_at {
            self.line_at = Instant::now() + LINE_EVERY;
            note(&line(tally, total, self.start.elapsed()));
        }
    }

    fn retrying(&mut self, error: &Error) {
        let text = format!("{error}; trying again");
        match &self.bar {
            Some(bar) => bar.println(text),
            None => note(&text),
        }
    }
}

/// `120000 of 500000 keys, 117 MiB, 12000 a second, about 32 s left`
fn line(tally: &Tally, total: Option<u64>, elapsed: Duration) -> String {
    let mut text = tally.seen.to_string();
    if let Some(total) = total {
        let _ = write!(text, " of {total}");
    }
    let a_second = tally.seen as f64 / elapsed.as_secs_f64().max(0.001);
    let _ = write!(text, " keys, {}, {a_second:.0} a second", size(tally.bytes));
    if let Some(total) = total {
        let left = total.saturating_sub(tally.seen) as f64 / a_second.max(0.001);
        let _ = write!(text, ", about {left:.0} s left");
    }
    text
}

fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if amount < 1024.0 {
            return format!("{amount:.0} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} GiB")
}

/// The summary of all keys: one line for each kind of result.
pub fn summary(tally: &Tally, is_dry: bool, seconds: f64) -> String {
    let mut text = String::new();
    let verb = if is_dry { "would copy" } else { "copied" };
    let amount = size(tally.bytes);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{verb} {} of {} keys ({amount}) in {seconds:.1} s",
        tally.copied, tally.seen
    );
    if is_dry {
        text.push_str("the target was not asked: it may have some already, or refuse some\n");
    }
    for (count, what) in [
        (tally.existed, "were there and stayed as they are: --replace overwrites"),
        (tally.expired, "have expired"),
        (tally.gone, "were gone or changed their type meanwhile"),
        (tally.elsewhere, "are in other databases: --db N"),
        (tally.unmatched, "do not match"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    if tally.other_types_count() > 0 {
        let by_type = listed(&tally.other_types);
        let _ = writeln!(
            text,
            "{} are no strings and were skipped: {by_type}",
            tally.other_types_count()
        );
    }
    if tally.refused_count() > 0 {
        let by_reason = listed(&tally.refused);
        let _ = writeln!(text, "{} were refused: {by_reason}", tally.refused_count());
    }
    text
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = sorted.iter().take(REASONS_SHOWN_MAX);
    let mut parts: Vec<String> = shown.map(|(name, count)| format!("{count} {name}")).collect();
    if sorted.len() > REASONS_SHOWN_MAX {
        parts.push("...".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_long_it_takes() {
        let tally = Tally { seen: 1000, bytes: 3 << 20, ..Tally::default() };
        let found = line(&tally, Some(5000), Duration::from_secs(10));
        assert_eq!(found, "1000 of 5000 keys, 3 MiB, 100 a second, about 40 s left");
        let found = line(&tally, None, Duration::from_secs(10));
        assert_eq!(found, "1000 keys, 3 MiB, 100 a second");
    }

    #[test]
    fn the_summary_names_what_was_left_out() {
        let other_types = [("list".to_owned(), 2), ("hash".to_owned(), 5)].into();
        let refused = [("ERR key is longer than 65535 bytes".to_owned(), 1)].into();
        let tally =
            Tally { seen: 11, copied: 2, existed: 1, other_types, refused, ..Tally::default() };
        assert_eq!(
            summary(&tally, false, 1.25),
            "copied 2 of 11 keys (0 B) in 1.2 s\n\
             1 were there and stayed as they are: --replace overwrites\n\
             7 are no strings and were skipped: 5 hash, 2 list\n\
             1 were refused: 1 ERR key is longer than 65535 bytes\n"
        );
    }
}
