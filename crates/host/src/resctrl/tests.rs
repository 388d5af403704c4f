//! resctrl on a directory that imitates the kernel's.

use super::testing::{machine, put};
use super::*;

/// The kernel's files forget earlier writes; these keep the beginning of the last one.
fn first_line(root: &Path, name: &str) -> String {
    let text = fs::read_to_string(root.join(name)).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[track_caller]
fn check_refused(root: &Path, want: &str) {
    let error = CacheWays::open(root, "dovetail-1").map(|_| ()).unwrap_err();
    let text = error.to_string().replace(&root.display().to_string(), "ROOT");
    assert_eq!(text, want);
}

#[test]
fn a_group_begins_with_all_ways_and_gets_fewer_from_the_low_end() {
    let root = machine("dovetail-1");
    let mut ways = CacheWays::open(root.path(), "dovetail-1").unwrap();
    assert_eq!((ways.ways_min(), ways.ways_max(), ways.ways()), (2, 12, 12));
    assert_eq!(first_line(root.path(), "dovetail-1/schemata"), "L3:0=fff;1=fff");
    ways.set_ways(6).unwrap();
    assert_eq!(first_line(root.path(), "dovetail-1/schemata"), "L3:0=3f;1=3f");
    assert_eq!(ways.ways(), 6);
}

#[test]
fn threads_come_and_go_one_write_each() {
    let root = machine("dovetail-1");
    let mut ways = CacheWays::open(root.path(), "dovetail-1").unwrap();
    ways.set_threads(&[71, 72]).unwrap();
    // The fake's second write overwrites the first: the same length, the same place.
    assert_eq!(first_line(root.path(), "dovetail-1/tasks"), "72");
    assert_eq!(first_line(root.path(), "tasks"), "");
    ways.set_threads(&[72]).unwrap();
    assert_eq!(first_line(root.path(), "tasks"), "71");
}

#[test]
fn ways_that_cannot_be_had_are_refused_and_the_old_ones_stay() {
    let root = machine("dovetail-1");
    let mut ways = CacheWays::open(root.path(), "dovetail-1").unwrap();
    let error = ways.set_ways(13).unwrap_err().to_string();
    assert_eq!(error, "13 ways are out of range: this machine gives 2 to 12");
    assert!(ways.set_ways(1).is_err());
    assert_eq!(ways.ways(), 12);
}

#[test]
fn a_mask_may_begin_anywhere() {
    assert_eq!(low_bits(0xfff, 12), 0xfff);
    assert_eq!(low_bits(0xff0, 3), 0x070);
    assert_eq!(low_bits(u64::MAX, 64), u64::MAX);
}

#[test]
fn a_machine_without_it_is_told_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    check_refused(
        root.path(),
        "ROOT is not mounted: mount it with `mount -t resctrl resctrl /sys/fs/resctrl`, which \
         needs a processor with cache allocation, or give --cat off",
    );
    put(root.path(), "schemata", "    MB:0=100\n");
    put(root.path(), "info/MB/num_closids", "8\n");
    check_refused(
        root.path(),
        "this machine does not share out its last-level cache (ROOT/info/L3 is missing): give \
         --cat off",
    );
    put(root.path(), "info/L3CODE/cbm_mask", "fff\n");
    check_refused(
        root.path(),
        "the cache is split into code and data: mount resctrl without `-o cdp`",
    );
}

#[test]
fn files_that_say_something_else_are_named() {
    let root = machine("dovetail-1");
    put(root.path(), "info/L3/cbm_mask", "many\n");
    check_refused(root.path(), "ROOT/info/L3/cbm_mask says `many`, which is no mask of cache ways");
    put(root.path(), "info/L3/cbm_mask", "ff\n");
    put(root.path(), "schemata", "L3:left=ff\n");
    check_refused(root.path(), "ROOT/schemata says `L3:left=ff`, which is no list of caches");
}

#[test]
fn the_kernels_own_words_are_passed_on() {
    let root = machine("dovetail-1");
    // A directory in place of the file: writing fails.
    fs::remove_file(root.path().join("dovetail-1/schemata")).unwrap();
    fs::create_dir(root.path().join("dovetail-1/schemata")).unwrap();
    put(root.path(), "info/last_cmd_status", "Mask 0xfff not contiguous\n");
    check_refused(root.path(), "ROOT/dovetail-1/schemata was refused: Mask 0xfff not contiguous");
}

#[test]
fn a_group_that_may_not_be_made_names_the_users_that_may() {
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    let error = refused(Path::new("/r"), Path::new("/r/dovetail-1"), &denied);
    assert_eq!(
        error.to_string(),
        "/r/dovetail-1 cannot be written: run as root, or give --cat off"
    );
}
