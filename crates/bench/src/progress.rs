//! The progress bar: on stderr, and only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One line that shows the phase of the run.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar on stderr; nothing if stderr is not a terminal.
    pub(crate) fn new() -> Progress {
        Progress { bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()) }
    }

    /// A bar that shows nothing.
    #[cfg(test)]
    pub(crate) fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden() }
    }

    /// Shows the name of the current step.
    pub(crate) fn phase(&self, what: &'static str) {
        self.bar.set_style(style("{spinner} {msg}"));
        self.bar.set_message(what);
        self.bar.tick();
    }

    pub(crate) fn start_populating(&self, key_count: u64) {
        self.bar.set_style(style("storing keys {bar:40} {human_pos}/{human_len} {eta}"));
        self.bar.set_length(key_count);
        self.bar.set_position(0);
    }

    pub(crate) fn populated(&self, count: u64) {
        self.bar.set_position(count);
    }

    pub(crate) fn start_running(&self, length: Duration) {
        self.bar.set_style(style("running {bar:40} {msg}"));
        self.bar.set_message(format!("of {:.0} s", length.as_secs_f64()));
        self.bar.set_length(length.as_millis() as u64);
        self.bar.set_position(0);
    }

    pub(crate) fn running(&self, passed: Duration) {
        self.bar.set_position(passed.as_millis() as u64);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
