//! The users of the RESP port and their rights, as in Redis 7.0.
//!
//! ```text
//!  ACL SETUSER, DELUSER, LOAD ─▶ Acl: a new Table, a new generation ─▶ workers: renew, before
//!                                                                         │  they parse
//!  AUTH user password ─────────▶ Pass of a connection:  Open       ◀──────┤ may do everything
//!                                                       Restricted ◀──────┤ commands are checked
//!                                                       NeedsAuth  ◀──────┤ has to log in
//!                                                       closed     ◀──────┘ its user is gone
//! ```
//!
//! # Invariants
//! A1: a table never changes; a thread that holds one sees the users of one moment.
//! A2: commands that a client sends after the reply to a change are checked against the changed
//!     table: workers look at the generation after each read.
//! A3: the default user always exists, with the number 0.
//! A4: for a connection whose user may do everything, the check is one comparison, of its
//!     `Standing`.
//!
//! # Concurrency
//! Any thread may change the table, under a lock; a request never takes the lock.

mod file;
mod pass;
mod prefixes;
mod room;
mod selector;
#[cfg(test)]
mod tests;
mod user;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use file::{LineError, Wrong, check as check_file};
pub use pass::{Fate, Pass, Standing};
pub use prefixes::{PATTERN_BYTES, ReadPrefixes};
pub use room::NoRoom;
pub use selector::{CATEGORIES, Denied, Selector};
pub use user::User;

use budget::{BufferBudget, Kind, Reservation};
use config::StartError;
use host::small_file;

use crate::logins::Logins;
use crate::password;

/// The user that clients are before they log in.
pub const DEFAULT_USER: &[u8] = b"default";

/// The maximum number of rules of a user: passwords, patterns, channels, rules on commands, and
/// selectors. Each rule is compared with those before it, in one turn of a worker.
const RULES_MAX: usize = 1024;

/// The maximum number of rules in one ACL SETUSER; some of them may replace others.
const WORDS_MAX: usize = 2 * RULES_MAX;

/// Why a rule is refused, in the words of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No rule begins so, or a pattern contains a space.
    #[error("Syntax error")]
    Syntax,
    /// No such command, subcommand or category.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// Keys beside all keys.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
         have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    BehindAllKeys,
    /// Channels beside all channels.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
         not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    BehindAllChannels,
    /// A password that the user does not have.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// A pattern beyond the limits of patterns.
    #[error("{0}")]
    Pattern(wire::resp::PatternError),
    /// Not a SHA-256.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
    )]
    Hash,
    /// `+config|get|x`.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgOfSubcommand,
    /// More rules than a user may have.
    #[error(
        "a user has at most {RULES_MAX} passwords, patterns, channels and rules on commands: \
         share them among several users"
    )]
    TooMany,
    /// A password that would take too long to hash.
    #[error("a password has at most {} bytes", password::HASHED_MAX_BYTES)]
    PasswordTooLong,
}

/// Why ACL SETUSER changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUserError {
    /// A name with a space.
    Name,
    /// A parenthesis that is never closed.
    Parenthesis(Vec<u8>),
    /// This rule.
    Rule(Vec<u8>, RuleError),
    /// More rules than one command may have.
    TooMany,
    /// All its rules together do not fit.
    NoRoom(NoRoom),
}

impl From<NoRoom> for SetUserError {
    fn from(no_room: NoRoom) -> SetUserError {
        SetUserError::NoRoom(no_room)
    }
}

impl fmt::Display for SetUserError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetUserError::Name => {
                formatter.write_str("Usernames can't contain spaces or null characters")
            }
            SetUserError::Parenthesis(rule) => {
                let rule = String::from_utf8_lossy(rule);
                write!(formatter, "Unmatched parenthesis in acl selector starting at '{rule}'.")
            }
            SetUserError::Rule(rule, error) => {
                let rule = String::from_utf8_lossy(rule);
                write!(formatter, "Error in ACL SETUSER modifier '{rule}': {error}")
            }
            SetUserError::TooMany => {
                write!(formatter, "ACL SETUSER takes at most {WORDS_MAX} rules: send several")
            }
            SetUserError::NoRoom(no_room) => no_room.fmt(formatter),
        }
    }
}

