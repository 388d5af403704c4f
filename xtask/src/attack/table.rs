//! The results of trials: the failures with their reasons, and the table.

use std::time::Duration;

use super::memory::{allowed_bytes, mib};
use super::target::Login;

/// Rows of the list of the slowest.
const SLOWEST: usize = 10;

/// The result of one shape against one server.
#[derive(Clone, Debug)]
pub struct Row {
    pub shape: &'static str,
    pub cap_bytes: u64,
    pub login: Login,
    pub peak_bytes: u64,
    pub p99: Duration,
    pub longest: Duration,
    /// Replies to the checked client's GETs.
    pub answers: usize,
    pub refused: u64,
    /// The broken promises besides the cap.
    pub faults: Vec<String>,
}

impl Row {
    /// Whether all assertions held.
    pub fn is_good(&self) -> bool {
        self.verdict().is_empty()
    }

    /// Every promise that was broken.
    fn verdict(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.peak_bytes > allowed_bytes(self.cap_bytes) {
            let (peak, allowed) = (mib(self.peak_bytes), mib(allowed_bytes(self.cap_bytes)));
            broken.push(format!("{} MiB above the {allowed} allowed", peak - allowed));
        }
        if self.answers == 0 {
            broken.push("no GET was answered".to_owned());
        }
        broken.extend(self.faults.iter().cloned());
        broken
    }

    /// As a line of the table.
    pub fn line(&self) -> String {
        let broken = self.verdict();
        let verdict = match broken.is_empty() {
            true => "ok".to_owned(),
            false => format!("FAILED: {}", broken.join("; ")),
        };
        format!(
            "{:<30} {:>5} {:<8} {:>6} {:>6} {:>9.1} {:>9.1} {:>7} {:>8}  {verdict}",
            self.shape,
            mib(self.cap_bytes),
            self.login.name(),
            mib(self.peak_bytes),
            mib(allowed_bytes(self.cap_bytes)),
            self.p99.as_secs_f64() * 1e3,
            self.longest.as_secs_f64() * 1e3,
            self.answers,
            self.refused,
        )
    }

    /// The used share of the allowed memory, in millionths.
    fn fatness(&self) -> u64 {
        self.peak_bytes.saturating_mul(1_000_000) / allowed_bytes(self.cap_bytes)
    }
}

/// The names of the columns.
pub fn head() -> String {
    format!(
        "{:<30} {:>5} {:<8} {:>6} {:>6} {:>9} {:>9} {:>7} {:>8}  verdict",
        "shape", "cap", "login", "peak", "max", "p99 ms", "long ms", "GETs", "refused"
    )
}

/// The whole table, by memory, largest first, then the slowest once more.
pub fn whole(rows: &[Row]) -> Vec<String> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| (row.is_good(), std::cmp::Reverse(row.fatness())));
    let mut lines = vec!["\nfailed, then fattest:".to_owned(), head()];
    lines.extend(sorted.iter().map(|row| row.line()));
    sorted.sort_by_key(|row| std::cmp::Reverse(row.longest));
    lines.push("\nslowest:".to_owned());
    lines.push(head());
    lines.extend(sorted.iter().take(SLOWEST).map(|row| row.line()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            shape: "sample",
            cap_bytes: 64 << 20,
            login: Login::Open,
            peak_bytes: 90 << 20,
            p99: Duration::from_millis(3),
            longest: Duration::from_millis(9),
            answers: 100,
            refused: 7,
            faults: Vec::new(),
        }
    }

    #[track_caller]
    fn check(row: &Row, want: &str) {
        assert!(!row.is_good());
        assert!(row.line().ends_with(want), "{}", row.line());
    }

    #[test]
    fn a_server_within_its_cap_that_answers_right_is_good() {
        assert!(row().is_good());
        assert!(row().line().ends_with("  ok"));
        let at_most = Row { peak_bytes: allowed_bytes(64 << 20), ..row() };
        assert!(at_most.is_good());
    }

    #[test]
    fn each_broken_promise_fails_a_row() {
        let beyond = Row { peak_bytes: allowed_bytes(64 << 20) + (5 << 20), ..row() };
        check(&beyond, "FAILED: 5 MiB above the 100 allowed");
        check(&Row { answers: 0, ..row() }, "FAILED: no GET was answered");
        let faults = vec!["it hangs".to_owned(), "a reply is wrong".to_owned()];
        check(&Row { faults, ..row() }, "FAILED: it hangs; a reply is wrong");
    }

    #[test]
    fn waits_are_shown_and_not_judged() {
        let slow = Row { longest: Duration::from_secs(9), p99: Duration::from_secs(8), ..row() };
        assert!(slow.is_good());
    }

    #[test]
    fn failures_come_first_then_the_fattest_then_the_slowest() {
        let rows = [
            Row { shape: "lean", longest: Duration::from_secs(1), ..row() },
            Row { shape: "fat", peak_bytes: 95 << 20, ..row() },
            Row { shape: "wrong", faults: vec!["x".to_owned()], ..row() },
        ];
        let lines = whole(&rows);
        let names: Vec<&str> = lines.iter().filter_map(|it| it.split(' ').next()).collect();
        let want = ["wrong", "fat", "lean", "\nslowest:", "shape", "lean"];
        assert_eq!(names[2..8], want);
    }
}
