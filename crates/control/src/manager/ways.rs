//! Cache ways at the start: what `--cat` asks for and what the machine has.

use std::sync::{Arc, Mutex};

use config::Config;
use config::StartError;
use dispatch::layer_settings::layers_remedy;
use dispatch::published::SharedWays;
use host::resctrl::CacheWays;
use host::resctrl::Cat;

/// The result of `--cat`.
pub enum Opened {
    /// There is a group for the memory-resident threads.
    Ways(SharedWays),
    /// There is none; the reason, for one line of the log.
    Not(String),
}

/// Opens the group. If `--cat` is a number or `on`, a group that cannot be had is an error.
pub fn open(config: &Config, has_two_layers: bool) -> Result<Opened, StartError> {
    let refuse = |reason: String| match config.cat {
        Cat::On | Cat::Ways(_) => Err(StartError::Cat { cat: config.cat, reason }),
        Cat::Auto | Cat::Off => Ok(Opened::Not(reason)),
    };
    if config.cat == Cat::Off {
        return refuse("off".to_owned());
    }
    if !has_two_layers {
        let reason = format!("no thread is memory-resident: {}", layers_remedy(config));
        return match config.cat {
            Cat::On | Cat::Ways(_) => Err(StartError::CatWithoutLayers { cat: config.cat, reason }),
            Cat::Auto | Cat::Off => Ok(Opened::Not(reason)),
        };
    }
    let name = format!("dovetail-{}", std::process::id());
    let opened = CacheWays::open(&config.resctrl_root, &name).and_then(|mut ways| {
        if let Cat::Ways(count) = config.cat {
            ways.set_ways(count)?;
        }
        Ok(ways)
    });
    match opened {
        Ok(ways) => Ok(Opened::Ways(Arc::new(Mutex::new(ways)))),
        Err(error) => refuse(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use host::resctrl::testing::machine;

    use super::*;
    use crate::manager::knobs::lock;

    fn config(cat: Cat, root: &std::path::Path) -> Config {
        Config { cat, resctrl_root: root.to_owned(), ..Config::default() }
    }

    #[track_caller]
    fn check_refused(config: &Config, has_two_layers: bool, want: &str) {
        let text = match open(config, has_two_layers) {
            Err(error) => error.to_string(),
            Ok(_) => "opened".to_owned(),
        };
        let root = config.resctrl_root.display().to_string();
        assert_eq!(text.replace(&root, "ROOT"), want);
    }

    #[test]
    fn auto_says_why_not_and_goes_on() {
        let none = tempfile::tempdir().unwrap();
        let Ok(Opened::Not(why)) = open(&config(Cat::Auto, none.path()), true) else {
            panic!("there is nothing to open")
        };
        assert!(why.contains("is not mounted"), "{why}");
        assert!(matches!(open(&config(Cat::Off, none.path()), true), Ok(Opened::Not(_))));
    }

    #[test]
    fn what_was_asked_for_and_cannot_be_had_is_refused() {
        let none = tempfile::tempdir().unwrap();
        check_refused(
            &Config { threads: 3, ..config(Cat::On, none.path()) },
            false,
            "--cat on: no thread is memory-resident: give --cr-threads N below --threads, or \
             --tuner on",
        );
        check_refused(
            &config(Cat::On, none.path()),
            false,
            "--cat on: no thread is memory-resident: give --threads 2 or more, and --cr-threads 1 \
             or --tuner on",
        );
        check_refused(
            &config(Cat::Ways(4), none.path()),
            true,
            "--cat 4: ROOT is not mounted: mount it with `mount -t resctrl resctrl \
             /sys/fs/resctrl`, which needs a processor with cache allocation, or give --cat off",
        );
        let root = machine(&format!("dovetail-{}", std::process::id()));
        check_refused(
            &config(Cat::Ways(13), root.path()),
            true,
            "--cat 13: 13 ways are out of range: this machine gives 2 to 12",
        );
    }

    #[test]
    fn only_a_contradiction_is_a_mistake_of_the_settings() {
        let none = tempfile::tempdir().unwrap();
        let is_of_settings = |has_two_layers| {
            let refused = open(&config(Cat::On, none.path()), has_two_layers).err().unwrap();
            refused.is_of_settings()
        };
        assert_eq!((is_of_settings(false), is_of_settings(true)), (true, false));
    }

    #[test]
    fn a_number_is_that_many_ways() {
        let root = machine(&format!("dovetail-{}", std::process::id()));
        let Ok(Opened::Ways(ways)) = open(&config(Cat::Ways(5), root.path()), true) else {
            panic!("the machine has ways")
        };
        assert_eq!(lock(&ways).ways(), 5);
    }
}
