//! The table over all states, and SECURITY.md's copy of it.

use std::fmt::Write;
use std::path::Path;

use config::UdpConfig;

use super::*;

const DEFAULT_USERS: [DefaultUser; 4] =
    [DefaultUser::Open, DefaultUser::Limited, DefaultUser::Locked, DefaultUser::Shut];

/// All possible states.
fn all_states() -> impl Iterator<Item = State> {
    DEFAULT_USERS.into_iter().flat_map(|default_user| {
        (0_u8..32).map(move |bits| State {
            default_user,
            has_auth_file: bits & 1 != 0,
            has_native_key: bits & 2 != 0,
            requires_certificates: bits & 4 != 0,
            has_admin_login: bits & 8 != 0,
            is_insecure: bits & 16 != 0,
        })
    })
}

fn plain(default_user: DefaultUser) -> State {
    State {
        default_user,
        has_auth_file: false,
        has_native_key: false,
        requires_certificates: false,
        has_admin_login: false,
        is_insecure: false,
    }
}

#[test]
fn strangers_come_in_only_by_insecure_by_a_certificate_or_after_a_login() {
    for state in all_states() {
        for door in Door::ALL {
            if answer(door, &state) != Access::Open {
                continue;
            }
            let is_on_host = matches!(door, Door::UnixResp | Door::UnixMemcached | Door::Shm);
            let is_tls = matches!(door, Door::TlsResp | Door::TlsMemcached);
            let has_reason =
                state.is_insecure || is_on_host || (is_tls && state.requires_certificates);
            assert!(has_reason, "{door:?} {state:?}");
        }
    }
}

#[test]
fn no_door_to_data_is_open_without_a_login_once_there_is_a_password() {
    for state in all_states().filter(|state| {
        !state.is_insecure && matches!(state.default_user, DefaultUser::Locked | DefaultUser::Shut)
    }) {
        for door in Door::ALL.into_iter().filter(|door| *door != Door::Admin) {
            assert!(answer(door, &state).asks_login(), "{door:?} {state:?}");
        }
    }
}

#[test]
fn insecure_opens_what_is_closed_to_strangers_and_asks_no_less_of_users() {
    for state in all_states().filter(|state| state.is_insecure) {
        let careful = State { is_insecure: false, ..state };
        for door in Door::ALL {
            let (bold, careful) = (answer(door, &state), answer(door, &careful));
            assert_ne!(bold, Access::LoopbackOnly, "{door:?} {state:?}");
            let is_user_door = !matches!(door, Door::Native | Door::Shm | Door::Admin);
            if careful.asks_login() && is_user_door {
                assert_eq!(bold, careful, "{door:?} {state:?}");
            }
        }
    }
}

#[test]
fn a_native_key_is_a_login_whatever_else_is_set() {
    for state in all_states().filter(|state| state.has_native_key) {
        for door in [Door::Native, Door::Shm] {
            assert_eq!(answer(door, &state), Access::AfterLogin, "{state:?}");
        }
    }
}

#[test]
fn a_user_default_with_fewer_rights_keeps_doors_without_rights_closed() {
    let state = plain(DefaultUser::Limited);
    assert_eq!(answer(Door::Resp, &state), Access::LoopbackOnly);
    for door in [Door::Memcached, Door::MemcachedUdp, Door::Native, Door::Shm] {
        assert_eq!(answer(door, &state), Access::Closed, "{door:?}");
    }
    let with_users = State { has_auth_file: true, ..state };
    assert_eq!(answer(Door::Memcached, &with_users), Access::AfterLogin);
    assert_eq!(answer(Door::MemcachedUdp, &with_users), Access::Closed);
}

#[test]
fn the_admin_port_beyond_loopback_wants_a_login_of_its_own() {
    for state in all_states() {
        let want = match (state.is_insecure, state.has_admin_login) {
            (true, _) => Access::Open,
            (false, true) => Access::AfterLogin,
            (false, false) => Access::LoopbackOnly,
        };
        assert_eq!(answer(Door::Admin, &state), want, "{state:?}");
    }
}

