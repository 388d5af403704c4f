//! The user of a connection, and the rights of that user.

use std::sync::Arc;

use super::Table;
use super::user::User;

/// What stands between a connection and a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: its user may do everything.
    Open,
    /// Each command is checked.
    Restricted,
    /// It has to log in first.
    NeedsAuth,
}

/// What a change of the users means to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    GoesOn,
    /// Its user is gone, or it is shown what others do and has lost the right to that.
    Closes,
}

/// The user of a connection.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What that means, as of the table that it was judged by last.
    pub standing: Standing,
    is_logged_in: bool,
    /// `None`: the default user.
    user: Option<Arc<User>>,
}

impl Default for Pass {
    /// Of a connection without a user.
    fn default() -> Pass {
        Pass { standing: Standing::NeedsAuth, is_logged_in: false, user: None }
    }
}

impl Pass {
    /// Of a connection that has said nothing yet.
    pub fn new(table: &Table) -> Pass {
        let is_logged_in = table.default().takes_anybody();
        let mut pass = Pass { standing: Standing::NeedsAuth, is_logged_in, user: None };
        pass.judge(table);
        pass
    }

    /// It gave the right password of `user`.
    pub fn log_in(&mut self, user: &Arc<User>, table: &Table) {
        self.is_logged_in = true;
        self.user = (user.id != 0).then(|| Arc::clone(user));
        self.judge(table);
    }

    /// The users have changed.
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

    /// Whether it has logged in, or came when that was not asked for.
    pub fn is_logged_in(&self) -> bool {
        self.is_logged_in
    }

    /// Whether it has to log in first.
    #[inline]
    pub fn needs_auth(&self) -> bool {
        self.standing == Standing::NeedsAuth
    }

    /// Whether MONITOR may go on showing what others do.
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
