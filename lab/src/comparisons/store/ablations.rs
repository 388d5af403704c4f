//! Ablations: one row for each optimisation that can be switched off, under the load that it is
//! for.

use anyhow::Result;

use super::table::{
    Load, SMALL_HALF_AND_HALF, TINY_GET, TINY_HALF_AND_HALF, TINY_ZIPF, load_named,
};
use super::{Cell, Session, add_sample, words};

/// The reference row.
pub const BASE: &str = "everything on, batch 32";

/// A setting of `dovetail bench` and the load for which it matters.
struct Switch {
    /// Empty: everything on.
    setting: &'static [&'static str],
    loads: &'static [&'static str],
    thread_count: usize,
}

impl Switch {
    const fn one(setting: &'static [&'static str], loads: &'static [&'static str]) -> Switch {
        Switch { setting, loads, thread_count: 1 }
    }

    fn name(&self) -> String {
        match self.setting {
            [] => BASE.to_owned(),
            setting => setting.join(" "),
        }
    }
}

const TINY: &[&str] = &[TINY_GET, TINY_HALF_AND_HALF];
const SMALL: &[&str] = &[SMALL_HALF_AND_HALF];

const SWITCHES: [Switch; 17] = [
    Switch::one(&[], &[TINY_GET, TINY_HALF_AND_HALF, TINY_ZIPF, SMALL_HALF_AND_HALF]),
    Switch::one(&["--batch", "1"], TINY),
    Switch::one(&["--batch", "8"], TINY),
    Switch::one(&["--batch", "16"], TINY),
    Switch::one(&["--batch", "64"], TINY),
    Switch::one(&["--prefetch", "off"], TINY),
    Switch::one(&["--prefetch", "nta"], &[TINY_GET, TINY_HALF_AND_HALF, TINY_ZIPF]),
    Switch::one(&["--simd", "off"], TINY),
    Switch::one(&["--huge-pages", "off"], TINY),
    Switch::one(&["--in-place", "off"], &[TINY_HALF_AND_HALF]),
    Switch::one(&["--append-ahead", "off"], SMALL),
    Switch::one(&["--eviction", "fifo"], SMALL),
    Switch::one(&["--eviction", "lru-approx"], SMALL),
    Switch::one(&["--lanes", "off"], SMALL),
    Switch::one(&["--marks", "always"], &[TINY_GET, TINY_ZIPF]),
    Switch { setting: &[], loads: SMALL, thread_count: 2 },
    Switch { setting: &["--lanes", "off"], loads: SMALL, thread_count: 2 },
];

impl Session {
    pub(super) fn measure_ablations(&mut self) -> Result<()> {
        for _ in 0..self.args.repetitions {
            for switch in &SWITCHES {
                for load in switch.loads.iter().filter_map(|name| load_named(name)) {
                    self.measure_switch(switch, &load)?;
                }
            }
        }
        Ok(())
    }

    fn measure_switch(&mut self, switch: &Switch, load: &Load) -> Result<()> {
        // `--batch` twice would be an error.
        let batch = match switch.setting {
            ["--batch", batch] => batch,
            _ => "32",
        };
        let mut options = self.options(load, "hash", batch);
        if batch == "32" {
            options.extend(words(switch.setting));
        }
        let (name, thread_count) = (switch.name(), switch.thread_count);
        let what = format!("{}, {name}, {thread_count} threads", load.name);
        let Some(window) = self.ours(&what, thread_count, &options)? else { return Ok(()) };
        let cell = Cell {
            row: load.name.to_owned(),
            subject: name,
            is_peer: false,
            thread_count,
            mops: vec![window.mops],
        };
        add_sample(&mut self.found.ablations, cell);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_has_a_row_to_be_compared_with() {
        for switch in &SWITCHES {
            for load in switch.loads {
                assert!(load_named(load).is_some(), "{load}");
                let is_base = |other: &Switch| {
                    other.setting.is_empty()
                        && other.thread_count == switch.thread_count
                        && other.loads.contains(load)
                };
                assert!(SWITCHES.iter().any(is_base), "{}, {load}", switch.name());
            }
        }
    }
}
