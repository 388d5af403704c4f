//! Rules, lines, checks and changes of users.

use config::Config;
use wire::Parsed;
use wire::resp::{Limits, Parser, asked_command};

use crate::doors::{DefaultUser, door_state};

use super::*;
use crate::password;

fn user(rules: &str) -> User {
    let mut user = User::new(b"u", 1);
    for rule in merge_selectors(rules.split(' ').map(str::as_bytes)).unwrap() {
        user.apply(&rule).unwrap_or_else(|error| panic!("{rules}: {error}"));
    }
    user
}

fn open(config: &Config, budget: &Arc<BufferBudget>) -> Result<Acl, StartError> {
    Acl::open(config.requirepass.as_deref(), config.acl_file.as_deref(), budget)
}

#[track_caller]
fn check_line(rules: &str, want: &str) {
    let line = user(rules).describe();
    assert_eq!(String::from_utf8_lossy(&line), format!("user u {want}"), "{rules}");
    let again = file::parse(&line).unwrap();
    assert_eq!(again[0].describe(), line, "it reads back");
    assert_eq!(again[0].root, user(rules).root, "{rules}: S1");
}

#[test]
fn lines_are_those_of_redis() {
    check_line("on nopass allkeys allchannels allcommands", "on nopass ~* &* +@all");
    check_line("+get +SET", "off resetchannels -@all +get +set");
    check_line(
        "~a* %R~b %W~c &ch +@read -get",
        "off ~a* %R~b %W~c resetchannels &ch -@all +@read -get",
    );
    check_line("%R~a %W~a %rw~b", "off ~a ~b resetchannels -@all");
    check_line("+@all -@dangerous +config|get", "off resetchannels +@all -@dangerous +config|get");
    check_line("+client -client|kill +client", "off resetchannels -@all +client");
    check_line("+select|0 +select|1", "off resetchannels -@all +select|0 +select|1");
    check_line("+select|0 +select", "off resetchannels -@all +select");
    check_line("-@all +@read nocommands", "off resetchannels -@all");
    check_line(
        "+hset -@hash +pubsub|channels",
        "off resetchannels -@all +hset -@hash +pubsub|channels",
    );
    check_line(
        "(+get ~x) ( %R~y )",
        "off resetchannels -@all (~x resetchannels -@all +get) (%R~y resetchannels -@all)",
    );
    check_line("skip-sanitize-payload on", "on skip-sanitize-payload resetchannels -@all");
    check_line(">p on reset", "off sanitize-payload resetchannels -@all");
    let digest = password::digest(b"p");
    check_line(">p on >p", &format!("on #{digest} resetchannels -@all"));
    check_line(&format!("#{digest} >q <q"), &format!("off #{digest} resetchannels -@all"));
}

#[track_caller]
fn check_error(rules: &str, want: RuleError) {
    let mut user = User::new(b"u", 1);
    let rules = merge_selectors(rules.split(' ').map(str::as_bytes)).unwrap();
    let error = rules.iter().find_map(|rule| user.apply(rule).err());
    assert_eq!(error, Some(want), "{rules:?}");
}

#[test]
fn what_is_no_rule_is_told() {
    for wrong in ["foo", "%Z~a", "%~a", "%", "+select|", ")", "(foo)", "(on)"] {
        check_error(wrong, RuleError::Syntax);
    }
    for wrong in ["+nosuch", "-nosuch", "+@foo", "-@foo", "+config|nosuch", "-select|0", "+"] {
        check_error(wrong, RuleError::Unknown);
    }
    check_error("~* ~a", RuleError::BehindAllKeys);
    check_error("&* &a", RuleError::BehindAllChannels);
    check_error("<p", RuleError::NoSuchPassword);
    check_error("#12", RuleError::Hash);
    check_error(&format!("!{}", "A".repeat(64)), RuleError::Hash);
    check_error("+config|get|x", RuleError::FirstArgOfSubcommand);
    assert_eq!(user("").apply(b"~a b"), Err(RuleError::Syntax));
    assert_eq!(user("").apply(b"(~a) +get)"), Err(RuleError::Syntax), "no file could hold it");
}

