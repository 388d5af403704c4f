//! Tests of the settings table, its layers and its printing.

use std::collections::BTreeMap;
use std::path::Path;

use super::file::{FileEntry, parse};
use super::layers::combine;
use super::print::{Listing, toml};
use super::reference::reference_page;
use super::settle::settle;
use super::*;
use crate::machine::{HugePages, Machine};

const MACHINE: Machine = Machine {
    core_count: 4,
    memory_bytes: 1 << 30,
    huge_pages: HugePages { reserved_count: 0, free_count: 0, transparent: true },
};

fn file(text: &str) -> Result<Vec<FileEntry>, SettingError> {
    parse(Path::new("d.toml"), text)
}

/// What holds for the given flags, environment and file.
fn layered(
    flags: &[(&'static str, &str)],
    environment: &[(&str, &str)],
    text: &str,
) -> Result<Vec<Layered>, SettingError> {
    let flags: BTreeMap<_, _> = flags.iter().map(|(key, text)| (*key, text.to_string())).collect();
    let environment = |name: &str| {
        environment.iter().find(|(key, _)| *key == name).map(|(_, text)| text.to_string())
    };
    let mut settings = combine(&flags, &environment, &file(text)?)?;
    settle(&mut settings, &MACHINE);
    Ok(settings)
}

#[track_caller]
fn check_value(settings: &[Layered], key: &str, want: &str, want_origin: &str) {
    let found = settings.iter().find(|layered| layered.setting.key == key).unwrap();
    assert_eq!(
        (found.value.to_string().as_str(), found.origin.to_string().as_str()),
        (want, want_origin)
    );
}

#[track_caller]
fn check_file_error(text: &str, want: &str) {
    let found = layered(&[], &[], text).map(|_| ()).unwrap_err().to_string();
    assert_eq!(found, want);
}

#[test]
fn every_default_reads_and_every_lookup_is_in_the_table() {
    let settings = layered(&[], &[], "").unwrap();
    let serve = ServeSettings::new(&settings, None, &MACHINE).unwrap();
    assert_eq!(serve.config.memory_bytes, 512 << 20);
    assert_eq!(serve.config.threads, 3);
    assert_eq!(serve.config.eviction, server::Config::default().eviction);
    assert_eq!(serve.config.resp, Some("127.0.0.1:6379".parse().unwrap()));
    assert_eq!(serve.config.memcached, Some("127.0.0.1:11211".parse().unwrap()));
    assert_eq!(serve.config.admin, Some("127.0.0.1:8379".parse().unwrap()));
    assert_eq!((serve.config.batch, serve.config.max_connections), (32, 10_000));
    assert_eq!(serve.config.max_item_size_bytes, 32 << 20);
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let text = "# three keys\nthreads = 2\nbatch = 8\nmemory = \"128MiB\"\n";
    let environment = [("DOVETAIL_THREADS", "5"), ("DOVETAIL_BATCH", "16")];
    let settings = layered(&[("threads", "7")], &environment, text).unwrap();
    check_value(&settings, "threads", "7", "flag");
    check_value(&settings, "batch", "16", "environment");
    check_value(&settings, "memory", "128MiB", "d.toml:4");
    check_value(&settings, "mode", "cache", "default");
}

#[test]
fn an_objective_is_off_or_a_time_and_anything_else_is_one_line() {
    let settings = layered(&[("slo", "0.5ms")], &[], "").unwrap();
    check_value(&settings, "slo", "500us", "flag");
    let serve = ServeSettings::new(&settings, None, &MACHINE).unwrap();
    assert_eq!(serve.config.slo, Some(std::time::Duration::from_micros(500)));
    let wanted = "has no unit: write a unit: 5ms, 5us, 5s";
    check_file_error("slo = \"5\"\n", &format!("d.toml:1: slo: `5` {wanted}"));
    for (flags, environment) in [(&[("slo", "5")][..], &[][..]), (&[], &[("DOVETAIL_SLO", "5")])] {
        let error = layered(flags, environment, "").unwrap_err().to_string();
        assert!(error.ends_with(&format!("`5` {wanted}")), "{error}");
    }
    let wanted = "is not `off` or a time from 1us to 60s, e.g. 1ms";
    for text in ["soon", "0us", "61s", "-1ms", ""] {
        check_file_error(
            &format!("slo = \"{text}\"\n"),
            &format!("d.toml:1: slo: `{text}` {wanted}"),
        );
    }
}

#[test]
fn what_is_printed_reads_back() {
    let flags = [
        ("resp", "[::1]:7000"),
        ("memcached", "off"),
        ("memory", "1.5g"),
        ("threads", "auto"),
        ("slo", "1.5ms"),
        ("lossy-index", "on"),
        ("requirepass", "a \"quoted\" \\ pass\nword"),
        ("max-connections", "7"),
        ("native-key-file", "/etc/dovetail/native key"),
        ("shm", "/run/dovetail/shm"),
        ("unix-socket", "/run/dovetail/resp.sock"),
        ("unix-mode", "777"),
    ];
    let settings = layered(&flags, &[], "").unwrap();
    let printed = toml(&settings, Listing::Complete);
    let again = layered(&[], &[], &printed).unwrap();
    for (before, after) in settings.iter().zip(&again) {
        assert_eq!(before.value, after.value, "{}", before.setting.key);
    }
}

#[test]
fn passwords_are_masked_in_what_is_for_looking_at() {
    let settings = layered(&[("requirepass", "hunter2")], &[], "").unwrap();
    for listing in [Listing::Masked, Listing::WithOrigin] {
        let printed = toml(&settings, listing);
        assert!(!printed.contains("hunter2") && printed.contains("requirepass = \"***\""));
    }
}

#[test]
fn a_mistake_in_the_file_names_its_line_and_what_would_be_right() {
    check_file_error(
        "memroy = \"1g\"",
        "d.toml:1: there is no setting `memroy`; did you mean `memory`?",
    );
    check_file_error(
        "\n\nmax_connections = 5",
        "d.toml:3: there is no setting `max_connections`; did you mean `max-connections`?",
    );
    check_file_error(
        "batch = \"32\"",
        "d.toml:1: batch: a string does not fit: write a whole number from 1 to 64, no quotes",
    );
    check_file_error(
        "memory = 1.5",
        "d.toml:1: memory: a float does not fit: write a size in quotes, e.g. \"64MiB\"",
    );
    check_file_error(
        "threads = 0",
        "d.toml:1: threads: `0` is not `auto` or a whole number from 1 to 256",
    );
    check_file_error(
        "[server]\nmemory = \"1g\"",
        "d.toml:1: there is no setting `server`; docs/settings.md lists them",
    );
    assert!(file("memory = ").unwrap_err().to_string().starts_with("d.toml:1: "));
    let twice = file("batch = 1\nbatch = 2\n").unwrap_err().to_string();
    assert!(twice.starts_with("d.toml:2: "), "{twice}");
}

#[test]
fn an_empty_value_is_refused_in_every_layer_where_its_setting_can_be_unset() {
    let unset = TABLE.iter().filter(|setting| setting.default.is_empty());
    let may_be_empty = ["admin-hosts", "requirepass"];
    for setting in unset.filter(|setting| !may_be_empty.contains(&setting.key)) {
        let (key, name) = (setting.key, setting.environment_name());
        let why = format!("it is empty: write {}, or leave it out", setting.value_name);
        check_flag_error(key, "", &format!("--{key}: {why}"));
        let error = layered(&[], &[(&name, "")], "").map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, format!("{name}: {why}"));
        check_file_error(&format!("{key} = \"\""), &format!("d.toml:1: {key}: {why}"));
    }
    for key in ["unix-socket", "shm"] {
        let error = layered(&[(key, "")], &[], "").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("is not a socket's path"), "{error}");
    }
    check_value(&layered(&[("requirepass", "")], &[], "").unwrap(), "requirepass", "", "flag");
}

