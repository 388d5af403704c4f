//! How far a DEL, UNLINK, EXISTS or TOUCH has come.

use wire::resp::ArgPlace;

use crate::reply::Tally;

/// A command that counts its keys, one slice of them at a time.
pub struct CountWalk {
    pub keys: ArgPlace,
    pub deletes: bool,
    /// The sum so far: other commands of the worker keep their own sums in between.
    pub tally: Tally,
}
