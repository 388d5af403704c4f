//! A directory that imitates the kernel's, for tests here and above.

use std::fs;
use std::path::Path;

/// A machine with two caches of twelve ways, with the files of a group already in place.
pub fn machine(group: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    for name in ["schemata", "tasks"] {
        put(root.path(), &format!("{group}/{name}"), "");
    }
    for (name, text) in [
        ("info/L3/cbm_mask", "fff\n"),
        ("info/L3/min_cbm_bits", "2\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/last_cmd_status", "ok\n"),
        ("schemata", "    MB:0=100;1=100\n    L3:0=fff;1=fff\n"),
        ("tasks", ""),
    ] {
        put(root.path(), name, text);
    }
    root
}

/// Writes a file and makes its directories.
pub fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    let parent = path.parent().expect("below the root");
    fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).expect("a file");
}
