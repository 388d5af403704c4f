//! Access control: users, certificates, and their files, which can be read again while the server
//! runs.

use sessions::acl::{Acl, OVERRULED};
use sessions::doors::{Answers, State};
use sessions::memcached_users::Users;
use sessions::tls::Certificates;

use super::Shared;

/// The result of reloading one thing: the new state, or why the old one stays.
pub type Reloaded = Result<&'static str, String>;

impl Shared {
    /// Sets the users of the memcached port; called before the workers start.
    pub fn set_users(&self, users: Users) {
        // Set once, at the start.
        let _ = self.users.set(users);
    }

    /// The users of the memcached port, if there is a file of them.
    pub fn users(&self) -> Option<&Users> {
        self.users.get()
    }

    /// The present answers of all doors (K29).
    pub fn doors(&self) -> Answers {
        Answers::new(&self.door_state())
    }

    /// The state that these answers depend on.
    pub fn door_state(&self) -> State {
        State::new(&self.config, self.acl.table().default())
    }

    /// Ends native sessions whose door is now closed to them, before a change of the users is
    /// acknowledged.
    pub fn close_doors(&self) {
        if let Some(native) = self.native.get() {
            native.obey(&|| self.doors());
        }
    }

    /// The certificates for new TLS connections.
    pub fn tls(&self) -> Option<&Certificates> {
        self.tls.as_ref()
    }

    /// The users of the RESP port.
    pub fn acl(&self) -> &Acl {
        &self.acl
    }

    /// Reads certificates and the users of the RESP port again, each by itself: a wrong file
    /// changes nothing.
    pub fn reload(&self) -> Vec<Reloaded> {
        let certificates = self.tls().map(|tls| {
            tls.reload()
                .map(|()| "certificates: read again, for connections that come")
                .map_err(|reason| format!("certificates stay as they were: {reason}"))
        });
        let users = self.acl().has_file().then(|| {
            let loaded = self.acl().load();
            self.close_doors();
            self.wake_all();
            match loaded {
                Ok(()) if self.acl().overrules_password() => Err(format!(
                    "users of --acl-file: read again; requirepass has no effect: {OVERRULED}"
                )),
                Ok(()) => Ok("users of --acl-file: read again"),
                Err(reason) => Err(format!("users stay as they were: {reason}")),
            }
        });
        certificates.into_iter().chain(users).collect()
    }
}
