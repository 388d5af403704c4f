//! How far a DEL, UNLINK, EXISTS or TOUCH has come.

use commands::reply::Tally;
use wire::resp::ArgPlace;

/// A command that counts its keys, one slice of them at a time.
pub struct CountWalk {
    /// The keys that are left.
    pub keys: ArgPlace,
    /// DEL and UNLINK; the others only look.
    pub deletes: bool,
    /// The sum so far: other commands of the worker keep their own sums in between.
    pub tally: Tally,
}
