//! The user of a connection, and the rights of that user.

use std::sync::Arc;

use super::Table;
use super::user::User;

/// The checks between a connection and a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None: its user may do everything.
    Open,
    /// Each command is checked.
    Restricted,
    /// It has to log in first.
    NeedsAuth,
}

/// The effect of a change of the users on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It continues.
    GoesOn,
    /// It is closed: its user is gone, or it monitors other clients and has lost the right to.
    Closes,
}

/// The user of a connection.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The checks that follow from it, by the table that was looked at last.
    pub standing: Standing,
    is_logged_in: bool,
    has_shown_password: bool,
    /// `None`: the default user.
    user: Option<Arc<User>>,
}

impl Default for Pass {
    /// The pass of a connection without a user.
    fn default() -> Pass {
        Pass {
            standing: Standing::NeedsAuth,
            is_logged_in: false,
            has_shown_password: false,
            user: None,
        }
    }
}

impl Pass {
    /// The pass of a new connection.
    pub fn new(table: &Table) -> Pass {
        let is_logged_in = table.default().takes_anybody();
        let mut pass = Pass { is_logged_in, ..Pass::default() };
        pass.judge(table);
        pass
    }

    /// Records a login with the right password of `user`, or with any if it has none.
    pub fn log_in(&mut self, user: &Arc<User>, table: &Table) {
        self.is_logged_in = true;
        self.has_shown_password = !user.takes_anybody();
        self.user = (user.id != 0).then(|| Arc::clone(user));
        self.judge(table);
    }

    /// Gives the user up: nothing may be done before another login.
    pub fn log_out(&mut self) {
        *self = Pass::default();
    }

    /// Adopts a change of the users.
    pub fn renew(&mut self, table: &Table) -> Fate {
        if let Some(user) = &self.user {
            match table.user(&user.name).filter(|known| known.id == user.id) {
                Some(known) => self.user = Some(Arc::clone(known)),
                None => {
                    (self.user, self.is_logged_in) = (None, false);
                    self.standing = Standing::NeedsAuth;
                    return Fate::Closes;
                }
            }
        }
        self.judge(table);
        Fate::GoesOn
    }

    /// The connection's user.
    pub fn user<'t>(&'t self, table: &'t Table) -> &'t Arc<User> {
        self.user.as_ref().unwrap_or(table.default())
    }

    /// Whether it was got with a password, and so stays when the last password goes.
    pub fn has_shown_password(&self) -> bool {
        self.has_shown_password
    }

    /// Whether it has to log in first.
    #[inline]
    pub fn needs_auth(&self) -> bool {
        self.standing == Standing::NeedsAuth
    }

    /// Whether MONITOR may continue to show the commands of other clients.
    pub fn may_monitor(&self, table: &Table) -> bool {
        match self.standing {
            Standing::Open => true,
            Standing::Restricted => self.user(table).may_run(b"MONITOR\r\n"),
            Standing::NeedsAuth => false,
        }
    }

    fn judge(&mut self, table: &Table) {
        self.standing = match self.user(table).is_unrestricted() {
            _ if !self.is_logged_in && !table.default().takes_anybody() => Standing::NeedsAuth,
            true => Standing::Open,
            false => Standing::Restricted,
        };
    }
}
