//! A selector: commands, keys and channels that are allowed together. A user has one selector of
//! its own, and one more for each rule set in parentheses.
//!
//! ```text
//!  +@read +set ~cache:* %R~conf:*  ─▶ commands: a bit each · keys: a pattern each, with what it
//!                                     lets be done · rules: the words, for ACL LIST
//! ```
//!
//! # Invariants
//! S1: the shown rules, applied to an empty selector in their order, give the same commands.

use std::fmt::Write;

use commands::facts::{Access, categories, key_access};
use wire::resp::{ArgIter, CommandId, Flags, Glob, Spec, is_foreign_command};

use super::RuleError;

/// The categories of Redis; some of them contain no command.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Why something is not allowed. Ordered: of several reasons, the greatest is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command.
    Command,
    /// This one of its keys, from 0.
    Key(usize),
}

/// A bit for each command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CommandSet([u64; CommandId::COUNT.div_ceil(64)]);

impl CommandSet {
    fn all() -> CommandSet {
        let mut set = CommandSet::default();
        Spec::all().iter().for_each(|spec| set.put(spec.id, true));
        set
    }

    fn put(&mut self, id: CommandId, is_in: bool) {
        let (word, bit) = (id as usize / 64, 1 << (id as usize % 64));
        if is_in {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    fn has(&self, id: CommandId) -> bool {
        self.0[id as usize / 64] >> (id as usize % 64) & 1 == 1
    }
}

/// A pattern of keys, with the allowed accesses.
#[derive(Clone, Debug)]
struct KeyPattern {
    pattern: Box<[u8]>,
    glob: Glob,
    access: Access,
}

impl PartialEq for KeyPattern {
    fn eq(&self, other: &KeyPattern) -> bool {
        self.pattern == other.pattern && self.access == other.access
    }
}

impl Eq for KeyPattern {}

/// Commands, keys and channels that are allowed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    has_all_keys: bool,
    has_all_channels: bool,
    /// The first rule: `+@all` if true, else `-@all`.
    begins_with_all: bool,
    commands: CommandSet,
    /// In their order, each as it was given, in lower case.
    rules: Vec<String>,
    /// Commands that are allowed with this first argument only.
    first_args: Vec<(CommandId, String)>,
    keys: Vec<KeyPattern>,
    channels: Vec<Box<[u8]>>,
}

impl Selector {
    /// The maximum memory that a rule adds to its key patterns: places in a vector that has just
    /// grown, and the parsed pattern.
    pub(super) fn keys_bytes_max(rule: &[u8]) -> usize {
        4 * size_of::<KeyPattern>() + Glob::held_bytes_max(rule)
    }

    /// Its memory, without itself.
    pub(super) fn held_bytes(&self) -> usize {
        const ALLOCATION_BYTES: usize = 16;
        let lens = (self.rules.iter().map(String::len))
            .chain(self.first_args.iter().map(|(_, first)| first.len()))
            .chain(self.keys.iter().map(|key| key.pattern.len()))
            .chain(self.channels.iter().map(|channel| channel.len()));
        lens.map(|len| len + ALLOCATION_BYTES).sum::<usize>()
            + self.rules.capacity() * size_of::<String>()
            + self.first_args.capacity() * size_of::<(CommandId, String)>()
            + self.keys.capacity() * size_of::<KeyPattern>()
            + self.keys.iter().map(|key| key.glob.held_bytes()).sum::<usize>()
            + self.channels.capacity() * size_of::<Box<[u8]>>()
    }

    /// Whether nothing is denied.
    pub fn is_unrestricted(&self) -> bool {
        self.has_all_keys && self.commands == CommandSet::all()
    }

    /// Whether a command may run; `args` begin with its name.
    pub fn check(&self, spec: &'static Spec, args: ArgIter<'_>) -> Result<(), Denied> {
        if !self.has_command(spec, args) {
            return Err(Denied::Command);
        }
        if self.has_all_keys {
            return Ok(());
        }
        if spec.id == CommandId::KvRange {
            // It reads any key between two bounds.
            return if self.reads_prefix(b"") { Ok(()) } else { Err(Denied::Key(0)) };
        }
        if spec.keys.first == 0 {
            return Ok(());
        }
        for (at, key) in spec.keys.of(args).enumerate() {
            let wanted = key_access(spec, at, args);
            // No key is longer, so a longer one cannot exist.
            let is_key = key.len() <= store::KEY_LEN_MAX_BYTES;
            let lets = |pattern: &KeyPattern| {
                pattern.access.covers(wanted) && is_key && pattern.glob.matches(key, &mut 0)
            };
            if !self.keys.iter().any(lets) {
                return Err(Denied::Key(at));
            }
        }
        Ok(())
    }

