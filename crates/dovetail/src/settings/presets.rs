//! Presets: each paper's design as a named set of ordinary settings.
//!
//! ```text
//!  flag ─▶ environment ─▶ file ─▶ preset ─▶ default       the first that has the setting wins
//! ```
//!
//! # Invariants
//! I1: a preset contains settings of the table only: no other code asks which preset is active.
//! I2: the output of `--preset NAME --print-config` gives the same server without `--preset`.
//! I3: a preset for a cluster needs `--cluster`, and must not contradict the cluster's settings.

use crate::settings::suggest::closest;

/// A named set of settings.
#[derive(Debug)]
pub struct Preset {
    /// The name for `--preset`.
    pub name: &'static str,
    /// Its source, for the docs.
    pub about: &'static str,
    /// The settings that differ from the table's defaults, or that the design depends on.
    pub settings: &'static [(&'static str, &'static str)],
}

impl Preset {
    /// The preset's value of a setting.
    pub fn text_of(&self, key: &str) -> Option<&'static str> {
        self.settings.iter().find(|(own, _)| *own == key).map(|(_, text)| *text)
    }
}

const MUTPS_HASH: &[(&str, &str)] = &[
    ("mode", "store"),
    ("index", "hash"),
    ("threads", "2"),
    ("cr-threads", "1"),
    ("write-policy", "crcw"),
    ("dispatch", "round-robin"),
    ("compaction", "off"),
    ("hot-set", "auto"),
];

const MUTPS_TREE: &[(&str, &str)] = &[
    ("mode", "store"),
    ("index", "tree"),
    ("threads", "2"),
    ("cr-threads", "1"),
    ("write-policy", "crcw"),
    ("dispatch", "round-robin"),
    ("compaction", "off"),
    ("hot-set", "auto"),
];

/// All presets; the first is the default.
pub const PRESETS: &[Preset] = &[
    Preset { name: "dovetail", about: "the settings' own defaults", settings: &[] },
    Preset {
        name: "mica-erew",
        about: "MICA §4.1: each partition has one worker that reads and writes it",
        settings: &[
            ("mode", "cache"),
            ("eviction", "lru-approx"),
            ("index", "hash"),
            ("lossy-index", "on"),
            ("write-policy", "erew"),
            ("dispatch", "key-hash"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "mica-crew",
        about: "MICA §4.1: each partition has one worker that writes it, and any worker reads",
        settings: &[
            ("mode", "cache"),
            ("eviction", "lru-approx"),
            ("index", "hash"),
            ("lossy-index", "on"),
            ("write-policy", "crew"),
            ("dispatch", "key-hash"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "hkh",
        about: "Minos §5.2: by key hash, whatever the size",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crew"),
            ("dispatch", "key-hash"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "sho",
        about: "Minos §5.2: one thread hands requests to idle ones",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crcw"),
            ("dispatch", "hand-off:1"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "hkh-ws",
        about: "Minos §5.2: by key hash, and idle workers take what waits for others",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crew"),
            ("dispatch", "steal"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "minos",
        about: "Minos §3: threads of their own for large items, as many as their cost asks for",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crew"),
            ("dispatch", "size-aware"),
            ("size-threshold", "auto"),
            ("size-cost", "packets"),
            ("large-help", "off"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "c4-erew",
        about: "C-4 §7: the baseline of one owner for each partition",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "erew"),
            ("dispatch", "key-hash"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("batch", "1"),
        ],
    },
    Preset {
        name: "c4-crew",
        about: "C-4 §7: one writer for each partition, reads to the shortest queue",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crew"),
            ("dispatch", "jbsq:2"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("batch", "1"),
        ],
    },
    Preset {
        name: "c4-dcrew",
        about: "C-4 §4.2: the worker with outstanding writes of a partition writes it",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "d-crew"),
            ("dispatch", "jbsq:2"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("batch", "1"),
        ],
    },
    Preset {
        name: "c4-comp",
        about: "C-4 §4.3: one writer for each partition, which puts dependent writes together",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crew"),
            ("dispatch", "jbsq:2"),
            ("compaction", "on"),
            ("compact-short", "on"),
            ("tuner", "off"),
            ("batch", "1"),
        ],
    },
    Preset {
        name: "c4",
        about: "C-4: d-CREW with compaction",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "d-crew"),
            ("dispatch", "jbsq:2"),
            ("compaction", "on"),
            ("compact-short", "on"),
            ("tuner", "off"),
            ("batch", "1"),
        ],
    },
    Preset {
        name: "basekv",
        about: "uTPS §5.1: any worker serves any key",
        settings: &[
            ("mode", "store"),
            ("write-policy", "crcw"),
            ("dispatch", "any"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "erpckv",
        about: "uTPS §5.1: by key, each worker its own part",
        settings: &[
            ("mode", "store"),
            ("write-policy", "erew"),
            ("dispatch", "key-hash"),
            ("compaction", "off"),
            ("tuner", "off"),
        ],
    },
    Preset {
        name: "mutps-h",
        about: "uTPS §3: one thread polls and reads hot keys, the others execute the rest by a \
                hash; how many do which is fixed",
        settings: MUTPS_HASH,
    },
    Preset {
        name: "mutps-t",
        about: "uTPS §3: one thread polls and reads hot keys, the others execute the rest by a \
                tree; how many do which is fixed",
        settings: MUTPS_TREE,
    },
    Preset {
        name: "rowan-kv",
        about: "Rowan-KV §4: a node of a cluster whose writes land in one log of each copy",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crcw"),
            ("dispatch", "any"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("copies", "3"),
            ("replication", "rowan"),
        ],
    },
    Preset {
        name: "rpc-kv",
        about: "Rowan-KV §6.1: writes are requests to workers of the copies",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crcw"),
            ("dispatch", "any"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("copies", "3"),
            ("replication", "rpc"),
        ],
    },
    Preset {
        name: "rwrite-kv",
        about: "Rowan-KV §6.1: each thread writes to a log of its own at each copy",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crcw"),
            ("dispatch", "any"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("copies", "3"),
            ("replication", "write"),
        ],
    },
    Preset {
        name: "batch-kv",
        about: "Rowan-KV §6.1: as rwrite-kv, several writes at a time",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crcw"),
            ("dispatch", "any"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("copies", "3"),
            ("replication", "batch"),
        ],
    },
    Preset {
        name: "share-kv",
        about: "Rowan-KV §6.1: as rwrite-kv, with one log for all threads of a node",
        settings: &[
            ("mode", "store"),
            ("index", "hash"),
            ("write-policy", "crcw"),
            ("dispatch", "any"),
            ("compaction", "off"),
            ("tuner", "off"),
            ("copies", "3"),
            ("replication", "share"),
        ],
    },
];

/// The preset of that name; the error lists the valid names.
pub fn read(name: &str) -> Result<&'static Preset, String> {
    if let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) {
        return Ok(preset);
    }
    let names = || PRESETS.iter().map(|preset| preset.name);
    let shown = name.escape_default();
    Err(match closest(name, names()) {
        Some(close) => format!("there is no preset `{shown}`; did you mean `{close}`?"),
        None => {
            let list = names().collect::<Vec<_>>().join(", ");
            format!("there is no preset `{shown}`: write one of {list}")
        }
    })
}