#[track_caller]
fn check_flag_error(key: &'static str, text: &str, want: &str) {
    let found = layered(&[(key, text)], &[], "").map(|_| ()).unwrap_err().to_string();
    assert_eq!(found, want);
}

#[test]
fn a_bad_value_says_what_would_be_right() {
    check_flag_error("memory", "1m", "--memory: `1m` is too little: write at least 64MiB");
    check_flag_error(
        "memory",
        "lots",
        "--memory: `lots` is not a size: write a number and B, KiB, MiB, GiB or TiB, \
         e.g. 64MiB, 512m, 2g",
    );
    check_flag_error("mode", "disk", "--mode: `disk` is not one of cache or store");
    check_flag_error("index", "btree", "--index: `btree` is not one of hash or tree");
    check_flag_error("huge-pages", "on", "--huge-pages: `on` is not one of auto, hugetlb or off");
    check_flag_error("shm", "", "--shm: `` is not a socket's path: write 1 to 107 bytes, or `off`");
    for text in ["", "7", "0o700", "1777", "789", "-700", "07777"] {
        check_flag_error(
            "unix-mode",
            text,
            &format!(
                "--unix-mode: `{text}` is not the mode of a file: write 0000 to 0777, e.g. 0770"
            ),
        );
    }
    for text in ["", "eth0:", "eth0:0", "eth0:-1", "a/b", "sixteen-letters-", "a b"] {
        check_flag_error(
            "native-xdp",
            text,
            &format!(
                "--native-xdp: `{text}` is not a network device: write DEVICE or DEVICE:QUEUES, \
                 e.g. eth0 or eth0:4, or `off`"
            ),
        );
    }
    check_flag_error(
        "max-item-size",
        "1g",
        "--max-item-size: `1g` is too much: write at most 512MiB",
    );
    check_flag_error("lossy-index", "maybe", "--lossy-index: `maybe` is neither `on` nor `off`");
    for text in ["localhost", ":6379", "1.2.3.4:99999", "", "unix:/tmp/s", "[::1]"] {
        check_flag_error(
            "resp",
            text,
            &format!(
                "--resp: `{text}` is not an address: write HOST:PORT, e.g. 127.0.0.1:6379 or \
                 [::1]:6379, or `off`"
            ),
        );
    }
}

