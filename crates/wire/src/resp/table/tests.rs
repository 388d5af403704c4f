//! The rows of the table: names, order, arity.

use super::{CommandId, Flags, Handling, Spec};

#[test]
fn every_row_is_at_its_own_number() {
    for (row, spec) in Spec::all().iter().enumerate() {
        assert_eq!(spec.id as usize, row, "T1: {}", spec.name);
        assert_eq!(Spec::of(spec.id).name, spec.name);
        assert_eq!(spec.name, spec.name.to_ascii_lowercase(), "T2");
        assert_eq!(
            Spec::by_name(spec.name.to_ascii_uppercase().as_bytes()).map(|s| s.id),
            Some(spec.id)
        );
    }
    assert_eq!(Spec::all().len(), CommandId::COUNT);
}

#[test]
fn containers_are_the_rows_that_have_subcommands() {
    for spec in Spec::top_level() {
        assert_eq!(spec.id.is_container(), spec.subcommands().count() > 0, "{}", spec.name);
        assert_eq!(spec.id.is_container(), !spec.id.help_lines().is_empty(), "{}", spec.name);
    }
}

#[test]
fn flags_have_names_in_order() {
    let flags = CommandId::Set.spec().flags;
    assert_eq!(flags.names().collect::<Vec<_>>(), ["write", "denyoom"]);
    let flags = CommandId::Shutdown.spec().flags;
    let names = ["admin", "noscript", "loading", "stale", "no_multi", "allow_busy"];
    assert_eq!(flags.names().collect::<Vec<_>>(), names);
    assert!(CommandId::Auth.spec().flags.contains(Flags::NO_AUTH));
    assert!(!CommandId::Get.spec().flags.contains(Flags::WRITE));
}

#[test]
fn every_command_on_keys_says_where_they_are() {
    let without =
        ["keys", "scan", "kv.range", "randomkey", "wait", "waitaof", "object", "lolwut", "swapdb"];
    for spec in Spec::all() {
        let is_on_data = spec.flags.contains(Flags::WRITE) || spec.flags.contains(Flags::READONLY);
        let is_whole_store = ["flushdb", "flushall", "dbsize", "swapdb"].contains(&spec.name);
        if is_on_data && !is_whole_store && !without.contains(&spec.name) {
            assert!(spec.keys.first > 0, "{}", spec.name);
        }
    }
}

/// Otherwise nothing bounds the replies of a transaction.
#[test]
fn every_command_without_keys_says_how_long_its_reply_is() {
    for spec in Spec::all().iter().filter(|spec| spec.id != CommandId::RandomKey) {
        let how = [Handling::Short, Handling::Measured].map(|it| spec.handling.contains(it));
        let has_keys = spec.keys.first > 0;
        assert_eq!(how[0] != how[1], !has_keys, "{}", spec.name);
        let writes = spec.flags.contains(Flags::WRITE);
        assert!(!(how[1] && writes), "{}: it is executed to be measured", spec.name);
    }
}