#[track_caller]
fn check(rules: &str, command: &str, want: Result<(), Denied>) {
    let line = format!("{command}\r\n");
    let Parsed::Done { value, .. } = Parser::default().parse(line.as_bytes(), &Limits::default())
    else {
        panic!("{command}");
    };
    let spec = asked_command(value.iter()).unwrap();
    assert_eq!(user(rules).check(spec, value.iter()), want, "{rules}: {command}");
}

#[test]
fn commands_are_allowed_one_by_one_and_by_category() {
    check("+get ~*", "get a", Ok(()));
    check("+get ~*", "set a b", Err(Denied::Command));
    check("+@all -@dangerous ~*", "flushall", Err(Denied::Command));
    check("+@all -@dangerous ~*", "set a b", Ok(()));
    check("-@all", "auth x", Ok(()));
    check("-@all", "ping", Err(Denied::Command));
    check("+config|get", "config get x", Ok(()));
    check("+config|get", "config set x y", Err(Denied::Command));
    check("+config -config|set", "config set x y", Err(Denied::Command));
    check("+config -config|set", "config get x", Ok(()));
    check("+select|0", "select 0", Ok(()));
    check("+select|0", "select 1", Err(Denied::Command));
    check("+select|0 -select", "select 0", Err(Denied::Command));
    check("+@read -@all", "get a", Err(Denied::Command));
}

#[test]
fn keys_are_allowed_for_what_becomes_of_them() {
    let rules = "+@all ~a* %R~r* %W~w*";
    check(rules, "get a1", Ok(()));
    check(rules, "get b", Err(Denied::Key(0)));
    check(rules, "get r1", Ok(()));
    check(rules, "get w1", Err(Denied::Key(0)));
    check(rules, "set r1 x", Err(Denied::Key(0)));
    check(rules, "set w1 x", Ok(()));
    check(rules, "set w1 x get", Err(Denied::Key(0)));
    // The result of a comparison reveals the value.
    for condition in ["ifeq x", "ifne x", "ifdeq 0123456789abcdef", "ifdne 0123456789abcdef"] {
        check(rules, &format!("set w1 x {condition}"), Err(Denied::Key(0)));
        check(rules, &format!("delex w1 {condition}"), Err(Denied::Key(0)));
    }
    check(rules, "set w1 ifeq", Ok(()));
    check(rules, "delex w1", Ok(()));
    check(rules, "delifeq w1 x", Err(Denied::Key(0)));
    check(rules, "mset a1 1 b 2", Err(Denied::Key(1)));
    check(rules, "copy r1 w2", Ok(()));
    check(rules, "copy w1 w2", Err(Denied::Key(0)));
    check(rules, "copy r1 r2", Err(Denied::Key(1)));
    check(rules, "strlen w1", Ok(()));
    check(rules, "del w1", Ok(()));
    check(rules, "del r1", Err(Denied::Key(0)));
    check(rules, "object encoding b", Err(Denied::Key(0)));
    check(rules, "keys *", Ok(()));
    // It returns values of keys that it did not name.
    check(rules, "kv.range - +", Err(Denied::Key(0)));
    check("+kv.range %R~*", "kv.range - +", Ok(()));
    check("+kv.range %W~*", "kv.range - +", Err(Denied::Key(0)));
}

#[test]
fn selectors_add_up_as_wholes() {
    let rules = "+get ~a (+set ~b) (+@all %R~*)";
    check(rules, "get a", Ok(()));
    check(rules, "set b x", Ok(()));
    check(rules, "set a x", Err(Denied::Key(0)));
    check(rules, "get b", Ok(()));
    check("+get ~a (+set ~b)", "get b", Err(Denied::Key(0)));
    check("+get ~a (+set ~b)", "del b", Err(Denied::Command));
}

fn budget() -> Arc<BufferBudget> {
    Arc::new(BufferBudget::new(8 << 20))
}