    fn has_command(&self, spec: &'static Spec, mut args: ArgIter<'_>) -> bool {
        if spec.flags.contains(Flags::NO_AUTH) || self.commands.has(spec.id) {
            return true;
        }
        let Some(given) = args.nth(1) else { return false };
        let is_it = |(id, first): &(CommandId, String)| {
            *id == spec.id && first.as_bytes().eq_ignore_ascii_case(given)
        };
        self.first_args.iter().any(is_it)
    }

    /// Whether a key may be read.
    pub fn reads_key(&self, key: &[u8]) -> bool {
        // No key is longer.
        let is_key = key.len() <= store::KEY_LEN_MAX_BYTES;
        let lets =
            |known: &KeyPattern| known.access.reads && is_key && known.glob.matches(key, &mut 0);
        self.has_all_keys || self.keys.iter().any(lets)
    }

    /// Whether every key with this prefix may be read: a single pattern has to allow it.
    pub fn reads_prefix(&self, prefix: &[u8]) -> bool {
        let lets = |known: &KeyPattern| known.access.reads && covers_prefix(&known.pattern, prefix);
        self.has_all_keys || self.keys.iter().any(lets)
    }

    /// Whether every key of any prefix may be read.
    pub fn reads_prefix_by_all(&self) -> bool {
        self.has_all_keys
    }

    /// The number of its key patterns.
    pub fn pattern_count(&self) -> usize {
        self.keys.len()
    }

    /// The number of its rules.
    pub fn rule_count(&self) -> usize {
        self.rules.len() + self.keys.len() + self.channels.len()
    }

    /// The fixed beginnings of the patterns that allow reading every key with that prefix.
    pub fn read_prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().filter(|known| known.access.reads).filter_map(|it| plain_of(&it.pattern))
    }

    /// Revokes all its commands, keys and channels.
    pub fn reset(&mut self) {
        *self = Selector::default();
    }

    /// A selector that allows everything.
    pub fn unrestricted() -> Selector {
        Selector {
            has_all_keys: true,
            has_all_channels: true,
            begins_with_all: true,
            commands: CommandSet::all(),
            ..Selector::default()
        }
    }

