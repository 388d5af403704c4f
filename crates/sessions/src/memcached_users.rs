//! The users of the memcached port: lines of `user:password` in the file of `--auth-file`, in the
//! format of memcached's `-Y`.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use config::StartError;
use host::small_file;

use crate::password;

/// The longest name or password.
const WORD_MAX_BYTES: usize = 256;

/// The users and their passwords.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    /// Read at a login, written when the file is read again.
    known: RwLock<Known>,
}

/// Names and passwords.
#[derive(Debug, PartialEq, Eq)]
struct Known(Vec<(String, String)>);

impl Users {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// The file is missing, or a line is not a user. The error does not quote the file.
    pub fn read(path: &Path) -> Result<Users, StartError> {
        let known = RwLock::new(Known::read(path)?);
        Ok(Users { path: path.to_owned(), known })
    }

    /// Reads the file again. Clients that are logged in stay so.
    ///
    /// # Errors
    ///
    /// As [`Users::read`]; the previous users stay.
    pub fn reload(&self) -> Result<(), StartError> {
        let known = Known::read(&self.path)?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Whether a user is admitted, in a time that does not reveal which user is right.
    pub fn admit(&self, user: &[u8], password: &[u8]) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).admit(user, password)
    }
}

impl Known {
    fn read(path: &Path) -> Result<Known, StartError> {
        let refused = |reason: String| StartError::AuthFile { path: path.to_owned(), reason };
        let text = small_file::read_text(path, small_file::USERS_MAX_BYTES)
            .map_err(|error| refused(error.to_string()))?;
        Known::parse(&text).map_err(refused)
    }

    fn parse(text: &str) -> Result<Known, String> {
        let mut users = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let wrong = |reason: &str| Err(format!("line {}: {reason}", index + 1));
            let Some((user, password)) = line.split_once(':') else {
                return wrong("no colon; a line is user:password");
            };
            if user.is_empty() || user.contains(' ') {
                return wrong("a name has at least one letter and no space");
            }
            if user.len().max(password.len()) > WORD_MAX_BYTES {
                return wrong("a name or a password of more than 256 bytes");
            }
            users.push((user.to_owned(), password.to_owned()));
        }
        if users.is_empty() { Err("no user in it".to_owned()) } else { Ok(Known(users)) }
    }

    fn admit(&self, user: &[u8], password: &[u8]) -> bool {
        self.0.iter().fold(false, |is_right, (known, secret)| {
            let is_user = password::matches(known.as_bytes(), user);
            let is_password = password::matches(secret.as_bytes(), password);
            is_right | (is_user & is_password)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Users};

    #[test]
    fn a_file_names_users() {
        let users = Known::parse("alice:secret\n\nbob:a:b c\r\n").unwrap();
        assert!(users.admit(b"alice", b"secret") && users.admit(b"bob", b"a:b c"));
        for (user, password) in [("alice", "a:b c"), ("alice", ""), ("", "secret"), ("x", "secret")]
        {
            assert!(!users.admit(user.as_bytes(), password.as_bytes()), "{user}");
        }
    }

    #[test]
    fn a_file_is_read_anew_and_a_wrong_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        std::fs::write(&path, "alice:old\n").unwrap();
        let users = Users::read(&path).unwrap();
        std::fs::write(&path, "alice:new\nbob:b\n").unwrap();
        users.reload().unwrap();
        assert!(users.admit(b"alice", b"new") && users.admit(b"bob", b"b"));
        assert!(!users.admit(b"alice", b"old"));
        std::fs::write(&path, "alice\n").unwrap();
        assert!(users.reload().is_err());
        assert!(users.admit(b"alice", b"new"));
    }

    #[test]
    fn what_is_no_user_is_told_by_its_line() {
        let long = format!("a:{}", "x".repeat(257));
        for (text, want) in [
            ("", "no user in it"),
            ("a:b\nsecret", "line 2: no colon; a line is user:password"),
            (":x", "line 1: a name has at least one letter and no space"),
            (&long, "line 1: a name or a password of more than 256 bytes"),
        ] {
            assert_eq!(Known::parse(text).unwrap_err(), want);
        }
    }
}
