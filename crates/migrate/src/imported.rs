//! The result of translating another server's configuration.

/// One setting of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The TOML key.
    pub key: &'static str,
    /// As a user would write it.
    pub value: String,
    /// Which directive or flag it comes from.
    pub from: String,
}

/// A directive or flag without a counterpart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// As it was written, without values that are secret.
    pub what: String,
    /// Why nothing came of it, or what to do.
    pub why: String,
}

/// A user of the RESP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Where it comes from, from 1 on.
    pub line: usize,
    /// As a line of a file of users: `user NAME RULE ...`. It may hold passwords.
    pub text: Vec<u8>,
}

/// All of it (the crate's I1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// In the order of the source; of a key at most one.
    pub settings: Vec<Setting>,
    /// In the order of the source.
    pub ignored: Vec<Ignored>,
    /// The same.
    pub users: Vec<User>,
}

impl Imported {
    /// Adds a setting, in the place of an earlier one of that key: the last one wins, as there.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<String>, from: &str) {
        self.settings.retain(|setting| setting.key != key);
        self.settings.push(Setting { key, value: value.into(), from: from.to_owned() });
    }

    /// Takes a setting back.
    pub(crate) fn unset(&mut self, key: &str) {
        self.settings.retain(|setting| setting.key != key);
    }

    pub(crate) fn ignore(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.ignored.push(Ignored { what: what.into(), why: why.into() });
    }
}