/// All users at one moment (A1).
#[derive(Clone, Debug)]
pub struct Table {
    users: BTreeMap<Box<[u8]>, Arc<User>>,
    default: Arc<User>,
}

impl Table {
    /// A table of the default user and the others, one of which may replace that user.
    fn new(default: User, others: impl IntoIterator<Item = User>) -> Table {
        let mut table = Table { users: BTreeMap::new(), default: Arc::new(default) };
        table.put(Arc::clone(&table.default));
        others.into_iter().for_each(|user| table.put(Arc::new(user)));
        table
    }

    fn put(&mut self, user: Arc<User>) {
        if &*user.name == DEFAULT_USER {
            self.default = user.with_id(0); // A3.
            self.users.insert(DEFAULT_USER.into(), Arc::clone(&self.default));
        } else {
            self.users.insert(user.name.clone(), user);
        }
    }

    /// A user.
    pub fn user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// That of clients that have not logged in.
    pub fn default(&self) -> &Arc<User> {
        &self.default
    }

    /// All, by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// Whether some users may not read all keys.
    pub fn has_limited_users(&self) -> bool {
        !self.users().all(|user| user.reads_prefix(b""))
    }

    /// The memory of the users.
    fn held_bytes(&self) -> u64 {
        self.users().map(|user| user.held_bytes()).sum()
    }

    /// A line for each, as the file has them.
    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for user in self.users() {
            text.extend_from_slice(&user.describe());
            text.push(b'\n');
        }
        text
    }
}

/// The users of a server, as all threads see them.
#[derive(Debug)]
pub struct Acl {
    current: Mutex<Current>,
    generation: AtomicU64,
    last_id: AtomicU64,
    /// `--acl-file`.
    file: Option<PathBuf>,
    /// Failed logins.
    pub logins: Logins,
    /// The default user's password if the file does not set one: the last one set.
    requirepass: Mutex<Option<String>>,
}

/// The memory that a change of some rules of one user takes.
const FEW_RULES_BYTES: u64 = 4 << 10;

/// The present users.
#[derive(Debug)]
struct Current {
    table: Arc<Table>,
    /// The memory of the users (K27).
    booked: Reservation,
}

impl Current {
    /// Books the maximum memory of the new users. A few rules need not wait for room that others
    /// have filled: a client must not be able to prevent the removal of its rights by replies that
    /// it does not read.
    fn book(&mut self, bytes_max: u64) -> Result<(), NoRoom> {
        let more_bytes = bytes_max.saturating_sub(self.booked.bytes());
        let has_room = match more_bytes {
            0 => true,
            1..=FEW_RULES_BYTES => self.booked.try_grow_beside(bytes_max),
            _ => self.booked.try_resize(bytes_max),
        };
        has_room.then_some(()).ok_or(NoRoom { limit_bytes: self.booked.limit_bytes() })
    }

    /// Books the actual memory of the users.
    fn settle(&mut self) {
        let held_bytes = self.table.held_bytes();
        // It fails only for the default user's password, which is accepted without room.
        self.booked.try_resize(held_bytes);
    }
}

/// Why a password asks nothing.
pub const OVERRULED: &str = "the line of --acl-file for default lets clients in without one";