#[test]
fn loopback_is_127_and_one_in_all_spellings_and_nothing_else() {
    for text in ["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"] {
        assert!(is_loopback(text.parse().unwrap()), "{text}");
    }
    for text in
        ["0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::ffff:10.0.0.1", "fe80::1", "::2", "1::1"]
    {
        assert!(!is_loopback(text.parse().unwrap()), "{text}");
    }
    assert!(Access::LoopbackOnly.admits(true) && !Access::LoopbackOnly.admits(false));
    assert!(Access::AfterLogin.admits(false) && !Access::Closed.admits(true));
}

#[test]
fn the_user_default_is_judged_by_passwords_and_rights() {
    #[track_caller]
    fn check(rules: &[&[u8]], want: DefaultUser) {
        let mut user = User::default_user(None);
        for rule in rules {
            user.apply(rule).unwrap();
        }
        assert_eq!(DefaultUser::from(&user), want);
    }
    check(&[], DefaultUser::Open);
    check(&[b">x"], DefaultUser::Locked);
    check(&[b">x", b"nopass"], DefaultUser::Open);
    check(&[b"resetpass"], DefaultUser::Shut);
    check(&[b"off"], DefaultUser::Shut);
    check(&[b"-flushall"], DefaultUser::Limited);
    check(&[b"resetkeys", b"~a:*"], DefaultUser::Limited);
    check(&[b"-flushall", b">x"], DefaultUser::Shut);
}

fn config_at(door: Door, address: &str) -> Config {
    let at = Some(address.parse().unwrap());
    let base = Config { resp: None, memcached: None, admin: None, ..Config::default() };
    match door {
        Door::Resp => Config { resp: at, ..base },
        Door::TlsResp => Config { tls_resp: at, ..base },
        Door::Memcached => Config { memcached: at, ..base },
        Door::TlsMemcached => Config { tls_memcached: at, ..base },
        Door::MemcachedUdp => {
            Config { memcached: at, udp: UdpConfig { port: 5, reply_factor: 1 }, ..base }
        }
        Door::Native => Config { native: at, ..base },
        Door::Admin => Config { admin: at, ..base },
        Door::Shm => Config { shm: Some("/s".into()), ..base },
        Door::UnixResp => Config { unix_socket: Some("/s".into()), ..base },
        Door::UnixMemcached => Config { memcached_unix_socket: Some("/s".into()), ..base },
        Door::Peer => base,
    }
}

#[test]
fn a_start_is_refused_exactly_for_what_the_table_does_not_open() {
    for state in all_states() {
        for door in Door::ALL {
            let access = answer(door, &state);
            let far = check(&config_at(door, "192.0.2.1:1"), &state);
            let near = check(&config_at(door, "127.0.0.1:1"), &state);
            let has_address =
                !matches!(door, Door::Shm | Door::UnixResp | Door::UnixMemcached | Door::Peer);
            let is_useless = matches!(door, Door::Native | Door::Shm | Door::MemcachedUdp)
                && access == Access::Closed;
            assert_eq!(near.is_err(), is_useless, "{door:?} {state:?}");
            let is_far = has_address && access == Access::LoopbackOnly;
            let other = door == Door::MemcachedUdp
                && answer(Door::Memcached, &state) == Access::LoopbackOnly;
            assert_eq!(far.is_err(), is_useless || is_far || other, "{door:?} {state:?}");
        }
    }
}

#[test]
fn what_insecure_holds_open_is_named_with_its_address() {
    let state = State { is_insecure: true, ..plain(DefaultUser::Open) };
    let config = Config {
        admin: Some("[::1]:3".parse().unwrap()),
        native: Some("[2001:db8::1]:4".parse().unwrap()),
        ..config_at(Door::MemcachedUdp, "192.0.2.1:2")
    };
    let want = ["memcached 192.0.2.1:2", "udp-port 192.0.2.1:5", "native [2001:db8::1]:4"];
    assert_eq!(exposed(&config, &state), want);
    let locked = State { default_user: DefaultUser::Locked, has_native_key: true, ..state };
    assert_eq!(exposed(&config, &locked), [""; 0]);
    assert_eq!(exposed(&config, &State { is_insecure: false, ..state }), [""; 0]);
}