#[test]
fn a_device_is_named_with_its_queues_or_without() {
    for (text, queue_count) in [("eth0", None), ("veth-1.2:64", Some(64))] {
        let settings = layered(&[("native-xdp", text)], &[], "").unwrap();
        check_value(&settings, "native-xdp", text, "flag");
        let found = ServeSettings::new(&settings, None, &MACHINE).unwrap().config.native_xdp;
        assert_eq!(found.unwrap().queue_count, queue_count);
    }
}

#[test]
fn addresses_take_a_port_alone_and_a_star() {
    let settings =
        layered(&[("resp", "7000"), ("memcached", "*:0"), ("admin", "off")], &[], "").unwrap();
    check_value(&settings, "resp", "127.0.0.1:7000", "flag");
    check_value(&settings, "memcached", "0.0.0.0:0", "flag");
    check_value(&settings, "admin", "off", "flag");
}

#[test]
fn an_open_port_needs_a_password_or_a_word() {
    let check = |flags: &[(&'static str, &str)]| {
        let settings = layered(flags, &[], "").unwrap();
        ServeSettings::new(&settings, None, &MACHINE).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(
        check(&[("resp", "0.0.0.0:6379")]),
        Err("--resp 0.0.0.0:6379: bind 0.0.0.0 refused: no auth configured; \
             use --requirepass PASSWORD or --insecure"
            .to_owned())
    );
    assert!(check(&[("memcached", "[::]:11211")]).is_err());
    let with_users = [("memcached", "[::]:11211"), ("auth-file", "/users")];
    assert_eq!(check(&with_users), Ok(()));
    assert_eq!(check(&[("resp", "0.0.0.0:6379"), ("requirepass", "x")]), Ok(()));
    let long = "x".repeat(513);
    assert_eq!(
        check(&[("requirepass", &long)]),
        Err("--requirepass ***: a password has at most 512 bytes".to_owned())
    );
    assert_eq!(check(&[("resp", "0.0.0.0:6379"), ("insecure", "on")]), Ok(()));
    assert_eq!(check(&[("resp", "127.9.9.9:1"), ("memcached", "[::1]:2")]), Ok(()));
}

#[test]
fn the_admin_port_leaves_loopback_with_tls_or_by_a_word() {
    let check = |flags: &[(&'static str, &'static str)]| {
        let flags: Vec<_> = [("admin", "192.0.2.1:1")].iter().chain(flags).copied().collect();
        let settings = layered(&flags, &[], "").unwrap();
        ServeSettings::new(&settings, None, &MACHINE).map(|_| ()).map_err(|e| e.to_string())
    };
    let refused = "--admin 192.0.2.1:1: bind 192.0.2.1 refused: logins would cross the network in \
                   the clear; use --admin-tls on, a loopback address or --insecure";
    assert_eq!(check(&[]), Err(refused.to_owned()));
    assert_eq!(check(&[("requirepass", "x")]), Err(refused.to_owned()));
    assert_eq!(check(&[("insecure", "on")]), Ok(()));
    let tls = [("admin-tls", "on"), ("tls-cert", "/c"), ("tls-key", "/k")];
    assert_eq!(check(&tls), Ok(()));
    let without = check(&tls[..1]).unwrap_err();
    assert!(without.starts_with("--admin-tls on: TLS shows a certificate"), "{without}");
}

#[test]
fn hosts_of_the_admin_port_are_names_and_numbers() {
    let hosts = |text: &str| {
        let settings = layered(&[("admin-hosts", text)], &[], "").map_err(|e| e.to_string())?;
        let serve = ServeSettings::new(&settings, None, &MACHINE).map_err(|e| e.to_string())?;
        Ok::<_, String>(serve.config.admin_access.hosts)
    };
    assert_eq!(hosts(""), Ok(vec![]));
    let some = vec!["cache.example".to_owned(), "192.0.2.1".to_owned(), "2001:db8::1".to_owned()];
    assert_eq!(hosts("cache.example,192.0.2.1,2001:db8::1"), Ok(some));
    for wrong in ["a,", "a b", "http://a", "a:80", "*"] {
        assert!(hosts(wrong).unwrap_err().contains("is no host"), "{wrong}");
    }
}

#[test]
fn the_native_port_is_open_to_strangers_only_by_a_word() {
    let check = |flags: &[(&'static str, &str)]| {
        let settings = layered(flags, &[], "").unwrap();
        ServeSettings::new(&settings, None, &MACHINE)
            .map(|settings| settings.config.native.is_some())
            .map_err(|error| error.to_string())
    };
    assert_eq!(check(&[]), Ok(false));
    assert_eq!(check(&[("native", "7379")]), Ok(true));
    assert_eq!(
        check(&[("native", "0.0.0.0:7379")]),
        Err("--native 0.0.0.0:7379: bind 0.0.0.0 refused: no key configured; \
             use --native-key-file PATH or --insecure"
            .to_owned())
    );
    assert_eq!(check(&[("native", "0.0.0.0:1"), ("native-key-file", "/k")]), Ok(true));
    assert_eq!(check(&[("native", "0.0.0.0:1"), ("insecure", "on")]), Ok(true));
    let error = check(&[("native", "0.0.0.0:1"), ("requirepass", "x")]).unwrap_err();
    assert!(error.contains("refused beside --requirepass"), "a password is no key: {error}");
}

#[test]
fn datagrams_of_memcached_come_from_nearby_or_by_a_word() {
    let check = |flags: &[(&'static str, &'static str)]| {
        let flags: Vec<_> = [("udp-port", "11211")].iter().chain(flags).copied().collect();
        let settings = layered(&flags, &[], "").unwrap();
        ServeSettings::new(&settings, None, &MACHINE)
            .map(|serve| serve.config.udp.port)
            .map_err(|error| error.to_string())
    };
    assert_eq!(check(&[]), Ok(11_211));
    let refused = check(&[("requirepass", "x"), ("insecure", "on")]).unwrap_err();
    assert!(refused.starts_with("--udp-port 11211: refused beside --requirepass"), "{refused}");
    let refused = check(&[("memcached", "off")]).unwrap_err();
    assert_eq!(refused, "--udp-port 11211: there is no address for it; give --memcached ADDR");
    assert_eq!(check(&[("memcached", "0.0.0.0:1"), ("insecure", "on")]), Ok(11_211));
    assert!(check(&[("memcached", "0.0.0.0:1")]).is_err());
}

#[test]
fn shared_memory_beside_a_password_wants_a_key_or_a_word() {
    for access in ["0600", "0660"] {
        let open = [("shm", "/tmp/d.sock"), ("shm-access", access), ("requirepass", "secret")];
        let refused = layered(&open, &[], "").unwrap();
        let said = ServeSettings::new(&refused, None, &MACHINE).unwrap_err().to_string();
        assert!(said.starts_with("--shm /tmp/d.sock: refused beside --requirepass"), "{said}");
        for more in [("insecure", "on"), ("shm", "off"), ("native-key-file", "/k")] {
            let flags = [&open[..], &[more]].concat();
            let settings = layered(&flags, &[], "").unwrap();
            ServeSettings::new(&settings, None, &MACHINE).unwrap();
        }
    }
}

#[test]
fn a_native_port_beside_a_password_wants_a_key_or_a_word() {
    let (password, native) = (("requirepass", "x"), ("native", "7379"));
    let refused = layered(&[password, native], &[], "").unwrap();
    let error = ServeSettings::new(&refused, None, &MACHINE).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("refused beside --requirepass"), "{error}");
    for more in [("native-key-file", "/k"), ("insecure", "on")] {
        let settings = layered(&[password, native, more], &[], "").unwrap();
        ServeSettings::new(&settings, None, &MACHINE).unwrap();
    }
}

#[test]
fn keys_are_unique_and_environment_names_follow_from_them() {
    for (index, setting) in TABLE.iter().enumerate() {
        assert!(TABLE[..index].iter().all(|other| other.key != setting.key), "{}", setting.key);
        assert!(setting.kind.read(setting.default).is_ok(), "{}", setting.key);
    }
    assert_eq!(find("max-item-size").unwrap().environment_name(), "DOVETAIL_MAX_ITEM_SIZE");
}

#[test]
fn the_reference_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference_page()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == reference_page(),
        "docs/settings.md is stale: UPDATE_DOCS=1 cargo test -p dovetail reference_page"
    );
}