impl Acl {
    /// The users of the settings and the file; their memory is booked in `budget`.
    ///
    /// # Errors
    ///
    /// The file is missing or contains an error.
    pub fn open(
        requirepass: Option<&str>,
        file: Option<&Path>,
        budget: &Arc<BufferBudget>,
    ) -> Result<Acl, StartError> {
        let default = User::default_user(requirepass);
        let table = Arc::new(Table::new(default, []));
        let booked = Reservation::empty(budget, Kind::Acl);
        let acl = Acl {
            current: Mutex::new(Current { table, booked }),
            generation: AtomicU64::new(0),
            last_id: AtomicU64::new(0),
            file: file.map(Path::to_path_buf),
            logins: Logins::default(),
            requirepass: Mutex::new(requirepass.map(str::to_owned)),
        };
        if let Some(path) = &acl.file {
            let refused = |reason| StartError::AclFile { path: path.clone(), reason };
            let text = acl.read_file(path).map_err(|error| {
                let text = error.to_string();
                let reason = text.split(" (os error").next().unwrap_or(&text);
                let hint = match error.kind() {
                    io::ErrorKind::NotFound => "; it is made before the start, and may be empty",
                    _ => "",
                };
                refused(format!("{reason}{hint}"))
            })?;
            acl.book_file(&text).map_err(|no_room| refused(no_room.to_string()))?;
            let users = file::parse(&text).map_err(|errors| {
                refused(errors.first().map_or(String::new(), ToString::to_string))
            })?;
            acl.replace(users);
        }
        if acl.overrules_password() {
            tracing::warn!("--requirepass has no effect: {OVERRULED}");
        }
        Ok(acl)
    }

    /// Whether a password is set, and the file lets clients in without one.
    pub fn overrules_password(&self) -> bool {
        self.requirepass().is_some() && self.table().default().takes_anybody()
    }