    /// Applies one rule.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") => {
                (self.has_all_keys, self.keys) = (true, Vec::new());
            }
            _ if is("resetkeys") => (self.has_all_keys, self.keys) = (false, Vec::new()),
            _ if is("allchannels") || is("&*") => {
                (self.has_all_channels, self.channels) = (true, Vec::new());
            }
            _ if is("resetchannels") => {
                (self.has_all_channels, self.channels) = (false, Vec::new());
            }
            _ if is("allcommands") || is("+@all") => self.begin_with(true),
            _ if is("nocommands") || is("-@all") => self.begin_with(false),
            [b'~', pattern @ ..] => return self.add_keys(pattern, Access::ALL),
            [b'%', rest @ ..] => return self.add_keys_for(rest),
            [b'&', channel @ ..] => return self.add_channel(channel),
            [b'+', b'@', category @ ..] => return self.put_category(category, true),
            [b'-', b'@', category @ ..] => return self.put_category(category, false),
            [b'+', command @ ..] => return self.add_command(command),
            [b'-', command @ ..] => return self.put_command(command, false),
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn begin_with(&mut self, all: bool) {
        self.begins_with_all = all;
        self.commands = if all { CommandSet::all() } else { CommandSet::default() };
        self.rules.clear();
        self.first_args.clear();
    }

    /// `%RW~pattern`; `rule` is the part after the `%`.
    fn add_keys_for(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::BehindAllKeys);
        }
        let mut access = Access::default();
        let mut rest = rule;
        while let [letter, after @ ..] = rest {
            rest = after;
            match letter.to_ascii_uppercase() {
                b'R' if !access.reads => access.reads = true,
                b'W' if !access.writes => access.writes = true,
                b'~' => break,
                _ => return Err(RuleError::Syntax),
            }
        }
        if access == Access::default() {
            return Err(RuleError::Syntax);
        }
        self.add_keys(rest, access)
    }

    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::BehindAllKeys);
        }
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| &*known.pattern == pattern) {
            Some(known) => known.access = known.access.with(access),
            None => {
                let glob = Glob::new(pattern).map_err(RuleError::Pattern)?;
                self.keys.push(KeyPattern { pattern: pattern.into(), glob, access });
            }
        }
        Ok(())
    }

    fn add_channel(&mut self, channel: &[u8]) -> Result<(), RuleError> {
        if self.has_all_channels {
            return Err(RuleError::BehindAllChannels);
        }
        if has_space(channel) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| &**known == channel) {
            self.channels.push(channel.into());
        }
        Ok(())
    }

    fn put_category(&mut self, category: &[u8], is_in: bool) -> Result<(), RuleError> {
        let is_it = |name: &&&str| name.as_bytes().eq_ignore_ascii_case(category);
        let name = CATEGORIES.iter().find(is_it).ok_or(RuleError::Unknown)?;
        let is_in_category = |spec: &&'static Spec| categories(spec).any(|of_it| of_it == *name);
        self.put(Spec::all().iter().filter(is_in_category), is_in);
        self.note(&format!("@{name}"), is_in);
        Ok(())
    }

    /// `+command`, `+command|subcommand`, `+command|first argument`.
    fn add_command(&mut self, words: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = words.iter().rposition(|byte| *byte == b'|') else {
            return self.put_command(words, true);
        };
        let (command, first) = (&words[..bar], &words[bar + 1..]);
        let Some(spec) = Spec::by_name(command) else { return self.put_command(words, true) };
        if spec.is_subcommand() {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        let first = std::str::from_utf8(first).map_err(|_| RuleError::Syntax)?;
        if first.is_empty() || has_space(first.as_bytes()) {
            return Err(RuleError::Syntax);
        }
        if spec.id.is_container() {
            return self.put_command(words, true);
        }
        let first = first.to_ascii_lowercase();
        self.note(&format!("{}|{first}", spec.name), true);
        let entry = (spec.id, first);
        if !self.first_args.contains(&entry) {
            self.first_args.push(entry);
        }
        Ok(())
    }

    fn put_command(&mut self, name: &[u8], is_in: bool) -> Result<(), RuleError> {
        let lower = name.to_ascii_lowercase();
        let first = lower.split(|byte| *byte == b'|').next().unwrap_or_default();
        match (Spec::by_name(&lower), std::str::from_utf8(&lower)) {
            (Some(spec), _) => {
                self.put(std::iter::once(spec), is_in);
                self.note(spec.name, is_in);
            }
            // A Redis command on a type that this server does not have: no client can run it, but
            // files of Redis name it.
            (None, Ok(foreign)) if is_foreign_command(first) && !has_space(&lower) => {
                self.note(foreign, is_in);
            }
            (None, _) => return Err(RuleError::Unknown),
        }
        Ok(())
    }

    /// Adds or removes commands with all their subcommands.
    fn put(&mut self, specs: impl Iterator<Item = &'static Spec>, is_in: bool) {
        let mut touched = CommandSet::default();
        for spec in specs {
            touched.put(spec.id, true);
            self.commands.put(spec.id, is_in);
            if spec.id.is_container() {
                spec.subcommands().for_each(|sub| self.commands.put(sub.id, is_in));
            }
        }
        self.first_args.retain(|(id, _)| !touched.has(*id));
    }

    /// S1: drops the rules that the new rule overrides: the same words, and its subcommands.
    fn note(&mut self, rule: &str, is_in: bool) {
        self.rules.retain(|known| {
            let known = &known[1..];
            let behind = known.strip_prefix(rule);
            !behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('|'))
        });
        self.rules.push(format!("{}{rule}", if is_in { '+' } else { '-' }));
    }

    /// Its commands, in the form of ACL GETUSER.
    pub fn commands_text(&self) -> String {
        let mut text = if self.begins_with_all { "+@all" } else { "-@all" }.to_owned();
        for rule in &self.rules {
            // Writing to a string cannot fail.
            let _ = write!(text, " {rule}");
        }
        text
    }

    /// Its keys, in the form of ACL GETUSER.
    pub fn keys_text(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let spelled = |known: &KeyPattern| {
            let sign: &[u8] = match (known.access.reads, known.access.writes) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                _ => b"~",
            };
            [sign, &known.pattern].concat()
        };
        self.keys.iter().map(spelled).collect::<Vec<_>>().join(&b' ')
    }

    /// Its channels, in the form of ACL GETUSER.
    pub fn channels_text(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        self.channels
            .iter()
            .map(|channel| [b"&", &**channel].concat())
            .collect::<Vec<_>>()
            .join(&b' ')
    }

    /// Its text in a line of ACL LIST.
    pub fn describe(&self, line: &mut Vec<u8>) {
        let keys = self.keys_text();
        let channels = self.channels_text();
        let no_channels: &[u8] = if self.has_all_channels { b"" } else { b"resetchannels" };
        let commands = self.commands_text();
        let words = [&keys[..], no_channels, &channels, commands.as_bytes()];
        let words: Vec<&[u8]> = words.into_iter().filter(|word| !word.is_empty()).collect();
        line.extend_from_slice(&words.join(&b' '));
    }
}

/// The bytes before the star, if a pattern is plain bytes followed by one star.
fn plain_of(pattern: &[u8]) -> Option<&[u8]> {
    let plain = pattern.strip_suffix(b"*")?;
    let is_plain = plain.iter().all(|byte| !matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    is_plain.then_some(plain)
}

/// Whether a pattern is plain bytes followed by a star, and the prefix begins with these bytes.
fn covers_prefix(pattern: &[u8], prefix: &[u8]) -> bool {
    plain_of(pattern).is_some_and(|plain| prefix.starts_with(plain))
}

/// Whether a name or a pattern contains a space, and so cannot be part of a line.
pub fn has_space(word: &[u8]) -> bool {
    word.iter().any(|byte| byte.is_ascii_whitespace() || matches!(*byte, 0 | 0x0b))
}
