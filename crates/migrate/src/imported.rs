//! The result of translating another server's configuration.

/// One setting of Dovetail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The TOML key.
    pub key: &'static str,
    /// The value as a user would write it.
    pub value: String,
    /// The directive or flag it comes from.
    pub from: String,
}

/// A directive or flag without a counterpart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The directive as written, without secret values.
    pub what: String,
    /// The reason for which it is not translated, or what to do.
    pub why: String,
}

/// A user of the RESP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its line in the source, from 1 on.
    pub line: usize,
    /// The user as a line of an ACL file: `user NAME RULE ...`. It may hold passwords.
    pub text: Vec<u8>,
}

/// The complete result (the crate's I1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The settings in the order of the source; each key at most once.
    pub settings: Vec<Setting>,
    /// In the order of the source.
    pub ignored: Vec<Ignored>,
    /// The same.
    pub users: Vec<User>,
}

impl Imported {
    /// Adds a setting, replacing an earlier one of that key: the last one wins, as in the source.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<String>, from: &str) {
        self.settings.retain(|setting| setting.key != key);
        self.settings.push(Setting { key, value: value.into(), from: from.to_owned() });
    }

    /// Removes a setting.
    pub(crate) fn unset(&mut self, key: &str) {
        self.settings.retain(|setting| setting.key != key);
    }

    pub(crate) fn ignore(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.ignored.push(Ignored { what: what.into(), why: why.into() });
    }
}
