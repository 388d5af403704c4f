//! The file of `--acl-file`: one line `user NAME RULE ...` per user, in the form of ACL LIST.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::user::User;
use super::{RuleError, merge_selectors, selector};

/// The mode of a file that was not there: only the server's own account reads digests of passwords.
const MODE: u32 = 0o600;

const NOTHING_CHANGED: &str = "WARNING: ACL errors detected, no change to the previously active \
                               ACL rules was performed";

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// From 1.
    pub line: usize,
    /// What it is.
    pub wrong: Wrong,
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// It is no user.
    Begin,
    /// A name that no user can have.
    Name(String),
    /// The second line of one user.
    Duplicate(String),
    /// A parenthesis that is never closed.
    Parenthesis,
    /// One of its rules.
    Rule {
        /// Without what may be a password.
        rule: String,
        /// What is wrong with it.
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

/// All that is wrong with a file, as ACL LOAD tells it.
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

/// A rule for people: of passwords and their digests nothing but the sign before them, and nothing
/// of a word without a sign, which may be a password whose sign was forgotten.
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

/// What is wrong with the text of a file of users; empty: nothing.
pub fn check(text: &[u8]) -> Vec<LineError> {
    parse(text).err().unwrap_or_default()
}

/// Replaces the file, which a link may lead to.
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
        // A file that is left behind does no harm; the error says what happened.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_through(path: &Path, temporary: &Path, text: &[u8]) -> io::Result<()> {
    // One that was left by a process of the same number.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(temporary)?;
    if let Ok(old) = fs::metadata(path) {
        // Never more than `MODE`: it holds passwords' hashes.
        file.set_permissions(Permissions::from_mode(old.permissions().mode() & MODE))?;
    }
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.map_or_else(|| PathBuf::from("."), Path::to_owned))?.sync_all()
}