#[track_caller]
fn check_misfit(flags: &[(&'static str, &str)], want: &str) {
    let settings = layered(flags, &[], "").unwrap();
    let found = ServeSettings::new(&settings, None, &MACHINE).map(|_| ()).unwrap_err();
    assert_eq!(found.to_string(), want);
}

#[test]
fn compaction_that_is_asked_for_needs_one_writer_for_each_key() {
    check_misfit(
        &[("compaction", "on"), ("write-policy", "crcw")],
        "--compaction on: contradicts --write-policy crcw, under which a key has many writers; \
         give --compaction auto, or --write-policy d-crew, crew or erew",
    );
    check_misfit(
        &[("compaction", "on"), ("preset", "basekv")],
        "--compaction on: contradicts --write-policy crcw, under which a key has many writers; \
         give --compaction auto, or --write-policy d-crew, crew or erew",
    );
    // Beside a policy that was not named it means what there is, and is printed so.
    let settings = layered(&[("compaction", "on")], &[], "").unwrap();
    check_value(&settings, "compaction", "auto", "flag");
    let printed = toml(&settings, Listing::Complete);
    let again = layered(&[], &[], &printed).unwrap();
    let serve = ServeSettings::new(&again, None, &MACHINE).unwrap();
    assert!(serve.config.compaction);
    let d_crew = layered(&[("compaction", "on"), ("write-policy", "d-crew")], &[], "").unwrap();
    assert!(ServeSettings::new(&d_crew, None, &MACHINE).unwrap().config.compaction);
}

/// The value of `auto` on a machine with this many cores, unless a setting was named.
#[track_caller]
fn check_policies(core_count: usize, flags: &[(&'static str, &str)], want: &str) {
    let flags: BTreeMap<_, _> = flags.iter().map(|(key, text)| (*key, text.to_string())).collect();
    let mut settings = combine(&flags, &|_| None, &[]).unwrap();
    let machine = Machine { core_count, memory_bytes: 64 << 30, ..MACHINE };
    settle(&mut settings, &machine);
    let serve = ServeSettings::new(&settings, None, &machine).unwrap();
    let policies = match serve.config.tries_policies {
        true => "auto auto".to_owned(),
        false => serve.config.policies.to_string(),
    };
    assert_eq!(policies, want);
    let shown = |key: &str| {
        let shown = serve.config.origin.shown.iter().find(|(name, _)| name == key);
        shown.map(|(_, text)| text.clone()).unwrap_or_default()
    };
    assert_eq!(format!("{} {}", shown("write-policy"), shown("dispatch")), want);
}

#[test]
fn policies_are_tried_where_the_tuner_runs_and_the_settings_leave_both_open() {
    check_policies(2, &[], "crcw any");
    check_policies(4, &[], "crcw any");
    check_policies(5, &[], "auto auto");
    check_policies(16, &[("write-policy", "auto")], "auto auto");
    check_policies(16, &[("threads", "3")], "crcw any");
    check_policies(2, &[("threads", "4")], "crcw any");
    check_policies(2, &[("threads", "4"), ("tuner", "on")], "auto auto");
    check_policies(16, &[("tuner", "off")], "crcw any");
    check_policies(16, &[("cr-threads", "2")], "crcw any");
    check_policies(4, &[("threads", "4"), ("preset", "dovetail")], "auto auto");
    let cluster = [("cluster", "file:///c"), ("write-policy", "auto"), ("dispatch", "auto")];
    check_policies(16, &cluster, "crcw any");
    // Rings between all pairs of this many threads would be most of the memory.
    check_policies(241, &[("memory", "1g")], "crcw any");
    check_policies(241, &[("memory", "32g")], "auto auto");
}

/// What a preset prints on a machine of eight cores: how threads are divided, write policy,
/// dispatch, compaction, index, and what happens when the memory is full.
#[track_caller]
fn check_preset(name: &'static str, want: &str) {
    let flags = flags_of(presets::read(name).unwrap());
    let flags: BTreeMap<_, _> =
        flags.into_iter().map(|(key, text)| (key, text.to_owned())).collect();
    let mut settings = combine(&flags, &|_| None, &[]).unwrap();
    let machine = Machine { core_count: 8, memory_bytes: 64 << 30, ..MACHINE };
    settle(&mut settings, &machine);
    ServeSettings::new(&settings, None, &machine).unwrap();
    let printed = toml(&settings, Listing::Complete);
    let table: toml::Table = printed.parse().unwrap();
    let shown = |key: &str| match &table[key] {
        toml::Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    let threads = match (&*shown("cr-threads"), &*shown("tuner")) {
        ("auto", "off") => "rtc".to_owned(),
        ("auto", _) => "tuned".to_owned(),
        (dispatchers, _) => format!("{dispatchers} of {}", shown("threads")),
    };
    let index = if shown("lossy-index") == "on" { "hash, lossy".into() } else { shown("index") };
    let [write_policy, dispatch, compaction, mode] =
        ["write-policy", "dispatch", "compaction", "mode"].map(shown);
    let found = [threads, write_policy, dispatch, compaction, index, mode].join(" | ");
    assert_eq!(found, want, "{name}");
}

/// The presets' table of the design, with the words of the settings. Under `crew`, `key-hash` is
/// about writes, and reads stay with the worker that receives them. A paper's server that runs to
/// completion has no tuner that would divide it.
#[test]
fn every_preset_prints_what_its_paper_asks_for() {
    let rows = [
        ("dovetail", "tuned | auto | auto | auto | hash | cache"),
        ("mica-erew", "rtc | erew | key-hash | off | hash, lossy | cache"),
        ("mica-crew", "rtc | crew | key-hash | off | hash, lossy | cache"),
        ("hkh", "rtc | crew | key-hash | off | hash | store"),
        ("sho", "rtc | crcw | hand-off:1 | off | hash | store"),
        ("hkh-ws", "rtc | crew | steal | off | hash | store"),
        ("minos", "rtc | crew | size-aware | off | hash | store"),
        ("c4-erew", "rtc | erew | key-hash | off | hash | store"),
        ("c4-crew", "rtc | crew | jbsq:2 | off | hash | store"),
        ("c4-dcrew", "rtc | d-crew | jbsq:2 | off | hash | store"),
        ("c4-comp", "rtc | crew | jbsq:2 | on | hash | store"),
        ("c4", "rtc | d-crew | jbsq:2 | on | hash | store"),
        ("basekv", "rtc | crcw | any | off | hash | store"),
        ("erpckv", "rtc | erew | key-hash | off | hash | store"),
        ("mutps-h", "tuned | crcw | any | off | hash | store"),
        ("mutps-t", "tuned | crcw | any | off | tree | store"),
        ("rowan-kv", "rtc | crcw | any | off | hash | store"),
        ("rpc-kv", "rtc | crcw | any | off | hash | store"),
        ("rwrite-kv", "rtc | crcw | any | off | hash | store"),
        ("batch-kv", "rtc | crcw | any | off | hash | store"),
        ("share-kv", "rtc | crcw | any | off | hash | store"),
    ];
    let names = rows.iter().map(|(name, _)| *name);
    assert!(names.eq(presets::all().iter().map(|preset| preset.name)));
    rows.into_iter().for_each(|(name, want)| check_preset(name, want));
}

#[test]
fn a_policy_that_is_named_is_not_tried_against_others() {
    check_policies(16, &[("write-policy", "crcw")], "crcw any");
    check_policies(16, &[("write-policy", "erew")], "erew any");
    check_policies(16, &[("dispatch", "any")], "crcw any");
    check_policies(16, &[("dispatch", "steal")], "crcw steal");
    check_policies(16, &[("dispatch", "hand-off:2")], "crcw hand-off:2");
    check_policies(2, &[("dispatch", "size-aware")], "crcw size-aware");
    check_policies(16, &[("preset", "basekv")], "crcw any");
    check_policies(16, &[("compaction", "on")], "auto auto");
}

#[test]
fn more_pinned_threads_than_cores_are_refused() {
    check_misfit(
        &[("pin", "on"), ("threads", "8")],
        "--pin on: needs a core for each of 8 threads and there are 4: give --threads 1 to 4, or \
         --pin auto",
    );
}

#[test]
fn a_tuner_with_nothing_to_turn_is_refused() {
    check_misfit(
        &[("tuner", "on"), ("cr-threads", "2")],
        "--tuner on: --cr-threads 2 leaves it nothing to turn: give --cr-threads auto",
    );
    check_misfit(
        &[("tuner", "on"), ("threads", "1")],
        "--tuner on: one thread has no layers: give --threads 2 or more",
    );
}

#[test]
fn a_hand_off_to_no_thread_is_refused_with_what_would_do() {
    let remedy = "leaves none of 3 threads to execute: give --threads 4 or more";
    check_misfit(
        &[("dispatch", "hand-off:3"), ("threads", "3")],
        &format!("--dispatch hand-off:3: {remedy}"),
    );
    check_misfit(
        &[("preset", "sho"), ("threads", "1")],
        "--dispatch hand-off:1: leaves none of 1 threads to execute: give --threads 2 or more",
    );
}

#[test]
fn what_was_given_and_means_nothing_is_told() {
    let check = |flags: &[(&'static str, &str)], wants: &[&str]| {
        let settings = layered(flags, &[], "").unwrap();
        let serve = ServeSettings::new(&settings, None, &MACHINE).unwrap();
        assert_eq!(serve.without_effect, wants, "{flags:?}");
    };
    check(
        &[
            ("size-threshold", "1k"),
            ("size-cost", "bytes"),
            ("size-sample", "7"),
            ("large-help", "off"),
        ],
        &[
            "--size-threshold 1KiB has no effect: give --dispatch size-aware",
            "--size-cost bytes has no effect: give --dispatch size-aware",
            "--size-sample 7 has no effect: give --dispatch size-aware",
            "--large-help off has no effect: give --dispatch size-aware",
        ],
    );
    check(&[("size-threshold", "1k"), ("write-policy", "crew"), ("dispatch", "size-aware")], &[]);
    let evicts = "--eviction fifo has no effect: a store evicts nothing; give --mode cache";
    check(&[("eviction", "fifo"), ("mode", "store")], &[evicts]);
    check(&[("eviction", "fifo")], &[]);
    check(
        &[("hot-set", "50"), ("threads", "1")],
        &["--hot-set 50 has no effect: give --threads 2 or more, and --cr-threads 1 or --tuner on"],
    );
    let layers = "give --cr-threads N below --threads, or --tuner on";
    check(
        &[("hot-set", "50"), ("threads", "3")],
        &[&format!("--hot-set 50 has no effect: {layers}")],
    );
    check(&[("hot-set", "50"), ("threads", "3"), ("cr-threads", "1")], &[]);
    check(&[("hot-set", "50"), ("threads", "3"), ("tuner", "on")], &[]);
    check(&[("hot-set", "auto"), ("threads", "1")], &[]);
    for preset in presets::all() {
        check(&flags_of(preset), &[]);
    }
}

/// A preset, and the cluster that it may need.
fn flags_of(preset: &presets::Preset) -> Vec<(&'static str, &'static str)> {
    let cluster = preset.text_of("replication").map(|_| ("cluster", "file:///of/it"));
    [("preset", preset.name)].into_iter().chain(cluster).collect()
}

#[test]
fn cache_ways_are_a_word_or_a_number() {
    let cat = |text: &str| {
        let settings = layered(&[("cat", text)], &[], "").unwrap();
        ServeSettings::new(&settings, None, &MACHINE).unwrap().config.cat
    };
    assert_eq!(
        ["auto", "on", "off", "6"].map(cat),
        [server::Cat::Auto, server::Cat::On, server::Cat::Off, server::Cat::Ways(6)]
    );
    check_flag_error(
        "cat",
        "many",
        "--cat: `many` is not `auto`, `on`, `off` or a whole number from 1 to 64",
    );
}

#[test]
fn a_preset_stands_between_the_file_and_the_defaults() {
    let flags = [("preset", "mica-erew"), ("compaction", "on")];
    let settings = layered(&flags, &[("DOVETAIL_MODE", "store")], "eviction = \"fifo\"").unwrap();
    check_value(&settings, "write-policy", "erew", "preset mica-erew");
    check_value(&settings, "lossy-index", "on", "preset mica-erew");
    check_value(&settings, "compaction", "on", "flag");
    check_value(&settings, "mode", "store", "environment");
    check_value(&settings, "eviction", "fifo", "d.toml:1");
    check_value(&settings, "batch", "32", "default");
}

#[test]
fn every_preset_makes_a_server_and_prints_one_that_needs_no_preset() {
    for preset in presets::all() {
        for (key, _) in &preset.settings {
            assert!(find(key).is_some(), "{}: {key}", preset.name);
        }
        let settings = layered(&flags_of(preset), &[], "").unwrap();
        let serve = ServeSettings::new(&settings, None, &MACHINE);
        assert!(serve.is_ok(), "{}: {}", preset.name, serve.err().unwrap());
        let printed = toml(&settings, Listing::Complete);
        let (first, without) = printed.split_once('\n').unwrap();
        assert_eq!(first, format!("preset = \"{}\" # {}", preset.name, preset.about));
        let again = layered(&[], &[], without).unwrap();
        for (before, after) in settings.iter().zip(&again) {
            let is_preset = before.setting.key == "preset";
            assert!(is_preset || before.value == after.value, "{}", before.setting.key);
        }
    }
}

#[test]
fn a_preset_that_is_not_there_is_refused_with_what_is() {
    check_flag_error(
        "preset",
        "mica-eraw",
        "--preset: there is no preset `mica-eraw`; did you mean `mica-erew`?",
    );
    check_file_error(
        "preset = \"x\"",
        "d.toml:1: preset: there is no preset `x`: write one of dovetail, mica-erew, mica-crew, \
         hkh, sho, hkh-ws, minos, c4-erew, c4-crew, c4-dcrew, c4-comp, c4, basekv, erpckv, \
         mutps-h, mutps-t, rowan-kv, rpc-kv, rwrite-kv, batch-kv, share-kv",
    );
}
