//! `--ablate`: measures what each part of the design is worth by switching off that part alone.
//!
//! ```text
//!  --serve "--threads 4 --cr-threads 1 --write-policy d-crew --dispatch jbsq:2"
//!     │ serve --print-config: which parts are on
//!     ▼
//!  dovetail, dovetail again, without d-crew, without compaction, without two-layers
//! ```
//!
//! The second server is a control: its settings are those of the first, so the spread of its ratio
//! is the machine's own noise, and a smaller difference means nothing.

use super::Contender;
use super::effective::settings;
use crate::failure::{Failure, note};
use crate::settings::presets;

/// A part of the design, and the setting that controls it.
struct Part {
    name: &'static str,
    setting: &'static str,
    /// Whether this value of the setting turns the part on.
    is_on: fn(&str) -> bool,
    /// The value that turns the part off and leaves all others as they are.
    off: &'static str,
}

/// The parts. A part whose setting is not in the table is not built.
const PARTS: [Part; 5] = [
    // Each partition still has one writer, but always the same one.
    Part { name: "d-crew", setting: "write-policy", is_on: |value| value == "d-crew", off: "crew" },
    Part { name: "compaction", setting: "compaction", is_on: |value| value != "off", off: "off" },
    Part {
        name: "size-aware",
        setting: "dispatch",
        is_on: |value| value == "size-aware",
        off: "jbsq:2",
    },
    Part { name: "hot-set", setting: "hot-set", is_on: |value| value != "off", off: "off" },
    Part { name: "two-layers", setting: "cr-threads", is_on: |value| value != "auto", off: "auto" },
];

/// The servers of an ablation with these flags.
pub fn contenders(flags: &[String]) -> Result<Vec<Contender>, Failure> {
    let preset = presets::all()[0].name;
    let held = settings("--ablate", preset, flags)?;
    let contender =
        |name: &str, flags: Vec<String>| Contender { name: name.to_owned(), preset, flags };
    let mut contenders =
        vec![contender(preset, flags.to_vec()), contender("the same again", flags.to_vec())];
    let mut left_out = Vec::new();
    for part in &PARTS {
        match held.iter().find(|(key, _)| key == part.setting) {
            None => left_out.push(format!("{} is not built", part.name)),
            Some((key, value)) if !(part.is_on)(value) => {
                left_out.push(format!("{} is off (--{key} {value})", part.name));
            }
            Some(_) => {
                let name = format!("without {}", part.name);
                contenders.push(contender(&name, with(flags, part.setting, part.off)));
            }
        }
    }
    if contenders.len() == 2 {
        let reason = "--ablate: nothing is on that could be switched off; see --serve";
        return Err(Failure::Usage(reason.to_owned()));
    }
    for reason in left_out {
        note(&format!("left out: {reason}"));
    }
    Ok(contenders)
}

/// The flags with one value replaced.
fn with(flags: &[String], setting: &str, value: &str) -> Vec<String> {
    let flag = format!("--{setting}");
    let joined = format!("{flag}=");
    let mut kept = Vec::new();
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        if *word == flag {
            words.next();
        } else if !word.starts_with(&joined) {
            kept.push(word.clone());
        }
    }
    kept.extend([flag, value.to_owned()]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::find;

    #[test]
    fn a_flag_takes_the_place_of_the_same_one() {
        let flags = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let given = flags("--threads 4 --cr-threads 1 --batch=8");
        let want = flags("--threads 4 --batch=8 --cr-threads auto");
        assert_eq!(with(&given, "cr-threads", "auto"), want);
        let want = flags("--threads 4 --cr-threads 1 --batch 1");
        assert_eq!(with(&given, "batch", "1"), want);
    }

    /// If a part's setting were renamed, the part would be left out silently.
    #[test]
    fn what_switches_a_part_off_can_be_read_and_has_it_off() {
        for part in &PARTS {
            assert!(!(part.is_on)(part.off), "{}", part.name);
            if let Some(setting) = find(part.setting) {
                assert!(setting.kind.read(part.off).is_ok(), "{}: {}", part.name, part.off);
            }
        }
    }
}
