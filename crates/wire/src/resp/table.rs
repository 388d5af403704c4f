//! The command table: one row per command and subcommand. Lookup, arity checks and COMMAND use it.
//!
//! # Invariants
//! T1: `Spec::of(id).id == id`.
//! T2: names are lower case; a subcommand is `parent|name`.

mod flags;
mod handling;
mod help;
mod key_uses;
mod rows;

use super::args::{ArgIter, Keys};
use super::number::parse_i64;

pub use flags::{Flags, Group};
pub use handling::Handling;
pub use key_uses::KeyUse;
pub use rows::CommandId;

/// The positions of a command's keys. All 0: it has none. Only `last` 0: the argument before the
/// first key gives their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Index of the first key; the command's name is 0.
    pub first: u32,
    /// Index of the last key; negative counts from the end.
    pub last: i32,
    /// The distance from one key to the next.
    pub step: u32,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The row's command.
    pub id: CommandId,
    /// `get`, `client|setname`.
    pub name: &'static str,
    /// Arguments with the name; negative: at least that many.
    pub arity: i32,
    /// Its properties.
    pub flags: Flags,
    /// How a server runs it.
    pub handling: Handling,
    /// The positions of its keys.
    pub keys: KeySpec,
    /// What becomes of each key; one entry: the same for all.
    pub key_uses: &'static [KeyUse],
    /// Its group in COMMAND DOCS.
    pub group: Group,
    /// The Redis version that introduced it; for our own commands the version of Dovetail.
    pub since: &'static str,
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// Its arguments, in the notation of `commands::facts`; empty: it has none.
    pub arguments: &'static str,
    is_subcommand: bool,
}

/// Whether a name of the table has a `|`.
pub(super) const fn is_subcommand(name: &str) -> bool {
    let name = name.as_bytes();
    let mut at = 0;
    while at < name.len() {
        if name[at] == b'|' {
            return true;
        }
        at += 1;
    }
    false
}

impl KeySpec {
    /// Whether an argument gives the number of keys.
    pub fn is_counted(&self) -> bool {
        self.first > 0 && self.last == 0
    }

    /// The keys among the arguments of a command, its name first.
    pub fn of<'a>(&self, mut args: ArgIter<'a>) -> Keys<'a> {
        if self.is_counted() {
            let mut from_count = args;
            let count = from_count.nth(self.first as usize - 1).and_then(parse_i64).unwrap_or(0);
            let span = usize::try_from(count).unwrap_or(0).saturating_mul(self.step as usize);
            return Keys::stepped(from_count.take_first(span), self.step);
        }
        let count = i64::try_from(args.len()).unwrap_or(i64::MAX);
        let last = if self.last < 0 { count + i64::from(self.last) } else { i64::from(self.last) };
        let span = last - i64::from(self.first) + 1;
        for _ in 0..self.first {
            args.next();
        }
        Keys::stepped(args.take_first(usize::try_from(span).unwrap_or(0)), self.step)
    }
}

impl Spec {
    /// The name and id of every row, for lookups that are built at compile time.
    pub(super) const NAMES: [(&'static str, CommandId); CommandId::COUNT] = rows::NAMES;

    /// The row of a command.
    pub fn of(id: CommandId) -> &'static Spec {
        &rows::ROWS[id as usize]
    }

    /// Every row, subcommands after their parents.
    pub fn all() -> &'static [Spec] {
        &rows::ROWS
    }

    /// Every row that is not a subcommand, as counted by COMMAND and COMMAND COUNT.
    pub fn top_level() -> impl Iterator<Item = &'static Spec> + Clone {
        rows::ROWS.iter().filter(|spec| !spec.is_subcommand)
    }

    /// The rows of this command's subcommands.
    pub fn subcommands(&self) -> impl Iterator<Item = &'static Spec> + Clone + use<> {
        let name = self.name;
        rows::ROWS.iter().filter(move |spec| spec.parent_name() == Some(name))
    }

    /// Looks up `get`, `client` or `client|setname` in any case, as COMMAND INFO does.
    pub fn by_name(name: &[u8]) -> Option<&'static Spec> {
        rows::ROWS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether it is a subcommand, such as `client|setname`.
    pub fn is_subcommand(&self) -> bool {
        self.is_subcommand
    }

    /// `client` of `client|setname`.
    pub fn parent_name(&self) -> Option<&'static str> {
        self.name.split_once('|').map(|(parent, _)| parent)
    }

    /// `setname` of `client|setname`, `get` of `get`.
    pub fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// Whether `count` arguments, including the name, satisfy the arity.
    pub fn accepts_count(&self, count: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= least } else { count == least }
    }
}

impl CommandId {
    /// The row of the table.
    pub fn spec(self) -> &'static Spec {
        Spec::of(self)
    }

    /// Whether it is only a container of subcommands.
    pub fn is_container(self) -> bool {
        matches!(
            self,
            CommandId::Acl
                | CommandId::Client
                | CommandId::Cluster
                | CommandId::Command
                | CommandId::Config
                | CommandId::HotKeys
                | CommandId::Latency
                | CommandId::Memory
                | CommandId::Module
                | CommandId::Object
                | CommandId::Slowlog
        )
    }

    /// `get`, `client|setname`.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The answer to its HELP, one simple string per line.
    pub fn help_lines(self) -> &'static [&'static str] {
        help::lines(self)
    }
}

#[cfg(test)]
mod tests;
