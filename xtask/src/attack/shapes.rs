//! The shapes of attacks: each row names the door, the bytes to send, and the conditions that must
//! hold.
//!
//! Add a row to the table of its subject; `cargo xtask attack --list` shows it, and every run tries
//! it. Each attack stops sending at its deadline, whatever the server does.

mod admin;
mod datagrams;
mod memcached;
mod mixture;
mod replies;
mod requests;
mod resizing;
mod tls;
mod users;

use anyhow::Result;

use super::door::Door;
use super::target::{Login, Target};

/// The attack: runs until the deadline, or until its script ends; returns the number of refusals.
pub type Attack = fn(&Target) -> Result<u64>;
/// The extra condition that must hold during the attack.
pub type Holds = fn(&Target) -> Result<()>;

/// For servers with and without a password, and clients that know it or do not.
const ANY: &[Login] = &[Login::Open, Login::In, Login::Stranger];
/// The attack needs the server's answers.
const KNOWN: &[Login] = &[Login::Open, Login::In];
/// The attack is on the login, or on code behind it.
const LOCKED: &[Login] = &[Login::In, Login::Stranger];
/// The door has no login.
const UNNAMED: &[Login] = &[Login::Open, Login::Stranger];
/// The door is closed if there is a password.
const OPEN: &[Login] = &[Login::Open];

/// One row.
#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub door: Door,
    pub about: &'static str,
    /// The kinds of login; a short run takes the first.
    pub logins: &'static [Login],
    pub attack: Attack,
    pub holds: Option<Holds>,
    /// Whether it leaves data behind on purpose, so that its server serves no other trial.
    pub spoils: bool,
}

impl Shape {
    const fn new(name: &'static str, door: Door, about: &'static str, attack: Attack) -> Shape {
        Shape { name, door, about, logins: ANY, attack, holds: None, spoils: false }
    }

    const fn by(self, logins: &'static [Login]) -> Shape {
        Shape { logins, ..self }
    }

    const fn holding(self, holds: Holds) -> Shape {
        Shape { holds: Some(holds), ..self }
    }

    const fn spoiling(self) -> Shape {
        Shape { spoils: true, ..self }
    }
}

/// All rows.
pub fn all() -> Vec<&'static Shape> {
    let tables = [
        replies::SHAPES,
        requests::SHAPES,
        resizing::SHAPES,
        users::SHAPES,
        memcached::SHAPES,
        tls::SHAPES,
        datagrams::SHAPES,
        admin::SHAPES,
        mixture::SHAPES,
    ];
    tables.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn at_least_forty_shapes_have_names_of_their_own() {
        let names: Vec<&str> = all().iter().map(|shape| shape.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(names.len() >= 40, "{}", names.len());
        assert!(names.iter().all(|name| name.len() <= 30), "the table has 30 columns for a name");
    }

    #[test]
    fn every_door_is_attacked_with_and_without_a_password() {
        for door in Door::ALL {
            let of_door: Vec<_> = all().into_iter().filter(|shape| shape.door == door).collect();
            let tries = |login| of_door.iter().any(|shape| shape.logins.contains(&login));
            assert!(tries(Login::Open), "{door}");
            // It is closed beside a password.
            assert!(tries(Login::Stranger) || door == Door::MemcachedUdp, "{door}");
        }
    }

    #[test]
    fn the_page_names_every_shape() {
        let page = include_str!("../../../docs/attack.md");
        for shape in all() {
            let row = format!("| `{}` | {} | {} |", shape.name, shape.door, shape.about);
            assert!(page.contains(&row), "docs/attack.md lacks: {row}");
        }
    }
}