    /// Counts changes.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The present users.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.current().table)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file, unless it is longer than all users together may be.
    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let users_max_bytes = self.current().booked.limit_bytes();
        small_file::read(path, users_max_bytes.min(small_file::USERS_MAX_BYTES))
    }

    /// Books the users of a file before they are made; the present ones are not counted, because
    /// they are replaced.
    fn book_file(&self, text: &[u8]) -> Result<(), NoRoom> {
        self.current().book(room::file_bytes_max(text))
    }

    /// ACL SETUSER: applies all rules, or none.
    pub fn set_user<'r>(
        &self,
        name: &[u8],
        rules: impl Iterator<Item = &'r [u8]> + Clone,
    ) -> Result<(), SetUserError> {
        if rules.clone().nth(WORDS_MAX).is_some() {
            return Err(SetUserError::TooMany);
        }
        let rules_bytes_max = room::rules_bytes_max(rules.clone());
        let user_bytes_max = room::USER_BYTES + 2 * name.len() as u64 + rules_bytes_max;
        self.set_user_within(user_bytes_max, name, rules)
    }

    /// Changes a user that may grow by so many bytes.
    fn set_user_within<'r>(
        &self,
        more_bytes_max: u64,
        name: &[u8],
        rules: impl Iterator<Item = &'r [u8]>,
    ) -> Result<(), SetUserError> {
        if selector::has_space(name) {
            return Err(SetUserError::Name);
        }
        self.change(more_bytes_max, |table| {
            let rules = merge_selectors(rules).map_err(SetUserError::Parenthesis)?;
            let mut user = match table.user(name) {
                Some(known) => User::clone(known),
                None => User::new(name, self.fresh_id()),
            };
            for rule in rules {
                user.apply(&rule).map_err(|error| SetUserError::Rule(rule, error))?;
            }
            table.put(Arc::new(user));
            Ok(())
        })
    }

    /// CONFIG SET requirepass; empty: no password.
    pub fn set_default_password(&self, password: &[u8]) {
        let rules = match password {
            [] => vec![b"nopass".to_vec()],
            _ => vec![b"resetpass".to_vec(), [b">", password].concat()],
        };
        // One password replaces another: this is never refused for want of room.
        let applied = self.set_user_within(0, DEFAULT_USER, rules.iter().map(Vec::as_slice));
        debug_assert_eq!(applied, Ok(()), "these rules are always right");
        // A file that is read again without a password keeps this one.
        let kept = (!password.is_empty()).then(|| String::from_utf8_lossy(password).into_owned());
        *self.requirepass.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }

    fn requirepass(&self) -> Option<String> {
        self.requirepass.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// ACL DELUSER: returns how many users existed. The default user stays.
    pub fn delete<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> usize {
        let deleted: Result<usize, NoRoom> = self.change(0, |table| {
            let mut others = names.filter(|name| *name != DEFAULT_USER);
            Ok(others.by_ref().filter(|name| table.users.remove(*name).is_some()).count())
        });
        deleted.unwrap_or(0)
    }

    /// Whether there is a file to load from and to save to.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// ACL LOAD: the users of the file, or what is wrong with it, and nothing has changed.
    ///
    /// # Errors
    /// Each with its line, and the file's name.
    pub fn load(&self) -> Result<(), String> {
        let Some(path) = &self.file else { return Ok(()) };
        let shown = path.display();
        let text = self
            .read_file(path)
            .map_err(|error| format!("Error loading ACLs, opening file '{shown}': {error}"))?;
        let no_room = |no_room| format!("Error loading ACLs from file '{shown}': {no_room}");
        self.book_file(&text).map_err(no_room)?;
        match file::parse(&text) {
            Ok(users) => self.replace(users),
            Err(errors) => {
                self.current().settle();
                return Err(file::told(path, &errors));
            }
        }
        Ok(())
    }

    /// ACL SAVE: replaces the file atomically; a reader finds the old one or the new one, whole.
    pub fn save(&self) -> io::Result<()> {
        match &self.file {
            Some(path) => file::write(path, &self.table().text()),
            None => Ok(()),
        }
    }

    /// Replaces all users. An unchanged user keeps its connections.
    fn replace(&self, users: Vec<User>) {
        let default = User::default_user(self.requirepass().as_deref());
        let fresh = users.into_iter().map(|mut user| {
            user.id = self.fresh_id();
            user
        });
        let mut new = Table::new(default, fresh);
        let replaced: Result<(), NoRoom> = self.change(0, |table| {
            for user in new.users.values_mut() {
                if let Some(known) = table.user(&user.name)
                    && *known.with_id(user.id) == **user
                {
                    *user = Arc::clone(known);
                }
            }
            *table = new;
            Ok(())
        });
        debug_assert!(replaced.is_ok());
    }

    fn fresh_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Publishes a changed copy, if `change` succeeds. It adds at most `more_bytes_max`, which are
    /// booked before.
    fn change<T, E: From<NoRoom>>(
        &self,
        more_bytes_max: u64,
        change: impl FnOnce(&mut Table) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut current = self.current();
        let bytes_max = current.booked.bytes() + more_bytes_max;
        current.book(bytes_max)?;
        let mut table = Table::clone(&current.table);
        let made = change(&mut table);
        if made.is_ok() {
            current.table = Arc::new(table);
            self.generation.fetch_add(1, Ordering::Release);
        }
        current.settle();
        made
    }
}

/// Joins the words between parentheses; an error names the parenthesis that is never closed.
fn merge_selectors<'r>(rules: impl Iterator<Item = &'r [u8]>) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut merged = Vec::new();
    let mut open: Option<(Vec<u8>, Vec<u8>)> = None;
    for rule in rules {
        match &mut open {
            None if rule.starts_with(b"(") && !rule.ends_with(b")") => {
                open = Some((rule.to_vec(), rule.to_vec()));
            }
            None => merged.push(rule.to_vec()),
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
                if rule.ends_with(b")") {
                    merged.extend(open.take().map(|(_, selector)| selector));
                }
            }
        }
    }
    match open {
        None => Ok(merged),
        Some((begin, _)) => Err(begin),
    }
}

/// Reads a file's text where no server runs: its users, as lines that read back to the same.
///
/// # Errors
/// What is wrong, by line.
pub fn check_text(text: &[u8]) -> Result<Vec<u8>, Vec<LineError>> {
    let users = file::parse(text)?;
    Ok(users.iter().flat_map(|user| [user.describe(), b"\n".to_vec()].concat()).collect())
}
