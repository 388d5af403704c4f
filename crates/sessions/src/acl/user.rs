//! A user: its name, its passwords, and its rights.

use std::sync::Arc;

use wire::Parsed;
use wire::resp::{ArgIter, Limits, Parser, Spec, asked_command};

use super::selector::{Denied, Selector};
use super::{RULES_MAX, RuleError};
use crate::password;

/// SHA-256 in hexadecimal.
const HASH_DIGITS: usize = 64;

/// A user at one moment: a change makes another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: Box<[u8]>,
    /// A new id for each created user, even if a deleted user had the same name.
    pub id: u64,
    /// Whether a login as this user is possible.
    pub is_on: bool,
    /// Whether every password is accepted.
    pub has_no_password: bool,
    /// Redis's setting for payloads of RESTORE; `None`: not set.
    sanitizes: Option<bool>,
    /// Digests of its passwords.
    pub passwords: Vec<String>,
    /// The selector of its own rules.
    pub root: Selector,
    /// The selectors in parentheses.
    pub selectors: Vec<Selector>,
}

impl User {
    /// A user without rights.
    pub fn new(name: &[u8], id: u64) -> User {
        User {
            name: name.into(),
            id,
            is_on: false,
            has_no_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
        }
    }

    /// The user of clients before they log in: it may do everything, with that password.
    pub fn default_user(password: Option<&str>) -> User {
        User {
            is_on: true,
            has_no_password: password.is_none(),
            passwords: password
                .map(|password| password::digest(password.as_bytes()))
                .into_iter()
                .collect(),
            root: Selector::unrestricted(),
            ..User::new(super::DEFAULT_USER, 0)
        }
    }

    /// Whether it may run every command on every key.
    pub fn is_unrestricted(&self) -> bool {
        self.root.is_unrestricted() || self.selectors.iter().any(Selector::is_unrestricted)
    }

    /// Whether a connection is this user without a login.
    pub fn takes_anybody(&self) -> bool {
        self.is_on && self.has_no_password
    }

    /// Whether this password allows a login, in a time that does not reveal which password is
    /// right.
    pub fn admits(&self, given: &[u8]) -> bool {
        if given.len() > password::HASHED_MAX_BYTES {
            return self.takes_anybody();
        }
        let digest = password::digest(given);
        let is_right = |is_right, known: &String| {
            is_right | password::matches(known.as_bytes(), digest.as_bytes())
        };
        self.is_on && (self.has_no_password | self.passwords.iter().fold(false, is_right))
    }

    /// Whether this password allows a login where no command is checked: only if the user may do
    /// everything.
    pub fn admits_everywhere(&self, given: &[u8]) -> bool {
        self.admits(given) && self.is_unrestricted()
    }

    /// Whether a command may run; `args` begin with its name.
    pub fn check(&self, spec: &'static Spec, args: ArgIter<'_>) -> Result<(), Denied> {
        let mut denied = Denied::Command;
        for selector in std::iter::once(&self.root).chain(&self.selectors) {
            match selector.check(spec, args) {
                Ok(()) => return Ok(()),
                Err(why) => denied = denied.max(why),
            }
        }
        Err(denied)
    }

    /// Whether it may run the command in this line.
    pub fn may_run(&self, line: &[u8]) -> bool {
        let Parsed::Done { value: args, .. } = Parser::default().parse(line, &Limits::default())
        else {
            return false;
        };
        asked_command(args.iter()).is_some_and(|spec| self.check(spec, args.iter()).is_ok())
    }

    /// Whether it may read a key, by any command.
    pub fn reads_key(&self, key: &[u8]) -> bool {
        self.root.reads_key(key) || self.selectors.iter().any(|it| it.reads_key(key))
    }

    /// Whether it may read every key with this prefix.
    pub fn reads_prefix(&self, prefix: &[u8]) -> bool {
        self.root.reads_prefix(prefix) || self.selectors.iter().any(|it| it.reads_prefix(prefix))
    }

    /// The number of its key patterns.
    pub fn pattern_count(&self) -> usize {
        let others = self.selectors.iter().map(Selector::pattern_count);
        self.root.pattern_count() + others.sum::<usize>()
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// As [`RuleError`] says; then the user may have changed in part.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        self.apply_any(rule)?;
        let others = self.selectors.iter().map(|it| 1 + it.rule_count()).sum::<usize>();
        let count = self.passwords.len() + self.root.rule_count() + others;
        if count > RULES_MAX { Err(RuleError::TooMany) } else { Ok(()) }
    }

    fn apply_any(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("skip-sanitize-payload") => self.sanitizes = Some(false),
            _ if is("sanitize-payload") => self.sanitizes = Some(true),
            _ if is("nopass") => (self.has_no_password, self.passwords) = (true, Vec::new()),
            _ if is("resetpass") => (self.has_no_password, self.passwords) = (false, Vec::new()),
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => {
                let fresh = User::new(&self.name, self.id);
                *self = User { sanitizes: Some(true), ..fresh };
            }
            [b'>' | b'<', password @ ..] if password.len() > password::HASHED_MAX_BYTES => {
                return Err(RuleError::PasswordTooLong);
            }
            [b'>', password @ ..] => self.add_password(password::digest(password)),
            [b'#', hash @ ..] => self.add_password(hash_of(hash)?),
            [b'<', password @ ..] => return self.remove_password(&password::digest(password)),
            [b'!', hash @ ..] => return self.remove_password(&hash_of(hash)?),
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::default();
                let words = rules.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                if words.clone().nth(RULES_MAX).is_some() {
                    return Err(RuleError::TooMany);
                }
                for word in words {
                    if word.ends_with(b")") {
                        return Err(RuleError::Syntax); // It would not read back.
                    }
                    selector.apply(word)?;
                }
                self.selectors.push(selector);
            }
            _ => return self.root.apply(rule),
        }
        Ok(())
    }

    fn add_password(&mut self, digest: String) {
        self.has_no_password = false;
        if !self.passwords.contains(&digest) {
            self.passwords.push(digest);
        }
    }

    fn remove_password(&mut self, digest: &str) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == digest);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Its flags in ACL GETUSER.
    pub fn flags(&self) -> Vec<&'static str> {
        let sanitizing = match self.sanitizes {
            Some(true) => Some("sanitize-payload"),
            Some(false) => Some("skip-sanitize-payload"),
            None => None,
        };
        let passwords = self.has_no_password.then_some("nopass");
        let state = if self.is_on { "on" } else { "off" };
        std::iter::once(state).chain(passwords).chain(sanitizing).collect()
    }

    /// Its line of ACL LIST and of the file.
    pub fn describe(&self) -> Vec<u8> {
        let mut line = [b"user ", &*self.name].concat();
        for flag in self.flags() {
            line.push(b' ');
            line.extend_from_slice(flag.as_bytes());
        }
        for digest in &self.passwords {
            line.extend_from_slice(b" #");
            line.extend_from_slice(digest.as_bytes());
        }
        line.push(b' ');
        self.root.describe(&mut line);
        for selector in &self.selectors {
            line.extend_from_slice(b" (");
            selector.describe(&mut line);
            line.push(b')');
        }
        line
    }

    /// The same user with another id.
    pub fn with_id(self: &Arc<User>, id: u64) -> Arc<User> {
        Arc::new(User { id, ..User::clone(self) })
    }
}

fn hash_of(digits: &[u8]) -> Result<String, RuleError> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_hash = digits.len() == HASH_DIGITS && digits.iter().all(is_digit);
    match std::str::from_utf8(digits) {
        Ok(text) if is_hash => Ok(text.to_owned()),
        _ => Err(RuleError::Hash),
    }
}
