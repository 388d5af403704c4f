//! The file of `--acl-file`: one line `user NAME RULE ...` per user, in the form of ACL LIST.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::user::User;
use super::{RuleError, merge_selectors, selector};

/// The mode of a new file: only the server's own account reads digests of passwords.
const MODE: u32 = 0o600;

const NOTHING_CHANGED: &str = "WARNING: ACL errors detected, no change to the previously active \
                               ACL rules was performed";

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The error.
    pub wrong: Wrong,
}

/// The possible errors of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// It does not begin like a user.
    Begin,
    /// A name that no user can have.
    Name(String),
    /// A second line for one user.
    Duplicate(String),
    /// A parenthesis that is never closed.
    Parenthesis,
    /// An error in one of its rules.
    Rule {
        /// The rule, without parts that may be a password.
        rule: String,
        /// The error in the rule.
        error: RuleError,
    },
}

impl fmt::Display for LineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.wrong)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Begin => formatter.write_str("a line is `user NAME RULE ...`"),
            Wrong::Name(name) => write!(formatter, "the name '{name}' has invalid characters"),
            Wrong::Duplicate(name) => write!(formatter, "a second line of user '{name}'"),
            Wrong::Parenthesis => formatter.write_str("a parenthesis is not closed"),
            Wrong::Rule { rule, error } => write!(formatter, "the rule '{rule}': {error}"),
        }
    }
}

/// All errors of a file, in the form of ACL LOAD.
pub(super) fn told(path: &Path, errors: &[LineError]) -> String {
    let mut text = String::new();
    let path = path.display();
    for LineError { line, wrong } in errors {
        text += &match wrong {
            Wrong::Begin => {
                format!("{path}:{line} should start with user keyword followed by the username. ")
            }
            Wrong::Name(name) => {
                format!("{path}:{line}: username '{name}' contains invalid characters. ")
            }
            Wrong::Duplicate(name) => {
                format!("WARNING: Duplicate user '{name}' found on line {line}. ")
            }
            Wrong::Parenthesis => {
                format!("{path}:{line}: Unmatched parenthesis in selector definition.")
            }
            Wrong::Rule { error, .. } => format!("{path}:{line}: {error}. "),
        };
    }
    text + NOTHING_CHANGED
}

/// The users of a file.
pub(super) fn parse(text: &[u8]) -> Result<Vec<User>, Vec<LineError>> {
    let (mut users, mut errors, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (line, words) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let words = words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        match parse_line(words, &mut names, &mut users) {
            Ok(()) => {}
            Err(wrongs) => {
                errors.extend(wrongs.into_iter().map(|wrong| LineError { line, wrong }));
            }
        }
    }
    if errors.is_empty() { Ok(users) } else { Err(errors) }
}

fn parse_line<'l>(
    mut words: impl Iterator<Item = &'l [u8]>,
    names: &mut BTreeSet<&'l [u8]>,
    users: &mut Vec<User>,
) -> Result<(), Vec<Wrong>> {
    let Some(keyword) = words.next() else { return Ok(()) };
    let name = words.next().filter(|_| keyword == b"user").ok_or_else(|| vec![Wrong::Begin])?;
    let shown = || String::from_utf8_lossy(name).into_owned();
    if selector::has_space(name) {
        return Err(vec![Wrong::Name(shown())]);
    }
    if !names.insert(name) {
        return Err(vec![Wrong::Duplicate(shown())]);
    }
    let rules = merge_selectors(words).map_err(|_| vec![Wrong::Parenthesis])?;
    let mut user = User::new(name, 0);
    let failed = |rule: &Vec<u8>| {
        let error = user.apply(rule).err()?;
        Some(Wrong::Rule { rule: shown_rule(rule), error })
    };
    let wrongs: Vec<Wrong> = rules.iter().filter_map(failed).collect();
    if !wrongs.is_empty() {
        return Err(wrongs);
    }
    users.push(user);
    Ok(())
}

/// A rule for display. Passwords and their digests are reduced to the sign before them, and a word
/// without a sign is hidden, because it may be a password whose sign was forgotten.
fn shown_rule(rule: &[u8]) -> String {
    match rule {
        [b'+' | b'-' | b'~' | b'%' | b'&' | b'(' | b')' | b'@', ..] => {
            String::from_utf8_lossy(rule).into_owned()
        }
        [sign @ (b'>' | b'<' | b'#' | b'!'), _, ..] => format!("{}...", char::from(*sign)),
        [sign @ (b'>' | b'<' | b'#' | b'!')] => char::from(*sign).to_string(),
        _ => format!("... of {} bytes", rule.len()),
    }
}

/// The errors in the text of a file of users; empty: there are none.
pub fn check(text: &[u8]) -> Vec<LineError> {
    parse(text).err().unwrap_or_default()
}

/// Replaces the file, following links.
pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        found => found?,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_through(&path, &temporary, text);
    if written.is_err() {
        // A leftover file does no harm; the error says what happened.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_through(path: &Path, temporary: &Path, text: &[u8]) -> io::Result<()> {
    // It was left by a process with the same id.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(temporary)?;
    if let Ok(old) = fs::metadata(path) {
        // At most `MODE`: it holds hashes of passwords.
        file.set_permissions(Permissions::from_mode(old.permissions().mode() & MODE))?;
    }
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.map_or_else(|| PathBuf::from("."), Path::to_owned))?.sync_all()
}