#[test]
fn a_reminder_is_due_at_once_and_then_each_minute() {
    let mut reminder = Reminder::default();
    let at = |seconds: u64| base::Instant { ns: seconds * 1_000_000_000 };
    let due: Vec<u64> = (0..=180).filter(|second| reminder.is_due(at(*second))).collect();
    assert_eq!(due, [0, 60, 120, 180]);
}

/// The columns of SECURITY.md's table.
const COLUMNS: [(&str, DefaultUser); 4] = [
    ("no password", DefaultUser::Open),
    ("no password, fewer rights", DefaultUser::Limited),
    ("password", DefaultUser::Locked),
    ("off, or password and fewer rights", DefaultUser::Shut),
];

/// A change of the state for one row of the table.
type Change = fn(&mut State);

const ROWS: [(&str, Door, Change); 17] = [
    ("`--resp`", Door::Resp, |_| ()),
    ("`--tls-resp`", Door::TlsResp, |_| ()),
    ("`--tls-resp`, certificates required", Door::TlsResp, |state| {
        state.requires_certificates = true;
    }),
    ("`--unix-socket`", Door::UnixResp, |_| ()),
    ("`--memcached`", Door::Memcached, |_| ()),
    ("`--memcached` with `--auth-file`", Door::Memcached, |state| state.has_auth_file = true),
    ("`--tls-memcached`", Door::TlsMemcached, |_| ()),
    ("`--tls-memcached`, certificates required", Door::TlsMemcached, |state| {
        state.requires_certificates = true;
    }),
    ("`--memcached-unix-socket`", Door::UnixMemcached, |_| ()),
    ("`--udp-port`", Door::MemcachedUdp, |_| ()),
    ("`--udp-port` with `--auth-file`", Door::MemcachedUdp, |state| state.has_auth_file = true),
    ("`--native`", Door::Native, |_| ()),
    ("`--native` with a key", Door::Native, |state| state.has_native_key = true),
    ("`--shm`", Door::Shm, |_| ()),
    ("`--shm` with a key", Door::Shm, |state| state.has_native_key = true),
    ("`--admin`", Door::Admin, |_| ()),
    ("`--peer`", Door::Peer, |_| ()),
];

fn page() -> String {
    let mut page = "| door, by the user `default`".to_owned();
    COLUMNS.iter().for_each(|(title, _)| write!(page, " | {title}").unwrap());
    page.push_str(" |\n|---|---|---|---|---|\n");
    for (name, door, change) in ROWS {
        write!(page, "| {name}").unwrap();
        for (_, default_user) in COLUMNS {
            let mut state = plain(default_user);
            change(&mut state);
            let careful = answer(door, &state);
            state.is_insecure = true;
            match answer(door, &state) {
                bold if bold == careful => write!(page, " | {}", careful.words()).unwrap(),
                bold => {
                    write!(page, " | {}; {} by `--insecure`", careful.words(), bold.words())
                        .unwrap();
                }
            }
        }
        page.push_str(" |\n");
    }
    page
}

#[test]
fn the_table_of_security_md_is_this_one() {
    let (begin, end) = ("<!-- doors -->\n", "<!-- end of doors -->");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let start = text.find(begin).expect("it has the table") + begin.len();
    let stop = text.find(end).expect("it has the table's end");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let updated = format!("{}{}{}", &text[..start], page(), &text[stop..]);
        return std::fs::write(&path, updated).unwrap();
    }
    assert!(
        text[start..stop] == page(),
        "UPDATE_DOCS=1 cargo test --workspace the_table_of_security writes it"
    );
}