#[test]
fn users_are_booked_before_they_are_made_and_refused_beyond_their_part() {
    let budget = budget();
    let acl = Acl::open(None, None, &budget).unwrap();
    let limit_bytes = budget.kind_limit_bytes(Kind::Acl);
    let pattern = [b"~".as_slice(), &[b'k'; 10_000]].concat();
    let set = |name: usize, rules: &[&[u8]]| {
        acl.set_user(name.to_string().as_bytes(), rules.iter().copied())
    };
    let refused = (0..1000).find_map(|name| set(name, &[&pattern, b">password"]).err());
    assert_eq!(refused, Some(SetUserError::NoRoom(NoRoom { limit_bytes })));
    let held_bytes = acl.table().held_bytes();
    assert!(held_bytes <= limit_bytes && held_bytes > limit_bytes / 2);
    assert_eq!(budget.kind_bytes(Kind::Acl), held_bytes);
    assert!(set(0, &[b"resetkeys", b"on"]).is_ok(), "what frees memory has room");
    acl.set_default_password(b"secret");
    assert!(!acl.table().default().takes_anybody());
    assert_eq!(acl.delete((0..1000_usize).map(|_| b"1".as_slice())), 1);
    assert_eq!(budget.kind_bytes(Kind::Acl), acl.table().held_bytes());
}

#[test]
fn rules_never_take_more_than_was_booked_for_them() {
    let words = ["on", "nopass", ">pw", "~a*", "%R~b", "&c", "+@all", "-@read", "+get", "-set"];
    let more = ["+select|0", "(~x +get)", "(+@all -@dangerous ~y* &z)", "reset", "~*", "resetkeys"];
    for seed in 0..2000_u64 {
        let mut user = User::new(b"name", 1);
        let mut bytes_max = user.held_bytes();
        for step in 0..20 {
            let drawn = base::hash::mix(seed * 100 + step) as usize;
            let rules: Vec<&str> = words.into_iter().chain(more).collect();
            let long = format!("~{}", "k".repeat(drawn % 700));
            let rule = if drawn.is_multiple_of(3) { &*long } else { rules[drawn % rules.len()] };
            bytes_max += room::rules_bytes_max(std::iter::once(rule.as_bytes()));
            let _ = user.apply(rule.as_bytes());
            assert!(user.held_bytes() <= bytes_max, "{seed}, {step}: {rule}");
        }
    }
}

#[test]
fn a_file_of_too_many_users_changes_nothing() {
    let path = std::env::temp_dir().join(format!("dovetail-acl-room-{}", std::process::id()));
    std::fs::write(&path, "user one on nopass +@all ~*\n").unwrap();
    let config = Config { acl_file: Some(path.clone()), ..Config::default() };
    let budget = budget();
    let acl = open(&config, &budget).unwrap();
    let before_bytes = budget.kind_bytes(Kind::Acl);
    let line = |at: usize| format!("user u{at} on nopass ~k{at}:* +@all\n");
    std::fs::write(&path, (0..20_000).map(line).collect::<String>()).unwrap();
    let told = acl.load().unwrap_err();
    assert!(told.contains("--memory") && acl.table().user(b"one").is_some(), "{told}");
    assert_eq!(budget.kind_bytes(Kind::Acl), before_bytes);
    std::fs::write(&path, (0..200).map(line).collect::<String>()).unwrap();
    acl.load().unwrap();
    assert_eq!(budget.kind_bytes(Kind::Acl), acl.table().held_bytes());
    std::fs::remove_file(path).unwrap();
}

/// Each rule is compared with those before it, so their number bounds a turn.
#[test]
fn a_user_has_so_many_rules_and_a_command_so_many() {
    let acl = acl();
    let many = |sign: &str, count: usize| -> Vec<Vec<u8>> {
        (0..count).map(|at| format!("{sign}{at}").into_bytes()).collect()
    };
    let set = |rules: &[Vec<u8>]| {
        let set = acl.set_user(b"a", rules.iter().map(Vec::as_slice));
        set.map_err(|error| error.to_string())
    };
    for sign in [">", "~", "&", "+get|"] {
        assert_eq!(set(&many(sign, RULES_MAX)), Ok(()), "{sign}");
        let told = set(&[b"+set".to_vec()]).unwrap_err();
        assert!(told.contains("at most 1024 passwords, patterns"), "{sign}: {told}");
        assert_eq!(set(&[b"reset".to_vec()]), Ok(()));
    }
    let of_selector = |count| vec![[b"(", &*many("~", count).join(&b' '), b")"].concat()];
    assert_eq!(set(&of_selector(RULES_MAX - 1)), Ok(()), "it counts as one itself");
    assert!(set(&of_selector(1)).unwrap_err().contains("at most 1024"));
    assert_eq!(set(&[b"reset".to_vec()]), Ok(()));
    assert!(set(&of_selector(RULES_MAX + 1)).unwrap_err().contains("at most 1024"));
    assert_eq!(set(&vec![b"+get".to_vec(); WORDS_MAX]), Ok(()));
    let told = set(&vec![b"+get".to_vec(); WORDS_MAX + 1]).unwrap_err();
    assert_eq!(told, "ACL SETUSER takes at most 2048 rules: send several");
}

#[test]
fn a_password_has_so_many_bytes() {
    let acl = acl();
    let set = |rule: &str| acl.set_user(b"a", [b"on", rule.as_bytes()].into_iter());
    let longest = "p".repeat(crate::password::HASHED_MAX_BYTES);
    set(&format!(">{longest}")).unwrap();
    assert!(acl.table().user(b"a").unwrap().admits(longest.as_bytes()));
    let longer = format!("{longest}p");
    assert!(!acl.table().user(b"a").unwrap().admits(longer.as_bytes()));
    for sign in [">", "<"] {
        let told = set(&format!("{sign}{longer}")).unwrap_err().to_string();
        assert!(told.ends_with("a password has at most 65536 bytes"), "{told:.80}");
    }
    set("nopass").unwrap();
    assert!(acl.table().user(b"a").unwrap().admits(longer.as_bytes()), "any password");
}

fn acl() -> Acl {
    Acl::open(None, None, &budget()).unwrap()
}

fn set(acl: &Acl, name: &str, rules: &str) {
    acl.set_user(name.as_bytes(), rules.split(' ').map(str::as_bytes)).unwrap();
}

#[test]
fn a_connection_is_judged_anew_when_users_change() {
    let acl = acl();
    let mut own = Pass::new(&acl.table());
    let mut guest = own.clone();
    assert_eq!(own.standing, Standing::Open);
    set(&acl, "alice", "on >p +get ~a");
    let table = acl.table();
    own.log_in(table.user(b"alice").unwrap(), &table);
    assert_eq!(own.standing, Standing::Restricted);
    set(&acl, "alice", "+@all allkeys off");
    assert_eq!((own.renew(&acl.table()), own.standing), (Fate::GoesOn, Standing::Open));
    set(&acl, "default", "-@all");
    assert_eq!((guest.renew(&acl.table()), guest.standing), (Fate::GoesOn, Standing::Restricted));
    assert_eq!(acl.delete([&b"alice"[..], b"default", b"x"].into_iter()), 1);
    set(&acl, "alice", "on nopass");
    assert_eq!(own.renew(&acl.table()), Fate::Closes, "that is somebody else");
    assert!(own.needs_auth());
}

#[test]
fn a_password_of_the_default_user_keeps_out_the_next_connection() {
    let acl = acl();
    let mut old = Pass::new(&acl.table());
    acl.set_default_password(b"secret");
    assert_eq!((old.renew(&acl.table()), old.standing), (Fate::GoesOn, Standing::Open));
    let mut new = Pass::new(&acl.table());
    assert!(new.needs_auth());
    let table = acl.table();
    assert!(table.default().admits(b"secret") && !table.default().admits(b""));
    acl.set_default_password(b"");
    assert_eq!((new.renew(&acl.table()), new.standing), (Fate::GoesOn, Standing::Open));
    set(&acl, "default", "off");
    assert!(Pass::new(&acl.table()).needs_auth());
    assert!(!acl.table().default().admits(b"any"));
}

#[test]
fn one_wrong_rule_of_several_changes_nothing() {
    let acl = acl();
    let before = acl.generation();
    let error = acl.set_user(b"a", [&b"on"[..], b"+nosuch"].into_iter()).unwrap_err();
    let want = "Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL";
    assert_eq!(error.to_string(), want);
    assert_eq!((acl.generation(), acl.table().users().len()), (before, 1));
    let error = acl.set_user(b"a b", std::iter::empty()).unwrap_err();
    assert_eq!(error.to_string(), "Usernames can't contain spaces or null characters");
    let error = acl.set_user(b"a", [&b"(+get"[..], b"~x"].into_iter()).unwrap_err();
    let want = "Unmatched parenthesis in acl selector starting at '(+get'.";
    assert_eq!(error.to_string(), want);
}

#[test]
fn a_file_is_loaded_as_a_whole_and_saved_so_that_it_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    std::fs::write(&path, "user default on >d ~* +@all\n\n user alice on >p +get ~a (+set ~b)\n")
        .unwrap();
    let config = Config { acl_file: Some(path.clone()), ..Config::default() };
    assert_eq!(door_state(&config).unwrap().default_user, DefaultUser::Locked);
    let acl = open(&config, &budget()).unwrap();
    let table = acl.table();
    let mut alice = Pass::default();
    alice.log_in(table.user(b"alice").unwrap(), &table);
    acl.save().unwrap();
    acl.load().unwrap();
    assert_eq!(alice.renew(&acl.table()), Fate::GoesOn, "the same as before");
    let saved = std::fs::read_to_string(&path).unwrap();
    assert_eq!(saved.lines().count(), 2, "{saved}");
    assert!(saved.starts_with("user alice on #"), "{saved}");
    std::fs::write(&path, "user alice on\nuser alice on\nuse bob\nuser c +x (\nuser d +x\n")
        .unwrap();
    let (told, shown) = (acl.load().unwrap_err(), path.display());
    let want = format!(
        "WARNING: Duplicate user 'alice' found on line 2. {shown}:3 should start with user keyword \
         followed by the username. {shown}:4: Unmatched parenthesis in selector definition.\
         {shown}:5: Unknown command or category name in ACL. WARNING: ACL errors detected, no \
         change to the previously active ACL rules was performed"
    );
    assert_eq!(told, want);
    assert!(acl.table().default().admits(b"d"), "nothing has changed");
    let error = open(&config, &budget()).unwrap_err().to_string();
    assert_eq!(error, format!("--acl-file {shown}: line 2: a second line of user 'alice'"));
    std::fs::write(&path, "user alice on nopass\n").unwrap();
    acl.load().unwrap();
    assert!(!acl.overrules_password());
    assert_eq!(alice.renew(&acl.table()), Fate::Closes, "she is somebody else now");
    assert!(acl.table().default().takes_anybody());
    let config = Config { requirepass: Some("r".into()), ..config };
    assert_eq!(door_state(&config).unwrap().default_user, DefaultUser::Locked);
    let acl = open(&config, &budget()).unwrap();
    assert!(!acl.overrules_password());
    std::fs::write(&path, "user default on nopass ~* +@all\n").unwrap();
    acl.load().unwrap();
    assert!(acl.overrules_password());
}

#[test]
fn prefixes_that_may_be_read_are_those_of_one_pattern_each() {
    let words = ["", "a", "ab", "abc", "ac", "b", "ba", "c?", "a*b"];
    for bits in 0..1_u32 << words.len() {
        let chosen = words.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
        let rules: Vec<String> = chosen
            .map(|(at, word)| match at % 3 {
                0 => format!("%R~{word}*"),
                1 => format!("({word}*)").replace('(', "(%RW~"),
                _ => format!("%W~{word}* %R~{word}"),
            })
            .collect();
        let user = user(&format!("on {}", rules.join(" ")));
        let readable = ReadPrefixes::new(&user);
        for prefix in ["", "a", "aa", "ab", "abd", "abcd", "ac", "b", "bab", "c", "ca", "c?x"] {
            let want = user.reads_prefix(prefix.as_bytes());
            assert_eq!(readable.covers(prefix.as_bytes()), want, "{rules:?} {prefix}");
        }
    }
}
